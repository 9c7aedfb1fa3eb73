//! An append at `latest` reads back: its answer's `writer` covers every claim that was in the log after the record was
//! judged.

use runlog_log::{Ack, Entry, Log, Offset, PartitionId, memory::MemoryLog};
use runlog_producer::{Journal, LoopState, Runlog, failpoint};
use runlog_projector::Projector;
use runlog_schemas::{
    answer::ErrorKind,
    id::{Epoch, RecordId, RunId, WriterId},
    payload::RunClaim,
    record::JournalRecord,
};
use runlog_server::access::AllowedHosts;
use runlog_tests::{
    hooked_log::{Hooks, hook},
    served::Served,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

const RUN: &str = "r";
const DEADLINE: Duration = Duration::from_secs(30);

/// Another server's claim lands after the next append. Readers get the claim after a query for the log's end. The log may
/// also accept the next append twice, as a retry between client and server can cause.
#[derive(Debug)]
struct Overtaken {
    log: MemoryLog,
    claim: Mutex<Option<Entry>>,
    twice: AtomicBool,
    /// The end that a deposed leader reports.
    old_end: Mutex<Option<Offset>>,
}

impl Hooks for Overtaken {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let (this, log) = (self.clone(), log.clone());
        if self.twice.swap(false, Ordering::SeqCst) {
            return Box::pin(async move {
                log.append(partition, batch.clone()).await?;
                log.append(partition, batch).await
            });
        }
        let Some(claim) = self.claim.lock().unwrap().take() else { return log.append(partition, batch) };
        Box::pin(async move {
            let landed = log.append(partition, batch).await?;
            this.log.hold(partition);
            log.append(partition, vec![claim]).await?;
            Ok(landed)
        })
    }

    fn end(&self, end: Offset) -> Offset {
        self.log.release(PartitionId::ZERO);
        self.old_end.lock().unwrap().unwrap_or(end)
    }
}

/// A server whose first writer of a run is `writer`.
async fn serve(log: Arc<dyn Log>) -> Served {
    Served::with(log, || "writer".into(), AllowedHosts::default()).await.unwrap()
}

/// Posts about the run.
async fn post(served: &Served, path: &str, body: &Value) -> (u16, Value) {
    served.post(&format!("/v1/runs/{RUN}{path}"), body).await
}

/// A server over a log in memory, and the run claimed.
async fn serve_claimed_run() -> Served {
    let served = serve(Arc::new(MemoryLog::new(1))).await;
    post(&served, "/claims", &json!({})).await;
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_returns_at_the_acknowledgement_is_judged_later_and_its_outcome_can_be_queried() {
    let served = serve_claimed_run().await;
    let post = async |path: &str, body: &Value| post(&served, path, body).await;
    let record = |id: &str, seq: u32, payload: Value| {
        json!({ "run_id": RUN, "record_id": id, "writer_id": "writer", "writer_epoch": 1, "writer_seq": seq,
            "journal_seq": seq, "payload": payload })
    };
    let intent = |id: &str, seq| {
        let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book",
            "arguments": {} });
        record(id, seq, call)
    };
    let result = |id: &str, seq, of: &str| {
        record(id, seq, json!({ "type": "tool_call_completed", "request_record_id": of, "result": 1 }))
    };
    let place = |answer: &Value| format!("{}:{}", answer["position"]["partition"], answer["position"]["offset"]);
    let (_, intended) = post("/records", &intent("i", 1)).await;
    assert_eq!(intended["outcome"], "applied", "{intended}");
    let (_, good) = post("/records?return=ack", &result("good", 2, "i")).await;
    let members = ["outcome", "applied", "writer", "reason", "record_id"].map(|name| good[name].clone());
    assert_eq!(members, [json!("appended"), Value::Null, Value::Null, Value::Null, json!("good")], "{good}");
    // A result of an absent call.
    let (_, bad) = post("/records?return=ack", &result("bad", 3, "none")).await;
    assert_eq!(bad["outcome"], "appended", "{bad}");
    let also = format!("also={},{}", place(&good), place(&bad));
    let (_, next) = post(&format!("/records?consistency=latest&{also}"), &intent("next", 4)).await;
    let outcomes_of = |answer: &Value| {
        let outcomes = answer["also"].as_array().unwrap();
        outcomes.iter().map(|one| (one["outcome"].clone(), one["reason"].clone())).collect::<Vec<_>>()
    };
    let expected = [(json!("applied"), Value::Null), (json!("refused"), json!("transition"))];
    assert_eq!((next["outcome"].as_str(), outcomes_of(&next)), (Some("applied"), expected.to_vec()), "{next}");
    // A judged record is answered as usual.
    let (_, again) = post("/records?return=ack", &result("good", 2, "i")).await;
    assert_eq!((&again["outcome"], &again["position"]), (&json!("repeat"), &good["position"]), "{again}");

    let unnumbered = json!({ "run_id": RUN, "record_id": "u", "writer_id": "writer", "writer_epoch": 1,
        "payload": { "type": "conversation_turn", "role": "user", "message": "hi", "message_id": "m" } });
    // A repeated record is not appended again, and its answer still reports the others.
    let (_, known) = post(&format!("/records?also={}", place(&bad)), &intent("next", 4)).await;
    assert_eq!((&known["outcome"], &known["also"][0]["reason"]), (&json!("repeat"), &json!("transition")), "{known}");
    for (query, body, kind) in [
        ("return=ack".to_owned(), &unnumbered, "invalid"),
        ("return=ack&consistency=latest".into(), &intent("w", 5), "usage"),
        ("return=ack&check=true".into(), &intent("w", 5), "usage"),
        (format!("return=ack&{also}"), &intent("w", 5), "usage"),
        ("also=0".into(), &intent("w", 5), "usage"),
        ("also=7:1".into(), &intent("w", 5), "usage"),
        (also.clone(), &json!([intent("w", 5)]), "usage"),
    ] {
        let (status, problem) = post(&format!("/records?{query}"), body).await;
        assert_eq!((status, &problem["kind"]), (400, &json!(kind)), "{query}: {problem}");
    }
    let (_, last) = post("/records", &intent("w", 5)).await;
    assert_eq!(last["outcome"], "applied", "no refused request was appended: {last}");
}

