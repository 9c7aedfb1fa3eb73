//! Confirmation before anything is voided, deleted or decided.
//!
//! The plan is shown on stderr, so that stdout carries the answer alone. `--yes` answers for scripts; without it and
//! without a terminal, nothing happens and the exit code is 2.

use crate::{Error, args::Consent, output, text::Text};
use std::io::{self, BufRead, IsTerminal};

/// Shows what will happen, then asks unless `--yes` was given.
///
/// Errors: `Usage` where the answer is not yes, or where there is no terminal to ask at.
pub(super) fn confirm(consent: Consent, what: &str, plan: impl FnOnce(&mut Text)) -> Result<(), Error> {
    if consent.yes {
        return Ok(());
    }
    output::note(plan);
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(unconfirmed(what, "there is no terminal to ask at; add --yes to do it"));
    }
    output::ask(&format!("{what}? [y/N] "));
    if agreed(&mut io::stdin().lock()) { Ok(()) } else { Err(unconfirmed(what, "not confirmed")) }
}

fn unconfirmed(what: &str, why: &str) -> Error {
    Error::usage(format!("{what}: {why}. Nothing happened"))
}

/// Whether the next line says yes; the end of the input does not.
fn agreed(input: &mut impl BufRead) -> bool {
    let mut line = String::new();
    input.read_line(&mut line).is_ok() && matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (typed, expected) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no\n", false), ("yup\n", false)]
        {
            assert_eq!(agreed(&mut typed.as_bytes()), expected, "{typed:?}");
        }
    }
}
