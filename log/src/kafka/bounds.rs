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
    Offset as KafkaOffset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
};
use tokio::sync::oneshot;

use super::{
    config::{KafkaConfig, Role},
    contact::LostProducer,
    context::{self, Context},
    health::Health,
    watch::PATIENCE,
};
use crate::{
    Bounds, Offset, PartitionId,
    clients::Client,
    error::{Error, Kind},
};

/// Interval at which the client's own events are served without requests.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Time limit of one attempt.
const ATTEMPT_WAIT: Duration = Duration::from_secs(1);

/// The pause after a failed attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Time for which attempts may fail before a new client replaces this one: the first and the longest. Longer than most
/// elections.
const FAILING_WAIT: Duration = Duration::from_secs(10);
const FAILING_WAIT_MAX: Duration = Duration::from_secs(300);

/// Interval at which the producer's contact with brokers is checked.
const PRODUCER_PAUSE: Duration = Duration::from_millis(500);

/// The longest deadline; a longer one is reduced to it.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// Sends requests to the bounds thread. The thread ends after the drop of this value, which does not wait for a request in
/// flight.
pub(super) struct BoundsClient {
    brokers: String,
    topic: String,
    requests: mpsc::Sender<OffsetRequest>,
}

struct OffsetRequest {
    partition: PartitionId,
    until: Instant,
    /// Whether the request is repeated after a failed attempt.
    repeats: bool,
    /// The error of the last attempt.
    failure: Option<KafkaError>,
    answer: Answer,
}

/// The channel for the answer; closed if the caller has given up.
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

    fn send(
        self,
        fetched: KafkaResult<&FetchedOffsets>,
        partition: PartitionId,
        failed: impl FnOnce(KafkaError) -> Error,
    ) {
        match self {
            Self::Bounds(answer) => {
                drop(answer.send(fetched.and_then(|fetched| fetched.bounds(partition)).map_err(failed)))
            }
            Self::End(answer) => drop(answer.send(fetched.and_then(|fetched| fetched.end(partition)).map_err(failed))),
        }
    }
}

/// The brokers' answer for some partitions.
enum FetchedOffsets {
    Bounds(BTreeMap<PartitionId, Bounds>),
    /// The ends alone, if no caller needs the starts: one request to the brokers instead of two.
    Ends(BTreeMap<PartitionId, Offset>),
}

impl FetchedOffsets {
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
        let (requests, receiver) = mpsc::channel();
        let worker = BoundsThread {
            client: client(config)?,
            config: config.clone(),
            brokers: brokers.clone(),
            topic: topic.clone(),
            suspects: VecDeque::new(),
            failed_attempts: None,
            failing_wait: FAILING_WAIT,
            last_failures: BTreeMap::new(),
            health,
            lost,
            producer_looked: Instant::now(),
            producer_suspected: None,
        };
        let thread = thread::Builder::new().name("kafka-bounds".into()).spawn(move || worker.run(&receiver));
        thread.map_err(|source| Error::new(Kind::Retry, &topic, "the bounds thread did not start").because(source))?;
        Ok(Self { brokers, topic, requests })
    }

    pub(super) async fn bounds(&self, partition: PartitionId, deadline: Duration) -> Result<Bounds, Error> {
        self.request(partition, deadline, Answer::Bounds).await
    }

    pub(super) async fn end(&self, partition: PartitionId, deadline: Duration) -> Result<Offset, Error> {
        self.request(partition, deadline, Answer::End).await
    }

    async fn request<T>(
        &self,
        partition: PartitionId,
        deadline: Duration,
        to: fn(oneshot::Sender<Result<T, Error>>) -> Answer,
    ) -> Result<T, Error> {
        let receiver = self.send(partition, deadline, true, to)?;
        match tokio::time::timeout(deadline, receiver).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(self.thread_ended(partition))),
            Err(_) => Err(timed_out(&self.brokers, &self.topic, partition)),
        }
    }

    /// Asks for an end once, without waiting: the receiver gets the answer within `deadline`. A failed attempt is not
    /// repeated, because it would delay other requests.
    pub(super) fn request_end(
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
        let (answer, receiver) = oneshot::channel();
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let request = OffsetRequest { partition, until, repeats, failure: None, answer: to(answer) };
        self.requests.send(request).map_err(|_| self.thread_ended(partition))?;
        Ok(receiver)
    }

    fn thread_ended(&self, partition: PartitionId) -> Error {
        Error::new(Kind::Fatal, &self.topic, "the bounds thread has ended").in_partition(partition)
    }
}

