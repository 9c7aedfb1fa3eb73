//! Records that are read from a journal.

use crate::error::{Action, Error};
use runlog_schemas::{
    answer::{ErrorKind, Line, Lines, Position},
    draft::Draft,
    record::JournalRecord,
};

/// An applied record of a run.
#[derive(Clone, Debug)]
pub struct Read {
    /// The record's position.
    pub position: Position,
    /// The record with its complete payload, or the reason why its content is not available: `MissingContent`; `NotFound` if a
    /// retention horizon removed it; `Internal` if it exceeds the current nesting limit.
    pub record: Result<JournalRecord, Error>,
}

/// A page of a run's records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records in log order. May be empty even if there is a next page.
    pub records: Vec<Read>,
    /// The cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

pub(crate) fn page(lines: Lines) -> Page {
    Page { records: lines.records.into_iter().map(read).collect(), next_cursor: lines.next_cursor }
}

fn read(line: Line) -> Read {
    let (position, record_id) = (line.position, line.record_id);
    let failed = |kind, action, what: String| {
        let error = Error::new(kind, action, format!("record {record_id} of run {} {what}", line.run_id));
        error.about_run(line.run_id.borrow()).about_record(record_id.borrow()).about_position(&position)
    };
    let record = match (line.record, line.missing_content) {
        (None, _) if line.unreadable.is_some() => {
            let what = format!("cannot be read whole: {}", line.unreadable.unwrap_or_default());
            Err(failed(ErrorKind::Internal, Action::Operator, what))
        }
        (Some(json), _) => Draft::parse(json.as_str()).map(|draft| draft.record).map_err(|error| {
            failed(ErrorKind::Internal, Action::Operator, format!("was answered as an invalid record: {error}"))
        }),
        (None, Some(missing)) => {
            let what = format!("names content {} that is {}", missing.sha256, missing.reason);
            Err(failed(ErrorKind::MissingContent, Action::Operator, what))
        }
        (None, None) => {
            let what = "has no content any more: a retention horizon removed it".into();
            Err(failed(ErrorKind::NotFound, Action::FixTheInput, what))
        }
    };
    Read { position, record }
}
