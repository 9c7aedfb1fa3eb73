//! The authenticated principal of a decision, and how principals are shown to others.

use super::{Site, WAIT, entries, token_of};
use runlog_log::{Log as _, Offset, PartitionId};
use runlog_projector::index::entry::entry;
use runlog_schemas::{
    codec::{self, NoRegistry},
    draft::Draft,
};
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

/// The principal of each approval of `acme/1` in the records, and whether it is verified.
async fn approvals(site: &Site, token: &str) -> Vec<(Value, Value, Value)> {
    let path = "/v1/runs/acme%2F1/records?limit=1000";
    let records = site.ask("get", path, Some(token), None).await.json()["records"].clone();
    let lines = records.as_array().unwrap().iter().filter(|line| line["payload_type"] == "approval");
    lines
        .map(|line| (line["record_id"].clone(), line["principal"].clone(), line["principal_verified"].clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_has_the_principal_that_gave_it_and_stays_a_repeat_under_another_principal() {
    let site = Site::start_of_version_3(&entries()).await;
    let file = TokenFile { receipt_key: Some("1".repeat(64)), ..TokenFile::read(&site.tokens()).unwrap() };
    file.write(&site.tokens()).unwrap();
    site.authentication.reload();
    let ((_, approver), (_, everything)) = (token_of(11), token_of(9));
    let claim = site.ask("post", "/v1/runs/acme%2F1/claims", Some(&everything), Some(&json!({}))).await.json();
    let record = |id: &str, decision: &str| {
        json!({ "run_id": "acme/1", "record_id": id, "writer_id": claim["writer_id"], "writer_epoch": 1,
            "payload": { "type": "approval", "record_type": "responded", "record": { "request_id": id,
                "decision": { "decision": decision, "reason_code": "none", "actor_ref": { "kind": "host", "id": "boss",
                    "trust": "host_provided", "privacy": "internal" } } } } })
    };
    let path = "/v1/runs/acme%2F1/records";
    let post = async |token: &str, body: &Value| site.ask("post", path, Some(token), Some(body)).await;
    assert_eq!(post(&approver, &record("one", "approved")).await.json()["outcome"], "applied");
    // The same approval with another credential is no other approval, and changes no approver.
    assert_eq!(post(&everything, &record("one", "approved")).await.json()["outcome"], "repeat");
    let batch = json!({ "run_id": "acme/1", "record_id": "batch", "writer_id": claim["writer_id"], "writer_epoch": 1,
        "payload": { "type": "batch", "records": [record("two", "approved_for_session")] } });
    assert_eq!(post(&approver, &batch).await.json()["outcome"], "applied");
    assert_eq!(post(&everything, &batch).await.json()["outcome"], "repeat");
    for forged in [record("forged", "approved"), record("denied", "denied")] {
        for (name, value) in [("approver", json!("approver")), ("principal_proof", json!("0".repeat(64)))] {
            let mut forged = forged.clone();
            forged["facts"] = json!({ name: value });
            let reply = post(&everything, &forged).await;
            assert!(reply.status == 400 && reply.body.contains("principal"), "{reply:?}");
        }
    }
    let of = |id: &str, verified: bool| (json!(id), json!("approver"), json!(verified));
    assert_eq!(approvals(&site, &everything).await, [of("one", true), of("two", true)]);
    // A record that was appended past the server has the proof of another record.
    let shown = site.ask("get", &format!("{path}?whole=true&limit=1000"), Some(&everything), None).await.json();
    let one = shown["records"].as_array().unwrap().iter().find(|line| line["record_id"] == "one").unwrap();
    let mut stolen = record("stolen", "approved");
    stolen["facts"] = one["record"]["facts"].clone();
    let mut stolen = Draft::parse(&stolen.to_string()).unwrap().record;
    let run = site.ask("get", "/v1/runs/acme%2F1", Some(&everything), None).await.json();
    stolen.place.writer_seq = serde_json::from_value(run["next_writer_seq"].clone()).unwrap();
    stolen.place.journal_seq = serde_json::from_value(run["next_journal_seq"].clone()).unwrap();
    site.log.append(PartitionId::from(0), vec![entry(&stolen, &NoRegistry).unwrap()]).await.unwrap();
    assert_eq!(approvals(&site, &everything).await.pop().unwrap(), of("stolen", false));
}

#[tokio::test(flavor = "multi_thread")]
async fn skips_and_horizons_have_the_principal_in_the_log() {
    let site = Site::start(&entries()).await;
    let file = TokenFile { receipt_key: Some("1".repeat(64)), ..TokenFile::read(&site.tokens()).unwrap() };
    file.write(&site.tokens()).unwrap();
    site.authentication.reload();
    let (_, everything) = token_of(9);
    site.fill("acme/1", &everything).await;
    let skip = json!({ "partition": 0, "offset": site.end().await - 1, "who": "jo", "why": "a test" });
    let reply = site.ask("post", "/v1/skips?force=true", Some(&everything), Some(&skip)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let horizon =
        json!({ "family": "conversation_turn", "until": "2001-01-01T00:00:00Z", "who": "jo", "why": "a test" });
    let reply = site.ask("post", "/v1/horizons", Some(&everything), Some(&horizon)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let (end, mut reader) = (site.end().await, site.log.reader(&[(PartitionId::from(0), Offset::ZERO)]).unwrap());
    let mut records = Vec::new();
    while records.len() < usize::try_from(end).unwrap() {
        records.extend(reader.poll(1024, WAIT).unwrap());
    }
    for delivery in &records[records.len() - 2..] {
        let record = codec::decode(codec::unframe(&delivery.value).unwrap()).unwrap();
        let facts = &record.body.facts;
        assert_eq!(facts.principal.as_deref(), Some("everything"), "{record:?}");
        assert!(facts.principal_proof.is_some(), "{record:?}");
    }
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
