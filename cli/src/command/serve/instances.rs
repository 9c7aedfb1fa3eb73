//! The list of the instances that share a journal, from the file of `--instances`.

use super::{Log, Settings};
use crate::{config, error::Error};
use runlog_projector::Projector;
use runlog_schemas::answer::ErrorKind;
use runlog_server::{Options, instances::Instances};
use std::sync::Arc;

/// Reads the list. `None` if no file is named.
///
/// Errors: `Usage` for flags that do not fit together. `Invalid` for a list that cannot be used with the other settings.
pub(super) fn read(settings: &Settings, options: &Options) -> Result<Option<Arc<Instances>>, Error> {
    let flags = &settings.flags;
    let Some(file) = config::named(flags.instances.as_deref()) else {
        return match (flags.copies, &flags.instance) {
            (None, None) => Ok(None),
            _ => Err(Error::usage("--copies and --instance need the list of instances: name it with --instances FILE")),
        };
    };
    if settings.log == Log::Local {
        return Err(Error::usage(
            "instances share a log in Kafka, and --local keeps the log in this process: leave one of them away",
        ));
    }
    if flags.paused {
        return Err(Error::usage("a paused server shares no journal with others: leave --paused or --instances away"));
    }
    let Some(own) = flags.instance.as_deref().filter(|name| !name.is_empty()) else {
        return Err(Error::usage("name this server with --instance NAME, as the file of --instances does"));
    };
    let path = file.display().to_string();
    let refused =
        |why: String| Error::new(ErrorKind::Invalid, format!("cannot use the list of instances {path}")).because(why);
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    let copies = flags.copies.map(|copies| copies as usize);
    let instances = Instances::parse(&text, own, copies).map_err(|invalid| refused(invalid.to_string()))?;
    if let Some(peer) = instances.unencrypted_peer().filter(|_| !flags.insecure_no_tls) {
        return Err(refused(format!(
            "{} is another machine, and {} has no TLS: use https://, or accept that others in the network can read and change \
             requests with --insecure-no-tls",
            peer.name, peer.url
        )));
    }
    let has_client_ca = settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if has_client_ca && !instances.hold_all() {
        return Err(refused(
            "an instance cannot show a client's certificate to another instance: leave --tls-client-ca or --copies away".to_owned(),
        ));
    }
    let shares_key = options.authentication.as_ref().is_none_or(|tokens| tokens.has_receipt_key());
    if !shares_key {
        return Err(refused(
            "the token file has no receipt_key, which all instances must share; `runlog token create` makes one"
                .to_owned(),
        ));
    }
    if settings.content.as_ref().is_some_and(|content| content.url.starts_with("file:")) {
        tracing::warn!(
            "the content store is a folder: all instances must share it, or content is missing on some of them"
        );
    }
    if !instances.hold_all() {
        instances.tls().map_err(|invalid| refused(invalid.to_string()))?;
        tracing::warn!(
            copies = instances.copies(),
            "experimental: lists lack the runs whose partition is on other instances; requests about such a run are forwarded"
        );
    }
    Ok(Some(Arc::new(instances)))
}

/// Refuses a log without an id, by which instances prove that they read the same log.
///
/// Errors: `Invalid` if this server holds some partitions only.
pub(super) fn check_log(instances: Option<&Instances>, projector: &Projector) -> Result<(), Error> {
    if instances.is_none_or(Instances::hold_all) || projector.log().id().is_some() {
        return Ok(());
    }
    let topic = projector.log().topic();
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "the brokers give topic {topic} no id, so instances cannot prove that they read the same log: leave --copies away, \
             or use brokers that give topics ids"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::{Cli, Command},
        config::Config,
    };
    use clap::Parser;
    use runlog_server::auth::{
        Authentication,
        token_file::{Entry, Scope, TokenFile},
    };
    use std::path::Path;

    const LIST: &str = r#"{"instances": [{"name": "a", "url": "https://a"}, {"name": "b", "url": "https://b"}]}"#;

    fn settings(line: &str) -> Settings {
        let Command::Serve(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("{line}") };
        Settings::new(args, None, Config::default()).unwrap()
    }

    fn refusal(line: &str, options: &Options) -> Option<(ErrorKind, String)> {
        read(&settings(line), options).err().map(|error| (error.kind(), error.chain()))
    }

    /// The options of a server with tokens, whose file has a key or not.
    fn tokens(folder: &Path, receipt_key: Option<String>) -> Options {
        let (file, path) = (TokenFile { receipt_key, ..TokenFile::default() }, folder.join("tokens.json"));
        let (entry, _) = Entry::new("a".to_owned(), [Scope::Append].into(), vec!["*".to_owned()], &[9; 32]);
        TokenFile { tokens: vec![entry], ..file }.write(&path).unwrap();
        let mut options = Options::default();
        options.authentication = Some(Authentication::open(&path, || 0).unwrap());
        options
    }

    #[test]
    fn a_list_that_does_not_fit_the_other_settings_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("instances.json");
        std::fs::write(&file, LIST).unwrap();
        let far = folder.path().join("far.json");
        std::fs::write(&far, LIST.replace("https://b", "http://b")).unwrap();
        let (file, far) = (file.display(), far.display());
        let serve = format!("runlog serve --brokers b:1 --data d --instances {file}");
        let certificate = "--tls-cert c --tls-key k --tls-client-ca a";
        use ErrorKind::{Invalid, Usage};
        for (line, kind, why) in [
            (format!("runlog serve --local --data d --instances {file} --instance a"), Usage, "--local"),
            (format!("{serve} --instance a --paused"), Usage, "--paused"),
            (serve.clone(), Usage, "--instance NAME"),
            ("runlog serve --brokers b:1 --data d --copies 2".to_owned(), Usage, "--instances FILE"),
            ("runlog serve --brokers b:1 --data d --instance a".to_owned(), Usage, "--instances FILE"),
            (format!("{serve}.none --instance a"), Invalid, "instances.json.none"),
            (format!("{serve} --instance c"), Invalid, "no instance named \"c\", only a, b"),
            (format!("{serve} --instance a --copies 1 {certificate}"), Invalid, "--tls-client-ca"),
            (
                format!("runlog serve --brokers b:1 --data d --instances {far} --instance a"),
                Invalid,
                "--insecure-no-tls",
            ),
        ] {
            let refused = refusal(&line, &Options::default());
            assert!(
                refused.as_ref().is_some_and(|(other, text)| *other == kind && text.contains(why)),
                "{line}: {refused:?}"
            );
        }
        for line in [
            "runlog serve --brokers b:1 --data d".to_owned(),
            format!("{serve} --instance a"),
            format!("{serve} --instance a --copies 1"),
            format!("{serve} --instance a {certificate}"),
            format!("runlog serve --brokers b:1 --data d --instances {far} --instance b"),
        ] {
            assert_eq!(refusal(&line, &Options::default()), None, "{line}");
        }
    }

    #[test]
    fn instances_with_tokens_need_a_key_that_they_share() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("instances.json");
        std::fs::write(&file, LIST).unwrap();
        let line = format!("runlog serve --brokers b:1 --data d --instances {} --instance a", file.display());
        let refused = refusal(&line, &tokens(folder.path(), None)).unwrap();
        assert!(refused.0 == ErrorKind::Invalid && refused.1.contains("receipt_key"), "{refused:?}");
        assert_eq!(refusal(&line, &tokens(folder.path(), Some("0".repeat(64)))), None);
    }
}
