//! `runlog conformance` passes on our server and on the reference server. A server that breaks one rule fails that rule
//! and no other.

use anyhow::{Context, ensure};
use runlog_conformance::{Client, Line, Outcome, Plan, Rule, rules};
use runlog_model::Rule as ModelRule;
use runlog_tests::{
    claims::port_conformance,
    command::Runlog,
    port_fixture::PortBackend,
    reference_server::{ReferenceServer, name_of},
    server::Launch,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread,
    time::Duration,
};

/// Rules of the model that a client of HTTP alone cannot show, and why.
const NOT_SHOWN: [(ModelRule, &str); 26] = [
    (ModelRule::WrongPartition, "a server chooses the partition: partition_of_run is its choice"),
    (ModelRule::DeadLetter, "a server appends no bytes that are no record"),
    (ModelRule::Stopped, "nor a record of a schema that it does not know"),
    (ModelRule::CannotRebuild, "the log's start moves by its retention"),
    (ModelRule::Truncated, "likewise"),
    (ModelRule::Genesis, "a journal begins before the first request"),
    (ModelRule::Redelivered, "a redelivery is not visible to clients"),
    (ModelRule::Erasure, "nothing encrypts yet"),
    (ModelRule::SkipRevokes, "a skip cannot be undone, and the scenario of skip_voids needs a run without effects"),
    (ModelRule::SkipDisplaces, "likewise"),
    (ModelRule::SkipKeepsStart, "likewise"),
    (ModelRule::SkipEnds, "likewise"),
    (ModelRule::SkippedCounts, "likewise"),
    (ModelRule::SkippedClaim, "likewise"),
    (ModelRule::SkippedStartIsForeign, "likewise"),
    (ModelRule::UncheckedAttempt, "likewise"),
    (ModelRule::RequestOfVoidCall, "likewise"),
    (ModelRule::NothingBeforeSkip, "likewise"),
    (ModelRule::DecisionAfterSkip, "likewise"),
    (ModelRule::SkipOfRefused, "likewise"),
    (ModelRule::SkipOfLaterEvidence, "likewise"),
    (ModelRule::SkipOfBatch, "likewise"),
    (ModelRule::EvidenceAfterSkip, "likewise"),
    (ModelRule::KeyWithoutText, "a server appends no call with an empty key"),
    (ModelRule::EvidenceOfPrincipal, "a server without tokens knows no principals"),
    (ModelRule::EvidenceById, "a server may fill a basis into a decision that has none"),
];

/// Time limit of a rule.
const RULE_WAIT: Duration = Duration::from_secs(30);

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

/// The names of all rules, or of the rules that only servers with a feature have.
fn names(with_feature: bool) -> anyhow::Result<BTreeSet<String>> {
    let list = Runlog::without_server().answer(&["conformance", "--list"])?;
    let listed = list["rules"].as_array().context("rules")?.iter();
    let listed = listed.filter(|rule| !with_feature || rule["feature"].is_string());
    let names = listed.map(|rule| rule["name"].as_str().map(str::to_owned));
    names.collect::<Option<_>>().context("each has a name")
}

/// Checks that every rule was shown and holds.
fn all_pass(report: &Value) -> anyhow::Result<()> {
    let (failed, skipped) = (with(report, "fail"), with(report, "skipped"));
    let details: Vec<&str> = failed.iter().chain(&skipped).map(|name| detail(report, name)).collect();
    ensure!(failed.is_empty() && skipped.is_empty(), "failed {failed:?}, skipped {skipped:?}: {details:#?}");
    ensure!(report["passed"] == names(false)?.len(), "{} passed", report["passed"]);
    Ok(())
}

