//! The command line: commands, flags and their help texts.
//!
//! A value comes from the command line, otherwise from the environment, otherwise from the file of `--config`. Without any of
//! these, the default in the flag's help applies.

use crate::exit;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, parser::ValueSource};
use std::{ffi::OsString, path::PathBuf};

mod ask;
mod decide;
mod export;
mod home;
mod mcp;
mod options;
mod run;
mod schema;
mod token;

pub(crate) use ask::{
    Anomalies, Checkpoint, DeadLetter, DeadLetterAction, DeadLetterList, DeadLetterShow, Doctor, Effects,
    EffectsAction, Lookup, Overview, Recover, Runs, Show, Tail, Verify, WhoAmI,
};
pub(crate) use decide::{Attribution, Cancel, Consent, DeadLetterSkip, Decision, Resolve, Retention};
pub(crate) use export::{Export, ExportFormat};
pub(crate) use home::{Home, HomeAccept, HomeAction, HomeInit};
pub(crate) use mcp::McpGate;
pub(crate) use options::{Deadline, PageOptions, ReadOptions};
pub(crate) use run::{Completions, Conformance, Demo, DemoAgent, DemoDesk, Import, LogFormat, Man, Publish, Serve};
pub(crate) use schema::{Schema, SchemaAction, SchemaCheck, SchemaShow};
pub(crate) use token::{Token, TokenAction, TokenCreate, TokenRevoke, TokensArg};

/// A replayable journal of agent runs
#[derive(Debug, Parser)]
#[command(name = "runlog", version, max_term_width = 120, after_help = exit::table(), after_long_help = after_long_help())]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses a command line, and records whether it contains `--server`.
    pub(crate) fn read(line: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.global.server_typed = matches.value_source("server") == Some(ValueSource::CommandLine);
        // An empty value in the environment means no value. On the command line it is an unset variable of the shell. Then the
        // command would query or change another server than the intended one.
        if cli.global.server_typed && cli.global.server.as_deref() == Some("") {
            let what = "--server is empty; give the URL of a server, such as http://127.0.0.1:7070\n";
            return Err(Self::command().error(clap::error::ErrorKind::InvalidValue, what));
        }
        Ok(cli)
    }
}

fn after_long_help() -> String {
    format!("{}\n{CONFIG_HELP}", exit::table())
}

/// The description of the `--config` file in `runlog --help`.
const CONFIG_HELP: &str = r#"Config file (--config FILE), JSON. Every member is optional; unknown members are refused by name:
  {
    "server": "http://127.0.0.1:7070", "token_file": "/etc/runlog/token", "consistency": "latest", "deadline": "10s",
    "ca": "/etc/runlog/ca.pem", "client_cert": "/etc/runlog/me.pem", "client_key": "/etc/runlog/me.key",
    "serve": {"brokers": "a:9092,b:9092", "data": "/data", "listen": "127.0.0.1:7070", "ui": true,
              "topic": "runlog.journal", "partitions": 16, "log_format": "text", "tokens": "/etc/runlog/tokens.json",
              "tls_cert": "/etc/runlog/server.pem", "tls_key": "/etc/runlog/server.key"},
    "content": {"url": "s3://bucket/prefix", "inline_bytes_max": 262144, "deadline": "30s",
                "options": {"endpoint": "http://127.0.0.1:9000", "region": "us-east-1"}},
    "registry": {"url": "https://host:8081", "subject": "runlog.journal-value", "user": "key", "password": "secret"},
    "kafka": {"security.protocol": "ssl"}, "kafka_properties": "/etc/runlog/kafka.properties"
  }
