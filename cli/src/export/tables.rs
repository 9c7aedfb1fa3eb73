//! Exports runs as tables: Parquet files `runs`, `records`, `tool_calls`, `effects`, `checkpoints` and `anomalies`, as of a
//! position of each partition.
//!
//! ```text
//!   a run: records ──▶ records, checkpoints          recovery at the position ──▶ runs, pending effects
//!                 └──▶ its calls and effects ─────────────────────────────────▶ tool_calls, effects
//!   the journal: refused records up to the position ──▶ anomalies
//! ```
//!
//! The server returns, as of the position, all data that depends on the rules: a run's state and its pending effects. The other
//! data comes from the applied records: a call's end is the record that answers it.
//!
//! Memory: one row group of each table, and the calls of one run.

use super::source::{Entry, Records, Source};
use crate::{error::Error, export::staging::Staging, value::LogPosition};
use file::{Kind, Table, number, time};
use rows::RunRows;
use runlog_schemas::{
    answer::{Anomaly, Recovery},
    id::{JournalSeq, RunId},
    payload::Payload,
};
use serde::Serialize;

mod file;
mod rows;

/// Rows written, by table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Written {
    pub(crate) runs: u64,
    pub(crate) records: u64,
    pub(crate) tool_calls: u64,
    pub(crate) effects: u64,
    pub(crate) checkpoints: u64,
    pub(crate) anomalies: u64,
    /// Records whose content is not exported.
    pub(crate) hidden: u64,
}

/// The open files.
#[derive(Debug)]
pub(crate) struct Tables {
    runs: Table,
    records: Table,
    tool_calls: Table,
    effects: Table,
    checkpoints: Table,
    anomalies: Table,
    hidden: u64,
}

use Kind::{Flag, Text, Time, Whole};

const RUNS: &[(&str, Kind)] = &[
    ("run_id", Text),
    ("status", Text),
    ("records", Whole),
    ("next_journal_seq", Whole),
    ("epoch", Whole),
    ("writer_id", Text),
    ("hash", Text),
    ("partition", Whole),
    ("last_offset", Whole),
    ("first_at", Time),
    ("last_at", Time),
];
const RECORDS: &[(&str, Kind)] = &[
    ("run_id", Text),
    ("partition", Whole),
    ("offset", Whole),
    ("index", Whole),
    ("journal_seq", Whole),
    ("writer_seq", Whole),
    ("epoch", Whole),
    ("record_id", Text),
    ("record_kind", Text),
    ("payload_type", Text),
    ("at", Time),
    ("agent_id", Text),
    ("session_id", Text),
    ("privacy", Text),
    ("status", Text),
    ("tool_name", Text),
    ("fingerprint", Text),
    ("answers", Text),
    ("payload", Text),
    ("hidden", Text),
];
const TOOL_CALLS: &[(&str, Kind)] = &[
    ("run_id", Text),
    ("record_id", Text),
    ("partition", Whole),
    ("offset", Whole),
    ("index", Whole),
    ("journal_seq", Whole),
    ("observed", Flag),
    ("request_id", Text),
    ("call_id", Text),
    ("tool_name", Text),
    ("fingerprint", Text),
    ("occurrence", Whole),
    ("arguments", Text),
    ("status", Text),
    ("result", Text),
    ("error_kind", Text),
    ("error_message", Text),
    ("attempts", Whole),
    ("requested_at", Time),
    ("ended_by", Text),
    ("ended_at", Time),
];
const EFFECTS: &[(&str, Kind)] = &[
    ("run_id", Text),
    ("kind", Text),
    ("id", Text),
    ("tool_name", Text),
    ("fingerprint", Text),
    ("occurrence", Whole),
    ("status", Text),
    ("class", Text),
    ("reason", Text),
    ("evidence", Whole),
    ("revision", Whole),
    ("partition", Whole),
    ("offset", Whole),
    ("index", Whole),
    ("journal_seq", Whole),
];
const CHECKPOINTS: &[(&str, Kind)] = &[
    ("run_id", Text),
    ("checkpoint_id", Text),
    ("payload_type", Text),
    ("checkpoint_seq", Whole),
    ("covers_journal_seq", Whole),
    ("base", Text),
    ("own_messages", Whole),
    ("state", Text),
    ("record_id", Text),
    ("partition", Whole),
    ("offset", Whole),
    ("index", Whole),
    ("at", Time),
];
const ANOMALIES: &[(&str, Kind)] = &[
    ("partition", Whole),
    ("offset", Whole),
    ("index", Whole),
    ("run_id", Text),
    ("record_id", Text),
    ("reason", Text),
    ("writer_id", Text),
];

