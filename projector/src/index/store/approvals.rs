//! `approvals`: approvals by request id: what was asked for and is not decided yet. A run's open ones are one seek
//! and a step each, those of all runs as well.

use super::Index;

/// Rows as in [`evolving`](super::evolving).
pub const INDEX: Index = Index::Approvals;
