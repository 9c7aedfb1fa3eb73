//! Callbacks on changes. A slow or failing callback delays nothing else.

use super::types::{ConversationTurn, ToolCall};
use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

/// A relation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// Conversation turns.
    ConversationTurns,
    /// Tool calls.
    ToolCalls,
}

/// The kind of a change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It was inserted or replaced.
    Put,
    /// It was retracted.
    Rm,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A turn.
    Turn(ConversationTurn),
    /// A call.
    Call(Box<ToolCall>),
}

/// A change of a row's current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row's relation.
    pub relation: Relation,
    /// The kind of the change.
    pub operation: Operation,
    /// The row after the write; `None` if it was retracted.
    pub new: Option<Row>,
    /// The row before the write, if it existed.
    pub old: Option<Row>,
    /// Changes that this callback missed before this change, because its queue was full.
    pub missed: u64,
}

#[derive(Debug)]
struct Watcher {
    relation: Relation,
    sender: SyncSender<Change>,
    missed: u64,
}

/// The callbacks of a store.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    registered: BTreeMap<u32, Watcher>,
    next: u32,
}

impl Watchers {
    pub(super) fn register(
        &mut self,
        relation: Relation,
        capacity: usize,
        mut callback: impl FnMut(Change) + Send + 'static,
    ) -> io::Result<u32> {
        let (sender, changes) = sync_channel(capacity.max(1));
        // The thread ends when the sender is dropped.
        thread::Builder::new().name("runlog-callback".into()).spawn(move || {
            for change in changes {
                if catch_unwind(AssertUnwindSafe(|| callback(change))).is_err() {
                    tracing::error!("a callback on changes panicked, and is called with the next one");
                }
            }
        })?;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.registered.insert(id, Watcher { relation, sender, missed: 0 });
        Ok(id)
    }

    pub(super) fn unregister(&mut self, id: u32) -> bool {
        self.registered.remove(&id).is_some()
    }

    /// Sends the changes to their callbacks without waiting.
    pub(super) fn notify(&mut self, changes: &[Change]) {
        for change in changes {
            for watcher in self.registered.values_mut().filter(|watcher| watcher.relation == change.relation) {
                let sent = watcher.sender.try_send(Change { missed: watcher.missed, ..change.clone() });
                watcher.missed = if sent.is_ok() { 0 } else { watcher.missed + 1 };
            }
        }
    }
}
