//! The authenticated principal of a decision, and how principals are shown to others.

use super::{Site, entries, token_of};
use runlog_log::{Log as _, PartitionId};
use runlog_projector::index::entry::entry;
use runlog_schemas::{codec::NoRegistry, draft::Draft};
use runlog_server::auth::token_file::TokenFile;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_recorded_with_the_principal_that_was_authenticated() {
    let site = Site::start(&entries()).await;
    let ((_, desk), (_, everything)) = (token_of(6), token_of(9));
    site.fill("acme/1", &everything).await;
    let body = json!({ "decision": "give_up", "revision": 1, "force": true, "who": "everything",
        "why": "a test" });
    let path = "/v1/runs/acme%2F1/effects/acme%2F1-b/resolution";
    let reply = site.ask("post", path, Some(&desk), Some(&body)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let shown = site.ask("get", "/v1/runs/acme%2F1/records?whole=true&limit=1000", Some(&desk), None).await;
    let records = shown.json()["records"].as_array().unwrap().clone();
    let decision = records.iter().find(|line| line["payload_type"] == "effect_resolution").unwrap();
    assert_eq!(decision["record"]["facts"]["principal"], "desk", "{decision}");
    assert_eq!(decision["payload"]["who"], "desk (everything)", "{decision}");
    let forged = json!({ "run_id": "acme/1", "record_id": "forged", "facts": { "revision": 1, "principal": "everything" },
        "payload": { "type": "effect_resolution", "request_record_id": "acme/1-b", "decision": "give_up", "who": "jo",
            "why": "a test" } });
    let reply = site.ask("post", "/v1/runs/acme%2F1/records?force=true", Some(&everything), Some(&forged)).await;
    assert!(reply.status == 400 && reply.body.contains("principal"), "{reply:?}");
}

/// The decisions and retractions of `acme/1` in the records, in a tail of all runs and in the changes of an index: each record's
/// principal, and whether it is verified.
async fn decisions(site: &Site, token: &str) -> Vec<(Value, Value)> {
    let path = "/v1/runs/acme%2F1/records?limit=1000";
    let records = site.ask("get", path, Some(token), None).await.json()["records"].clone();
    let events = async |path: &str| {
        let reply = site.ask("get", path, Some(token), None).await.body;
        reply
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
            .collect::<Vec<_>>()
    };
    let tail = events("/v1/tail?until_end=true").await;
    let changes = events("/v1/indices/records/changes?until_end=true").await;
    let decided = |lines: Vec<Value>| {
        let named = |line: &Value| line["payload_type"] == "effect_resolution" || line["payload_type"] == "retraction";
        lines
            .into_iter()
            .filter(named)
            .map(|line| (line["principal"].clone(), line["principal_verified"].clone()))
            .collect::<Vec<_>>()
    };
    let records = decided(records.as_array().unwrap().clone());
    assert_eq!(records, decided(tail));
    assert_eq!(records, decided(changes.into_iter().map(|change| change["new"].clone()).collect()));
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_no_server_wrote_is_shown_as_unverified() {
    let site = Site::start(&entries()).await;
    let ((_, desk), (_, everything)) = (token_of(6), token_of(9));
    let keyed = |key: Option<String>| {
        let file = TokenFile { receipt_key: key, ..TokenFile::read(&site.tokens()).unwrap() };
        file.write(&site.tokens()).unwrap();
        site.authentication.reload();
    };
    keyed(Some("1".repeat(64)));
    site.fill("acme/1", &everything).await;
    let decision = |id: &str, revision: u64| {
        json!({ "run_id": "acme/1", "record_id": id, "facts": { "revision": revision },
            "payload": { "type": "effect_resolution", "request_record_id": "acme/1-b", "decision": "not_done",
                "who": "desk", "why": "a test" } })
    };
    let path = "/v1/runs/acme%2F1/records";
    let forced = format!("{path}?force=true");
    let decide = async || site.ask("post", &forced, Some(&everything), Some(&decision("decision", 1))).await.json();
    assert_eq!(decide().await["outcome"], "applied");
    assert_eq!(decide().await["outcome"], "repeat");
    let shown = site.ask("get", &format!("{path}?whole=true&limit=1000"), Some(&desk), None).await.json();
    let lines = shown["records"].as_array().unwrap();
    let line = lines.iter().find(|line| line["payload_type"] == "effect_resolution").unwrap();
    let proof = &line["record"]["facts"]["principal_proof"];
    assert!(proof.is_string(), "{line}");
    // Appended past the server: without a proof, and with another decision's proof.
    for (id, revision, stolen) in [("forged", 2, &Value::Null), ("stolen", 3, proof)] {
        let mut forged = decision(id, revision);
        forged["facts"]["principal"] = "desk".into();
        if stolen.is_string() {
            forged["facts"]["principal_proof"] = stolen.clone();
        }
        let record = Draft::parse(&forged.to_string()).unwrap().record;
        site.log.append(PartitionId::from(0), vec![entry(&record, &NoRegistry).unwrap()]).await.unwrap();
    }
    let retraction = json!({ "run_id": "acme/1", "record_id": "retraction", "payload": { "type": "retraction",
        "retracted_record_id": "acme/1-b", "who": "boss", "why": "a test" } });
    let retract = async || site.ask("post", path, Some(&everything), Some(&retraction)).await.json()["outcome"].clone();
    assert_eq!(retract().await, "applied");
    assert_eq!(retract().await, "repeat");
    let of = |principal: &str, verified: bool| (json!(principal), json!(verified));
    let all = [of("everything", true), of("desk", false), of("desk", false), of("everything", true)];
    assert_eq!(decisions(&site, &desk).await, all);
    // A client may not send a proof.
    let mut sent = decision("sent", 4);
    sent["facts"]["principal_proof"] = proof.clone();
    let reply = site.ask("post", &forced, Some(&everything), Some(&sent)).await;
    assert!(reply.status == 400 && reply.body.contains("principal"), "{reply:?}");
    // With another key every principal is unverified, and a repeated decision is still a repeat.
    keyed(Some("2".repeat(64)));
    assert_eq!(decide().await["outcome"], "repeat");
    assert_eq!(decisions(&site, &desk).await, all.map(|(principal, _)| (principal, json!(false))));
    // Without a key a server cannot verify, and omits the member.
    keyed(None);
    assert_eq!(decide().await["outcome"], "repeat");
    assert_eq!(decisions(&site, &desk).await, vec![(Value::Null, Value::Null); 4]);
}
