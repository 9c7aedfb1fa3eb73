//! Runs and their records as of a position, read from a server page by page.
//!
//! Memory: one page of records. The server limits it to 16 MiB plus the last record.

use crate::{
    client::Target,
    error::Error,
    session::{READ_WAIT, Session},
    value::{LogPosition, Place},
};
#[cfg(feature = "parquet")]
use runlog_schemas::{
    answer::{Anomalies, Doctor, LifecycleStatus, OrOther, PartitionHealth, Pending, Recovery},
    id::RecordId,
    record::Facts,
};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Journal, Line, Lines, Run, Runs},
    id::{LogId, Offset, PartitionId, RunId},
    json::Json,
    payload::{
        ConversationTurn, EffectResolution, LoopCheckpoint, Payload, ToolCallCompleted, ToolCallFailed,
        ToolCallRequested,
    },
    refs::PrivacyClass,
};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// Records per request.
const PAGE: u32 = 200;
/// Runs per request.
const RUNS_PAGE: u32 = 500;

/// The positions of an export, inclusive: one per partition.
pub(crate) type Pins = BTreeMap<PartitionId, Offset>;

/// Refuses a list that lacks partitions.
fn complete(unavailable: &[PartitionId]) -> Result<(), Error> {
    let Some(partition) = unavailable.first() else { return Ok(()) };
    let message = format!("partition {partition} is stopped; `runlog doctor` says why");
    Err(Error::new(ErrorKind::PartitionStopped, message))
}

/// A run's recovery and its pending effects.
#[cfg(feature = "parquet")]
pub(crate) type RunState = (Recovery, Vec<Pending>);

/// The server that an export reads from.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    session: &'a Session,
    wait: Duration,
    /// The log that positions name, if the journal has a home.
    log: Option<LogId>,
    /// Whether to export content that its privacy class hides.
    raw: bool,
}

/// A record of a run.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The line of the timeline, without the record.
    pub(crate) line: Line,
    /// The unencrypted parts of the envelope. `None` if the content was deleted or could not be read.
    pub(crate) envelope: Option<Envelope>,
    /// The payload. A hidden payload has its members without content, for the types that exports read, and is otherwise `None`.
    pub(crate) payload: Option<Payload>,
    /// The reason why the content is not exported.
    pub(crate) hidden: Option<Hidden>,
}

/// The reason why content is not exported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hidden {
    /// The privacy class hides it.
    Class(PrivacyClass),
    /// It is encrypted.
    Encrypted,
    /// Retention deleted it.
    Dropped,
    /// The content store does not have it.
    Missing,
    /// It nests too deeply to be read.
    Unreadable,
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Class(class) => write!(f, "[hidden: {}]", class.as_str()),
            Self::Encrypted => f.write_str("[hidden: encrypted]"),
            Self::Dropped => f.write_str("[deleted by retention]"),
            Self::Missing => f.write_str("[missing in the content store]"),
            Self::Unreadable => f.write_str("[nests too deep to be read]"),
        }
    }
}

/// The parts of a record that are not content.
#[derive(Debug, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) agent_id: String,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    pub(crate) privacy: PrivacyClass,
    #[cfg(feature = "parquet")]
    pub(crate) facts: Facts,
}

#[derive(Deserialize)]
struct Whole {
    #[serde(flatten)]
    envelope: Envelope,
    payload: Payload,
}

/// Returns the positions of `--at`, or `None` without the flag.
pub(crate) fn pins(at: &[LogPosition]) -> Result<Option<Pins>, Error> {
    let mut pins = Pins::new();
    for position in at {
        if pins.insert(position.partition, position.offset).is_some() {
            return Err(Error::usage(format!("--at names partition {} twice", position.partition)));
        }
    }
    Ok(Some(pins).filter(|pins| !pins.is_empty()))
}

impl<'a> Source<'a> {
    pub(crate) async fn open(session: &'a Session, wait: &crate::args::Deadline, raw: bool) -> Result<Self, Error> {
        let wait = session.wait(wait, READ_WAIT);
        let journal: Journal = session.client.get(Target::new("/v1/journal"), wait).await?;
        let names_log = journal.has(Feature::Logs) && journal.home.is_some();
        Ok(Self { session, wait, log: journal.log_id.filter(|_| names_log), raw })
    }

    /// The position of an `as_of`.
    fn place_of(&self, position: LogPosition) -> Place {
        Place { position, log: self.log.clone() }
    }

