//! The client against a registry that follows the documented interface, and fails.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]
#![allow(dead_code, unreachable_pub, reason = "the stub serves other tests too")]

mod stub;

use runlog_registry::{Auth, Client, Config, Kind, Registry};
use runlog_schemas::{
    codec::{Framing, Schemas, Unreadable},
    schema::{self, JOURNAL_RECORD},
};
use std::{path::Path, sync::Arc, time::Duration};
use stub::{FIRST, Fault, Stub};

const TRANSIENT: [Fault; 10] = [
    Fault::Hang,
    Fault::Cut,
    Fault::Half,
    Fault::Status(500),
    Fault::Status(503),
    Fault::Status(429),
    Fault::Page(200),
    Fault::Page(404),
    Fault::Page(502),
    Fault::OtherJson,
];

fn config(url: &str) -> Config {
    let mut config = Config::new(url, "t").unwrap();
    // `request` ends a request that hangs. The deadline must not pass on a busy machine.
    config.request = Duration::from_secs(2);
    config.deadline = Duration::from_secs(120);
    config.pause = Duration::ZERO;
    config
}

/// Without authorities: the stub does not speak TLS.
fn http() -> reqwest::ClientBuilder {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(tls)
}

fn client(stub: &Stub) -> Client {
    Client::new(config(&stub.url), http()).unwrap()
}

fn registry(url: &str, dir: &Path) -> Registry {
    let mut config = config(url);
    config.dir = Some(dir.to_owned());
    Registry::open(config, http()).unwrap()
}

#[tokio::test]
async fn a_schema_is_registered_once_and_found_from_then_on() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let id = registry(&stub.url, &folder.path().join("a")).register(schema::lowest()).await.unwrap();
    assert_eq!((id, stub.state().subjects["t-value"].clone()), (FIRST, vec![FIRST]));
    // Another server, whose credentials may only read.
    stub.state().refuses = true;
    let other = registry(&stub.url, &folder.path().join("b"));
    assert_eq!(other.register(schema::lowest()).await.unwrap(), id);
    assert_eq!(stub.request_count("POST /subjects/t-value/versions"), 1);
    assert_eq!(other.framing(schema::lowest()), Ok(Framing::Confluent(id)));
    assert_eq!(other.version(id).unwrap(), schema::lowest());
}

/// Two faults and an answer, then nothing but faults.
async fn asked_again(fault: Fault) {
    let stub = Stub::start();
    let mut config = config(&stub.url);
    // Only a request that hangs waits for the limit. A busy machine sends no other one too late.
    config.request = Duration::from_secs(if matches!(fault, Fault::Hang) { 4 } else { 30 });
    let client = Client::new(config, http()).unwrap();
    let id = stub.add(JOURNAL_RECORD);
    stub.state().faults.extend([fault, fault]);
    assert_eq!(client.schema(id).await.unwrap(), JOURNAL_RECORD, "{fault:?}");
    assert_eq!(stub.request_count("GET"), 3, "{fault:?}");
    stub.state().always = Some(fault);
    let error = client.schema(id).await.unwrap_err();
    assert_eq!((error.kind(), stub.request_count("GET")), (Kind::Unavailable, 7), "{fault:?}: {error}");
}

#[tokio::test]
async fn an_invalid_answer_is_requested_again_a_bounded_number_of_times() {
    futures_util::future::join_all(TRANSIENT.map(asked_again)).await;
}

/// Nothing but faults, then an answer.
async fn not_kept(fault: Fault) {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let id = stub.add(JOURNAL_RECORD);
    let registry = registry(&stub.url, folder.path());
    stub.state().always = Some(fault);
    let error = registry.resolve(id).await.unwrap_err();
    assert!(matches!(&error, Unreadable::Unresolved { failing: true, .. }) && !error.stops(), "{fault:?}: {error}");
    assert!(!folder.path().join("schemas.json").exists(), "{fault:?}");
    stub.state().always = None;
    assert_eq!(registry.resolve(id).await.unwrap(), schema::lowest(), "{fault:?}");
}

#[tokio::test]
async fn an_answer_that_did_not_come_is_never_kept() {
    let denied = [Fault::Status(401), Fault::Status(403)];
    futures_util::future::join_all(TRANSIENT.into_iter().chain(denied).map(not_kept)).await;
}

#[tokio::test]
async fn only_the_registrys_own_error_shows_that_an_id_is_unknown() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let client = registry(&stub.url, folder.path());
    let error = client.resolve(7).await.unwrap_err();
    assert!(error.stops() && error.to_string().contains("id 7") && error.to_string().contains("Schema not found"));
    assert!(!folder.path().join("schemas.json").exists());
    // It may have been registered meanwhile: a server that starts again asks again.
    let id = stub.add(JOURNAL_RECORD);
    assert_eq!(registry(&stub.url, folder.path()).resolve(id).await.unwrap(), schema::lowest());
    // The answer about a foreign schema is cached: this build does not read that schema.
    let foreign = stub.add("\"int\"");
    let error = client.resolve(foreign).await.unwrap_err();
    assert!(error.stops() && error.to_string().contains("fingerprint"), "{error}");
}

