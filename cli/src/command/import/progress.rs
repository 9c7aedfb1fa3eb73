//! The progress of an import: for the bar, the report, and the message of an interrupted import.

use crate::{
    error::Error,
    import::ImportedRun,
    output::{Output, Progress},
};
use runlog_schemas::answer::ErrorKind;
use std::{cell::Cell, future::Future};

/// Records appended and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) appended: u64,
    /// Records that were already in the journal. Unknown for an import directly to Kafka.
    pub(super) duplicates: Option<u64>,
}

/// Counts the records in the journal, for the bar and for the message of an interrupted import.
pub(super) struct Steps<'a> {
    progress: Progress,
    written: &'a Written,
}

impl<'a> Steps<'a> {
    /// Shows a progress bar over the records of all runs.
    pub(super) fn new(output: &Output, runs: &[ImportedRun], written: &'a Written) -> Self {
        let progress = output.progress("records", runs.iter().map(|run| run.events.len() as u64).sum());
        Self { progress, written }
    }

    /// Counts `records` more records in the journal. This import appended `new` of them.
    pub(super) fn advance(&self, records: usize, new: u64) {
        self.progress.advance(records as u64);
        self.written.0.set(self.written.0.get() + new);
    }
}

/// Records that this import appended so far.
#[derive(Debug, Default)]
pub(super) struct Written(Cell<u64>);

impl Written {
    /// Waits for `import`, or for Ctrl-C.
    ///
    /// Errors: `Unavailable` on Ctrl-C, with the number of records that were written.
    pub(super) async fn unless_interrupted<T>(
        &self,
        import: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            imported = import => imported,
            _ = tokio::signal::ctrl_c() => {
                let records = self.0.get();
                let what = format!(
                    "interrupted: {records} records were written and stay (a request in flight may add some); run the \
                     same \
                     import again to complete it, nothing is written twice"
                );
                Err(Error::new(ErrorKind::Unavailable, what).with("records", records))
            }
        }
    }
}
