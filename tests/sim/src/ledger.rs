//! The observer. It sees every record that lands and every effect that starts or ends, is told what each operation answered, and
//! says what must not be so.
//!
//! Its sources are the log's bytes, the harness's own effects, and the independent model (`tests/model`), which judges each
//! record as it lands. It asks the product nothing.
//!
//! ```text
//!   a call may run: once ── a further run needs a `not_done` of an operator, applied since ── or a key
//! ```

use crate::{
    ambient,
    life::READ_BACK,
    plan::{Plan, RUNS, What},
};
use runlog_model::{Delivery, Journal, Model, What as Delivered};
use runlog_producer::{Answer, Error, Json, SideEffect};
use runlog_schemas::{
    answer::Position,
    codec,
    id::{Offset, PartitionId},
    payload::Payload,
    record::JournalRecord,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A run's id.
pub(crate) fn run_id(run: u32) -> String {
    format!("run-{run}")
}

/// What the harness observes and requires.
#[derive(Debug)]
pub(crate) struct Ledger {
    topic: String,
    model: Option<Model>,
    failures: Vec<String>,
    records: BTreeMap<(PartitionId, Offset), Landed>,
    claims: BTreeMap<u32, Vec<Claim>>,
    /// The steps of each run that make equal calls, in order, by the first one.
    equal: BTreeMap<(u32, u32), Vec<u32>>,
    /// How many requests of equal calls were applied.
    asked: BTreeMap<(u32, u32), usize>,
    /// The run and the step of each request that was applied.
    requests: BTreeMap<String, (u32, u32)>,
    /// Requests of earlier processes that each life found unresolved, and that nobody decided since.
    unresolved: BTreeMap<u32, BTreeSet<String>>,
    /// The last checkpoint of each run that was applied.
    checkpoints: BTreeMap<u32, String>,
    /// Lives that run new effects all the same.
    allowed: BTreeSet<u32>,
    calls: BTreeMap<(u32, u32), Logical>,
    effects: Vec<Effect>,
    decisions: Vec<Decided>,
    /// When a server read from a deposed leader: the server, from, to.
    deposed: Vec<(u32, u64, Option<u64>)>,
    ended: BTreeMap<u32, u64>,
    /// Calls that processes are at work on: life, run and step.
    busy: BTreeSet<(u32, u32, u32)>,
}

/// A record in the log.
#[derive(Clone, Debug)]
struct Landed {
    record: JournalRecord,
    /// As the model says.
    outcome: String,
    reason: Option<String>,
}

/// A claim that won.
#[derive(Clone, Debug)]
struct Claim {
    life: Option<u32>,
    writer: String,
    epoch: u64,
    at: u64,
    offset: Offset,
}

/// A call of an agent, whichever process makes it, however often.
#[derive(Clone, Debug, Default)]
struct Logical {
    /// Whether it may run now: false once it did, until a decision.
    spent: bool,
    /// Results of its effects, and of decisions.
    results: Vec<String>,
    happened: bool,
}

/// An effect that starts.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) life: u32,
    pub(crate) run: u32,
    pub(crate) step: u32,
    /// Whether its receiver recognises it.
    pub(crate) keyed: bool,
    /// The id of its request.
    pub(crate) request: String,
}

/// One run of an effect.
#[derive(Clone, Debug)]
struct Effect {
    life: u32,
    run: u32,
    step: u32,
    request: String,
    result: Option<String>,
}

/// What an operator is about to decide.
#[derive(Clone, Debug)]
struct Decided {
    request: String,
    /// The log's end when its author's question was answered.
    seen: Offset,
    result: Option<String>,
}

fn text(json: &Option<Json>) -> String {
    json.as_ref().map_or_else(|| "none".to_owned(), |json| json.as_str().to_owned())
}

/// What an answer about a run lacks of what was so when it was asked for: an ended call, or the epoch.
pub(crate) fn lacks(answer: &Value, then: &Value) -> Option<String> {
    let ended = |of: &Value| -> BTreeSet<u64> {
        let calls = of["completed"].as_array().into_iter().flatten();
        calls.filter_map(|call| call["position"]["offset"].as_u64()).collect()
    };
    let (known, wanted) = (ended(answer), ended(then));
    let call = wanted.difference(&known).next().map(|offset| format!("the call that ended at offset {offset}"));
    let epoch = then["epoch"].as_u64().filter(|epoch| answer["epoch"].as_u64() < Some(*epoch));
    call.or(epoch.map(|epoch| format!("the claim of epoch {epoch}")))
}

