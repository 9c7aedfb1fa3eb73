//! Asks brokers where partitions begin and end, on a client and a thread of their own, so that no append and no fetch
//! stands before the question.
//!
//! Whoever asks while a question is under way waits for the next one, which is then asked once for all of them. A
//! question fails as a whole where one partition has no leader. So a partition that did not answer is a suspect: it is
//! asked for by itself and after the others, which go on being answered during an election that is not theirs.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
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
    KafkaConfig,
    config::Role,
    context::{self, Context},
};
use crate::{Bounds, Error, Kind, Offset, PartitionId};

/// How often the client's own messages are served while nobody asks.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// How long one attempt at a question waits for its answer.
const ATTEMPT_WAIT: Duration = Duration::from_secs(1);

/// How long after a vain attempt the next one is made.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// No deadline is farther away.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// Ends with its thread when it is dropped; a question under way is not waited for.
pub(super) struct BoundsClient {
    brokers: String,
    topic: String,
    questions: mpsc::Sender<Question>,
}

struct Question {
    partition: PartitionId,
    until: Instant,
    /// Why it is still open.
    failure: Option<KafkaError>,
    answer: Answer,
}

/// Where the answer goes. Who has given up meanwhile needs none.
enum Answer {
    Bounds(oneshot::Sender<Result<Bounds, Error>>),
    End(oneshot::Sender<Result<Offset, Error>>),
}

impl Answer {
    fn is_closed(&self) -> bool {
        match self {
            Self::Bounds(answer) => answer.is_closed(),
            Self::End(answer) => answer.is_closed(),
        }
    }

    fn fail(self, error: Error) {
        match self {
            Self::Bounds(answer) => drop(answer.send(Err(error))),
            Self::End(answer) => drop(answer.send(Err(error))),
        }
    }

    fn tell(self, told: KafkaResult<&Told>, partition: PartitionId, failed: impl FnOnce(KafkaError) -> Error) {
        match self {
            Self::Bounds(answer) => drop(answer.send(told.and_then(|told| told.bounds(partition)).map_err(failed))),
            Self::End(answer) => drop(answer.send(told.and_then(|told| told.end(partition)).map_err(failed))),
        }
    }
}

/// What brokers tell of partitions.
enum Told {
    Bounds(BTreeMap<PartitionId, Bounds>),
    /// Where nobody asks for more: one request instead of two.
    Ends(BTreeMap<PartitionId, Offset>),
}

impl Told {
    fn bounds(&self, partition: PartitionId) -> KafkaResult<Bounds> {
        let told = match self {
            Self::Bounds(told) => told.get(&partition).copied(),
            Self::Ends(_) => None,
        };
        told.ok_or(KafkaError::NoMessageReceived)
    }

    fn end(&self, partition: PartitionId) -> KafkaResult<Offset> {
        let told = match self {
            Self::Bounds(told) => told.get(&partition).map(|bounds| bounds.end),
            Self::Ends(told) => told.get(&partition).copied(),
        };
        told.ok_or(KafkaError::NoMessageReceived)
    }
}

impl BoundsClient {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, Error> {
        let (brokers, topic) = (config.brokers.clone(), config.topic.clone());
        let client = config.client(Role::Asker)?.create_with_context(Context::default());
        let client: BaseConsumer<Context> = client.map_err(|error| context::unmade(&topic, error))?;
        let (questions, asked) = mpsc::channel();
        let asker = Asker { client, brokers: brokers.clone(), topic: topic.clone(), suspects: VecDeque::new() };
        let thread = thread::Builder::new().name("kafka-bounds".into()).spawn(move || asker.run(&asked));
        thread.map_err(|source| Error::new(Kind::Retry, &topic, "the bounds thread did not start").because(source))?;
        Ok(Self { brokers, topic, questions })
    }

    pub(super) async fn bounds(&self, partition: PartitionId, deadline: Duration) -> Result<Bounds, Error> {
        self.ask(partition, deadline, Answer::Bounds).await
    }

