use super::{
    Rule, fails, rules,
    scenario::{Finding, Stop},
};
use std::collections::BTreeSet;

/// Returns the failing rules. Each given rule stopped early, in a step that needs the given other rule.
fn stops(stops: &[(&'static Rule, Option<&'static str>)]) -> BTreeSet<&'static str> {
    let stop = |needs| Ok(Err(Stop { needs, finding: Finding::default() }));
    fails(&stops.iter().map(|(rule, needs)| (*rule, stop(*needs))).collect::<Vec<_>>())
}

#[test]
fn a_rule_that_depends_on_a_failing_rule_does_not_fail() {
    let all: Vec<&'static Rule> = rules().collect();
    let name = |at: usize| all[at].name;
    assert_eq!(stops(&[(all[0], None), (all[1], Some(name(0))), (all[2], Some(name(1)))]), [name(0)].into());
    // If the needed rule did not fail, or needs this rule in turn, this rule is reported as failed.
    assert_eq!(stops(&[(all[1], Some(name(0)))]), [name(1)].into());
    assert_eq!(stops(&[(all[0], Some(name(1))), (all[1], Some(name(0)))]), [name(0), name(1)].into());
    assert_eq!(stops(&[(all[0], Some(name(0)))]), [name(0)].into());
}

#[test]
fn every_rule_has_a_name_of_its_own_and_a_section_of_the_spec() {
    let spec = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/spec.md")).unwrap();
    let names: BTreeSet<_> = rules().map(|rule| rule.name).collect();
    assert_eq!(names.len(), rules().count());
    for rule in rules() {
        assert!(
            spec.contains(&format!("\n## {}\n", rule.section)) || spec.contains(&format!("\n### {}\n", rule.section)),
            "{}",
            rule.section
        );
        assert!(rule.name.len() < 30, "{}", rule.name);
    }
}
