//! Asks brokers where partitions begin and end, on a client and a thread of their own, so that no append and no fetch
//! stands before the question.
//!
//! Whoever asks while a question is under way waits for the next one, which is then asked once for all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset as Place, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
};
use tokio::sync::oneshot;

use super::{
    KafkaConfig, REQUEST_WAIT,
    config::Role,
    context::{self, Context},
};
use crate::{Bounds, Error, Kind, Offset, PartitionId};

/// How often the client's own messages are served while nobody asks.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Ends with its thread when it is dropped; a question under way is not waited for.
pub(super) struct BoundsClient {
    topic: String,
    questions: mpsc::Sender<Question>,
}

struct Question {
    partition: PartitionId,
    until: Instant,
    answer: oneshot::Sender<Result<Bounds, Error>>,
}

impl BoundsClient {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, Error> {
        let topic = config.topic.clone();
        let client = config.client(Role::Asker)?.create_with_context(Context);
        let client: BaseConsumer<Context> = client.map_err(|error| context::unmade(&topic, error))?;
        let (questions, asked) = mpsc::channel();
        let asker = Asker { client, topic: topic.clone() };
        let thread = thread::Builder::new().name("kafka-bounds".into()).spawn(move || asker.run(&asked));
        thread.map_err(|source| Error::new(Kind::Retry, &topic, "the bounds thread did not start").because(source))?;
        Ok(Self { topic, questions })
    }

    pub(super) async fn ask(&self, partition: PartitionId, deadline: Duration) -> Result<Bounds, Error> {
        let error = |kind, what| Error::new(kind, &self.topic, what).at(partition);
        let (answer, answered) = oneshot::channel();
        let until = Instant::now() + deadline.min(REQUEST_WAIT);
        let ended = || error(Kind::Fatal, "the bounds thread has ended");
        self.questions.send(Question { partition, until, answer }).map_err(|_| ended())?;
        match tokio::time::timeout(deadline, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(ended())),
            Err(_) => Err(error(Kind::Retry, "the brokers did not tell the bounds before the deadline")),
        }
    }
}

struct Asker {
    client: BaseConsumer<Context>,
    topic: String,
}

impl Asker {
    fn run(&self, asked: &mpsc::Receiver<Question>) {
        loop {
            match asked.recv_timeout(IDLE_WAIT) {
                Ok(first) => self.answer(Vec::from_iter([first].into_iter().chain(asked.try_iter()))),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            // Its own log lines and errors, which go to the context and would pile up otherwise.
            while self.client.poll(Duration::ZERO).is_some() {}
        }
    }

    fn answer(&self, questions: Vec<Question>) {
        let now = Instant::now();
        // Who has given up needs no answer.
        let questions: Vec<Question> = questions.into_iter().filter(|question| !question.answer.is_closed()).collect();
        let Some(until) = questions.iter().map(|question| question.until).max() else { return };
        let partitions: BTreeSet<PartitionId> = questions.iter().map(|question| question.partition).collect();
        let wait = until.saturating_duration_since(now).max(Duration::from_millis(1));
        let told = fetch(&self.client, &self.topic, &partitions, wait);
        for Question { partition, answer, .. } in questions {
            let failed = |error| context::failed(&self.topic, "the brokers do not tell the bounds", error);
            let bounds = match &told {
                Ok(all) => all.get(&partition).copied().ok_or(KafkaError::NoMessageReceived),
                Err(error) => Err(error.clone()),
            };
            let _ = answer.send(bounds.map_err(|error| failed(error).at(partition)));
        }
    }
}

/// Asks for the bounds of partitions: the log's start, and the high watermark at a moment after that.
pub(super) fn fetch(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Bounds>> {
    if let (Some(partition), 1) = (partitions.first(), partitions.len()) {
        // librdkafka sends both questions at once, so this takes half as long.
        let (start, end) = client.fetch_watermarks(topic, number(*partition), wait)?;
        return Ok(BTreeMap::from([(*partition, Bounds { start: offset(start)?, end: offset(end)? })]));
    }
    let starts = fetch_offsets(client, topic, partitions, Place::Beginning, wait)?;
    let ends = fetch_offsets(client, topic, partitions, Place::End, wait)?;
    let bounds = starts.into_iter().filter_map(|(partition, start)| {
        let end = *ends.get(&partition)?;
        Some((partition, Bounds { start, end }))
    });
    Ok(bounds.collect())
}

/// One request to each leader: the protocol gives "the offset of the earliest" and "of the latest" by the same call
/// that gives offsets of times, and librdkafka passes both on.
fn fetch_offsets(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    place: Place,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Offset>> {
    if partitions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut asked = TopicPartitionList::new();
    for partition in partitions {
        asked.add_partition_offset(topic, number(*partition), place)?;
    }
    let told = client.offsets_for_times(asked, wait)?;
    let offsets = told.elements().into_iter().map(|element| {
        element.error()?;
        let Place::Offset(told) = element.offset() else { return Err(KafkaError::NoMessageReceived) };
        Ok((element.partition() as PartitionId, offset(told)?))
    });
    offsets.collect()
}

/// The partition as librdkafka numbers it.
pub(super) fn number(partition: PartitionId) -> i32 {
    i32::try_from(partition).expect("partitions are numbered below the count that kafka gave")
}

fn offset(told: i64) -> KafkaResult<Offset> {
    Offset::try_from(told).map_err(|_| KafkaError::NoMessageReceived)
}
