//! Clients that compete for the same runs and look their calls up at `latest`. Each operation is an event with the times
//! of its call and its return; [`linearizability`](crate::linearizability) judges each run's events.
//!
//! A client never reopens: a failed handle is dropped, and the outcome of its appends stays unknown.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use anyhow::ensure;
use runlog_producer::{Action, Call, Error, Json, OpenOptions, Run, Runlog, SideEffect};
use serde_json::{Value, json};

use crate::{
    chaos::effect_desk::EffectDesk,
    linearizability::{Event, Operation, Status, Verdict, check},
    random::Random,
};

/// Claims of each of the two writers of a run, and calls after each.
const CLAIMS: u32 = 3;
const CALLS: u32 = 2;
/// Lookups of a run at most: all events must fit a history.
const LOOKUPS_MAX: usize = 60;
/// The pauses of a client, ms.
const PAUSE_MS: std::ops::Range<u64> = 5..120;

/// The clients of a group.
#[derive(Debug)]
pub struct Group<'a> {
    /// The producers of its writers, each with its own server.
    pub writers: [&'a Runlog; 2],
    /// The servers that lookups are sent to.
    pub servers: &'a [String],
    /// Sends lookups.
    pub http: reqwest::Client,
    /// Where effects happen.
    pub desk: &'a EffectDesk,
}

/// The figures of all histories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Histories {
    /// Runs.
    pub runs: usize,
    /// Events.
    pub events: usize,
    /// Events whose effect is uncertain.
    pub uncertain: usize,
    /// Histories too large to decide.
    pub undecided: usize,
}

/// The events of one run so far.
#[derive(Debug, Default)]
struct History {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
    calls: AtomicU32,
    writing: AtomicU32,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn push_certain(&self, operation: Operation, invoked: u64) {
        self.push(Event { operation, invoked, returned: Some(self.now()), certain: true });
    }

    /// A failed operation. If another writer has the run, no record of the operation can be appended later: it takes effect
    /// now or never.
    fn push_failed(&self, operation: Operation, invoked: u64, error: &Error) {
        // The error of a failed open does not report whether its claim was appended.
        let is_claim = matches!(operation, Operation::Claim(_));
        if !is_claim && error.action() == Action::Retry && error.side_effect() == SideEffect::None {
            return;
        }
        let returned = (error.action() == Action::Stop).then(|| self.now());
        self.push(Event { operation, invoked, returned, certain: false });
    }

    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Group<'_> {
    /// Runs one history after the other until `ending`.
    pub async fn live(&self, name: &str, seed: u64, ending: &AtomicBool) -> anyhow::Result<Histories> {
        let (mut figures, mut random) = (Histories::default(), Random::new(seed));
        while !ending.load(Ordering::Relaxed) {
            let run = format!("contended-{name}-{}", figures.runs);
            let history = History { writing: AtomicU32::new(2), ..History::default() };
            let seeds = [random.number(), random.number(), random.number()];
            let [one, other] = self.writers;
            tokio::try_join!(
                self.write(one, &run, &history, seeds[0]),
                self.write(other, &run, &history, seeds[1]),
                self.look(&run, &history, seeds[2])
            )?;
            let events = history.events.into_inner().unwrap_or_else(PoisonError::into_inner);
            figures.runs += 1;
            figures.events += events.len();
            figures.uncertain += events.iter().filter(|event| !event.certain).count();
            match check(&events) {
                Verdict::Linearizable => {}
                Verdict::Undecided => figures.undecided += 1,
                Verdict::Violated(after) => {
                    let shown: Vec<String> =
                        events.iter().enumerate().map(|(at, event)| format!("{at}: {event:?}")).collect();
                    anyhow::bail!("{run} is not linearizable, no place for {after:?}:\n{}", shown.join("\n"));
                }
            }
        }
        Ok(figures)
    }

