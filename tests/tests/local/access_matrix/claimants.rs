//! A credential without `resolve` writes only under epochs that its own principal claimed: to know another process's writer id and
//! epoch, which every answer names, permits nothing.

use super::{Reply, Site, entries, token_of};
use serde_json::{Value, json};

const RUN: &str = "acme/1";
const CLAIMS: &str = "/v1/runs/acme%2F1/claims";
const RECORDS: &str = "/v1/runs/acme%2F1/records";
const THIEF: u8 = 1;
const AGENT: u8 = 5;
const EVERYTHING: u8 = 9;

async fn post(site: &Site, role: u8, path: &str, body: &Value) -> Reply {
    site.ask("post", path, Some(&token_of(role).1), Some(body)).await
}

/// Claims the run, and returns the writer as an answer names it.
async fn claim(site: &Site, role: u8, request: &Value) -> Value {
    let claim = post(site, role, CLAIMS, request).await;
    assert_eq!(claim.status, 200, "{claim:?}");
    let claim = claim.json();
    json!({ "writer_id": claim["writer_id"], "epoch": claim["epoch"] })
}

fn record(writer: &Value, id: &str, payload: Value) -> Value {
    json!({ "run_id": RUN, "record_id": id, "writer_id": writer["writer_id"], "writer_epoch": writer["epoch"],
        "payload": payload })
}

fn intent(writer: &Value, id: &str) -> Value {
    let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
        "arguments": { "invoice": id } });
    record(writer, id, payload)
}

fn completed(writer: &Value, id: &str, call: &str) -> Value {
    let payload = json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": id } });
    record(writer, id, payload)
}

fn not_done(writer: &Value, id: &str, call: &str) -> Value {
    let payload = json!({ "type": "effect_resolution", "request_record_id": call, "decision": "not_done", "who": "a",
        "why": "it never started" });
    let mut decision = record(writer, id, payload);
    decision["facts"] = json!({ "epoch": writer["epoch"] });
    decision
}

