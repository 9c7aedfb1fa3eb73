//! Who is told of changes, and how a slow or broken one is kept from holding anybody up.

use super::types::{ConversationTurn, ToolCall};
use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

/// What has rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// Conversation turns.
    ConversationTurns,
    /// Tool calls.
    ToolCalls,
}

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is there, or is another one.
    Put,
    /// It was retracted.
    Rm,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Of the turns.
    Turn(ConversationTurn),
    /// Of the calls.
    Call(Box<ToolCall>),
}

/// A change, as all stands that was ever stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of what.
    pub relation: Relation,
    /// What happened.
    pub operation: Operation,
    /// The row behind the write; none where it was retracted.
    pub new: Option<Row>,
    /// The row before the write, where it was there.
    pub old: Option<Row>,
    /// Changes that this callback was not told between the one before and this one, since too many waited.
    pub missed: u64,
}

#[derive(Debug)]
struct Watcher {
    relation: Relation,
    tell: SyncSender<Change>,
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
        let (tell, told) = sync_channel(capacity.max(1));
        // It ends when nobody can tell it anything any more.
        thread::Builder::new().name("runlog-callback".into()).spawn(move || {
            for change in told {
                if catch_unwind(AssertUnwindSafe(|| callback(change))).is_err() {
                    tracing::error!("a callback on changes panicked, and is called with the next one");
                }
            }
        })?;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.registered.insert(id, Watcher { relation, tell, missed: 0 });
        Ok(id)
    }

    pub(super) fn unregister(&mut self, id: u32) -> bool {
        self.registered.remove(&id).is_some()
    }

    /// Tells each what concerns it, and waits for none.
    pub(super) fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            for watcher in self.registered.values_mut().filter(|watcher| watcher.relation == change.relation) {
                let told = watcher.tell.try_send(Change { missed: watcher.missed, ..change.clone() });
                watcher.missed = if told.is_ok() { 0 } else { watcher.missed + 1 };
            }
        }
    }
}
