//! The write-back journal of codetether-agent 4.7.4 (`session::journal`), durable.
//!
//! ```text
//!   stage ─▶ validate ─▶ commit       a failed check or a call of reject ─▶ rejected, which is recorded
//!     └─ crash ─▶ left open ─▶ reconcile (then commit or reject)  or  abandon
//! ```
//!
//! That crate is an application and cannot be a dependency, so its types are copied here. Their JSON, and the export, equal the
//! crate's byte for byte. Invariant: a session uses each transaction number once, even if it is opened again.

mod check;
mod convert;
mod state;
mod types;

pub use check::{Checks, Phase};
pub use types::{CommitError, Error, JournalEntry, Op, Open, RejectReason, TxnId};

use crate::{
    blocking::Blocking,
    confirmed_write,
    record_list::{self, List, Reader},
};
use runlog_producer::{
    Runlog, SideEffect, Writer,
    answer::{Disposition, ErrorKind},
    id::{RecordId, RunId},
    payload::Payload,
    record::JournalRecord,
};
use state::{Pending, State};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The write-back journal of a session. The session id is the run id.
///
/// Each method returns once its record is applied. The methods may be called from several threads and from inside any runtime;
/// they block the calling thread. Another process that opens the session takes it over, and writes here fail from then on
/// ([`crate::taken_over`]).
#[derive(Debug)]
pub struct WritebackJournal {
    journal: Blocking,
    writer: Box<Writer>,
    /// The list of its entries.
    list: List,
    clock: fn() -> u64,
    checks: Checks,
    state: Mutex<State>,
}

impl WritebackJournal {
    /// Takes the session over and reads all of its entries, to find the transactions that earlier processes left open. `clock`
    /// returns the time of new entries, in milliseconds since the Unix epoch.
    ///
    /// Errors: `Usage` for a session id that is not a run id (empty, or over 1024 bytes); `ClaimLost` if another process was
    /// faster.
    pub fn open(journal: Blocking, session_id: &str, clock: fn() -> u64, checks: Checks) -> Result<Self, Error> {
        let run_id = RunId::try_from(session_id).map_err(runlog_producer::Error::from)?;
        let (list, mut state) = (list(&run_id), State::default());
        let writer = journal.wait(async {
            let writer = journal.runlog().writer(run_id.clone()).await?;
            for entry in read(journal.runlog(), &run_id, &list).await? {
                state.replay(entry);
            }
            Ok::<_, Error>(Box::new(writer))
        })?;
        Ok(Self { journal, writer, list, clock, checks, state: Mutex::new(state) })
    }

    /// The session this journal belongs to.
    pub fn session_id(&self) -> &str {
        self.writer.id().as_str()
    }

    /// All entries of the session in log order, including entries of earlier processes.
    ///
    /// Errors: [`Error::Unreadable`] for an operation or a reason that this version does not know.
    pub fn entries(&self) -> Result<Vec<JournalEntry>, Error> {
        self.journal.wait(read(self.journal.runlog(), self.writer.id(), &self.list))
    }

    /// The entries in the format of the crate's `SESSION.journal.jsonl`: one per line.
    pub fn to_jsonl(&self) -> Result<String, Error> {
        let line = |entry: &JournalEntry| serde_json::to_string(entry).map(|line| line + "\n");
        let lines: Result<String, _> = self.entries()?.iter().map(line).collect();
        lines.map_err(|error| Error::Unreadable { record_id: String::new(), what: error.to_string() })
    }

    /// Stages an operation. If it is unknown whether its record is in the log, its number is not used again, and the next
    /// process that opens the session may find it left open.
    pub fn stage(&self, op: Op) -> Result<TxnId, Error> {
        let mut state = self.state();
        let txn = TxnId(state.next);
        let at = types::rfc3339((self.clock)());
        let record = self.draft_listed(convert::staged(txn, &at, &op))?;
        state.next += 1;
        self.write(vec![record])?;
        state.pending.insert(txn, Pending::new(op, at));
        Ok(txn)
    }

