//! A process that knows docs/protocol.md and nothing else: it sends JSON and reads JSON, and shares no code with the
//! product or its clients. Its record ids follow from its agent's steps, so that every process of the run sends the same.
//!
//! ```text
//!   claim ─▶ recover, until nothing waits for a decision ─▶ each step: look up ─▶ intent or attempt ─▶ read back ─▶
//!   effect ─▶ result                                            a proxy may deliver each request twice
//! ```
//!
//! The numbers in brackets are the sections of the page.

use crate::{
    ambient,
    dice::Dice,
    guard::Guard,
    ledger::{Started, failure},
    network::Network,
    plan::{Ends, Event, LETTER, Life, Step, What},
    stage::Stage,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::sleep;

mod gate;
mod requests;

/// The longest time between an effect's start and the request that permitted it (4: "more than a few seconds").
const FEW_SECONDS: Duration = Duration::from_secs(3);
/// The longest time between an effect's start and the first send of its record (4).
const START_WITHIN: Duration = Duration::from_secs(20);
/// How often a request is sent again, and a decision waited for, after the last fault.
const TRIES_MAX: u32 = 200;

/// The process must start no further effect: another process has the run, or it cannot know what its own effect did.
struct Gone;

/// The writer id and epoch of the claim.
#[derive(Clone, Debug, PartialEq)]
struct Writer {
    id: String,
    epoch: u64,
}

/// A process with its dependencies.
pub(crate) struct Letter {
    stage: Arc<Stage>,
    network: Arc<Network>,
    life: Life,
    last: bool,
    dice: Mutex<Dice>,
    /// The gate of two requests instead of one.
    two: bool,
    /// Sends an intent without a lookup before it, as a client without (6) would.
    hasty: bool,
    /// Sends some intents with a checkpoint, and some results with a message.
    batches: bool,
    /// The records under which it started an effect.
    started: Mutex<BTreeSet<String>>,
    /// The pending calls of the recovery at the opening: class and attempts.
    opened: Mutex<BTreeMap<String, Value>>,
    next: Mutex<Numbers>,
}

/// The next numbers for what the process numbers itself.
#[derive(Debug, Default)]
struct Numbers {
    checkpoint: u64,
    own_decision: u64,
    message: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Letter {
    pub(crate) fn new(stage: &Arc<Stage>, network: &Arc<Network>, life: Life, last: bool) -> Arc<Self> {
        let mut dice = Dice::new(stage.seed(), 5_000 + u64::from(life.id));
        let (two, hasty) = (dice.percent(50), dice.percent(40));
        Arc::new(Self {
            stage: stage.clone(),
            network: network.clone(),
            life,
            last,
            dice: Mutex::new(dice),
            two,
            hasty,
            batches: stage.plan.has_batches(),
            started: Mutex::default(),
            opened: Mutex::default(),
            next: Mutex::default(),
        })
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        self.stage.tell(|| format!("client {} (run {LETTER}): {}", self.life.id, line()));
    }

    /// Whether a skip took records of the run away since the process opened it.
    fn is_excused(&self) -> bool {
        self.stage.ledger().is_excused(LETTER, self.life.id)
    }

    fn percent(&self, share: u64) -> bool {
        locked(&self.dice).percent(share)
    }

    /// Works until its steps are done, or its run is lost or ended. Returns whether its steps are done.
    pub(crate) async fn live(self: Arc<Self>) -> bool {
        let mut done = self.work().await.is_ok();
        for _ in 0..TRIES_MAX {
            if done || !self.last {
                break;
            }
            // A further process.
            sleep(Duration::from_secs(1)).await;
            done = self.work().await.is_ok();
        }
        if self.last && !done {
            self.stage.ledger().fail(format!("client {} does not finish its run", self.life.id));
        }
        self.tell(|| "leaves".to_owned());
        self.stage.ledger().left(self.life.id);
        done
    }

    async fn work(&self) -> Result<(), Gone> {
        let me = self.claim().await?;
        let recovery = self.when_decided(&me).await?;
        if recovery["status"] != "open" {
            return Ok(());
        }
        let checkpoint = recovery["checkpoint"]["checkpoint_id"].as_str();
        self.stage.ledger().resumes(LETTER, self.life.id, checkpoint);
        let state = recovery["checkpoint"]["state"]["done"].as_array().into_iter().flatten();
        let mut done: BTreeSet<u64> = state.filter_map(Value::as_u64).collect();
        for step in self.stage.plan.steps(LETTER) {
            if done.contains(&u64::from(step.id)) {
                continue;
            }
            sleep(Duration::from_millis(step.think)).await;
            let ended = self.paused(step, self.step(&me, step, &done)).await?;
            if ended {
                return Ok(());
            }
            done.insert(u64::from(step.id));
        }
        Ok(())
    }

    /// Runs a step with the plan's pauses.
    async fn paused<T>(&self, step: Step, operation: impl Future<Output = T> + Send) -> T {
        let pause = |event: &Event| match *event {
            Event::Pause { life, step: at, polls, ms } if (life, at) == (self.life.id, step.id) => Some((polls, ms)),
            _ => None,
        };
        let mut guard = Guard::new(operation, None, None, self.stage.plan.events.iter().filter_map(pause).collect());
        let came = (&mut guard).await;
        if guard.paused > 0 {
            self.stage.count("client of the protocol paused");
            self.tell(|| format!("step {} was paused for {} ms", step.id, guard.paused));
        }
        match came {
            Some(came) => came,
            // It is not dropped.
            None => std::future::pending().await,
        }
    }

    /// Returns whether the run has ended.
    async fn step(&self, me: &Writer, step: Step, done: &BTreeSet<u64>) -> Result<bool, Gone> {
        match step.what {
            What::Call { key, ms, ends, .. } => {
                self.stage.ledger().works(self.life.id, LETTER, step.id, true);
                let called = self.call(me, step.id, (key, ms, ends), done).await;
                self.stage.ledger().works(self.life.id, LETTER, step.id, false);
                called.map(|()| false)
            }
            What::End => self.end(me).await,
            _ => self.checkpoint(me, done).await.map(|()| false),
        }
    }

    /// Claims the run (1): the same request again until there is an answer.
    async fn claim(&self) -> Result<Writer, Gone> {
        if self.stage.plan.events.contains(&Event::ReusesClaim { life: self.life.id }) {
            self.reuse_claim().await;
        }
        let body = json!({ "record_id": ambient::id(), "claimed_by": format!("life-{}", self.life.id) });
        let (status, answer) = self.ask("POST", "/claims?deadline_ms=5000", &body).await?;
        if status != 200 {
            self.tell(|| format!("claim: {status} {}", answer["detail"]));
            return Err(Gone);
        }
        let (Some(id), Some(epoch)) = (answer["writer_id"].as_str(), answer["epoch"].as_u64()) else {
            self.stage.ledger().fail(format!("the answer to a claim has no writer: {answer}"));
            return Err(Gone);
        };
        self.stage.ledger().claim_confirmed(LETTER, id, epoch);
        self.tell(|| format!("claims the run in epoch {epoch}"));
        locked(&self.started).clear();
        Ok(Writer { id: id.to_owned(), epoch })
    }

    /// Reads the run's recovery (2), which must be after the claim.
    async fn recover(&self, me: &Writer) -> Result<Value, Gone> {
        let mut tries = 0;
        loop {
            let (status, recovery) =
                self.ask("GET", "/recovery?full=true&limit=1000&deadline_ms=5000", &Value::Null).await?;
            if self.is_me(&recovery, me) {
                return Ok(recovery);
            }
            match recovery["epoch"].as_u64() {
                // A skip may have taken this claim, and then the next one has its epoch.
                Some(epoch) if epoch >= me.epoch => return Err(self.lost(&format!("it is claimed in epoch {epoch}"))),
                // A server that reads an old end of the log does not have the claim yet.
                _ => self.tell(|| format!("recovery: {status}, older than the claim")),
            }
            self.wait(&mut tries).await?;
        }
    }

    fn lost(&self, why: &str) -> Gone {
        self.tell(|| format!("stops: {why}"));
        self.stage.ledger().reported_lost(LETTER, self.life.id, why);
        Gone
    }

    /// Starts no call while one waits for a decision (8).
    async fn when_decided(&self, me: &Writer) -> Result<Value, Gone> {
        let mut tries = 0;
        loop {
            let recovery = self.recover(me).await?;
            let pending = recovery["pending"].as_array().cloned().unwrap_or_default();
            if recovery["status"] != "open" || pending.iter().all(|call| call["class"] == "retry_safe") {
                locked(&self.next).checkpoint = recovery["next_checkpoint_seq"].as_u64().unwrap_or(1);
                let by_id = pending.into_iter().filter_map(|call| Some((call["id"].as_str()?.to_owned(), call)));
                *locked(&self.opened) = by_id.collect();
                return Ok(recovery);
            }
            self.wait(&mut tries).await?;
        }
    }

    /// Waits for a decision, or for a server that has read the claim.
    async fn wait(&self, tries: &mut u32) -> Result<(), Gone> {
        *tries += u32::from(self.stage.is_healed());
        if *tries > TRIES_MAX {
            // A skip may have taken its claim.
            if !self.is_excused() {
                self.stage.ledger().fail(format!("client {} waits in vain", self.life.id));
            }
            return Err(Gone);
        }
        sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    /// Makes a call, or finds out how it ended.
    async fn call(
        &self,
        me: &Writer,
        step: u32,
        (key, ms, ends): (bool, u64, Ends),
        done: &BTreeSet<u64>,
    ) -> Result<(), Gone> {
        let (id, mut tries) = (format!("step-{step}"), 0);
        let mut look = !self.hasty;
        loop {
            let found = if look { self.lookup(step).await? } else { json!({ "status": "unknown" }) };
            look = true;
            let attempt = match found["status"].as_str() {
                Some("completed") => {
                    self.returns(step, &found["result"].to_string());
                    return Ok(());
                }
                Some("failed") => {
                    let text = |name: &str| found["error"][name].as_str().unwrap_or_default().to_owned();
                    self.returns(step, &failure(&text("kind"), &text("message")));
                    return Ok(());
                }
                Some("pending") => self.again(me, &id).await?,
                _ => self.request(me, &id, (step, key), done).await?,
            };
            let Some((record_id, attempt)) = attempt else {
                self.wait(&mut tries).await?;
                continue;
            };
            // Its receiver refused the connection.
            if (attempt == 1 || !key) && self.percent(8) {
                self.not_started(me, &id, &record_id).await?;
                continue;
            }
            // What failed once succeeds later: the evidence of two attempts differs.
            let ends = if attempt > 1 && !(key && ends == Ends::Failed) { Ends::Done } else { ends };
            match self.effect((step, &id), attempt, (key, ms, ends)).await {
                Some(payload) => self.result(me, &record_id, payload).await?,
                // Its key makes it safe to repeat. Otherwise the process ends: a person decides.
                None if key => {}
                None => return Err(Gone),
            }
        }
    }

    fn returns(&self, step: u32, value: &str) {
        self.tell(|| format!("step {step}: {value}"));
        self.stage.ledger().returned(self.life.id, LETTER, step, value);
    }

    /// Runs the effect. Returns the payload of its result, if that is known.
    async fn effect(&self, (step, id): (u32, &str), attempt: u32, (key, ms, ends): (bool, u64, Ends)) -> Option<Value> {
        let (number, result) = {
            let mut ledger = self.stage.ledger();
            let begins = Started { life: self.life.id, run: LETTER, step, request: id.to_owned() };
            let number = ledger.starts(begins, attempt, ends != Ends::Failed);
            let earlier_result = if key { ledger.keyed_result(LETTER, step) } else { None };
            let result = earlier_result.unwrap_or_else(|| match ends {
                Ends::Failed => failure("refused", &format!("by the receiver, {number}")),
                _ => json!({ "effect": number }).to_string(),
            });
            ledger.results_in(LETTER, step, &result);
            (number, result)
        };
        self.tell(|| format!("the effect of step {step} runs: call {id} attempt {attempt}"));
        self.stage.count("effects of clients of the protocol");
        sleep(Duration::from_millis(ms)).await;
        if ends == Ends::Unknown {
            return None;
        }
        self.stage.ledger().ends(number, result.clone());
        Some(match result.strip_prefix("refused: ") {
            Some(message) => {
                json!({ "type": "tool_call_failed", "request_record_id": id, "error_kind": "refused", "error_message": message })
            }
            None => {
                let result: Value = serde_json::from_str(&result).unwrap_or_default();
                json!({ "type": "tool_call_completed", "request_record_id": id, "result": result })
            }
        })
    }

    /// Saves which steps are done (7). A refused checkpoint is no loss.
    async fn checkpoint(&self, me: &Writer, done: &BTreeSet<u64>) -> Result<(), Gone> {
        let Some((id, payload)) = self.state(me, done).await? else { return Ok(()) };
        self.append(me, &id, payload, &Value::Null, "").await.map(drop)
    }

    /// The id and the payload of a checkpoint; `None` if another process has the run.
    async fn state(&self, me: &Writer, done: &BTreeSet<u64>) -> Result<Option<(String, Value)>, Gone> {
        let (_, run) = self.ask("GET", "?deadline_ms=5000", &Value::Null).await?;
        let (Some(next), true) = (run["next_journal_seq"].as_u64(), self.is_me(&run, me)) else { return Ok(None) };
        let number = {
            let mut numbers = locked(&self.next);
            numbers.checkpoint += 1;
            numbers.checkpoint - 1
        };
        let id = format!("checkpoint-{number}");
        let messages: Vec<Value> = done.iter().map(|step| json!({ "done": step })).collect();
        let payload = json!({ "type": "loop_checkpoint", "checkpoint_id": id, "checkpoint_seq": number,
            "covers_journal_seq": next - 1, "schema_version": 1, "messages": messages, "state": { "done": done } });
        Ok(Some((id, payload)))
    }

    /// Ends the run (11). Returns whether it has ended.
    async fn end(&self, me: &Writer) -> Result<bool, Gone> {
        let payload = json!({ "type": "run_lifecycle", "status": "completed" });
        let answer = self.append(me, "end", payload, &Value::Null, "").await?;
        if answer["outcome"] == "refused" && !self.is_excused() {
            self.stage.ledger().fail(format!("the end of run {LETTER} is refused: {answer}"));
        }
        Ok(true)
    }
}
