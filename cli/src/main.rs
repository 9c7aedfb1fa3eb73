//! The `runlog` command: starts and asks servers, imports, publishes.
//!
//! Reading order: `args` (what is typed), `command` (what each does), `client` (how a server is asked), `output` (how
//! answers are printed), `error` (exit codes).

mod args;
mod client;
mod command;
mod config;
mod conformance;
mod demo;
mod error;
mod import;
mod limits;
mod output;
mod registry;
mod text;
mod value;

use args::Cli;
use clap::Parser;
use command::Answer;
use error::Error;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return misused(&refusal),
    };
    let json = cli.json();
    match command::run(cli) {
        Ok(answer) => answer.into(),
        Err(error) if error.is_output_closed() => Answer::Yes.into(),
        Err(error) => {
            output::error(&error, json);
            error.kind().exit_code().into()
        }
    }
}

/// What clap has to say, in the form that was asked for: it may not have come as far as the flag that asks.
fn misused(refusal: &clap::Error) -> ExitCode {
    let json = std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if !json || !refusal.use_stderr() {
        output::clap(refusal);
        return u8::try_from(refusal.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let error = Error::usage(usage_message(&refusal.render().to_string()));
    output::error(&error, true);
    error.kind().exit_code().into()
}

/// The sentence at the start of clap's text.
fn usage_message(text: &str) -> String {
    match text.strip_prefix("error: ") {
        Some(text) => text.split("\n\n").next().unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" "),
        None => "a command is missing; `runlog --help` lists them".to_owned(),
    }
}

/// The clock that everything else is given. Milliseconds since the Unix epoch.
#[allow(clippy::disallowed_methods, reason = "main is where the clock comes in")]
pub(crate) fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The randomness that everything else is given.
pub(crate) fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, error::ErrorKind};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in
            ["runlog --json --server http://h dead-letter list", "runlog dead-letter list --server http://h --json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.server.as_deref() == Some("http://h"), "{line}");
        }
        let resolve = "runlog effects resolve r id --json --not-done --who w --why t";
        assert!(Cli::try_parse_from(resolve.split(' ')).unwrap().global.json);
    }

    #[test]
    fn a_decision_is_one_of_four_and_signed() {
        for line in [
            "runlog effects resolve r id --who w --why t",
            "runlog effects resolve r id --adopt --give-up --who w --why t",
            "runlog effects resolve r id --adopt --who w",
            "runlog effects resolve r id --done",
            "runlog serve --local --brokers b:1",
            "runlog lookup r --tool t --args {} --occurrence 0",
            "runlog runs --limit 0",
            "runlog show ..",
            "runlog unknown",
            "runlog",
        ] {
            let refusal = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(refusal.exit_code(), 2, "{line}");
            let message = usage_message(&refusal.render().to_string());
            assert!(!message.is_empty() && !message.contains('\n'), "{line}: {message}");
        }
    }

    #[test]
    fn help_is_no_error() {
        let help = Cli::try_parse_from(["runlog", "lookup", "--help"]).unwrap_err();
        assert_eq!((help.kind(), help.exit_code()), (ErrorKind::DisplayHelp, 0));
    }

    #[test]
    fn values_may_begin_with_a_hyphen() {
        assert!(Cli::try_parse_from(["runlog", "lookup", "r", "--tool", "t", "--args", "-5"]).is_ok());
        assert!(Cli::try_parse_from(["runlog", "bench", "--json", "--anything", "-x"]).is_ok());
    }
}
