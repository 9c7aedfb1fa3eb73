//! `messages`: messages between runs by id, open until they are delivered. A run's open ones are one seek and a step
//! each, those of all runs as well.

use super::Index;

/// Rows as in [`evolving`](super::evolving).
pub const INDEX: Index = Index::Messages;
