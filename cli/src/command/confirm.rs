//! Asks for a confirmation before a command voids, deletes or decides something.
//!
//! The plan is printed on stderr, so that stdout contains only the answer. `--yes` confirms for scripts. Without it and without
//! a terminal, the command has no effect and its exit code is 2.

use crate::{args::Consent, error::Error, output, text::Text};
use std::io::{self, BufRead, IsTerminal};

/// Shows the plan, then asks unless `--yes` was given.
///
/// Errors: `Usage` if the answer is not yes, or without a terminal.
pub(super) fn confirm(consent: Consent, what: &str, plan: impl FnOnce(&mut Text)) -> Result<(), Error> {
    if consent.yes {
        return Ok(());
    }
    output::note(plan);
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(unconfirmed(what, "there is no terminal for the confirmation; add --yes to confirm"));
    }
    output::ask(&format!("{what}? [y/N] "));
    if agreed(&mut io::stdin().lock()) { Ok(()) } else { Err(unconfirmed(what, "not confirmed")) }
}

fn unconfirmed(what: &str, why: &str) -> Error {
    Error::usage(format!("{what}: {why}. Nothing happened"))
}

/// Returns whether the next line is a yes. The end of the input is not.
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
