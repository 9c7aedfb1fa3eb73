//! The observer. It sees every record that lands, every effect that starts or ends, and the answer of each operation,
//! and reports violations.
//!
//! Its sources are the log's bytes, the harness's own effects, and the independent model (`tests/model`), which
//! judges each record as it lands. It sends no question to the product.
//!
//! `permissions` contains the requirements for the starts of effects, `effects` those for effects and their callers,
//! `decisions` those for decisions, `questions` those for answers, and `excuses` lists what is excused, with the reasons.
//!
//! ```text
//!   a call may run: once ── a further run needs an attempt, and that a `not_done` applied since the last start ── or a key
//! ```

use crate::{
    ambient,
    plan::{LETTER, Life, PUBLISHED, Plan, RUNS, What},
    stage::Counts,
};
use permissions::History;
use questions::Questions;
use records::{Claim, Landed};
use runlog_log::Entry;
use runlog_model::{Delivery, Journal, Model, What as Delivered};
use runlog_producer::Json;
use runlog_projector::index::claimant::claimant;
use runlog_schemas::{
    codec,
    id::{Offset, PartitionId},
    payload::{Payload, ToolCallRequested},
    record::JournalRecord,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

mod batches;
mod decisions;
mod effects;
mod excuses;
mod intrusions;
mod permissions;
mod questions;
mod records;
mod skips;

pub(crate) use decisions::{Decided, Phoned};
pub(crate) use effects::{Acknowledged, Started};
pub(crate) use questions::{Question, differs};

/// A run's id.
pub(crate) fn run_id(run: u32) -> String {
    if run == PUBLISHED { "published".to_owned() } else { format!("run-{run}") }
}

/// The harness's observations and requirements.
#[derive(Debug)]
pub(crate) struct Ledger {
    topic: String,
    model: Option<Model>,
    failures: Vec<String>,
    records: BTreeMap<(PartitionId, Offset), Landed>,
    /// Records that the model has not folded yet, because their partition stopped.
    waiting: Vec<(PartitionId, Offset)>,
    /// Acknowledged records that are not judged yet.
    unjudged: Vec<Acknowledged>,
    /// Requests and their results that were applied or are evidence.
    kept: BTreeSet<(String, String)>,
    questions: Questions,
    claims: BTreeMap<u32, Vec<Claim>>,
    /// The steps of each run that make equal calls, in order, by the first one.
    equal: BTreeMap<(u32, u32), Vec<u32>>,
    /// How many requests of equal calls were applied.
    request_counts: BTreeMap<(u32, u32), usize>,
    /// The run and the step of each request that was applied.
    requests: BTreeMap<String, (u32, u32)>,
    /// Requests of earlier processes that each life found unresolved, and that are still undecided.
    unresolved: BTreeMap<u32, BTreeSet<String>>,
    lives: BTreeMap<u32, Life>,
    calls: BTreeMap<(u32, u32), Logical>,
    /// Whether the judge checks attempts: servers write a schema version in which they name what permits them.
    checks_attempts: bool,
    /// The records and the starts of each request.
    histories: BTreeMap<String, History>,
    /// When clients of the protocol first sent a record in an epoch, milliseconds.
    sent: BTreeMap<(String, u64), u64>,
    /// The last record of each run's writer: the epoch, and when.
    written: BTreeMap<u32, (u64, u64)>,
    /// Partitions in which a record was skipped, until they run on.
    skipped: BTreeSet<PartitionId>,
    displaced: skips::Displaced,
    /// How often each excuse was used.
    excused: Counts,
    effects: Vec<Effect>,
    decisions: Vec<Decided>,
    /// When a server read from a deposed leader: the server, from, to.
    deposed: Vec<(u32, u64, Option<u64>)>,
    /// How often a server began or ceased to see a log end before its applied position.
    ends_moved: usize,
    /// Requests with a decided outcome.
    decided: BTreeSet<String>,
    /// Calls that processes are at work on: life, run and step.
    busy: BTreeSet<(u32, u32, u32)>,
}

/// The step whose arguments a request has.
fn step_of(request: &ToolCallRequested) -> Option<u32> {
    let like = request.arguments.as_ref().and_then(|args| args.to_value()["step"].as_u64());
    u32::try_from(like?).ok()
}

/// A call of an agent, across all processes and repetitions.
#[derive(Clone, Debug, Default)]
struct Logical {
    /// Results of its effects, and of decisions.
    results: Vec<String>,
    /// The result of its first effect.
    receipt: Option<String>,
    happened: bool,
}

/// One run of an effect.
#[derive(Clone, Debug)]
struct Effect {
    life: u32,
    run: u32,
    step: u32,
    request: String,
    attempt: u32,
    result: Option<String>,
    /// Its caller was informed that the result cannot be recorded.
    given_up: bool,
}

/// A record with an unknown schema.
pub(crate) const POISON: &[u8] = b"\xC3\x01unknown!datum";
/// Bytes that are no record.
pub(crate) const GARBAGE: &[u8] = b"no record";

fn text(json: &Option<Json>) -> String {
    json.as_ref().map_or_else(|| "none".to_owned(), |json| json.as_str().to_owned())
}

/// The text under which a failed effect is compared.
pub(crate) fn failure(kind: &str, message: &str) -> String {
    format!("{kind}: {message}")
}

impl Ledger {
    pub(crate) fn new(plan: &Plan, topic: &str) -> Self {
        let mut equal = BTreeMap::<_, Vec<u32>>::new();
        for step in (0..RUNS).chain([LETTER]).flat_map(|run| plan.steps(run)) {
            if let What::Call { like, .. } = step.what {
                equal.entry((step.run, like)).or_default().push(step.id);
            }
        }
        let lives = plan.lives().into_iter().map(|life| (life.id, life)).collect();
        Self {
            topic: topic.to_owned(),
            model: None,
            failures: Vec::new(),
            records: BTreeMap::new(),
            waiting: Vec::new(),
            unjudged: Vec::new(),
            kept: BTreeSet::new(),
            questions: Questions::default(),
            claims: BTreeMap::new(),
            equal,
            request_counts: BTreeMap::new(),
            requests: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            lives,
            calls: BTreeMap::new(),
            checks_attempts: plan.checks_starts(),
            histories: BTreeMap::new(),
            sent: BTreeMap::new(),
            written: BTreeMap::new(),
            skipped: BTreeSet::new(),
            displaced: skips::Displaced::default(),
            excused: Counts::new(),
            effects: Vec::new(),
            decisions: Vec::new(),
            deposed: Vec::new(),
            ends_moved: 0,
            decided: BTreeSet::new(),
            busy: BTreeSet::new(),
        }
    }

    /// The violations.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    pub(crate) fn fail(&mut self, what: String) {
        let now = ambient::elapsed_millis();
        self.failures.push(format!("{}.{:03}: {what}", now / 1000, now % 1000));
    }

    /// Counts the use of an excuse.
    fn excuse(&mut self, name: &'static str) {
        *self.excused.entry(name).or_default() += 1;
    }

    /// How often each excuse was used.
    pub(crate) fn excused(&self) -> &Counts {
        &self.excused
    }

    /// A server starts or stops reading from a deposed leader.
    pub(crate) fn deposed(&mut self, server: u32, begins: bool) {
        let now = ambient::elapsed_millis();
        if begins {
            self.deposed.push((server, now, None));
        }
        let open = self.deposed.iter_mut().filter(|window| window.0 == server && window.2.is_none());
        open.filter(|_| !begins).for_each(|window| window.2 = Some(now));
    }

    /// A server starts or stops seeing a log end before its applied position.
    pub(crate) fn ends_moved(&mut self) {
        self.ends_moved += 1;
    }

    /// A record is in the log. Returns its description and the records judged along with it.
    pub(crate) fn landed(&mut self, partition: PartitionId, offset: Offset, millis: i64, entry: &Entry) -> String {
        let value = &entry.value[..];
        let what = match value {
            POISON => Delivered::UnknownSchema { what: "unknown_schema".to_owned() },
            GARBAGE => Delivered::Unreadable {
                reason: "not_framed".to_owned(),
                sha256: String::new(),
                bytes: value.len() as u64,
            },
            _ => match codec::unframe(value)
                .map(|datum| codec::decode(datum).map(|record| (record, datum.version.number)))
            {
                Ok(Ok((record, version))) => self.readable((partition, offset), record, version, entry),
                other => {
                    self.fail(format!("the record at {partition}:{offset} cannot be read: {other:?}"));
                    return "unreadable".to_owned();
                }
            },
        };
        let unreadable = match &what {
            Delivered::Record { .. } => None,
            other => Some(format!("{other:?}")),
        };
        if let Some(model) = &mut self.model {
            model.deliver(&Delivery { partition: partition.get(), offset: offset.get(), log_millis: millis, what });
        }
        let judged = self.fold();
        self.moves();
        let lines = unreadable.into_iter().chain(judged);
        lines.collect::<Vec<_>>().join("; then ")
    }

    /// Keeps a record until the model judges it.
    fn readable(&mut self, at: (PartitionId, Offset), record: JournalRecord, version: u16, entry: &Entry) -> Delivered {
        if let Payload::Genesis(genesis) = &record.payload
            && self.model.is_none()
        {
            let journal = Journal {
                topic: self.topic.clone(),
                journal_id: genesis.journal_id.clone(),
                partitions: genesis.partitions,
            };
            self.model = Some(Model::new(journal));
        }
        let mut json = serde_json::to_value(&record).unwrap_or_default();
        if let Some(secret) = record.body.facts.shown {
            // The JSON of a record leaves it out.
            json["facts"]["shown"] = secret.reveal().into();
        }
        let contents = batches::members(&record).iter().map(|record| record.content_hash().to_string()).collect();
        let claimant = claimant(&entry.headers).map(str::to_owned);
        self.waiting.push(at);
        self.records.insert(at, Landed::new(record));
        Delivered::Record { record: Arc::new(json), version, datums: Vec::new(), contents, claimant }
    }

    /// Notes the records that the model has judged since, and returns a line for each.
    fn fold(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (partition, offset) in std::mem::take(&mut self.waiting) {
            let at = (partition, offset);
            let Some(record) = self.records.get(&at).map(|landed| landed.record.clone()) else { continue };
            let of_run = record.body.run_id.borrow().is_some();
            let outcome_row = match &self.model {
                Some(model) => model.outcome(partition.get(), offset.get(), 0, record.body.record_id.as_str()),
                None => Value::Null,
            };
            let text = |name: &str| outcome_row[name].as_str().map(str::to_owned);
            let (outcome, reason) = (text("outcome"), text("reason"));
            if outcome.is_none() && of_run {
                lines.push(format!("{partition}:{offset} {} waits", record.body.record_id));
                self.waiting.push(at);
                continue;
            }
            let outcome = outcome.unwrap_or_else(|| "none".to_owned());
            lines.push(self.judged(at, &record, outcome, reason));
        }
        let stopped = self.stopped();
        let runs = |partition: &PartitionId| !stopped.iter().any(|(at, _)| *at == u64::from(partition.get()));
        for partition in self.skipped.clone() {
            self.rejudge(partition);
            if runs(&partition) {
                self.skipped.remove(&partition);
            }
        }
        self.check_acknowledged();
        lines
    }

    fn judged(
        &mut self,
        at: (PartitionId, Offset),
        record: &JournalRecord,
        outcome: String,
        reason: Option<String>,
    ) -> String {
        let run = Self::runs().find(|run| record.body.run_id.as_str() == run_id(*run));
        let applied = outcome == "applied";
        let is_evidence = outcome == "refused" && skips::makes_evidence(reason.as_deref());
        let facts = &record.body.facts;
        let line = format!(
            "{}:{} {} {} {} by {} epoch {} seq {}/{}: {outcome} {}",
            at.0,
            at.1,
            record.body.run_id,
            facts.payload_type,
            record.body.record_id,
            record.place.writer_id,
            record.place.writer_epoch,
            record.place.writer_seq,
            record.place.journal_seq,
            reason.as_deref().unwrap_or_default(),
        );
        let landed = self.records.get_mut(&at);
        let appended = landed.map_or(0, |landed| {
            (landed.outcome, landed.reason) = (outcome, reason);
            landed.appended
        });
        if let Payload::Skip(_) = &record.payload {
            self.skipped.insert(at.0);
        }
        if let Some(run) = run {
            if applied && !record.body.record_kind.unclaimed() {
                self.written.insert(run, (record.place.writer_epoch.get(), appended));
            }
            if applied {
                self.check_intrusion(at, record);
            }
            for (record, applied) in self.judged_members(at, record, applied) {
                self.took_place(run, at, &record, applied);
                self.note(at, &record, (applied, is_evidence));
            }
        }
        self.keeps(at);
        line
    }

    fn took_place(
        &mut self,
        run: u32,
        (partition, offset): (PartitionId, Offset),
        record: &JournalRecord,
        applied: bool,
    ) {
        match &record.payload {
            Payload::RunClaim(claim) if applied => {
                let claims = self.claims.entry(run).or_default();
                let claim = Claim::new(claim, offset);
                let life = claim.life;
                claims.push(claim);
                if let Some(life) = life {
                    self.enters(run, life);
                    self.note_unresolved(run, life);
                }
            }
            Payload::ToolCallRequested(request) if applied => {
                let Some(like) = step_of(request) else { return };
                // An agent makes equal calls one after the other, each until it is answered: each is one request.
                let requests = self.request_counts.entry((run, like)).or_default();
                let nth = *requests;
                *requests += 1;
                let id = record.body.record_id.as_str();
                match self.equal.get(&(run, like)).and_then(|steps| steps.get(nth)).copied() {
                    Some(step) => drop(self.requests.insert(id.to_owned(), (run, step))),
                    // An effect of it must not run: see `Ledger::starts`.
                    None if self.is_displaced(run) => drop(self.requests.insert(id.to_owned(), (run, like))),
                    None => self.fail(format!(
                        "a call of run {run} was forgotten: request {id} asks again for what step {like} asks for"
                    )),
                }
            }
            Payload::ToolCallRequested(_) if !applied => self.knows_displaced(record),
            Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) if applied => {
                if let Some(id) = &record.body.facts.answers {
                    self.close_call(id.as_str());
                }
            }
            Payload::EffectResolution(resolution) if applied => {
                self.close_call(resolution.request_record_id.as_str());
                let facts = &record.body.facts;
                if facts.revision.is_none() && facts.epoch.is_none() {
                    self.fail(format!("the decision at {partition}:{offset} has no basis"));
                }
                self.check_decision((partition, offset), resolution);
                self.results_of_decision(resolution);
            }
            _ => {}
        }
    }

    /// Notes the calls that are unresolved at a life's first claim. The life may be at work on calls that become
    /// unresolved later.
    fn note_unresolved(&mut self, run: u32, life: u32) {
        if self.unresolved.contains_key(&life) {
            return;
        }
        let recovery = self.recovery(run);
        let pending = recovery["pending"].as_array().into_iter().flatten();
        let unresolved = pending.filter(|call| call["class"] == "reconcile_required");
        let ids = unresolved.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect();
        self.unresolved.insert(life, ids);
    }

    /// A call was decided, or it ended.
    fn close_call(&mut self, request: &str) {
        for found in self.unresolved.values_mut() {
            found.remove(request);
        }
    }

    /// A life has opened its run at this checkpoint.
    pub(crate) fn resumes(&mut self, run: u32, life: u32, checkpoint: Option<&str>) {
        self.opens(run, life);
        let last = self.model.as_ref().map(|model| model.checkpoint(&run_id(run), None)).unwrap_or_default();
        let last = last["checkpoint_id"].as_str();
        // Otherwise another process may have written one since, or a skip may have taken it away.
        let has_run = matches!(self.lost_to(run, life), Ok(None));
        if has_run && checkpoint != last && !self.is_excused(run, life) {
            self.fail(format!(
                "life {life} resumes run {run} at checkpoint {checkpoint:?}, and the last one is {last:?}"
            ));
        }
    }

    /// A client without a handle got the answer that it has the run.
    pub(crate) fn claim_confirmed(&mut self, run: u32, writer: &str, epoch: u64) {
        let claims = self.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        let is_applied = claims.iter().any(|claim| (claim.epoch, claim.writer.as_str()) == (epoch, writer));
        if !is_applied && !self.had_claim(run, writer, epoch) {
            self.fail(format!(
                "writer {writer} got an answer that it has run {run} in epoch {epoch}, and its claim was refused"
            ));
        }
    }

    /// How many records are in the log.
    pub(crate) fn landed_records(&self) -> usize {
        self.records.len()
    }

    /// The model's recovery of a run now, for [`differs`].
    pub(crate) fn recovery(&self, run: u32) -> Value {
        self.model.as_ref().map_or(Value::Null, |model| model.recover(&run_id(run)))
    }
}