    /// Runs the checks on a staged transaction. The first that fails rejects it, which is recorded.
    pub fn validate(&self, txn: TxnId) -> Result<(), CommitError> {
        self.check(&mut self.state(), txn)
    }

    /// Commits a staged transaction that passes its checks.
    ///
    /// Errors: [`CommitError::Rejected`] with [`RejectReason::SchemaMismatch`], without a record, for a transaction
    /// that is not pending (never staged, ended, or left open by an earlier process and not reconciled).
    /// [`CommitError::Rejected`] with the reason of a check that failed; the rejection is recorded. After
    /// [`CommitError::Journal`] it is still pending: commit it again to find out.
    pub fn commit(&self, txn: TxnId) -> Result<(), CommitError> {
        let mut state = self.state();
        let unsettled = state.pending.get(&txn).is_some_and(|pending| pending.committing.is_some());
        if !unsettled {
            self.check(&mut state, txn)?;
        }
        let mut tried = self.try_commit(&mut state, txn);
        if matches!(&tried, Err(error) if conflicts(error)) {
            // This process claimed the run again after a failure: transactions that were staged in an earlier epoch are
            // carried over.
            state.mark_all_earlier();
            tried = self.try_commit(&mut state, txn);
        }
        tried.map_err(CommitError::Journal)?;
        state.pending.remove(&txn);
        Ok(())
    }

    /// Rejects a transaction, whether or not it is staged. This does not undo a commit.
    ///
    /// If the outcome of an earlier commit is unknown, this process claims the run and reads the outcome before it
    /// records the rejection. Errors: [`Error::Committed`], without a record, if that commit was applied.
    /// [`Error::Journal`] if its outcome cannot be found out; the transaction is unchanged.
    pub fn reject(&self, txn: TxnId, reason: RejectReason) -> Result<(), Error> {
        self.append_rejection(&mut self.state(), txn, &reason)
    }

    /// Transactions that earlier processes staged and did not end, by number. Their operations may have happened.
    pub fn left_open(&self) -> Vec<Open> {
        let open = |(txn, left): (&TxnId, &Pending)| Open { txn: *txn, at: left.at.clone(), op: left.op.clone() };
        self.state().left.iter().map(open).collect()
    }

    /// Makes a transaction that was left open pending again, so that it can be committed (its operation happened, or was done
    /// now) or rejected.
    ///
    /// Errors: [`RejectReason::SchemaMismatch`] for a transaction that was not left open.
    pub fn reconcile(&self, txn: TxnId) -> Result<(), RejectReason> {
        let mut state = self.state();
        let left = state.left.remove(&txn).ok_or_else(|| not_pending(txn))?;
        state.pending.insert(txn, left);
        Ok(())
    }

    /// Gives up a transaction that was left open: [`WritebackJournal::reject`].
    pub fn abandon(&self, txn: TxnId, reason: RejectReason) -> Result<(), Error> {
        self.reject(txn, reason)
    }

    /// The number of pending transactions: staged or reconciled here, and neither committed nor rejected.
    pub fn pending_count(&self) -> usize {
        self.state().pending.len()
    }

