//! Reading a topic from its start: `Log::reader`, a bare librdkafka consumer and Kafka's own tool in Java.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};
use runlog_log::{
    Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_schemas::id::{self, PartitionId};
use runlog_tests::{kafka::Broker, random::Random};
use std::time::Duration;
use tokio::runtime::Runtime;

use crate::{
    Scale,
    append::Writer,
    kafka_tools::KafkaTools,
    measure::{Cost, Stopwatch, alternating, cpu_micros, rates},
    records,
    report::{Figure, Row, Unit},
};

const PARTITIONS: u32 = 4;
/// Records per second of a round's time: a consumer ends after a number of records, not after a time.
const RATE: u64 = 200_000;
/// Records of a poll at most, as in the projector.
const POLL: usize = 4096;
/// How long the next record may take.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn run(
    runtime: &Runtime,
    broker: &Broker,
    scale: &Scale,
    tools: Option<&KafkaTools>,
) -> anyhow::Result<Figure> {
    let (topic, records) = (broker.topic(PARTITIONS)?, RATE * scale.round.as_secs());
    runtime.block_on(fill(&topic, records))?;
    let costs: [_; 3] = alternating(scale.rounds, |way| {
        Ok(match way {
            0 => Some(read(&topic, records)?),
            1 => Some(consume(&topic, records)?),
            _ => tools.map(|tools| tools.consume(&topic, records)).transpose()?,
        })
    })?;
    let [ours, raw, tool] = costs.map(|costs| costs.into_iter().flatten().collect::<Vec<_>>());
    let (mine, theirs) = (rates(&ours), rates(&raw));
    let mut rows = vec![Row::ratio("Runlog over raw librdkafka", &mine, &theirs)];
    if tools.is_some() {
        rows.push(Row::ratio("Runlog over ConsumerPerformance", &mine, &rates(&tool)));
        rows.push(Row::new("ConsumerPerformance", Unit::RecordsPerSecond, rates(&tool)));
        rows.push(Row::new("ConsumerPerformance's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&tool)));
    }
    rows.extend([
        Row::new("Runlog", Unit::RecordsPerSecond, mine),
        Row::new("raw librdkafka", Unit::RecordsPerSecond, theirs),
        Row::new("Runlog's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&ours)),
        Row::new("raw librdkafka's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&raw)),
    ]);
    Ok(Figure {
        title: "Consumption".into(),
        method: format!(
            "{records} records of 500 bytes that do not compress, from the start of {PARTITIONS} partitions, without decoding them. \
             The clocks of Runlog and librdkafka start with the first records that arrive. The clock of ConsumerPerformance (Java) \
             starts when it has its partitions; its CPU time is measured for the whole process, which has no warm-up."
        ),
        rows,
    })
}

async fn fill(topic: &KafkaConfig, count: u64) -> anyhow::Result<()> {
    let (log, mut random) = (KafkaLog::connect(topic.clone())?, Random::new(6));
    let mut writer = Writer::new(&log);
    for seq in 0..count {
        let (partition, entry) = records::entry(&records::of_500_bytes(&mut random, seq)?, PARTITIONS)?;
        writer.append(partition, entry).await?;
    }
    writer.finish().await
}

fn read(topic: &KafkaConfig, count: u64) -> anyhow::Result<Cost> {
    let log = KafkaLog::connect(topic.clone())?;
    let from: Vec<_> = PartitionId::all(PARTITIONS).map(|partition| (partition, id::Offset::ZERO)).collect();
    let mut reader = log.reader(&from)?;
    let first = reader.poll(POLL, DEADLINE)?.len() as u64;
    let (watch, mut records) = (Stopwatch::start()?, first);
    while records < count {
        let deliveries = reader.poll(POLL, DEADLINE)?;
        ensure!(!deliveries.is_empty() || watch.elapsed() < DEADLINE, "{records} of {count} records were delivered");
        records += deliveries.len() as u64;
    }
    watch.stop(records - first)
}

fn consume(topic: &KafkaConfig, count: u64) -> anyhow::Result<Cost> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in PartitionId::all(PARTITIONS) {
        assignment.add_partition_offset(&topic.topic, partition.signed(), Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    consumer.poll(DEADLINE).context("no record in time")??;
    let watch = Stopwatch::start()?;
    for _ in 1..count {
        consumer.poll(DEADLINE).context("no further record in time")??;
    }
    watch.stop(count - 1)
}
