//! `conformance`: the journal's rules, each shown on a server by a scenario of its own.

use crate::{
    Error, args,
    client::{Client, Target},
    conformance::{self, Line, Outcome, Plan, Report, rules},
    exit::Answer,
    output::Output,
    text::{Cell, Text},
};
use runlog_schemas::answer::ErrorKind;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long one rule may take.
const RULE_WAIT: Duration = Duration::from_secs(30);
/// How long a server may take to answer at all.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The widest name of a rule, and a space.
const NAME_WIDTH: usize = 30;

pub(super) fn run(
    args: &args::Conformance,
    server: &str,
    server_typed: bool,
    output: &Output,
) -> Result<Answer, Error> {
    if let Some(unknown) = args.rule.iter().find(|name| !rules().any(|rule| rule.name == **name)) {
        return Err(Error::usage(format!("there is no rule {unknown}; --list has them")));
    }
    let takes = |rule: &&conformance::Rule| rule.of_partition && args.rule.iter().any(|name| name == rule.name);
    if let Some(rule) = rules().find(takes).filter(|_| !args.partition_rules) {
        let message = format!("{} takes something away from a whole partition: it needs --partition-rules", rule.name);
        return Err(Error::usage(message));
    }
    if args.list {
        list(output)?;
        return Ok(Answer::Yes);
    }
    if !server_typed {
        let message = format!(
            "name the server to test with --server URL: the suite writes about 165 runs that cannot be removed, so {server} is \
             not taken by default"
        );
        return Err(Error::usage(message));
    }
    let client = Client::new(server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::new(ErrorKind::Internal, "no runtime to wait on").because(error))?;
    // Whatever it answers; where nobody does, there is nothing to report on.
    runtime.block_on(client.raw("GET", &Target::new("/v1/journal"), None, FIRST_WAIT))?;
    let plan = Plan {
        only: args.rule.clone(),
        prefix: prefix(args, &client, &runtime)?,
        wait: args.deadline.unwrap_or(RULE_WAIT),
        partition_rules: args.partition_rules,
    };
    let begun = Instant::now();
    let count = if args.rule.is_empty() { rules().count() } else { args.rule.len() };
    let progress = output.progress("rules", count as u64);
    let lines = conformance::run(&client, &runtime, &plan, || progress.advance(1));
    drop(progress);
    let report = Report::new(server, lines, begun);
    output.answer(&report, human)?;
    Ok(Answer::from_bool(report.failed == 0))
}

/// What the ids of all runs begin with. One that was given must be nobody's yet: runs of another time would answer.
fn prefix(args: &args::Conformance, client: &Client, runtime: &Runtime) -> Result<String, Error> {
    let Some(prefix) = &args.prefix else { return Ok(format!("conformance-{}", crate::random_id())) };
    let target = Target::new("/v1/runs").with("prefix", prefix).with("limit", 1);
    let found = runtime.block_on(client.raw("GET", &target, None, FIRST_WAIT))?;
    let found: serde_json::Value = serde_json::from_str(&found.body).unwrap_or_default();
    match found["runs"].as_array() {
        Some(runs) if !runs.is_empty() => {
            let message = format!("there are runs whose id begins with {prefix:?}; the suite writes to new runs only");
            Err(Error::usage(message))
        }
        _ => Ok(prefix.clone()),
    }
}

fn list(output: &Output) -> Result<(), Error> {
    let row = |rule: &conformance::Rule| json!({"name": rule.name, "section": rule.section, "claim": rule.claim, "of_partition": rule.of_partition});
    let all = json!({"rules": rules().map(row).collect::<Vec<_>>()});
    output.answer(&all, |_, text| {
        for rule in rules() {
            text.columns([(NAME_WIDTH, rule.name.into()), (0, claim(rule.claim, rule.section))]);
        }
    })
}

fn claim(claim: &str, section: &str) -> Cell {
    format!("{claim} ({section})").into()
}

fn human(report: &Report, text: &mut Text) {
    for Line { name, section, claim: says, outcome, detail } in &report.rules {
        let word = match outcome {
            Outcome::Pass => Cell::from("pass").good(),
            Outcome::Fail => Cell::from("fail").bad(),
            Outcome::Skipped => Cell::from("skipped").warn(),
        };
        text.columns([(8, word), (NAME_WIDTH, (*name).into()), (0, claim(says, section))]);
        if !detail.is_empty() {
            text.columns([(8, "".into()), (0, Cell::from(detail).dim())]);
        }
    }
    let Report { server, passed, failed, skipped, seconds, .. } = report;
    text.title(server.clone());
    let rest = format!("{skipped} skipped, in {seconds:.1} s");
    let passed = Cell::from(format!("{passed} passed"));
    match failed {
        0 => text.line([passed.good().strong(), Cell::from(rest).dim()]),
        _ => text.line([Cell::from(format!("{failed} failed")).bad().strong(), passed, Cell::from(rest).dim()]),
    }
}
