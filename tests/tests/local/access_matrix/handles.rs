//! Calls belong to the handle that started them, if the server writes schema version 3: a credential without `resolve` records results
//! only of its own calls. Raw HTTP, and the Rust client.

use super::{Site, append_alone, entries, token_of};
use runlog_producer::{Config, Journal, Json, Runlog, Token};
use runlog_tests::http_proxy::HttpProxy;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const RECORDS: &str = "/v1/runs/acme%2F1/records";
const AGENT: u8 = 5;
const EVERYTHING: u8 = 9;

/// The secret of a handle's claim, from its number.
fn secret(number: u8) -> String {
    format!("{number:02x}").repeat(32)
}

fn commitment(number: u8) -> String {
    Sha256::digest([number; 32]).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A handle of the run `acme/1`.
struct Handle<'a> {
    site: &'a Site,
    token: String,
    writer_id: Value,
    epoch: Value,
}

impl<'a> Handle<'a> {
    async fn claim(site: &'a Site, role: u8, claim: &Value) -> Self {
        let (_, token) = token_of(role);
        let answer = site.ask("post", "/v1/runs/acme%2F1/claims", Some(&token), Some(claim)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let claim = answer.json();
        Self { site, token, writer_id: claim["writer_id"].clone(), epoch: claim["epoch"].clone() }
    }

    fn record(&self, id: &str, payload: &Value, facts: &Value) -> Value {
        json!({ "run_id": "acme/1", "record_id": id, "writer_id": self.writer_id, "writer_epoch": self.epoch, "payload": payload,
            "facts": facts })
    }

    /// Appends a record and returns the reason of its refusal, or its outcome.
    async fn append(&self, id: &str, payload: &Value, facts: &Value) -> String {
        let record = self.record(id, payload, facts);
        let answer = self.site.ask("post", RECORDS, Some(&self.token), Some(&record)).await;
        let json = answer.json();
        let word = [&json["reason"], &json["outcome"]].into_iter().find_map(Value::as_str);
        word.unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    async fn start(&self, call: &str, facts: &Value) {
        let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": call, "tool_name": "pay",
            "arguments": { "invoice": call } });
        assert_eq!(self.append(call, &payload, facts).await, "applied");
    }
}

fn completed(call: &str) -> Value {
    json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "paid": true } })
}

fn failed(call: &str) -> Value {
    json!({ "type": "tool_call_failed", "request_record_id": call, "error_kind": "Timeout", "error_message": "m" })
}

