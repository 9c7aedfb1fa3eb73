//! A seed from its plan to its end.

use crate::{
    ambient,
    dice::Dice,
    grants::Sender,
    intruder::Intruder,
    ledger::{differs, run_id},
    letter::Letter,
    life::Process,
    mirror::{self, Mirror},
    network::Network,
    operator::{OPERATORS, Operator},
    plan::{Event, FAULTS_END, LETTER, Life, Plan, RUNS, SERVERS, Start, Via},
    publisher::{PUBLISHERS, Publisher},
    reader::Reader,
    server::Server,
    stage::{Counts, Stage},
    takeover, trouble,
};
use anyhow::Context;
use axum::{body::Body, http::Request};
use runlog_projector::index::{
    failpoint,
    store::{MemoryFolders, Storage},
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

/// The number of the first of the last lives, which bring each run to its end.
const LAST_LIFE: u32 = 100;
/// All processes end within this time after the last fault.
const END_MAX: Duration = Duration::from_secs(3_600);

/// A server reads the skip of a record that stopped a partition within so many seconds.
const READS_SKIP_MAX: u32 = 10;

/// One seed in so many has its indices on disk.
const DISK_SEEDS: u64 = 16;
/// The purpose for which the kind of indices is drawn.
const INDICES_PURPOSE: u64 = 2;

/// The result of a seed.
#[derive(Debug)]
pub struct Came {
    /// The violations; empty if there are none.
    pub failures: Vec<String>,
    /// The story: a line for each action, with actor and time.
    pub story: Vec<String>,
    /// The hash of the log's bytes and of the story.
    pub hash: String,
    /// How often each fault, and some other things, happened.
    pub counts: Counts,
}

/// The place of the indices of a seed's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// In RocksDB databases, whose opening and closing takes most of the seed's time.
    Disk,
    /// In memory.
    Memory,
}

impl Indices {
    /// The place of a seed's indices: some are on disk, so that RocksDB is exercised too.
    pub fn for_seed(seed: u64) -> Self {
        if Dice::new(seed, INDICES_PURPOSE).between(1, DISK_SEEDS) == 1 { Self::Disk } else { Self::Memory }
    }

    /// The other kind.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Disk => Self::Memory,
            Self::Memory => Self::Disk,
        }
    }
}

/// Runs a plan, with the indices of its seed.
pub fn run(plan: &Plan) -> anyhow::Result<Came> {
    run_on(plan, Indices::for_seed(plan.seed))
}

/// Runs a plan. Its result does not depend on the kind of indices.
pub fn run_on(plan: &Plan, indices: Indices) -> anyhow::Result<Came> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    match indices {
        Indices::Memory => {
            let storage = Storage::Memory(MemoryFolders::default());
            runtime.block_on(whole(plan.clone(), &storage, Path::new("")))
        }
        Indices::Disk => {
            let memory = Path::new("/dev/shm");
            let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
            let came = runtime.block_on(whole(plan.clone(), &Storage::Disk, folder.path()));
            // Running tasks have files open in the folder.
            drop(runtime);
            came
        }
    }
}