#[tokio::test]
async fn cached_answers_stay_valid_without_the_registry() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let first = registry(&stub.url, folder.path());
    let id = first.register(schema::lowest()).await.unwrap();
    // The same schema as another client wrote it.
    let reworded = JOURNAL_RECORD.replacen("One record of a Runlog journal", "A record", 1);
    let other = stub.add(&reworded);
    assert!(id != other && first.resolve(other).await.is_ok());
    let url = stub.url.clone();
    drop(stub);
    let again = registry(&url, folder.path());
    assert_eq!(again.framing(schema::lowest()), Ok(Framing::Confluent(id)));
    assert_eq!((again.version(id).unwrap(), again.version(other).unwrap()), (schema::lowest(), schema::lowest()));
    assert!(matches!(again.resolve(other + 1).await, Err(Unreadable::Unresolved { failing: true, .. })));
}

#[tokio::test]
async fn a_damaged_cache_is_requested_again() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let id = registry(&stub.url, folder.path()).register(schema::lowest()).await.unwrap();
    let file = folder.path().join("schemas.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 9]).unwrap();
    let again = registry(&stub.url, folder.path());
    assert!(again.framing(schema::lowest()).is_err());
    assert_eq!(again.resolve(id).await.unwrap(), schema::lowest());
    assert_eq!(again.register(schema::lowest()).await.unwrap(), id);
    let cached: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(cached["schemas"][id.to_string()]["sha256"].is_string());
}

#[tokio::test]
async fn each_request_carries_the_configured_credentials() {
    let stub = Stub::start();
    let id = stub.add(JOURNAL_RECORD);
    for (auth, header) in [
        (Auth::basic("me:s@cret:x").unwrap(), "Basic bWU6c0BjcmV0Ong="),
        (Auth::Bearer("t0ken".into()), "Bearer t0ken"),
    ] {
        stub.state().authorization = Some(header.into());
        let mut config = config(&stub.url);
        assert_eq!(Client::new(config.clone(), http()).unwrap().schema(id).await.unwrap_err().kind(), Kind::Denied);
        config.auth = auth;
        assert!(Client::new(config, http()).unwrap().schema(id).await.is_ok(), "{header}");
    }
    stub.state().authorization = Some("Basic bWU6c0BjcmV0Ong=".into());
    let url = format!("http://me:s%40cret%3Ax@{}", stub.address());
    assert!(Client::new(config(&url), http()).unwrap().schema(id).await.is_ok());
}

#[tokio::test]
async fn a_registry_that_does_not_take_the_schema_is_believed() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    stub.state().refuses = true;
    let error = registry(&stub.url, folder.path()).register(schema::lowest()).await.unwrap_err();
    assert!(error.kind() == Kind::Refused && error.to_string().contains("incompatible"), "{error}");
    assert_eq!(client(&stub).register("{").await.unwrap_err().kind(), Kind::Refused);
    assert!(client(&stub).is_compatible(JOURNAL_RECORD).await.unwrap(), "a new subject takes anything");
    stub.state().refuses = false;
    client(&stub).register("\"int\"").await.unwrap();
    assert!(client(&stub).is_compatible(JOURNAL_RECORD).await.unwrap());
    stub.state().refuses = true;
    assert!(!client(&stub).is_compatible(JOURNAL_RECORD).await.unwrap());
}

#[tokio::test]
async fn an_id_that_names_another_schema_is_not_written() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    stub.state().swapped = Some("\"int\"".into());
    let registry = registry(&stub.url, folder.path());
    let error = registry.register(schema::lowest()).await.unwrap_err();
    assert!(error.kind() == Kind::Refused && registry.framing(schema::lowest()).is_err(), "{error}");
}

#[tokio::test]
async fn an_id_of_many_records_is_requested_once() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let id = stub.add(JOURNAL_RECORD);
    let registry = registry(&stub.url, folder.path());
    for _ in 0..100 {
        assert!(matches!(registry.version(id), Err(Unreadable::Unresolved { failing: false, .. })));
    }
    let waiting = registry.clone();
    let version = tokio::task::spawn_blocking(move || {
        while matches!(waiting.version(id), Err(Unreadable::Unresolved { .. })) {
            waiting.wait(Duration::from_secs(5));
        }
        waiting.version(id)
    });
    assert_eq!(version.await.unwrap().unwrap(), schema::lowest());
    assert_eq!(stub.request_count("GET"), 1);
}