    /// Locked during writes, only by callers' threads.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, state: &mut State, txn: TxnId) -> Result<(), CommitError> {
        let pending = state.pending.get(&txn).ok_or_else(|| CommitError::Rejected(not_pending(txn)))?;
        let Err(reason) = self.checks.run(&pending.op) else { return Ok(()) };
        self.append_rejection(state, txn, &reason).map_err(CommitError::Journal)?;
        Err(CommitError::Rejected(reason))
    }

    fn append_rejection(&self, state: &mut State, txn: TxnId, reason: &RejectReason) -> Result<(), Error> {
        self.not_committed(state, txn)?;
        let at = types::rfc3339((self.clock)());
        let record = self.draft_listed(convert::rejected(txn, &at, reason))?;
        self.write(vec![record])?;
        state.pending.remove(&txn);
        state.left.remove(&txn);
        Ok(())
    }

    /// Makes sure that a commit whose outcome is unknown was not applied and never will be.
    fn not_committed(&self, state: &mut State, txn: TxnId) -> Result<(), Error> {
        let Some(pending) = state.pending.get_mut(&txn) else { return Ok(()) };
        let Some(committed) = pending.committing.as_ref().and_then(|records| records.last()) else { return Ok(()) };
        let landed = self.journal.wait(async {
            // This claims the run again. After that claim the record is in the log, or never will be.
            self.writer.next().await?;
            self.journal.runlog().landed(self.writer.id().clone(), &committed.body.record_id).await
        })?;
        if landed.is_some_and(|landed| landed.outcome.outcome != Disposition::Refused) {
            state.pending.remove(&txn);
            return Err(Error::Committed(txn));
        }
        pending.committing = None;
        Ok(())
    }

    /// Writes the commit once. The records of an attempt whose outcome is unknown are written again unchanged.
    fn try_commit(&self, state: &mut State, txn: TxnId) -> Result<(), Error> {
        let Some(pending) = state.pending.get_mut(&txn) else { return Ok(()) };
        let records = match pending.committing.take() {
            Some(records) => records,
            None => self.commits(txn, pending)?,
        };
        let wrote = self.write(records.clone());
        if let Err(Error::Journal(error)) = &wrote
            && error.side_effect() == SideEffect::Unknown
        {
            pending.committing = Some(records);
        }
        wrote
    }

    /// The records that commit a transaction. A transaction that was staged in an earlier epoch is ended there and
    /// staged again in this epoch; these two records are in no list, because it is the same transaction.
    fn commits(&self, txn: TxnId, pending: &Pending) -> Result<Vec<JournalRecord>, Error> {
        let committed = self.draft_listed(convert::committed(txn, &types::rfc3339((self.clock)())))?;
        if !pending.earlier {
            return Ok(vec![committed]);
        }
        let carried = RejectReason::SchemaMismatch { detail: "carried over into another epoch".into() };
        let ended = self.writer.draft(None, convert::rejected(txn, &pending.at, &carried))?;
        let staged = self.writer.draft(None, convert::staged(txn, &pending.at, &pending.op))?;
        Ok(vec![ended, staged, committed])
    }

    fn draft_listed(&self, payload: Payload) -> Result<JournalRecord, Error> {
        let mut record = self.writer.draft(None, payload)?;
        record_list::add(&mut record, std::slice::from_ref(&self.list));
        record.body.session_id = Some(self.session_id().to_owned());
        Ok(record)
    }

    /// Writes one record, or several that are applied together.
    fn write(&self, mut records: Vec<JournalRecord>) -> Result<(), Error> {
        self.journal.wait(async {
            match records.pop() {
                Some(record) if records.is_empty() => confirmed_write::write(&self.writer, record).await.map(drop)?,
                Some(last) => {
                    // The batch id follows from the id of its last record, so a batch that is written again has the same id.
                    let name = format!("{}/batch", last.body.record_id);
                    records.push(last);
                    let name = RecordId::new(name).map_err(runlog_producer::Error::from)?;
                    confirmed_write::batch(&self.writer, name, records).await.map(drop)?;
                }
                None => {}
            }
            Ok(())
        })
    }
}

/// Worded as in the crate.
fn not_pending(txn: TxnId) -> RejectReason {
    RejectReason::SchemaMismatch { detail: format!("txn {txn:?} is not pending") }
}

fn conflicts(error: &Error) -> bool {
    matches!(error, Error::Journal(error) if error.kind() == ErrorKind::Conflict)
}

fn list(run_id: &RunId) -> List {
    List::new("codetether.journal", &[run_id.as_str()])
}

async fn read(runlog: &Runlog, run_id: &RunId, list: &List) -> Result<Vec<JournalEntry>, Error> {
    let mut entries = Vec::new();
    let mut reader = Reader::all(runlog, run_id, list.clone());
    while let Some(page) = reader.page().await? {
        for read in page {
            entries.extend(convert::entry(&read.record?)?);
        }
    }
    Ok(entries)
}
