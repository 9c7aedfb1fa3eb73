//! Requests the bounds of partitions from the brokers, with a client and a thread of its own, so that requests do not queue
//! after appends and fetches.
//!
//! A caller that asks during a request waits for the next request, which answers all waiting callers. A request fails as a
//! whole if one partition has no leader. So a partition without an answer becomes a suspect: it is requested alone and after
//! the others, which get their answers during its election.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, mpsc},
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
    contact::LostProducer,
    context::{self, Context},
    health::Health,
    watch::PATIENCE,
};
use crate::{Bounds, Client, Error, Kind, Offset, PartitionId};

/// Interval at which the client's own events are served without questions.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Time limit of one attempt.
const ATTEMPT_WAIT: Duration = Duration::from_secs(1);

/// The pause after a failed attempt.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// Time for which attempts may fail before a new client replaces this one: the first and the longest. Longer than most
/// elections.
const VAIN_WAIT: Duration = Duration::from_secs(10);
const VAIN_WAIT_MAX: Duration = Duration::from_secs(300);

/// Interval at which the producer's contact with brokers is checked.
const PRODUCER_PAUSE: Duration = Duration::from_millis(500);

/// The longest deadline; a longer one is reduced to it.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// Asks questions of the bounds thread. The thread ends after the drop of this value, which does not wait for a request in
/// flight.
pub(super) struct BoundsClient {
    brokers: String,
    topic: String,
    questions: mpsc::Sender<Question>,
}

struct Question {
    partition: PartitionId,
    until: Instant,
    /// Whether the question is repeated after a failed attempt.
    repeats: bool,
    /// The error of the last attempt.
    failure: Option<KafkaError>,
    answer: Answer,
}

/// The channel of the answer; closed if the caller has given up.
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

/// The brokers' answer for some partitions.
enum Told {
    Bounds(BTreeMap<PartitionId, Bounds>),
    /// The ends alone, if the questions do not need the starts: one request instead of two.
    Ends(BTreeMap<PartitionId, Offset>),
}

impl Told {
    fn bounds(&self, partition: PartitionId) -> KafkaResult<Bounds> {
        let answer = match self {
            Self::Bounds(bounds) => bounds.get(&partition).copied(),
            Self::Ends(_) => None,
        };
        answer.ok_or(KafkaError::NoMessageReceived)
    }

    fn end(&self, partition: PartitionId) -> KafkaResult<Offset> {
        let answer = match self {
            Self::Bounds(bounds) => bounds.get(&partition).map(|bounds| bounds.end),
            Self::Ends(ends) => ends.get(&partition).copied(),
        };
        answer.ok_or(KafkaError::NoMessageReceived)
    }
}

impl BoundsClient {
    /// Starts the bounds thread. It also checks the producer's contact with brokers, which `lost` shares.
    pub(super) fn new(config: &KafkaConfig, health: Health, lost: Arc<LostProducer>) -> Result<Self, Error> {
        let (brokers, topic) = (config.brokers.clone(), config.topic.clone());
        let (questions, asked) = mpsc::channel();
        let asker = Asker {
            client: client(config)?,
            config: config.clone(),
            brokers: brokers.clone(),
            topic: topic.clone(),
            suspects: VecDeque::new(),
            vain: None,
            vain_wait: VAIN_WAIT,
            tried: BTreeMap::new(),
            health,
            lost,
            producer_looked: Instant::now(),
            producer_suspected: None,
        };
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
        let answered = self.send(partition, deadline, true, to)?;
        match tokio::time::timeout(deadline, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(self.ended(partition))),
            Err(_) => Err(late(&self.brokers, &self.topic, partition)),
        }
    }

    /// Asks for an end once, without waiting: the receiver gets the answer within `deadline`. A failed attempt is not
    /// repeated, because it would delay other questions.
    pub(super) fn ask_end(
        &self,
        partition: PartitionId,
        deadline: Duration,
    ) -> Result<oneshot::Receiver<Result<Offset, Error>>, Error> {
        self.send(partition, deadline, false, Answer::End)
    }

    fn send<T>(
        &self,
        partition: PartitionId,
        deadline: Duration,
        repeats: bool,
        to: fn(oneshot::Sender<Result<T, Error>>) -> Answer,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (answer, answered) = oneshot::channel();
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let question = Question { partition, until, repeats, failure: None, answer: to(answer) };
        self.questions.send(question).map_err(|_| self.ended(partition))?;
        Ok(answered)
    }

    fn ended(&self, partition: PartitionId) -> Error {
        Error::new(Kind::Fatal, &self.topic, "the bounds thread has ended").in_partition(partition)
    }
}

