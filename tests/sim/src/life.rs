//! A process: opens a run and executes its agent's steps under the plan's faults.

use crate::{
    ambient,
    dice::Dice,
    ledger::run_id,
    link::Link,
    network::{ADDRESS, Network},
    plan::{LINK_OF_LIFE, Life, OPEN, REOPEN, RUNS, Start, Step, Via, What},
    scribe::Scribe,
    stage::Stage,
};
use runlog_log::Log;
use runlog_producer::{Action, Config, Error, Journal, Json, LoopState, OpenOptions, Run, Runlog};
use runlog_schemas::answer::Position;
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

mod autosave;
mod failures;
mod steps;

/// How long an append waits, or a query.
const DEADLINE: Duration = Duration::from_secs(6);
/// A query is sent again until its deadline, and the last time may take as long as an answer may.
const QUERY_MAX: Duration = Duration::from_secs(18);
/// How long an intent may take to be read back.
pub(crate) const READ_BACK: Duration = Duration::from_secs(4);
/// How long an operation may take.
pub(crate) const OPERATION: Duration = Duration::from_secs(40);
/// How often a step is tried, and how often an opening.
const TRIES_MAX: u32 = 60;

/// A process with its dependencies.
pub(crate) struct Process {
    stage: Arc<Stage>,
    network: Arc<Network>,
    /// Its own connection to the log, if it has one.
    link: Option<Arc<Link>>,
    life: Life,
    /// Whether it must finish its steps.
    last: bool,
    /// The steps that its agent has done.
    done: Mutex<BTreeSet<u32>>,
    /// How many calls are in flight, and the steps done when the first of them began.
    calls: Mutex<(u32, BTreeSet<u32>)>,
    /// Whether at most one step is in flight.
    alone: AtomicBool,
    opens: AtomicU32,
    reopens: AtomicU32,
}

/// The consequence of a step's end.
enum Next {
    Done,
    Again,
    /// As `Again`. The call waits for a decision.
    Waits,
    /// As `Again`. A server that admits one append at a time refused this one for lack of capacity, which may happen
    /// any number of times.
    NoRoom,
    /// The process leaves the run.
    Leave,
}