/// Another server's claim, with an epoch.
fn other_claim(projector: &Projector, epoch: u64) -> Entry {
    let (writer_id, epoch) = (WriterId::new("other").unwrap().to_owned(), Epoch::new(epoch).unwrap());
    let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: "another server".into() };
    let (run_id, record_id) = (RunId::new(RUN).unwrap(), RecordId::new("other-claim".to_owned()).unwrap());
    let mut claim = JournalRecord::new(run_id, record_id, "runlog", claim.into());
    (claim.place.writer_id, claim.place.writer_epoch) = (writer_id.into(), epoch);
    projector.entry(&claim).unwrap()
}

/// A server over such a log.
async fn overtaken() -> (Arc<Overtaken>, Served) {
    let log = MemoryLog::new(1);
    let hooks = Arc::new(Overtaken {
        log: log.clone(),
        claim: Mutex::default(),
        twice: false.into(),
        old_end: Mutex::default(),
    });
    (hooks.clone(), serve(hook(log, &hooks)).await)
}

fn config(served: &Served) -> runlog_producer::Config {
    runlog_producer::Config::new(Journal::Http(served.url("")), "test")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_run_is_claimed_right_after_its_intent_runs_no_effect() {
    let (log, served) = overtaken().await;
    let run = Runlog::connect(config(&served)).await.unwrap().open(RUN).await.unwrap();
    let ran = AtomicU32::new(0);
    let call = async |seat: u32| {
        let effect = |_| async {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(json!(1).into())
        };
        run.tool("book", &seat).once(effect).await
    };
    call(1).await.unwrap();
    *log.claim.lock().unwrap() = Some(other_claim(&served.projector, 2));
    for seat in [2, 3] {
        let error = call(seat).await.unwrap_err();
        assert_eq!((error.kind(), ran.load(Ordering::SeqCst)), (ErrorKind::Fenced, 1), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_or_a_result_that_is_delivered_twice_counts_once() {
    let (log, served) = overtaken().await;
    let run = Runlog::connect(config(&served)).await.unwrap().open(RUN).await.unwrap();
    for twice in ["intent", "result"] {
        log.twice.store(twice == "intent", Ordering::SeqCst);
        let effect = |_| async {
            log.twice.store(twice == "result", Ordering::SeqCst);
            Ok(json!(1).into())
        };
        run.tool("book", &twice).once(effect).await.unwrap();
        let after = run.tool("book", &format!("after the {twice}")).once(|_| async { Ok(json!(1).into()) }).await;
        assert!(!after.unwrap().recorded, "{twice}");
        run.checkpoint(&LoopState::default()).await.unwrap();
    }
    run.flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_before_the_record_itself_does_not_count_as_latest() {
    let (log, served) = overtaken().await;
    post(&served, "/claims", &json!({})).await;
    let intent = json!({ "run_id": RUN, "record_id": "i", "writer_id": "writer", "writer_epoch": 1, "writer_seq": 1,
        "journal_seq": 1, "payload": { "type": "tool_call_requested", "request_id": "q", "call_id": "c",
            "tool_name": "book", "arguments": {} } });
    // A leader deposed before the intent was appended does not report a later claim either.
    let end = log.log.bounds(PartitionId::ZERO, DEADLINE).await.unwrap().end;
    *log.old_end.lock().unwrap() = Some(end);
    let (status, problem) = post(&served, "/records?consistency=latest", &intent).await;
    assert_eq!((status, &problem["kind"]), (503, &json!("unavailable")), "{problem}");
    *log.old_end.lock().unwrap() = None;
    let (_, outcome) = post(&served, "/records?consistency=latest", &intent).await;
    assert_eq!((&outcome["outcome"], &outcome["writer"]["epoch"]), (&json!("repeat"), &json!(1)), "{outcome}");
}

/// Another server's claim, to be appended while the process pauses.
static WHILE_PAUSED: Mutex<Option<(MemoryLog, Entry)>> = Mutex::new(None);

/// A pause of the process after its intent, longer than the read-back may take.
fn pause(at: &'static str) {
    if at == failpoint::INTENT_ACKNOWLEDGED
        && let Some((log, claim)) = WHILE_PAUSED.lock().unwrap().take()
    {
        let landed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(log.append(PartitionId::ZERO, vec![claim])).unwrap();
            std::thread::sleep(READ_BACK + Duration::from_millis(50));
        });
        landed.join().unwrap();
    }
}

const READ_BACK: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_pauses_after_its_permission_reads_back_again() {
    let (log, served) = overtaken().await;
    let config = runlog_producer::Config { read_back: READ_BACK, failpoints: pause, ..config(&served) };
    let run = Runlog::connect(config).await.unwrap().open(RUN).await.unwrap();
    *WHILE_PAUSED.lock().unwrap() = Some((log.log.clone(), other_claim(&served.projector, 2)));
    let ran = AtomicBool::new(false);
    let effect = |_| async {
        ran.store(true, Ordering::SeqCst);
        Ok(json!(1).into())
    };
    let error = run.tool("book", &1).once(effect).await.unwrap_err();
    assert_eq!((error.kind(), ran.load(Ordering::SeqCst)), (ErrorKind::Fenced, false), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_at_latest_names_the_writer_whose_claim_landed_right_after_it() {
    let (log, served) = overtaken().await;
    let post = async |path: &str, body: &Value| post(&served, path, body).await;
    let (status, claim) = post("/claims", &json!({})).await;
    assert_eq!((status, &claim["writer_id"], &claim["epoch"]), (200, &json!("writer"), &json!(1)), "{claim}");
    let intent = |id: &str| {
        json!({ "run_id": RUN, "record_id": id, "writer_id": "writer", "writer_epoch": 1,
            "payload": { "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book",
                "arguments": {} } })
    };
    let (_, kept) = post("/records?consistency=latest", &intent("kept")).await;
    let members = |answer: &Value| [answer["outcome"].clone(), answer["journal_seq"].clone(), answer["writer"].clone()];
    assert_eq!(members(&kept), [json!("applied"), json!(1), json!({ "writer_id": "writer", "epoch": 1 })], "{kept}");

    *log.claim.lock().unwrap() = Some(other_claim(&served.projector, 2));
    let (status, lost) = post("/records?consistency=latest", &intent("lost")).await;
    assert_eq!(status, 200, "{lost}");
    let other = json!({ "writer_id": "other", "epoch": 2 });
    assert_eq!(members(&lost), [json!("applied"), json!(2), other.clone()], "applied, and the run is lost: {lost}");

    // A repeat reads back, too, and an invalid consistency appends nothing.
    let (_, again) = post("/records?consistency=latest", &intent("kept")).await;
    assert_eq!(members(&again), [json!("repeat"), json!(1), other], "{again}");
    for wrong in ["newest", "at-least=1:0"] {
        let (status, problem) = post(&format!("/records?consistency={wrong}"), &intent("more")).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("usage")), "{problem}");
    }
    let (_, more) = post("/records", &intent("more")).await;
    assert_eq!(more["outcome"], "refused", "it was not in the log before: {more}");
    let (status, late) = post("/records?consistency=at-least=0:1000&deadline_ms=500", &intent("late")).await;
    assert_eq!((status, &late["kind"]), (503, &json!("stale")), "{late}");
    let (_, late) = post("/records", &intent("late")).await;
    assert_eq!(late["reason"], "fenced", "it is in the log, of a writer that lost the run: {late}");
}
