//! The file of `--policy`: JSON. Unknown members are refused by name.
//!
//! A server's hints are claims of a program that may be wrong or hostile, so they count only with `trust_hints`.

use crate::error::Error;
use runlog_schemas::answer::ErrorKind;
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// How often the effect of a call may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Runs {
    /// Once. A call that may have happened waits for a decision.
    #[default]
    Once,
    /// Any number of times, like a tool that reads: a call that may have happened runs again.
    Repeatable,
    /// The gate passes the call and records nothing.
    Ungated,
}

/// The rule for a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rule {
    /// How often a call may run; default once.
    pub(crate) runs: Runs,
    /// The argument that carries an idempotency key to the server; default none. A call that may have happened then runs again, with
    /// the same key.
    pub(crate) idempotency_key: Option<String>,
    /// Whether a call that is equal to a running one waits for that call and gets its answer; default false.
    pub(crate) one_at_a_time: bool,
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Policy {
    /// Whether `readOnlyHint` makes a tool ungated and `idempotentHint` repeatable, for tools without a rule; default false.
    pub(crate) trust_hints: bool,
    /// Whether new calls run although an earlier call of the run may have happened and is not decided; default false.
    pub(crate) allow_unresolved: bool,
    /// Rules by the name of a tool. A name may end with `*`; the longest name that fits applies.
    tools: BTreeMap<String, Rule>,
}

/// The hints of a tool in an answer to `tools/list`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) idempotent: bool,
}

impl Policy {
    /// Reads the file; without one, each call runs once.
    ///
    /// Errors: `Invalid` with file and reason.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, Error> {
        let Some(file) = file else { return Ok(Self::default()) };
        let shown = file.display().to_string();
        let refused = |why: String| {
            Error::new(ErrorKind::Invalid, format!("cannot use policy file {shown}: {why}"))
                .with("file", shown.as_str())
        };
        let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
        Self::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (name, rule) in &policy.tools {
            if name.trim_end_matches('*').contains('*') || name.ends_with("**") {
                return Err(format!("tools.{name}: a name may have one *, at its end"));
            }
            if rule.idempotency_key.as_deref() == Some("") {
                return Err(format!("tools.{name}.idempotency_key: name an argument of the tool"));
            }
            if rule.idempotency_key.is_some() && rule.runs != Runs::Once {
                return Err(format!("tools.{name}: a call with an idempotency key runs \"once\""));
            }
        }
        Ok(policy)
    }

    /// Returns the rule for a tool.
    pub(crate) fn rule(&self, tool: &str, hints: Hints) -> Rule {
        let fits =
            |name: &&String| name.strip_suffix('*').map_or(name.as_str() == tool, |prefix| tool.starts_with(prefix));
        // An exact name precedes a pattern of the same length.
        let named =
            self.tools.keys().filter(fits).max_by_key(|name| (name.trim_end_matches('*').len(), !name.ends_with('*')));
        match named.and_then(|name| self.tools.get(name)) {
            Some(rule) => rule.clone(),
            None if self.trust_hints && hints.read_only => Rule { runs: Runs::Ungated, ..Rule::default() },
            None if self.trust_hints && hints.idempotent => Rule { runs: Runs::Repeatable, ..Rule::default() },
            None => Rule::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_that_fits_applies_and_hints_count_only_if_trusted_and_without_a_rule() {
        let policy = r#"{"tools": {"*": {"one_at_a_time": true}, "get_*": {"runs": "repeatable"}, "get_lock": {}}}"#;
        let policy = Policy::parse(policy).unwrap();
        let hints = Hints { read_only: true, idempotent: true };
        assert_eq!(policy.rule("get_seat", hints).runs, Runs::Repeatable);
        assert_eq!(policy.rule("get_lock", hints), Rule::default());
        assert!(policy.rule("pay", hints).one_at_a_time);
        assert_eq!(Policy::default().rule("pay", hints), Rule::default(), "hints are untrusted");
        let trusting = Policy::parse(r#"{"trust_hints": true, "tools": {"pay": {}}}"#).unwrap();
        assert_eq!(trusting.rule("find", hints).runs, Runs::Ungated);
        assert_eq!(trusting.rule("find", Hints { read_only: false, ..hints }).runs, Runs::Repeatable);
        assert_eq!(trusting.rule("pay", hints), Rule::default(), "the file overrides the hints");
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_with_the_place() {
        for (text, place) in [
            (r#"{"tool": {}}"#, "unknown field `tool`"),
            (r#"{"tools": {"pay": {"run": "once"}}}"#, "unknown field `run`"),
            (r#"{"tools": {"pay": {"runs": "never"}}}"#, "never"),
            (r#"{"tools": {"a*b": {}}}"#, "tools.a*b"),
            (r#"{"tools": {"pay": {"idempotency_key": ""}}}"#, "tools.pay.idempotency_key"),
            (r#"{"tools": {"pay": {"idempotency_key": "k", "runs": "ungated"}}}"#, "tools.pay"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(place), "{error}");
        }
    }
}