/// The pending effect with this id.
async fn pending(site: &Site, call: &str) -> Option<Value> {
    let (_, everything) = token_of(EVERYTHING);
    let recovery = site.ask("get", "/v1/runs/acme%2F1/recovery", Some(&everything), None).await.json();
    recovery["pending"].as_array().unwrap().iter().find(|pending| pending["id"] == call).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_another_handles_call_is_kept_as_evidence_and_ends_nothing() {
    let site = Site::start_of_version_3(&entries()).await;
    let dead = Handle::claim(&site, AGENT, &json!({ "commitment": commitment(1) })).await;
    for call in ["paid", "failed", "in a batch"] {
        dead.start(call, &json!({})).await;
    }
    // Other secrets, a secret without a commitment, and none.
    for claim in [json!({ "commitment": commitment(2), "shown": secret(3) }), json!({ "shown": secret(2) }), json!({})]
    {
        let thief = Handle::claim(&site, AGENT, &claim).await;
        let id = |text: &str| format!("{text} by {}", thief.epoch);
        assert_eq!(thief.append(&id("paid"), &completed("paid"), &Value::Null).await, "not_started_here");
        // The client cannot lift the limit.
        let lifted = json!({ "only_own": false });
        assert_eq!(thief.append(&id("failed"), &failed("failed"), &lifted).await, "not_started_here");
        let member = thief.record(&id("member"), &completed("in a batch"), &Value::Null);
        let batch = json!({ "type": "batch", "records": [member] });
        assert_eq!(thief.append(&id("batch"), &batch, &Value::Null).await, "not_started_here");
        // The same record again is the same record.
        assert_eq!(thief.append(&id("paid"), &completed("paid"), &Value::Null).await, "not_started_here");
    }
    for (call, evidence) in [("paid", 3), ("failed", 3), ("in a batch", 3)] {
        let effect = pending(&site, call).await.unwrap_or_else(|| panic!("{call} is pending"));
        assert_eq!(effect["evidence"].as_array().map(Vec::len), Some(evidence), "{effect}");
        assert_eq!(effect["class"], "reconcile_required", "{effect}");
    }
    // With `resolve` a writer may record the result of any call.
    let desk = Handle::claim(&site, EVERYTHING, &json!({})).await;
    assert_eq!(desk.append("the desk's", &completed("paid"), &Value::Null).await, "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_shows_its_secret_ends_the_calls_of_its_earlier_claims() {
    let site = Site::start_of_version_3(&entries()).await;
    let first = Handle::claim(&site, AGENT, &json!({ "commitment": commitment(1) })).await;
    for call in ["paid", "never started", "left"] {
        first.start(call, &json!({})).await;
    }
    let again = json!({ "commitment": commitment(2), "shown": secret(1), "record_id": "again", "writer_id": "again" });
    let own = Handle::claim(&site, AGENT, &again).await;
    let own_again = Handle::claim(&site, AGENT, &again).await;
    assert_eq!(own.epoch, own_again.epoch, "a claim that is sent again is the same claim");
    assert_eq!(own.append("result", &completed("paid"), &Value::Null).await, "applied");
    let not_done = json!({ "type": "effect_resolution", "request_record_id": "never started", "decision": "not_done",
        "who": "agent", "why": "it never started" });
    assert_eq!(own.append("decision", &not_done, &json!({ "epoch": own.epoch })).await, "applied");
    // The first secret was shown already, and the second claim has another commitment.
    let thief = Handle::claim(&site, AGENT, &json!({ "commitment": commitment(3), "shown": secret(1) })).await;
    assert_eq!(thief.append("stolen", &completed("left"), &Value::Null).await, "not_started_here");
    let mut stolen = not_done.clone();
    stolen["request_record_id"] = "left".into();
    let record = thief.record("stolen, too", &stolen, &json!({ "epoch": thief.epoch }));
    assert_eq!(site.ask("post", RECORDS, Some(&thief.token), Some(&record)).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_commitment_and_observed_calls_may_have_any_writers_result() {
    let site = Site::start_of_version_3(&entries()).await;
    let old = Handle::claim(&site, AGENT, &json!({})).await;
    old.start("of an old client", &json!({})).await;
    let gateway = Handle::claim(&site, AGENT, &json!({ "commitment": commitment(1) })).await;
    gateway.start("observed", &json!({ "observed": true })).await;
    gateway.start("its own", &json!({ "observed": false })).await;
    let other = Handle::claim(&site, AGENT, &json!({ "commitment": commitment(2) })).await;
    for (call, word) in [("of an old client", "applied"), ("observed", "applied"), ("its own", "not_started_here")] {
        assert_eq!(other.append(&format!("result of {call}"), &completed(call), &Value::Null).await, word, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_contains_a_shown_secret() {
    let site = Site::start_of_version_3(&entries()).await;
    Handle::claim(&site, AGENT, &json!({ "commitment": commitment(1) })).await;
    Handle::claim(&site, AGENT, &json!({ "commitment": commitment(2), "shown": secret(1) })).await;
    let (_, everything) = token_of(EVERYTHING);
    // A claim that is refused shows its secret too, and the secret can still be used.
    let lost = json!({ "run_id": "acme/1", "record_id": "lost", "writer_id": "w", "writer_epoch": 9,
        "payload": { "type": "run_claim", "writer_id": "w", "epoch": 9, "claimed_by": "" },
        "facts": { "commitment": commitment(3), "shown": secret(2) } });
    let answer = site.ask("post", RECORDS, Some(&everything), Some(&lost)).await;
    assert_eq!(answer.json()["reason"], "fenced", "{answer:?}");
    for path in [
        "/v1/runs/acme%2F1/records",
        "/v1/runs/acme%2F1/records?whole=true&order=desc",
        "/v1/runs/acme%2F1/recovery",
        "/v1/runs/acme%2F1/tail?until_end=true&raw=true",
        "/v1/anomalies",
        "/v1/events?run=acme%2F1",
        "/v1/indices/runs/changes?until_end=true",
        "/v1/indices/records/changes?until_end=true",
        "/v1/indices/anomalies/changes?until_end=true",
    ] {
        let answer = site.ask("get", path, Some(&everything), None).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(!answer.body.contains(&secret(1)) && !answer.body.contains(&secret(2)), "{path}: {answer:?}");
    }
    let records = site.ask("get", "/v1/runs/acme%2F1/records?whole=true", Some(&everything), None).await;
    assert!(records.body.contains(&commitment(2)), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rust_handle_that_reopens_decides_about_a_call_of_its_earlier_claim() {
    let site = Site::start_of_version_3(&entries()).await;
    let proxy = HttpProxy::start(&format!("http://{}", site.address), "/reco").unwrap();
    let config = Config::new(Journal::parse(&proxy.url, None).unwrap(), "agent");
    let config = Config { token: Some(Token::new(&token_of(AGENT).1).unwrap()), ..config };
    let run = Runlog::connect(config).await.unwrap().open("acme/1").await.unwrap();
    let (_, token) = token_of(AGENT);
    let before = site.ask("get", "/v1/runs/acme%2F1/recovery?full=true", Some(&token), None).await.body;
    proxy.answer_next(append_alone::LOST, true);
    run.tool("pay", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    // As if the intent had arrived only after the handle had queried the pending calls: its epoch is over then.
    proxy.answer_next(&append_alone::json_response(&before), false);
    let reopened = run.reopen().await.unwrap();
    assert_eq!((reopened.landed, reopened.not_done), (1, 1));
    let answer = run.tool("pay", &1).once(async |_| Ok(Json::from(json!("paid")))).await.unwrap();
    assert_eq!(answer.result.map(|result| result.to_value()), Some(json!("paid")));
}
