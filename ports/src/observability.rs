//! ploke's observability store (ploke-db, milestone 0): conversation turns and the lifecycle of tool calls, with time travel.
//!
//! ```text
//!   a write ─▶ read the statements about its row (one seek; for a new call one get) ─▶ nothing new? done
//!                                                     ─▶ a record, or a batch, applied ─▶ callbacks
//! ```
//!
//! Nothing is changed in place: a row is the fold of its statements, now or as of a time (`fold`). The trait is copied from the
//! contract, which is not published as a crate. Invariants: an ended call keeps its end; a key has one row.

mod fold;
mod records;
mod row_store;
mod types;
mod watch;

pub use types::{
    Config, ConversationTurn, DbError, ObservabilityStore, ToolCall, ToolCallDone, ToolCallReq, ToolStatus, Validity,
    Write,
};
pub use watch::{Change, Operation, Relation, Row};

use crate::blocking::Blocking;
use row_store::RowStore;
use runlog_producer::id::RunId;
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;
use watch::Watchers;

/// The store of a workspace, which is the run with that id.
///
/// It may be used from several threads and from inside any runtime; calls block their thread. Writes are applied one after
/// another. The first write claims the run. If another process writes, it takes the run over, and writes here fail from then
/// on ([`crate::taken_over`]). Reads claim nothing, and see all that was in the log when they started.
///
/// [`runlog_producer::Config::redaction`] applies to turns only. [`Config::content`] decides whether arguments and outcomes are
/// recorded, whole or not at all.
#[derive(Debug)]
pub struct Store {
    journal: Blocking,
    rows: RowStore,
    /// Locked during a write, only on callers' threads, so that callbacks run in log order.
    watchers: Mutex<Watchers>,
}

impl Store {
    /// The store of a workspace; reads and writes nothing yet.
    ///
    /// Errors: `Usage` for a workspace id that is not a run id (empty, or over 1024 bytes).
    pub fn open(journal: Blocking, workspace_id: &str, config: Config) -> Result<Self, DbError> {
        let run_id = RunId::try_from(workspace_id).map_err(runlog_producer::Error::from)?;
        let rows = RowStore::new(journal.runlog().clone(), run_id, config);
        Ok(Self { journal, rows, watchers: Mutex::default() })
    }

    /// Makes writes, in order, that are applied together or not at all. Together they must fit one record of the log and one batch
    /// of the journal. Writes that change nothing are left out.
    pub fn atomically(&self, writes: Vec<Write>) -> Result<(), DbError> {
        let mut watchers = self.watchers();
        let changes = self.journal.wait(self.rows.write(writes))?;
        watchers.notify(&changes);
        Ok(())
    }

    /// Retracts a turn from a time on (inclusive), recording who does it and why.
    ///
    /// Errors: [`DbError::NotThere`] if the turn does not exist at that time.
    pub fn retract_turn(&self, id: Uuid, at_ms: i64, who: &str, why: &str) -> Result<(), DbError> {
        let mut watchers = self.watchers();
        let change = self.journal.wait(self.rows.retract_turn(id, at_ms, (who, why)))?;
        watchers.notify(&[change]);
        Ok(())
    }

    /// Retracts a call from a time on (inclusive), as [`Store::retract_turn`] does. If the call has ended, it stays ended.
    pub fn retract_tool_call(
        &self,
        request_id: Uuid,
        call_id: &str,
        at_ms: i64,
        who: &str,
        why: &str,
    ) -> Result<(), DbError> {
        let mut watchers = self.watchers();
        let change = self.journal.wait(self.rows.retract_call((request_id, call_id), at_ms, (who, why)))?;
        watchers.notify(&[change]);
        Ok(())
    }

    /// A call as of a valid time, from all statements made until now.
    pub fn get_tool_call_at(&self, request_id: Uuid, call_id: &str, at_ms: i64) -> Result<Option<ToolCall>, DbError> {
        self.journal.wait(self.rows.call((request_id, call_id), at_ms))
    }

    /// The calls of a message as of a valid time.
    pub fn list_tool_calls_by_parent_at(
        &self,
        parent_id: Uuid,
        at_ms: i64,
        limit: usize,
    ) -> Result<Vec<ToolCall>, DbError> {
        self.journal.wait(self.rows.by_parent(parent_id, at_ms, limit))
    }

    /// The turns from a time on as of a valid time.
    pub fn list_conversation_at(
        &self,
        since_ms: i64,
        at_ms: i64,
        limit: usize,
    ) -> Result<Vec<ConversationTurn>, DbError> {
        self.journal.wait(self.rows.since(since_ms, at_ms, limit))
    }

    /// Calls `callback` with each later change that this store makes to a relation: after the write, once per change, in log
    /// order, on a thread of its own. Returns the number that unregisters it.
    ///
    /// It never delays a write. Up to `capacity` changes (at least one) wait for a slow callback; further changes are
    /// dropped and counted in [`Change::missed`]. A callback that panics is called again with the next change.
    ///
    /// Errors: the system cannot start a thread.
    pub fn register_callback(
        &self,
        relation: Relation,
        capacity: usize,
        callback: impl FnMut(Change) + Send + 'static,
    ) -> io::Result<u32> {
        self.watchers().register(relation, capacity, callback)
    }

    /// Unregisters a callback, which still receives the changes that wait for it. Returns whether it was registered.
    pub fn unregister_callback(&self, id: u32) -> bool {
        self.watchers().unregister(id)
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObservabilityStore for Store {
    fn upsert_conversation_turn(&self, turn: ConversationTurn) -> Result<(), DbError> {
        self.atomically(vec![Write::Turn(turn)])
    }

    fn list_conversation_since(&self, since_ms: i64, limit: usize) -> Result<Vec<ConversationTurn>, DbError> {
        self.list_conversation_at(since_ms, fold::END, limit)
    }

    fn record_tool_call_requested(&self, req: ToolCallReq) -> Result<(), DbError> {
        self.atomically(vec![Write::Requested(req)])
    }

    fn record_tool_call_done(&self, done: ToolCallDone) -> Result<(), DbError> {
        self.atomically(vec![Write::Done(done)])
    }

    fn get_tool_call(&self, request_id: Uuid, call_id: &str) -> Result<Option<ToolCall>, DbError> {
        self.get_tool_call_at(request_id, call_id, fold::END)
    }

    fn list_tool_calls_by_parent(&self, parent_id: Uuid, limit: usize) -> Result<Vec<ToolCall>, DbError> {
        self.list_tool_calls_by_parent_at(parent_id, fold::END, limit)
    }
}
