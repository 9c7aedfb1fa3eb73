//! The server trusts a schema registry over TLS only if an authority in the file of `--ca` signed its certificate.

use runlog_schemas::schema;
use runlog_tests::{certificates::Authority, jwt_issuer, server::Launch};
use serde_json::json;

#[test]
fn a_registry_is_trusted_only_if_an_authority_of_ca_signed_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) =
        (Authority::new(dir.path(), "ours").unwrap(), Authority::new(dir.path(), "other").unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let registry = runtime.block_on(jwt_issuer::Site::start(&authority.sign(&["127.0.0.1"], 3000).unwrap())).unwrap();
    let schema = schema::lowest().text;
    registry.set_answer("200 OK", "", &json!({ "id": 40, "schema": schema }).to_string());
    let url = format!("https://{}", registry.address);
    let launch = |data: &str, ca: &std::path::Path| {
        let launch = Launch::local(&dir.path().join(data)).with("--registry").with(&url);
        launch.with("--ca").with(ca.to_str().unwrap())
    };

    let refused = launch("other", &other.ca).refused().unwrap().exits(4).unwrap();
    assert!(refused.stdout.contains("name a file of its certificate authorities with --ca"), "{}", refused.stdout);
    assert_eq!(registry.request_count(), 0);

    let server = launch("ours", &authority.ca).start().unwrap();
    let record =
        json!({ "run_id": "r", "record_id": "a", "payload": { "type": "run_lifecycle", "status": "started" } });
    let (status, answer) = server.post("/v1/runs/r/records", &record).unwrap();
    assert!(status == 200 && registry.request_count() > 0, "{status} {answer}");
}