impl Tables {
    /// Creates the six files.
    pub(crate) fn create(staging: &Staging) -> Result<Self, Error> {
        let table = |name: &'static str, columns| -> Result<Table, Error> {
            Table::create(staging.create(&format!("{name}.parquet"))?, name, columns)
        };
        Ok(Self {
            runs: table("runs", RUNS)?,
            records: table("records", RECORDS)?,
            tool_calls: table("tool_calls", TOOL_CALLS)?,
            effects: table("effects", EFFECTS)?,
            checkpoints: table("checkpoints", CHECKPOINTS)?,
            anomalies: table("anomalies", ANOMALIES)?,
            hidden: 0,
        })
    }

    /// Adds a run as of a position of its partition. Returns false if the run had not begun.
    pub(crate) async fn run(&mut self, source: &Source<'_>, run_id: &RunId, at: LogPosition) -> Result<bool, Error> {
        let Some((recovery, pending)) = source.recovery_at(run_id, at).await? else { return Ok(false) };
        let mut records: Records<'_> = source.records(run_id, at);
        let mut rows = RunRows::new(pending);
        let (mut count, mut times): (u64, Option<(String, String)>) = (0, None);
        while let Some(entry) = records.next().await? {
            count += 1;
            let time = entry.line.timestamp.clone();
            times = Some((times.map_or_else(|| time.clone(), |(first, _)| first), time));
            self.hidden += u64::from(entry.hidden.is_some());
            self.record(&entry)?;
            self.checkpoint(&entry)?;
            if let Some((id, before)) = rows.apply(entry) {
                let status = source.adopted_status(run_id, before, &id).await?;
                rows.adopt(&id, status);
            }
        }
        self.run_row(&recovery, count, times)?;
        rows.write(run_id, &mut self.tool_calls, &mut self.effects)?;
        Ok(true)
    }

    /// Adds a refused record.
    pub(crate) fn anomaly(&mut self, anomaly: &Anomaly) -> Result<(), Error> {
        let position = &anomaly.position;
        self.anomalies.row([
            position.partition.get().into(),
            position.offset.get().into(),
            position.index.into(),
            anomaly.run_id.as_str().into(),
            anomaly.record_id.as_str().into(),
            anomaly.reason.as_str().into(),
            anomaly.writer_id.as_str().into(),
        ])
    }

    /// Writes the remaining rows of all files.
    pub(crate) fn finish(self) -> Result<Written, Error> {
        Ok(Written {
            runs: self.runs.finish()?,
            records: self.records.finish()?,
            tool_calls: self.tool_calls.finish()?,
            effects: self.effects.finish()?,
            checkpoints: self.checkpoints.finish()?,
            anomalies: self.anomalies.finish()?,
            hidden: self.hidden,
        })
    }

    fn run_row(&mut self, run: &Recovery, records: u64, times: Option<(String, String)>) -> Result<(), Error> {
        let (first, last) = times.unzip();
        self.runs.row([
            run.run_id.as_str().into(),
            run.status.as_str().into(),
            records.into(),
            run.next_journal_seq.get().into(),
            run.epoch.get().into(),
            run.writer_id.as_str().into(),
            run.hash.to_string().into(),
            run.position.partition.get().into(),
            run.position.offset.get().into(),
            time(first.as_deref()),
            time(last.as_deref()),
        ])
    }

    fn record(&mut self, Entry { line, envelope, hidden, .. }: &Entry) -> Result<(), Error> {
        let facts = envelope.as_ref().map(|envelope| &envelope.facts);
        self.records.row([
            line.run_id.as_str().into(),
            line.position.partition.get().into(),
            line.position.offset.get().into(),
            line.position.index.into(),
            number(line.journal_seq),
            line.writer_seq.get().into(),
            line.epoch.get().into(),
            line.record_id.as_str().into(),
            line.record_kind.as_str().into(),
            line.payload_type.as_str().into(),
            time(Some(&line.timestamp)),
            envelope.as_ref().map(|envelope| envelope.agent_id.clone()).into(),
            envelope.as_ref().and_then(|envelope| envelope.session_id.clone()).into(),
            envelope.as_ref().map(|envelope| envelope.privacy.as_str().to_owned()).into(),
            facts.and_then(|facts| facts.status.clone()).into(),
            facts.and_then(|facts| facts.tool_name.clone()).into(),
            facts.and_then(|facts| Some(facts.fingerprint.as_ref()?.to_string())).into(),
            facts.and_then(|facts| Some(facts.answers.as_ref()?.to_string())).into(),
            hidden.is_none().then(|| line.payload.as_str().to_owned()).into(),
            hidden.map(|why| why.to_string()).into(),
        ])
    }

    fn checkpoint(&mut self, Entry { line, payload, envelope, hidden }: &Entry) -> Result<(), Error> {
        let Some(facts) = envelope.as_ref().map(|envelope| &envelope.facts) else { return Ok(()) };
        let Some(checkpoint_id) = &facts.checkpoint_id else { return Ok(()) };
        let state = match payload {
            Some(Payload::LoopCheckpoint(checkpoint)) if hidden.is_none() => checkpoint.state.as_ref(),
            _ => None,
        };
        self.checkpoints.row([
            line.run_id.as_str().into(),
            checkpoint_id.as_str().into(),
            line.payload_type.as_str().into(),
            facts.checkpoint_seq.into(),
            facts.covers_journal_seq.map(JournalSeq::get).into(),
            facts.base.clone().into(),
            (facts.message_bytes.len() as u64).into(),
            state.map(|state| state.as_str().to_owned()).into(),
            line.record_id.as_str().into(),
            line.position.partition.get().into(),
            line.position.offset.get().into(),
            line.position.index.into(),
            time(Some(&line.timestamp)),
        ])
    }
}
