//! Compares a real server on a real topic with the model over a seed's history. An appender process appends the history in
//! order. Server and appender are killed with SIGKILL at moments of the seed: after an acknowledgement, never by a clock.
//!
//! ```text
//!   history ─▶ appender process ─▶ topic ─┬─▶ runlog serve ─▶ HTTP ══ question by question ══╗
//!                 └ killed: its appends   │     └ killed, its index perhaps deleted          ║
//!                   in flight are resent  └─▶ witness ─▶ Model ─▶ answers ═══════════════════╝
//! ```
//!
//! After a kill of the appender it is unknown which records are in the topic. So the model reads the topic with its own
//! client. A gap of the history becomes a transaction, whose control record takes an offset. Faults that only the log in
//! memory has (delayed records, a moved start, lost records) are left out. A skip's offset is translated from the history
//! to the topic.

use super::{
    Checked, LOOKS,
    appender::{Acknowledged, Appender, How, Order},
    compare, describe_history,
    difference::{Difference, Found},
    encoding::{self, history},
    http::{Asker, Http, Part},
    model, pure,
    witness::{TopicRecord, Witness},
};
use crate::{
    kafka::Broker,
    random::Random,
    server::{Launch, Server},
};
use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, admin};
use runlog_model::{AppendFault, Delivery, Event, History, Model, Step, What};
use runlog_schemas::{codec::RECORD_BYTES_MAX, datum::hex};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fs, ops, thread,
    time::{Duration, Instant},
};

/// Kills of each process in a seed; the server may be killed once more while it rebuilds a deleted index.
const KILLS: u64 = 2;
/// Appends in flight at most.
const WINDOW: usize = 16;
/// Acknowledged records at most that the server has not applied when it is killed.
const LAG_MAX: u64 = 6;
/// How long a partition may take to reach the model's state: stopped, or applied to the end.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// The pause between two looks at a partition.
const LOOK: Duration = Duration::from_millis(10);
/// Comparisons at most: each is repeated if records of a killed appender appeared in the topic meanwhile.
const STRAGGLERS_MAX: usize = 5;

/// Counts of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Kills of the server.
    pub servers: u64,
    /// Kills of the server after which its index was deleted.
    pub deleted: u64,
    /// Kills of the appender.
    pub appenders: u64,
    /// Records that a killed appender had in flight and that were sent again.
    pub again: u64,
    /// Records that a killed appender had in flight and that were not sent again.
    pub torn_off: u64,
    /// Records in the topic twice: the first append had succeeded, too.
    pub repeated: u64,
    /// Control records.
    pub gaps: u64,
    /// Records in the topic.
    pub records: u64,
}

impl ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.servers += other.servers;
        self.deleted += other.deleted;
        self.appenders += other.appenders;
        self.again += other.again;
        self.torn_off += other.torn_off;
        self.repeated += other.repeated;
        self.gaps += other.gaps;
        self.records += other.records;
    }
}

/// One append of the history.
#[derive(Clone, Debug)]
struct Send {
    delivery: Delivery,
    how: How,
    /// The record, as it was last sent.
    message: Message,
}

/// The key and the value of a message.
type Message = (Vec<u8>, Vec<u8>);

/// The appends of the history, in order. A lost append is left out: its writer was killed before it.
fn sends(history: &History) -> Vec<Send> {
    let (mut sends, mut gaps, mut commits) = (Vec::new(), BTreeSet::new(), false);
    for step in &history.steps {
        match step {
            Step::Gap { partition, .. } => drop(gaps.insert(*partition)),
            Step::Append { delivery, fault } if *fault != AppendFault::Lost => {
                let how = if gaps.remove(&delivery.partition) {
                    commits = !commits;
                    if commits { How::Committed } else { How::Aborted }
                } else {
                    How::Log
                };
                sends.push(Send { delivery: delivery.clone(), how, message: Message::default() });
            }
            _ => {}
        }
    }
    sends
}

struct Trial {
    random: Random,
    config: KafkaConfig,
    launch: Launch,
    server: Option<Server>,
    asker: Asker,
    appender: Option<Appender>,
    sends: Vec<Send>,
    /// The index into `sends` of each order, by order number.
    ordered: Vec<usize>,
    /// Numbers of orders that are not acknowledged.
    in_flight: VecDeque<usize>,
    /// Numbers of acknowledged orders, each with its offset.
    acknowledged: Vec<(usize, u64)>,
    /// The offset in the topic, by partition and offset of the history.
    places: HashMap<(u32, u64), u64>,
    /// The model's form of each record, by its message.
    known: HashMap<Message, What>,
    witness: Witness,
    /// The records of the topic, by partition and offset.
    stood: HashMap<(u32, u64), Message>,
    model: Model,
    /// The history of the topic's records.
    history: History,
    answers: u64,
    figures: Figures,
    _folder: tempfile::TempDir,
}

