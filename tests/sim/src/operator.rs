//! An operator: reads the pending effects, finds out whether they happened, waits, and decides; and skips the record
//! at which a partition stopped, evidence, and records that were applied.

use crate::{
    dice::Dice,
    grants::Sender,
    intruder,
    ledger::{Decided, Phoned, Question, failure, run_id},
    network::Network,
    plan::{Kind, LETTER, PUBLISHED, RUNS},
    stage::{PARTITIONS, Stage},
};
use runlog_log::{Log, Offset, PartitionId};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Operators at work at the same time.
pub(crate) const OPERATORS: u32 = 2;

/// An operator with its dependencies.
pub(crate) struct Operator {
    pub(crate) id: u32,
    pub(crate) stage: Arc<Stage>,
    pub(crate) network: Arc<Network>,
}

/// How often an operator looks whether the record to skip is there.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// In so many cases of a hundred an operator skips evidence instead of deciding.
const SKIPPED: u64 = 6;

/// How an operator decides.
struct How {
    choice: Choice,
    /// Although the effect's process may be alive.
    forced: bool,
    /// Names the basis too, if the answer has one.
    by_basis: bool,
    /// Decides that an effect did not happen, also if its evidence says that it failed.
    overrides: bool,
}

/// An operator's decision about an effect.
enum Choice {
    /// Gives it up, regardless of its outcome.
    GiveUp,
    /// Decides whether it happened, to their knowledge.
    Tell,
    /// The same without a basis, which must be refused.
    Blind,
    /// The same with an older basis, which must be refused.
    Stale,
    /// Adopts evidence that the effect does not have, or decides that the effect did not happen without the name of evidence that it
    /// did. Must be refused.
    Misnamed,
}

impl Choice {
    /// The name of a decision in the counts.
    fn name(&self, decision: Option<&str>) -> &'static str {
        match (self, decision) {
            (Self::Blind, _) => "decision without a revision",
            (Self::Stale, _) => "decision at an older revision",
            (Self::Misnamed, _) => "decision that names other evidence, or none",
            (_, Some("adopt")) => "decision: adopt",
            (_, Some("done")) => "decision: done",
            (_, Some("give_up")) => "decision: give_up",
            _ => "decision: not_done",
        }
    }
}

impl Operator {
    /// Works until the task is ended.
    pub(crate) async fn work(self) {
        let mut dice = Dice::new(self.stage.seed(), 77 + u64::from(self.id));
        loop {
            sleep(Duration::from_millis(dice.between(1_000, 6_000))).await;
            self.skip().await;
            for run in (0..RUNS).chain([LETTER]) {
                self.look(run, &mut dice).await;
            }
        }
    }

    /// Skips the record that stops a partition.
    async fn skip(&self) {
        let stopped = self.stage.ledger().stopped();
        for (partition, offset) in stopped {
            let body = json!({ "partition": partition, "offset": offset, "who": format!("operator {}", self.id), "why": "asked" });
            let answer = self.network.ask(Sender::Operator, "POST", "/v1/skips?deadline_ms=5000", &body).await;
            self.stage.count("skip of what stopped a partition");
            self.stage.tell(|| format!("operator {} skips {partition}:{offset}: {answer:?}", self.id));
        }
    }

    /// Skips a refused result of a call.
    async fn skip_evidence(&self, request: &str, (partition, offset): (PartitionId, Offset)) {
        let body = json!({ "partition": partition.get(), "offset": offset.get(), "who": format!("operator {}", self.id), "why": "asked" });
        let answer = self.network.ask(Sender::Operator, "POST", "/v1/skips?force=true&deadline_ms=5000", &body).await;
        self.stage.count("skip of evidence");
        self.stage
            .tell(|| format!("operator {} skips evidence of {request} at {partition}:{offset}: {answer:?}", self.id));
    }

    /// Waits for the nth evidence of a run's calls. `None` once no fault may begin any more.
    async fn nth_evidence(&self, run: u32, nth: usize) -> Option<(String, (PartitionId, Offset))> {
        while !self.stage.is_over() {
            let evidence = self.stage.ledger().nth_evidence(run, nth);
            if evidence.is_some() {
                return evidence;
            }
            sleep(LOOK_AGAIN).await;
        }
        None
    }

    /// Gives the call of the nth evidence of a run up by force, once the plan's moment comes, and skips the evidence later.
    pub(crate) async fn give_up(&self, run: u32, nth: usize, after: u64, skips_after: u64) {
        let Some((request, evidence)) = self.nth_evidence(run, nth).await else { return };
        while !self.stage.ledger().phone(&request).is_some_and(|phoned| phoned.busy) {
            if self.stage.is_over() {
                return;
            }
            sleep(LOOK_AGAIN).await;
        }
        sleep(Duration::from_millis(after)).await;
        let path = format!("/v1/runs/{}/recovery?content=false&limit=1000&deadline_ms=5000", run_id(run));
        let Some((200, recovery)) = self.network.ask(Sender::Operator, "GET", &path, &Value::Null).await else {
            return;
        };
        let seen = self.ends().get(effect_partition(&recovery).index()).copied().unwrap_or_default();
        let effect =
            recovery["pending"].as_array().into_iter().flatten().find(|effect| effect["id"] == request.as_str());
        let phoned = self.stage.ledger().phone(&request);
        let (Some(effect), Some(phoned)) = (effect, phoned) else { return };
        let how = How { choice: Choice::GiveUp, forced: true, by_basis: true, overrides: false };
        self.decide(run, effect, (&request, seen), &phoned, &how).await;
        sleep(Duration::from_millis(skips_after)).await;
        if !self.stage.is_over() {
            self.skip_evidence(&request, evidence).await;
        }
    }

