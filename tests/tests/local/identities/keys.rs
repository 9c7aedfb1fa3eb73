//! The keys of issuers: rotated in their file, and fetched from their URL.

use super::{AGENT, ISSUER, Site, WAIT, by_jwt, claims, header, issuer, now, with};
use runlog_server::auth::token_file::{Entry, Scope};
use runlog_tests::{
    certificates::Authority,
    jwt_issuer::{self, SigningKey},
};
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_and_an_unusable_key_set_only_changes_its_report() {
    let (old, new) = (SigningKey::es256().unwrap(), SigningKey::es256().unwrap());
    let (entry, operator) = Entry::new("operator".into(), [Scope::Operate].into(), vec!["*".into()], &[1; 32]);
    let (guest, guest_token) = Entry::new("guest".into(), [Scope::ReadMeta].into(), vec!["*".into()], &[2; 32]);
    let tokens = |entries: &[&Entry]| json!({ "tokens": entries, "issuers": [issuer(ISSUER, "ES256")], "identities": [by_jwt("agent", "*", AGENT)] });
    let file = tokens(&[&entry, &guest]);
    let site = Site::start(now, false, &file, &[("jwks.json", &json!({ "keys": [old.jwk("old")] }))]).await;
    let (by_old, by_new) = (old.sign(&header("old"), &claims("agent")), new.sign(&header("new"), &claims("agent")));
    let statuses = async || {
        let old = site.get("/v1/journal", &by_old).await.status;
        [old, site.get("/v1/journal", &by_new).await.status]
    };
    assert_eq!(statuses().await, [200, 401]);
    site.write("jwks.json", &json!({ "keys": [old.jwk("old"), new.jwk("new")] }));
    assert_eq!(statuses().await, [200, 200]);
    // An unusable set affects neither its keys nor the rest of the token file.
    site.write("jwks.json", &json!({ "keys": [{}] }));
    site.write("tokens.json", &tokens(&[&entry]));
    assert_eq!(statuses().await, [200, 200]);
    assert_eq!(site.get("/v1/journal", &guest_token).await.status, 401);
    let doctor = site.get("/v1/doctor", &operator).await.body;
    assert!(
        doctor.contains("\"healthy\":false") && doctor.contains("jwks.json") && doctor.contains(ISSUER),
        "{doctor}"
    );
    assert!(site.get("/metrics", &operator).await.body.contains("runlog_tokens_unusable 1"));
    // A set that other users may write is unusable, too.
    let good = json!({ "keys": [new.jwk("new")] });
    std::fs::write(site.dir.path().join("jwks.json"), good.to_string()).unwrap();
    std::fs::set_permissions(site.dir.path().join("jwks.json"), std::fs::Permissions::from_mode(0o646)).unwrap();
    site.authentication.reload();
    assert!(site.get("/v1/doctor", &operator).await.body.contains("chmod go-w"));
    // Removing a key ends its JWTs and their streams.
    let stream = site.http.get(format!("{}/v1/tail?from=end", site.url)).bearer_auth(&by_old).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    site.write("jwks.json", &good);
    assert_eq!(statuses().await, [401, 200]);
    let rest = tokio::time::timeout(WAIT, stream.text()).await.expect("the stream ends").unwrap();
    assert!(rest.contains("\"kind\":\"unauthenticated\""), "{rest}");
    assert!(site.get("/metrics", &operator).await.body.contains("runlog_tokens_unusable 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_fetched_when_a_jwt_names_a_new_one_and_kept_if_the_fetch_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(dir.path(), "idp").unwrap(), Authority::new(dir.path(), "other").unwrap());
    let pair = authority.sign(&["127.0.0.1"], 3000).unwrap();
    let (old, new) = (SigningKey::es256().unwrap(), SigningKey::es256().unwrap());
    let set = |key: Value| json!({ "keys": [key] }).to_string();
    let (idp, failing, moved, long) = (
        jwt_issuer::Site::start(&pair),
        jwt_issuer::Site::start(&pair),
        jwt_issuer::Site::start(&pair),
        jwt_issuer::Site::start(&pair),
    );
    let (idp, failing, moved, long) =
        (idp.await.unwrap(), failing.await.unwrap(), moved.await.unwrap(), long.await.unwrap());
    idp.set_answer("200 OK", "", &set(old.jwk("old")));
    failing.set_answer("500 Internal Server Error", "", "");
    moved.set_answer("302 Found", &format!("location: https://{}/\r\n", idp.address), "");
    long.set_answer("200 OK", "", &set(with(old.jwk("old"), "x5c", json!("x".repeat(1 << 20)))));
    let fetched = |name: &str, site: &jwt_issuer::Site, authority: &Path| {
        json!({ "issuer": name, "audience": "runlog", "algorithms": ["ES256"], "jwks_url": format!("https://{}/jwks", site.address),
            "jwks_ca": authority })
    };
    let (entry, operator) = Entry::new("operator".into(), [Scope::Operate].into(), vec!["*".into()], &[1; 32]);
    let issuers = [
        fetched(ISSUER, &idp, &authority.ca),
        fetched("failing", &failing, &authority.ca),
        fetched("moved", &moved, &authority.ca),
        fetched("long", &long, &authority.ca),
        fetched("untrusted", &idp, &other.ca),
    ];
    let tokens = json!({ "tokens": [entry], "issuers": issuers, "identities": [by_jwt("agent", "*", AGENT)] });
    let site = Site::start(now, false, &tokens, &[]).await;
    let (by_old, by_new) = (old.sign(&header("old"), &claims("agent")), new.sign(&header("new"), &claims("agent")));
    // It waits for the first fetch.
    assert_eq!(site.get("/v1/journal", &by_old).await.status, 200);
    let await_doctor = async |wanted: &[&str]| {
        let all = async {
            while !{
                let doctor = site.get("/v1/doctor", &operator).await.body;
                wanted.iter().all(|text| doctor.contains(text))
            } {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(2 * WAIT, all).await.unwrap_or_else(|_| panic!("the doctor does not say {wanted:?}"));
    };
    await_doctor(&[
        "issuer failing",
        "it answered 500",
        "issuer moved",
        "it answered 302",
        "longer than",
        "issuer untrusted",
    ])
    .await;
    assert_eq!(idp.request_count(), 1, "redirects are not followed");

    idp.set_answer("200 OK", "", &set(new.jwk("new")));
    let start = tokio::time::Instant::now();
    // Unknown key names do not cause more fetches.
    let unknown = |nth: usize| new.sign(&header(&format!("unknown-{nth}")), &claims("agent"));
    let rotated = async {
        let mut nth = 0;
        while site.get("/v1/journal", &by_new).await.status != 200 {
            nth += 1;
            assert_eq!(site.get("/v1/journal", &unknown(nth)).await.status, 401);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(2 * WAIT, rotated).await.expect("the new key is fetched");
    assert_eq!(idp.request_count(), 2, "in {:?}", start.elapsed());
    assert_eq!(site.get("/v1/journal", &by_old).await.status, 401, "its key is gone");

    idp.set_answer("503 Service Unavailable", "", "");
    let failed = async {
        while idp.request_count() < 3 {
            assert_eq!(site.get("/v1/journal", &unknown(0)).await.status, 401);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(2 * WAIT, failed).await.expect("it asks again");
    await_doctor(&["it answered 503"]).await;
    assert_eq!(site.get("/v1/journal", &by_new).await.status, 200, "the keys are kept");
}