"#;

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// URL of the server to ask [default: http://127.0.0.1:7070]
    #[arg(
        long,
        help_heading = "Global options",
        global = true,
        env = "RUNLOG_SERVER",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub(crate) server: Option<String>,
    /// Whether `--server` is on the command line, not only in the environment.
    #[arg(skip)]
    pub(crate) server_typed: bool,
    /// File with the token for the server, which only its owner may read; RUNLOG_TOKEN may contain the token itself
    /// [default: no token]
    #[arg(long, help_heading = "Global options", global = true, env = "RUNLOG_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the certificate authorities to trust for an https:// server [default: the system's]
    #[arg(long, help_heading = "Global options", global = true, env = "RUNLOG_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file with this client's certificate, followed by its intermediate certificates [default: none]
    #[arg(long, help_heading = "Global options", global = true, env = "RUNLOG_CLIENT_CERT", value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// PEM file with the private key of the client's certificate, which only its owner may read [default: the file of
    /// --client-cert]
    #[arg(long, help_heading = "Global options", global = true, env = "RUNLOG_CLIENT_KEY", value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// Allow connections with other machines without TLS: `serve` accepts unencrypted connections, and every other command
    /// sends its token over http://
    #[arg(long, help_heading = "Global options", global = true)]
    pub(crate) insecure_no_tls: bool,
    /// JSON file with settings; flags and environment variables take precedence. `runlog --help` lists its members
    #[arg(long, help_heading = "Global options", global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON document (one per line for streams) and nothing else on stdout, errors included
    #[arg(long, help_heading = "Global options", global = true)]
    pub(crate) json: bool,
    /// Print more detail; -vv also prints debug logs
    #[arg(short, long, help_heading = "Global options", global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print nothing but errors on stderr
    #[arg(short, long, help_heading = "Global options", global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run live agents against a local journal, kill some of them, and check that nothing is lost or done twice
    #[command(after_help = "Examples:\n  runlog demo\n  runlog demo --agents 50 --serve --listen 127.0.0.1:7071")]
    Demo(Demo),
    /// Index a journal and serve it over HTTP
    #[command(after_help = "Examples:\n  runlog serve --local --data ./journal\n  \
                            runlog serve --brokers localhost:9092 --data /var/lib/runlog\n  \
                            runlog serve --brokers localhost:9092 --data /var/lib/runlog \\\n    \
                            --take-home kafka:MkU3OEVBNTcwNTJENDM2Qk:XvNFJqY8S9-aPtxsJ-VgvA --who jo --why 'region A burned down'")]
    Serve(Serve),
    /// Import runs that another framework recorded
    #[command(after_help = "Examples:\n  runlog import tau-bench results.json\n  \
                            runlog import swe-agent trajectories/ --run-prefix 2026-11/\n  \
                            zcat results.json.gz | runlog import tau-bench -\n  \
                            runlog import otlp traces.jsonl")]
    Import(Import),
    /// Export runs in the formats of other tools
    #[command(after_help = "Examples:\n  runlog export run-42 > run-42.json\n  \
                            runlog export --prefix acme/ --out trajectories\n  \
                            runlog export --format parquet --at 0:4711,1:4650 --out tables")]
    Export(Export),
    /// Append records, one JSON object per line
    #[command(
        after_help = "Example:\n  echo '{\"run_id\":\"run-42\",\"payload\":{\"type\":\"run_lifecycle\",\"status\":\
                            \"started\"}}' | runlog publish"
    )]
    Publish(Publish),
    /// List runs
    #[command(after_help = "Examples:\n  runlog runs --newest --limit 20\n  runlog runs --status open --since 2h\n  \
                            runlog runs --stuck\n  runlog runs --in-doubt")]
    Runs(Runs),
    /// Show the records of a run
    #[command(after_help = "Examples:\n  runlog show run-42\n  runlog show run-42 --as-of 3:4711\n  \
                            runlog show run-42 --raw --json")]
    Show(Show),
    /// Follow the records of one run or of all runs, or the changes of an index
    #[command(after_help = "Examples:\n  runlog tail run-42 --from beginning\n  runlog tail\n  \
                            runlog tail --index effects")]
    Tail(Tail),
    /// Look up a tool call by its tool and arguments
    #[command(after_help = "Examples:\n  runlog lookup run-42 --tool book_flight --args '{\"seat\":\"1A\"}'\n  \
                            runlog lookup run-42 --tool get_price --args '{}' --occurrence 2\n\n\
                            Exit codes: 0 completed or failed; 6 pending (it may have happened); 1 unknown")]
    Lookup(Lookup),
    /// Print the latest valid checkpoint of a run
    #[command(after_help = "Example:\n  runlog checkpoint run-42 --json")]
    Checkpoint(Checkpoint),
    /// Print the state to resume a run from: checkpoint, completed and pending calls. Changes nothing
    #[command(after_help = "Examples:\n  runlog recover run-42\n  runlog recover run-42 --full --json\n\n\
                            Exit codes: 0 resumable; 1 not resumable, or no such run")]
    Recover(Recover),
    /// List tool calls and other effects, or record a decision on a pending one
    #[command(after_help = "Examples:\n  runlog effects --pending --unsafe\n  \
                            runlog effects resolve run-42 REQUEST_ID --done '{\"confirmation\":\"X1\"}' --who jo --why \
                            'the airline has the booking'")]
    Effects(Effects),
    /// Cancel an open run: its writers are fenced off
    #[command(after_help = "Example:\n  runlog cancel run-42 --who jo --why 'the customer withdrew' --yes")]
    Cancel(Cancel),
    /// List refused records
    #[command(after_help = "Examples:\n  runlog anomalies\n  runlog anomalies run-42 --json")]
    Anomalies(Anomalies),
    /// List, show or skip records that could not be read
    #[command(after_help = "Examples:\n  runlog dead-letter list\n  runlog dead-letter show 3:1255\n  \
                            runlog dead-letter skip 3:1255 --who jo --why 'written by a foreign client'")]
    DeadLetter(DeadLetter),
    /// List retention horizons, or delete the content of old records
    #[command(after_help = "Examples:\n  runlog retention\n  \
                            runlog retention conversation_turn --until 2026-01-01T00:00:00Z --who jo --why 'policy 7'")]
    Retention(Retention),
    /// Show the home of the journal, set it once, or accept runs after a home was lost
    #[command(
        after_help = "Examples:\n  runlog home\n  runlog home init LOG_ID --who jo --why 'agents write here'\n  \
                            runlog home accept run-42 --who jo --why 'the airline has no booking'"
    )]
    Home(Home),
    /// Check the deployment and suggest fixes
    #[command(after_help = "Example:\n  runlog doctor\n\nExit codes: 0 healthy; 1 not healthy")]
    Doctor(Doctor),
    /// Show counts of effects and records, and the lag
    #[command(after_help = "Example:\n  runlog overview")]
    Overview(Overview),
    /// Show what this credential allows
    #[command(name = "whoami", after_help = "Example:\n  runlog whoami")]
    WhoAmI(WhoAmI),
    /// Rebuild the indices from the log in memory and compare them with the live indices
    #[command(after_help = "Examples:\n  runlog verify\n  runlog verify -v     # every index of every partition\n\n\
                            Exit codes: 0 equal; 1 not equal")]
    Verify(Verify),
    /// Test whether a server keeps the journal's rules. Writes at least one permanent run per rule
    #[command(
        after_help = "Examples:\n  runlog conformance --list\n  runlog conformance --server http://test-host:7070"
    )]
    Conformance(Conformance),
    /// Put a gate before an MCP server: each tool call runs once, however often the client repeats it
    #[command(
        name = "mcp-gate",
        after_help = "Examples, as the command of a server in the configuration of an MCP client:\n  \
                      runlog mcp-gate -- npx -y @acme/booking-server\n  \
                      runlog mcp-gate --run trip-7/booking --policy booking.json -- python booking.py\n  \
                      runlog mcp-gate --upstream https://mcp.acme.example/mcp --upstream-token-file acme.token"
    )]
    McpGate(McpGate),
    /// List, show or compare record schemas
    #[command(after_help = "Examples:\n  runlog schema list\n  runlog schema check old.avsc new.avsc")]
    Schema(Schema),
    /// Make, list or revoke the tokens of `runlog serve --tokens`
    #[command(after_help = "Examples:\n  runlog token create --tokens tokens.json --principal travel-agent \\\n    \
                            --scope append,read_meta,read_content --runs 'acme/*' --expires-in 90d\n  \
                            runlog token list --tokens tokens.json\n  \
                            runlog token revoke --tokens tokens.json 0a1b2c3d4e5f --yes")]
    Token(Token),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  runlog completions bash > /etc/bash_completion.d/runlog")]
    Completions(Completions),
    /// Write the manual pages
    #[command(after_help = "Example:\n  runlog man /usr/local/share/man/man1")]
    Man(Man),
    /// One agent of the demo, for the demo to start
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    /// The demo's airline desk, for the demo to start
    #[command(hide = true)]
    DemoDesk(DemoDesk),
}