async fn whole(plan: Plan, storage: &Storage, folder: &Path) -> anyhow::Result<Came> {
    ambient::begin();
    let stage = Stage::new(plan);
    let mut servers = Vec::new();
    for id in 0..SERVERS {
        let server = Server::new(id, &stage, storage.clone(), folder.join(format!("server-{id}")));
        server.start().await?;
        servers.push(server);
    }
    let mixed = stage.plan.events.iter().find_map(|event| match event {
        Event::Mixed { percent } => Some(*percent),
        _ => None,
    });
    if mixed.is_some() {
        stage.count("requests to any server");
    }
    let mirror = mirror::serve(&stage, storage.clone(), folder.join("mirror"));
    let network = Network::new(stage.clone(), servers.clone(), mirror.clone(), mixed.unwrap_or_default());
    let mut tasks: Vec<JoinHandle<anyhow::Result<()>>> = Vec::new();
    for event in stage.plan.events.clone() {
        let (stage, network, servers) = (stage.clone(), network.clone(), servers.clone());
        tasks.push(tokio::spawn(async move { weather(event, &stage, &network, &servers).await }));
    }
    let mut publishers = Vec::new();
    let lives: Vec<_> = stage
        .plan
        .lives()
        .into_iter()
        .map(|life| tokio::spawn(run_life(life, stage.clone(), network.clone())))
        .collect();
    for id in 0..PUBLISHERS {
        let publisher = Publisher { id, stage: stage.clone(), network: network.clone() };
        publishers.push(tokio::spawn(publisher.publish()));
    }
    let mut others = Vec::new();
    for id in 0..OPERATORS {
        others.push(tokio::spawn(Operator { id, stage: stage.clone(), network: network.clone() }.work()));
    }
    others.push(tokio::spawn(Reader { stage: stage.clone(), network: network.clone() }.ask()));
    if mirror.is_some() {
        others.push(tokio::spawn(mirror::copy(stage.clone())));
    }
    sleep(Duration::from_millis(FAULTS_END)).await;
    for task in tasks {
        task.await.context("a fault panicked")??;
    }
    stage.heal();
    stage.tell(|| "no fault begins any more".to_owned());
    for life in lives {
        let ended = timeout(END_MAX, life).await;
        match ended {
            Ok(ended) => ended.context("a life panicked")?,
            Err(_) => stage.ledger().fail("a process does not end".to_owned()),
        }
    }
    for publisher in publishers {
        if timeout(END_MAX, publisher).await.is_err() {
            stage.ledger().fail("a publisher does not end".to_owned());
        }
    }
    for run in (0..RUNS).chain([LETTER]) {
        let life = Life {
            id: LAST_LIFE + run,
            run,
            at: 0,
            dies: None,
            via: if run == LETTER { Via::Protocol } else { Via::Server },
            buffer: 4096,
            calls: 256,
            held_bytes: 64 << 20,
            writes: false,
            allow_unresolved: false,
            start: Start::Checkpoint,
        };
        match timeout(END_MAX, spawn_process(&stage, &network, life, true)).await {
            Ok(ended) => {
                let has_done_all = ended.context("a life panicked")?;
                let mut ledger = stage.ledger();
                if !has_done_all && !ledger.has_run_ended(run) && !ledger.is_excused(run, LAST_LIFE + run) {
                    ledger.fail(format!("the last process of run {run} leaves before its last step"));
                }
            }
            Err(_) => stage.ledger().fail(format!("run {run} does not end")),
        }
    }
    others.iter().for_each(JoinHandle::abort);
    for server in &servers {
        for run in 0..=LETTER {
            let Some((recovery, model)) = quiet(&stage, server, run).await? else {
                stage.ledger().fail("somebody still appends in the end".to_owned());
                continue;
            };
            // It has no record.
            if model.is_null() && recovery["kind"] == "not_found" {
                continue;
            }
            if let Some(difference) = differs(&recovery, &model) {
                let detail = recovery["detail"].as_str().unwrap_or_default();
                stage.ledger().fail(format!("in the end {} says of run {run}: {difference} {detail}", server.name()));
            }
        }
    }
    match &mirror {
        Some(mirror) if stage.mirror.as_ref().is_some_and(Mirror::is_cut_off) => {
            takeover::check(&stage, mirror).await?
        }
        Some(mirror) => mirror::check(&stage, mirror).await?,
        None => {}
    }
    stage.ledger().finish();
    for server in servers.iter().chain(&mirror) {
        server.kill().await?;
    }
    let failures = stage.ledger().failures().to_vec();
    let mut counts = stage.counts();
    counts.extend(stage.ledger().excused());
    Ok(Came { failures, story: stage.story(), hash: stage.hash(), counts })
}

/// A server's and the model's recovery of a run, at the same log end. After an operator has left, its decision may still be
/// appended during a query. Each such decision requires one more query; `None` if appends do not end.
async fn quiet(stage: &Stage, server: &Server, run: u32) -> anyhow::Result<Option<(Value, Value)>> {
    for _ in 0..=OPERATORS {
        let before = stage.ledger().landed_records();
        let recovery = recovery_of_reader(stage, server, run).await?;
        let ledger = stage.ledger();
        if ledger.landed_records() == before {
            return Ok(Some((recovery, ledger.recovery(run))));
        }
    }
    Ok(None)
}

