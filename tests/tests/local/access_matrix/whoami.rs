//! A credential's query about itself.

use super::{ALL, Site, entries, token_of};
use runlog_server::auth::token_file::{Entry, Scope, TokenFile};
use runlog_tests::server::Launch;
use serde_json::{Value, json};

async fn whoami(site: &Site, token: &str) -> Value {
    let reply = site.ask("get", "/v1/whoami", Some(token), None).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_answers_a_credentials_principal_scopes_runs_and_expiry() {
    let site = Site::start(&entries()).await;
    let agent = json!({ "kind": "token", "principal": "agent", "scopes": ["append", "read_meta", "read_content"],
        "runs": ["acme/*", "acme"], "masked": false, "expires": null });
    assert_eq!(whoami(&site, &token_of(5).1).await, agent);
    let operator = json!({ "kind": "token", "principal": "operator", "scopes": ["operate"], "runs": ["*"], "masked": true,
        "expires": null });
    assert_eq!(whoami(&site, &token_of(7).1).await, operator);
    let (entry, guest) = Entry::new("guest".into(), [Scope::ReadMeta].into(), vec![ALL.into()], &[11; 32]);
    let entry = Entry { expires: Some("2100-01-01T00:00:00Z".into()), ..entry };
    TokenFile { tokens: vec![entry], ..TokenFile::default() }.write(&site.tokens()).unwrap();
    site.authentication.reload();
    assert_eq!(whoami(&site, &guest).await["expires"], "2100-01-01T00:00:00.000Z");
}

#[test]
fn a_server_without_authentication_says_that_everything_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::local(folder.path()).start().unwrap();
    let (status, reply) = server.get("/v1/whoami").unwrap();
    let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    let everything = json!({ "kind": "none", "principal": null, "scopes": scopes, "runs": ["*"], "masked": false,
        "expires": null });
    assert_eq!((status, reply), (200, everything));
}