    /// Skips the nth evidence of a run's calls, once the plan's moment comes.
    pub(crate) async fn skip_nth_evidence(&self, run: u32, nth: usize, after: u64) {
        let Some((request, at)) = self.nth_evidence(run, nth).await else { return };
        sleep(Duration::from_millis(after)).await;
        if !self.stage.is_over() {
            self.skip_evidence(&request, at).await;
        }
    }

    /// Skips a record that was applied, once the plan's moment comes.
    pub(crate) async fn skip_applied(&self, run: u32, (kind, nth, back): (Kind, usize, usize), after: u64) {
        loop {
            if self.stage.is_over() {
                return;
            }
            if self.stage.ledger().nth_applied(run, kind, nth, 0).is_some() {
                break;
            }
            sleep(LOOK_AGAIN).await;
        }
        sleep(Duration::from_millis(after)).await;
        let Some((partition, offset)) =
            self.stage.ledger().nth_applied(run, kind, nth, back).filter(|_| !self.stage.is_over())
        else {
            return;
        };
        let has_process = self.stage.ledger().has_process(run);
        let body = json!({ "partition": partition.get(), "offset": offset.get(), "who": format!("operator {}", self.id), "why": "asked" });
        let answer = self.network.ask(Sender::Operator, "POST", "/v1/skips?force=true&deadline_ms=5000", &body).await;
        self.stage.count(if run == PUBLISHED || (RUNS..LETTER).contains(&run) {
            "skip of an applied record of a writer or a publisher"
        } else if has_process {
            "skip of an applied record, of a run with a process"
        } else {
            "skip of an applied record, of a run without a process"
        });
        self.stage.tell(|| {
            format!("operator {} skips {partition}:{offset} for the {kind:?} {nth} of run {run}: {answer:?}", self.id)
        });
    }

    async fn look(&self, run: u32, dice: &mut Dice) {
        let id = run_id(run);
        let question = self.stage.ledger().asks(Question::Recovery(id.clone()));
        let path = format!("/v1/runs/{id}/recovery?full=true&content=false&limit=1000&deadline_ms=5000");
        let answer = self.network.ask(Sender::Operator, "GET", &path, &Value::Null).await;
        let seen = self.ends();
        let recovery = answer.filter(|(status, _)| *status == 200).map(|(_, recovery)| recovery);
        self.stage.ledger().settle(question, recovery.as_ref());
        let Some(recovery) = recovery else { return };
        self.stage.ledger().check_adoptable(run, &recovery);
        let pending: Vec<Value> = recovery["pending"].as_array().cloned().unwrap_or_default();
        let seen = seen.get(effect_partition(&recovery).index()).copied().unwrap_or_default();
        for effect in &pending {
            // An operator may also decide an effect that needs no decision.
            if effect["class"] != "reconcile_required" && !dice.percent(5) {
                continue;
            }
            let Some(request) = effect["id"].as_str() else { continue };
            let Some(phoned) = self.stage.ledger().phone(request) else { continue };
            let choice = match dice.between(0, 99) {
                0..=4 => Choice::Blind,
                5..=9 if effect["revision"].as_u64() > Some(1) => Choice::Stale,
                10..=19 if says_that_it_happened(effect) => Choice::Misnamed,
                // Before a call in flight ends, an impatient operator gives it up, or decides by current knowledge.
                10..=34 if phoned.busy => Choice::GiveUp,
                35..=49 if phoned.busy => Choice::Tell,
                _ if phoned.busy => continue,
                _ => Choice::Tell,
            };
            // Faults and other actors may interleave here.
            sleep(Duration::from_millis(dice.between(0, 15_000))).await;
            if effect["evidence"].as_array().is_some_and(|all| !all.is_empty()) && dice.percent(SKIPPED) {
                let newest = self.stage.ledger().evidence_of(request);
                if let Some(newest) = newest {
                    self.skip_evidence(request, newest).await;
                }
                continue;
            }
            let how = How { choice, forced: dice.percent(60), by_basis: dice.percent(50), overrides: dice.percent(40) };
            self.decide(run, effect, (request, seen), &phoned, &how).await;
        }
    }

