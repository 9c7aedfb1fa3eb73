//! Whether a handle can append.
//!
//! ```text
//!   ready ──append──▶ unacknowledged ──acknowledged──▶ ready
//!                       ├── unknown, refused, cancelled (not an intent) ──▶ stopped ──reopen──▶ ready
//!                       └── fenced ───────────────────────▶ lost: results can only be appended as evidence
//!   ready ──its own end applied──▶ ended: likewise
//! ```

use crate::error::Error;

/// Whether a handle can append.
#[derive(Clone, Debug)]
pub(crate) enum WriterState {
    /// The handle can append.
    Ready,
    /// The handle can append only after it is reopened.
    Stopped {
        error: Error,
        /// A checkpoint failed, which must not fail the agent's loop: the next operation reopens the handle first.
        checkpoint: bool,
    },
    /// The handle can never append again: another process writes the run.
    Lost(Error),
    /// The handle can never append again: the run ended.
    Ended(Error),
}

impl WriterState {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the handle can never append again, except results as evidence.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Ended(_))
    }

    /// The error for further appends, if the run ended.
    pub(crate) fn ended(&self) -> Option<&Error> {
        if let Self::Ended(error) = self { Some(error) } else { None }
    }

    /// The error that prevents appends.
    pub(super) fn error(&self) -> Option<&Error> {
        match self {
            Self::Ready => None,
            Self::Stopped { error, .. } | Self::Lost(error) | Self::Ended(error) => Some(error),
        }
    }
}
