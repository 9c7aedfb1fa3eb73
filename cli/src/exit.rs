//! The answers of finished commands, and the exit codes for scripts.

use runlog_schemas::answer::{Disposition, OrOther, Outcome};

/// Every exit code and its meaning. `runlog --help` prints this table. A test compares it with the table in `docs/cli.md`.
pub(crate) const EXIT_CODES: [(u8, &str); 7] = [
    (0, "done"),
    (1, "the honest answer is no: unknown, not found, unequal, not resumable, unhealthy, refused by the journal"),
    (2, "usage: the command line is wrong, or a confirmation is missing; nothing happened"),
    (3, "input refused: the message names where and why"),
    (4, "unavailable or stale: try again"),
    (5, "internal error"),
    (6, "`lookup` found the call pending: it may have happened"),
];

/// The answer of a command that finished its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    /// Unknown, unequal, not resumable, unhealthy, refused by the journal.
    No,
    /// The call was requested and has no recorded end: it may or may not have happened.
    Pending,
}

impl Answer {
    pub(crate) fn from_bool(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// Returns whether the journal applied a record, now or when it first arrived.
    pub(crate) fn from_outcome(outcome: &Outcome) -> Self {
        let applied = matches!(outcome.outcome, OrOther::Known(Disposition::Applied | Disposition::Repeat));
        Self::from_bool(applied && outcome.reason.is_none())
    }

    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Pending => 6,
        }
    }
}

/// Formats the table at the end of `--help`.
pub(crate) fn table() -> String {
    EXIT_CODES.iter().fold("Exit codes:\n".to_owned(), |text, (code, meaning)| format!("{text}  {code}  {meaning}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::answer::ErrorKind;

    #[test]
    fn every_exit_code_is_in_the_help_and_in_the_documentation() {
        let documented = include_str!("../../docs/cli.md");
        let used = [Answer::Yes, Answer::No, Answer::Pending].map(Answer::exit_code);
        let kinds = ErrorKind::ALL.iter().map(|kind| kind.exit_code());
        for code in used.into_iter().chain(kinds) {
            assert!(EXIT_CODES.iter().any(|(known, _)| *known == code), "{code} has no meaning");
        }
        for (code, meaning) in EXIT_CODES {
            assert!(table().contains(&format!("  {code}  {meaning}")));
            assert!(documented.contains(&format!("| {code} | {meaning} |")), "docs/cli.md does not explain {code}");
        }
    }
}
