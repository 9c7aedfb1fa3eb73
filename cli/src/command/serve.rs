//! `serve`: the projector and its HTTP interface, in this process.

use crate::{
    args,
    config::{self, Config},
    error::Error,
    exit::Answer,
    limits, listen, output, registry,
    signals::{self, Signals},
};
use runlog_log::kafka::KafkaConfig;
use runlog_producer::content;
use runlog_projector::{Projector, index::held::Holds, open};
use runlog_schemas::answer::ErrorKind;
use runlog_server::{
    Options,
    access::AllowedHosts,
    audit::Audit,
    auth::Authentication,
    serve,
    tls::{Files, Tls},
};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{signal::unix::SignalKind, sync::watch};

mod data_folder;
mod instances;
mod role;
mod take_home;

/// Time limit of a shutdown. After it the process ends; committed data stays.
const END_WAIT: Duration = Duration::from_millis(1800);
/// Part of [`END_WAIT`] for answering the requests in flight.
const GRACE: Duration = Duration::from_millis(1200);
/// Size of RocksDB's cache and memtables, for all partitions together.
const MEMORY_BYTES: usize = 128 << 20;

/// Time limit for blocking work to end after the shutdown.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

/// The location of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Log {
    /// In this process, under the data folder.
    Local,
    /// In Kafka.
    Brokers(KafkaConfig),
}

/// All settings of a server.
#[derive(Debug)]
struct Settings {
    flags: args::Serve,
    log: Log,
    data: PathBuf,
    /// The files of the certificate.
    tls: Option<Files>,
    registry: Option<registry::Settings>,
    /// The store for payloads that are too large for a record.
    content: Option<content::Config>,
}

impl Settings {
    /// Merges the settings. A flag takes precedence over the environment, and the environment over the file. `brokers` is the
    /// environment's value.
    fn new(mut flags: args::Serve, brokers: Option<String>, mut config: Config) -> Result<Self, Error> {
        let topic = config.topic(flags.topic.as_deref());
        flags.brokers = flags.brokers.or(brokers);
        let mut flags = flags.or(std::mem::take(&mut config.serve));
        let local_content = flags.data.as_ref().filter(|_| flags.local);
        let local_content = local_content.and_then(|data| data.join("content").to_str().map(file_url));
        let content = config.content(flags.content.take(), local_content);
        let log = match &flags.brokers {
            _ if flags.local => Log::Local,
            Some(brokers) => Log::Brokers(config.kafka(brokers, topic.clone(), flags.kafka_properties.as_deref())?),
            None => {
                return Err(Error::usage(
                    "name the log: --local keeps it in this process, --brokers HOST:PORT names Kafka brokers",
                ));
            }
        };
        let data = flags.data.take();
        let data = data.ok_or_else(|| Error::usage("name the folder for the indices with --data DIR"))?;
        let default_audit_log = flags.tokens.as_ref().map(|_| data.join(data_folder::AUDIT_LOG));
        flags.audit_log = flags.audit_log.or(default_audit_log);
        let registry = flags.registry.registry.as_deref();
        let registry = registry::settings(registry, &config, &topic, Some(data.join("registry")))?;
        let tls = files(flags.tls_cert.as_deref(), flags.tls_key.as_deref(), flags.tls_client_ca.as_deref())?;
        Ok(Self { flags, log, data, tls, registry, content })
    }
}

/// Returns the files of a certificate.
///
/// Errors: `Usage` if only some of them are named.
fn files(cert: Option<&Path>, key: Option<&Path>, client_ca: Option<&Path>) -> Result<Option<Files>, Error> {
    let named = |file| config::named(file).map(Path::to_owned);
    match (named(cert), named(key), named(client_ca)) {
        (Some(cert), Some(key), client_ca) => Ok(Some(Files { cert, key, client_ca })),
        (None, None, None) => Ok(None),
        _ => Err(Error::usage("TLS needs a certificate and its key: name both with --tls-cert FILE --tls-key FILE")),
    }
}

