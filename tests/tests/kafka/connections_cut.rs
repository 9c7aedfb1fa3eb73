//! All connections to the broker are closed during bookings, those of the agents and of the projector, and new ones are
//! refused for a while. Each effect happens once, and every acknowledged record is in the journal.
//!
//! `RUNLOG_CUTS` is the number of interruptions and their length in seconds (default `1x10`). `make cuts` runs `3x30`,
//! which is longer than the append timeout.

use anyhow::{Context, ensure};
use runlog_log::kafka::KafkaLog;
use runlog_tests::{
    agent_process::AgentProcess,
    deployment::Deployment,
    kafka::Broker,
    random::Random,
    server::Launch,
    tcp_proxy::TcpProxy,
    writers::{Story, Writers, compare, kafka::Kafka},
};
use serde_json::{Value, json};
use std::{env, sync::Arc, thread, time::Duration};

/// How often an agent reopens its run for one booking.
const REOPENS_MAX: usize = 5;
/// Writers beside the agents, and what they offer together, records per second.
const STORIES: usize = 20;
const RATE: f64 = 300.0;

/// Where each agent is held up when the connections are cut, and whether its booking has a key.
const MOMENTS: [(&str, Option<&str>); 4] = [
    ("record_numbered", None),
    ("intent_acknowledged", None),
    ("effect_happened", None),
    ("effect_happened", Some("k")),
];

/// How often, and for how long.
fn cuts() -> anyhow::Result<(u32, Duration)> {
    let text = env::var("RUNLOG_CUTS").unwrap_or_else(|_| "1x10".to_owned());
    let (count, seconds) = text.split_once('x').with_context(|| format!("RUNLOG_CUTS is like 3x30, not {text:?}"))?;
    Ok((count.parse()?, Duration::from_secs(seconds.parse()?)))
}

fn book(seat: &str, key: Option<&str>, hold: bool) -> Value {
    let key = key.map(|key| format!("{key} {seat}"));
    json!({ "call": { "tool": "book", "args": { "seat": seat }, "key": key, "hold": hold } })
}

/// Brings an agent to where it is held up.
fn hold(agent: &mut AgentProcess, (moment, key): (&str, Option<&str>), seat: &str) -> anyhow::Result<()> {
    let effect = moment == "effect_happened";
    if !effect {
        agent.arm_failpoint(moment)?;
    }
    agent.run_to_failpoint(moment, &book(seat, key, effect))
}

/// What the booking comes to: what the agent says when it goes on, or behind a reopening. How often it reopened, too.
fn booked(agent: &mut AgentProcess, seat: &str, key: Option<&str>) -> anyhow::Result<(Value, usize)> {
    let mut said = agent.receive()?;
    for reopened in 0..REOPENS_MAX {
        if said["result"].is_object() {
            return Ok((said, reopened));
        }
        ensure!(["unavailable", "stale"].iter().any(|kind| said["error"] == *kind), "{said}");
        // Where the connections are not back yet it fails, and is asked again.
        agent.request(&json!("reopen"))?;
        said = agent.request(&book(seat, key, false))?;
    }
    anyhow::bail!("no end of it: {said}")
}

/// What the server says while it cannot ask the broker: what it has where that is enough, and otherwise nothing.
fn nothing_old_in_disguise(deployment: &Deployment, run: &str) -> anyhow::Result<()> {
    let (status, said) = deployment.server.get(&format!("/v1/runs/{run}?deadline_ms=1000"))?;
    ensure!(status == 503 && ["unavailable", "stale"].iter().any(|kind| said["kind"] == *kind), "{status} {said}");
    let (status, said) = deployment.server.get(&format!("/v1/runs/{run}?consistency=eventual"))?;
    ensure!(status == 200, "{status} {said}");
    Ok(())
}

/// A booking as an agent was told of it.
struct Booking {
    run: &'static str,
    seat: String,
    said: Value,
}

/// Every booking is in its run's records as its agent was told, and happened once.
fn all_is_there(deployment: &Deployment, bookings: &[Booking]) -> anyhow::Result<()> {
    let ledger = deployment.ledger()?;
    ensure!(ledger.len() == bookings.len(), "{} effects of {} bookings", ledger.len(), bookings.len());
    for Booking { run, seat, said } in bookings {
        let lines: Vec<&Value> =
            ledger.iter().filter(|line| line["run"] == *run && line["args"]["seat"] == seat.as_str()).collect();
        ensure!(lines.len() == 1 && lines[0]["result"] == said["result"], "{seat} of {run}: {lines:?}, told {said}");
        let args = json!({ "seat": seat }).to_string();
        let found = deployment.server.runlog().answer(&["lookup", run, "--tool", "book", "--args", &args])?;
        ensure!(found["status"] == "completed" && found["result"] == said["result"], "{seat} of {run}: {found}");
        ensure!(found["position"] == said["position"], "{found}, not where it was acknowledged: {said}");
    }
    Ok(())
}

#[test]
fn an_effect_happens_once_and_nothing_acknowledged_is_lost_when_connections_drop() -> anyhow::Result<()> {
    let ((cuts, pause), seed) = (cuts()?, Random::seed());
    println!("RUNLOG_SEED={seed} RUNLOG_CUTS={cuts}x{}", pause.as_secs());
    let proxy = TcpProxy::start()?;
    let broker = Broker::behind(&proxy)?;
    let deployment = Deployment::on(&broker)?;
    // Beside the agents, many writers on a topic with a projector of its own.
    let (folder, config) = (tempfile::tempdir()?, broker.unique_topic());
    let other = Launch::kafka(folder.path(), &config).partitions(4).start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stories = (0..STORIES).map(|number| Story::new(number, seed, number.is_multiple_of(3))).collect();
    let sink = Arc::new(Kafka(KafkaLog::connect(config)?));
    let writers = runtime.block_on(async { Writers::start_at(RATE, stories, &sink) });

    let runs = ["numbered", "acknowledged", "happened", "keyed"];
    let mut agents: Vec<AgentProcess> = runs.iter().map(|_| deployment.agent()).collect::<anyhow::Result<_>>()?;
    for (agent, run) in agents.iter_mut().zip(runs) {
        agent.open(run)?;
    }
    let (mut bookings, mut reopened, mut connections) = (Vec::new(), 0, 0);
    for cut in 0..cuts {
        let seat = format!("{cut}A");
        for (agent, moment) in agents.iter_mut().zip(MOMENTS) {
            hold(agent, moment, &seat)?;
        }
        connections += proxy.disconnect();
        agents.iter_mut().try_for_each(AgentProcess::release)?;
        nothing_old_in_disguise(&deployment, runs[0])?;
        // The injury itself.
        thread::sleep(pause);
        proxy.connect_to(broker.port());
        for ((agent, run), (_, key)) in agents.iter_mut().zip(runs).zip(MOMENTS) {
            let (said, times) = booked(agent, &seat, key).with_context(|| run)?;
            reopened += times;
            bookings.push(Booking { run, seat: seat.clone(), said });
        }
    }
    all_is_there(&deployment, &bookings)?;
    deployment.verified()?;
    let (acknowledged, repeated) = (writers.acknowledged(), writers.repeated());
    let stories = runtime.block_on(writers.finish())?;
    compare::everything(&other, &stories)?;
    println!(
        "{connections} connections cut, {} refused; {} bookings, {reopened} behind a reopening; {acknowledged} records of \
         other writers acknowledged, {repeated} batches sent again",
        proxy.refused(),
        bookings.len()
    );
    ensure!(connections >= agents.len() && proxy.refused() > 0, "nobody was cut off: that proves nothing");
    Ok(())
}
