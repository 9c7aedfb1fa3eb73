//! Who may decide, and what is audited first.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_not_decide_its_own_effects() {
    let site = Site::start(&entries()).await;
    let ((_, agent), (_, everything)) = (token_of(5), token_of(9));
    site.fill("acme/1", &everything).await;
    let decision = |id: &str, facts: Value, decision: &str| {
        json!({ "run_id": "acme/1", "record_id": id, "facts": facts,
            "payload": { "type": "effect_resolution", "request_record_id": "acme/1-b", "decision": decision, "who": "jo",
                "why": "a test" } })
    };
    let path = "/v1/runs/acme%2F1/records?check=true";
    let posted = async |record: &Value| site.ask("post", path, Some(&agent), Some(record)).await;
    for (record, status) in [
        (decision("1", json!({ "revision": 1 }), "give_up"), 403),
        (decision("2", json!({ "epoch": 1 }), "give_up"), 403),
        (decision("3", json!({ "epoch": 1 }), "not_done"), 200),
        (json!([decision("4", json!({ "revision": 1 }), "not_done")]), 403),
    ] {
        let reply = posted(&record).await;
        assert_eq!(reply.status, status, "{record} {reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_actions_are_audited_first_or_refused() {
    let site = Site::start(&entries()).await;
    let ((_, desk), (_, agent), (_, everything)) = (token_of(6), token_of(5), token_of(9));
    site.fill("acme/1", &everything).await;
    let path = "/v1/runs/acme%2F1/effects/acme%2F1-b/resolution";
    let body = json!({ "decision": "give_up", "revision": 1, "force": true, "who": "jo", "why": "a test" });
    let lines_of = |file: PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let lines = || lines_of(site.audit_log());
    let reads = || lines_of(site.audit_log().with_file_name("audit-reads.jsonl")).len();
    let before = lines().len();
    let lookup = "/v1/runs/acme%2F1/lookup?tool=book&args=%7B%22secret%22%3A1%7D";
    for (token, url, count) in [
        (&agent, lookup, 0),
        (&desk, lookup, 1),
        // One line covers the reads of a minute.
        (&desk, lookup, 0),
        (&agent, "/v1/runs/acme%2F1/records?raw=true", 1),
        (&agent, "/v1/runs/acme%2F1/records?raw=true", 0),
        (&desk, "/v1/runs/acme%2F1/records?raw=true", 1),
        (&desk, "/v1/runs/acme%2F1/records", 0),
    ] {
        let so_far = reads();
        assert_eq!(site.ask("get", url, Some(token), None).await.status, 200, "{url}");
        assert_eq!(reads() - so_far, count, "{url}");
    }
    assert_eq!(site.ask("post", path, Some(&desk), Some(&body)).await.status, 200);
    let last = lines().pop().unwrap();
    let reply = (&last["principal"], &last["action"], &last["run_id"], &last["detail"]["decision"]);
    assert_eq!(reply, (&json!("desk"), &json!("resolve"), &json!("acme/1"), &json!("give_up")), "{last}");
    assert!(before < lines().len());
    // A full disk.
    let full = Site::start_on(Some("/dev/full"), WRITTEN_BY_DEFAULT, &entries()).await;
    full.fill("acme/1", &everything).await;
    let end = full.end().await;
    for (method, url, body) in [("post", path, Some(&body)), ("get", "/v1/runs/acme%2F1/records?raw=true", None)] {
        let reply = full.ask(method, url, Some(&desk), body).await;
        assert_eq!((reply.status, &reply.json()["kind"]), (503, &json!("unavailable")), "{reply:?}");
    }
    assert_eq!(full.end().await, end, "no record was appended");
    assert_eq!(full.ask("get", lookup, Some(&agent), None).await.status, 200, "unaudited requests are answered");
}
