//! Reads a list page by page.

use super::list::List;
use runlog_producer::{Error, Read, RecordFilter, Runlog, id::RunId};

/// Records per page.
const PAGE: usize = 500;

/// Reads a list in log order: one index seek, and one step per record.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    runlog: &'a Runlog,
    run_id: RunId,
    which: RecordFilter,
    limit: usize,
    cursor: Option<String>,
    begun: bool,
}

impl<'a> Reader<'a> {
    /// In pages of up to 500 records.
    pub(crate) fn all(runlog: &'a Runlog, run_id: &RunId, list: List) -> Self {
        Self { runlog, run_id: run_id.clone(), which: list.filter(), limit: PAGE, cursor: None, begun: false }
    }

    /// In pages of one record, if the first is likely to be enough.
    #[cfg(feature = "bob-core")]
    pub(crate) fn first(runlog: &'a Runlog, run_id: &RunId, list: List) -> Self {
        Self { limit: 1, ..Self::all(runlog, run_id, list) }
    }

    /// The next page, which may be empty. `None` after the last.
    pub(crate) async fn page(&mut self) -> Result<Option<Vec<Read>>, Error> {
        if self.begun && self.cursor.is_none() {
            return Ok(None);
        }
        let page = self.runlog.records(&self.run_id, &self.which, self.cursor.as_deref(), self.limit).await?;
        (self.cursor, self.begun) = (page.next_cursor, true);
        Ok(Some(page.records))
    }
}
