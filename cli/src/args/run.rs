//! Flags of the commands that run something or write records.

use super::options::{Deadline, RegistryArg};
use crate::{import::Format, value};
use clap::Args;
use runlog_schemas::{id::LogId, schema::WRITTEN_BY_DEFAULT};
use serde::Deserialize;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Number of agents [default: 300]
    #[arg(long, value_name = "N", value_parser = value::positive_u32)]
    pub(crate) agents: Option<u32>,
    /// Empty folder for log, index and ledger [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the folder when the demo ends
    #[arg(long)]
    pub(crate) keep: bool,
    /// Leave one call pending for you to decide, and serve the journal until Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    /// Address to serve at, with --serve; port 0 picks a free port [default: 127.0.0.1:7070, or a free port]
    #[arg(long, value_name = "ADDR", requires = "serve")]
    pub(crate) listen: Option<String>,
    /// Random seed: the same seed gives the same trips [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoAgent {
    /// URL of the journal
    #[arg(long, value_name = "URL")]
    pub(crate) journal: String,
    /// Address of the desk
    #[arg(long, value_name = "ADDR")]
    pub(crate) desk: SocketAddr,
    /// Random seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: u64,
    /// Number of this agent
    #[arg(long, value_name = "N")]
    pub(crate) number: u32,
    /// Book with idempotency keys
    #[arg(long)]
    pub(crate) keyed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoDesk {
    /// New file to append bookings to
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: PathBuf,
}

