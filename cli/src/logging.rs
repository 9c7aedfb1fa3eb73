//! The log on stderr: its levels and formats.
//!
//! `RUST_LOG` decides which lines are written; without it, `-q` and `-v` do. A server logs its start, every request and
//! its shutdown at the default level, every other command only warnings.

use crate::{
    args::{Global, LogFormat},
    output,
};
use tracing_subscriber::EnvFilter;

/// Levels of libraries that log their own work in detail, such as each parsed schema.
const NOISY: &str = "apache_avro=error,hyper_util=error,reqwest=error";

/// Starts the log of a command.
pub(crate) fn start(global: &Global) {
    start_at(global, ["warn", "info", "debug", "trace"], LogFormat::Text);
}

/// Starts the log of a server.
pub(crate) fn start_of_server(global: &Global, format: LogFormat) {
    start_at(global, ["info", "info", "debug", "trace"], format);
}

/// Starts the log. `levels` are the levels without `-v`, with `-v`, `-vv` and `-vvv`.
fn start_at(global: &Global, levels: [&str; 4], format: LogFormat) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(directives(global.quiet, global.verbose, levels)));
    let ansi = output::may_colour(&std::io::stderr());
    let json = format == LogFormat::Json;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi);
    let log = log.with_writer(move || output::LogLines::new(json));
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

fn directives(quiet: bool, verbose: u8, levels: [&str; 4]) -> String {
    let level = if quiet { "error" } else { levels[usize::from(verbose).min(levels.len() - 1)] };
    if level == "trace" { level.to_owned() } else { format!("{level},{NOISY}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_avro_parser_logs_only_at_the_highest_level() {
        let levels = ["info", "info", "debug", "trace"];
        for verbose in 0..3 {
            assert!(directives(false, verbose, levels).contains("apache_avro=error"), "{verbose}");
        }
        assert_eq!(directives(false, 3, levels), "trace");
        assert!(directives(true, 3, levels).starts_with("error,"));
    }
}