/// Runs a seed's history on `broker`. Compares the answers over HTTP at some positions and at the end. At the end the
/// indices must also equal a rebuild from the log.
pub fn kafka(seed: u64, broker: &Broker) -> Result<(Checked, Figures), Difference> {
    let at = |position: usize| Difference::after_event(seed, position);
    let mut trial = Trial::new(history(seed), broker).map_err(|error| at(0).failed(&error))?;
    let lived = trial.live();
    let position = trial.history.steps.len();
    let context = || {
        let mut context = describe_history(&trial.history);
        context.push(format!("the fold alone, over these: {}", describe_replay(&trial.history)));
        at(position).among(context)
    };
    match lived {
        Ok(Ok(())) => Ok((Checked { model: trial.model, answers: trial.answers }, trial.figures)),
        Ok(Err(found)) => Err(context().over(found)),
        Err(error) => {
            let complaints = trial.server.as_ref().map(Server::stderr).unwrap_or_default();
            Err(context().failed(&error.context(complaints)))
        }
    }
}

/// Says whether the fold in this process agrees with the model over the same records. If it does, the fault is in the
/// server or in its reader.
fn describe_replay(history: &History) -> String {
    let (mut model, mut product) = (model(history, None), pure::Product::new(history));
    let mut compared = || -> anyhow::Result<Result<u64, Found>> {
        for event in history.events() {
            let Event::Deliver(delivery) = event else { continue };
            let written = encoding::encode(&delivery)?;
            model.deliver(&written.model);
            product.deliver(written.log)?;
        }
        product.settle()?;
        Ok(compare(&model, &product.queries(), history))
    };
    match compared() {
        Ok(Ok(answers)) => format!("agrees in {answers} answers"),
        Ok(Err(Found { question, path, .. })) => format!("differs, too, in {question}{path}"),
        Err(error) => format!("failed: {error:#}"),
    }
}

impl Trial {
    fn new(generated: History, broker: &Broker) -> anyhow::Result<Self> {
        let (folder, config) = (tempfile::tempdir()?, broker.unique_topic());
        let partitions = generated.journal.partitions;
        ensure!(admin::create_topic(&config, partitions)?, "the topic is new");
        let sends = sends(&generated);
        let mut history = History { steps: Vec::new(), ..generated };
        history.journal.topic.clone_from(&config.topic);
        Ok(Self {
            random: Random::new(history.seed ^ 0x6b61_666b_6121),
            launch: Launch::kafka(folder.path(), &config),
            server: None,
            asker: Asker::new()?,
            appender: Some(Appender::start(&config)?),
            sends,
            ordered: Vec::new(),
            in_flight: VecDeque::new(),
            acknowledged: Vec::new(),
            places: HashMap::new(),
            known: HashMap::new(),
            witness: Witness::new(&config, partitions)?,
            stood: HashMap::new(),
            model: model(&history, None),
            history,
            answers: 0,
            figures: Figures::default(),
            config,
            _folder: folder,
        })
    }

    /// Appends everything, with kills and questions in between.
    fn live(&mut self) -> anyhow::Result<Result<(), Found>> {
        let genesis_records = self.history.journal.partitions as usize;
        let mut moments = |count: u64| -> BTreeSet<usize> {
            let (from, to) = (genesis_records as u64, self.sends.len() as u64);
            (0..count).filter_map(|_| usize::try_from(self.random.between(from, to)).ok()).collect()
        };
        let (appenders, servers, samples) = (moments(KILLS), moments(KILLS), moments(LOOKS - 2));
        for index in 0..self.sends.len() {
            self.send(index)?;
            if index + 1 == genesis_records {
                // A server would append a genesis record of its own to an empty partition.
                self.drain()?;
                self.server = Some(self.launch.start()?);
            }
            if appenders.contains(&index) {
                self.kill_appender()?;
            }
            if servers.contains(&index) {
                self.kill_server()?;
            }
            if samples.contains(&index)
                && let Err(found) = self.compare()?
            {
                return Ok(Err(found));
            }
        }
        if let Err(found) = self.compare()? {
            return Ok(Err(found));
        }
        self.check_acknowledged()?;
        let (status, verification) = self.server()?.post("/v1/verify", &Value::Null)?;
        ensure!(status == 200 && verification["equal"] == true, "the indices differ from the log: {verification}");
        Ok(Ok(()))
    }

