//! A real server on a real topic over a seed's history: a process appends it in its order, and both are killed with
//! `kill -9` at moments that the seed names, by what was acknowledged and applied and never by a clock.
//!
//! ```text
//!   history ─▶ appender process ─▶ topic ─┬─▶ runlog serve ─▶ HTTP ══ question by question ══╗
//!                 └ killed: its appends   │     └ killed, its index perhaps deleted          ║
//!                   in flight are resent  └─▶ witness ─▶ Model ─▶ answers ═══════════════════╝
//! ```
//!
//! A killed appender leaves open what landed, so the model reads what the topic came to hold, by a client of its own. A
//! gap of the history is a transaction here, whose control record has an offset; what only a log in memory can do (hold
//! records back, move its start, lose what it took) does not happen. Where a skip names an offset of the history, it
//! names the one that the record got.

use super::{
    Checked, LOOKS,
    appender::{Acknowledged, Appender, How, Order},
    compare, describe_history,
    difference::{Difference, Found},
    encoding::{self, history},
    http::{Asker, Http, Part},
    model, pure,
    witness::Witness,
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

/// Kills of each process in a seed; an index that was deleted may cost the server one more.
const KILLS: u64 = 2;
/// Appends that are under way at once.
const WINDOW: usize = 16;
/// How far the server may be behind what is acknowledged when it is killed, records.
const BEHIND: u64 = 6;
/// How long a partition may take to stand still where it has to, or to go on, and how often that is looked at.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// How often it is compared anew because something landed meanwhile that a killed appender had on its way.
const STRAGGLERS_MAX: usize = 5;

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Kills of the server.
    pub servers: u64,
    /// Of those, with its index deleted.
    pub deleted: u64,
    /// Kills of the appender.
    pub appenders: u64,
    /// Records that a killed appender had on its way, and that were told again.
    pub again: u64,
    /// Records that it had on its way and that nobody told again.
    pub torn_off: u64,
    /// Of what was told again, what had landed the first time, too.
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
    /// As it was told last.
    value: Vec<u8>,
}

/// What is appended, in its order. A lost append is one that its writer was killed before.
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
                sends.push(Send { delivery: delivery.clone(), how, value: Vec::new() });
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
    /// By the number of an order, which of `sends` it was.
    told: Vec<usize>,
    /// Numbers of orders that are not acknowledged.
    under_way: VecDeque<usize>,
    /// Orders that were acknowledged, and where.
    acknowledged: Vec<(usize, u64)>,
    /// By partition and offset of the history, the offset in the topic.
    places: HashMap<(u32, u64), u64>,
    /// What bytes mean.
    known: HashMap<Vec<u8>, What>,
    witness: Witness,
    /// What stands in the topic, by partition and offset.
    stood: HashMap<(u32, u64), Vec<u8>>,
    model: Model,
    /// Of what stands in the topic.
    history: History,
    answers: u64,
    figures: Figures,
    _folder: tempfile::TempDir,
}

/// Runs a seed's history on `broker`, and compares what is answered over HTTP at some positions and at the end, where the
/// indices have to be what the log says.
pub fn kafka(seed: u64, broker: &Broker) -> Result<(Checked, Figures), Difference> {
    let at = |position: usize| Difference::at(seed, position);
    let mut trial = Trial::new(history(seed), broker).map_err(|error| at(0).failed(&error))?;
    let lived = trial.live();
    let position = trial.history.steps.len();
    let told = || {
        let mut told = describe_history(&trial.history);
        told.push(format!("the fold alone, over these: {}", replayed(&trial.history)));
        at(position).among(told)
    };
    match lived {
        Ok(Ok(())) => Ok((Checked { model: trial.model, answers: trial.answers }, trial.figures)),
        Ok(Err(found)) => Err(told().over(found)),
        Err(error) => {
            let complaints = trial.server.as_ref().map(Server::stderr).unwrap_or_default();
            Err(told().failed(&error.context(complaints)))
        }
    }
}

