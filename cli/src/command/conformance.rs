//! `conformance`: tests the journal's rules on a server, each with its own scenario.

use crate::{
    args,
    error::Error,
    exit::Answer,
    output::Output,
    text::{Cell, Text},
};
use runlog_conformance::{Client, Line, Outcome, Plan, Report, Rule, rules};
use runlog_producer::Security;
use serde_json::json;
use std::time::{Duration, Instant};

/// Time limit of one rule.
const RULE_WAIT: Duration = Duration::from_secs(30);
/// The widest name of a rule, and a space.
const NAME_WIDTH: usize = 30;

pub(super) fn run(
    args: &args::Conformance,
    server: &str,
    server_typed: bool,
    security: &Security,
    output: &Output,
) -> Result<Answer, Error> {
    if let Some(unknown) = args.rule.iter().find(|name| !rules().any(|rule| rule.name == **name)) {
        return Err(Error::usage(format!("there is no rule {unknown}; --list prints the rules")));
    }
    let takes = |rule: &&Rule| rule.of_partition && args.rule.iter().any(|name| name == rule.name);
    if let Some(rule) = rules().find(takes).filter(|_| !args.partition_rules) {
        let message = format!("{} changes the data of a whole partition: it needs --partition-rules", rule.name);
        return Err(Error::usage(message));
    }
    if args.list {
        list(output)?;
        return Ok(Answer::Yes);
    }
    if !server_typed {
        let message = format!(
            "name the server to test with --server URL: the suite writes runs that cannot be removed, so {server} is \
             not tested by default"
        );
        return Err(Error::usage(message));
    }
    // Any answer is accepted. Without an answer there is no server to report on.
    let client = Client::connect(server, security.client(server)?)?;
    let plan = Plan {
        only: args.rule.clone(),
        prefix: prefix(args, &client)?,
        wait: args.deadline.unwrap_or(RULE_WAIT),
        partition_rules: args.partition_rules,
    };
    let start = Instant::now();
    let count = if args.rule.is_empty() { rules().count() } else { args.rule.len() };
    let progress = output.progress("rules", count as u64);
    let lines = runlog_conformance::run(&client, &plan, || progress.advance(1));
    drop(progress);
    let report = Report::new(server, lines, start);
    output.answer(&report, human)?;
    Ok(Answer::from_bool(report.failed == 0))
}

/// Returns the prefix of all run ids. A given prefix must be unused, because existing runs would change the results.
fn prefix(args: &args::Conformance, client: &Client) -> Result<String, Error> {
    let Some(prefix) = &args.prefix else { return Ok(format!("conformance-{}", crate::ambient::random_id())) };
    if client.has_runs(prefix)? {
        let message = format!(
            "there are runs whose id begins with {prefix:?}; choose an unused prefix, because the suite writes to new runs only"
        );
        return Err(Error::usage(message));
    }
    Ok(prefix.clone())
}

fn list(output: &Output) -> Result<(), Error> {
    let row = |rule: &Rule| {
        json!({"name": rule.name, "section": rule.section, "claim": rule.claim, "of_partition": rule.of_partition,
            "feature": rule.feature})
    };
    let all = json!({"rules": rules().map(row).collect::<Vec<_>>()});
    output.answer(&all, |_, text| {
        for rule in rules() {
            let says = match rule.feature {
                Some(feature) => format!("{} (with the feature {feature})", rule.claim),
                None => rule.claim.to_owned(),
            };
            text.columns([(NAME_WIDTH, rule.name.into()), (0, claim(&says, rule.section))]);
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
