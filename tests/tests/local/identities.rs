//! Principals that authenticate by a JWT or by a client certificate: only with valid credentials, and with the rights
//! of the token file.

mod keys;

use ring::hmac;
use runlog_log::memory::MemoryLog;
use runlog_producer::{Security, Tls as ClientTls};
use runlog_projector::{Config, Projector};
use runlog_server::{
    Options,
    access::AllowedHosts,
    auth::{
        Authentication,
        token_file::{Entry, Scope},
    },
    tls::{Files, Tls},
};
use runlog_tests::{
    certificates::{Authority, Pair, replace},
    jwt_issuer::{SigningKey, encode},
    served,
    server::client,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(10);
/// The server's time, seconds since the Unix epoch.
const NOW: u64 = 1_000_000;
const ISSUER: &str = "https://idp.example";

fn now() -> u64 {
    NOW * 1000
}

/// A server over a log in memory, which follows its token file.
struct Site {
    dir: TempDir,
    url: String,
    http: reqwest::Client,
    authority: Authority,
    authentication: Arc<Authentication>,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq)]
struct Reply {
    status: u16,
    body: String,
}

impl Site {
    /// Starts with a token file and files beside it. Clients present a certificate if `mutual` is set.
    async fn start(clock: fn() -> u64, mutual: bool, tokens: &Value, files: &[(&str, &Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "ca").unwrap();
        for (name, content) in [("tokens.json", tokens)].iter().chain(files) {
            replace(&dir.path().join(name), &content.to_string()).unwrap();
        }
        let config = Config::new(dir.path().join("data"), || 1_000, served::id);
        let projector = Arc::new(Projector::start(config, Arc::new(MemoryLog::new(1))).await.unwrap());
        let authentication = Authentication::open(&dir.path().join("tokens.json"), clock).unwrap();
        let mut options = Options::from(AllowedHosts::default());
        options.authentication = Some(authentication.clone());
        if mutual {
            let (cert, key) =
                authority.sign(&["localhost", "127.0.0.1"], 3000).unwrap().write(dir.path(), "server").unwrap();
            options.tls = Some(Tls::open(Files { cert, key, client_ca: Some(authority.ca.clone()) }).unwrap());
        }
        let scheme = if mutual { "https" } else { "http" };
        let url = format!("{scheme}://{}", served::start(projector, options).await.unwrap());
        Self { dir, url, http: client().unwrap(), authority, authentication }
    }

    async fn send(&self, request: reqwest::RequestBuilder, token: Option<&str>) -> Reply {
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        let response = request.send().await.unwrap();
        Reply { status: response.status().as_u16(), body: response.text().await.unwrap() }
    }

    async fn get(&self, path: &str, token: &str) -> Reply {
        self.send(self.http.get(format!("{}{path}", self.url)), Some(token)).await
    }

    /// A client that presents a certificate.
    fn showing(&self, pair: &Pair) -> reqwest::Client {
        // Read again for each connection.
        let (cert, key) = pair.write(self.dir.path(), &served::id()).unwrap();
        let tls = ClientTls { ca: Some(self.authority.ca.clone()), client_cert: Some(cert), client_key: Some(key) };
        Security { tls, ..Default::default() }.client(&self.url).unwrap().build().unwrap()
    }

    fn write(&self, name: &str, content: &Value) {
        replace(&self.dir.path().join(name), &content.to_string()).unwrap();
        self.authentication.reload();
    }
}

fn post(http: &reqwest::Client, url: &str, run: &str) -> reqwest::RequestBuilder {
    http.post(format!("{url}/v1/runs/{}/records", run.replace('/', "%2F")))
        .json(&json!({ "run_id": run, "record_id": run,
        "payload": { "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello" } }))
}

/// The entry of an issuer with its keys in a file.
fn issuer(name: &str, algorithm: &str) -> Value {
    json!({ "issuer": name, "audience": "runlog", "algorithms": [algorithm], "jwks_file": "jwks.json" })
}

fn identity(principal: &str, runs: &str, scopes: &[&str], credential: (&str, Value)) -> Value {
    let mut identity = json!({ "principal": principal, "scopes": scopes, "runs": [runs] });
    identity[credential.0] = credential.1;
    identity
}

fn by_jwt(principal: &str, runs: &str, scopes: &[&str]) -> Value {
    identity(principal, runs, scopes, ("jwt", json!({ "issuer": ISSUER, "subject": principal })))
}

fn by_uri(principal: &str, runs: &str, scopes: &[&str]) -> Value {
    identity(principal, runs, scopes, ("certificate", json!({ "uri": format!("spiffe://acme.example/{principal}") })))
}

fn header(kid: &str) -> Value {
    json!({ "alg": "ES256", "typ": "JWT", "kid": kid })
}

fn claims(subject: &str) -> Value {
    json!({ "iss": ISSUER, "aud": "runlog", "sub": subject, "exp": NOW + 600 })
}

/// The object with another value of a member; null removes it.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
        value => object[name] = value,
    }
    object
}

