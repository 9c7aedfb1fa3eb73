//! The writer thread: takes a group of appends, writes it with one fsync, and only then acknowledges it.
//!
//! After a failed write it is unknown whether the group landed. Reopening the database shows that, because a write is
//! atomic. If it cannot be reopened at once, the group is answered with `Kind::Unknown`, and later groups with `Kind::Retry`
//! until the database is open.

use std::{
    iter,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{layout, queue::Pending, shared::Shared, store::Tail};
use crate::{
    Offset, PartitionId,
    clock::Clock,
    error::{Error, Kind},
};
use runlog_schemas::answer::with_causes;

/// The pause after a failed attempt to reopen the database.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Largest step backwards of the clock that timestamps do not follow, milliseconds. After a smaller step, timestamps stay at
/// the last one. After a larger step they follow the clock, because else they would stay in the future for long.
const BACKWARDS_MAX: i64 = 60_000;

pub(super) struct Writer {
    shared: Arc<Shared>,
    clock: Clock,
    tails: Vec<Tail>,
    health: Health,
}

enum Health {
    Good,
    /// A write failed, and the database has not been reopened since.
    Failed {
        tried: Instant,
        cause: String,
    },
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, tails: Vec<Tail>, clock: Clock) -> Self {
        Self { shared, clock, tails, health: Health::Good }
    }

    pub(super) fn run(mut self) {
        // Closes the queue even if this thread panics.
        let shared = Arc::clone(&self.shared);
        let _closing = Closing(&shared);
        while let Some(group) = self.shared.queue.take_group() {
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Vec<Pending>) {
        if let Health::Failed { tried, cause } = &self.health {
            let recovered = if tried.elapsed() < RETRY_PAUSE { Err(cause.clone()) } else { self.recover() };
            if let Err(cause) = recovered {
                return self.fail(group, Kind::Retry, "the local log cannot write at the moment", &cause);
            }
        }
        let laid = self.lay_out(&group);
        let rows = laid.rows.iter().map(|(partition, offset, record)| (*partition, *offset, &record[..]));
        let Err(failure) = self.shared.store.write(rows) else { return self.acknowledge(group, laid) };
        let cause = with_causes(&failure);
        tracing::error!(topic = self.shared.topic, cause, "a write to the local log failed");
        match self.recover() {
            Ok(()) if self.ends().eq(laid.tails.iter().map(|tail| tail.end)) => self.acknowledge(group, laid),
            Ok(()) => self.fail(group, Kind::Retry, "the write failed and was undone", &cause),
            Err(_) => {
                self.fail(
                    group,
                    Kind::Unknown,
                    "the write failed, and its outcome is unknown until the local log is reopened",
                    &cause,
                );
            }
        }
    }

    /// Assigns offsets and timestamps to the group. The timestamp is the clock's, or the previous record's if the clock went
    /// back by at most [`BACKWARDS_MAX`].
    fn lay_out(&self, group: &[Pending]) -> Laid {
        let now = self.clock.millis();
        let mut laid = Laid { tails: self.tails.clone(), firsts: Vec::new(), rows: Vec::new() };
        for pending in group {
            let tail = &mut laid.tails[pending.partition.index()];
            if tail.millis.saturating_sub(now) > BACKWARDS_MAX {
                tracing::warn!(
                    topic = self.shared.topic, partition = %pending.partition, last = tail.millis, now,
                    "the last record's timestamp is in the future, because the system's clock was ahead; timestamps now follow the clock back"
                );
                tail.millis = now;
            }
            tail.millis = tail.millis.max(now);
            laid.firsts.push(tail.end);
            for entry in &pending.entries {
                laid.rows.push((pending.partition, tail.end, layout::encode_record(entry, tail.millis)));
                tail.end = tail.end.next().expect("the offsets of a partition are not exhausted");
            }
        }
        laid
    }

    fn acknowledge(&mut self, group: Vec<Pending>, laid: Laid) {
        self.tails = laid.tails;
        self.shared.ends.publish(self.ends());
        for (pending, first) in iter::zip(group, laid.firsts) {
            let offsets = (0..).take(pending.entries.len()).map(|nth| first.saturating_add(nth)).collect();
            // The send fails if the caller has dropped the acknowledgement.
            let _ = pending.ack.send(Ok(offsets));
        }
    }

    /// Reopens the database and reads the tails from it. Otherwise returns the cause.
    fn recover(&mut self) -> Result<(), String> {
        match self.shared.store.reopen() {
            Ok(tails) => {
                self.tails = tails;
                self.health = Health::Good;
                self.shared.ends.publish(self.ends());
                tracing::warn!(topic = self.shared.topic, "the local log writes again");
                Ok(())
            }
            Err(error) => {
                let cause = with_causes(&error);
                self.health = Health::Failed { tried: Instant::now(), cause: cause.clone() };
                Err(cause)
            }
        }
    }

    fn fail(&self, group: Vec<Pending>, kind: Kind, what: &str, cause: &str) {
        for pending in group {
            let error = Error::new(kind, &self.shared.topic, what).in_partition(pending.partition).because(cause);
            let _ = pending.ack.send(Err(error));
        }
    }

    fn ends(&self) -> impl Iterator<Item = Offset> {
        self.tails.iter().map(|tail| tail.end)
    }
}

/// A group with its offsets and encoded rows, before the write.
struct Laid {
    /// The partitions' tails after it.
    tails: Vec<Tail>,
    /// The first offset of each append.
    firsts: Vec<Offset>,
    rows: Vec<(PartitionId, Offset, Vec<u8>)>,
}

struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}
