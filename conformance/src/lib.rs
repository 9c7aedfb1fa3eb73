//! The rules of the journal as scenarios over HTTP: the required behaviour of any server that implements this interface.
//!
//! ```text
//!   rule ──▶ scenario on new runs ──▶ appends and queries ──▶ pass, or request, answer and expectation
//! ```
//!
//! A scenario tests one rule and depends on as few other rules as possible, so that a server with one defect fails one rule.
//! A step that depends on another rule names it (`scenario::Needs`). If that rule fails in its own scenario, the dependent
//! scenario is skipped. Otherwise the step is a failure of the tested rule.
//!
//! Every record carries its numbers, and every query reads at least the records that the scenario appended before. So only
//! the rules about filled-in fields depend on the fields that a server fills in. A rule that `tests/model` also has shares
//! the model's name.
//!
//! A rule of a feature ([`Rule::feature`]) runs only if the server lists the feature. Otherwise it is skipped by name.
//!
//! Reading order: [`Rule`], `client` (HTTP), `scenario` (requests and expectations), `run` (records), then a file for each
//! part of the specification: a table of its rules, each with its scenario.

#![deny(missing_docs)]

use scenario::{Checked, Finding, Scenario, Stop};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

mod batches;
mod calls;
mod checkpoints;
mod client;
mod decisions;
mod ends;
mod events;
mod facts;
mod handles;
mod http;
mod judgement;
mod lifecycles;
mod pages;
mod partitions;
mod past;
mod payloads;
mod permissions;
mod places;
mod recovery;
mod rule;
mod run;
mod scenario;
mod writers;

pub use client::{Client, Error};
pub use rule::Rule;

/// All rules in the order in which they run. The rules that drop or void data are the last.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let parts: [&'static [Rule]; 18] = [
        judgement::RULES,
        places::RULES,
        writers::RULES,
        batches::RULES,
        lifecycles::RULES,
        ends::RULES,
        calls::RULES,
        decisions::RULES,
        permissions::RULES,
        handles::RULES,
        checkpoints::RULES,
        recovery::RULES,
        http::RULES,
        pages::RULES,
        facts::RULES,
        events::RULES,
        past::RULES,
        partitions::RULES,
    ];
    parts.into_iter().flatten()
}

/// The outcome of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The server keeps the rule.
    Pass,
    /// The server breaks the rule. `detail` contains the request, the answer and the expectation.
    Fail,
    /// The rule was not tested. `detail` contains the reason.
    Skipped,
}

/// A rule's line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The rule's name.
    pub name: &'static str,
    /// The rule's section of `docs/spec.md`.
    pub section: &'static str,
    /// The rule's claim.
    pub claim: &'static str,
    /// The rule's outcome.
    pub outcome: Outcome,
    /// Empty if the rule passed.
    pub detail: String,
}

/// The selection of rules and their limits.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of the rules to run. If empty, all rules run.
    pub only: Vec<String>,
    /// Prefix of the ids of all runs that the suite writes. No run of the server may have this prefix before.
    pub prefix: String,
    /// Time limit of each rule.
    pub wait: Duration,
    /// Also runs the rules that change the data of other runs of a partition.
    pub partition_rules: bool,
}

/// Runs the chosen rules one after the other and calls `progress` after each. Returns one line per rule, in order. Blocks.
pub fn run(client: &Client, plan: &Plan, progress: impl Fn()) -> Vec<Line> {
    let chosen = rules().filter(|rule| plan.only.is_empty() || plan.only.iter().any(|name| name == rule.name));
    let mut results: Vec<(&'static Rule, Result<Checked, String>)> = Vec::new();
    for rule in chosen {
        let shown = can_test(rule, client, plan).map(|()| {
            let mut scenario = Scenario::new(client, format!("{}.{}", plan.prefix, rule.name), plan.wait);
            let run = scenario.run();
            // A rule does not depend on itself.
            (rule.scenario)(&mut scenario, run)
                .map_err(|stop| Stop { needs: stop.needs.filter(|other| *other != rule.name), ..stop })
        });
        results.push((rule, shown));
        progress();
    }
    let fails = fails(&results);
    results.into_iter().map(|(rule, shown)| line(rule, shown, &fails)).collect()
}

/// Returns the reason if a rule cannot be tested.
fn can_test(rule: &Rule, client: &Client, plan: &Plan) -> Result<(), String> {
    if let Some(feature) = rule.feature.filter(|feature| !client.lists(*feature)) {
        return Err(format!("the server does not list the feature {feature}, so the rule was not tested"));
    }
    if rule.of_partition && !plan.partition_rules {
        let why = "it changes the data of a whole partition; to run it, add --partition-rules on a journal made for it";
        return Err(why.to_owned());
    }
    Ok(())
}

/// Returns the rules that fail. A rule whose step needs another failed rule is not among them: it is skipped.
fn fails(results: &[(&'static Rule, Result<Checked, String>)]) -> BTreeSet<&'static str> {
    let stops: Vec<(&'static str, Option<&'static str>)> = results
        .iter()
        .filter_map(|(rule, shown)| Some((rule.name, shown.as_ref().ok()?.as_ref().err()?.needs)))
        .collect();
    let needs = |rule: &str| stops.iter().find(|(name, _)| *name == rule).map(|(_, needs)| *needs);
    // The needed rule may itself need a failed rule, so follow the chain. In a circle every rule fails.
    let builds = |rule: &'static str| {
        let mut at = rule;
        for _ in 0..stops.len() {
            match needs(at) {
                Some(Some(next)) if needs(next).is_some() => at = next,
                _ => return at != rule,
            }
        }
        false
    };
    stops.iter().map(|(name, _)| *name).filter(|name| !builds(name)).collect()
}

fn line(rule: &'static Rule, shown: Result<Checked, String>, fails: &BTreeSet<&'static str>) -> Line {
    let (outcome, detail) = match shown {
        Err(why) => (Outcome::Skipped, why),
        Ok(Ok(())) => (Outcome::Pass, String::new()),
        Ok(Err(stop)) => {
            let Stop { needs, finding: Finding { request, answer, expected } } = stop;
            let what = format!("request: {request}; answer: {answer}; expected: {expected}");
            match needs {
                Some(other) if !fails.contains(rule.name) => {
                    (Outcome::Skipped, format!("it builds on {other}, which does not hold; {what}"))
                }
                Some(other) => (Outcome::Fail, format!("in a step that shows {other}: {what}")),
                None => (Outcome::Fail, what),
            }
        }
    };
    Line { name: rule.name, section: rule.section, claim: rule.claim, outcome, detail }
}

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The server's URL.
    pub server: String,
    /// Number of rules that the server keeps.
    pub passed: usize,
    /// Number of rules that the server breaks.
    pub failed: usize,
    /// Number of rules that were not tested.
    pub skipped: usize,
    /// One line for each chosen rule.
    pub rules: Vec<Line>,
    /// Run time of the suite.
    pub seconds: f64,
}

impl Report {
    /// Counts the outcomes of the lines. `start` is the start of the suite.
    pub fn new(server: &str, rules: Vec<Line>, start: Instant) -> Self {
        let count = |outcome| rules.iter().filter(|line| line.outcome == outcome).count();
        let (passed, failed) = (count(Outcome::Pass), count(Outcome::Fail));
        let (skipped, seconds) = (count(Outcome::Skipped), start.elapsed().as_secs_f64());
        Self { server: server.to_owned(), passed, failed, skipped, rules, seconds }
    }
}

#[cfg(test)]
mod tests;
