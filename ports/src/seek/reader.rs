//! A list, page by page.

use super::List;
use runlog_producer::{Error, Read, RecordFilter, Runlog, id::RunId};

/// Records that are read at a time.
const PAGE: usize = 500;

/// Reads a list in the log's order: one seek, and a step per record of it.
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
    /// All of it, in pages.
    pub(crate) fn all(runlog: &'a Runlog, run_id: &RunId, list: List) -> Self {
        Self { runlog, run_id: run_id.clone(), which: list.select(), limit: PAGE, cursor: None, begun: false }
    }

    /// The same for whom the first one is likely to be enough.
    #[cfg(feature = "bob-core")]
    pub(crate) fn first(runlog: &'a Runlog, run_id: &RunId, list: List) -> Self {
        Self { limit: 1, ..Self::all(runlog, run_id, list) }
    }

    /// The next page, which may have no records; none behind the last one.
    pub(crate) async fn page(&mut self) -> Result<Option<Vec<Read>>, Error> {
        if self.begun && self.cursor.is_none() {
            return Ok(None);
        }
        let page = self.runlog.records(&self.run_id, &self.which, self.cursor.as_deref(), self.limit).await?;
        (self.cursor, self.begun) = (page.next_cursor, true);
        Ok(Some(page.records))
    }
}