/// Settings of `serve`, from flags and environment or from the member `serve` of the file of `--config`.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Serve {
    /// Keep the log in this process, under DIR/log
    #[arg(long, conflicts_with = "brokers")]
    #[serde(skip)]
    pub(crate) local: bool,
    /// Kafka brokers of the log: HOST:PORT, several separated by commas [env: RUNLOG_BROKERS, unless --local]
    #[arg(long, value_name = "LIST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) brokers: Option<String>,
    /// Folder for the indices; DIR/index may be deleted while no server uses it
    #[arg(long, env = "RUNLOG_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address to serve HTTP at; port 0 picks a free port [default: 127.0.0.1:7070]
    #[arg(long, env = "RUNLOG_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Host name of this server, in addition to localhost and IP addresses; requests for another host are refused. May
    /// be repeated
    #[arg(long = "allow-host", env = "RUNLOG_ALLOW_HOST", value_name = "NAME", value_delimiter = ',')]
    pub(crate) allow_hosts: Vec<String>,
    /// File of tokens that `runlog token` makes; without it, every client that reaches the server may do everything
    #[arg(long, env = "RUNLOG_TOKENS", value_name = "FILE", conflicts_with = "insecure_no_auth")]
    pub(crate) tokens: Option<PathBuf>,
    /// File to write operators' actions and reads of unmasked content to, before they happen [default: DIR/audit.jsonl with
    /// --tokens, otherwise none]
    #[arg(long, env = "RUNLOG_AUDIT_LOG", value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// PEM file with the server's certificate, followed by its intermediate certificates: serve HTTPS. Read again when
    /// it changes
    #[arg(long, env = "RUNLOG_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key, which only its owner may read
    #[arg(long, env = "RUNLOG_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// PEM file with the certificate authorities of clients; a client without a certificate from them is refused
    /// [default: clients need no certificate]
    #[arg(long, env = "RUNLOG_TLS_CLIENT_CA", value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Another address that serves /healthz, /readyz and /metrics, without TLS and tokens [default: none]
    #[arg(long, env = "RUNLOG_ADMIN_LISTEN", value_name = "ADDR")]
    pub(crate) admin_listen: Option<String>,
    /// Serve the web page at /ui also at an address that other machines reach [default: only at a loopback address]
    #[arg(long = "ui", conflicts_with = "no_ui")]
    #[serde(skip)]
    pub(crate) with_ui: bool,
    /// Serve no web page
    #[arg(long)]
    #[serde(skip)]
    pub(crate) no_ui: bool,
    /// Whether to serve the web page, from the flags or the file.
    #[arg(skip)]
    pub(crate) ui: Option<bool>,
    /// The global flag `--insecure-no-tls`, as a setting of the server.
    #[arg(skip)]
    pub(crate) insecure_no_tls: bool,
    /// Allow connections from other machines without authentication: every client may read and write everything
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,
    /// File of librdkafka's properties, such as security.protocol and sasl.password_file: one NAME=VALUE per line
    /// [default: none]
    #[arg(long, env = "RUNLOG_KAFKA_PROPERTIES", value_name = "FILE")]
    #[serde(skip)]
    pub(crate) kafka_properties: Option<PathBuf>,
    /// Kafka topic of the journal [default: runlog.journal]
    #[arg(long, env = "RUNLOG_TOPIC", value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// Partition count of a new journal [default: 4 local, 16 on Kafka]; an existing journal must have this count
    #[arg(long, env = "RUNLOG_PARTITIONS", value_name = "N", value_parser = value::positive_u32)]
    pub(crate) partitions: Option<u32>,
    /// Store for payloads too large for a record: file:DIR or s3://BUCKET/PREFIX, with AWS_ENDPOINT_URL, AWS_REGION,
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY [default: DIR/content with --local, otherwise none]
    #[arg(long, env = "RUNLOG_CONTENT", value_name = "URL")]
    #[serde(skip)]
    pub(crate) content: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) registry: RegistryArg,
    /// Serve the current indices without reading the log
    #[arg(long)]
    #[serde(skip)]
    pub(crate) paused: bool,
    /// Serve a topic although its settings can lose records; the data folder remembers this for these settings
    #[arg(long, conflicts_with = "local")]
    #[serde(skip)]
    pub(crate) accept_lossy_topic: bool,
    /// Begin a new journal in an empty topic that you created. Never for a topic that MirrorMaker fills: a genesis of its own
    /// makes the mirror another journal. Has no effect on a topic with a journal
    #[arg(long, conflicts_with = "local")]
    #[serde(skip)]
    pub(crate) new_journal: bool,
    /// Make this mirror the home of its journal, because the home LOG_ID is lost for good. First stop MirrorMaker, and make sure
    /// that no server of the lost home can come back. Each run that is open then waits for `runlog home accept`. The flag has no
    /// effect once it is done
    #[arg(long, value_name = "LOG_ID", requires_all = ["who", "why"],
        conflicts_with_all = ["local", "paused", "new_journal"])]
    #[serde(skip)]
    pub(crate) take_home: Option<LogId>,
    /// Who decides, with --take-home
    #[arg(long, value_name = "NAME", value_parser = value::statement, requires = "take_home")]
    #[serde(skip)]
    pub(crate) who: Option<String>,
    /// Why, with --take-home
    #[arg(long, value_name = "TEXT", value_parser = value::statement, requires = "take_home")]
    #[serde(skip)]
    pub(crate) why: Option<String>,
    /// Newest schema version to write. Version 3 is not released: use it only if all servers of the journal read it. A
    /// later version of the command may be unable to read its records
    #[arg(long, value_name = "VERSION", default_value_t = WRITTEN_BY_DEFAULT,
        value_parser = clap::value_parser!(u16).range(2..=3))]
    #[serde(skip)]
    pub(crate) write_schema: u16,
    /// JSON file that lists the servers of this journal, equal on all of them: {"copies": 2, "instances": [{"name": "a", "url":
    /// "https://a:7070", "zone": "z"}]} [default: this server knows no other server]
    #[arg(long, value_name = "FILE")]
    pub(crate) instances: Option<PathBuf>,
    /// Name of this server in the file of --instances
    #[arg(long, env = "RUNLOG_INSTANCE", value_name = "NAME")]
    pub(crate) instance: Option<String>,
    /// Copies of each partition, each on another server of --instances. EXPERIMENTAL below the number of servers: then a server
    /// refuses requests about runs whose partition is elsewhere, and its lists lack them [default: as in the file, otherwise each
    /// server holds all partitions]
    #[arg(long, value_name = "N", value_parser = value::positive_u32)]
    pub(crate) copies: Option<u32>,
    /// Format of the log lines on stderr [default: text]
    #[arg(long, env = "RUNLOG_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

