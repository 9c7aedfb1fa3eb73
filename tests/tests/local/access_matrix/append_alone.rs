//! The limits of a credential with `append`: decisions on effects, and approvals.

use super::{Reply, Site, entries, token_of};
use runlog_producer::{Action, Call, Config, Journal, Json, Run, Runlog, Token};
use runlog_schemas::{answer::ErrorKind, payload::Payload};
use runlog_tests::http_proxy::HttpProxy;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

const RUN: &str = "acme/1";
const RECORDS: &str = "/v1/runs/acme%2F1/records";

/// A writer over plain HTTP: its token, its id and its epoch.
struct Writer<'a> {
    site: &'a Site,
    token: String,
    id: Value,
    epoch: u64,
}

impl<'a> Writer<'a> {
    /// Claims the run with the token of a role.
    async fn claim(site: &'a Site, role: u8) -> Self {
        let (_, token) = token_of(role);
        let claim = site.ask("post", "/v1/runs/acme%2F1/claims", Some(&token), Some(&json!({}))).await.json();
        Self { site, token, id: claim["writer_id"].clone(), epoch: claim["epoch"].as_u64().unwrap() }
    }

    fn record(&self, id: &str, payload: &Value) -> Value {
        json!({ "run_id": RUN, "record_id": id, "writer_id": self.id, "writer_epoch": self.epoch, "payload": payload })
    }

    async fn post(&self, record: &Value) -> Reply {
        self.site.ask("post", RECORDS, Some(&self.token), Some(record)).await
    }

    /// The outcome of a record.
    async fn append(&self, id: &str, payload: &Value) -> String {
        let answer = self.post(&self.record(id, payload)).await;
        answer.json()["outcome"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    async fn intent(&self, id: &str) {
        let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
            "arguments": { "invoice": id } });
        assert_eq!(self.append(id, &payload).await, "applied");
    }

    /// The writer's own decision that an effect did not happen.
    fn not_done(&self, id: &str, effect: &str) -> Value {
        let payload = json!({ "type": "effect_resolution", "request_record_id": effect, "decision": "not_done",
            "who": "boss@acme", "why": "it never started" });
        let mut record = self.record(id, &payload);
        record["facts"] = json!({ "epoch": self.epoch });
        record
    }
}

/// The class of a pending effect.
async fn class(site: &Site, effect: &str) -> String {
    let (_, everything) = token_of(9);
    let answer = site.ask("get", "/v1/runs/acme%2F1/recovery", Some(&everything), None).await.json();
    let pending = answer["pending"].as_array().unwrap().iter().find(|pending| pending["id"] == effect).cloned();
    pending.unwrap_or_else(|| panic!("{answer}"))["class"].as_str().unwrap().to_owned()
}