fn client(config: &KafkaConfig) -> Result<BaseConsumer<Context>, Error> {
    let client = config.client(Role::Metadata)?.create_with_context(Context::default());
    client.map_err(|error| context::map_creation_error(&config.topic, error))
}

struct BoundsThread {
    client: BaseConsumer<Context>,
    config: KafkaConfig,
    brokers: String,
    topic: String,
    /// Suspects in the order of their requests.
    suspects: VecDeque<PartitionId>,
    /// The first and the last failed attempt since the last answer.
    failed_attempts: Option<(Instant, Instant)>,
    /// Time for which attempts may fail. Doubles with each new client that gets no answer either.
    failing_wait: Duration,
    /// The last failed attempt, by partition.
    last_failures: BTreeMap<PartitionId, Instant>,
    health: Health,
    lost: Arc<LostProducer>,
    producer_looked: Instant,
    /// The producer's generation, and the time since which it has no broker while this client gets answers.
    producer_suspected: Option<(u64, Instant)>,
}

impl BoundsThread {
    fn run(mut self, receiver: &mpsc::Receiver<OffsetRequest>) {
        let mut pending: Vec<OffsetRequest> = Vec::new();
        loop {
            match receiver.recv_timeout(if pending.is_empty() { IDLE_WAIT } else { RETRY_PAUSE }) {
                Ok(request) => pending.push(request),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            pending.extend(receiver.try_iter());
            self.fail_expired(&mut pending);
            self.attempt(&mut pending);
            self.check_producer();
            // Passes the client's log lines and errors to the context. Otherwise they would accumulate.
            while self.client.poll(Duration::ZERO).is_some() {}
        }
    }

    /// Requests the replacement of a producer that has no broker for [`PATIENCE`] while this client gets every answer.
    fn check_producer(&mut self) {
        let Some((generation, since)) = self.lost.lost_since() else {
            self.producer_suspected = None;
            self.lost.cancel_replacement();
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
            self.lost.request_replacement(generation);
        }
    }

    /// Records an attempt. After [`Self::failing_wait`] without an answer, replaces the client, which may have lost all brokers
    /// (see `contact`).
    fn record_attempt(&mut self, is_failed: bool) {
        if !is_failed {
            (self.failed_attempts, self.failing_wait) = (None, FAILING_WAIT);
            return;
        }
        let now = Instant::now();
        let recent = self.failed_attempts.filter(|(_, last)| now.saturating_duration_since(*last) < FAILING_WAIT);
        let (first, _) = *self.failed_attempts.insert((recent.map_or(now, |(first, _)| first), now));
        if now.saturating_duration_since(first) < self.failing_wait {
            return;
        }
        (self.failed_attempts, self.failing_wait) = (None, (self.failing_wait * 2).min(FAILING_WAIT_MAX));
        match client(&self.config) {
            Ok(fresh) => {
                let replaced = std::mem::replace(&mut self.client, fresh);
                self.health.count_replacement(Client::Bounds, "it got no answer".to_owned());
                // Closing takes time. Without a thread for it, the client is closed here.
                let _ = thread::Builder::new().name("closing".into()).spawn(move || drop(replaced));
            }
            Err(error) => {
                tracing::warn!(topic = self.topic, %error, "cannot create a new client for offset requests; the old one stays in use")
            }
        }
    }

    fn fail_expired(&self, pending: &mut Vec<OffsetRequest>) {
        let now = Instant::now();
        let is_over = |request: &mut OffsetRequest| {
            let failed_at = self.last_failures.get(&request.partition);
            let has_failed = failed_at.is_some_and(|failed_at| now.saturating_duration_since(*failed_at) < PATIENCE);
            request.answer.is_closed() || request.until <= now || (!request.repeats && has_failed)
        };
        for request in pending.extract_if(.., is_over) {
            let error = timed_out(&self.brokers, &self.topic, request.partition);
            let error = request.failure.into_iter().fold(error, Error::because);
            request.answer.fail(error);
        }
    }

    /// Fetches the offsets of all pending requests, and answers these requests.
    fn attempt(&mut self, pending: &mut Vec<OffsetRequest>) {
        let partitions: BTreeSet<PartitionId> = pending.iter().map(|request| request.partition).collect();
        let healthy: BTreeSet<PartitionId> =
            partitions.iter().copied().filter(|at| !self.suspects.contains(at)).collect();
        if !self.request_offsets(&healthy, pending) {
            self.suspects.extend(healthy);
        }
        while let Some(at) = self.suspects.iter().position(|suspect| partitions.contains(suspect))
            && let Some(suspect) = self.suspects.remove(at)
        {
            if !self.request_offsets(&BTreeSet::from([suspect]), pending) {
                self.suspects.push_back(suspect);
                break;
            }
        }
    }

    /// Makes one attempt for these partitions together. Returns false if there was no answer and a later attempt may get one.
    fn request_offsets(&mut self, partitions: &BTreeSet<PartitionId>, pending: &mut Vec<OffsetRequest>) -> bool {
        if partitions.is_empty() {
            return true;
        }
        let is_requested = |request: &OffsetRequest| partitions.contains(&request.partition);
        let ends = !pending.iter().any(|request| is_requested(request) && matches!(request.answer, Answer::Bounds(_)));
        let fetched = if ends {
            fetch_offsets(&self.client, &self.topic, partitions, KafkaOffset::End, ATTEMPT_WAIT)
                .map(FetchedOffsets::Ends)
        } else {
            fetch(&self.client, &self.topic, partitions, ATTEMPT_WAIT).map(FetchedOffsets::Bounds)
        };
        if let Err(error) = &fetched
            && is_retriable(error)
        {
            let now = Instant::now();
            self.last_failures.extend(partitions.iter().map(|partition| (*partition, now)));
            for request in pending.iter_mut().filter(|request| is_requested(request)) {
                request.failure = Some(error.clone());
            }
            self.fail_expired(pending);
            if pending.iter().any(is_requested) {
                refresh_leaders(&self.client, &self.topic);
            }
            self.record_attempt(true);
            return false;
        }
        self.last_failures.retain(|partition, _| !partitions.contains(partition));
        self.record_attempt(false);
        for OffsetRequest { partition, answer, .. } in pending.extract_if(.., |request| is_requested(request)) {
            let fetched = fetched.as_ref().map_err(KafkaError::clone);
            answer.send(fetched, partition, |error| map_error(&self.topic, error).in_partition(partition));
        }
        true
    }
}

fn timed_out(brokers: &str, topic: &str, partition: PartitionId) -> Error {
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
            Err(error) if is_retriable(&error) && start.elapsed() < wait => {
                refresh_leaders(client, topic);
                thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(map_error(topic, error)),
        }
    }
}

