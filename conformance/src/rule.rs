//! A rule: its name, its claim and its scenario.

use crate::{
    run::Run,
    scenario::{Checked, Scenario},
};

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Unique, below 30 characters.
    pub name: &'static str,
    /// The section of `docs/spec.md` that states the rule.
    pub section: &'static str,
    /// The behaviour of a server that keeps the rule.
    pub claim: &'static str,
    /// Whether its scenario also changes the data of other runs of a partition. See
    /// [`Plan::partition_rules`](crate::Plan::partition_rules).
    pub of_partition: bool,
    pub(crate) scenario: Steps,
}

/// The requests and checks of a rule. The run is new.
pub(crate) type Steps = fn(&mut Scenario<'_>, Run) -> Checked;

/// A rule whose scenario follows.
pub(crate) struct Untested {
    name: &'static str,
    section: &'static str,
    claim: &'static str,
    of_partition: bool,
}

/// States a rule.
pub(crate) const fn rule(name: &'static str, section: &'static str, claim: &'static str) -> Untested {
    Untested { name, section, claim, of_partition: false }
}

/// States a rule whose scenario also changes the data of other runs of a partition.
pub(crate) const fn partition_rule(name: &'static str, section: &'static str, claim: &'static str) -> Untested {
    Untested { name, section, claim, of_partition: true }
}

impl Untested {
    /// Adds the scenario.
    pub(crate) const fn test(self, scenario: Steps) -> Rule {
        let Self { name, section, claim, of_partition } = self;
        Rule { name, section, claim, of_partition, scenario }
    }
}
