//! Durable appends: `Log::append`, raw librdkafka and Kafka's own tool in Java, all with the same settings.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use runlog_log::{
    Ack, Entry, Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_schemas::id::PartitionId;
use runlog_tests::{kafka::Broker, random::Random};
use std::{collections::VecDeque, thread, time::Duration};
use tokio::runtime::Runtime;

use crate::{
    Scale,
    kafka_tools::KafkaTools,
    measure::{Cost, Stopwatch, alternating, cpu_micros, rates},
    records,
    report::{Figure, Goal, Row, Unit},
};

const PARTITIONS: u32 = 4;
/// Appends in flight at most, and records of an append.
const OUTSTANDING: usize = 256;
const BATCH: usize = 64;
/// Records before the measurement, so that both clients have connected and have the topic's metadata.
const WARM_UP: usize = 20_000;
/// Different records; a round repeats them until its time is over.
const RECORDS: u64 = 100_000;

type Entries = [(PartitionId, Entry)];

/// Records per second of a round's time for the Java tool, which ends after a number of records, not after a time.
const TOOL_RATE: u64 = 80_000;

pub(crate) fn run(
    runtime: &Runtime,
    broker: &Broker,
    scale: &Scale,
    tools: Option<&KafkaTools>,
) -> anyhow::Result<Figure> {
    let mut random = Random::new(1);
    let entries: Vec<_> = (0..RECORDS)
        .map(|seq| records::entry(&records::of_500_bytes(&mut random, seq)?, PARTITIONS))
        .collect::<anyhow::Result<_>>()?;
    let costs: [_; 3] = alternating(scale.rounds, |way| {
        let topic = broker.topic(PARTITIONS)?;
        Ok(match way {
            0 => Some(runtime.block_on(append(&topic, &entries, scale.round))?),
            1 => Some(append_raw(&topic, &entries, scale.round)?),
            _ => {
                let records = TOOL_RATE * scale.round.as_secs();
                tools.map(|tools| tools.produce(&topic, WARM_UP as u64, records)).transpose()?
            }
        })
    })?;
    let [ours, raw, tool] = costs.map(|costs| costs.into_iter().flatten().collect::<Vec<_>>());
    let (mine, theirs) = (rates(&ours), rates(&raw));
    let mut rows = vec![Row::ratio("Runlog over raw librdkafka", &mine, &theirs).goal(Goal::AtLeast(0.9))];
    if tools.is_some() {
        rows.push(Row::ratio("Runlog over ProducerPerformance", &mine, &rates(&tool)).goal(Goal::AtLeast(1.2)));
        rows.push(Row::new("ProducerPerformance", Unit::RecordsPerSecond, rates(&tool)));
        rows.push(Row::new("ProducerPerformance's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&tool)));
    }
    rows.extend([
        Row::new("Runlog", Unit::RecordsPerSecond, mine),
        Row::new("raw librdkafka", Unit::RecordsPerSecond, theirs),
        Row::new("Runlog's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&ours)),
        Row::new("raw librdkafka's CPU", Unit::CpuMicrosPerRecord, cpu_micros(&raw)),
    ]);
    Ok(Figure {
        title: "Durable appends".into(),
        method: format!(
            "Records of 500 bytes that do not compress, to {PARTITIONS} partitions: acks=all, idempotent, linger.ms as Runlog has \
             it, LZ4. The clock starts after {WARM_UP} records and stops with the last acknowledgement. Runlog has at most {} \
             records in flight, librdkafka its default queue of 100,000. ProducerPerformance (Java) has librdkafka's batch size and \
             queue size, and records without a key; its CPU time is measured for the whole process.",
            OUTSTANDING * BATCH
        ),
        rows,
    })
}

async fn append(config: &KafkaConfig, entries: &Entries, round: Duration) -> anyhow::Result<Cost> {
    let log = KafkaLog::connect(config.clone())?;
    let mut writer = Writer::new(&log);
    for (partition, entry) in entries.iter().take(WARM_UP) {
        writer.append(*partition, entry.clone()).await?;
    }
    writer.finish().await?;
    let (watch, mut records) = (Stopwatch::start()?, 0);
    for (partition, entry) in entries.iter().cycle() {
        // Reading the clock is slow.
        if records % 1024 == 0 && watch.elapsed() >= round {
            break;
        }
        writer.append(*partition, entry.clone()).await?;
        records += 1;
    }
    writer.finish().await?;
    watch.stop(records)
}

fn append_raw(config: &KafkaConfig, entries: &Entries, round: Duration) -> anyhow::Result<Cost> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", &config.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("compression.type", "lz4")
        .create()?;
    let send = |(partition, entry): &(PartitionId, Entry)| -> anyhow::Result<()> {
        let mut record =
            BaseRecord::to(&config.topic).partition(partition.signed()).key(&entry.key).payload(&entry.value);
        while let Err((error, back)) = producer.send(record) {
            ensure!(error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), "{error}");
            thread::sleep(Duration::from_micros(200));
            record = back;
        }
        Ok(())
    };
    entries.iter().take(WARM_UP).try_for_each(send)?;
    producer.flush(Duration::from_secs(60))?;
    let (watch, mut records) = (Stopwatch::start()?, 0);
    for entry in entries.iter().cycle() {
        if records % 1024 == 0 && watch.elapsed() >= round {
            break;
        }
        send(entry)?;
        records += 1;
    }
    producer.flush(Duration::from_secs(60))?;
    watch.stop(records)
}

/// Collects records in batches and appends them, with a bounded number of appends in flight.
pub(crate) struct Writer<'a> {
    log: &'a dyn Log,
    waiting: VecDeque<Ack>,
    batches: Vec<Vec<Entry>>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(log: &'a dyn Log) -> Self {
        let batches = vec![Vec::new(); log.partitions() as usize];
        Self { log, waiting: VecDeque::new(), batches }
    }

    pub(crate) async fn append(&mut self, partition: PartitionId, entry: Entry) -> anyhow::Result<()> {
        let batch = self.batches.get_mut(partition.index()).context("a partition of the log")?;
        batch.push(entry);
        if batch.len() == BATCH {
            self.waiting.push_back(self.log.append(partition, std::mem::take(batch)));
        }
        if self.waiting.len() > OUTSTANDING {
            self.waiting.pop_front().context("an append")?.await?;
        }
        Ok(())
    }

    /// Appends the rest and waits for every acknowledgement.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<()> {
        for (partition, batch) in PartitionId::all(self.log.partitions()).zip(&mut self.batches) {
            self.waiting.push_back(self.log.append(partition, std::mem::take(batch)));
        }
        for ack in self.waiting.drain(..) {
            ack.await?;
        }
        Ok(())
    }
}