    /// Prints a note that the content of `records` records was left out.
    pub(crate) fn note_hidden(&self, records: u64) {
        if records > 0 {
            let hint = if self.raw { "" } else { "; --raw exports content that its privacy class hides" };
            self.session.output.note(&format!("the content of {records} records is not exported{hint}"));
        }
    }

    /// Reads the current state of a run.
    ///
    /// Errors: `NotFound` for a run without a record.
    pub(crate) async fn run(&self, run_id: &RunId) -> Result<Run, Error> {
        self.session.client.get(Target::run(run_id), self.wait).await
    }

    /// Reads a page of runs by id. Also returns the cursor of the next page.
    pub(crate) async fn runs(
        &self,
        prefix: Option<&str>,
        status: Option<&str>,
        cursor: Option<&str>,
    ) -> Result<Runs, Error> {
        let target = Target::new("/v1/runs")
            .with("limit", RUNS_PAGE)
            .with("consistency", "latest")
            .with_some("prefix", prefix)
            .with_some("status", status)
            .with_some("cursor", cursor);
        let page: Runs = self.session.client.get(target, self.wait).await?;
        complete(&page.unavailable_partitions)?;
        Ok(page)
    }

    /// Returns the run's records up to `at`, inclusive. The first request follows at the first [`Records::next`].
    pub(crate) fn records(&self, run_id: &RunId, at: LogPosition) -> Records<'_> {
        Records { source: self, run_id: run_id.clone(), at, page: Vec::new().into_iter(), next: Next::First }
    }

    /// Returns the run's recovery and its pending effects at `at`; `None` if the run had not begun.
    #[cfg(feature = "parquet")]
    pub(crate) async fn recovery_at(&self, run_id: &RunId, at: LogPosition) -> Result<Option<RunState>, Error> {
        let (mut first, mut pending, mut cursor): (Option<Recovery>, Vec<Pending>, Option<String>) =
            (None, Vec::new(), None);
        loop {
            let target = Target::run(run_id)
                .path("/recovery")
                .with("as_of", self.place_of(at))
                .with("content", false)
                .with_some("cursor", cursor.as_deref());
            let Some(page) = self.session.find::<Recovery>(target, self.wait).await? else { return Ok(None) };
            let next = page.next_cursor.clone();
            // Pending effects come first, so the first page without one is the last. For each page the server folds the run again.
            let last = page.pending.is_empty() || next.is_none() || next == cursor;
            pending.extend(page.pending.clone());
            let first = first.get_or_insert(page);
            if last {
                return Ok(Some((first.clone(), pending)));
            }
            cursor = next;
        }
    }

    /// Returns the status that a decision on `id`, made right after `before`, adopts.
    #[cfg(feature = "parquet")]
    pub(crate) async fn adopted_status(
        &self,
        run_id: &RunId,
        before: LogPosition,
        id: &RecordId,
    ) -> Result<Option<OrOther<LifecycleStatus>>, Error> {
        let Some((_, pending)) = self.recovery_at(run_id, before).await? else { return Ok(None) };
        let evidence = pending.iter().find(|pending| pending.id == *id).and_then(Pending::adoptable);
        Ok(evidence.map(|evidence| OrOther::of(evidence.status.as_str())))
    }

    /// Returns the last position of each partition that the server has applied.
    ///
    /// Errors: `Forbidden` for a token that may not read the server's health. The user must then name positions.
    #[cfg(feature = "parquet")]
    pub(crate) async fn applied_positions(&self) -> Result<Pins, Error> {
        let doctor: Result<Doctor, Error> = self.session.client.get(Target::new("/v1/doctor"), self.wait).await;
        let doctor = doctor.map_err(|error| match error.kind() {
            ErrorKind::Forbidden => {
                Error::new(ErrorKind::Forbidden, "name positions with --at: this token may not read the last positions")
                    .because(error)
            }
            _ => error,
        })?;
        let last =
            |health: PartitionHealth| Some((health.partition, Offset::new(health.applied.get().checked_sub(1)?).ok()?));
        Ok(doctor.partitions.into_iter().filter_map(last).collect())
    }

    /// Reads a page of refused records of all runs, by position. Also returns the cursor of the next page.
    #[cfg(feature = "parquet")]
    pub(crate) async fn anomalies(&self, cursor: Option<&str>) -> Result<Anomalies, Error> {
        let target = Target::new("/v1/anomalies")
            .with("limit", RUNS_PAGE)
            .with("consistency", "latest")
            .with_some("cursor", cursor);
        let page: Anomalies = self.session.client.get(target, self.wait).await?;
        complete(&page.unavailable_partitions)?;
        Ok(page)
    }

    fn entry(&self, line: Line) -> Result<Entry, Error> {
        let Some(record) = &line.record else {
            let reason = match (&line.missing_content, &line.unreadable) {
                (Some(_), _) => Hidden::Missing,
                (None, Some(_)) => Hidden::Unreadable,
                (None, None) => Hidden::Dropped,
            };
            return Ok(Entry { line, envelope: None, payload: None, hidden: Some(reason) });
        };
        let whole: Whole = serde_json::from_str(record.as_str()).map_err(|error| {
            let what = format!("cannot read record {} of run {}", line.record_id, line.run_id);
            Error::new(ErrorKind::Internal, what).because(error)
        })?;
        let Whole { envelope, payload } = whole;
        let shown = self.raw || matches!(envelope.privacy, PrivacyClass::Public | PrivacyClass::Internal);
        let hidden = match payload {
            Payload::Encrypted(_) => Some(Hidden::Encrypted),
            _ if !shown => Some(Hidden::Class(envelope.privacy)),
            _ => None,
        };
        let payload = match hidden {
            Some(reason) => mask(payload, reason),
            None => Some(payload),
        };
        Ok(Entry { line: Line { record: None, ..line }, envelope: Some(envelope), payload, hidden })
    }
}