    pub(super) async fn end(&self, partition: PartitionId, deadline: Duration) -> Result<Offset, Error> {
        self.ask(partition, deadline, Answer::End).await
    }

    async fn ask<T>(
        &self,
        partition: PartitionId,
        deadline: Duration,
        to: fn(oneshot::Sender<Result<T, Error>>) -> Answer,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let answer = to(answer);
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let ended = || Error::new(Kind::Fatal, &self.topic, "the bounds thread has ended").at(partition);
        self.questions.send(Question { partition, until, failure: None, answer }).map_err(|_| ended())?;
        match tokio::time::timeout(deadline, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(ended())),
            Err(_) => Err(late(&self.brokers, &self.topic, partition)),
        }
    }
}

struct Asker {
    client: BaseConsumer<Context>,
    brokers: String,
    topic: String,
    /// Who is asked for next comes first.
    suspects: VecDeque<PartitionId>,
}

impl Asker {
    fn run(mut self, asked: &mpsc::Receiver<Question>) {
        let mut open: Vec<Question> = Vec::new();
        loop {
            match asked.recv_timeout(if open.is_empty() { IDLE_WAIT } else { AGAIN_PAUSE }) {
                Ok(question) => open.push(question),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            open.extend(asked.try_iter());
            self.give_up(&mut open);
            self.attempt(&mut open);
            // Its own log lines and errors, which go to the context and would pile up otherwise.
            while self.client.poll(Duration::ZERO).is_some() {}
        }
    }

    fn give_up(&self, open: &mut Vec<Question>) {
        let now = Instant::now();
        for question in open.extract_if(.., |question| question.answer.is_closed() || question.until <= now) {
            let late = late(&self.brokers, &self.topic, question.partition);
            let late = question.failure.into_iter().fold(late, Error::because);
            question.answer.fail(late);
        }
    }

    /// Asks for every partition that somebody wants to know about, and closes the questions that this answers.
    fn attempt(&mut self, open: &mut Vec<Question>) {
        let asked: BTreeSet<PartitionId> = open.iter().map(|question| question.partition).collect();
        let sound: BTreeSet<PartitionId> = asked.iter().copied().filter(|at| !self.suspects.contains(at)).collect();
        if !self.ask_for(&sound, open) {
            self.suspects.extend(sound);
        }
        while let Some(at) = self.suspects.iter().position(|suspect| asked.contains(suspect))
            && let Some(suspect) = self.suspects.remove(at)
        {
            if !self.ask_for(&BTreeSet::from([suspect]), open) {
                self.suspects.push_back(suspect);
                break;
            }
        }
    }

    /// One attempt for these partitions together; false where there was no answer and there may be one later.
    fn ask_for(&self, partitions: &BTreeSet<PartitionId>, open: &mut Vec<Question>) -> bool {
        if partitions.is_empty() {
            return true;
        }
        let is_asked = |question: &Question| partitions.contains(&question.partition);
        let ends = !open.iter().any(|question| is_asked(question) && matches!(question.answer, Answer::Bounds(_)));
        let told = if ends {
            fetch_offsets(&self.client, &self.topic, partitions, Place::End, ATTEMPT_WAIT).map(Told::Ends)
        } else {
            fetch(&self.client, &self.topic, partitions, ATTEMPT_WAIT).map(Told::Bounds)
        };
        if let Err(error) = &told
            && is_passing(error)
        {
            look_leaders_up(&self.client, &self.topic);
            for question in open.iter_mut().filter(|question| is_asked(question)) {
                question.failure = Some(error.clone());
            }
            return false;
        }
        for Question { partition, answer, .. } in open.extract_if(.., |question| is_asked(question)) {
            let told = told.as_ref().map_err(KafkaError::clone);
            answer.tell(told, partition, |error| failed(&self.topic, error).at(partition));
        }
        true
    }
}

fn late(brokers: &str, topic: &str, partition: PartitionId) -> Error {
    Error::new(Kind::Retry, topic, format!("timed out reading the partition's offsets from brokers {brokers}"))
        .at(partition)
}

/// The same for a caller that has all the time of `wait`: asks again while the cluster is not ready to answer.
pub(super) fn fetch_within(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    wait: Duration,
) -> Result<BTreeMap<PartitionId, Bounds>, Error> {
    let begun = Instant::now();
    loop {
        match fetch(client, topic, partitions, ATTEMPT_WAIT) {
            Ok(bounds) => return Ok(bounds),
            Err(error) if is_passing(&error) && begun.elapsed() < wait => {
                look_leaders_up(client, topic);
                thread::sleep(AGAIN_PAUSE);
            }
            Err(error) => return Err(failed(topic, error)),
        }
    }
}

fn failed(topic: &str, error: KafkaError) -> Error {
    context::failed(topic, "the brokers do not tell the bounds", error)
}

/// After a vain attempt: librdkafka sends a question to the leader that it knows, and goes on doing so when this leader
/// is dead and another one elected. Reading the metadata replaces it. Where that fails the next attempt fails too.
fn look_leaders_up(client: &BaseConsumer<Context>, topic: &str) {
    let _ = client.fetch_metadata(Some(topic), ATTEMPT_WAIT);
}

/// Elections and lost connections pass; that a client may not ask does not.
fn is_passing(error: &KafkaError) -> bool {
    !error.rdkafka_error_code().is_some_and(context::is_forbidden)
}

/// Asks for the bounds of one or more partitions: the log's start, and the high watermark at a moment after that.
fn fetch(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Bounds>> {
    if let (Some(partition), 1) = (partitions.first(), partitions.len()) {
        // librdkafka sends both questions at once, so this takes half as long.
        let (start, end) = client.fetch_watermarks(topic, partition.signed(), wait)?;
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
    let mut asked = TopicPartitionList::new();
    for partition in partitions {
        asked.add_partition_offset(topic, partition.signed(), place)?;
    }
    let told = client.offsets_for_times(asked, wait)?;
    let offsets = told.elements().into_iter().map(|element| {
        element.error()?;
        let Place::Offset(told) = element.offset() else { return Err(KafkaError::NoMessageReceived) };
        Ok((partition(element.partition())?, offset(told)?))
    });
    offsets.collect()
}

fn partition(told: i32) -> KafkaResult<PartitionId> {
    PartitionId::from_signed(told).map_err(|_| KafkaError::NoMessageReceived)
}

fn offset(told: i64) -> KafkaResult<Offset> {
    Offset::from_signed(told).map_err(|_| KafkaError::NoMessageReceived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};

    const TOPIC: &str = "t";

    #[tokio::test]
    async fn the_end_is_told_by_the_elected_leader_while_the_dead_one_stays_down() {
        let brokers: MockCluster<'static, DefaultProducerContext> = MockCluster::new(2).unwrap();
        brokers.create_topic(TOPIC, 1, 2).unwrap();
        brokers.partition_leader(TOPIC, 0, Some(1)).unwrap();
        let config = KafkaConfig::new(brokers.bootstrap_servers(), TOPIC);
        // Otherwise librdkafka would notice after ten seconds by itself.
        let config = config.with("topic.metadata.refresh.interval.ms", "300000");
        let client = BoundsClient::new(&config).unwrap();
        client.end(PartitionId::ZERO, Duration::from_secs(10)).await.unwrap();
        brokers.broker_down(1).unwrap();
        let lost = client.end(PartitionId::ZERO, Duration::from_secs(2)).await;
        lost.expect_err("no other leader is elected yet");
        brokers.partition_leader(TOPIC, 0, Some(2)).unwrap();
        let wait = Duration::from_secs(10);
        let both = tokio::try_join!(client.end(PartitionId::ZERO, wait), client.bounds(PartitionId::ZERO, wait));
        let (end, bounds) = both.expect("the elected leader");
        assert_eq!(end, bounds.end);
    }
}
