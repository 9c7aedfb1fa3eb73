//! The file of `--config`: JSON. Every member is optional; unknown members are refused by name. `runlog --help` prints an example.

use crate::{
    args::{Global, ReadOptions, Serve},
    error::Error,
    value::{self, Consistency},
};
use runlog_log::{
    kafka::{self, KafkaConfig},
    private_file::exposure,
};
use runlog_producer::{Security, Tls, Token, content};
use runlog_schemas::answer::ErrorKind;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// Default URL of the server.
pub(crate) const SERVER: &str = "http://127.0.0.1:7070";
/// Default topic of the journal.
const TOPIC: &str = "runlog.journal";

/// The content of the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The server; default `http://127.0.0.1:7070`.
    server: Option<String>,
    /// File with the token for the server; default none.
    pub(crate) token_file: Option<PathBuf>,
    /// Authorities of https:// servers; default the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate; default none.
    client_cert: Option<PathBuf>,
    /// Its private key; default in the file of the certificate.
    client_key: Option<PathBuf>,
    /// Send the token over http:// to another machine too; default false.
    insecure_no_tls: bool,
    /// Freshness of answers; default by query.
    consistency: Option<String>,
    /// Time limit of answers; default by command.
    deadline: Option<String>,
    /// For `serve`.
    pub(crate) serve: Serve,
    /// The store for payloads too large for a record.
    content: Content,
    /// The schema registry of the journal; default none.
    pub(crate) registry: Registry,
    /// Properties of librdkafka for every client, mostly for security; default none.
    kafka: BTreeMap<String, String>,
    /// A file of such properties, which override the members of `kafka`; default none.
    kafka_properties: Option<PathBuf>,
}

/// The file has secrets: passwords of the registry, keys of the content store, Kafka's properties.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("serve", &self.serve).finish_non_exhaustive()
    }
}

/// The schema registry.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Registry {
    /// The registry's URL; no default.
    pub(crate) url: Option<String>,
    /// The subject of the journal's records; default `TOPIC-value`.
    pub(crate) subject: Option<String>,
    /// User for basic authentication; default none.
    pub(crate) user: Option<String>,
    /// Password for basic authentication; default none.
    pub(crate) password: Option<String>,
    /// A bearer token; default none.
    pub(crate) token: Option<String>,
}

/// The content store.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Content {
    /// `file:DIR` or `s3://BUCKET/PREFIX`; default `DIR/content` of a local journal, otherwise none.
    url: Option<String>,
    /// The longest payload that stays in its record, bytes; default 256 KiB.
    inline_bytes_max: Option<usize>,
    /// Time limit of a call on the store, its retries included; default 30s.
    deadline: Option<String>,
    /// Options of S3 that override the environment's `AWS_…`: endpoint, region, access_key_id, secret_access_key and others.
    options: BTreeMap<String, String>,
}

/// Returns the file that a flag or a variable names. An empty value names no file.
pub(crate) fn named(given: Option<&Path>) -> Option<&Path> {
    given.filter(|given| !given.as_os_str().is_empty())
}

/// Returns whether an option of the content store has a secret value.
fn is_secret_option(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("secret") || name.ends_with("token") || name.contains("customer_key")
}

/// Returns whether a URL contains a user or a password.
fn has_credentials(url: &str) -> bool {
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    authority.is_some_and(|authority| authority.contains('@'))
}

impl Config {
    /// Reads the file that the command names. Authorities from a flag or the environment replace the file's authorities.
    ///
    /// Errors: see [`Self::read`].
    pub(crate) fn for_command(given: &Global) -> Result<Self, Error> {
        let mut config = Self::read(given.config.as_deref())?;
        if let Some(ca) = named(given.ca.as_deref()) {
            config.ca = Some(ca.to_owned());
        }
        Ok(config)
    }