    async fn write(&self, runlog: &Runlog, run_id: &str, history: &History, seed: u64) -> anyhow::Result<()> {
        let mut random = Random::new(seed);
        for _ in 0..CLAIMS {
            pause(&mut random).await;
            let (invoked, options) = (history.now(), OpenOptions { allow_unresolved: true, ..OpenOptions::default() });
            let run = match runlog.open_with(run_id, options).await {
                Ok(run) => run,
                Err(error) => {
                    history.push_failed(Operation::Claim(None), invoked, &error);
                    continue;
                }
            };
            history.push_certain(Operation::Claim(Some(run.recovery().epoch.get())), invoked);
            for _ in 0..CALLS {
                pause(&mut random).await;
                if !self.call(&run, history).await? {
                    break;
                }
            }
        }
        history.writing.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Makes a call; returns false if the handle has failed.
    async fn call(&self, run: &Run, history: &History) -> anyhow::Result<bool> {
        let (call, epoch) = (history.calls.fetch_add(1, Ordering::SeqCst), run.recovery().epoch.get());
        let (args, id) = (json!({ "call": call }), run.id().as_str());
        let intent = Operation::Intent { epoch, call };
        let result = Operation::Result { epoch, call };
        // The time at which the append of the result began: the intent was read back just before.
        let (invoked, ran) = (history.now(), AtomicU64::new(0));
        let effect = async |request: Call| {
            history.push_certain(intent, invoked);
            let booked = self.desk.book(id, "contended", &args, &request);
            ran.store(history.now(), Ordering::SeqCst);
            booked
                .map(Json::from)
                .map_err(|failed| runlog_producer::Failure { kind: "desk".into(), message: failed.to_string() })
        };
        let outcome = run.tool("contended", &args).once(effect).await;
        let ran = ran.load(Ordering::SeqCst);
        match outcome {
            Ok(answer) => {
                ensure!(!answer.recorded && ran > 0, "call {call} of {id} was recorded by another client");
                history.push_certain(result, ran);
                Ok(true)
            }
            Err(error) if ran == 0 => {
                history.push_failed(intent, invoked, &error);
                Ok(false)
            }
            Err(error) => {
                history.push_failed(result, ran, &error);
                Ok(false)
            }
        }
    }

    async fn look(&self, run_id: &str, history: &History, seed: u64) -> anyhow::Result<()> {
        let mut random = Random::new(seed);
        for at in 0..LOOKUPS_MAX {
            pause(&mut random).await;
            if history.writing.load(Ordering::SeqCst) == 0 {
                break;
            }
            let newest = u64::from(history.calls.load(Ordering::SeqCst));
            let call = u32::try_from(random.between(newest.saturating_sub(3), newest + 1))?;
            let (server, args) = (&self.servers[at % self.servers.len()], json!({ "call": call }).to_string());
            let mut url = reqwest::Url::parse(&format!("{server}/v1/runs/{run_id}/lookup"))?;
            let query = [("tool", "contended"), ("args", &args), ("consistency", "latest")];
            url.query_pairs_mut().extend_pairs(query);
            let invoked = history.now();
            if let Some(found) = status(self.http.get(url)).await? {
                history.push_certain(Operation::Lookup { call, found }, invoked);
            }
        }
        Ok(())
    }
}

/// The status in a lookup's answer; `None` if there is no answer.
async fn status(asked: reqwest::RequestBuilder) -> anyhow::Result<Option<Status>> {
    let Ok(response) = asked.send().await else { return Ok(None) };
    let code = response.status();
    let Ok(text) = response.text().await else { return Ok(None) };
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(match answer["status"].as_str() {
        Some("unknown") => Some(Status::Unknown),
        Some("pending") => Some(Status::Pending),
        Some("completed") => Some(Status::Completed),
        // The run has no record.
        _ if code == 404 && answer["kind"] == "not_found" => Some(Status::Unknown),
        _ => {
            ensure!(code.is_server_error(), "{code}: {text}");
            None
        }
    })
}

async fn pause(random: &mut Random) {
    let millis = random.between(PAUSE_MS.start, PAUSE_MS.end);
    tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
}
