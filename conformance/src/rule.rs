//! A rule: its name, its claim and its scenario.

use crate::{
    run::Run,
    scenario::{Checked, Scenario},
};
use runlog_schemas::answer::Feature;

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
    /// The feature of the servers that have the rule; `None` if all have it.
    pub feature: Option<Feature>,
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
    feature: Option<Feature>,
}

/// States a rule.
pub(crate) const fn rule(name: &'static str, section: &'static str, claim: &'static str) -> Untested {
    Untested { name, section, claim, of_partition: false, feature: None }
}

/// States a rule whose scenario also changes the data of other runs of a partition.
pub(crate) const fn partition_rule(name: &'static str, section: &'static str, claim: &'static str) -> Untested {
    Untested { name, section, claim, of_partition: true, feature: None }
}

impl Untested {
    /// Limits the rule to servers that list the feature.
    pub(crate) const fn only_with(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    /// Adds the scenario.
    pub(crate) const fn test(self, scenario: Steps) -> Rule {
        let Self { name, section, claim, of_partition, feature } = self;
        Rule { name, section, claim, of_partition, feature, scenario }
    }
}