impl Process {
    pub(crate) fn new(stage: &Arc<Stage>, network: &Arc<Network>, life: Life, last: bool) -> Arc<Self> {
        let (stage, network) = (stage.clone(), network.clone());
        let (opens, reopens) = (AtomicU32::new(OPEN), AtomicU32::new(REOPEN));
        let link = (life.via == Via::Log).then(|| Arc::new(Link::new(LINK_OF_LIFE + life.id, &stage)));
        if let Some(link) = &link {
            stage.count("appends straight to the log");
            stage.add_link(link.clone());
        }
        Arc::new(Self {
            stage,
            network,
            link,
            life,
            last,
            done: Mutex::default(),
            calls: Mutex::default(),
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

    /// Works until its steps are done, or its run is lost or ended. Returns whether its steps are done.
    pub(crate) async fn live(self: Arc<Self>) -> bool {
        let Some((runlog, run)) = self.open().await else { return false };
        let done = {
            let scribe = Scribe { stage: self.stage.clone(), life: self.life.id, run: RUNS + self.life.run };
            let steps = async {
                let done = self.steps(&run).await;
                self.drain(&run).await;
                done
            };
            tokio::select! {
                biased;
                done = steps => done,
                () = scribe.write(&runlog), if self.life.writes => false,
                () = self.watch(&runlog) => false,
            }
        };
        self.tell(|| "leaves".to_owned());
        self.stage.ledger().left(self.life.id);
        done
    }

    fn config(&self) -> Config {
        let server = ADDRESS.to_owned();
        let mut config = match &self.link {
            None => Config::new(Journal::Http(server), "agent"),
            Some(_) => Config::new(Journal::Kafka { brokers: "none".to_owned(), server }, "agent"),
        };
        config.log = self.link.clone().map(|link| link as Arc<dyn Log>);
        config.claimed_by = format!("life-{}", self.life.id);
        (config.deadline, config.read_back, config.operation) = (DEADLINE, READ_BACK, OPERATION);
        (config.clock, config.ids) = (ambient::millis, ambient::id);
        config.buffer_records = self.life.buffer;
        if self.life.id.is_multiple_of(2) {
            // As in a long run: keys are looked up.
            config.covered_list_max = 0;
        }
        (config.calls_max, config.held_bytes_max) = (self.life.calls, self.life.held_bytes);
        config.http = Some(self.network.sender());
        config
    }

    async fn open(&self) -> Option<(Runlog, Run)> {
        for _ in 0..TRIES_MAX {
            let step = self.opens.fetch_add(1, Ordering::Relaxed);
            let opening = async {
                let runlog = Runlog::connect(self.config()).await?;
                let Life { allow_unresolved, start, .. } = self.life;
                let from_start = start == Start::Run;
                let options = OpenOptions { allow_unresolved, from_start, ..OpenOptions::default() };
                let run = runlog.open_with(run_id(self.life.run).as_str(), options).await?;
                Ok::<_, Error>((runlog, run))
            };
            let Some(opened) = self.guarded("open", step, (0, None), opening).await else { continue };
            match opened {
                Ok(opened) if self.life.start == Start::Unread => {
                    self.stage.count("opened, and not read");
                    return Some(opened);
                }
                Ok((runlog, run)) => {
                    let recovery = run.recovery();
                    self.tell(|| {
                        let (epoch, status) = (recovery.epoch, &recovery.status);
                        format!("open → epoch {epoch}, {status}, {} pending", recovery.pending.len())
                    });
                    self.resume(&run);
                    return Some((runlog, run));
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

    /// Queries the run from time to time, over the same connection, until this is dropped. A query ends in time
    /// regardless of the servers' state.
    async fn watch(&self, runlog: &Runlog) {
        let mut dice = Dice::new(self.stage.seed(), 4_000 + u64::from(self.life.id));
        loop {
            sleep(Duration::from_millis(dice.between(1_000, 12_000))).await;
            let start = Instant::now();
            let looked = runlog.run(run_id(self.life.run).as_str()).await;
            if start.elapsed() > QUERY_MAX {
                self.fail(format!("a query took {:?}: {:?}", start.elapsed(), looked.map(|run| run.is_some())));
            }
        }
    }

    fn done(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues after the checkpoint of the opening, which must be the run's last one and unchanged.
    fn resume(&self, run: &Run) {
        let checkpoint = run.recovery().checkpoint.as_ref();
        let id = checkpoint.map(|checkpoint| checkpoint.checkpoint_id.as_str());
        if self.life.start == Start::Checkpoint {
            self.stage.ledger().resumes(self.life.run, self.life.id, id);
        }
        let Some(checkpoint) = checkpoint else { return };
        let state = checkpoint.state.as_ref().map(Json::to_value).unwrap_or_default();
        let steps = state["done"].as_array().into_iter().flatten();
        *self.done() = steps.filter_map(|step| u32::try_from(step.as_u64()?).ok()).collect();
        self.stage.count("resumed at a checkpoint");
        self.tell(|| format!("resumes after step {:?}", self.done().last()));
        let messages: Vec<Value> = checkpoint.messages.iter().flatten().map(Json::to_value).collect();
        if messages != messages_of(&self.done()).iter().map(Json::to_value).collect::<Vec<_>>() {
            self.fail(format!(
                "the messages of checkpoint {id:?} are {messages:?}, and do not match its state {state}"
            ));
        }
    }

    /// Saves which steps are done.
    async fn checkpoint(&self, run: &Run) -> Result<Position, Error> {
        let state = state_of(&self.done());
        run.checkpoint(&state).await
    }

    async fn steps(&self, run: &Run) -> bool {
        let mut dice = Dice::new(self.stage.seed(), 1_000 + u64::from(self.life.id));
        let mut group: Vec<Step> = Vec::new();
        let steps = self.stage.plan.steps(self.life.run).into_iter();
        let left: Vec<Step> = steps.filter(|step| !self.done().contains(&step.id)).collect();
        let mut steps = left.into_iter().peekable();
        while let Some(step) = steps.next() {
            if self.done().contains(&step.id) {
                // It was done while an earlier step waited.
                continue;
            }
            group.push(step);
            let together = |next: &Step| {
                matches!(
                    next.what,
                    What::Call { .. } | What::Turn | What::Record { .. } | What::Batch { .. } | What::End
                )
            };
            if step.with_next && steps.peek().is_some_and(together) {
                continue;
            }
            let share = dice.between(0, 100);
            sleep(Duration::from_millis(step.think * share / 100)).await;
            self.alone.store(group.len() == 1, Ordering::Relaxed);
            let group = std::mem::take(&mut group);
            let all = group.iter().map(|step| self.step(run, *step));
            let (all, ()) = tokio::join!(futures_util::future::join_all(all), self.autosave(run, &group));
            if all.contains(&false) {
                return false;
            }
        }
        true
    }

    /// Whether the process continues.
    async fn step(&self, run: &Run, step: Step) -> bool {
        let (mut tried, mut without_room) = (0, 0);
        while tried < TRIES_MAX + without_room {
            let next = match step.what {
                What::Call { key, ms, ends, like } => self.call(run, step, tried, (key, ms, ends, like)).await,
                _ => self.write(run, step, tried).await,
            };
            without_room += u32::from(matches!(next, Next::NoRoom));
            match next {
                Next::Done => {
                    self.done().insert(step.id);
                    return true;
                }
                Next::Leave => return false,
                Next::Waits
                    if self.alone.load(Ordering::Relaxed) && (self.life.id + step.id + tried).is_multiple_of(3) =>
                {
                    self.try_later_call(run, step).await;
                }
                // An interrupted agent may save its state before it continues.
                Next::Again | Next::NoRoom
                    if self.alone.load(Ordering::Relaxed) && (step.id + tried).is_multiple_of(2) =>
                {
                    let saved = self.checkpoint(run).await;
                    self.stage.count("checkpoint before another try");
                    self.tell(|| format!("step {}: saved: {:?}", step.id, saved.map(|at| at.offset)));
                }
                Next::Again | Next::NoRoom | Next::Waits => {}
            }
            tried += 1;
        }
        // Through a deposed leader a handle sees outdated state.
        let must_end = self.last || self.stage.is_healed() && self.stage.ledger().deposed_since().0 == 0;
        if must_end && !self.is_excused() {
            self.fail(format!("step {} does not end", step.id));
        }
        false
    }
}

fn messages_of(done: &BTreeSet<u32>) -> Vec<Json> {
    done.iter().map(|step| Json::from(json!({ "done": step }))).collect()
}

/// The state of an agent with these steps done.
fn state_of(done: &BTreeSet<u32>) -> LoopState {
    LoopState {
        session_id: "session".to_owned(),
        turn: done.len() as u64,
        messages: messages_of(done),
        state: Some(Json::from(json!({ "done": done }))),
        tool_calls_count: 0,
    }
}
