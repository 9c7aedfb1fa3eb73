//! bob-core's tool journal: [`ToolJournalPort`] of bob-core 0.3.2.
//!
//! ```text
//!   append ─▶ session's writer ─▶ a record, applied             session id = run id
//!   lookup ─▶ one seek: SHA-256(session id ‖ 0x00 ‖ fingerprint) ─▶ the first entry whose fingerprint is that, whole
//! ```
//!
//! Invariant: `lookup` returns `None` only if the log has no such entry. An entry that cannot be read is an error.

mod exact;

use crate::{
    confirmed_write,
    depth::{DEPTH_MAX, nests_within},
    record_list::{self, List, Reader},
    writer_pool::WriterPool,
};
use ::bob_core::{
    error::StoreError,
    journal::{JournalEntry, ToolJournalPort},
    types::SessionId,
};
use runlog_producer::{
    Error, Json, Runlog,
    id::RunId,
    payload::{Payload, observed::ToolJournalEntry},
    record::{JournalRecord, REDACTION_DEFAULT},
};
use serde_json::Value;

/// Tool journals of any number of sessions, each in the run with the session's id.
///
/// `append` returns when the entry is in the log and applied: from then on every process finds it. After an error or a
/// cancellation it may have been recorded, but never twice. The first `append` claims the session. Another process that appends
/// takes it over, and appends here fail from then on. `lookup` and `entries` claim nothing. Entries are in log order; concurrent
/// appends are in the order of the calls.
///
/// Errors: [`StoreError::Serialization`] for an entry that a record cannot hold (JSON nested deeper than 120 levels, a
/// time beyond 2^63 − 1), which was not appended. [`StoreError::Other`] holds a [`runlog_producer::Error`], whose kind
/// and action say what to do; `Usage` for a session id that is not a run id (empty, or over 1024 bytes).
#[derive(Debug)]
pub struct ToolJournal {
    writers: WriterPool,
}

impl ToolJournal {
    /// Tool journals in `runlog`.
    pub fn new(runlog: Runlog) -> Self {
        Self { writers: WriterPool::new(runlog) }
    }
}

#[async_trait::async_trait]
impl ToolJournalPort for ToolJournal {
    async fn append(&self, entry: JournalEntry) -> Result<(), StoreError> {
        let run_id = session(&entry.session_id)?;
        let payload = payload(&entry)?;
        let writer = self.writers.writer(&run_id).await.map_err(store_error)?;
        let mut record = writer.draft(None, payload).map_err(store_error)?;
        add_to_lists(&mut record, &entry);
        confirmed_write::write(&writer, record).await.map(drop).map_err(store_error)
    }

    async fn lookup(&self, session_id: &SessionId, fingerprint: &str) -> Result<Option<JournalEntry>, StoreError> {
        let mut reader =
            Reader::first(self.writers.runlog(), &session(session_id)?, call_list(session_id, fingerprint));
        while let Some(page) = reader.page().await.map_err(store_error)? {
            for read in page {
                let record = read.record.map_err(store_error)?;
                // A redaction may have changed the fingerprint; the index contains the original's hash.
                let redacted = record.body.redaction_policy_id != REDACTION_DEFAULT;
                // Another process may have added other records under this hash.
                let same = |entry: &JournalEntry| redacted || entry.call_fingerprint == fingerprint;
                if let Some(entry) = entry(record)?.filter(|entry| is(entry, session_id) && same(entry)) {
                    return Ok(Some(JournalEntry { call_fingerprint: fingerprint.to_owned(), ..entry }));
                }
            }
        }
        Ok(None)
    }

    async fn entries(&self, session_id: &SessionId) -> Result<Vec<JournalEntry>, StoreError> {
        let mut entries = Vec::new();
        let mut reader = Reader::all(self.writers.runlog(), &session(session_id)?, session_list(session_id));
        while let Some(page) = reader.page().await.map_err(store_error)? {
            for read in page {
                let entry = entry(read.record.map_err(store_error)?)?;
                entries.extend(entry.filter(|entry| is(entry, session_id)));
            }
        }
        Ok(entries)
    }
}

fn session(session_id: &SessionId) -> Result<RunId, StoreError> {
    RunId::try_from(session_id).map_err(|illegal| store_error(illegal.into()))
}

fn is(entry: &JournalEntry, session_id: &SessionId) -> bool {
    entry.session_id == *session_id
}

fn store_error(error: Error) -> StoreError {
    StoreError::Other(Box::new(error))
}

fn session_list(session_id: &str) -> List {
    List::new("bob-core.session", &[session_id])
}

fn call_list(session_id: &str, fingerprint: &str) -> List {
    List::new("bob-core.call", &[session_id, fingerprint])
}

/// Adds an entry's record to the lists of its session and of its call.
fn add_to_lists(record: &mut JournalRecord, entry: &JournalEntry) {
    let lists = [call_list(&entry.session_id, &entry.call_fingerprint), session_list(&entry.session_id)];
    record_list::add(record, &lists);
    record.body.session_id = Some(entry.session_id.clone());
    record.body.event_index.session_id.clone_from(&record.body.session_id);
}

fn payload(entry: &JournalEntry) -> Result<ToolJournalEntry, StoreError> {
    if i64::try_from(entry.timestamp_ms).is_err() {
        let message = format!("timestamp_ms must be at most {}, not {}", i64::MAX, entry.timestamp_ms);
        return Err(StoreError::Serialization(message));
    }
    // A value that readers refuse must not be written.
    let json = |name: &str, value: &Value| {
        if !nests_within(value, DEPTH_MAX) {
            return Err(StoreError::Serialization(format!("{name} nest deeper than {DEPTH_MAX} levels; flatten them")));
        }
        Json::of(value).map_err(|error| StoreError::Serialization(format!("{name}: {error}")))
    };
    Ok(ToolJournalEntry {
        session_id: entry.session_id.clone(),
        call_fingerprint: entry.call_fingerprint.clone(),
        tool_name: entry.tool_name.clone(),
        arguments: json("arguments", &entry.arguments)?,
        result: json("result", &entry.result)?,
        is_error: entry.is_error,
        timestamp_ms: entry.timestamp_ms,
    })
}

/// The entry in a record. `None` for a record of another kind.
fn entry(record: JournalRecord) -> Result<Option<JournalEntry>, StoreError> {
    let Payload::ToolJournalEntry(payload) = record.payload else { return Ok(None) };
    let json = |name: &str, json: &Json| {
        exact::value(json.as_str())
            .map_err(|error| StoreError::Serialization(format!("{name} of record {}: {error}", record.body.record_id)))
    };
    Ok(Some(JournalEntry {
        arguments: json("arguments", &payload.arguments)?,
        result: json("result", &payload.result)?,
        session_id: payload.session_id,
        call_fingerprint: payload.call_fingerprint,
        tool_name: payload.tool_name,
        is_error: payload.is_error,
        timestamp_ms: payload.timestamp_ms,
    }))
}
