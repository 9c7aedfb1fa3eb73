//! `wakes`: wake conditions by id: what a run waits for. A run's open ones are one seek and a step each, those of
//! all runs as well.

use super::Index;

/// Rows as in [`evolving`](super::evolving).
pub const INDEX: Index = Index::Wakes;
