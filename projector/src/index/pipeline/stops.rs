//! Handles failures of the log: stops the affected partitions, or reads them again.

use super::{POLL_WAIT, Pipeline, job::RETRY_AFTER};
use crate::index::fold::{Stop, StopKind};
use runlog_log::{Kind, PartitionId};

impl Pipeline {
    /// Stops the partition that the log names. If it names none, stops the partitions whose last record is no longer in the
    /// log.
    pub(super) fn handle_log_error(&mut self, error: runlog_log::Error) {
        let at = error.subject().partition;
        match error.kind() {
            Kind::OutOfRange if at.is_none() => self.check_all(&error),
            Kind::OutOfRange => self.close(StopKind::LogTruncated, at, error),
            Kind::Damaged => self.close_after_delivered(at, error),
            Kind::Replaced => {
                self.close(StopKind::LogDiverged, None, error);
                self.shared.config.executor.block(RETRY_AFTER);
            }
            Kind::Fatal => {
                tracing::error!("the log's reader failed for good, replacing it: {error}");
                self.retry_all(StopKind::Log, &error.to_string());
                self.reader_failed = true;
            }
            Kind::Retry | Kind::Invalid | Kind::Unknown | Kind::NotHome => {
                tracing::warn!("reading the log failed, trying again: {error}");
                self.shared.config.executor.block(POLL_WAIT);
            }
        }
    }

    /// Stops a partition, or all of them, until a restart, after the records that the log delivered before its damage.
    fn close_after_delivered(&mut self, at: Option<PartitionId>, error: runlog_log::Error) {
        let error = crate::index::Error::from(error).problem().detail;
        for id in self.pool.ids().filter(|id| at.is_none_or(|at| at == *id)) {
            if let Some(mut partition) = self.pool.partition(id).filter(|partition| !partition.is_closed()) {
                partition.close_at_damage(&self.shared, error.clone());
            }
        }
    }

    /// Stops a partition, or all of them, until a restart.
    fn close(&mut self, kind: StopKind, at: Option<PartitionId>, error: runlog_log::Error) {
        let error = crate::index::Error::from(error).problem().detail;
        for id in self.pool.ids().filter(|id| at.is_none_or(|at| at == *id)) {
            let Some(mut partition) = self.pool.partition(id).filter(|partition| !partition.is_closed()) else {
                continue;
            };
            let stop = Stop { offset: partition.next(), kind, error: error.clone() };
            partition.close(&self.shared, stop);
        }
    }

    /// Compares each partition's last record with the log's. Partitions whose records differ stop, the others are read
    /// again.
    fn check_all(&mut self, error: &runlog_log::Error) {
        tracing::error!("the log lost records; checking which partitions are affected: {error}");
        for id in self.pool.ids() {
            let Some(mut partition) = self.pool.partition(id).filter(|partition| !partition.is_closed()) else {
                continue;
            };
            let queue = partition.check();
            drop(partition);
            if queue {
                self.pool.queue(id);
            }
        }
    }

    /// Reports an error on every partition that is not stopped. Every partition that is read, stopped or not, is read
    /// again later from its committed offset.
    pub(super) fn retry_all(&mut self, kind: StopKind, error: &str) {
        for id in self.pool.ids() {
            let Some(mut partition) = self.pool.partition(id) else { continue };
            if !partition.is_stopped() {
                partition.report_error(&self.shared, kind, error.to_owned());
            }
            partition.retry_after(RETRY_AFTER);
        }
    }

    /// Replaces a reader that has failed for good. Until a new one can be opened, the partitions keep reporting the
    /// error.
    pub(super) fn reconnect(&mut self) {
        self.shared.config.executor.block(RETRY_AFTER);
        match self.shared.log.reader(&[]) {
            Ok(reader) => {
                tracing::warn!("reading the log again with a new reader");
                (self.reader, self.reader_failed) = (reader, false);
            }
            Err(error) => {
                tracing::error!("the log cannot be read: {error}");
                if error.kind() == Kind::Replaced {
                    self.close(StopKind::LogDiverged, None, error);
                }
            }
        }
    }
}