    /// Reads the file. Without a file, every setting has its default.
    ///
    /// Errors: `Invalid` for a file that cannot be used, and for a file with a secret that other users may read, write or
    /// replace.
    fn read(file: Option<&Path>) -> Result<Self, Error> {
        let Some(file) = file else { return Ok(Self::default()) };
        let named = file.display().to_string();
        let refused =
            || Error::new(ErrorKind::Invalid, format!("cannot use config file {named}")).with("file", named.as_str());
        let read = || {
            let mut opened = File::open(file)?;
            let exposure = exposure(&opened, file)?;
            let mut text = String::new();
            opened.read_to_string(&mut text).map(|_| (text, exposure))
        };
        let (text, exposure) = read().map_err(|error: std::io::Error| refused().because(error))?;
        let config = Self::parse(&text).map_err(|error| refused().because(error))?;
        match (exposure, config.secret()) {
            (Some(exposure), Some(secret)) => {
                Err(refused().because(exposure.message(&format!("file with {secret}"), file)))
            }
            _ => Ok(config),
        }
    }

    /// Returns the name of a member with a secret, or `None`.
    fn secret(&self) -> Option<String> {
        let Registry { url, password, token, .. } = &self.registry;
        let registry = [
            ("password", password.is_some()),
            ("token", token.is_some()),
            ("url", url.as_deref().is_some_and(has_credentials)),
        ];
        let registry =
            registry.into_iter().find(|(_, is_secret)| *is_secret).map(|(name, _)| format!("registry.{name}"));
        let option = self.content.options.iter().find(|(name, value)| is_secret_option(name) || has_credentials(value));
        let property = self.kafka.keys().find(|name| kafka::is_secret(name));
        registry
            .or_else(|| option.map(|(name, _)| format!("content.options.{name}")))
            .or_else(|| property.map(|name| format!("kafka.{name}")))
    }

    fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let config: Self = serde_json::from_str(text)?;
        if let Some(text) = &config.consistency {
            text.parse::<Consistency>().map_err(|error| format!("consistency: {error}"))?;
        }
        if let Some(text) = &config.deadline {
            value::duration(text).map_err(|error| format!("deadline: {error}"))?;
        }
        if let Some(text) = &config.content.deadline {
            value::duration(text).map_err(|error| format!("content.deadline: {error}"))?;
        }
        Ok(config)
    }

    /// Reads the token for the server from the file that flag or environment or this config file names, in this order.
    fn token(&self, given: Option<&Path>) -> Result<Option<Token>, Error> {
        let token = match named(given) {
            Some(file) => Token::from_file(file).map(Some),
            None => match (Token::from_env(), &self.token_file) {
                (Ok(None), Some(file)) => Token::from_file(file).map(Some),
                (token, _) => token,
            },
        };
        Ok(token?)
    }

    /// Returns the protection of the connection to the server: flag or environment, then the file.
    pub(crate) fn security(&self, given: &Global) -> Result<Security, Error> {
        let either = |given: &Option<PathBuf>, file: &Option<PathBuf>| {
            named(given.as_deref()).or(file.as_deref()).map(Path::to_owned)
        };
        let tls = Tls {
            ca: self.ca.clone(),
            client_cert: either(&given.client_cert, &self.client_cert),
            client_key: either(&given.client_key, &self.client_key),
        };
        let token = self.token(given.token_file.as_deref())?;
        Ok(Security { token, tls, insecure_no_tls: given.insecure_no_tls || self.insecure_no_tls })
    }

    /// Returns the server's URL: flag or environment, then the file, then the default.
    pub(crate) fn server(&self, given: Option<&str>) -> String {
        given.filter(|given| !given.is_empty()).or(self.server.as_deref()).unwrap_or(SERVER).to_owned()
    }

    /// Returns the content store: flag or environment, then the file, then `default`.
    pub(crate) fn content(&self, given: Option<String>, default: Option<String>) -> Option<content::Config> {
        let Content { url, inline_bytes_max, deadline, options } = &self.content;
        let given = given.filter(|given| !given.is_empty());
        let defaults = content::Config::new(given.or_else(|| url.clone()).or(default)?);
        Some(content::Config {
            options: options.clone(),
            inline_bytes_max: inline_bytes_max.unwrap_or(defaults.inline_bytes_max),
            deadline: deadline.as_deref().and_then(|text| value::duration(text).ok()).unwrap_or(defaults.deadline),
            ..defaults
        })
    }

    /// Returns the configuration of a Kafka topic with the properties of this file. `given` is the file of properties from flag
    /// or environment. It takes precedence over the file that this file names.
    ///
    /// Errors: `Invalid` for a file that cannot be used.
    pub(crate) fn kafka(&self, brokers: &str, topic: String, given: Option<&Path>) -> Result<KafkaConfig, Error> {
        let mut kafka = KafkaConfig::new(brokers, topic);
        kafka.properties.clone_from(&self.kafka);
        if let Some(file) = named(given).or(self.kafka_properties.as_deref()) {
            kafka.read_properties(file)?;
        }
        Ok(kafka)
    }

    /// Returns the topic, in the same order.
    pub(crate) fn topic(&self, given: Option<&str>) -> String {
        given.or(self.serve.topic.as_deref()).unwrap_or(TOPIC).to_owned()
    }

    /// Returns the consistency, in the same order. `None` means the default of the query.
    pub(crate) fn consistency(&self, reading: &ReadOptions) -> Option<Consistency> {
        reading.consistency.clone().or_else(|| self.consistency.as_deref().and_then(|text| text.parse().ok()))
    }

    /// Returns the deadline, in the same order. `None` means the default of the command.
    pub(crate) fn deadline(&self, given: Option<Duration>) -> Option<Duration> {
        given.or_else(|| self.deadline.as_deref().and_then(|text| value::duration(text).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_by_name_with_its_line_and_column() {
        for (text, name) in [
            (r#"{"sever": "x"}"#, "sever"),
            (r#"{"serve": {"port": 1}}"#, "port"),
            // In a template they would begin a second journal, or end the home, in each region.
            (r#"{"serve": {"new_journal": true}}"#, "new_journal"),
            (r#"{"serve": {"take_home": "kafka:a:b"}}"#, "take_home"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("unknown field `{name}`")) && error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = Config::parse(r#"{"server": "http://file", "serve": {"topic": "t"}, "deadline": "3s"}"#).unwrap();
        assert_eq!(file.server(Some("http://flag")), "http://flag");
        assert_eq!((file.server(None).as_str(), file.server(Some("")).as_str()), ("http://file", "http://file"));
        assert_eq!(Config::default().server(None), SERVER);
        assert_eq!((file.topic(None), Config::default().topic(None)), ("t".into(), TOPIC.into()));
        assert_eq!(file.deadline(None), Some(Duration::from_secs(3)));
        assert_eq!(file.deadline(Some(Duration::from_secs(1))), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_file_with_a_secret_that_others_may_read_is_refused_by_the_name_of_the_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str, mode| {
            std::fs::write(file.path(), text).unwrap();
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            Config::read(Some(file.path()))
        };
        for (text, secret) in [
            (r#"{"registry": {"password": "hunter2"}}"#, "registry.password"),
            (r#"{"registry": {"token": "hunter2"}}"#, "registry.token"),
            (r#"{"registry": {"url": "https://me:hunter2@host:8081"}}"#, "registry.url"),
            (r#"{"content": {"options": {"Secret_Access_Key": "hunter2"}}}"#, "content.options.Secret_Access_Key"),
            (r#"{"content": {"options": {"session_token": "hunter2"}}}"#, "content.options.session_token"),
            (r#"{"kafka": {"sasl.password": "hunter2"}}"#, "kafka.sasl.password"),
            (r#"{"kafka": {"ssl.key.pem": "hunter2"}}"#, "kafka.ssl.key.pem"),
        ] {
            assert!(read(text, 0o600).is_ok(), "{secret}");
            let refusal = read(text, 0o644).unwrap_err().document().to_string();
            assert!(refusal.contains(secret) && refusal.contains("chmod 600"), "{refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
        let named =
            r#"{"token_file": "t", "registry": {"url": "https://host/a@b"}, "kafka": {"sasl.password_file": "p"}}"#;
        assert!(read(named, 0o644).is_ok(), "it names files of secrets only");
    }

    #[test]
    fn a_value_that_a_flag_would_refuse_is_refused() {
        assert!(Config::parse(r#"{"deadline": "10"}"#).is_err());
        assert!(Config::parse(r#"{"consistency": "sometimes"}"#).is_err());
    }
}
