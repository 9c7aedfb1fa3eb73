//! Content is read and copied only with the scope for it.

use super::{Site, entries, escaped, token_of};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_needs_to_read_the_content_of_its_source_and_to_append_to_its_target() {
    let site = Site::start(&entries()).await;
    let ((_, appender), (_, agent), (_, everything)) = (token_of(1), token_of(5), token_of(9));
    site.fill("acme/1", &everything).await;
    site.fill("globex/1", &everything).await;
    let before = site.end().await;
    let copied = async |target: &str, from: &str, token: &str| {
        let path = format!("/v1/runs/{}/copies", escaped(target));
        site.ask("post", &path, Some(token), Some(&json!({ "from": from }))).await
    };
    let reply = copied("acme/copy", "acme/1", &appender).await;
    assert!(reply.status == 403 && reply.body.contains("read_content"), "{reply:?}");
    assert_eq!(copied("globex/copy", "acme/1", &agent).await.status, 403);
    let foreign = copied("acme/copy", "globex/1", &agent).await;
    let absent = copied("acme/copy", "absent/1", &agent).await;
    assert_eq!((foreign.status, foreign.about("globex/1")), (404, absent.about("absent/1")));
    assert_eq!(site.end().await, before, "no record was appended");
    let reply = copied("acme/copy", "acme/1", &agent).await;
    assert!(reply.status == 200 && reply.json()["records"] == 2, "{reply:?}");
    let latest = site.ask("get", "/v1/runs/acme%2Fcopy/checkpoints/latest", Some(&agent), None).await;
    assert_eq!(latest.json()["messages"], json!([{ "secret": "acme/1" }]), "{latest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_masked_without_the_scope_to_read_it() {
    let site = Site::start(&entries()).await;
    let ((_, lister), (_, agent), (_, everything)) = (token_of(2), token_of(5), token_of(9));
    site.fill("acme/1", &everything).await;
    let path = "/v1/runs/acme%2F1/records?limit=1000";
    let masked = site.ask("get", path, Some(&lister), None).await;
    assert!(masked.status == 200 && masked.body.contains("masked") && !masked.body.contains("secret"), "{masked:?}");
    for query in ["&raw=true", "&whole=true"] {
        assert_eq!(site.ask("get", &format!("{path}{query}"), Some(&lister), None).await.status, 403);
        let reply = site.ask("get", &format!("{path}{query}"), Some(&agent), None).await;
        assert!(reply.status == 200 && reply.body.contains("secret"), "{reply:?}");
    }
    assert_eq!(site.ask("get", "/v1/tail?raw=true", Some(&lister), None).await.status, 403);
    let late = json!({ "run_id": "acme/1", "record_id": "late", "writer_id": "zombie", "writer_epoch": 0, "payload": {
        "type": "tool_call_completed", "request_record_id": "acme/1-b", "result": { "secret": 1 } } });
    let reply = site.ask("post", "/v1/runs/acme%2F1/records", Some(&everything), Some(&late)).await;
    assert_eq!(reply.json()["reason"], "fenced", "{reply:?}");
    let masked = site.ask("get", "/v1/effects?consistency=latest&pending=true", Some(&lister), None).await;
    let effect = &masked.json()["effects"][0];
    let late = &effect["evidence"][0];
    for content in [&late["payload"]["result"], &late["result"], &effect["arguments"]] {
        assert!(content["masked"].is_string() && !masked.body.contains("secret"), "{masked:?}");
    }
    let reply = site.ask("get", "/v1/runs/acme%2F1/recovery", Some(&agent), None).await;
    assert_eq!(reply.json()["pending"][0]["evidence"][0]["payload"]["result"], json!({ "secret": 1 }), "{reply:?}");
}