/// Removes the content from a payload, as the server masks it, for the types that exports read.
fn mask(payload: Payload, reason: Hidden) -> Option<Payload> {
    let placeholder = Json::from(serde_json::Value::from(reason.to_string()));
    let without_content = match payload {
        Payload::ConversationTurn(turn) => ConversationTurn { content: placeholder, ..turn }.into(),
        Payload::ToolCallRequested(request) => ToolCallRequested { arguments: None, ..request }.into(),
        Payload::ToolCallCompleted(done) => ToolCallCompleted { result: Some(placeholder), ..done }.into(),
        Payload::ToolCallFailed(failed) => ToolCallFailed { error_message: reason.to_string(), ..failed }.into(),
        Payload::EffectResolution(decision) => {
            let result = decision.result.as_ref().map(|_| placeholder);
            EffectResolution { result, ..decision }.into()
        }
        Payload::LoopCheckpoint(checkpoint) => LoopCheckpoint {
            messages: Vec::new(),
            state: None,
            total_usage: None,
            verification_reports: Vec::new(),
            ..checkpoint
        }
        .into(),
        // These types have no content.
        clear @ (Payload::RunLifecycle(_) | Payload::RunClaim(_) | Payload::ToolCallAttempt(_)) => clear,
        _ => return None,
    };
    Some(without_content)
}

/// The records of one run, in order.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    source: &'a Source<'a>,
    run_id: RunId,
    at: LogPosition,
    page: std::vec::IntoIter<Line>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    Page(String),
    End,
}

impl Records<'_> {
    /// Returns the next record, or `None` at the end and for a run that had not begun at the position.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(line) = self.page.next() {
                return self.source.entry(line).map(Some);
            }
            let cursor = match std::mem::replace(&mut self.next, Next::End) {
                Next::First => None,
                Next::Page(cursor) => Some(cursor),
                Next::End => return Ok(None),
            };
            let target = Target::run(&self.run_id)
                .path("/records")
                .with("limit", PAGE)
                .with("as_of", self.source.place_of(self.at))
                .with_flag("whole", true)
                .with_some("cursor", cursor.as_deref());
            // A run without a record up to the position is `not_found`.
            let Some(lines) = self.source.session.find::<Lines>(target, self.source.wait).await? else {
                return Ok(None);
            };
            self.page = lines.records.into_iter();
            // A cursor that does not advance would loop for ever.
            self.next = lines.next_cursor.filter(|next| cursor.as_ref() != Some(next)).map_or(Next::End, Next::Page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_pinned_once() {
        let at = |text: &str| -> Vec<LogPosition> { text.split(',').map(|at| at.parse().unwrap()).collect() };
        assert_eq!(pins(&at("0:1,2:7")).unwrap().unwrap().len(), 2);
        assert_eq!(pins(&at("0:1,0:7")).unwrap_err().kind(), ErrorKind::Usage);
        assert!(pins(&[]).unwrap().is_none());
    }
}
