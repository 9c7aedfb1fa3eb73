//! The latency from an append until the record is in the indices, and a bare client's latency from send to consumption.

use anyhow::Context;
use rdkafka::{
    ClientConfig, Message,
    consumer::{BaseConsumer, Consumer},
    producer::{BaseRecord, DefaultProducerContext, ThreadedProducer},
};
use runlog_projector::{Config, Projector, index::Consistency, open};
use runlog_tests::kafka::Broker;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{runtime::Runtime, sync::oneshot};

use crate::{
    Scale, clock, id,
    measure::{Latencies, alternating, open_loop, quantiles},
    records::{self, Journal},
    report::{Figure, Goal, Row, Unit},
};

const PARTITIONS: u32 = 4;
const RATE: u32 = 1_000;
/// Appends before the measurement.
const WARM_UP: u32 = 500;
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn run(runtime: &Runtime, broker: &Broker, scale: &Scale) -> anyhow::Result<Figure> {
    let [ours, bare] = alternating(scale.rounds, |way| match way {
        0 => runtime.block_on(visible(broker, scale.questions)),
        _ => runtime.block_on(consumed(broker, scale.questions)),
    })?;
    let (half, half_bare) = (quantiles(0.5, &ours), quantiles(0.5, &bare));
    let (tail, tail_bare) = (quantiles(0.99, &ours), quantiles(0.99, &bare));
    Ok(Figure {
        title: "From append to visible".into(),
        method: format!(
            "{RATE} records/s, each begun in its time, even if earlier appends have not ended (open loop). Runlog: in \
             one process, \
             from the append to `at_least` of its offset. Bare: librdkafka's producer (acks=all, idempotent, linger.ms=0) and a \
             consumer with fetch.wait.max.ms=100, from send to the record's arrival."
        ),
        rows: vec![
            Row::ratio("p50, Runlog over bare", &half, &half_bare).goal(Goal::AtMost(2.0)),
            Row::ratio("p99, Runlog over bare", &tail, &tail_bare).goal(Goal::AtMost(3.0)),
            Row::new("Runlog, p50", Unit::Millis, half),
            Row::new("Runlog, p99", Unit::Millis, tail),
            Row::new("bare, p50", Unit::Millis, half_bare),
            Row::new("bare, p99", Unit::Millis, tail_bare),
        ],
    })
}

/// The records of both ways.
fn make_records(count: u32) -> anyhow::Result<Vec<(runlog_log::PartitionId, runlog_log::Entry)>> {
    let mut journal = Journal::new(3, crate::RECORDS_PER_RUN);
    (0..WARM_UP + count).map(|_| records::entry(&journal.record()?, PARTITIONS)).collect()
}

async fn visible(broker: &Broker, count: u32) -> anyhow::Result<Latencies> {
    let dir = tempfile::tempdir()?;
    let config = Config { partitions: Some(PARTITIONS), ..Config::new(dir.path(), clock, id) };
    let projector = Arc::new(open::kafka(config, broker.unique_topic()).await?);
    let entries = Arc::new(make_records(count)?);
    let work = |from: u32| {
        let (projector, entries) = (projector.clone(), entries.clone());
        move |nth: u32| {
            let (projector, entries) = (projector.clone(), entries.clone());
            async move {
                let (partition, entry) = entries.get((from + nth) as usize).context("an entry")?.clone();
                append_and_apply(&projector, partition, entry).await
            }
        }
    };
    open_loop(RATE, WARM_UP, work(0)).await?;
    open_loop(RATE, count, work(WARM_UP)).await
}

async fn append_and_apply(
    projector: &Projector,
    partition: runlog_log::PartitionId,
    entry: runlog_log::Entry,
) -> anyhow::Result<()> {
    let offsets = projector.log().append(partition, vec![entry]).await?;
    let offset = *offsets.first().context("an offset")?;
    projector.wait(partition, Consistency::AtLeast(partition, offset), DEADLINE).await?;
    Ok(())
}

/// The waiting senders, by the key of their record.
type Arrivals = Mutex<HashMap<u32, oneshot::Sender<()>>>;

async fn consumed(broker: &Broker, count: u32) -> anyhow::Result<Latencies> {
    let config = broker.topic(PARTITIONS)?;
    let client = |more: &[(&str, &str)]| {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &config.brokers);
        more.iter().for_each(|(name, value)| _ = client.set(*name, *value));
        client
    };
    let producer: ThreadedProducer<DefaultProducerContext> =
        client(&[("acks", "all"), ("enable.idempotence", "true"), ("linger.ms", "0"), ("compression.type", "lz4")])
            .create()?;
    let consumer: BaseConsumer =
        client(&[("group.id", "bench"), ("fetch.wait.max.ms", "100"), ("enable.auto.commit", "false")]).create()?;
    let mut assignment = rdkafka::TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        assignment.add_partition_offset(&config.topic, partition.cast_signed(), rdkafka::Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let (arrivals, ending) = (Arc::new(Arrivals::default()), Arc::new(AtomicBool::new(false)));
    let reading = thread::spawn({
        let (arrivals, ending) = (arrivals.clone(), ending.clone());
        move || {
            while !ending.load(Ordering::Relaxed) {
                let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else { continue };
                let key = message.key().and_then(|key| Some(u32::from_be_bytes(key.try_into().ok()?)));
                let waiting = key.and_then(|key| locked(&arrivals).remove(&key));
                waiting.map(|waiting| waiting.send(()));
            }
        }
    });
    let (producer, entries, topic) =
        (Arc::new(producer), Arc::new(make_records(count)?), Arc::new(config.topic.clone()));
    let work = |from: u32| {
        let (producer, entries, arrivals, topic) = (producer.clone(), entries.clone(), arrivals.clone(), topic.clone());
        move |nth: u32| {
            let (producer, entries, arrivals, topic) =
                (producer.clone(), entries.clone(), arrivals.clone(), topic.clone());
            async move {
                let key = from + nth;
                let (partition, entry) = entries.get(key as usize).context("an entry")?;
                let (send, arrived) = oneshot::channel();
                locked(&arrivals).insert(key, send);
                let key = key.to_be_bytes();
                let record = BaseRecord::to(&topic).partition(partition.signed()).key(&key).payload(&entry.value);
                producer.send(record).map_err(|(error, _)| error)?;
                tokio::time::timeout(DEADLINE, arrived).await??;
                Ok(())
            }
        }
    };
    open_loop(RATE, WARM_UP, work(0)).await?;
    let latencies = open_loop(RATE, count, work(WARM_UP)).await;
    ending.store(true, Ordering::Relaxed);
    reading.join().ok().context("the consumer panicked")?;
    latencies
}

fn locked(arrivals: &Arrivals) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<()>>> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}