    fn server(&self) -> anyhow::Result<&Server> {
        self.server.as_ref().context("a server")
    }

    /// Sends an append to the appender. Waits only while [`WINDOW`] appends are in flight.
    fn send(&mut self, index: usize) -> anyhow::Result<()> {
        let mut delivery = self.sends[index].delivery.clone();
        if let What::Record { record, version, datums, contents, claimant } = &delivery.what
            && record["payload"]["type"] == "skip"
        {
            // The record that it names may still be in flight.
            self.drain()?;
            let named = record["payload"]["offset"].as_u64().context("a skip names an offset")?;
            let mut record = Value::clone(record);
            record["payload"]["offset"] =
                json!(self.places.get(&(delivery.partition, named)).copied().unwrap_or(named));
            let (version, datums, contents) = (*version, datums.clone(), contents.clone());
            let claimant = claimant.clone();
            delivery.what = What::Record { record: record.into(), version, datums, contents, claimant };
        }
        let written = encoding::encode(&delivery)?;
        let runlog_log::Delivery { key, value, .. } = written.log;
        self.known.insert((key.clone(), value.clone()), written.model.what);
        let send = &mut self.sends[index];
        if value.len() > RECORD_BYTES_MAX && send.how == How::Log {
            send.how = How::Foreign;
        }
        send.message = (key, value);
        while self.in_flight.len() >= WINDOW {
            self.receive()?;
        }
        self.request_append(index)
    }

    fn request_append(&mut self, index: usize) -> anyhow::Result<()> {
        let (number, send) = (self.ordered.len(), &self.sends[index]);
        let (key, value) = &send.message;
        let (partition, how) = (send.delivery.partition, send.how);
        let claimant = match &send.delivery.what {
            What::Record { claimant, .. } => claimant.clone(),
            _ => None,
        };
        let order = Order { number, partition, how, key: hex(key), value: hex(value), claimant };
        self.ordered.push(index);
        self.in_flight.push_back(number);
        self.appender.as_mut().context("an appender")?.send(&order)
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let acknowledged = self.appender.as_ref().context("an appender")?.receive()?;
        self.note(acknowledged);
        Ok(())
    }

    fn note(&mut self, Acknowledged { number, offset }: Acknowledged) {
        self.in_flight.retain(|other| *other != number);
        self.acknowledged.push((number, offset));
        let delivery = &self.sends[self.ordered[number]].delivery;
        self.places.entry((delivery.partition, delivery.offset)).or_insert(offset);
    }