fn audited(site: &Site) -> Vec<Value> {
    let text = std::fs::read_to_string(site.audit_log()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn forbidden(answer: &Reply, scope: &str) {
    assert_eq!((answer.status, &answer.json()["kind"]), (403, &json!("forbidden")), "{answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().contains(scope), "{answer:?}");
}

/// The appender's and the agent's roles.
const APPEND: u8 = 1;
const AGENT: u8 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn append_alone_clears_no_effect_that_another_epoch_started() {
    let site = Site::start(&entries()).await;
    let dead = Writer::claim(&site, AGENT).await;
    dead.intent("pay").await;
    let contract = json!({ "type": "effect_intent", "effect_id": "mail", "kind": "tool_execution",
        "subject_ref": { "kind": "tool_call", "id": "call", "privacy": "content_refs_only" },
        "source": { "kind": "sdk", "id": "sdk", "trust": "host_provided", "privacy": "content_refs_only" },
        "destination": { "kind": "tool", "id": "mail", "privacy": "content_refs_only", "retention": "host_policy" },
        "redacted_summary": "one mail" });
    assert_eq!(dead.append("mail-intent", &contract).await, "applied");
    // Cleared once, then started again by the dead process.
    dead.intent("book").await;
    assert_eq!(dead.post(&dead.not_done("own", "book")).await.json()["outcome"], "applied");
    let attempt = |effect: &str| json!({ "type": "tool_call_attempt", "request_record_id": effect, "attempt": 2, "reason": "a test" });
    assert_eq!(dead.append("book-2", &attempt("book")).await, "applied");

    let thief = Writer::claim(&site, APPEND).await;
    let mut stolen = thief.not_done("with evidence", "pay");
    stolen["facts"]["evidence"] = json!("some-result");
    let mut of_before = thief.not_done("of the epoch before", "pay");
    of_before["facts"]["epoch"] = json!(dead.epoch);
    let mut of_no_epoch = thief.not_done("of no epoch", "pay");
    of_no_epoch["facts"]["epoch"] = json!(0);
    let mut of_a_claim_to_come = thief.not_done("of a claim to come", "not there yet");
    of_a_claim_to_come["facts"]["epoch"] = json!(thief.epoch + 1);
    let mut seen = thief.not_done("at a revision", "pay");
    seen["facts"]["revision"] = json!(9);
    let attacks = [
        thief.not_done("plain", "pay"),
        thief.not_done("a contract's", "mail"),
        thief.not_done("started again", "book"),
        json!([thief.not_done("one of several", "pay")]),
        stolen,
        of_no_epoch,
        of_a_claim_to_come,
        seen,
    ];
    let end = site.end().await;
    for attack in &attacks {
        forbidden(&thief.post(attack).await, "resolve");
        let checked = site.ask("post", &format!("{RECORDS}?check=true"), Some(&thief.token), Some(attack)).await;
        forbidden(&checked, "resolve");
    }
    assert_eq!(site.end().await, end, "no record was appended");
    // A decision of the previous epoch is fenced, for any sender.
    assert_eq!(thief.post(&of_before).await.json()["reason"], "fenced");
    // An attempt without permission.
    let tried = thief.post(&thief.record("pay-2", &attempt("pay"))).await;
    assert_eq!((tried.status, &tried.json()["kind"]), (409, &json!("reconcile_required")), "{tried:?}");
    forbidden(&thief.post(&thief.not_done("after an attempt", "pay")).await, "resolve");
    for effect in ["pay", "mail", "book"] {
        assert_eq!(class(&site, effect).await, "reconcile_required", "{effect}");
    }
    // A sender with `resolve` may decide.
    let mut desk = thief.not_done("the desk's", "pay");
    desk["facts"] = json!({ "revision": 1 });
    assert_eq!(site.ask("post", RECORDS, Some(&token_of(9).1), Some(&desk)).await.json()["outcome"], "applied");
    assert_eq!(class(&site, "pay").await, "retry_safe");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_decide_not_done_about_an_effect_of_its_epoch_without_a_result() {
    let site = Site::start(&entries()).await;
    let old = Writer::claim(&site, AGENT).await;
    let agent = Writer::claim(&site, AGENT).await;
    agent.intent("pay").await;
    agent.intent("answered").await;
    let own = agent.not_done("own", "pay");
    assert_eq!(agent.post(&own).await.json()["outcome"], "applied");
    assert_eq!(class(&site, "pay").await, "retry_safe");
    let line = audited(&site).pop().unwrap();
    let written = (&line["principal"], &line["detail"]["about"], &line["detail"]["status"]);
    assert_eq!(written, (&json!("agent"), &json!("pay"), &json!("not_done")), "{line}");
    let failed = json!({ "type": "tool_call_failed", "request_record_id": "answered", "error_kind": "Timeout",
        "error_message": "m" });
    assert_eq!(old.post(&old.record("late", &failed)).await.json()["reason"], "fenced", "it is kept as evidence");
    forbidden(&agent.post(&agent.not_done("blind", "answered")).await, "resolve");
    let mut of_cleared = failed.clone();
    of_cleared["request_record_id"] = json!("pay");
    let both = json!([old.record("late, too", &of_cleared), agent.not_done("blind, too", "pay")]);
    forbidden(&agent.post(&both).await, "resolve");
    assert_eq!(class(&site, "pay").await, "retry_safe", "no record was appended");
    assert_eq!(class(&site, "answered").await, "reconcile_required");
    // The next writer starts the cleared effect, so the effect belongs to its epoch.
    let next = Writer::claim(&site, AGENT).await;
    let attempt = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "a test" });
    assert_eq!(next.append("pay-2", &attempt).await, "applied");
    assert_eq!(class(&site, "pay").await, "reconcile_required");
    // Sent again, the first decision is a repeat and has no effect.
    assert_eq!(agent.post(&own).await.json()["outcome"], "repeat");
    assert_eq!(class(&site, "pay").await, "reconcile_required");
    assert_eq!(next.post(&next.not_done("its own", "pay")).await.json()["outcome"], "applied");
    assert_eq!(class(&site, "pay").await, "retry_safe");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_alone_clears_no_effect_whose_newest_record_a_skip_voids() {
    let site = Site::start_of_version_3(&entries()).await;
    let (_, everything) = token_of(9);
    let old = Writer::claim(&site, AGENT).await;
    let agent = Writer::claim(&site, AGENT).await;
    let failed = json!({ "type": "tool_call_failed", "request_record_id": "pay", "error_kind": "Timeout",
        "error_message": "m" });
    agent.intent("pay").await;
    let evidence = old.post(&old.record("late", &failed)).await.json();
    assert_eq!(evidence["reason"], "fenced", "{evidence}");
    agent.intent("book").await;
    let decision = agent.post(&agent.not_done("first", "book")).await.json();
    assert_eq!(decision["outcome"], "applied", "{decision}");
    for voided in [evidence, decision] {
        let skip = json!({ "partition": 0, "offset": voided["position"]["offset"], "who": "jo", "why": "a mistake" });
        let answer = site.ask("post", "/v1/skips?force=true", Some(&everything), Some(&skip)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for effect in ["pay", "book"] {
        let recovery = site.ask("get", "/v1/runs/acme%2F1/recovery", Some(&everything), None).await.json();
        let all = recovery["pending"].as_array().unwrap();
        let seen = all.iter().find(|pending| pending["id"] == effect).unwrap();
        assert_eq!((&seen["class"], &seen["evidence"]), (&json!("reconcile_required"), &json!([])), "{seen}");
        // With the effect's basis the judge would apply the decision.
        let mut with_basis = agent.not_done(&format!("{effect} at its basis"), effect);
        with_basis["facts"]["basis"] = seen["basis"].clone();
        for decision in [with_basis.clone(), agent.not_done(&format!("{effect} blind"), effect)] {
            forbidden(&agent.post(&decision).await, "resolve");
        }
        assert_eq!(class(&site, effect).await, "reconcile_required", "{effect}");
        // A sender with `resolve` may decide.
        let answer = site.ask("post", RECORDS, Some(&everything), Some(&with_basis)).await;
        assert_eq!(answer.json()["outcome"], "applied", "{answer:?}");
        assert_eq!(class(&site, effect).await, "retry_safe", "{effect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_names_a_person_has_no_writer_seq() {
    let site = Site::start(&entries()).await;
    let all = Writer::claim(&site, 9).await;
    all.intent("pay").await;
    let retraction = all.record(
        "taken back",
        &json!({ "type": "retraction", "retracted_record_id": "pay",
        "who": "boss@acme", "why": "w" }),
    );
    let end = site.end().await;
    for mut record in [all.not_done("numbered", "pay"), retraction] {
        record["writer_seq"] = json!(2);
        let answer = all.post(&record).await;
        assert!(answer.status == 400 && answer.body.contains("writer_seq"), "{answer:?}");
    }
    assert_eq!(site.end().await, end, "no record was appended");
    assert_eq!(class(&site, "pay").await, "reconcile_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_alone_approves_nothing() {
    let site = Site::start(&entries()).await;
    let agent = Writer::claim(&site, APPEND).await;
    let actor = json!({ "kind": "host", "id": "boss@acme", "trust": "host_provided", "privacy": "internal" });
    let responded = |id: &str, decision: &Value| {
        json!({ "type": "approval", "record_type": "responded",
            "record": { "request_id": id, "decision": decision } })
    };
    let approved = json!({ "decision": "approved", "actor_ref": actor });
    let for_session = json!({ "decision": "approved_for_session", "actor_ref": actor });
    let dispatched = json!({ "type": "approval", "record_type": "dispatch_result", "record": { "request_id": "a",
        "lifecycle_status": "approved", "effect_result": { "effect_id": "e", "terminal_status": "completed",
            "redacted_summary": "one" } } });
    let plain = agent.record("approved", &responded("a", &approved));
    let batch = agent.record(
        "batch",
        &json!({ "type": "batch", "records": [
        agent.record("in the batch", &responded("a", &approved))] }),
    );
    let mut sealed = agent.record(
        "sealed",
        &json!({ "type": "encrypted", "algorithm": "x", "nonce": "00",
        "ciphertext": "00" }),
    );
    sealed["record_kind"] = json!("approval");
    sealed["facts"] = json!({ "payload_type": "approval", "status": "approved", "key": "a" });
    let end = site.end().await;
    for record in [
        &plain,
        &agent.record("for the session", &responded("a", &for_session)),
        &agent.record("dispatched", &dispatched),
        &batch,
        &sealed,
    ] {
        forbidden(&agent.post(record).await, "approve or resolve");
    }
    assert_eq!(site.end().await, end, "no record was appended");
    // A denial permits no effect: an agent may record it.
    let denied = json!({ "decision": "denied", "reason_code": "no", "actor_ref": null });
    assert_eq!(agent.append("denied", &responded("b", &denied)).await, "applied");
    let lines = audited(&site).len();
    let (_, approver) = token_of(11);
    let answer = site.ask("post", RECORDS, Some(&approver), Some(&batch)).await;
    assert_eq!(answer.json()["outcome"], "applied", "{answer:?}");
    let line = audited(&site).pop().unwrap();
    let written =
        (&line["principal"], &line["detail"]["record_id"], &line["detail"]["about"], &line["detail"]["status"]);
    assert_eq!(written, (&json!("approver"), &json!("in the batch"), &json!("a"), &json!("approved")), "{line}");
    assert_eq!(audited(&site).len(), lines + 1);
}

/// A response that does not come from the server.
pub(super) const LOST: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A handle whose token may not resolve, and a proxy through which it appends and recovers.
async fn open_without_resolve(site: &Site) -> (Run, HttpProxy) {
    let proxy = HttpProxy::start(&format!("http://{}", site.address), "/reco").unwrap();
    let config = Config::new(Journal::parse(&proxy.url, None).unwrap(), "agent");
    let config = Config { token: Some(Token::new(&token_of(AGENT).1).unwrap()), ..config };
    (Runlog::connect(config).await.unwrap().open(RUN).await.unwrap(), proxy)
}

/// The same handle after an intent that is in the log, whose answer was lost. Also returns the recovery before the
/// intent.
async fn handle_without_an_answer(site: &Site) -> (Run, HttpProxy, String) {
    let ((run, proxy), (_, token)) = (open_without_resolve(site).await, token_of(AGENT));
    let before = site.ask("get", "/v1/runs/acme%2F1/recovery?full=true", Some(&token), None).await.body;
    proxy.answer_next(LOST, true);
    let error = run.tool("pay", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Reopen), "{error}");
    (run, proxy, json_response(&before))
}

/// A response with this JSON.
pub(super) fn json_response(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn reopen_clears_a_call_that_never_started_without_the_scope_resolve() {
    let site = Site::start(&entries()).await;
    let (run, _proxy, _) = handle_without_an_answer(&site).await;
    let reopened = run.reopen().await.unwrap();
    assert_eq!((reopened.landed, reopened.not_done), (1, 1));
    let ran = AtomicU32::new(0);
    let effect = async |call: Call| {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(Json::from(json!(call.attempt)))
    };
    let answer = run.tool("pay", &1).once(effect).await.unwrap();
    assert_eq!((answer.result.map(|result| result.to_value()), ran.load(Ordering::SeqCst)), (Some(json!(2)), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn reopen_leaves_a_call_pending_if_the_server_refuses_its_decision() {
    let site = Site::start(&entries()).await;
    let (run, proxy, old) = handle_without_an_answer(&site).await;
    // As if the intent had arrived only after the handle had queried the pending calls: then its epoch is over.
    proxy.answer_next(&old, false);
    let reopened = run.reopen().await.unwrap();
    assert_eq!((reopened.landed, reopened.not_done), (1, 0));
    run.turn("user", "hello").await.unwrap();
    for _ in 0..2 {
        let error = run.tool("pay", &1).once(async |_| panic!("it runs")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReconcileRequired, "{error}");
    }
    let (_, everything) = token_of(9);
    let recovery = site.ask("get", "/v1/runs/acme%2F1/recovery", Some(&everything), None).await.json();
    let pending = &recovery["pending"][0];
    // The process is alive.
    let decision =
        json!({ "decision": "not_done", "revision": pending["revision"], "who": "jo", "why": "a test", "force": true });
    let path = format!("/v1/runs/acme%2F1/effects/{}/resolution", pending["id"].as_str().unwrap());
    assert_eq!(site.ask("post", &path, Some(&everything), Some(&decision)).await.status, 200);
    let answer = run.tool("pay", &1).once(async |_| Ok(Json::from(json!("paid")))).await.unwrap();
    assert_eq!(answer.result.map(|result| result.to_value()), Some(json!("paid")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_server_always_refuses_fails_reopen_once() {
    let site = Site::start(&entries()).await;
    let (run, proxy) = open_without_resolve(&site).await;
    let approved = json!({ "type": "approval", "record_type": "responded", "record": { "request_id": "a",
        "decision": { "decision": "approved", "actor_ref": { "kind": "host", "id": "boss", "trust": "host_provided",
            "privacy": "internal" } } } });
    let approved = serde_json::value::to_raw_value(&approved).unwrap();
    let record = run.draft(Payload::from_json(&approved).unwrap()).unwrap();
    // The record never reaches the log, and the handle does not learn that.
    proxy.answer_next(LOST, false);
    assert_eq!(run.record(record).await.unwrap_err().action(), Action::Reopen);
    let error = run.reopen().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    run.reopen().await.unwrap();
    run.turn("user", "hello").await.unwrap();
}
