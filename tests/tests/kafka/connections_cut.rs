//! All connections of the agents and of the projector to the broker are closed during bookings, and new connections are
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
/// Writers in addition to the agents.
const STORIES: usize = 20;
/// The rate of all writers together, records per second.
const RATE: f64 = 300.0;

/// The failpoint at which each agent waits when the connections are cut, and the key of its booking.
const MOMENTS: [(&str, Option<&str>); 4] = [
    ("record_numbered", None),
    ("intent_acknowledged", None),
    ("effect_happened", None),
    ("effect_happened", Some("k")),
];

/// The number of interruptions and their length.
fn cuts() -> anyhow::Result<(u32, Duration)> {
    let text = env::var("RUNLOG_CUTS").unwrap_or_else(|_| "1x10".to_owned());
    let (count, seconds) = text.split_once('x').with_context(|| format!("RUNLOG_CUTS is like 3x30, not {text:?}"))?;
    Ok((count.parse()?, Duration::from_secs(seconds.parse()?)))
}

fn book(seat: &str, key: Option<&str>, hold: bool) -> Value {
    let key = key.map(|key| format!("{key} {seat}"));
    json!({ "call": { "tool": "book", "args": { "seat": seat }, "key": key, "hold": hold } })
}

/// Starts a booking and waits until the agent is at its failpoint.
fn hold(agent: &mut AgentProcess, (moment, key): (&str, Option<&str>), seat: &str) -> anyhow::Result<()> {
    let effect = moment == "effect_happened";
    if !effect {
        agent.arm_failpoint(moment)?;
    }
    agent.run_to_failpoint(moment, &book(seat, key, effect))
}

/// Returns the answer to the booking, with a reopen and another booking after each failure, and the number of reopens.
fn finish_booking(agent: &mut AgentProcess, seat: &str, key: Option<&str>) -> anyhow::Result<(Value, usize)> {
    let mut answer = agent.receive()?;
    for reopened in 0..REOPENS_MAX {
        if answer["result"].is_object() {
            return Ok((answer, reopened));
        }
        ensure!(["unavailable", "stale"].iter().any(|kind| answer["error"] == *kind), "{answer}");
        // A reopen fails while connections are refused; the next round repeats it.
        agent.request(&json!("reopen"))?;
        answer = agent.request(&book(seat, key, false))?;
    }
    anyhow::bail!("not booked after {REOPENS_MAX} reopens: {answer}")
}

/// Without the broker the server refuses queries at `latest` and answers at `eventual`.
fn check_stale_answers(deployment: &Deployment, run: &str) -> anyhow::Result<()> {
    let (status, said) = deployment.server.get(&format!("/v1/runs/{run}?deadline_ms=1000"))?;
    ensure!(status == 503 && ["unavailable", "stale"].iter().any(|kind| said["kind"] == *kind), "{status} {said}");
    let (status, said) = deployment.server.get(&format!("/v1/runs/{run}?consistency=eventual"))?;
    ensure!(status == 200, "{status} {said}");
    Ok(())
}

/// A booking and the agent's answer.
struct Booking {
    run: &'static str,
    seat: String,
    answer: Value,
}

/// Every booking happened once and is in the records of its run, with the result and position of the agent's answer.
fn check_bookings(deployment: &Deployment, bookings: &[Booking]) -> anyhow::Result<()> {
    let ledger = deployment.ledger()?;
    ensure!(ledger.len() == bookings.len(), "{} effects of {} bookings", ledger.len(), bookings.len());
    for Booking { run, seat, answer } in bookings {
        let lines: Vec<&Value> =
            ledger.iter().filter(|line| line["run"] == *run && line["args"]["seat"] == seat.as_str()).collect();
        ensure!(lines.len() == 1 && lines[0]["result"] == answer["result"], "{seat} of {run}: {lines:?}, not {answer}");
        let args = json!({ "seat": seat }).to_string();
        let lookup = deployment.server.runlog().answer(&["lookup", run, "--tool", "book", "--args", &args])?;
        ensure!(lookup["status"] == "completed" && lookup["result"] == answer["result"], "{seat} of {run}: {lookup}");
        ensure!(lookup["position"] == answer["position"], "{lookup} has another position than {answer}");
    }
    Ok(())
}

#[test]
fn an_effect_happens_once_and_nothing_acknowledged_is_lost_when_connections_drop() -> anyhow::Result<()> {
    let ((cuts, pause), seed) = (cuts()?, Random::seed());
    println!("RUNLOG_SEED={seed} RUNLOG_CUTS={cuts}x{}", pause.as_secs());
    let proxy = TcpProxy::start()?;
    let broker = Broker::start_behind(&proxy)?;
    let deployment = Deployment::on(&broker)?;
    // In addition to the agents, many writers on a topic with its own projector.
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
        check_stale_answers(&deployment, runs[0])?;
        thread::sleep(pause);
        proxy.connect_to(broker.port());
        for ((agent, run), (_, key)) in agents.iter_mut().zip(runs).zip(MOMENTS) {
            let (answer, times) = finish_booking(agent, &seat, key).with_context(|| run)?;
            reopened += times;
            bookings.push(Booking { run, seat: seat.clone(), answer });
        }
    }
    check_bookings(&deployment, &bookings)?;
    deployment.verified()?;
    let (acknowledged, repeated) = (writers.acknowledged(), writers.repeated());
    let stories = runtime.block_on(writers.finish())?;
    compare::everything(&other, &stories)?;
    println!(
        "{connections} connections cut, {} refused; {} bookings, {reopened} reopens; {acknowledged} records of \
         other writers acknowledged, {repeated} batches sent again",
        proxy.refused(),
        bookings.len()
    );
    ensure!(connections >= agents.len() && proxy.refused() > 0, "the interruption reached no client");
    Ok(())
}