async fn outcome(site: &Site, role: u8, record: &Value) -> Value {
    let answer = post(site, role, RECORDS, record).await;
    answer.json()["outcome"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_under_an_epoch_that_another_principal_claimed_is_forbidden() {
    for of_version in [2, 3] {
        let site = match of_version {
            2 => Site::start(&entries()).await,
            _ => Site::start_of_version_3(&entries()).await,
        };
        let before = claim(&site, AGENT, &json!({})).await;
        let agent = claim(&site, AGENT, &json!({})).await;
        for call in ["pay", "book"] {
            assert_eq!(outcome(&site, AGENT, &intent(&agent, call)).await, "applied");
        }
        let stranger = json!({ "writer_id": "stranger", "epoch": 0 });
        let started = |writer: &Value, status: &str| {
            record(writer, &format!("it is {status}"), json!({ "type": "run_lifecycle", "status": status }))
        };
        // The thief knows the writer and its epoch from an answer of an older server.
        let named = agent.clone();
        let mut numbered = completed(&named, "numbered", "book");
        (numbered["writer_seq"], numbered["journal_seq"]) = (json!(3), json!(3));
        let batch = json!({ "type": "batch", "records": [completed(&named, "in a batch", "book")] });
        let member = json!({ "type": "batch", "records": [completed(&named, "in a stranger's batch", "book")] });
        let attacks = [
            not_done(&named, "cleared", "pay"),
            completed(&named, "invented", "book"),
            numbered.clone(),
            record(&named, "batch", batch),
            record(&stranger, "a stranger's batch", member),
            json!([completed(&named, "one of several", "book")]),
            started(&named, "cancelled"),
            intent(&named, "another"),
            // A result under an epoch that is over, or under none, would be evidence of the agent's.
            completed(&before, "of the epoch before", "book"),
            completed(&stranger, "of no epoch", "book"),
            started(&stranger, "started"),
            // A repeat would consume the agent's next number.
            intent(&named, "pay"),
        ];
        let end = site.end().await;
        for attack in &attacks {
            for query in ["", "?check=true", "?consistency=latest"] {
                let answer = post(&site, THIEF, &format!("{RECORDS}{query}"), attack).await;
                let refusal = (answer.status, answer.json()["kind"].clone());
                assert_eq!(refusal, (403, json!("forbidden")), "{query} {attack}: {answer:?}");
            }
        }
        let answer = post(&site, THIEF, &format!("{RECORDS}?return=ack"), &numbered).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        assert_eq!(site.end().await, end, "no record was appended");

        // The principal's other token, and a credential with `resolve`, may.
        assert_eq!(outcome(&site, AGENT, &completed(&agent, "paid", "pay")).await, "applied");
        assert_eq!(outcome(&site, EVERYTHING, &completed(&agent, "booked", "book")).await, "applied");
        // A takeover is permitted, and then the agent is the stranger.
        let thief = claim(&site, THIEF, &json!({})).await;
        assert_eq!(outcome(&site, THIEF, &intent(&thief, "its own")).await, "applied");
        assert_eq!(post(&site, AGENT, RECORDS, &completed(&thief, "stolen", "its own")).await.status, 403);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_of_a_journal_knows_who_claimed_an_epoch() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    // It builds its index from the log.
    let other = site.start_beside(&entries()).await;
    assert_eq!(post(&other, THIEF, RECORDS, &completed(&agent, "invented", "pay")).await.status, 403);
    let verified = post(&other, EVERYTHING, "/v1/verify", &json!(null)).await;
    assert_eq!(verified.json()["equal"], true, "an index that is built in bulk has the principal: {verified:?}");
    // The other server waits until it has read the claim of an epoch.
    let agent = claim(&site, AGENT, &json!({})).await;
    let mut numbered = completed(&agent, "numbered", "pay");
    (numbered["writer_seq"], numbered["journal_seq"]) = (json!(1), json!(2));
    assert_eq!(post(&other, THIEF, RECORDS, &numbered).await.status, 403);
    assert_eq!(outcome(&other, AGENT, &numbered).await, "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_nobody_claimed_is_not_written() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    let mut next = agent.clone();
    next["epoch"] = json!(2);
    let end = site.end().await;
    let early = post(&site, AGENT, RECORDS, &intent(&next, "early")).await;
    assert_eq!(early.json()["kind"], "stale", "{early:?}");
    assert_eq!(site.end().await, end, "no record was appended");
    // With its claim before it in the request it is written.
    let payload = json!({ "type": "run_claim", "writer_id": next["writer_id"], "epoch": 2, "claimed_by": "" });
    let both = json!([record(&next, "claim", payload), intent(&next, "after its claim")]);
    let both = post(&site, AGENT, RECORDS, &both).await;
    assert_eq!(both.json()[1]["outcome"], "applied", "{both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_sent_again_by_another_principal_is_a_conflict_and_no_answer_names_the_writer() {
    let site = Site::start(&entries()).await;
    let request = json!({ "record_id": "chosen" });
    let agent = claim(&site, AGENT, &request).await;
    assert_eq!(claim(&site, AGENT, &request).await, agent);
    let writer = agent["writer_id"].as_str().unwrap();
    let only_if = json!({ "record_id": "mine", "only_if": { "hash": "0".repeat(64) } });
    for request in [&request, &only_if] {
        let answer = post(&site, THIEF, CLAIMS, request).await;
        assert_eq!((answer.status, &answer.json()["kind"]), (409, &json!("conflict")), "{answer:?}");
        assert!(!answer.body.contains(writer), "{answer:?}");
    }
    claim(&site, AGENT, &json!({})).await;
    let lost = post(&site, AGENT, CLAIMS, &request).await;
    assert_eq!(lost.json()["kind"], "claim_lost", "{lost:?}");
}

/// The effect with the id "pay", as an operator sees it.
async fn effect(site: &Site) -> Value {
    let path = "/v1/effects?consistency=latest";
    let listed = site.ask("get", path, Some(&token_of(EVERYTHING).1), None).await.json();
    let all = listed["effects"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|effect| effect["id"] == "pay").unwrap_or_default()
}

/// The position in the list, the epoch and the booking of the result that a decision would adopt.
fn adoptable(effect: &Value) -> Option<(usize, u64, Value)> {
    let evidence = effect["evidence"].as_array()?;
    let at = evidence.iter().position(|one| one["adoptable"] == true)?;
    Some((at, evidence[at]["epoch"].as_u64()?, evidence[at]["payload"]["result"]["booking"].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_under_a_later_epoch_of_the_principal_that_started_the_call_is_preferred() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    let thief = claim(&site, THIEF, &json!({})).await;
    let again = claim(&site, AGENT, &json!({})).await;
    claim(&site, THIEF, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &completed(&again, "B-1", "pay")).await, "refused");
    for nth in 0..20 {
        let fake = completed(&thief, &format!("fake {nth}"), "pay");
        assert_eq!(outcome(&site, THIEF, &fake).await, "refused");
    }
    assert_eq!(adoptable(&effect(&site).await), Some((0, 3, json!("B-1"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_another_principal_sent_first_does_not_replace_the_result() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    let thief = claim(&site, THIEF, &json!({})).await;
    claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, THIEF, &completed(&thief, "B-1", "pay")).await, "refused");
    assert_eq!(outcome(&site, AGENT, &completed(&agent, "B-1", "pay")).await, "refused");
    assert_eq!(outcome(&site, THIEF, &completed(&thief, "fake", "pay")).await, "refused");
    let seen = effect(&site).await;
    assert_eq!(adoptable(&seen), Some((1, 1, json!("B-1"))), "{seen}");
    // A further copy by another process changes nothing.
    assert_eq!(outcome(&site, THIEF, &completed(&thief, "B-1", "pay")).await, "refused");
    assert_eq!(effect(&site).await["basis"], seen["basis"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_not_running_because_another_principal_claims_the_run_under_its_writer_id() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    let again = claim(&site, AGENT, &json!({ "writer_id": agent["writer_id"] })).await;
    assert_eq!(outcome(&site, AGENT, &intent(&again, "book")).await, "applied");
    assert_eq!(effect(&site).await["state"], "running");
    let thief = claim(&site, THIEF, &json!({ "writer_id": agent["writer_id"] })).await;
    assert_eq!(outcome(&site, THIEF, &intent(&thief, "its own")).await, "applied");
    let seen = effect(&site).await;
    assert_eq!(seen["state"], "waiting", "{seen}");
    let stuck = site.ask("get", "/v1/runs?stuck=true&consistency=latest", Some(&token_of(EVERYTHING).1), None).await;
    assert_eq!(stuck.json()["runs"][0]["run_id"], RUN);
    let decision = json!({ "decision": "give_up", "who": "jo", "why": "looked", "revision": seen["revision"] });
    let decided = post(&site, EVERYTHING, "/v1/runs/acme%2F1/effects/pay/resolution", &decision).await;
    assert_eq!(decided.status, 200, "{decided:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retraction_needs_the_last_claim_of_the_run_or_the_scope_resolve() {
    let site = Site::start(&entries()).await;
    let agent = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    let retraction = |id: &str| {
        let payload = json!({ "type": "retraction", "retracted_record_id": "pay", "who": "x", "why": "wrong" });
        json!({ "run_id": RUN, "record_id": id, "payload": payload })
    };
    assert_eq!(post(&site, THIEF, RECORDS, &retraction("of the thief")).await.status, 403);
    assert_eq!(outcome(&site, AGENT, &retraction("of the agent")).await, "applied");
    assert_eq!(outcome(&site, EVERYTHING, &retraction("of an operator")).await, "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_claim_an_operator_skipped_is_fenced_and_its_result_is_evidence() {
    let site = Site::start(&entries()).await;
    let claimed = post(&site, AGENT, CLAIMS, &json!({})).await.json();
    let agent = json!({ "writer_id": claimed["writer_id"], "epoch": claimed["epoch"] });
    assert_eq!(outcome(&site, AGENT, &intent(&agent, "pay")).await, "applied");
    let at = &claimed["position"];
    let skip = json!({ "partition": at["partition"], "offset": at["offset"], "who": "jo", "why": "a mistake" });
    let skipped = post(&site, EVERYTHING, "/v1/skips?force=true", &skip).await;
    assert_eq!(skipped.status, 200, "{skipped:?}");
    assert_eq!(outcome(&site, AGENT, &completed(&agent, "B-1", "pay")).await, "refused");
    let seen = effect(&site).await;
    assert_eq!(adoptable(&seen).map(|(_, _, booking)| booking), Some(json!("B-1")), "{seen}");
    let payload = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
    let attempt = post(&site, AGENT, RECORDS, &record(&agent, "again", payload)).await;
    assert_eq!((attempt.status, attempt.json()["kind"].clone()), (409, json!("fenced")));
    let again = claim(&site, AGENT, &json!({})).await;
    assert_eq!(outcome(&site, AGENT, &intent(&again, "book")).await, "applied");
}
