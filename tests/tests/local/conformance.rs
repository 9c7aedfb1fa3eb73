//! `runlog conformance` passes on our server and on the reference server. A server that breaks one rule fails that rule
//! and no other.
#![allow(clippy::unwrap_used, reason = "a test may")]

use anyhow::{Context, ensure};
use runlog_model::Rule;
use runlog_tests::{
    claims::port_conformance,
    command::Runlog,
    port_fixture::PortBackend,
    reference_server::{ReferenceServer, name_of},
    server::Launch,
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Mutex, thread};
use tempfile::tempdir;

/// Rules of the model that a client of HTTP alone cannot show, and why.
const NOT_SHOWN: [(Rule, &str); 21] = [
    (Rule::WrongPartition, "a server chooses the partition: partition_of_run is its choice"),
    (Rule::DeadLetter, "a server appends no bytes that are no record"),
    (Rule::Stopped, "nor a record of a schema that it does not know"),
    (Rule::CannotRebuild, "the log's start moves by its retention"),
    (Rule::Truncated, "likewise"),
    (Rule::Genesis, "a journal begins before anybody asks"),
    (Rule::Redelivered, "a redelivery is not visible to clients"),
    (Rule::Erasure, "nothing encrypts yet"),
    (Rule::DecisionBasis, "a server writes version 3 of the schema only where it is configured to"),
    (Rule::AttemptBasis, "likewise"),
    (Rule::AttemptPermitted, "likewise"),
    (Rule::AttemptNumber, "likewise"),
    (Rule::IntentRefuses, "likewise"),
    (Rule::IntentOfEpoch, "likewise"),
    (Rule::Repeatable, "likewise"),
    (Rule::SecretShown, "likewise"),
    (Rule::NotStartedHere, "likewise"),
    (Rule::UncommittedStart, "likewise"),
    (Rule::Observed, "likewise"),
    (Rule::EvidenceNotStartedHere, "likewise"),
    (Rule::EvidenceById, "a server may fill a basis into a decision that has none"),
];

fn report(url: &str) -> anyhow::Result<Value> {
    Runlog::for_server(url).json(&["conformance", "--partition-rules"])?.json()
}

fn with(report: &Value, outcome: &str) -> BTreeSet<String> {
    let lines = report["rules"].as_array().into_iter().flatten().filter(|line| line["outcome"] == outcome);
    lines.map(|line| line["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn detail<'a>(report: &'a Value, name: &str) -> &'a str {
    let mut lines = report["rules"].as_array().into_iter().flatten();
    lines.find(|line| line["name"] == name).and_then(|line| line["detail"].as_str()).unwrap_or_default()
}

fn names() -> anyhow::Result<Vec<String>> {
    let list = Runlog::without_server().answer(&["conformance", "--list"])?;
    let names = list["rules"].as_array().context("rules")?.iter().map(|rule| rule["name"].as_str().map(str::to_owned));
    names.collect::<Option<Vec<_>>>().context("each has a name")
}

/// Checks that every rule was shown and holds.
fn all_pass(report: &Value) -> anyhow::Result<()> {
    let (failed, skipped) = (with(report, "fail"), with(report, "skipped"));
    let details: Vec<&str> = failed.iter().chain(&skipped).map(|name| detail(report, name)).collect();
    ensure!(failed.is_empty() && skipped.is_empty(), "failed {failed:?}, skipped {skipped:?}: {details:#?}");
    ensure!(report["passed"] == names()?.len(), "{} passed", report["passed"]);
    Ok(())
}

#[test]
fn our_server_on_the_local_log_keeps_every_rule() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    all_pass(&report(&server.url)?)?;
    // Without `--partition-rules` the suite skips the rules that change a partition, and does not count them as passed.
    let ran = server.runlog().json(&["conformance"])?.exits(0)?.json()?;
    let skipped = with(&ran, "skipped");
    ensure!(skipped.len() == 6 && skipped.contains("skip_voids") && with(&ran, "fail").is_empty(), "{skipped:?}");
    server.terminate()?;
    Ok(())
}

#[test]
fn every_rule_holds_on_a_journal_that_ports_write_to_over_http() -> anyhow::Result<()> {
    port_conformance::every_rule_holds_on_a_journal_that_ports_write_to(&PortBackend::http()?)
}

#[test]
fn the_reference_server_keeps_every_rule() -> anyhow::Result<()> {
    let second = ReferenceServer::start(None)?;
    all_pass(&report(&second.url)?)
}

#[test]
fn a_server_that_gets_one_rule_wrong_fails_that_rule_and_no_other() -> anyhow::Result<()> {
    let names = names()?;
    let (left, table) = (Mutex::new(names.iter()), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            let Some(name) = left.lock().unwrap().next() else { return Ok(()) };
            let second = ReferenceServer::start(Some(name))?;
            let report = report(&second.url).with_context(|| format!("without {name}"))?;
            table.lock().unwrap().push((name.clone(), report));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap())
    })?;
    let mut wrong = Vec::new();
    let mut table = table.into_inner().unwrap();
    table.sort_by_key(|(name, _)| names.iter().position(|other| other == name));
    println!("{:<30} {:<30} builds on it", "wrong", "fails");
    for (name, report) in &table {
        let (failed, skipped) = (with(report, "fail"), with(report, "skipped"));
        println!(
            "{name:<30} {:<30} {}",
            Vec::from_iter(&failed).iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
            Vec::from_iter(&skipped).iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
        );
        let builds = skipped.iter().all(|other| detail(report, other).starts_with(&format!("it builds on {name},")));
        if failed != BTreeSet::from([name.clone()]) || !builds {
            let others = failed.iter().chain(&skipped).map(|other| format!("{other}: {}", detail(report, other)));
            wrong.push(format!("{name}: {:#?}", others.collect::<Vec<_>>()));
        }
    }
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn the_suite_has_every_rule_of_the_model_that_a_client_can_see() -> anyhow::Result<()> {
    let names = names()?;
    for rule in Rule::ALL {
        let hidden = NOT_SHOWN.iter().any(|(other, _)| *other == rule);
        ensure!(names.contains(&name_of(rule)) != hidden, "{rule:?}: shown, or a reason why not");
    }
    Ok(())
}

#[test]
fn a_report_has_the_request_the_answer_and_the_expectation_of_a_failure() -> anyhow::Result<()> {
    let second = ReferenceServer::start(Some("gap"))?;
    let runlog = Runlog::for_server(&second.url);
    let ran = runlog.plain(&["conformance", "--rule", "gap", "--rule", "ended", "--prefix", "mine"])?.exits(1)?;
    for part in [
        "fail      gap ",
        "pass      ended ",
        "POST /v1/runs/mine.gap.1/records",
        "\"outcome\":\"applied\"",
        "reason gap",
    ] {
        ensure!(ran.stdout.contains(part), "{part:?} in {}", ran.stdout);
    }
    // The prefix has runs now, whose outcomes a second suite would get.
    runlog.json(&["conformance", "--prefix", "mine"])?.exits(2)?;
    for wrong in [["conformance", "--rule", "nobody's"], ["conformance", "--rule", "skip_voids"]] {
        runlog.json(&wrong)?.exits(2)?;
    }
    ensure!(Runlog::for_server("http://127.0.0.1:9").json(&["conformance"])?.exits(4)?.error_kind()? == "unavailable");
    Ok(())
}
