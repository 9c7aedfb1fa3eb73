//! `proposals`: code edits by the request that they answer, open until they are denied or applied. A run's open ones
//! are one seek and a step each, those of all runs as well; the facts carry their valid time.

use super::Index;

/// Rows as in [`evolving`](super::evolving).
pub const INDEX: Index = Index::Proposals;