/// The same as [`recovery`], once the server has read the skip of the record that stopped the run's partition.
async fn recovery_of_reader(stage: &Stage, server: &Server, run: u32) -> anyhow::Result<Value> {
    for _ in 0..READS_SKIP_MAX {
        let answer = recovery(server, run).await?;
        if answer["kind"] != "partition_stopped" || !stage.ledger().stopped().is_empty() {
            return Ok(answer);
        }
        sleep(Duration::from_secs(1)).await;
    }
    recovery(server, run).await
}

/// A server's recovery of a run, queried without the network.
async fn recovery(server: &Server, run: u32) -> anyhow::Result<Value> {
    let path = format!("/v1/runs/{}/recovery?full=true&content=false&limit=1000", run_id(run));
    let request = Request::builder().uri(path).body(Body::empty())?;
    let answering = server.answer(request).context("a server that is down")?;
    let answer = answering.whole().await.context("no answer")?;
    Ok(serde_json::from_slice(answer.body())?)
}

/// Starts a process.
fn spawn_process(stage: &Arc<Stage>, network: &Arc<Network>, life: Life, last: bool) -> JoinHandle<bool> {
    match life.via {
        Via::Protocol => tokio::spawn(Letter::new(stage, network, life, last).live()),
        Via::Server | Via::Log => tokio::spawn(Process::new(stage, network, life, last).live()),
    }
}

/// Runs a process from its beginning to its end or its death.
async fn run_life(life: Life, stage: Arc<Stage>, network: Arc<Network>) {
    sleep(Duration::from_millis(life.at)).await;
    let living = spawn_process(&stage, &network, life, false);
    let Some(dies) = life.dies else {
        if let Err(error) = living.await {
            stage.ledger().fail(format!("life {} panicked: {error}", life.id));
        }
        return;
    };
    let abort = living.abort_handle();
    tokio::select! {
        biased;
        _ = living => {}
        () = sleep(Duration::from_millis(dies.saturating_sub(life.at))) => {
            abort.abort();
            stage.ledger().died(life.id);
            let by_protocol = life.via == Via::Protocol;
            stage.count(if by_protocol { "client of the protocol killed" } else { "process killed" });
            stage.tell(|| format!("life {} (run {}) is killed", life.id, life.run));
        }
    }
}

/// Claims a run without a handle.
pub(crate) async fn claim(run: u32, stage: &Stage, network: &Network) {
    // The last process of a run has it to the end.
    if stage.is_healed() {
        return;
    }
    let path = format!("/v1/runs/{}/claims?deadline_ms=5000", run_id(run));
    let Ok(answer) =
        network.send(Sender::Agent, "POST", &path, json!({ "claimed_by": "client" }).to_string().into_bytes()).await
    else {
        return;
    };
    let claim: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    stage.tell(|| format!("a client claims run {run}: {} {claim}", answer.status()));
    if let (true, Some(writer), Some(epoch)) =
        (answer.status().is_success(), claim["writer_id"].as_str(), claim["epoch"].as_u64())
    {
        stage.ledger().claim_confirmed(run, writer, epoch);
    }
}

