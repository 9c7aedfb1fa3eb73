//! The rules of the journal as scenarios over HTTP: what any server must do that speaks our interface.
//!
//! ```text
//!   rule ──▶ a scenario on runs of its own ──▶ appends, questions ──▶ pass, or what was expected instead
//! ```
//!
//! A scenario shows one rule and builds on as few others as it can, so that a server which gets one wrong fails that one.
//! Where it does build on another, the step that shows the other says so (`scenario::Needs`): if that rule fails in its own
//! scenario, the one that builds on it is skipped, and if it does not, the step is this rule's failure.
//!
//! Every record carries its place and every question is at least as fresh as what was appended before it, so that nothing
//! depends on what a server fills in, but where that is the rule. Names are those of the rules in `tests/model`, where
//! that has the rule.
//!
//! Reading order: [`Rule`], `client` (HTTP), `scenario` (requests and expectations), `run` (records), then a file for each
//! part of the specification.

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
mod http;
mod judgement;
mod lifecycles;
mod pages;
mod partitions;
mod past;
mod payloads;
mod places;
mod recovery;
mod run;
mod scenario;
mod writers;

pub use client::{Client, Error};

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Unique, below 30 characters.
    pub name: &'static str,
    /// The section of `docs/spec.md` that has it.
    pub section: &'static str,
    /// What a server that keeps the rule does.
    pub claim: &'static str,
    /// Whether its scenario voids or removes what other runs of a partition have.
    pub of_partition: bool,
    scenario: fn(&mut Scenario<'_>) -> Checked,
}

impl Rule {
    const fn new(
        name: &'static str,
        section: &'static str,
        claim: &'static str,
        scenario: fn(&mut Scenario<'_>) -> Checked,
    ) -> Self {
        Self { name, section, claim, of_partition: false, scenario }
    }

    const fn of_partition(
        name: &'static str,
        section: &'static str,
        claim: &'static str,
        scenario: fn(&mut Scenario<'_>) -> Checked,
    ) -> Self {
        Self { name, section, claim, of_partition: true, scenario }
    }
}

/// Every rule, in the order in which they are run: those that take something away last.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let parts: [&'static [Rule]; 16] = [
        judgement::RULES,
        places::RULES,
        writers::RULES,
        batches::RULES,
        lifecycles::RULES,
        ends::RULES,
        calls::RULES,
        decisions::RULES,
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

/// What a rule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The server keeps the rule.
    Pass,
    /// The server breaks it; `detail` has the request, the answer, and what was expected.
    Fail,
    /// Nothing was shown, and `detail` says why.
    Skipped,
}

/// A rule's line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The rule's name.
    pub name: &'static str,
    /// The rule's section of `docs/spec.md`.
    pub section: &'static str,
    /// What it claims.
    pub claim: &'static str,
    /// What it came to.
    pub outcome: Outcome,
    /// Empty where it passed.
    pub detail: String,
}

/// Which rules are run, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of rules; all of them where it is empty.
    pub only: Vec<String>,
    /// What the ids of all runs begin with. The suite writes to new runs only: no run of the server may begin so.
    pub prefix: String,
    /// Time limit of each rule.
    pub wait: Duration,
    /// Also run the rules that void or remove what other runs of a partition have.
    pub partition_rules: bool,
}

/// Runs the chosen rules one after the other, and calls `progress` after each. A line for each, in order. Blocks.
pub fn run(client: &Client, plan: &Plan, progress: impl Fn()) -> Vec<Line> {
    let chosen = rules().filter(|rule| plan.only.is_empty() || plan.only.iter().any(|name| name == rule.name));
    let mut results: Vec<(&'static Rule, Option<Checked>)> = Vec::new();
    for rule in chosen {
        let shown = (!rule.of_partition || plan.partition_rules).then(|| {
            let mut scenario = Scenario::new(client, format!("{}.{}", plan.prefix, rule.name), plan.wait);
            // A rule does not build on itself.
            (rule.scenario)(&mut scenario)
                .map_err(|stop| Stop { needs: stop.needs.filter(|other| *other != rule.name), ..stop })
        });
        results.push((rule, shown));
        progress();
    }
    let fails = fails(&results);
    results.into_iter().map(|(rule, shown)| line(rule, shown, &fails)).collect()
}

/// The rules that do not hold: those whose own steps failed, and those that built on a rule which was not seen to fail.
fn fails(results: &[(&'static Rule, Option<Checked>)]) -> BTreeSet<&'static str> {
    let stops: Vec<(&'static str, Option<&'static str>)> =
        results.iter().filter_map(|(rule, shown)| Some((rule.name, shown.as_ref()?.as_ref().err()?.needs))).collect();
    let needs = |rule: &str| stops.iter().find(|(name, _)| *name == rule).map(|(_, needs)| *needs);
    // What is built on may itself be built on something; in a circle nothing is built on anything.
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

fn line(rule: &'static Rule, shown: Option<Checked>, fails: &BTreeSet<&'static str>) -> Line {
    let (outcome, detail) = match shown {
        None => {
            let why = "it takes something away from a whole partition, and --partition-rules was not given";
            (Outcome::Skipped, why.to_owned())
        }
        Some(Ok(())) => (Outcome::Pass, String::new()),
        Some(Err(stop)) => {
            let Stop { needs, finding: Finding { asked, answered, expected } } = stop;
            let what = format!("asked: {asked}; answered: {answered}; expected: {expected}");
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
    /// Rules that it keeps.
    pub passed: usize,
    /// Rules that it breaks.
    pub failed: usize,
    /// Rules that were not shown.
    pub skipped: usize,
    /// A line for each rule that was chosen.
    pub rules: Vec<Line>,
    /// How long the suite took.
    pub seconds: f64,
}

impl Report {
    /// Counts the lines.
    pub fn new(server: &str, rules: Vec<Line>, begun: Instant) -> Self {
        let count = |outcome| rules.iter().filter(|line| line.outcome == outcome).count();
        let (passed, failed) = (count(Outcome::Pass), count(Outcome::Fail));
        let (skipped, seconds) = (count(Outcome::Skipped), begun.elapsed().as_secs_f64());
        Self { server: server.to_owned(), passed, failed, skipped, rules, seconds }
    }
}

#[cfg(test)]
mod tests;
