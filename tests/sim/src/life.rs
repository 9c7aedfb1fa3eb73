//! A process: opens a run and goes through its agent's steps, whatever happens to it.

use crate::{
    ambient,
    dice::Dice,
    guard::Guard,
    ledger::{Started, failure, run_id},
    network::{ADDRESS, Network},
    plan::{AGAIN, Ends, Event, Life, OPEN, REOPEN, Step, What},
    stage::Stage,
};
use runlog_producer::{
    Action, Answer, Config, Ended, Error, Failure, Journal, Json, LoopState, OpenOptions, Outcome, Run, Runlog,
    SideEffect,
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::RecordId,
    payload::{ConversationTurn, Payload},
    record::JournalRecord,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long an append waits, or a query.
const DEADLINE: Duration = Duration::from_secs(6);
/// How long an intent may take to be read back.
pub(crate) const READ_BACK: Duration = Duration::from_secs(4);
/// How long an operation may take.
const OPERATION: Duration = Duration::from_secs(40);
/// How often a step is tried, and how often an opening.
const TRIES_MAX: u32 = 60;

/// A process with what it needs.
pub(crate) struct Process {
    stage: Arc<Stage>,
    network: Arc<Network>,
    life: Life,
    /// Whether it must come to the end of its steps.
    last: bool,
    /// The steps that its agent is done with.
    done: Mutex<BTreeSet<u32>>,
    /// Whether one step is under way at the most.
    alone: AtomicBool,
    opens: AtomicU32,
    reopens: AtomicU32,
}

/// What follows from how a step ended.
enum Next {
    Done,
    Again,
    /// The process is done with the run.
    Leave,
}

impl Process {
    pub(crate) fn new(stage: &Arc<Stage>, network: &Arc<Network>, life: Life, last: bool) -> Arc<Self> {
        let (stage, network) = (stage.clone(), network.clone());
        let (opens, reopens) = (AtomicU32::new(OPEN), AtomicU32::new(REOPEN));
        Arc::new(Self {
            stage,
            network,
            life,
            last,
            done: Mutex::default(),
            alone: AtomicBool::default(),
            opens,
            reopens,
        })
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        self.stage.tell(|| format!("life {} (run {}): {}", self.life.id, self.life.run, line()));
    }

    fn fail(&self, what: String) {
        let line = format!("life {} (run {}): {what}", self.life.id, self.life.run);
        self.stage.ledger().fail(line);
    }

    /// Lives until its steps are done, or its run is lost or ended. Says whether its steps are done.
    pub(crate) async fn live(self: Arc<Self>) -> bool {
        let Some(run) = self.open().await else { return false };
        let done = self.steps(&run).await;
        self.drain(&run).await;
        self.tell(|| "leaves".to_owned());
        self.stage.ledger().left(self.life.id);
        done
    }

    fn config(&self) -> Config {
        let mut config = Config::new(Journal::Http(ADDRESS.to_owned()), "agent");
        config.claimed_by = format!("life-{}", self.life.id);
        (config.deadline, config.read_back, config.operation) = (DEADLINE, READ_BACK, OPERATION);
        (config.clock, config.ids) = (ambient::millis, ambient::id);
        config.buffer_records = self.life.buffer;
        config.http = Some(self.network.sender());
        config
    }

    async fn open(&self) -> Option<Run> {
        for _ in 0..TRIES_MAX {
            let step = self.opens.fetch_add(1, Ordering::Relaxed);
            let opening = async {
                let runlog = Runlog::connect(self.config()).await?;
                let Life { allow_unresolved, from_start, .. } = self.life;
                let options = OpenOptions { allow_unresolved, from_start, ..OpenOptions::default() };
                runlog.open_with(run_id(self.life.run).as_str(), options).await
            };
            let Some(opened) = self.guarded("open", step, 0, opening).await else { continue };
            match opened {
                Ok(run) => {
                    let recovery = run.recovery();
                    self.tell(|| {
                        let (epoch, status) = (recovery.epoch, &recovery.status);
                        format!("open → epoch {epoch}, {status}, {} pending", recovery.pending.len())
                    });
                    self.resume(&run);
                    return Some(run);
                }
                Err(error) => {
                    self.tell(|| format!("open → {:?} {error}", error.kind()));
                    if error.action() == Action::Stop && !self.last {
                        return None;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
        if self.last {
            self.fail("the run cannot be opened".to_owned());
        }
        None
    }

    fn done(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on behind the checkpoint that was opened with, which must be the run's last one and as it was written.
    fn resume(&self, run: &Run) {
        let checkpoint = run.recovery().checkpoint.as_ref();
        let id = checkpoint.map(|checkpoint| checkpoint.checkpoint_id.as_str());
        if !self.life.from_start {
            self.stage.ledger().resumes(self.life.run, self.life.id, id);
        }
        let Some(checkpoint) = checkpoint else { return };
        let state = checkpoint.state.as_ref().map(Json::to_value).unwrap_or_default();
        let steps = state["done"].as_array().into_iter().flatten();
        *self.done() = steps.filter_map(|step| u32::try_from(step.as_u64()?).ok()).collect();
        self.stage.count("resumed at a checkpoint");
        self.tell(|| format!("resumes behind step {:?}", self.done().last()));
        let messages: Vec<Value> = checkpoint.messages.iter().flatten().map(Json::to_value).collect();
        if messages != self.messages().iter().map(Json::to_value).collect::<Vec<_>>() {
            self.fail(format!("the messages of checkpoint {id:?} are {messages:?}, not those of its state {state}"));
        }
    }

    fn messages(&self) -> Vec<Json> {
        self.done().iter().map(|step| Json::from(json!({ "done": step }))).collect()
    }

    /// Saves which steps are done.
    async fn checkpoint(&self, run: &Run) -> Result<Position, Error> {
        let done: Vec<u32> = self.done().iter().copied().collect();
        let state = LoopState {
            session_id: "session".to_owned(),
            turn: done.len() as u64,
            messages: self.messages(),
            state: Some(Json::from(json!({ "done": done }))),
            tool_calls_count: 0,
        };
        run.checkpoint(&state).await
    }

    async fn steps(&self, run: &Run) -> bool {
        let mut dice = Dice::new(self.stage.seed(), 1_000 + u64::from(self.life.id));
        let mut group: Vec<Step> = Vec::new();
        let steps = self.stage.plan.steps(self.life.run).into_iter();
        let left: Vec<Step> = steps.filter(|step| !self.done().contains(&step.id)).collect();
        let mut steps = left.into_iter().peekable();
        while let Some(step) = steps.next() {
            group.push(step);
            let together = |next: &Step| matches!(next.what, What::Call { .. } | What::End);
            if step.with_next && steps.peek().is_some_and(together) {
                continue;
            }
            let share = dice.between(0, 100);
            sleep(Duration::from_millis(step.think * share / 100)).await;
            self.alone.store(group.len() == 1, Ordering::Relaxed);
            let all = std::mem::take(&mut group).into_iter().map(|step| self.step(run, step));
            let all = futures_util::future::join_all(all).await;
            if all.contains(&false) {
                return false;
            }
        }
        true
    }

    /// Whether the process goes on.
    async fn step(&self, run: &Run, step: Step) -> bool {
        for tried in 0..TRIES_MAX {
            let next = match step.what {
                What::Call { key, ms, ends, like } => self.call(run, step, tried, (key, ms, ends, like)).await,
                _ => self.write(run, step, tried).await,
            };
            match next {
                Next::Done => {
                    self.done().insert(step.id);
                    return true;
                }
                Next::Leave => return false,
                // An agent that is interrupted may save its state before it goes on.
                Next::Again if self.alone.load(Ordering::Relaxed) && (step.id + tried).is_multiple_of(2) => {
                    let saved = self.checkpoint(run).await;
                    self.stage.count("checkpoint before another try");
                    self.tell(|| format!("step {}: saved: {:?}", step.id, saved.map(|at| at.offset)));
                }
                Next::Again => {}
            }
        }
        // Through a deposed leader a handle learns things that are no longer so.
        if self.last || self.stage.is_healed() && self.stage.ledger().deposed_since().0 == 0 {
            self.fail(format!("step {} does not come to its end", step.id));
        }
        false
    }

    async fn call(&self, run: &Run, step: Step, tried: u32, what: (bool, u64, Ends, u32)) -> Next {
        let (key, ms, ends, like) = what;
        let started = Mutex::new(None);
        let effect = |call: runlog_producer::Call| {
            let stage = self.stage.clone();
            let (life, of, id) = (self.life.id, step.run, step.id);
            // A receiver that recognises the key tells it the next time.
            let ends = if ends == Ends::Unknown && call.attempt > 1 { Ends::Done } else { ends };
            let number = {
                let mut ledger = stage.ledger();
                let begins = Started { life, run: of, step: id, keyed: key, request: call.id.as_str().to_owned() };
                let number = ledger.starts(begins, call.attempt, ends != Ends::Failed);
                let known = if key { ledger.known_result(of, id) } else { None };
                let result = known.unwrap_or_else(|| match ends {
                    Ends::Failed => failure("refused", &format!("by the receiver, {number}")),
                    _ => json!({ "effect": number }).to_string(),
                });
                ledger.results_in(of, id, &result);
                *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
                (number, result)
            };
            self.tell(|| format!("the effect of step {id} runs: call {} attempt {}", call.id, call.attempt));
            self.stage.count("effects");
            async move {
                sleep(Duration::from_millis(ms)).await;
                let (number, result) = number;
                match ends {
                    Ends::Unknown => Ended::Unknown("the receiver did not answer".to_owned()),
                    Ends::Failed => {
                        let message = result.strip_prefix("refused: ").unwrap_or_default().to_owned();
                        stage.ledger().ends(number, result.clone());
                        Ended::Failed(Failure { kind: "refused".to_owned(), message })
                    }
                    Ends::Done => {
                        stage.ledger().ends(number, result.clone());
                        Ended::Done(Json::parse(&result).unwrap_or_else(|_| Json::from(json!(null))))
                    }
                }
            }
        };
        let mut tool = run.tool("book", &json!({ "step": like }));
        if key {
            tool = tool.idempotency_key(format!("key-{}", step.id));
        }
        let at = tries(step, tried);
        self.stage.ledger().works(self.life.id, step.run, step.id, true);
        let came = self.guarded("call", at, ms, tool.once_or_unknown(effect)).await;
        self.stage.ledger().works(self.life.id, step.run, step.id, false);
        let effect = *started.lock().unwrap_or_else(PoisonError::into_inner);
        match came {
            None => {
                self.stage.count("call cancelled");
                self.tell(|| format!("step {}: the call is dropped", step.id));
                Next::Again
            }
            Some(Ok(answer)) => {
                self.tell(|| format!("step {}: {}", step.id, shown(&answer)));
                self.stage.ledger().answered(self.life.id, self.life.run, step.id, effect, &answer);
                Next::Done
            }
            Some(Err(error)) => {
                self.stage.ledger().call_failed(effect, &error);
                self.failed(run, step.id, &error).await
            }
        }
    }

    async fn write(&self, run: &Run, step: Step, tried: u32) -> Next {
        let at = tries(step, tried);
        let (life, id) = (self.life.id, step.id);
        let said = json!({ "step": id, "by": life, "try": tried });
        let operation = async {
            match step.what {
                What::Checkpoint => self.checkpoint(run).await.map(|position| vec![position]),
                What::Turn => run.turn("user", &said).await.map(|position| vec![position]),
                What::Record => run.record(known(run, id)?).await.map(|position| vec![position]),
                What::Batch { again } => {
                    let again = again.map(|again| known(run, again)).transpose()?;
                    run.batch(std::iter::once(known(run, id)?).chain(again).collect()).await
                }
                What::End => run.end(Outcome::Completed).await.map(|position| vec![position]),
                What::Misuse { of } => self.misuse(run, id, of).await.map(|()| Vec::new()),
                What::Flush | What::Call { .. } => run.flush().await.map(|()| Vec::new()),
            }
        };
        match self.guarded("write", at, 0, operation).await {
            None => {
                self.stage.count("write cancelled");
                self.tell(|| format!("step {id}: the write is dropped"));
                if step.what == What::Checkpoint { Next::Done } else { Next::Again }
            }
            Some(Ok(positions)) => {
                let at: Vec<_> =
                    positions.iter().map(|at| format!("{}:{}:{}", at.partition, at.offset, at.index)).collect();
                self.tell(|| format!("step {id}: {:?} → Ok at {}", step.what, at.join(" ")));
                for (nth, position) in positions.into_iter().enumerate() {
                    let what = format!("step {id} of run {} in life {life}", self.life.run);
                    self.stage.ledger().acknowledged(&what, &position, |record| match (&record.payload, step.what) {
                        (Payload::ConversationTurn(turn), What::Turn) => turn.content.to_value() == said,
                        (Payload::ConversationTurn(turn), What::Record) => {
                            turn.content.to_value() == json!({ "step": id })
                        }
                        (Payload::ConversationTurn(turn), What::Batch { again }) => {
                            let step = if nth == 0 { Some(id) } else { again };
                            turn.content.to_value() == json!({ "step": step })
                        }
                        (Payload::RunLifecycle(_), What::End) | (Payload::LoopCheckpoint(_), What::Checkpoint) => true,
                        _ => false,
                    });
                }
                Next::Done
            }
            // The agent's loop goes on.
            Some(Err(error)) if step.what == What::Checkpoint && error.action() != Action::Stop => {
                self.tell(|| format!("step {id}: {error}"));
                Next::Done
            }
            Some(Err(error)) => {
                let unknown = error.side_effect() == SideEffect::Unknown && error.action() == Action::Reopen;
                let next = self.failed(run, id, &error).await;
                // Reopening found the record in the log, or sent it again.
                if unknown && step.what == What::Turn && matches!(next, Next::Again) {
                    self.stage.count("reopened after an unknown write");
                    if !self.stage.ledger().has_turn(&said) {
                        self.fail(format!("step {id}: reopened, and what was unknown is not in the log: {error}"));
                    }
                }
                next
            }
        }
    }

    /// Makes a call under the key of another one. It must be refused.
    async fn misuse(&self, run: &Run, step: u32, of: u32) -> Result<(), Error> {
        let tool = run.tool("book", &json!({ "step": step })).idempotency_key(format!("key-{of}"));
        let effect = async |call: runlog_producer::Call| {
            self.fail(format!("step {step} runs under the key of step {of}, as call {}", call.id));
            Ok(Json::from(json!(null)))
        };
        match tool.once(effect).await {
            Err(error) if error.kind() == ErrorKind::Conflict && error.action() == Action::FixTheInput => {
                self.stage.count("key refused with other arguments");
                Ok(())
            }
            Err(error) => Err(error),
            Ok(answer) => {
                self.fail(format!("step {step} has the key of step {of}, and is answered: {}", shown(&answer)));
                Ok(())
            }
        }
    }

    /// Does what an error says can be done.
    async fn failed(&self, run: &Run, step: u32, error: &Error) -> Next {
        let (kind, action, effect) = (error.kind(), error.action(), error.side_effect());
        self.tell(|| format!("step {step}: {kind:?} {action:?} {effect:?}: {error}"));
        match action {
            Action::Retry => sleep(Duration::from_millis(700)).await,
            Action::Reopen => return self.reopen(run).await,
            Action::Stop => {
                self.stage.ledger().told_lost(self.life.run, self.life.id, error);
                return Next::Leave;
            }
            Action::Operator => {
                self.stage.count("waits for an operator");
                sleep(Duration::from_secs(4)).await;
                if kind != ErrorKind::ReconcileRequired {
                    // What stopped the handle may be over.
                    return self.reopen(run).await;
                }
            }
            Action::FixTheInput if kind == ErrorKind::Conflict => return Next::Leave,
            // A call that this handle requested.
            Action::FixTheInput if kind == ErrorKind::NotFound && self.stage.ledger().deposed_since().0 > 0 => {
                self.stage.count("known: a call is not found through a deposed leader");
                sleep(Duration::from_secs(1)).await;
            }
            Action::FixTheInput => {
                self.fail(format!("step {step} is refused: {error}"));
                return Next::Leave;
            }
        }
        Next::Again
    }

    async fn reopen(&self, run: &Run) -> Next {
        for _ in 0..TRIES_MAX {
            let step = self.reopens.fetch_add(1, Ordering::Relaxed);
            self.stage.count("reopen");
            match self.guarded("reopen", step, 0, run.reopen()).await {
                None => {
                    self.stage.count("reopen cancelled");
                    self.tell(|| "the reopening is dropped".to_owned());
                }
                Some(Ok(done)) => {
                    self.tell(|| format!("reopened: {done:?}"));
                    return Next::Again;
                }
                Some(Err(error)) => {
                    self.tell(|| format!("reopen: {:?} {:?}: {error}", error.kind(), error.action()));
                    match error.action() {
                        Action::Stop => {
                            self.stage.ledger().told_lost(self.life.run, self.life.id, &error);
                            return Next::Leave;
                        }
                        Action::FixTheInput => return Next::Leave,
                        _ => sleep(Duration::from_secs(1)).await,
                    }
                }
            }
        }
        if self.last {
            self.fail("the handle cannot be reopened".to_owned());
        }
        Next::Leave
    }

    /// Waits until nothing is held.
    async fn drain(&self, run: &Run) {
        let mut tries = 0;
        while run.held().0 > 0 {
            // As long as the faults last, and then for a while.
            tries += u32::from(self.stage.is_healed());
            if tries > TRIES_MAX {
                return self.fail(format!("{} results stay held", run.held().0));
            }
            let reopened = run.reopen().await;
            self.tell(|| format!("holds {} results: {reopened:?}", run.held().0));
            if reopened.is_ok() {
                drop(run.flush().await);
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Runs an operation with the faults that the plan has for it, and checks that it ends in time.
    async fn guarded<T>(&self, what: &str, step: u32, ms: u64, operation: impl Future<Output = T> + Send) -> Option<T> {
        let (mut cut, mut pauses) = (None, Vec::new());
        for event in &self.stage.plan.events {
            match *event {
                Event::Cut { life, step: at, polls } if (life, at) == (self.life.id, step) => cut = Some(polls),
                Event::Pause { life, step: at, polls, ms } if (life, at) == (self.life.id, step) => {
                    pauses.push((polls, ms));
                }
                _ => {}
            }
        }
        let begun = Instant::now();
        let mut guard = Guard::new(operation, cut, pauses);
        let came = (&mut guard).await;
        if guard.paused > 0 {
            self.stage.count("pause");
            self.tell(|| format!("{what} {step} stood still for {} ms", guard.paused));
        }
        // Before the effect and after it.
        let limit = 2 * OPERATION + Duration::from_millis(ms + guard.paused) + Duration::from_secs(1);
        if begun.elapsed() > limit {
            self.fail(format!("{what} {step} took {:?}", begun.elapsed()));
        }
        came
    }
}

/// The number under which a try of a step is addressed.
fn tries(step: Step, tried: u32) -> u32 {
    match tried {
        0 => step.id,
        1 => AGAIN + step.id,
        _ => u32::MAX,
    }
}

/// A record whose id and content are the same whoever writes it.
fn known(run: &Run, id: u32) -> Result<JournalRecord, Error> {
    let turn = ConversationTurn {
        message_id: format!("m-{id}"),
        parent_id: None,
        thread_id: None,
        kind: "user".to_owned(),
        content: Json::from(json!({ "step": id })),
    };
    let mut record = run.draft(turn)?;
    record.body.record_id = RecordId::new(format!("record-{id}"))?;
    Ok(record)
}

fn shown(answer: &Answer) -> String {
    let told = match (&answer.result, &answer.error) {
        (_, Some(error)) => failure(&error.kind, &error.message),
        (Some(result), None) => result.as_str().to_owned(),
        (None, None) => "nothing".to_owned(),
    };
    let how = if answer.recorded { "recorded" } else { "answered" };
    let at = answer.position.as_ref().map(|position| format!("{}:{}", position.partition, position.offset));
    format!("{how} {told} at {}", at.unwrap_or_default())
}