fn client(config: &KafkaConfig) -> Result<BaseConsumer<Context>, Error> {
    let client = config.client(Role::Asker)?.create_with_context(Context::default());
    client.map_err(|error| context::unmade(&config.topic, error))
}

struct Asker {
    client: BaseConsumer<Context>,
    config: KafkaConfig,
    brokers: String,
    topic: String,
    /// Suspects in the order of their requests.
    suspects: VecDeque<PartitionId>,
    /// The first and the last failed attempt since the last answer.
    vain: Option<(Instant, Instant)>,
    /// Time for which attempts may fail. Doubles with each new client that gets no answer either.
    vain_wait: Duration,
    /// The last failed attempt, by partition.
    tried: BTreeMap<PartitionId, Instant>,
    health: Health,
    lost: Arc<LostProducer>,
    producer_looked: Instant,
    /// The producer's generation, and the time since which it has no broker while this client gets answers.
    producer_suspected: Option<(u64, Instant)>,
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
            self.look_at_producer();
            // Passes the client's log lines and errors to the context. Otherwise they would accumulate.
            while self.client.poll(Duration::ZERO).is_some() {}
        }
    }

    /// Condemns a producer that has no broker for [`PATIENCE`] while this client gets every answer.
    fn look_at_producer(&mut self) {
        let Some((generation, since)) = self.lost.lost_since() else {
            self.producer_suspected = None;
            self.lost.pardon();
            return;
        };
        let now = Instant::now();
        if now.saturating_duration_since(self.producer_looked) < PRODUCER_PAUSE {
            return;
        }
        self.producer_looked = now;
        let metadata = self.client.fetch_metadata(Some(&self.topic), ATTEMPT_WAIT);
        if !metadata.is_ok_and(|metadata| !metadata.brokers().is_empty()) {
            self.producer_suspected = None;
            return;
        }
        let before = self.producer_suspected.filter(|(suspected, _)| *suspected == generation);
        let (_, answered_since) = *self.producer_suspected.insert(before.unwrap_or((generation, now)));
        if now.saturating_duration_since(answered_since.max(since)) >= PATIENCE {
            self.lost.condemn(generation);
        }
    }

    /// Records an attempt. After [`Self::vain_wait`] without an answer, replaces the client, which may have lost all brokers
    /// (see `contact`).
    fn note_attempt(&mut self, is_vain: bool) {
        if !is_vain {
            (self.vain, self.vain_wait) = (None, VAIN_WAIT);
            return;
        }
        let now = Instant::now();
        let recent = self.vain.filter(|(_, last)| now.saturating_duration_since(*last) < VAIN_WAIT);
        let (first, _) = *self.vain.insert((recent.map_or(now, |(first, _)| first), now));
        if now.saturating_duration_since(first) < self.vain_wait {
            return;
        }
        (self.vain, self.vain_wait) = (None, (self.vain_wait * 2).min(VAIN_WAIT_MAX));
        match client(&self.config) {
            Ok(fresh) => {
                let vain = std::mem::replace(&mut self.client, fresh);
                self.health.count_replacement(Client::Bounds, "it got no answer".to_owned());
                // Closing takes time. Without a thread for it, the client is closed here.
                let _ = thread::Builder::new().name("closing".into()).spawn(move || drop(vain));
            }
            Err(error) => {
                tracing::warn!(topic = self.topic, %error, "cannot create a new client for offset requests; the old one stays in use")
            }
        }
    }

    fn give_up(&self, open: &mut Vec<Question>) {
        let now = Instant::now();
        let is_over = |question: &mut Question| {
            let tried = self.tried.get(&question.partition);
            let is_tried = tried.is_some_and(|tried| now.saturating_duration_since(*tried) < PATIENCE);
            question.answer.is_closed() || question.until <= now || (!question.repeats && is_tried)
        };
        for question in open.extract_if(.., is_over) {
            let late = late(&self.brokers, &self.topic, question.partition);
            let late = question.failure.into_iter().fold(late, Error::because);
            question.answer.fail(late);
        }
    }

    /// Requests all partitions of the open questions, and answers these questions.
    fn attempt(&mut self, open: &mut Vec<Question>) {
        let partitions: BTreeSet<PartitionId> = open.iter().map(|question| question.partition).collect();
        let sound: BTreeSet<PartitionId> =
            partitions.iter().copied().filter(|at| !self.suspects.contains(at)).collect();
        if !self.ask_for(&sound, open) {
            self.suspects.extend(sound);
        }
        while let Some(at) = self.suspects.iter().position(|suspect| partitions.contains(suspect))
            && let Some(suspect) = self.suspects.remove(at)
        {
            if !self.ask_for(&BTreeSet::from([suspect]), open) {
                self.suspects.push_back(suspect);
                break;
            }
        }
    }

    /// Makes one attempt for these partitions together. Returns false if there was no answer and a later attempt may get one.
    fn ask_for(&mut self, partitions: &BTreeSet<PartitionId>, open: &mut Vec<Question>) -> bool {
        if partitions.is_empty() {
            return true;
        }
        let is_asked = |question: &Question| partitions.contains(&question.partition);
        let ends = !open.iter().any(|question| is_asked(question) && matches!(question.answer, Answer::Bounds(_)));
        let fetched = if ends {
            fetch_offsets(&self.client, &self.topic, partitions, Place::End, ATTEMPT_WAIT).map(Told::Ends)
        } else {
            fetch(&self.client, &self.topic, partitions, ATTEMPT_WAIT).map(Told::Bounds)
        };
        if let Err(error) = &fetched
            && is_passing(error)
        {
            let now = Instant::now();
            self.tried.extend(partitions.iter().map(|partition| (*partition, now)));
            for question in open.iter_mut().filter(|question| is_asked(question)) {
                question.failure = Some(error.clone());
            }
            self.give_up(open);
            if open.iter().any(is_asked) {
                look_leaders_up(&self.client, &self.topic);
            }
            self.note_attempt(true);
            return false;
        }
        self.tried.retain(|partition, _| !partitions.contains(partition));
        self.note_attempt(false);
        for Question { partition, answer, .. } in open.extract_if(.., |question| is_asked(question)) {
            let fetched = fetched.as_ref().map_err(KafkaError::clone);
            answer.tell(fetched, partition, |error| failed(&self.topic, error).in_partition(partition));
        }
        true
    }
}