    /// Waits until everything is acknowledged.
    fn drain(&mut self) -> anyhow::Result<()> {
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    /// Kills the appender with records in flight, whose outcomes are unknown. Starts another appender and sends them again,
    /// sometimes without the first.
    fn kill_appender(&mut self) -> anyhow::Result<()> {
        // One acknowledgement shows that the appender has sent the orders.
        if !self.in_flight.is_empty() {
            self.receive()?;
        }
        let last_acks = self.appender.take().context("an appender")?.kill()?;
        last_acks.into_iter().for_each(|acknowledged| self.note(acknowledged));
        self.figures.appenders += 1;
        let mut left: VecDeque<usize> = self.in_flight.drain(..).map(|number| self.ordered[number]).collect();
        if !left.is_empty() && self.random.between(0, 4) == 0 {
            left.pop_front();
            self.figures.torn_off += 1;
        }
        self.appender = Some(Appender::start(&self.config)?);
        self.figures.again += left.len() as u64;
        left.into_iter().try_for_each(|index| self.request_append(index))
    }

    /// Kills the server when it has applied one of the last acknowledged records, and starts it again. Sometimes deletes its
    /// index, and then sometimes kills it again during the rebuild.
    fn kill_server(&mut self) -> anyhow::Result<()> {
        let lag = self.random.between(0, LAG_MAX);
        self.kill_server_at_lag(usize::try_from(lag)?)?;
        let delete = self.random.between(0, 3) == 0;
        if delete {
            self.figures.deleted += 1;
            fs::remove_dir_all(self.launch.dir().join("index"))?;
        }
        self.server = Some(self.launch.start()?);
        if delete && self.random.between(0, 2) == 0 {
            let lag = self.random.between(0, self.acknowledged.len() as u64);
            self.kill_server_at_lag(usize::try_from(lag)?)?;
            self.server = Some(self.launch.start()?);
        }
        Ok(())
    }

    fn kill_server_at_lag(&mut self, lag: usize) -> anyhow::Result<()> {
        let (number, offset) = self.acknowledged[self.acknowledged.len().saturating_sub(1 + lag)];
        let partition = self.sends[self.ordered[number]].delivery.partition;
        self.asker.stopped_before(self.server()?, partition, offset)?;
        self.server.take().context("a server")?.kill()?;
        self.figures.servers += 1;
        Ok(())
    }

    /// Delivers the new records of the topic to the model. Returns whether there were any.
    fn feed(&mut self) -> anyhow::Result<bool> {
        let new = self.witness.read()?;
        let any = !new.is_empty();
        for stood in new {
            let TopicRecord { partition, offset, millis, key, value } = stood;
            let message = (key, value);
            let what = self.known.get(&message).cloned();
            let what = what.with_context(|| format!("the record at {partition}:{offset} is unknown"))?;
            let delivery = Delivery { partition, offset, log_millis: millis, what };
            self.model.deliver(&delivery);
            self.history.steps.push(Step::Append { delivery, fault: AppendFault::None });
            self.stood.insert((partition, offset), message);
        }
        Ok(any)
    }

    /// Compares all answers while no append is in flight. Repeats the comparison if records of a killed appender appeared in
    /// the topic meanwhile.
    fn compare(&mut self) -> anyhow::Result<Result<u64, Found>> {
        self.drain()?;
        self.feed()?;
        for _ in 0..STRAGGLERS_MAX {
            let parts = self.settle()?;
            let product = Http::new(&self.asker, self.server()?, parts);
            let compared = compare(&self.model, &product, &self.history);
            if !self.feed()? {
                self.answers += *compared.as_ref().unwrap_or(&0);
                return Ok(compared);
            }
        }
        anyhow::bail!("the topic still gets records after {STRAGGLERS_MAX} comparisons")
    }

    /// Waits until the server has applied as much as the model. After [`SETTLE_WAIT`] the comparison reports the difference.
    fn settle(&self) -> anyhow::Result<Vec<Part>> {
        let (started, server) = (Instant::now(), self.server()?);
        let mut parts = Vec::new();
        for row in self.model.partitions()["partitions"].as_array().into_iter().flatten() {
            let partition = u32::try_from(row["partition"].as_u64().context("a partition")?)?;
            let here = self.stood.keys().filter(|(of, _)| *of == partition);
            let part = Part { last: here.map(|(_, offset)| *offset).max(), stopped: row["state"] == "stopped" };
            parts.push(part);
            let Some(last) = part.last else { continue };
            while started.elapsed() < SETTLE_WAIT {
                let stopped = self.asker.stopped_before(server, partition, last)?;
                let at = || -> anyhow::Result<bool> {
                    let prefix = format!("partition {partition} is stopped at offset {}:", row["stopped_at"]);
                    let (_, doctor) = self.asker.get(server, "/v1/doctor")?;
                    let findings = doctor["findings"].as_array().into_iter().flatten();
                    Ok(findings.filter_map(|finding| finding["what"].as_str()).any(|what| what.starts_with(&prefix)))
                };
                if stopped == part.stopped && (!stopped || at()?) {
                    break;
                }
                // The partition is stopped at a record that a later skip voids.
                thread::sleep(LOOK);
            }
        }
        Ok(parts)
    }

    /// Fails unless every acknowledged record is at its acknowledged offset. Also counts the records of the topic.
    fn check_acknowledged(&mut self) -> anyhow::Result<()> {
        for (number, offset) in &self.acknowledged {
            let send = &self.sends[self.ordered[*number]];
            let stood = self.stood.get(&(send.delivery.partition, *offset));
            ensure!(
                stood == Some(&send.message),
                "the record acknowledged at {}:{offset} is not in the topic",
                send.delivery.partition
            );
        }
        let figures = &mut self.figures;
        figures.records = self.stood.len() as u64;
        figures.repeated = figures.records.saturating_sub(self.acknowledged.len() as u64);
        let ends = (0..self.history.journal.partitions).filter_map(|partition| {
            self.stood.keys().filter(|(of, _)| *of == partition).map(|(_, offset)| offset + 1).max()
        });
        figures.gaps = ends.sum::<u64>().saturating_sub(figures.records);
        Ok(())
    }
}