fn map_error(topic: &str, error: KafkaError) -> Error {
    context::map_error(topic, "cannot read the bounds from the brokers", error)
}

/// Refreshes the leaders after a failed attempt. librdkafka keeps sending requests to the leader that it knows, also after
/// the election of another leader. If the refresh fails, the next attempt fails too.
fn refresh_leaders(client: &BaseConsumer<Context>, topic: &str) {
    let _ = client.fetch_metadata(Some(topic), ATTEMPT_WAIT);
}

/// Whether an error is temporary, as in elections and after lost connections; a missing permission is not.
fn is_retriable(error: &KafkaError) -> bool {
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
    let starts = fetch_offsets(client, topic, partitions, KafkaOffset::Beginning, wait)?;
    let ends = fetch_offsets(client, topic, partitions, KafkaOffset::End, wait)?;
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
    position: KafkaOffset,
    wait: Duration,
) -> KafkaResult<BTreeMap<PartitionId, Offset>> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition_offset(topic, partition.signed(), position)?;
    }
    let answers = client.offsets_for_times(list, wait)?;
    let offsets = answers.elements().into_iter().map(|element| {
        element.error()?;
        let KafkaOffset::Offset(value) = element.offset() else { return Err(KafkaError::NoMessageReceived) };
        Ok((partition(element.partition())?, offset(value)?))
    });
    offsets.collect()
}

fn partition(number: i32) -> KafkaResult<PartitionId> {
    PartitionId::from_signed(number).map_err(|_| KafkaError::NoMessageReceived)
}

fn offset(number: i64) -> KafkaResult<Offset> {
    Offset::from_signed(number).map_err(|_| KafkaError::NoMessageReceived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};

    const TOPIC: &str = "t";

    #[tokio::test]
    async fn the_end_comes_from_the_elected_leader_while_the_dead_one_stays_down() {
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
