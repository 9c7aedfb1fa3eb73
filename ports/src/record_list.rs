//! Lists of a port's records: correlation entries in the journal's event index.

mod list;
// agent-sdk-core's port reads pages itself.
#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
mod reader;

#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
pub(crate) use reader::Reader;

pub(crate) use list::{List, add};