fn file_url(folder: &str) -> String {
    format!("file:{folder}")
}

/// Serves until a signal ends it.
pub(super) fn run(flags: args::Serve, config: Config) -> Result<Answer, Error> {
    let brokers = std::env::var("RUNLOG_BROKERS").ok().filter(|brokers| !brokers.is_empty());
    let settings = Settings::new(flags, brokers, config)?;
    // Other users of this machine may not read a server's files.
    rustix::process::umask(rustix::fs::Mode::from_bits_retain(0o077));
    let _lock = data_folder::claim(&settings.data, settings.log == Log::Local)?;
    limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, "cannot start the async runtime").because(error))?;
    let served = runtime.block_on(until_ended(settings));
    // The databases close when the last request drops them.
    runtime.shutdown_timeout(CLOSE_WAIT);
    served.map(|()| Answer::Yes)
}

async fn until_ended(settings: Settings) -> Result<(), Error> {
    let mut signals = Signals::listen()?;
    let (end, ended) = watch::channel(false);
    let mut service = std::pin::pin!(service(settings, ended));
    let signal = tokio::select! {
        served = &mut service => return served,
        signal = signals.next() => signal,
    };
    tracing::info!(signal, "shutting down: answering the requests in flight, closing streams");
    // An error means that the service has already ended.
    let _ = end.send(true);
    match tokio::time::timeout(END_WAIT, service).await {
        Ok(served) => served,
        Err(_) => {
            let limit = humantime::format_duration(END_WAIT);
            tracing::warn!(%limit, "shutdown took too long and was aborted; committed data stays");
            Ok(())
        }
    }
}

/// Runs the projector and its HTTP interface until `ended` turns true.
async fn service(settings: Settings, mut ended: watch::Receiver<bool>) -> Result<(), Error> {
    // Listens first, because an address in use is the most frequent mistake.
    let flags = &settings.flags;
    let listen = flags.listen.as_deref().unwrap_or(listen::DEFAULT);
    let listener = listen::bind(listen).await?;
    let address = listener.local_addr().map_err(|error| listen::unusable(listen, &error))?;
    let protected = listen::Protected { tls: settings.tls.is_some(), tokens: flags.tokens.is_some() };
    let accepted = listen::Accepted { no_tls: flags.insecure_no_tls, no_auth: flags.insecure_no_auth };
    listen::check(address, protected, accepted)?;
    let mut options = options(&settings)?;
    let mut addresses = listening(address, options.tls.is_some());
    options.instances = instances::read(&settings, &options)?;
    let list = options.instances.clone();
    if let Some(list) = &list {
        addresses["instance"] = list.own().name.as_str().into();
        let names = flags.allow_hosts.iter().cloned().chain(list.own_host());
        options.hosts = AllowedHosts::new(names);
    }
    options.page = serves_page(flags.ui, address);
    if options.page {
        addresses["ui"] = format!("{}/ui", addresses["listening"].as_str().unwrap_or_default()).into();
    }
    if let Some(admin_listen) = flags.admin_listen.as_deref().filter(|address| !address.is_empty()) {
        let admin = listen::bind(admin_listen).await?;
        let address = admin.local_addr().map_err(|error| listen::unusable(admin_listen, &error))?;
        addresses["admin"] = format!("http://{}", listen::reachable(address)).into();
        options.admin = Some(admin);
    }
    let reload = reload_on_hangup(&options)?;
    let data = settings.data.clone();
    let takeover = take_home::Takeover::new(flags);
    let holds = list.as_ref().map_or(Holds::All, |list| Holds::ChosenBy(list.choose(|_, _| BTreeMap::new())));
    let projector = Arc::new(projector(settings, holds).await?);
    instances::check_log(list.as_deref(), &projector)?;
    let (journal, topic) = (projector.journal().clone(), projector.log().topic().to_owned());
    let (version, journal_id, partitions) = (env!("CARGO_PKG_VERSION"), journal.journal_id, journal.partitions);
    tracing::info!(version, journal_id, topic, partitions, %address, data = %data.display(), "started");
    addresses["partitions"] = partitions.into();
    if let Some(role) = role::report(&projector) {
        addresses["role"] = role.as_str().into();
    }
    output::unless_closed(output::document(&addresses))?;
    let end = async move {
        // An error means that the sender was dropped.
        let _ = ended.wait_for(|ended| *ended).await;
    };
    let ended = tokio::select! {
        () = serve(listener, Arc::clone(&projector), options, end, GRACE) => Ok(()),
        () = reload => Ok(()),
        refused = take_home::run(&projector, takeover) => Err(refused),
        outdated = role::until_outdated(&projector) => Err(outdated),
    };
    // Waits for the loop's commit and for the log's clients on a thread that may block.
    let closed = tokio::task::spawn_blocking(move || {
        projector.end();
        let records = projector
            .held_partitions()
            .filter_map(|partition| Some(projector.progress(partition).ok()?.applied.get()))
            .sum();
        drop(projector);
        records
    });
    let closed = closed.await;
    let records: u64 =
        closed.map_err(|error| Error::new(ErrorKind::Internal, "the projector did not shut down").because(error))?;
    tracing::info!(records, "stopped: all records up to here are committed to the indices, the log is closed");
    ended
}

