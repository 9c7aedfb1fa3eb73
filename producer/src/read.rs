//! Reading a journal without writing it: no run is claimed for this.
//!
//! Every question is answered at `latest`: what was in the log when it was asked is seen.

use crate::{Action, Error, Runlog, named, run::whole_recovery, transport::Ask};
use runlog_schemas::{
    answer::{self, Checkpoint, ErrorKind, Position, ReadBack, Recovery},
    draft::Draft,
    id::{Illegal, JournalSeq, RecordId, RunId},
    record::JournalRecord,
};

/// Which of a run's records: all of what is given must be so, and nothing given is all of them. What records say of
/// themselves is in their [`EventIndexProjection`](runlog_schemas::record::EventIndexProjection).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// The event family.
    pub family: Option<String>,
    /// The kind within its family.
    pub kind: Option<String>,
    /// A correlation entry, key and value: found by one seek, however many records the run has. The key has no `=`.
    pub correlation: Option<(String, String)>,
    /// A tag: found by one seek, too, and so are those of other runs, which are passed over.
    pub tag: Option<String>,
}

/// A record of a run, applied.
#[derive(Clone, Debug)]
pub struct Read {
    /// Where it stands.
    pub position: Position,
    /// The record, its payload whole; or why its content cannot be had: `MissingContent`, `NotFound` where a retention
    /// horizon took it away, and `Internal` where it nests deeper than its writer would be let today.
    pub record: Result<JournalRecord, Error>,
}

/// A page of a run's records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In the log's order. A page may have none, and still say where the next one starts.
    pub records: Vec<Read>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

impl Runlog {
    /// The run as it is; none where nothing was ever applied to it.
    pub async fn run(&self, id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Option<answer::Run>, Error> {
        self.transport.run(named(id)?.borrow()).await
    }

    /// What a process that took the run over would learn, all pages of it; none where nothing was ever applied to it. The
    /// pages are of one state of the run. Content is there; `unclaimed` counts all that is listed as completed.
    ///
    /// Errors: `Internal` where the run is there on one page and not on the next.
    pub async fn recovery(&self, id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Option<Recovery>, Error> {
        let id = named(id)?;
        let ask = Ask { from_start: false, content: true };
        whole_recovery(&self.transport, id.borrow(), ask).await
    }

    /// A page of up to `limit` (1 to 1000) of a run's records, from `cursor` (a page's `next_cursor`) or the first one on; an
    /// empty one for a run that nothing was ever applied to. A cursor survives writes.
    ///
    /// Errors: `Usage` for a cursor of another list or a limit out of bounds.
    pub async fn records(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        which: &Select,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, Error> {
        let lines = self.transport.records(named(id)?.borrow(), which, cursor, limit).await?;
        let Some(lines) = lines else { return Ok(Page::default()) };
        let records = lines.records.into_iter().map(read).collect();
        Ok(Page { records, next_cursor: lines.next_cursor })
    }

    /// What became of the first record of this id, and who writes the run by then; none where no record of the id was applied,
    /// or refused for its content. Asks for much less than the record itself.
    pub async fn landed(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        record_id: &RecordId,
    ) -> Result<Option<ReadBack>, Error> {
        self.transport.landed(named(id)?.borrow(), record_id.borrow()).await
    }

    /// The latest valid checkpoint that covers no more than `at_or_before`, whole. One whose content cannot be had is not valid:
    /// an older one is answered instead, which [`Runlog::recovery`] tells, and so does the run's `next_checkpoint_seq`. None only
    /// where the log has no valid one and none whose content is missing.
    ///
    /// Errors: `MissingContent` where there is one, and none is valid for that.
    pub async fn checkpoint(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        self.transport.checkpoint(named(id)?.borrow(), at_or_before).await
    }
}

fn read(line: answer::Line) -> Read {
    let (position, record_id) = (line.position, line.record_id);
    let gone = |kind, action, what: String| {
        Error::new(kind, action, format!("record {record_id} of run {} {what}", line.run_id))
    };
    let record = match (line.record, line.missing_content) {
        (None, _) if line.unreadable.is_some() => {
            let what = format!("cannot be read whole: {}", line.unreadable.unwrap_or_default());
            Err(gone(ErrorKind::Internal, Action::Operator, what))
        }
        (Some(json), _) => Draft::parse(json.as_str()).map(|draft| draft.record).map_err(|error| {
            gone(ErrorKind::Internal, Action::Operator, format!("was answered with what is no record: {error}"))
        }),
        (None, Some(missing)) => {
            let what = format!("names content {} that is {}", missing.sha256, missing.reason);
            Err(gone(ErrorKind::MissingContent, Action::Operator, what))
        }
        (None, None) => {
            Err(gone(ErrorKind::NotFound, Action::FixTheInput, "lost its content to a retention horizon".into()))
        }
    };
    Read { position, record }
}