/// Applies one of the plan's timed faults.
async fn weather(
    event: Event,
    stage: &Arc<Stage>,
    network: &Arc<Network>,
    servers: &[Arc<Server>],
) -> anyhow::Result<()> {
    let server = |id: u32| servers.get(id as usize).with_context(|| format!("no server {id}"));
    let wait = async |ms| sleep(Duration::from_millis(ms)).await;
    match event {
        Event::Held { server: id, at, ms } => {
            wait(at).await;
            stage.count("server reads nothing");
            stage.tell(|| format!("server {id} reads nothing for {ms} ms"));
            server(id)?.link().hold(true);
            wait(ms).await;
            server(id)?.link().hold(false);
        }
        Event::Deposed { server: id, at, ms } => {
            wait(at).await;
            stage.count("server reads from a deposed leader");
            trouble::depose(stage.clone(), id, ms).await;
        }
        Event::Behind { server: id, at, ms, records } => {
            wait(at).await;
            trouble::report_older_ends(stage, server(id)?, ms, records).await;
        }
        Event::Overloaded { server: id, at, ms } => {
            wait(at).await;
            stage.tell(|| format!("server {id} refuses every request for {ms} ms"));
            network.overload(id, true);
            wait(ms).await;
            network.overload(id, false);
        }
        Event::Full { server: id, at, ms } => {
            wait(at).await;
            let Some(link) = stage.link(id) else { return Ok(()) };
            stage.tell(|| format!("the queue of link {id} is full for {ms} ms"));
            link.fill(true);
            wait(ms).await;
            link.fill(false);
        }
        Event::ReaderFails { server: id, at } => {
            wait(at).await;
            stage.count("reader failed for good");
            stage.tell(|| format!("the reader of server {id} fails for good"));
            server(id)?.link().fail_reader();
        }
        Event::Panics { server: id, at, voided } => {
            wait(at).await;
            let point = if voided { failpoint::SKIP_VOIDED } else { failpoint::BATCH_FOLDED };
            stage.tell(|| format!("server {id} is to panic at {point}"));
            server(id)?.panics(point);
        }
        Event::Claims { run, at } => {
            wait(at).await;
            stage.count("run claimed by two clients");
            tokio::join!(claim(run, stage, network), claim(run, stage, network));
        }
        Event::Poison { partition, at } => {
            wait(at).await;
            trouble::poison(stage, partition);
        }
        Event::Garbage { partition, at } => {
            wait(at).await;
            trouble::garbage(stage, partition);
        }
        Event::SkipApplied { run, kind, nth, back, after } => {
            let operator = Operator { id: OPERATORS, stage: stage.clone(), network: network.clone() };
            operator.skip_applied(run, (kind, nth, back), after).await;
        }
        Event::SkipEvidence { run, nth, after } => {
            let operator = Operator { id: OPERATORS, stage: stage.clone(), network: network.clone() };
            operator.skip_nth_evidence(run, nth, after).await;
        }
        Event::GiveUp { run, nth, after, skips_after } => {
            let operator = Operator { id: OPERATORS, stage: stage.clone(), network: network.clone() };
            operator.give_up(run, nth, after, skips_after).await;
        }
        Event::Intrusion { run, at, deed, shows } => {
            wait(at).await;
            let intruder = Intruder { stage: stage.clone(), network: network.clone() };
            intruder.act(run, deed, shows).await;
        }
        Event::Truncated { partition, at } => {
            wait(at).await;
            trouble::truncate(stage, servers, partition).await;
        }
        Event::AsksMirror { at, ms, percent } => {
            wait(at).await;
            stage.tell(|| format!("for {ms} ms {percent} of 100 requests go to the mirror's server"));
            network.ask_mirror(percent);
            wait(ms).await;
            network.ask_mirror(0);
        }
        Event::HomeLost { at } => {
            // The copier may end after the last fault.
            let stage = stage.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(at)).await;
                stage.mirror.iter().for_each(Mirror::cut_off);
            });
        }
        Event::CopierPauses { at, ms } => {
            wait(at).await;
            let Some(mirror) = &stage.mirror else { return Ok(()) };
            stage.count("copier of a mirror pauses");
            mirror.pause(true);
            wait(ms).await;
            mirror.pause(false);
        }
        Event::Switch { at } => {
            wait(at).await;
            stage.count("address switched");
            network.switch();
        }
        Event::Restart { server: id, at, ms } => {
            wait(at).await;
            stage.count("server killed");
            server(id)?.kill().await?;
            wait(ms).await;
            let server = server(id)?;
            // It connects to the present leaders: a server that sees an end before its index at its start stops the
            // partition until it starts again.
            server.link().report_older_ends(None);
            stage.ledger().ends_moved();
            while let Err(error) = server.start().await {
                stage.tell(|| format!("{error:#}"));
                wait(1_000).await;
            }
        }
        _ => {}
    }
    Ok(())
}
