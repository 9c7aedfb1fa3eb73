//! The principal that claimed an epoch of a run. A server with authentication writes it into a header of the claim's record, and
//! lets a credential without `resolve` write under an epoch only if its principal claimed the epoch.
//!
//! ```text
//!   claim ─▶ header runlog-claimant ─▶ ClaimRow ─▶ checked at the door
//! ```
//!
//! It is a header, because a mirror copies records with their headers, and because the content hash of a claim must stay the same
//! when the claim is sent again. A client that writes to the topic directly can write any header. It can also write any record
//! under any epoch, so a signature would protect nothing.

use runlog_log::Entry;

/// The name of the header. Its value is the principal's text.
pub const HEADER: &str = "runlog-claimant";

/// The longest principal that is read, bytes.
const BYTES_MAX: usize = 128;

/// Adds the header to the entry of a claim.
pub fn mark(entry: &mut Entry, principal: &str) {
    entry.headers.push((HEADER.to_owned(), principal.as_bytes().to_vec()));
}

/// The principal in a record's headers. `None` without one: the claim is of a server without authentication, of a build that wrote
/// no such header, or was written directly to the topic.
pub fn claimant(headers: &[(String, Vec<u8>)]) -> Option<&str> {
    let (_, value) = headers.iter().find(|(name, _)| name == HEADER)?;
    std::str::from_utf8(value).ok().filter(|principal| (1..=BYTES_MAX).contains(&principal.len()))
}
