//! A claim over HTTP under an id that its sender chose: sent again, duplicated or late, it claims the run once, and
//! never supersedes its own sender. A claim with an expected head loses if the run has another head.

use crate::record_writers::{Site, intent};
use futures_util::future::join_all;
use runlog_log::{
    Ack, Clock, Entry, Log, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_producer::{Config, HttpSender, Journal, Run, Runlog};
use runlog_projector::index::entry::entry;
use runlog_schemas::{codec::NoRegistry, draft::Draft};
use runlog_tests::{
    hooked_log::{Hooks, hook},
    server::client,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

fn writer(claim: &Value) -> Value {
    json!({ "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"] })
}

fn result(claim: &Value, of: &str) -> Value {
    let mut record = intent(&writer(claim), &format!("{of}-result"));
    record["payload"] = json!({ "type": "tool_call_completed", "request_record_id": of, "result": 1 });
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_claim_does_not_supersede_its_sender_and_permits_nothing() {
    let site = Site::start().await;
    for (nth, request) in [(1, json!({ "record_id": "c-1", "writer_id": "mine" })), (2, json!({ "record_id": "c-2" }))]
    {
        let claim = site.post("/claims", &request).await;
        assert_eq!(claim["epoch"], nth, "{claim}");
        let copy = site.post("/claims", &request).await;
        assert_eq!(copy, claim, "as the first time");
        let id = format!("book-{nth}");
        site.post("/records", &intent(&writer(&claim), &id)).await;
        // A process that restarts under the same id would pass for the process before it, and run its effects again.
        let late = site.post("/claims", &request).await;
        let named = format!("c-{nth}");
        assert_eq!((&late["kind"], &late["record_id"]), (&json!("claim_lost"), &json!(named)), "{late}");
        let outcome = site.post("/records", &result(&claim, &id)).await;
        assert_eq!(outcome["outcome"], "applied", "{outcome}");
    }
    assert_eq!(site.get("").await["epoch"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_superseded_claim_is_lost() {
    let site = Site::start().await;
    let request = json!({ "record_id": "c-1", "writer_id": "mine" });
    site.post("/claims", &request).await;
    let other = site.post("/claims", &json!({ "record_id": "c-2" })).await;
    let copy = site.post("/claims", &request).await;
    assert_eq!((&copy["kind"], &copy["record_id"]), (&json!("claim_lost"), &json!("c-1")), "{copy}");
    let head = site.get("").await;
    assert_eq!((&head["writer_id"], &head["epoch"]), (&other["writer_id"], &json!(2)), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_stays_lost_when_it_is_sent_again() {
    let site = Site::start().await;
    let first = site.post("/claims", &json!({})).await;
    // As another server appends it before it has read the first claim.
    let mut late = intent(&json!({ "writer_id": "late", "writer_epoch": 1 }), "c-1");
    late["payload"] = json!({ "type": "run_claim", "writer_id": "late", "epoch": 1, "claimed_by": "" });
    let outcome = site.post("/records", &late).await;
    assert_eq!(outcome["reason"], "fenced", "{outcome}");
    let again = site.post("/claims", &json!({ "record_id": "c-1", "writer_id": "late" })).await;
    assert_eq!((&again["kind"], &again["record_id"]), (&json!("claim_lost"), &json!("c-1")), "{again}");
    assert_eq!(site.get("").await["writer_id"], first["writer_id"]);
    let new = site.post("/claims", &json!({ "record_id": "c-2", "writer_id": "late" })).await;
    assert_eq!(new["epoch"], 2, "{new}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_record_of_another_kind_does_not_block_a_claim_with_its_id() {
    let site = Site::start().await;
    site.post("/claims", &json!({})).await;
    let stranger = json!({ "writer_id": "stranger", "writer_epoch": 0 });
    let fenced = site.post("/records", &intent(&stranger, "c-1")).await;
    assert_eq!(fenced["reason"], "fenced", "{fenced}");
    let position = &fenced["position"];
    let outcome = async |id: &str| {
        let at = format!("{}:{}", position["partition"], position["offset"]);
        site.get(&format!("/outcome?position={at}&record_id={id}")).await
    };
    assert_eq!(outcome("c-1").await["reason"], "fenced");
    // The record there has another id.
    assert_eq!(outcome("c-2").await["kind"], "not_found");
    let claim = site.post("/claims", &json!({ "record_id": "c-1" })).await;
    assert_eq!(claim["epoch"], 2, "{claim}");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_claim_at_the_same_moment_make_one_writer() {
    let site = Site::start().await;
    let requests =
        [json!({ "record_id": "c-1", "only_if": { "hash": "0".repeat(64) } }), json!({ "record_id": "c-2" })];
    for (epoch, request) in (1..).zip(&requests) {
        let claims = join_all((0..8).map(|_| site.post("/claims", request))).await;
        let made: BTreeSet<String> = claims.iter().map(|claim| writer(claim).to_string()).collect();
        assert_eq!((made.len(), &claims[0]["epoch"]), (1, &json!(epoch)), "{claims:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_under_the_id_of_another_record_is_a_conflict_and_claims_no_run() {
    let site = Site::start().await;
    let claim = site.post("/claims", &json!({ "record_id": "c-1", "writer_id": "mine", "claimed_by": "one" })).await;
    site.post("/records", &intent(&writer(&claim), "book")).await;
    for other in [
        json!({ "record_id": "book" }),
        json!({ "record_id": "c-1", "writer_id": "mine", "claimed_by": "two" }),
        json!({ "record_id": "c-1", "writer_id": "other", "claimed_by": "one" }),
    ] {
        let problem = site.post("/claims", &other).await;
        assert_eq!(problem["kind"], "conflict", "{other}: {problem}");
    }
    for (wrong, kind) in [(json!({ "record_id": "" }), "invalid"), (json!({ "writer_id": 1 }), "invalid")] {
        let problem = site.post("/claims", &wrong).await;
        assert_eq!(problem["kind"], kind, "{wrong}: {problem}");
    }
    let run = site.get("").await;
    assert_eq!((&run["epoch"], &run["writer_id"]), (&json!(1), &json!("mine")), "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_claim_loses_if_the_run_has_another_head() {
    let site = Site::start().await;
    let none = json!({ "hash": "0".repeat(64) });
    let first = site.post("/claims", &json!({ "record_id": "c-1", "only_if": none })).await;
    assert_eq!(first["epoch"], 1, "{first}");
    let read = site.get("").await["hash"].clone();
    site.post("/records", &intent(&writer(&first), "book")).await;
    let now = site.get("").await;
    let request = |id: &str, hash: &Value| json!({ "record_id": id, "only_if": { "hash": hash } });
    for old in [&none["hash"], &read] {
        let lost = site.post("/claims", &request("c-2", old)).await;
        assert_eq!((&lost["kind"], &lost["offset"]), (&json!("conflict"), &now["position"]["offset"]), "{lost}");
        assert!(lost["detail"].as_str().unwrap().contains(now["hash"].as_str().unwrap()), "{lost}");
    }
    let outcome = site.post("/records", &result(&first, "book")).await;
    assert_eq!(outcome["outcome"], "applied", "its writer keeps the run: {outcome}");
    let now = site.get("").await["hash"].clone();
    let claim = site.post("/claims", &request("c-2", &now)).await;
    let again = site.post("/claims", &request("c-2", &now)).await;
    assert_eq!((&claim["epoch"], &again), (&json!(2), &claim), "its own claim is no other head");
    for wrong in [json!({}), json!({ "hash": "12" }), json!({ "hash": now, "epoch": 2 }), json!("12")] {
        let problem = site.post("/claims", &json!({ "record_id": "c-3", "only_if": wrong })).await;
        assert_eq!(problem["kind"], "invalid", "{wrong}: {problem}");
    }
    let requests = ["a", "b", "c", "d"].map(|id| request(id, &claim["hash"]));
    let claims = join_all(requests.iter().map(|request| site.post("/claims", request))).await;
    let won = claims.iter().filter(|claim| claim["epoch"] == 3).count();
    let lost = |claim: &&Value| claim["kind"] == "claim_lost" || claim["kind"] == "conflict";
    assert_eq!((won, claims.iter().filter(lost).count()), (1, 3), "{claims:?}");
}

/// Another server's record lands before the next append.
#[derive(Debug)]
struct Preceded {
    first: Mutex<Option<Entry>>,
    /// Permits such an append to continue.
    go: Semaphore,
    /// Has a permit once the other record has landed.
    landed: Semaphore,
}

impl Preceded {
    async fn start(go: usize) -> (Arc<Self>, Site) {
        let this = Self { first: Mutex::default(), go: Semaphore::new(go), landed: Semaphore::new(0) };
        let this = Arc::new(this);
        let site = Site::over(hook(MemoryLog::new(1), &this)).await;
        (this, site)
    }

    fn precede(&self, record: &Value) {
        let draft = Draft::parse(&record.to_string()).unwrap();
        *self.first.lock().unwrap() = Some(entry(&draft.record, &NoRegistry).unwrap());
    }
}

impl Hooks for Preceded {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let Some(first) = self.first.lock().unwrap().take() else { return log.append(partition, batch) };
        let (this, log) = (self.clone(), log.clone());
        Box::pin(async move {
            log.append(partition, vec![first]).await?;
            this.landed.add_permits(1);
            this.go.acquire().await.unwrap().forget();
            log.append(partition, batch).await
        })
    }
}

/// A claim as another server appends it.
fn claim_of_other(epoch: u64) -> Value {
    let mut claim = intent(&json!({ "writer_id": "other", "writer_epoch": epoch }), "other-claim");
    (claim["writer_seq"], claim["journal_seq"]) = (json!(0), json!(0));
    claim["payload"] = json!({ "type": "run_claim", "writer_id": "other", "epoch": epoch, "claimed_by": "" });
    claim
}

#[tokio::test(flavor = "multi_thread")]
async fn between_the_comparison_and_the_claim_a_record_can_land_but_another_claim_wins() {
    let (log, site) = Preceded::start(2).await;
    let first = site.post("/claims", &json!({})).await;
    let mut record = intent(&writer(&first), "book");
    (record["writer_seq"], record["journal_seq"]) = (json!(1), json!(1));
    let request = |id: &str, run: &Value| json!({ "record_id": id, "only_if": { "hash": run["hash"] } });
    let run = site.get("").await;
    log.precede(&record);
    let claim = site.post("/claims", &request("c-2", &run)).await;
    assert_eq!(
        (&claim["epoch"], &claim["next_journal_seq"]),
        (&json!(2), &json!(2)),
        "and the answer shows it: {claim}"
    );
    let run = site.get("").await;
    log.precede(&claim_of_other(3));
    let lost = site.post("/claims", &request("c-3", &run)).await;
    assert_eq!((&lost["kind"], &site.get("").await["writer_id"]), (&json!("claim_lost"), &json!("other")), "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_lost_claim_does_not_win() {
    let (log, site) = Preceded::start(0).await;
    log.precede(&claim_of_other(1));
    let request = json!({ "record_id": "c-1" });
    let copy = async {
        log.landed.acquire().await.unwrap().forget();
        // The first copy is not in the log yet.
        let release = async {
            for _ in 0..20 {
                site.get("?consistency=latest").await;
            }
            log.go.add_permits(1);
        };
        tokio::join!(site.post("/claims", &request), release).0
    };
    let (first, copy) = tokio::join!(site.post("/claims", &request), copy);
    for answer in [first, copy] {
        assert_eq!(answer["kind"], "claim_lost", "{answer}");
    }
    assert_eq!(site.get("").await["writer_id"], "other");
}

/// Opens the run unless it was written to within this time. Another process's record lands before the first request that
/// would claim the run.
async fn open_after(site: &Arc<Site>, record: Value, within: Duration) -> Result<Run, runlog_producer::Error> {
    let (own, sends, landed) = (site.clone(), client().unwrap(), Arc::new(AtomicBool::new(false)));
    let sender = HttpSender::new(client().unwrap(), move |request| {
        let (site, sends, record) = (own.clone(), sends.clone(), record.clone());
        let is_first = request.method() == "POST" && !landed.swap(true, Ordering::SeqCst);
        Box::pin(async move {
            if is_first {
                let outcome = site.post("/records", &record).await;
                assert_eq!(outcome["outcome"], "applied", "{outcome}");
            }
            Ok(sends.execute(request).await?)
        })
    });
    let journal = Journal::parse(&site.0.url(""), None).unwrap();
    let config = Config { http: Some(sender), ..Config::new(journal, "agent") };
    Runlog::connect(config).await.unwrap().open_unless_active("r", within).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_writes_after_the_check_of_its_activity_keeps_the_run() {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let time = now.clone();
    let clock = Clock::new(move || time.load(Ordering::SeqCst));
    let log = MemoryLog::with(MemoryOptions { clock, ..MemoryOptions::default() });
    let site = Arc::new(Site::over(Arc::new(log)).await);
    let first = site.post("/claims", &json!({})).await;
    now.fetch_add(61_000, Ordering::SeqCst);
    let minute = Duration::from_secs(60);
    let refused = open_after(&site, intent(&writer(&first), "book"), minute).await.expect_err("its process writes");
    let active = refused.active().expect("the active writer");
    assert_eq!((active.writer_id.as_str(), active.age), (first["writer_id"].as_str().unwrap(), Duration::ZERO));
    let outcome = site.post("/records", &result(&first, "book")).await;
    assert_eq!(outcome["outcome"], "applied", "{outcome}");
    // Without an age that counts as active, the run is claimed as it is then.
    let run = open_after(&site, intent(&writer(&first), "pay"), Duration::ZERO).await.expect("no age is active");
    let pending = &run.recovery().pending;
    assert_eq!(pending.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["pay"]);
}
