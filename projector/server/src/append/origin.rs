//! The origin of a request to append.

use crate::auth::Caller;
use runlog_schemas::id::ContentHash;

/// The origin of a request to append.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// The request's `traceparent`, which every appended record carries as a header.
    pub(crate) traceparent: Option<String>,
    /// The caller. Its principal is written to decisions and to other records that name a person. Content that the
    /// request adds to the content store counts against its quota.
    pub(crate) caller: Caller,
    /// Whether its body is at most [`PLANNED_HERE_BYTES_MAX`] long.
    pub(crate) is_small: bool,
    /// The basis that a decision's author saw, if the record itself may not contain it.
    pub(crate) basis: Option<ContentHash>,
    /// Whether a decision is appended although the effect's process may still be running the effect.
    pub(crate) force: bool,
}

impl From<&Caller> for Origin {
    fn from(caller: &Caller) -> Self {
        Self { caller: caller.clone(), ..Self::default() }
    }
}