/// Returns whether to serve the page: as flag or file says, otherwise at a loopback address only.
fn serves_page(ui: Option<bool>, address: SocketAddr) -> bool {
    ui.unwrap_or(address.ip().is_loopback())
}

/// Returns the addresses for the first line of the output.
fn listening(address: SocketAddr, tls: bool) -> serde_json::Value {
    let scheme = if tls { "https" } else { "http" };
    serde_json::json!({ "listening": format!("{scheme}://{}", listen::reachable(address)) })
}

/// Reads certificates and tokens again whenever the process gets SIGHUP. Never resolves. Without certificates and tokens, the
/// signal ends the server, as when its terminal is closed.
fn reload_on_hangup(options: &Options) -> Result<impl Future<Output = ()> + use<>, Error> {
    let (tls, authentication) = (options.tls.clone(), options.authentication.clone());
    let hangup = (tls.is_some() || authentication.is_some()).then(|| signals::listen(SignalKind::hangup()));
    let mut hangup = hangup.transpose()?;
    Ok(async move {
        while let Some(hangup) = &mut hangup {
            if hangup.recv().await.is_none() {
                break;
            }
            let (tls, authentication) = (tls.clone(), authentication.clone());
            let read = tokio::task::spawn_blocking(move || {
                if let Some(tls) = tls {
                    tls.reload();
                }
                if let Some(authentication) = authentication {
                    authentication.reload();
                }
            });
            read.await.ok();
        }
        std::future::pending().await
    })
}

/// Builds the server's options: tokens, TLS and audit log.
fn options(settings: &Settings) -> Result<Options, Error> {
    let mut options = Options::from(AllowedHosts::new(settings.flags.allow_hosts.iter().cloned()));
    if let Some(tokens) = &settings.flags.tokens {
        let opened = Authentication::open(tokens, crate::ambient::now_millis);
        let opened = opened.map_err(|error| Error::new(ErrorKind::Invalid, "cannot use the tokens").because(error))?;
        options.authentication = Some(opened);
    }
    if let Some(files) = &settings.tls {
        let opened = Tls::open(files.clone());
        let refused = |error| Error::new(ErrorKind::Invalid, "cannot use the TLS certificate").because(error);
        options.tls = Some(opened.map_err(refused)?);
    }
    if let Some(audit_log) = &settings.flags.audit_log {
        let path = audit_log.display();
        options.audit = Some(Audit::open(audit_log, crate::ambient::now_millis).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot use the audit log {path}")).because(error)
        })?);
    }
    Ok(options)
}

