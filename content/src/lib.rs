//! The content store: payloads that are too large for a record, each under the SHA-256 of its encoding.
//!
//! ```text
//!   record ──stow──▶ payload ──put──▶ sha256/ab/abcd…      before the record is appended
//!     └──────▶ the same record with a claim check ──▶ log
//!   claim check ──resolve──▶ get ──▶ length and hash verified ──▶ payload
//! ```
//!
//! An object is written before the record that names it. Its content never changes; an upload replaces only a damaged object.
//! The judge and the projection never read objects. An object without a record does no harm: the next upload of the same
//! content finds it.
//!
//! Every call ends within [`Config::deadline`], its retries included. Cancelled, a `put` may have stored the object.

#![deny(missing_docs)]

mod config;
mod error;
mod s3;
mod store;

pub use config::{Config, INLINE_BYTES_MAX, INLINE_BYTES_RANGE};
pub use error::{Error, Kind};
pub use store::{CONTENT_BYTES_MAX, Reference, Store};