    async fn decide(&self, run: u32, effect: &Value, (request, seen): (&str, Offset), phoned: &Phoned, how: &How) {
        let How { choice, forced, by_basis, overrides } = how;
        let current = matches!(choice, Choice::GiveUp | Choice::Tell);
        let by_basis = current && *by_basis && effect["basis"].is_string();
        let (happened, result) = (phoned.happened, phoned.result.clone());
        let evidence = effect["evidence"].as_array().and_then(|all| {
            let happened = all.iter().rev().find(|one| one["status"] == "completed");
            all.iter().find(|one| one["adoptable"] == true).or(happened).or(all.last())
        });
        // An operator who knows the effect does not believe an intruder, and names the evidence that they override.
        let is_false = |one: &&Value| one["record_id"].as_str().is_some_and(intruder::is_by);
        let against = evidence.filter(is_false).filter(|one| one["status"] == "completed");
        let evidence = evidence.filter(|one| !is_false(one));
        // A failure that was refused can be overridden: the effect did not happen.
        let overridden = evidence.is_some_and(|one| one["status"] != "completed") && *overrides && !happened;
        let evidence = evidence.filter(|_| !overridden).and_then(|one| one["record_id"].as_str());
        // The id names two results, and a decision may read the first one. So the operator decides by the result that they know.
        let same_id =
            effect["evidence"].as_array().into_iter().flatten().filter(|one| one["record_id"].as_str() == evidence);
        let evidence = evidence.filter(|_| same_id.count() == 1 || !happened || *overrides);
        // Nor does such a decision adopt a result beside an intruder's, which a decision by revision alone would read.
        let mut completed =
            effect["evidence"].as_array().into_iter().flatten().filter(|one| one["status"] == "completed");
        let is_disputed = completed.any(|one| is_false(&one)) && !(by_basis && self.stage.plan.checks_starts());
        let evidence = evidence.filter(|_| !is_disputed || !happened);
        let (given_up, misnamed) = (matches!(choice, Choice::GiveUp), matches!(choice, Choice::Misnamed));
        let decided = match (given_up, happened) {
            (true, _) => Some(failure("given_up", "asked")),
            (false, true) => result.clone(),
            (false, false) => None,
        };
        let revision = match choice {
            Choice::Blind => Value::Null,
            Choice::Stale => json!(effect["revision"].as_u64().unwrap_or(1) - 1),
            Choice::GiveUp | Choice::Tell | Choice::Misnamed => effect["revision"].clone(),
        };
        let (basis, forced) = (&effect["basis"], *forced);
        let of = Decided { request: request.to_owned(), seen, result: decided, current, forced, alive: None };
        let number = self.stage.ledger().decides(of);
        let mut body =
            json!({ "who": format!("operator-{number}"), "why": "asked", "revision": revision, "force": forced });
        if by_basis {
            body["basis"] = basis.clone();
        }
        match (evidence, happened) {
            _ if given_up => body["decision"] = json!("give_up"),
            _ if misnamed && *overrides => body["decision"] = json!("not_done"),
            _ if misnamed => {
                body["decision"] = json!("adopt");
                body["evidence"] = json!("nobody's");
            }
            (Some(evidence), _) => {
                body["decision"] = json!("adopt");
                body["evidence"] = json!(evidence);
            }
            (None, true) => {
                body["decision"] = json!("done");
                body["result"] =
                    result.as_deref().map_or(json!(null), |text| serde_json::from_str(text).unwrap_or_default());
            }
            (None, false) => {
                body["decision"] = json!("not_done");
                if let Some(against) = against {
                    body["evidence"] = against["record_id"].clone();
                }
            }
        }
        let path = format!("/v1/runs/{}/effects/{request}/resolution?deadline_ms=5000", run_id(run));
        let answer = self.network.ask(Sender::Operator, "POST", &path, &body).await;
        self.stage.count(choice.name(body["decision"].as_str()));
        if !forced {
            self.stage.count("decision without force");
        }
        if !current && answer.as_ref().is_some_and(|(status, _)| *status == 200) {
            self.stage.ledger().fail(format!("a decision about {request} at revision {revision} is taken: {answer:?}"));
        }
        self.stage.tell(|| {
            let (status, answer) = answer.map_or((0, Value::Null), |(status, answer)| (status, answer));
            let text = if status == 200 { answer["outcome"].clone() } else { answer["detail"].clone() };
            let force = if forced { " by force" } else { "" };
            format!("operator {}: {} about {request}{force}: {status} {text}", self.id, body["decision"])
        });
    }

    /// The current ends of the log's partitions.
    fn ends(&self) -> Vec<Offset> {
        let end = |partition| {
            let bounds = self.stage.log.bounds(partition, Duration::ZERO);
            futures_util::FutureExt::now_or_never(bounds).and_then(Result::ok).map(|bounds| bounds.end)
        };
        PartitionId::all(PARTITIONS).map(|partition| end(partition).unwrap_or_default()).collect()
    }
}

/// Whether evidence says that an effect happened.
fn says_that_it_happened(effect: &Value) -> bool {
    effect["evidence"].as_array().into_iter().flatten().any(|one| one["status"] == "completed")
}

fn effect_partition(recovery: &Value) -> PartitionId {
    let partition = recovery["position"]["partition"].as_u64().and_then(|number| u32::try_from(number).ok());
    partition.and_then(|number| PartitionId::try_from(number).ok()).unwrap_or_default()
}