impl Serve {
    /// Fills in the settings of the file.
    pub(crate) fn or(self, file: Self) -> Self {
        Self {
            brokers: self.brokers.or(file.brokers),
            data: self.data.or(file.data),
            listen: self.listen.or(file.listen),
            allow_hosts: if self.allow_hosts.is_empty() { file.allow_hosts } else { self.allow_hosts },
            tokens: self.tokens.or(file.tokens),
            audit_log: self.audit_log.or(file.audit_log),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            tls_client_ca: self.tls_client_ca.or(file.tls_client_ca),
            admin_listen: self.admin_listen.or(file.admin_listen),
            ui: (self.with_ui || self.no_ui).then_some(self.with_ui).or(file.ui),
            insecure_no_tls: self.insecure_no_tls || file.insecure_no_tls,
            insecure_no_auth: self.insecure_no_auth || file.insecure_no_auth,
            topic: self.topic.or(file.topic),
            partitions: self.partitions.or(file.partitions),
            instances: self.instances.or(file.instances),
            instance: self.instance.filter(|name| !name.is_empty()).or(file.instance),
            copies: self.copies.or(file.copies),
            log_format: self.log_format.or(file.log_format),
            ..self
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Format of the files
    #[arg(value_enum)]
    pub(crate) format: Format,
    /// Files to import, folders of .json, .traj or (OTLP) .jsonl files, or - for stdin. If one is malformed, nothing is written
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Append straight to Kafka, without a server: HOST:PORT, several separated by commas. A mirror is refused if the journal had
    /// its home from the start; a home that `runlog home init` set is not seen here
    #[arg(long, value_name = "LIST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) brokers: Option<String>,
    /// File of librdkafka's properties, such as security.protocol and sasl.password_file: one NAME=VALUE per line
    /// [default: none]
    #[arg(long, env = "RUNLOG_KAFKA_PROPERTIES", value_name = "FILE")]
    pub(crate) kafka_properties: Option<PathBuf>,
    /// Kafka topic of the journal, with --brokers [default: runlog.journal]
    #[arg(long, env = "RUNLOG_TOPIC", value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// Content store of the journal, with --brokers: the same as for `runlog serve`
    #[arg(long, env = "RUNLOG_CONTENT", value_name = "URL")]
    pub(crate) content: Option<String>,
    #[command(flatten)]
    pub(crate) registry: RegistryArg,
    /// Text to put before every run id, without a separator
    #[arg(long, value_name = "PREFIX")]
    pub(crate) run_prefix: Option<String>,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// File with one record per line, or - for stdin
    #[arg(default_value = "-", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Refuse records with unknown members, statuses or kinds of turns instead of warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// Append decisions also about effects whose process wrote to the run within the last 30 s
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Prefix of the run ids that the suite writes; no run may have it yet [default: a random one]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Test only this rule; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Vec<String>,
    /// List the rules and contact no server
    #[arg(long)]
    pub(crate) list: bool,
    /// Also test the rules that affect whole partitions (retention horizons, skips). Only for a journal without other runs
    #[arg(long)]
    pub(crate) partition_rules: bool,
    /// Time limit for each rule, such as 30s [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) deadline: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to complete in
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder to write runlog.1 and one page per command to; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text for people: time, level, message, fields.
    #[default]
    Text,
    /// One JSON object per line, with the fields beside `timestamp`, `level`, `message` and `target`.
    Json,
}
