//! Counts the records in flight, and resolves a batch's acknowledgement with the delivery reports of its records.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use rdkafka::{
    ClientContext, Message,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::ProducerContext,
};
use tokio::sync::oneshot;

use crate::{
    BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Offset, PartitionId,
    error::{Error, Kind},
    kafka::{
        contact::Contact,
        context::{self, Refusals},
        identity::Identity,
    },
};

/// The records and bytes that may be in flight; further appends are refused. librdkafka's own limits are far higher, so that
/// it never refuses a part of a batch.
const ENTRIES_MAX: usize = 100_000;
const BYTES_MAX: usize = 64 << 20;
const _: () = assert!(ENTRIES_MAX >= BATCH_ENTRIES_MAX && BYTES_MAX >= BATCH_BYTES_MAX);

/// The outcome of a batch: the offsets of its records.
pub(super) type Outcome = Result<Vec<Offset>, Error>;

/// The opaque value of a record in librdkafka: the target of its delivery report.
pub(super) struct RecordOpaque {
    pub(super) batch: Arc<Batch>,
    pub(super) partition: PartitionId,
    pub(super) index: usize,
    pub(super) bytes: usize,
}

/// The records and bytes in flight.
#[derive(Default)]
pub(super) struct InFlight {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl InFlight {
    /// Returns whether all records are answered.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Acquire) == 0
    }

    /// Adds a batch unless it would exceed the limits. Returns whether it was added.
    pub(super) fn reserve(&self, entries: usize, bytes: usize) -> bool {
        let fits = self.entries.fetch_add(entries, Ordering::Relaxed) + entries <= ENTRIES_MAX;
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_MAX && fits;
        if !fits {
            self.release(entries, bytes);
        }
        fits
    }

    pub(super) fn release(&self, entries: usize, bytes: usize) {
        self.entries.fetch_sub(entries, Ordering::Release);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Collects the delivery reports of a batch's records.
pub(super) struct Batch(Mutex<DeliveryReports>);

struct DeliveryReports {
    offsets: Vec<Offset>,
    pending: usize,
    landed: bool,
    failure: Option<Error>,
    ack: Option<oneshot::Sender<Outcome>>,
}

impl Batch {
    pub(super) fn new(entries: usize) -> (Self, oneshot::Receiver<Outcome>) {
        let (ack, acked) = oneshot::channel();
        let reports = DeliveryReports {
            offsets: vec![Offset::ZERO; entries],
            pending: entries,
            landed: false,
            failure: None,
            ack: Some(ack),
        };
        (Self(Mutex::new(reports)), acked)
    }

    fn answer(&self, index: usize, answer: Result<Offset, Error>) {
        let mut reports = self.0.lock().expect("a delivery panicked");
        match answer {
            Ok(offset) => {
                reports.offsets[index] = offset;
                reports.landed = true;
            }
            Err(error) => reports.record_failure(error),
        }
        reports.pending -= 1;
        reports.resolve();
    }

    /// Records that the last `count` records were not enqueued.
    pub(super) fn abandon(&self, count: usize, error: Error) {
        let mut reports = self.0.lock().expect("a delivery panicked");
        reports.record_failure(error);
        reports.pending -= count;
        reports.resolve();
    }
}

impl DeliveryReports {
    /// Keeps the first failure. A later failure of kind `Unknown` replaces it: then the outcome of the batch is unknown too.
    fn record_failure(&mut self, error: Error) {
        let first_is_certain = self.failure.as_ref().is_some_and(|first| !may_have_landed(first));
        if self.failure.is_none() || (first_is_certain && may_have_landed(&error)) {
            self.failure = Some(error);
        }
    }

    fn resolve(&mut self) {
        if self.pending > 0 {
            return;
        }
        let Some(ack) = self.ack.take() else { return };
        let outcome = match self.failure.take() {
            None => Ok(std::mem::take(&mut self.offsets)),
            Some(error) if self.landed => Err(error.with_kind(Kind::Unknown)),
            Some(error) => Err(error),
        };
        // The send fails if the caller has dropped the acknowledgement.
        let _ = ack.send(outcome);
    }
}

/// Whether the record may have landed.
fn may_have_landed(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unknown)
}

/// Receives librdkafka's delivery reports, on the producer's own thread.
pub(super) struct DeliveryContext {
    pub(super) topic: String,
    pub(super) identity: Identity,
    pub(super) contact: Contact,
    pub(super) refusals: Refusals,
    pub(super) in_flight: Arc<InFlight>,
}

impl DeliveryContext {
    /// Returns the outcome of one record. Every error is of kind `Unknown`: librdkafka reports the error of its last try, and
    /// an earlier try, whose acknowledgement was lost, may have landed.
    fn answer(&self, partition: PartitionId, result: &DeliveryResult<'_>) -> Result<Offset, Error> {
        match result {
            Ok(message) => Offset::from_signed(message.offset()).map_err(|why| {
                let what = "the record landed, but its offset is unknown";
                Error::new(Kind::Unknown, &self.topic, what).in_partition(partition).because(why)
            }),
            Err((error, _)) => {
                let what = match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge) => {
                        "the brokers refuse a record of this size, and an earlier try may have landed"
                    }
                    Some(RDKafkaErrorCode::InvalidRecord) => {
                        "the brokers refuse the record, and an earlier try may have landed"
                    }
                    Some(code) if context::is_forbidden(code) => {
                        "the brokers do not allow appends, and an earlier try may have landed"
                    }
                    Some(RDKafkaErrorCode::MessageTimedOut) => {
                        "the append was not acknowledged in time and may have landed"
                    }
                    _ => "the append failed and may have landed",
                };
                Err(Error::new(Kind::Unknown, &self.topic, what).in_partition(partition).because(error.clone()))
            }
        }
    }
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(Some(&self.identity), &self.contact, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        context::log_error(&self.refusals, &error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Box<RecordOpaque>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Box<RecordOpaque>) {
        self.in_flight.release(1, opaque.bytes);
        opaque.batch.answer(opaque.index, self.answer(opaque.partition, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: Kind) -> Error {
        Error::new(kind, "t", "it failed")
    }

    #[tokio::test]
    async fn a_batch_of_which_any_record_may_have_landed_is_unknown() {
        for first in [Kind::Invalid, Kind::Retry, Kind::Fatal] {
            let (batch, acked) = Batch::new(2);
            batch.answer(0, Err(error(first)));
            batch.answer(1, Err(error(Kind::Unknown)));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?}, then unknown");

            let (batch, acked) = Batch::new(3);
            batch.abandon(2, error(first));
            batch.answer(0, Err(error(Kind::Unknown)));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?} of the rest");

            let (batch, acked) = Batch::new(2);
            batch.answer(0, Err(error(first)));
            batch.answer(1, Ok(Offset::ZERO));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?}, and one landed");
        }
    }

    #[tokio::test]
    async fn a_batch_that_cannot_have_landed_reports_its_first_error() {
        let (batch, acked) = Batch::new(2);
        batch.answer(0, Err(error(Kind::Invalid)));
        batch.answer(1, Err(error(Kind::Retry)));
        assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Invalid);
    }
}