/// Opens the projector over the configured log.
async fn projector(settings: Settings, holds: Holds) -> Result<Projector, Error> {
    let config = runlog_projector::Config {
        memory_bytes: MEMORY_BYTES,
        holds,
        paused: settings.flags.paused,
        accept_lossy_topic: settings.flags.accept_lossy_topic,
        new_journal: settings.flags.new_journal,
        may_create: settings.flags.take_home.is_none(),
        write_schema: settings.flags.write_schema,
        partitions: settings.flags.partitions,
        content: settings.content.as_ref().map(content::Store::open).transpose()?,
        schemas: registry::schemas(settings.registry).await?,
        ..runlog_projector::Config::new(settings.data, crate::ambient::now_millis, crate::ambient::random_id)
    };
    Ok(match settings.log {
        Log::Local => open::local(config).await?,
        Log::Brokers(kafka) => {
            let what = format!("cannot open the journal in topic {} at {}", kafka.topic, kafka.brokers);
            let opened = open::kafka(config, kafka).await.map_err(Error::from);
            opened.map_err(|error| Error::new(error.kind(), what).with_details_of(&error).because(error))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn settings(line: &str, brokers: Option<&str>, config: Config) -> Result<Settings, Error> {
        let Command::Serve(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("{line}") };
        Settings::new(args, brokers.map(str::to_owned), config)
    }

    #[test]
    fn local_takes_precedence_over_brokers_that_are_not_on_the_command_line() {
        let local = settings("runlog serve --local --data d", Some("env:1"), Config::default()).unwrap();
        assert_eq!((local.log, local.flags.listen), (Log::Local, None));
        let kafka = settings("runlog serve --data d", Some("env:1"), Config::default()).unwrap();
        assert_eq!(kafka.log, Log::Brokers(KafkaConfig::new("env:1", "runlog.journal")));
    }

    #[test]
    fn the_page_is_served_at_loopback_unless_flag_or_file_says_otherwise() {
        let (here, elsewhere) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        for (flag, file, expected) in [
            ("", None, (true, false)),
            (" --ui", Some(false), (true, true)),
            (" --no-ui", Some(true), (false, false)),
            ("", Some(true), (true, true)),
            ("", Some(false), (false, false)),
        ] {
            let mut config = Config::default();
            config.serve.ui = file;
            let ui = settings(&format!("runlog serve --local --data d{flag}"), None, config).unwrap().flags.ui;
            assert_eq!((serves_page(ui, here), serves_page(ui, elsewhere)), expected, "{flag} {file:?}");
        }
    }

    #[test]
    fn a_takeover_is_typed_with_author_and_reason_and_only_for_a_server_that_reads_kafka() {
        let line = "runlog serve --brokers b:1 --data d --take-home kafka:a:b --who jo --why lost";
        let takeover = take_home::Takeover::new(&settings(line, None, Config::default()).unwrap().flags);
        assert!(takeover.is_some_and(|takeover| format!("{takeover:?}").contains("kafka:a:b")));
        for line in [
            line.replace(" --why lost", ""),
            line.replace(" --who jo", ""),
            line.replace("--take-home kafka:a:b ", ""),
            line.replace("kafka:a:b", "kafka:a@b"),
            line.replace("--brokers b:1", "--local"),
            format!("{line} --paused"),
            format!("{line} --new-journal"),
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
        let command = <Cli as clap::CommandFactory>::command();
        let serve = command.find_subcommand("serve").unwrap();
        for name in ["new_journal", "take_home", "who", "why"] {
            let argument = serve.get_arguments().find(|argument| argument.get_id() == name).unwrap();
            assert!(argument.get_env().is_none(), "{name}");
        }
    }

    #[test]
    fn a_server_without_log_or_folder_is_a_usage_error() {
        for line in [
            "runlog serve --data d",
            "runlog serve --local",
            "runlog serve --local --data d --tls-cert c",
            "runlog serve --local --data d --tls-client-ca c",
        ] {
            assert_eq!(settings(line, None, Config::default()).unwrap_err().kind(), ErrorKind::Usage, "{line}");
        }
    }
}