const AGENT: &[&str] = &["append", "read_meta", "read_content"];

#[tokio::test(flavor = "multi_thread")]
async fn a_jwt_is_accepted_only_if_all_of_it_is_valid() {
    let (key, other, ed) = (SigningKey::es256().unwrap(), SigningKey::es256().unwrap(), SigningKey::eddsa().unwrap());
    let set = json!({ "keys": [key.jwk("a"), other.jwk("b"), ed.jwk("c")] });
    let tokens = json!({ "tokens": [], "issuers": [issuer(ISSUER, "ES256"), issuer("other", "EdDSA")],
        "identities": [by_jwt("agent", "*", AGENT)] });
    let site = Site::start(now, false, &tokens, &[("jwks.json", &set)]).await;
    let sign = |name: &str, value: Value| key.sign(&header("a"), &with(claims("agent"), name, value));
    for (what, jwt) in [
        ("as it is", key.sign(&header("a"), &claims("agent"))),
        ("a list of audiences", sign("aud", json!(["other", "runlog"]))),
        ("expired within the leeway", sign("exp", json!(NOW - 29))),
        ("not valid yet within the leeway", sign("nbf", json!(NOW + 30))),
        ("valid from a fraction of a second on", sign("nbf", json!(NOW as f64 - 0.5))),
    ] {
        assert_eq!(site.get("/v1/journal", &jwt).await.status, 200, "{what}");
    }

    let missing = site.send(site.http.get(format!("{}/v1/journal", site.url)), None).await;
    assert_eq!(missing.status, 401);
    let headed = |name: &str, value: Value| key.sign(&with(header("a"), name, value), &claims("agent"));
    let shared = |secret: &[u8]| {
        let message = format!(
            "{}.{}",
            encode(with(header("a"), "alg", json!("HS256")).to_string()),
            encode(claims("agent").to_string())
        );
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        format!("{message}.{}", encode(tag))
    };
    let good = key.sign(&header("a"), &claims("agent"));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let unsigned = format!(
        "{}.{}.",
        encode(json!({ "alg": "none", "kid": "a" }).to_string()),
        encode(claims("agent").to_string())
    );
    let changed = format!("{}.{}.{signature}", message.split_once('.').unwrap().0, encode(claims("Agent").to_string()));
    for (what, jwt) in [
        ("another issuer", sign("iss", json!("https://idp.example/"))),
        ("no issuer", sign("iss", Value::Null)),
        ("an issuer that has the same keys and pins another algorithm", sign("iss", json!("other"))),
        ("another audience", sign("aud", json!("Runlog"))),
        ("no audience", sign("aud", Value::Null)),
        ("an empty list of audiences", sign("aud", json!([]))),
        ("expired", sign("exp", json!(NOW - 30))),
        ("no expiry", sign("exp", Value::Null)),
        ("an expiry that is no number", sign("exp", json!("never"))),
        ("not valid yet", sign("nbf", json!(NOW + 31))),
        ("a begin that is no number", sign("nbf", json!("1"))),
        ("an unknown subject", sign("sub", json!("Agent"))),
        ("no subject", sign("sub", Value::Null)),
        ("a subject that is no text", sign("sub", json!(["agent"]))),
        ("an unknown key", headed("kid", json!("d"))),
        ("no name of a key", headed("kid", Value::Null)),
        ("another key of the issuer", headed("kid", json!("b"))),
        (
            "a key of an algorithm that is not pinned",
            ed.sign(&with(header("c"), "alg", json!("EdDSA")), &claims("agent")),
        ),
        ("another algorithm than the key's", ed.sign(&header("c"), &claims("agent"))),
        ("the key's own text as a secret", shared(key.jwk("a").to_string().as_bytes())),
        ("the key's coordinate as a secret", shared(key.jwk("a")["x"].as_str().unwrap().as_bytes())),
        ("no algorithm", unsigned),
        ("the key comes with it", other.sign(&with(header("a"), "jwk", other.jwk("a")), &claims("agent"))),
        ("an extension that must be understood", headed("crit", json!(["exp"]))),
        ("changed after it was signed", changed),
        ("without its signature", format!("{message}.")),
        ("with another part", format!("{good}.{signature}")),
        ("too long", sign("more", json!("x".repeat(16_384)))),
    ] {
        assert_eq!(site.get("/v1/journal", &jwt).await, missing, "{what}");
    }
    let twice = site.http.get(format!("{}/v1/journal", site.url)).bearer_auth(&good);
    assert_eq!(site.send(twice, Some(&good)).await.status, 401, "two of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_may_accept_only_one_type_of_jwt() {
    let key = SigningKey::es256().unwrap();
    let access_tokens = with(issuer(ISSUER, "ES256"), "typ", json!("at+jwt"));
    let tokens = json!({ "tokens": [], "issuers": [access_tokens], "identities": [by_jwt("agent", "*", AGENT)] });
    let site = Site::start(now, false, &tokens, &[("jwks.json", &json!({ "keys": [key.jwk("a")] }))]).await;
    for (typ, status) in [
        (json!("at+jwt"), 200),
        (json!("application/AT+JWT"), 200),
        (json!("JWT"), 401),
        (json!("application/jwt"), 401),
        (Value::Null, 401),
    ] {
        let jwt = key.sign(&with(header("a"), "typ", typ.clone()), &claims("agent"));
        assert_eq!(site.get("/v1/journal", &jwt).await.status, status, "{typ}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_by_jwt_sees_only_its_runs_and_has_the_rights_of_the_token_file() {
    let key = SigningKey::eddsa().unwrap();
    let (entry, token) = Entry::new("globex".into(), [Scope::ReadMeta].into(), vec!["globex/*".into()], &[1; 32]);
    let named = json!({ "issuer": ISSUER, "audience": "runlog", "algorithms": ["EdDSA"], "jwks_file": "jwks.json",
        "subject_claim": "client_id" });
    let tokens = json!({ "tokens": [entry], "issuers": [named], "limits": { "globex": { "streams": 1 } },
        "identities": [by_jwt("acme", "acme/*", AGENT), by_jwt("globex", "globex/*", AGENT)] });
    let site = Site::start(now, false, &tokens, &[("jwks.json", &json!({ "keys": [key.jwk("a")] }))]).await;
    // Claims of a JWT about scopes and runs are ignored.
    let jwt = |name: &str| {
        let claims = with(with(claims("other"), "client_id", json!(name)), "scope", json!("operate"));
        key.sign(&json!({ "alg": "EdDSA", "kid": "a" }), &with(claims, "runs", json!(["*"])))
    };
    let (acme, globex) = (jwt("acme"), jwt("globex"));
    let reply: Value = serde_json::from_str(&site.get("/v1/whoami", &acme).await.body).unwrap();
    assert_eq!(
        (&reply["kind"], &reply["principal"], &reply["runs"]),
        (&json!("jwt"), &json!("acme"), &json!(["acme/*"]))
    );
    assert!(reply["expires"].is_string(), "{reply}");
    for (jwt, run) in [(&acme, "acme/1"), (&globex, "globex/1")] {
        let reply = site.send(post(&site.http, &site.url, run), Some(jwt)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    for (jwt, own, foreign) in [(&acme, "acme/1", "globex/1"), (&globex, "globex/1", "acme/1")] {
        let runs: Value = serde_json::from_str(&site.get("/v1/runs", jwt).await.body).unwrap();
        let ids: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| &run["run_id"]).collect();
        assert_eq!(ids, [own], "{runs}");
        let absent = site.get("/v1/runs/absent", jwt).await;
        let reply = site.get(&format!("/v1/runs/{}", foreign.replace('/', "%2F")), jwt).await;
        assert_eq!((reply.status, reply.body.replace(foreign, "absent")), (404, absent.body));
        assert_eq!(site.send(post(&site.http, &site.url, foreign), Some(jwt)).await.status, 403);
        for path in ["/v1/horizons", "/metrics", "/v1/doctor"] {
            assert_eq!(site.get(path, jwt).await.status, 403, "{path}");
        }
    }
    // A principal has one stream quota, regardless of its credential.
    let tail = |credential: &str| {
        site.http.get(format!("{}/v1/runs/globex%2F1/tail", site.url)).bearer_auth(credential).send()
    };
    let stream = tail(&globex).await.unwrap();
    assert_eq!((stream.status().as_u16(), tail(&token).await.unwrap().status().as_u16()), (200, 429));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_jwt_expires() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW * 1000);
    let key = SigningKey::es256().unwrap();
    let tokens =
        json!({ "tokens": [], "issuers": [issuer(ISSUER, "ES256")], "identities": [by_jwt("agent", "*", AGENT)] });
    let set = json!({ "keys": [key.jwk("a")] });
    let site = Site::start(|| CLOCK.load(Ordering::Relaxed), false, &tokens, &[("jwks.json", &set)]).await;
    let jwt = key.sign(&header("a"), &claims("agent"));
    let stream = site.http.get(format!("{}/v1/tail?from=end", site.url)).bearer_auth(&jwt).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    // Its expiry, and the leeway.
    CLOCK.store((NOW + 630) * 1000, Ordering::Relaxed);
    let rest = tokio::time::timeout(WAIT, stream.text()).await.expect("the stream ends").unwrap();
    assert!(rest.contains("\"kind\":\"unauthenticated\""), "{rest}");
    assert_eq!(site.get("/v1/journal", &jwt).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_has_only_the_rights_of_its_name_in_the_token_file() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW * 1000);
    let (entry, token) = Entry::new("operator".into(), [Scope::Operate].into(), vec!["*".into()], &[1; 32]);
    let dns = ("certificate", json!({ "dns": "Desk.acme.example" }));
    let desk = identity("desk", "acme/*", &["read_meta"], dns);
    let tokens = json!({ "tokens": [entry], "identities": [by_uri("acme", "acme/*", AGENT), by_uri("globex", "globex/*", AGENT), desk] });
    let site = Site::start(|| CLOCK.load(Ordering::Relaxed), true, &tokens, &[]).await;
    let uris = |uris: &[&str]| site.authority.sign_uris("spiffe://acme.example/acme", uris, 2030).unwrap();
    let (own, other) = ("spiffe://acme.example/acme", "spiffe://acme.example/globex");
    let acme = site.showing(&uris(&[own]));
    let ask = async |http: &reqwest::Client, path: &str, token: Option<&str>| {
        site.send(http.get(format!("{}{path}", site.url)), token).await
    };
    assert_eq!(site.send(post(&acme, &site.url, "acme/1"), None).await.status, 200);
    assert_eq!(site.send(post(&acme, &site.url, "globex/1"), None).await.status, 403);
    assert_eq!(ask(&acme, "/v1/doctor", None).await.status, 403);
    let globex = site.showing(&uris(&[other]));
    assert_eq!(
        (ask(&globex, "/v1/runs/acme%2F1", None).await.status, ask(&acme, "/v1/runs/acme%2F1", None).await.status),
        (404, 200)
    );
    let desk = site.showing(&site.authority.sign(&["desk.ACME.example"], 2030).unwrap());
    assert_eq!(ask(&desk, "/v1/runs/acme%2F1", None).await.status, 200);
    let reply: Value = serde_json::from_str(&ask(&desk, "/v1/whoami", None).await.body).unwrap();
    assert_eq!(
        (&reply["kind"], &reply["principal"], &reply["masked"]),
        (&json!("certificate"), &json!("desk"), &json!(true))
    );
    assert!(reply["expires"].is_string(), "{reply}");
    assert_eq!(site.send(post(&desk, &site.url, "acme/1"), None).await.status, 403);

    // A certificate with no known name, or with several, only opens the connection.
    let spaced = format!("{own}/");
    for (what, pair) in [
        ("a common name is no name", uris(&[])),
        ("another URI", uris(&[&spaced])),
        ("in another case", uris(&["spiffe://acme.example/Acme"])),
        ("two identities", uris(&[own, other])),
        ("a wildcard", site.authority.sign(&["*.acme.example"], 2030).unwrap()),
        ("a URI's host", site.authority.sign(&["acme.example"], 2030).unwrap()),
    ] {
        let http = site.showing(&pair);
        assert_eq!(ask(&http, "/v1/journal", None).await.status, 401, "{what}");
        assert_eq!(ask(&http, "/healthz", None).await.status, 200, "{what}");
        assert_eq!(ask(&http, "/v1/journal", Some(&token)).await.status, 200, "{what}");
    }
    // A token takes precedence over a certificate, even if it is invalid.
    assert_eq!(ask(&acme, "/v1/doctor", Some(&token)).await.status, 200);
    assert_eq!(ask(&acme, "/v1/runs", Some(&token)).await.status, 403);
    assert_eq!(ask(&acme, "/v1/journal", Some("runlog_wrong")).await.status, 401);
    let basic = acme.get(format!("{}/v1/journal", site.url)).basic_auth("a", Some("b"));
    assert_eq!(site.send(basic, None).await.status, 401);

    let tail = async |http: &reqwest::Client| http.get(format!("{}/v1/tail?from=end", site.url)).send().await.unwrap();
    let streams = [tail(&acme).await, tail(&globex).await];
    let ends = async |stream: reqwest::Response| {
        let rest = tokio::time::timeout(WAIT, stream.text()).await.expect("the stream ends").unwrap();
        assert!(rest.contains("\"kind\":\"unauthenticated\""), "{rest}");
    };
    let [of_acme, of_globex] = streams;
    site.write("tokens.json", &json!({ "tokens": [], "identities": [by_uri("globex", "globex/*", AGENT)] }));
    assert_eq!(ask(&acme, "/v1/journal", None).await.status, 401, "its identity is gone");
    ends(of_acme).await;
    assert_eq!(ask(&globex, "/v1/journal", None).await.status, 200);
    // 2030-01-01, when its certificate expires.
    CLOCK.store(1_893_456_000_000, Ordering::Relaxed);
    assert_eq!(ask(&globex, "/v1/journal", None).await.status, 401, "the connection outlives its certificate");
    ends(of_globex).await;
}
