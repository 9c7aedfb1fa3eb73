//! Appends the records that it reads from stdin, one command per line, all in flight at once and in order. Writes one
//! acknowledgement per line to stdout and exits at the end of stdin.
//!
//! ```text
//!   test_process topic-appender BROKERS TOPIC
//!   {"number": 0, "partition": 1, "how": "log", "key": "72", "value": "c301…"}      {"number": 0, "offset": 17}
//! ```

use anyhow::{Context, anyhow};
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer},
};
use runlog_log::{
    Ack, Entry, Log, Offset, PartitionId,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_projector::index::claimant;
use runlog_tests::{
    agreement::appender::{Acknowledged, How, Order},
    foreign::{Reports, append_kafka, headers},
};
use std::{
    io::{self, Write},
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
    time::Duration,
};
use tokio::runtime::Runtime;

/// Orders in flight at most.
const IN_FLIGHT_MAX: usize = 1024;
/// How long a transaction's steps may take.
const STEP_WAIT: Duration = Duration::from_secs(30);
/// Larger than the limit of our own clients, bytes.
const MESSAGE_BYTES_MAX: &str = "2000000";

/// An order in flight.
enum Waiting {
    Log(usize, Ack),
    /// Waits until all earlier orders are acknowledged; sends `()` when it is done.
    Foreign(Order, SyncSender<()>),
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let [brokers, topic] = <[String; 2]>::try_from(arguments.collect::<Vec<_>>())
        .map_err(|arguments| anyhow!("{arguments:?} are not BROKERS TOPIC"))?;
    let config = KafkaConfig::new(brokers, topic);
    let log = KafkaLog::connect(config.clone())?;
    let (send, waiting) = mpsc::sync_channel(IN_FLIGHT_MAX);
    let listener = thread::spawn(move || listen(&log, &send));
    let foreign = Foreign { runtime: Runtime::new()?, config };
    acknowledge(&waiting, &foreign)?;
    listener.join().map_err(|_| anyhow!("the listener panicked"))?
}

/// Appends each order as it arrives.
fn listen(log: &KafkaLog, send: &SyncSender<Waiting>) -> anyhow::Result<()> {
    for line in io::stdin().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        if order.how == How::Log {
            let entry = to_entry(&order)?;
            let ack = log.append(PartitionId::new(order.partition)?, vec![entry]);
            send.send(Waiting::Log(order.number, ack)).map_err(|_| anyhow!("the waiting thread has ended"))?;
        } else {
            let (done, is_done) = mpsc::sync_channel(0);
            send.send(Waiting::Foreign(order, done)).map_err(|_| anyhow!("the waiting thread has ended"))?;
            is_done.recv().context("the waiting thread has ended")?;
        }
    }
    Ok(())
}

fn acknowledge(waiting: &Receiver<Waiting>, foreign: &Foreign) -> anyhow::Result<()> {
    let mut transactional = None;
    for waiting in waiting {
        let acknowledged = match waiting {
            Waiting::Log(number, ack) => {
                let offsets = foreign.runtime.block_on(ack)?;
                Acknowledged { number, offset: offsets.first().context("an offset")?.get() }
            }
            Waiting::Foreign(order, done) => {
                let offset = foreign.append(&order, &mut transactional)?;
                done.send(()).ok();
                Acknowledged { number: order.number, offset }
            }
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&acknowledged)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// Clients other than ours.
struct Foreign {
    runtime: Runtime,
    config: KafkaConfig,
}

/// A producer whose transactional id is the topic's name, and its delivery reports.
struct Transactional {
    producer: BaseProducer<Reports>,
    reports: Receiver<(usize, Result<Offset, String>)>,
}

impl Foreign {
    fn append(&self, order: &Order, transactional: &mut Option<Transactional>) -> anyhow::Result<u64> {
        let (partition, entry) = (PartitionId::new(order.partition)?, to_entry(order)?);
        if order.how == How::Foreign {
            let landed = append_kafka(&self.config, &[(partition, entry)])?;
            return Ok(landed.first().context("an offset")?.get());
        }
        let Transactional { producer, reports } = match transactional {
            Some(known) => known,
            None => transactional.insert(self.transactional()?),
        };
        producer.begin_transaction()?;
        let record = BaseRecord::with_opaque_to(&self.config.topic, order.number).key(&entry.key);
        let record = record.partition(partition.signed()).payload(&entry.value);
        producer.send(record.headers(headers(&entry))).map_err(|(error, _)| error)?;
        producer.flush(STEP_WAIT)?;
        let (_, landed) = reports.try_recv()?;
        match order.how {
            How::Aborted => producer.abort_transaction(STEP_WAIT)?,
            _ => producer.commit_transaction(STEP_WAIT)?,
        }
        Ok(landed.map_err(|error| anyhow!(error))?.get())
    }

    /// Initialises transactions. The shared transactional id aborts a transaction that a killed process left open.
    fn transactional(&self) -> anyhow::Result<Transactional> {
        let (send, reports) = mpsc::channel();
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.config.brokers).set("message.max.bytes", MESSAGE_BYTES_MAX);
        client.set("transactional.id", &self.config.topic);
        let producer: BaseProducer<Reports> = client.create_with_context(Reports(send))?;
        producer.init_transactions(STEP_WAIT)?;
        Ok(Transactional { producer, reports })
    }
}

fn to_entry(order: &Order) -> anyhow::Result<Entry> {
    let mut entry = Entry { key: bytes(&order.key)?, value: bytes(&order.value)?, ..Entry::default() };
    if let Some(principal) = &order.claimant {
        claimant::mark(&mut entry, principal);
    }
    Ok(entry)
}

pub(crate) fn bytes(hex: &str) -> anyhow::Result<Vec<u8>> {
    let pair = |at: usize| Ok(u8::from_str_radix(hex.get(at..at + 2).context("pairs of digits")?, 16)?);
    (0..hex.len()).step_by(2).map(pair).collect()
}