/// Whether the fold in this process agrees with the model over the same records: where it does, the server or its way to
/// the records is at fault.
fn replayed(history: &History) -> String {
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
            told: Vec::new(),
            under_way: VecDeque::new(),
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
        let begun = self.history.journal.partitions as usize;
        let mut moments = |count: u64| -> BTreeSet<usize> {
            let (from, to) = (begun as u64, self.sends.len() as u64);
            (0..count).filter_map(|_| usize::try_from(self.random.between(from, to)).ok()).collect()
        };
        let (appenders, servers, samples) = (moments(KILLS), moments(KILLS), moments(LOOKS - 2));
        for index in 0..self.sends.len() {
            self.send(index)?;
            if index + 1 == begun {
                // A server that found a partition empty would begin it itself.
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
        self.nothing_acknowledged_is_lost()?;
        let (status, verification) = self.server()?.post("/v1/verify", &Value::Null)?;
        ensure!(status == 200 && verification["equal"] == true, "not what the log says: {verification}");
        Ok(Ok(()))
    }

    fn server(&self) -> anyhow::Result<&Server> {
        self.server.as_ref().context("a server")
    }

    /// Tells the appender, and waits for nothing but room.
    fn send(&mut self, index: usize) -> anyhow::Result<()> {
        let mut delivery = self.sends[index].delivery.clone();
        if let What::Record { record, version, datums, contents } = &delivery.what
            && record["payload"]["type"] == "skip"
        {
            // What it names may be on its way.
            self.drain()?;
            let named = record["payload"]["offset"].as_u64().context("a skip names an offset")?;
            let mut record = Value::clone(record);
            record["payload"]["offset"] =
                json!(self.places.get(&(delivery.partition, named)).copied().unwrap_or(named));
            let (datums, contents) = (datums.clone(), contents.clone());
            delivery.what = What::Record { record: record.into(), version: *version, datums, contents };
        }
        let written = encoding::encode(&delivery)?;
        self.known.insert(written.log.value.clone(), written.model.what);
        let send = &mut self.sends[index];
        if written.log.value.len() > RECORD_BYTES_MAX && send.how == How::Log {
            send.how = How::Foreign;
        }
        send.value = written.log.value;
        while self.under_way.len() >= WINDOW {
            self.receive()?;
        }
        self.request_append(index)
    }

    fn request_append(&mut self, index: usize) -> anyhow::Result<()> {
        let (number, send) = (self.told.len(), &self.sends[index]);
        let order = Order { number, partition: send.delivery.partition, how: send.how, value: hex(&send.value) };
        self.told.push(index);
        self.under_way.push_back(number);
        self.appender.as_mut().context("an appender")?.send(&order)
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let acknowledged = self.appender.as_ref().context("an appender")?.receive()?;
        self.note(acknowledged);
        Ok(())
    }

    fn note(&mut self, Acknowledged { number, offset }: Acknowledged) {
        self.under_way.retain(|other| *other != number);
        self.acknowledged.push((number, offset));
        let delivery = &self.sends[self.told[number]].delivery;
        self.places.entry((delivery.partition, delivery.offset)).or_insert(offset);
    }

    /// Waits until everything is acknowledged.
    fn drain(&mut self) -> anyhow::Result<()> {
        while !self.under_way.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    /// Kills the appender with records on their way, of which nobody knows what became, and starts another one that is told
    /// them again. Sometimes nobody tells the first of them again.
    fn kill_appender(&mut self) -> anyhow::Result<()> {
        // Something is acknowledged, so that the rest is on its way.
        if !self.under_way.is_empty() {
            self.receive()?;
        }
        let said = self.appender.take().context("an appender")?.kill()?;
        said.into_iter().for_each(|acknowledged| self.note(acknowledged));
        self.figures.appenders += 1;
        let mut left: VecDeque<usize> = self.under_way.drain(..).map(|number| self.told[number]).collect();
        if !left.is_empty() && self.random.between(0, 4) == 0 {
            left.pop_front();
            self.figures.torn_off += 1;
        }
        self.appender = Some(Appender::start(&self.config)?);
        self.figures.again += left.len() as u64;
        left.into_iter().try_for_each(|index| self.request_append(index))
    }

    /// Kills the server when it has applied something that was acknowledged lately, and starts it again; sometimes without
    /// its index, and then perhaps kills it again while it builds that.
    fn kill_server(&mut self) -> anyhow::Result<()> {
        let behind = self.random.between(0, BEHIND);
        self.kill_server_behind(usize::try_from(behind)?)?;
        let delete = self.random.between(0, 3) == 0;
        if delete {
            self.figures.deleted += 1;
            fs::remove_dir_all(self.launch.dir().join("index"))?;
        }
        self.server = Some(self.launch.start()?);
        if delete && self.random.between(0, 2) == 0 {
            let behind = self.random.between(0, self.acknowledged.len() as u64);
            self.kill_server_behind(usize::try_from(behind)?)?;
            self.server = Some(self.launch.start()?);
        }
        Ok(())
    }

    fn kill_server_behind(&mut self, behind: usize) -> anyhow::Result<()> {
        let (number, offset) = self.acknowledged[self.acknowledged.len().saturating_sub(1 + behind)];
        let partition = self.sends[self.told[number]].delivery.partition;
        self.asker.stopped_before(self.server()?, partition, offset)?;
        self.server.take().context("a server")?.kill()?;
        self.figures.servers += 1;
        Ok(())
    }

    /// Gives the model what came to stand in the topic. Whether anything did.
    fn feed(&mut self) -> anyhow::Result<bool> {
        let new = self.witness.read()?;
        for stood in &new {
            let what = self.known.get(&stood.value).cloned();
            let what =
                what.with_context(|| format!("nobody appended what stands at {}:{}", stood.partition, stood.offset))?;
            let (partition, offset) = (stood.partition, stood.offset);
            let delivery = Delivery { partition, offset, log_millis: stood.millis, what };
            self.model.deliver(&delivery);
            self.history.steps.push(Step::Append { delivery, fault: AppendFault::None });
            self.stood.insert((partition, offset), stood.value.clone());
        }
        Ok(!new.is_empty())
    }

    /// Asks everything while nothing is appended. What a killed appender had on its way may land while it is asked; then
    /// it is asked again.
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
        anyhow::bail!("the topic does not come to rest")
    }

    /// Waits until the server is as far as the model. Where it does not come to that, the comparison says so.
    fn settle(&self) -> anyhow::Result<Vec<Part>> {
        let (begun, server) = (Instant::now(), self.server()?);
        let mut parts = Vec::new();
        for row in self.model.partitions()["partitions"].as_array().into_iter().flatten() {
            let partition = u32::try_from(row["partition"].as_u64().context("a partition")?)?;
            let here = self.stood.keys().filter(|(of, _)| *of == partition);
            let part = Part { last: here.map(|(_, offset)| *offset).max(), stopped: row["state"] == "stopped" };
            parts.push(part);
            let Some(last) = part.last else { continue };
            while begun.elapsed() < SETTLE_WAIT {
                let stopped = self.asker.stopped_before(server, partition, last)?;
                let at = || -> anyhow::Result<bool> {
                    let told = format!("partition {partition} is stopped at offset {}:", row["stopped_at"]);
                    let (_, doctor) = self.asker.get(server, "/v1/doctor")?;
                    let findings = doctor["findings"].as_array().into_iter().flatten();
                    Ok(findings.filter_map(|finding| finding["what"].as_str()).any(|what| what.starts_with(&told)))
                };
                if stopped == part.stopped && (!stopped || at()?) {
                    break;
                }
                // It stands at a record that a skip behind it voids.
                thread::sleep(LOOK);
            }
        }
        Ok(parts)
    }

    /// Every acknowledged record stands where its appender was told. Counts what there is, too.
    fn nothing_acknowledged_is_lost(&mut self) -> anyhow::Result<()> {
        for (number, offset) in &self.acknowledged {
            let send = &self.sends[self.told[*number]];
            let stood = self.stood.get(&(send.delivery.partition, *offset));
            ensure!(
                stood == Some(&send.value),
                "{}:{offset} was acknowledged and is not there",
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