/// In what a server's answer about a run differs from the model's.
pub(crate) fn differs(answer: &Value, model: &Value) -> Option<String> {
    let pending = |of: &Value| -> Vec<Value> {
        let calls = of["pending"].as_array().into_iter().flatten();
        calls.map(|call| json!([call["id"], call["class"], call["revision"]])).collect()
    };
    let scalar = ["status", "epoch", "writer_id", "next_journal_seq", "next_writer_seq"];
    let scalar = scalar.into_iter().find(|name| answer[name] != model[name]);
    let found = scalar.map(|name| format!("{name} is {} and not {}", answer[name], model[name]));
    let found = found.or_else(|| {
        let (told, wanted) = (pending(answer), pending(model));
        (told != wanted).then(|| format!("pending is {told:?} and not {wanted:?}"))
    });
    found.or_else(|| lacks(answer, model)).or_else(|| lacks(model, answer))
}

/// The text under which a failed effect is compared.
pub(crate) fn failure(kind: &str, message: &str) -> String {
    format!("{kind}: {message}")
}

impl Ledger {
    pub(crate) fn new(plan: &Plan, topic: &str) -> Self {
        let mut equal = BTreeMap::<_, Vec<u32>>::new();
        for step in (0..RUNS).flat_map(|run| plan.steps(run)) {
            if let What::Call { like, .. } = step.what {
                equal.entry((step.run, like)).or_default().push(step.id);
            }
        }
        let allowed = plan.lives().into_iter().filter(|life| life.allow_unresolved).map(|life| life.id).collect();
        Self {
            topic: topic.to_owned(),
            model: None,
            failures: Vec::new(),
            records: BTreeMap::new(),
            claims: BTreeMap::new(),
            equal,
            asked: BTreeMap::new(),
            requests: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            allowed,
            calls: BTreeMap::new(),
            effects: Vec::new(),
            decisions: Vec::new(),
            deposed: Vec::new(),
            ended: BTreeMap::new(),
            busy: BTreeSet::new(),
        }
    }