fn late(brokers: &str, topic: &str, partition: PartitionId) -> Error {
    Error::new(Kind::Retry, topic, format!("timed out reading the partition's offsets from brokers {brokers}"))
        .in_partition(partition)
}

/// Fetches the bounds on the caller's thread. Repeats the request for up to `wait` while the cluster is not ready to answer.
pub(super) fn fetch_within(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    wait: Duration,
) -> Result<BTreeMap<PartitionId, Bounds>, Error> {
    let start = Instant::now();
    loop {
        match fetch(client, topic, partitions, ATTEMPT_WAIT) {
            Ok(bounds) => return Ok(bounds),
            Err(error) if is_passing(&error) && start.elapsed() < wait => {
                look_leaders_up(client, topic);
                thread::sleep(AGAIN_PAUSE);
            }
            Err(error) => return Err(failed(topic, error)),
        }
    }
}

fn failed(topic: &str, error: KafkaError) -> Error {
    context::failed(topic, "cannot read the bounds from the brokers", error)
}

/// Refreshes the leaders after a failed attempt. librdkafka keeps sending requests to the leader that it knows, also after
/// the election of another leader. If the refresh fails, the next attempt fails too.
fn look_leaders_up(client: &BaseConsumer<Context>, topic: &str) {
    let _ = client.fetch_metadata(Some(topic), ATTEMPT_WAIT);
}

/// Whether an error is temporary, as in elections and after lost connections; a missing permission is not.
fn is_passing(error: &KafkaError) -> bool {
    !error.rdkafka_error_code().is_some_and(context::is_forbidden)
}

/// Fetches the bounds of one or more partitions: first the log's start, then the high watermark.
fn fetch(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Bounds>> {
    if let (Some(partition), 1) = (partitions.first(), partitions.len()) {
        // librdkafka sends both requests at once, so this takes half as long.
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

/// Sends one request to each leader. ListOffsets, which finds offsets by time, also returns the earliest and the latest
/// offset, and librdkafka passes both requests through.
fn fetch_offsets(
    client: &BaseConsumer<Context>,
    topic: &str,
    partitions: &BTreeSet<PartitionId>,
    place: Place,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Offset>> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition_offset(topic, partition.signed(), place)?;
    }
    let answers = client.offsets_for_times(list, wait)?;
    let offsets = answers.elements().into_iter().map(|element| {
        element.error()?;
        let Place::Offset(value) = element.offset() else { return Err(KafkaError::NoMessageReceived) };
        Ok((partition(element.partition())?, offset(value)?))
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
        let client = BoundsClient::new(&config, Health::default(), Arc::default()).unwrap();
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
