//! The `runlog` command: starts and queries servers, imports, exports, publishes.
//!
//! Reading order: `args` (the command line), `command` (what each command does), `session` and `client` (requests to a
//! server), `output` and `text` (what is printed), `exit` (exit codes).

mod ambient;
mod args;
mod client;
mod command;
mod config;
mod error;
mod exit;
mod export;
mod import;
mod limits;
mod listen;
mod logging;
mod mcp;
mod output;
mod registry;
mod render;
mod session;
mod signals;
mod text;
mod value;

use args::Cli;
use error::Error;
use exit::Answer;
use std::io::Write as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let code = run();
    // A closed output has been reported.
    let _ = std::io::stdout().flush();
    // Skips the destructors of C++ statics. A thread of RocksDB whose write still hangs would lock a destroyed mutex as it
    // closes its database, and abort the process.
    signal_hook::low_level::exit(code.into());
}

/// Runs the command and returns the exit code.
fn run() -> u8 {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refusal) => return misused(&refusal),
    };
    let json = cli.global.json;
    match command::run(cli) {
        Ok(answer) => answer.exit_code(),
        // The reader of the stream closed it. That is not a failure.
        Err(error) if error.is_output_closed() => Answer::Yes.exit_code(),
        Err(error) => {
            output::error(&error, json);
            error.kind().exit_code()
        }
    }
}

/// Prints clap's message, as JSON if the command line contains `--json`. Parsing may have failed before that flag.
fn misused(refusal: &clap::Error) -> u8 {
    let json = std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if !json || !refusal.use_stderr() {
        output::clap(refusal);
        return u8::try_from(refusal.exit_code()).unwrap_or(1);
    }
    let error = Error::usage(usage_message(&refusal.render().to_string()));
    output::error(&error, true);
    error.kind().exit_code()
}

/// Returns the first sentence of clap's text.
fn usage_message(text: &str) -> String {
    match text.strip_prefix("error: ") {
        Some(text) => text.split("\n\n").next().unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" "),
        None => "a command is missing; `runlog --help` lists the commands".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser, error::ErrorKind};

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
            "runlog effects resolve r id --adopt --against late --who w --why t",
            "runlog effects resolve r id --done",
            "runlog effects resolve r id --who w --why t --done --yes",
            "runlog lookup r --tool t --args --json",
            "runlog serve --local --brokers b:1",
            "runlog lookup r --tool t --args {} --occurrence 0",
            "runlog runs --limit 0",
            "runlog show ..",
            "runlog",
        ] {
            let refusal = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(refusal.exit_code(), 2, "{line}");
            let message = usage_message(&refusal.render().to_string());
            assert!(!message.is_empty() && !message.contains('\n'), "{line}: {message}");
        }
    }

    #[test]
    fn a_json_value_may_be_a_negative_number() {
        for line in [
            "runlog effects resolve r id --done -1.5 --who w --why t",
            "runlog effects resolve r id --done=-1e-5 --who w --why t",
            "runlog lookup r --tool t --args -7",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap();
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
    }

    #[test]
    fn only_a_server_on_the_command_line_counts_as_named() {
        for (line, named) in [
            ("runlog conformance", false),
            ("runlog conformance --server http://h", true),
            ("runlog --server http://h conformance", true),
        ] {
            assert_eq!(Cli::read(line.split(' ').map(Into::into)).unwrap().global.server_typed, named, "{line}");
        }
    }

    /// Every command has a sentence that fits a line, and every visible one with arguments shows an example.
    #[test]
    fn every_command_explains_itself_with_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let about = command.get_about().unwrap().to_string();
            assert!(!about.ends_with('.') && about.len() <= 110, "{}: {about}", command.get_name());
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains(&format!("runlog {}", command.get_name())), "{}: {after}", command.get_name());
        }
    }
}