/// Checks that every rule holds, and that exactly the rules of features that the server does not list were not tested.
fn all_pass_without_features(report: &Value) -> anyhow::Result<()> {
    let (failed, skipped, not_listed) = (with(report, "fail"), with(report, "skipped"), names(true)?);
    ensure!(failed.is_empty() && skipped == not_listed, "failed {failed:?}, skipped {skipped:?}");
    for name in &skipped {
        let why = detail(report, name);
        ensure!(why.starts_with("the server does not list the feature "), "{name}: {why}");
    }
    ensure!(report["passed"] == names(false)?.len() - not_listed.len(), "{} passed", report["passed"]);
    Ok(())
}

#[test]
fn our_server_on_the_local_log_keeps_every_rule() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    all_pass_without_features(&report(&server.url)?)?;
    server.terminate()?;
    Ok(())
}

#[test]
fn our_server_that_writes_version_3_keeps_every_rule() -> anyhow::Result<()> {
    let server = Launch::temporary()?.with("--write-schema").with("3").start()?;
    all_pass(&report(&server.url)?)?;
    // Without `--partition-rules` the suite skips the rules that change a partition, and does not count them as passed.
    let ran = server.runlog().json(&["conformance"])?.exits(0)?.json()?;
    let skipped = with(&ran, "skipped");
    ensure!(skipped.len() == 7 && skipped.contains("skip_voids") && with(&ran, "fail").is_empty(), "{skipped:?}");
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

/// Runs all rules on a server that breaks one, without a process of its own: the command is the same library.
fn lines_without(rule: &Rule) -> anyhow::Result<Vec<Line>> {
    let wrong_server = ReferenceServer::start(Some(rule.name))?;
    let client = Client::connect(&wrong_server.url, runlog_producer::Tls::default().http_client(false)?)?;
    let plan = Plan { only: Vec::new(), prefix: "suite".into(), wait: RULE_WAIT, partition_rules: true };
    Ok(runlog_conformance::run(&client, &plan, || {}))
}

#[test]
fn a_server_that_gets_one_rule_wrong_fails_that_rule_and_no_other() -> anyhow::Result<()> {
    let (left, table) = (Mutex::new(rules()), Mutex::new(BTreeMap::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            let Some(rule) = left.lock().unwrap().next() else { return Ok(()) };
            let lines = lines_without(rule).with_context(|| format!("without {}", rule.name))?;
            table.lock().unwrap().insert(rule.name, lines);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap())
    })?;
    let mut wrong = Vec::new();
    println!("{:<30} {:<30} builds on it", "wrong", "fails");
    for (name, lines) in table.into_inner().unwrap() {
        let names = |outcome| {
            let names = lines.iter().filter(|line| line.outcome == outcome).map(|line| line.name);
            names.collect::<Vec<_>>().join(" ")
        };
        println!("{name:<30} {:<30} {}", names(Outcome::Fail), names(Outcome::Skipped));
        let needs_it = |line: &Line| match line.outcome {
            Outcome::Pass => line.name != name,
            Outcome::Fail => line.name == name,
            Outcome::Skipped => line.detail.starts_with(&format!("it builds on {name},")),
        };
        let others = lines.iter().filter(|line| !needs_it(line)).map(|line| format!("{}: {}", line.name, line.detail));
        let others: Vec<String> = others.collect();
        if !others.is_empty() {
            wrong.push(format!("{name}: {others:#?}"));
        }
    }
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn the_suite_has_every_rule_of_the_model_that_a_client_can_see() -> anyhow::Result<()> {
    let names = names(false)?;
    for rule in ModelRule::ALL {
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
    // The prefix now has runs. A second suite would get the outcomes of their records.
    runlog.json(&["conformance", "--prefix", "mine"])?.exits(2)?;
    for wrong in [["conformance", "--rule", "nobody's"], ["conformance", "--rule", "skip_voids"]] {
        runlog.json(&wrong)?.exits(2)?;
    }
    ensure!(Runlog::for_server("http://127.0.0.1:9").json(&["conformance"])?.exits(4)?.error_kind()? == "unavailable");
    Ok(())
}
