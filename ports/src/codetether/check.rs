//! The checks that a write-back must pass before it is committed.

use super::types::{Op, RejectReason};
use std::fmt;

/// The phases of the checks, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It matches its schema.
    Schema,
    /// Its origin is established.
    Provenance,
    /// It stays within its scope.
    Scope,
    /// It overwrites nothing without permission.
    Destructive,
    /// Invariants hold after it.
    Invariants,
}

impl Phase {
    /// The reason that a failed check gives. The crate has none for the scope and reports it as provenance.
    fn reason(self, detail: String) -> RejectReason {
        match self {
            Self::Schema => RejectReason::SchemaMismatch { detail },
            Self::Provenance => RejectReason::ProvenanceFail { detail },
            Self::Scope => RejectReason::ProvenanceFail { detail: format!("scope: {detail}") },
            Self::Destructive => RejectReason::DestructiveOp,
            Self::Invariants => RejectReason::InvariantViolation { detail },
        }
    }
}

type Check = Box<dyn Fn(&Op) -> Result<(), String> + Send + Sync>;

/// The checks of a journal.
///
/// One check of the scope is always made: a path in an operation must be relative to the project. Absolute paths, paths with a
/// drive and paths with `..` fail it.
#[derive(Default)]
pub struct Checks {
    checks: Vec<(Phase, Check)>,
}

impl Checks {
    /// Adds a check, which returns why it fails. It runs on the caller's thread, after the checks of earlier phases and
    /// the earlier checks of its own phase. It may run several times for one operation. It must not call the journal.
    #[must_use]
    pub fn with(mut self, phase: Phase, check: impl Fn(&Op) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.checks.push((phase, Box::new(check)));
        self.checks.sort_by_key(|(phase, _)| *phase);
        self
    }

    /// The reason of the first check that fails, by phase.
    pub(super) fn run(&self, op: &Op) -> Result<(), RejectReason> {
        let run = |(phase, check): &(Phase, Check)| check(op).map_err(|why| phase.reason(why));
        let until_scope = self.checks.partition_point(|(phase, _)| *phase < Phase::Scope);
        let (before, after) = self.checks.split_at(until_scope);
        before.iter().try_for_each(run)?;
        within_project(op).map_err(|why| Phase::Scope.reason(why))?;
        after.iter().try_for_each(run)
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.checks.iter().map(|(phase, _)| phase)).finish()
    }
}

fn within_project(op: &Op) -> Result<(), String> {
    let Op::HistorySinkUpload { key, .. } = op else { return Ok(()) };
    let mut segments = key.split(['/', '\\']);
    let drive = key.as_bytes().get(1) == Some(&b':');
    if key.is_empty() || key.starts_with(['/', '\\']) || drive || segments.any(|segment| segment == "..") {
        return Err(format!("`{key}` is not relative to the project"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_phase_that_fails_gives_the_reason() {
        let fails = |why: &'static str| move |_: &Op| Err(why.to_owned());
        let all = || Checks::default().with(Phase::Invariants, fails("i")).with(Phase::Destructive, fails("d"));
        let detail = |text: &str| text.to_owned();
        assert_eq!(all().run(&Op::Save), Err(RejectReason::DestructiveOp));
        let scope = all().with(Phase::Scope, fails("s"));
        assert_eq!(scope.run(&Op::Save), Err(RejectReason::ProvenanceFail { detail: detail("scope: s") }));
        let provenance = scope.with(Phase::Provenance, fails("p"));
        assert_eq!(provenance.run(&Op::Save), Err(RejectReason::ProvenanceFail { detail: detail("p") }));
        let schema = provenance.with(Phase::Schema, fails("x"));
        assert_eq!(schema.run(&Op::Save), Err(RejectReason::SchemaMismatch { detail: detail("x") }));
        let invariants = Checks::default().with(Phase::Invariants, fails("i"));
        assert_eq!(invariants.run(&Op::Save), Err(RejectReason::InvariantViolation { detail: detail("i") }));
    }

    #[test]
    fn a_path_out_of_the_project_is_out_of_scope() {
        let run =
            |key: &str| Checks::default().run(&Op::HistorySinkUpload { bucket: "b".into(), key: key.into(), bytes: 1 });
        for key in ["a", "a/b.jsonl", "a..b/..c", ".hidden"] {
            assert_eq!(run(key), Ok(()), "{key}");
        }
        for key in ["", "/etc/passwd", "a/../../b", "..", "C:\\x", "\\\\host\\x", "a\\..\\b"] {
            assert!(matches!(run(key), Err(RejectReason::ProvenanceFail { .. })), "{key}");
        }
    }
}