    /// What must not be so.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    pub(crate) fn fail(&mut self, what: String) {
        let now = ambient::elapsed_millis();
        self.failures.push(format!("{}.{:03}: {what}", now / 1000, now % 1000));
    }

    /// A server reads from a deposed leader from now on, or no longer.
    pub(crate) fn deposed(&mut self, server: u32, begins: bool) {
        let now = ambient::elapsed_millis();
        if begins {
            self.deposed.push((server, now, None));
        }
        let open = self.deposed.iter_mut().filter(|window| window.0 == server && window.2.is_none());
        open.filter(|_| !begins).for_each(|window| window.2 = Some(now));
    }

    /// A record is in the log. Says what it is.
    pub(crate) fn landed(&mut self, partition: PartitionId, offset: Offset, millis: i64, value: &[u8]) -> String {
        let read = codec::unframe(value).map(|datum| codec::decode(datum).map(|record| (record, datum.version.number)));
        let (record, version) = match read {
            Ok(Ok(read)) => read,
            other => {
                self.fail(format!("the record at {partition}:{offset} cannot be read: {other:?}"));
                return "unreadable".to_owned();
            }
        };
        let (outcome, reason) = self.judge(partition, offset, millis, (&record, version));
        let run = (0..RUNS).find(|run| record.body.run_id.as_str() == run_id(*run));
        let applied = outcome == "applied";
        if let Some(run) = run {
            self.took_place(run, partition, offset, &record, applied);
        }
        let facts = &record.body.facts;
        let told = format!(
            "{} {} {} by {} epoch {} seq {}/{}: {outcome} {}",
            record.body.run_id,
            facts.payload_type,
            record.body.record_id,
            record.place.writer_id,
            record.place.writer_epoch,
            record.place.writer_seq,
            record.place.journal_seq,
            reason.as_deref().unwrap_or_default(),
        );
        self.records.insert((partition, offset), Landed { record, outcome, reason });
        told
    }

    fn judge(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        millis: i64,
        (record, version): (&JournalRecord, u16),
    ) -> (String, Option<String>) {
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
        let Some(model) = &mut self.model else { return ("unknown".to_owned(), None) };
        let json = serde_json::to_value(record).unwrap_or_default();
        let what = Delivered::Record { record: Arc::new(json), version, datums: Vec::new() };
        model.deliver(&Delivery { partition: partition.get(), offset: offset.get(), log_millis: millis, what });
        let told = model.outcome(partition.get(), offset.get(), 0, record.body.record_id.as_str());
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        (text("outcome").unwrap_or_else(|| "none".to_owned()), text("reason"))
    }

    fn took_place(&mut self, run: u32, partition: PartitionId, offset: Offset, record: &JournalRecord, applied: bool) {
        let now = ambient::elapsed_millis();
        match &record.payload {
            Payload::RunClaim(claim) => {
                let claims = self.claims.entry(run).or_default();
                let next = claims.last().map_or(1, |last| last.epoch + 1);
                let won = claim.epoch.get() == next;
                if won {
                    let life = claim.claimed_by.strip_prefix("life-").and_then(|life| life.parse().ok());
                    let writer = claim.writer_id.as_str().to_owned();
                    claims.push(Claim { life, writer, epoch: next, at: now, offset });
                    if let Some(life) = life {
                        self.found(run, life);
                    }
                }
            }
            Payload::ToolCallRequested(request) if applied => {
                let like = request.arguments.as_ref().and_then(|args| args.to_value()["step"].as_u64());
                let Some(like) = like.and_then(|like| u32::try_from(like).ok()) else { return };
                // An agent makes equal calls one after the other, each until it is answered: each is one request.
                let asked = self.asked.entry((run, like)).or_default();
                let nth = *asked;
                *asked += 1;
                let id = record.body.record_id.as_str();
                match self.equal.get(&(run, like)).and_then(|steps| steps.get(nth)).copied() {
                    Some(step) => drop(self.requests.insert(id.to_owned(), (run, step))),
                    None => self.fail(format!(
                        "a call of run {run} was forgotten: request {id} asks again for what step {like} asks for"
                    )),
                }
            }
            Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) if applied => {
                if let Some(id) = &record.body.facts.answers {
                    self.resolved(id.as_str());
                }
            }
            Payload::EffectResolution(resolution) if applied => {
                self.resolved(resolution.request_record_id.as_str());
                let number = resolution.who.strip_prefix("operator-").and_then(|number| number.parse::<usize>().ok());
                let Some(decided) = number.and_then(|number| self.decisions.get(number)).cloned() else { return };
                let logical = self.requests.get(&decided.request).copied();
                if resolution.decision == "not_done" {
                    self.check_current(partition, offset, &decided);
                    if let Some(logical) = logical {
                        self.calls.entry(logical).or_default().spent = false;
                    }
                }
                if let Some((logical, result)) = logical.zip(decided.result) {
                    self.calls.entry(logical).or_default().results.push(result);
                }
            }
            Payload::LoopCheckpoint(checkpoint) if applied => {
                self.checkpoints.insert(run, checkpoint.checkpoint_id.clone());
            }
            Payload::RunLifecycle(lifecycle) if applied && lifecycle.status != "started" => {
                self.ended.entry(run).or_insert(now);
            }
            _ => {}
        }
    }

    /// What a life finds unresolved with its first claim. What it leaves unresolved itself it may be at work on.
    fn found(&mut self, run: u32, life: u32) {
        if self.unresolved.contains_key(&life) {
            return;
        }
        let recovery = self.recovery(run);
        let pending = recovery["pending"].as_array().into_iter().flatten();
        let unresolved = pending.filter(|call| call["class"] == "reconcile_required");
        let ids = unresolved.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect();
        self.unresolved.insert(life, ids);
    }

    /// Somebody decided about a call, or it ended.
    fn resolved(&mut self, request: &str) {
        for found in self.unresolved.values_mut() {
            found.remove(request);
        }
    }

    /// A life has opened its run at this checkpoint.
    pub(crate) fn resumes(&mut self, run: u32, life: u32, checkpoint: Option<&str>) {
        let last = self.checkpoints.get(&run).cloned();
        // Otherwise another process may have written one since.
        if matches!(self.lost_to(run, life), Ok(None)) && checkpoint != last.as_deref() {
            self.fail(format!(
                "life {life} resumes run {run} at checkpoint {checkpoint:?}, and the last one is {last:?}"
            ));
        }
    }

    /// A client without a handle was told that it has the run.
    pub(crate) fn told_claimed(&mut self, run: u32, writer: &str, epoch: u64) {
        let claims = self.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        if !claims.iter().any(|claim| (claim.epoch, claim.writer.as_str()) == (epoch, writer)) {
            self.fail(format!(
                "writer {writer} is told that it has run {run} in epoch {epoch}, and its claim was refused"
            ));
        }
    }

    /// A decision that an effect did not happen must not take effect after something was learned of it that its author had
    /// not seen.
    fn check_current(&mut self, partition: PartitionId, offset: Offset, decided: &Decided) {
        let since = self.records.range((partition, decided.seen)..(partition, offset));
        let unseen = since.map(|(_, landed)| landed).find(|landed| {
            let answers = landed.record.body.facts.answers.as_ref().map(|id| id.as_str());
            let kept = matches!(landed.reason.as_deref(), Some("fenced" | "ended"));
            let kind = landed.record.body.facts.payload_type.as_str();
            let result = matches!(kind, "tool_call_completed" | "tool_call_failed") && kept;
            let attempt = kind == "tool_call_attempt" && landed.outcome == "applied";
            answers == Some(decided.request.as_str()) && (result || attempt)
        });
        if let Some(unseen) = unseen {
            let (id, kind) = (&unseen.record.body.record_id, &unseen.record.body.facts.payload_type);
            self.fail(format!(
                "the decision at {partition}:{offset} that call {} did not happen was applied after {kind} {id}, which its \
                 author had not seen",
                decided.request
            ));
        }
    }

    /// A process begins to work on a call, or no longer does.
    pub(crate) fn works(&mut self, life: u32, run: u32, step: u32, begins: bool) {
        if begins {
            self.busy.insert((life, run, step));
        } else {
            self.busy.remove(&(life, run, step));
        }
    }

    /// A process was killed.
    pub(crate) fn died(&mut self, life: u32) {
        self.busy.retain(|(busy, ..)| *busy != life);
    }

    /// An operator decides. The number by which the decision says who made it.
    pub(crate) fn decides(&mut self, request: &str, seen: Offset, result: Option<String>) -> usize {
        self.decisions.push(Decided { request: request.to_owned(), seen, result });
        self.decisions.len() - 1
    }

    /// Whether the call of this request happened, and its result; none where a process that has the run is at work on it.
    pub(crate) fn phone(&self, request: &str) -> Option<(bool, Option<String>)> {
        let (run, step) = *self.requests.get(request)?;
        let writer = self.claims.get(&run).and_then(|claims| claims.last()).and_then(|claim| claim.life);
        if writer.is_some_and(|life| self.busy.contains(&(life, run, step))) {
            return None;
        }
        let call = self.calls.get(&(run, step)).cloned().unwrap_or_default();
        Some((call.happened, call.results.first().cloned()))
    }

    /// The first claim by another process after the last one of `life`; none where that has the run, `Err` where it never had.
    fn lost_to(&self, run: u32, life: u32) -> Result<Option<&Claim>, ()> {
        let claims = self.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        let own = claims.iter().rposition(|claim| claim.life == Some(life)).ok_or(())?;
        Ok(claims[own + 1..].first())
    }

    /// An effect starts now: its number.
    pub(crate) fn starts(&mut self, started: Started, attempt: u32, happens: bool) -> usize {
        let Started { life, run, step, keyed, request } = started;
        let now = ambient::elapsed_millis();
        let what = format!("the effect of step {step} of run {run} (call {request}) in life {life}");
        let fenced = match self.lost_to(run, life) {
            Err(()) => {
                self.fail(format!("{what} runs, and that process never had the run"));
                false
            }
            Ok(None) => false,
            Ok(Some(claim)) => {
                // What a journal cannot prevent: a pause between the read-back and the effect, and a deposed leader's answer.
                let (late, at) = (now - claim.at, claim.at);
                let excused = self.deposed.iter().any(|(_, from, to)| *from <= now && to.is_none_or(|to| to >= at));
                if u128::from(late) > READ_BACK.as_millis() && !excused {
                    let by = claim.life;
                    self.fail(format!("{what} runs {late} ms after life {by:?} took the run over"));
                }
                true
            }
        };
        if self.requests.get(&request) != Some(&(run, step)) {
            let of = self.requests.get(&request);
            self.fail(format!("{what} runs under a request that is of {of:?}"));
        }
        let older = self.unresolved.get(&life).and_then(BTreeSet::first).filter(|_| attempt == 1);
        if let Some(older) = older.filter(|_| !self.allowed.contains(&life)).cloned() {
            self.fail(format!("{what} is new and runs, and call {older} is unresolved"));
        }
        let call = self.calls.entry((run, step)).or_default();
        let spent = call.spent;
        call.happened |= happens;
        if !fenced {
            call.spent = true;
        }
        if spent && !keyed && !fenced {
            self.fail(format!("{what} runs again, and nothing allowed that"));
        }
        self.effects.push(Effect { life, run, step, request, result: None });
        self.effects.len() - 1
    }

    /// The result of a keyed call, whose receiver runs it once; none where it did not run yet.
    pub(crate) fn known_result(&self, run: u32, step: u32) -> Option<String> {
        self.calls.get(&(run, step)).and_then(|call| call.results.first().cloned())
    }

    /// An effect is about to have this result.
    pub(crate) fn results_in(&mut self, run: u32, step: u32, result: &str) {
        self.calls.entry((run, step)).or_default().results.push(result.to_owned());
    }

    /// An effect ended, and its process knows the result.
    pub(crate) fn ends(&mut self, effect: usize, result: String) {
        if let Some(effect) = self.effects.get_mut(effect) {
            effect.result = Some(result);
        }
    }

    /// A call failed.
    pub(crate) fn call_failed(&mut self, effect: Option<usize>, error: &Error) {
        let Some(effect) = effect.and_then(|effect| self.effects.get(effect)) else { return };
        let what = format!("step {} of run {} in life {}", effect.step, effect.run, effect.life);
        match (error.side_effect(), effect.result.is_some()) {
            (SideEffect::Held | SideEffect::Evidence, true) | (SideEffect::Unrecorded, false) => {}
            (told, known) => {
                let known = if known { "known" } else { "unknown" };
                self.fail(format!("{what} ran, its result is {known}, and its caller is told {told:?}: {error}"));
            }
        }
    }

    /// A call was answered.
    pub(crate) fn answered(&mut self, life: u32, run: u32, step: u32, effect: Option<usize>, answer: &Answer) {
        let what = format!("the answer of step {step} of run {run} in life {life}");
        let error = answer.error.as_ref().map(|error| failure(&error.kind, &error.message));
        let told = error.unwrap_or_else(|| text(&answer.result));
        if answer.recorded == effect.is_some() {
            self.fail(format!("{what} says recorded: {}, and the effect ran: {}", answer.recorded, effect.is_some()));
        }
        if !self.calls.get(&(run, step)).is_some_and(|call| call.results.contains(&told)) {
            self.fail(format!("{what} is {told}, which no effect and no decision said"));
        }
        let Some(position) = &answer.position else { return self.fail(format!("{what} has no position")) };
        let at = (position.partition, position.offset);
        let Some(landed) = self.records.get(&at).cloned() else {
            return self.fail(format!("{what} is at {}:{}, where the log has nothing", at.0, at.1));
        };
        let facts = &landed.record.body.facts;
        let request = facts.answers.as_ref().and_then(|id| self.requests.get(id.as_str()));
        if request != Some(&(run, step)) {
            return self.fail(format!("{what} is at {}:{}, which answers {request:?}", at.0, at.1));
        }
        let recorded = match &landed.record.payload {
            Payload::ToolCallCompleted(done) => Some(text(&done.result)),
            Payload::ToolCallFailed(failed) => Some(failure(&failed.error_kind, &failed.error_message)),
            Payload::EffectResolution(_) if answer.recorded => None,
            other => Some(format!("a {}", other.payload_type())),
        };
        if recorded.as_ref().is_some_and(|recorded| *recorded != told) {
            self.fail(format!("{what} is {told}, and the log has {recorded:?} at {}:{}", at.0, at.1));
        }
        if !answer.recorded && !self.counts(run, life, at.1, &landed) {
            let (outcome, reason) = (&landed.outcome, &landed.reason);
            self.fail(format!("{what} is Ok, and its record at {}:{} is {outcome} {reason:?}", at.0, at.1));
        }
    }

    /// Whether the record of a result was applied, or is evidence because another process had claimed the run before.
    fn counts(&self, run: u32, life: u32, at: Offset, landed: &Landed) -> bool {
        match (landed.outcome.as_str(), landed.reason.as_deref()) {
            ("applied" | "repeat", None) => true,
            (_, Some("fenced")) => self.lost_to(run, life).ok().flatten().is_some_and(|claim| claim.offset < at),
            (_, Some("ended")) => self.ended.contains_key(&run),
            _ => false,
        }
    }

    /// A record was acknowledged at this position.
    pub(crate) fn acknowledged(&mut self, what: &str, position: &Position, wanted: impl Fn(&JournalRecord) -> bool) {
        let at = (position.partition, position.offset);
        let member = |landed: &Landed| match &landed.record.payload {
            Payload::Batch(batch) => batch.records.get(position.index as usize).cloned(),
            _ => Some(landed.record.clone()),
        };
        match self.records.get(&at) {
            Some(landed) if member(landed).is_some_and(|record| wanted(&record)) => {}
            found => {
                let found = found.map(|landed| landed.record.body.record_id.clone());
                self.fail(format!("{what} was acknowledged at {}:{}, where the log has {found:?}", at.0, at.1));
            }
        }
    }

    /// Whether a record with this id was applied.
    pub(crate) fn has_applied(&self, id: &str) -> bool {
        self.records.values().any(|landed| landed.record.body.record_id.as_str() == id && landed.outcome == "applied")
    }

    /// Whether a turn with this content is in the log, whatever became of it.
    pub(crate) fn has_turn(&self, said: &Value) -> bool {
        let says = |landed: &Landed| matches!(&landed.record.payload, Payload::ConversationTurn(turn) if turn.content.to_value() == *said);
        self.records.values().any(says)
    }

    /// A handle was told that another process has its run.
    pub(crate) fn told_lost(&mut self, run: u32, life: u32, error: &Error) {
        if matches!(self.lost_to(run, life), Ok(None)) {
            self.fail(format!("life {life} is told that it lost run {run}, which nobody else claimed: {error}"));
        }
    }

    /// A process ended by itself, and left no result: each of its effects is in the log.
    pub(crate) fn left(&mut self, life: u32) {
        let lost: Vec<String> = self
            .effects
            .iter()
            .filter(|effect| effect.life == life)
            .filter(|effect| effect.result.as_ref().is_some_and(|result| !self.is_in_log(&effect.request, result)))
            .map(|effect| format!("step {} of run {} (call {})", effect.step, effect.run, effect.request))
            .collect();
        for lost in lost {
            self.fail(format!(
                "the result of {lost} is not in the log, and life {life}, which knew it, ended by itself"
            ));
        }
    }

    fn is_in_log(&self, request: &str, result: &str) -> bool {
        self.records.values().any(|landed| match &landed.record.payload {
            Payload::ToolCallCompleted(done) => {
                done.request_record_id.as_str() == request && text(&done.result) == result
            }
            Payload::ToolCallFailed(failed) => {
                let told = failure(&failed.error_kind, &failed.error_message);
                failed.request_record_id.as_str() == request && told == result
            }
            _ => false,
        })
    }

    /// What the model says of a run now, for [`lacks`] and [`differs`].
    pub(crate) fn recovery(&self, run: u32) -> Value {
        self.model.as_ref().map_or(Value::Null, |model| model.recover(&run_id(run)))
    }

    /// How often a server began or ceased to read from a deposed leader, and whether one does.
    pub(crate) fn deposed_since(&self) -> (usize, bool) {
        (self.deposed.len(), self.deposed.iter().any(|window| window.2.is_none()))
    }
}
