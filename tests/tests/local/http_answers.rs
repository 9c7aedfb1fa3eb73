//! Responses that are not the server's (of a proxy, or truncated), and requests that clients or proxies changed.

use futures_util::{FutureExt as _, future::join_all};
use runlog_log::{
    Log as _,
    local::{LocalConfig, LocalLog},
};
use runlog_producer::{
    Action, Call, Config, Ended, Journal, JournalRecord, Json, LoopState, Outcome, RecordFilter, Runlog, SideEffect,
    Writer, payload::ConversationTurn,
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{RecordId, RunId, WriterId},
    partition::partition_of,
    payload::PayloadType,
};
use runlog_tests::{
    agent::entry,
    backend::{Backend, dropped_after},
    deployment::Deployment,
    http_proxy::HttpProxy,
    server::Launch,
};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Responses of proxies whose server does not answer, or not in time; and truncated responses without a length.
const STRANGE: [&str; 7] = [
    "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\nconnection: close\r\n\r\n<h1>502 Bad Gateway</h1>",
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"error\":\"504\"}",
    "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\nconnection: close\r\n\r\nslow",
    "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"position\":{\"topic\":\"run",
    "HTTP/1.1 200 OK\r\ncontent-length: 400\r\nconnection: close\r\n\r\n{\"position\":",
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{\"type\":\"about:blank#invalid\",",
];

fn turn_record(writer: &Writer, id: &str) -> JournalRecord {
    let (message_id, kind) = (id.to_owned(), "user".to_owned());
    let turn =
        ConversationTurn { message_id, parent_id: None, thread_id: None, kind, content: Json::from(Value::Null) };
    writer.draft(Some(RecordId::new(id.to_owned()).unwrap()), turn).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_answered_by_a_proxy_is_unknown_until_it_is_written_again() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/records").unwrap();
    let writer = deployment.connect_by(&proxy.url).await.unwrap().writer("proxied").await.unwrap();
    let mut ids = Vec::new();
    for (nth, answer) in STRANGE.iter().enumerate() {
        for passed in [true, false] {
            let id = format!("{nth}-{passed}");
            proxy.answer_next(answer, passed);
            let error = writer.write(turn_record(&writer, &id)).await.unwrap_err();
            let classification = (error.kind(), error.side_effect(), error.action());
            assert_eq!(
                classification,
                (ErrorKind::Unavailable, SideEffect::Unknown, Action::Reopen),
                "{answer}: {error}"
            );
            writer.write(turn_record(&writer, &id)).await.unwrap_or_else(|error| panic!("{answer}, {passed}: {error}"));
            ids.push(id);
        }
    }
    let page =
        deployment.connect().await.unwrap().records("proxied", &RecordFilter::default(), None, 1000).await.unwrap();
    let records = page.records.into_iter().map(|read| read.record.unwrap());
    let turns = records.filter(|record| record.payload.payload_type() == PayloadType::ConversationTurn);
    assert_eq!(turns.map(|turn| turn.body.record_id.as_str().to_owned()).collect::<Vec<_>>(), ids, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_not_the_servers_is_retryable_and_never_an_empty_answer() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/checkpoints").unwrap();
    let runlog = deployment.connect_by(&proxy.url).await.unwrap();
    for answer in STRANGE {
        proxy.answer_next(answer, false);
        let error = runlog.checkpoint("asked", None).await.unwrap_err();
        assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{answer}: {error}");
        assert!(runlog.checkpoint("asked", None).await.unwrap().is_none(), "{answer}");
    }
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot found";
    proxy.answer_next(missing, false);
    let error = runlog.checkpoint("asked", None).await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Internal, Action::Operator), "{error}");
}

/// The response of a server that admits no more requests: it did nothing, and says when to retry.
const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-type: application/problem+json\r\n\
    content-length: 129\r\nconnection: close\r\n\r\n{\"type\":\"about:blank#overloaded\",\"title\":\"overloaded\",\"status\":429,\
    \"detail\":\"too many requests, retry later\",\"kind\":\"overloaded\"}";

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_a_busy_server_is_retried_and_the_handle_stays_usable() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/outcome").unwrap();
    let run = deployment.connect_by(&proxy.url).await.unwrap().open("busy").await.unwrap();
    proxy.answer_next(BUSY, false);
    let booked = async |_| Ok(Json::from(Value::from("booked")));
    let answer = run.tool("book", &1).once(booked).await.unwrap();
    assert_eq!(answer.result.map(|result| result.to_value()), Some(Value::from("booked")));
    run.turn("user", "continues").await.unwrap();
    let state = deployment.connect().await.unwrap().recovery("busy").await.unwrap().unwrap();
    assert_eq!((state.epoch.get(), state.completed.len()), (1, 1), "it did not claim again");
}

/// The response to a query for a run's recovery, at its current state.
async fn recovery_response(deployment: &Deployment, run: &str) -> String {
    response(&recovery(deployment, run).await)
}

async fn recovery(deployment: &Deployment, run: &str) -> Value {
    let client = runlog_tests::server::client().unwrap();
    let url = format!("{}/v1/runs/{run}/recovery?full=true", deployment.server.url);
    serde_json::from_str(&client.get(url).send().await.unwrap().text().await.unwrap()).unwrap()
}

fn response(answer: &Value) -> String {
    let answer = answer.to_string();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}", answer.len())
}

/// A checkpoint covers a keyed call, which is read from the start of the run: an answer older than the handle's claim
/// may lack it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_key_is_not_answered_from_an_older_list() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/recovery").unwrap();
    let runlog = deployment.connect_by(&proxy.url).await.unwrap();
    let run = runlog.open("keyed").await.unwrap();
    let old = recovery_response(&deployment, "keyed").await;
    let booked = async |_| Ok(Json::from(Value::from("booked")));
    run.tool("book", &1).idempotency_key("k").once(booked).await.unwrap();
    run.checkpoint(&LoopState::default()).await.unwrap();
    let run = runlog.open("keyed").await.unwrap();
    // The list of the calls that the checkpoint covers.
    proxy.answer_next(&old, false);
    let call = async || run.tool("book", &1).idempotency_key("k").once(async |_| panic!("it runs")).await;
    let error = call().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert!(call().await.unwrap().recorded);
}

/// The pages of a recovery may come from several servers after one address. A second page of an older state may lack
/// pending calls.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_recovery_that_is_older_than_the_first_is_refused() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/recovery").unwrap();
    let run = deployment.connect_by(&proxy.url).await.unwrap().open("pages").await.unwrap();
    let old = recovery_response(&deployment, "pages").await;
    let unknown = async |_| Ended::Unknown("the receiver did not answer".into());
    run.tool("book", &1).once_or_unknown(unknown).await.unwrap_err();
    // The limit of the first page excludes it.
    let mut first = recovery(&deployment, "pages").await;
    (first["pending"], first["next_cursor"]) = (Value::Array(Vec::new()), Value::from("next"));
    proxy.answer_next(&response(&first), false);
    proxy.answer_next(&old, false);
    let error = run.tool("mail", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    let error = run.tool("mail", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReconcileRequired, "{error}");
}

/// An older answer lacks a later call, which does not mean that the call was decided.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_older_than_a_pending_call_lets_no_new_effect_run() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/recovery").unwrap();
    let run = deployment.connect_by(&proxy.url).await.unwrap().open("undecided").await.unwrap();
    let old = recovery_response(&deployment, "undecided").await;
    let booked = async |_| Ended::Unknown("the receiver did not answer".into());
    let error = run.tool("book", &1).once_or_unknown(booked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReconcileRequired, "{error}");
    for tool in ["mail", "book"] {
        proxy.answer_next(&old, false);
        let ran = run.tool(tool, &1).once(async |_| panic!("it runs")).await;
        assert_eq!(ran.unwrap_err().kind(), ErrorKind::ReconcileRequired, "{tool}");
    }
}

/// A server at an old position of the log lacks the handle's claim, which does not mean that another process has the
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_older_than_the_handles_claim_does_not_take_its_run_away() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/recovery").unwrap();
    let runlog = deployment.connect_by(&proxy.url).await.unwrap();
    runlog.open("old").await.unwrap();
    let old = recovery_response(&deployment, "old").await;
    // Opening: the run before the claim, and its state after the claim.
    proxy.skip(1);
    proxy.answer_next(&old, false);
    let error = runlog.open("old").await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Stale, Action::Reopen), "{error}");
    let run = runlog.open("old").await.unwrap();
    let epoch = run.recovery().epoch.get();
    for passes in 0..3 {
        // Reopening: the same, and the pending calls once all is settled.
        let blocked = proxy.hold();
        assert!(dropped_after(1, run.turn("user", "cancelled")).await.is_none());
        drop(blocked);
        proxy.skip(passes);
        proxy.answer_next(&old, false);
        let error = run.reopen().await.unwrap_err();
        assert_eq!((error.kind(), error.action()), (ErrorKind::Stale, Action::Reopen), "{passes}: {error}");
        run.reopen().await.unwrap_or_else(|error| panic!("{passes}: {error}"));
        run.turn("user", "continues").await.unwrap();
    }
    let state = deployment.connect().await.unwrap().recovery("old").await.unwrap().unwrap();
    assert_eq!(
        state.epoch.get(),
        epoch + 4,
        "one claim for each reopening, and one more after the last claim was applied"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_answer_does_not_reopen_an_ended_run() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/recovery").unwrap();
    let runlog = deployment.connect_by(&proxy.url).await.unwrap();
    let run = runlog.open("over").await.unwrap();
    let open = recovery_response(&deployment, "over").await;
    run.end(Outcome::Completed).await.unwrap();
    proxy.skip(1);
    proxy.answer_next(&open, false);
    let error = runlog.open("over").await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Stale, Action::Reopen), "{error}");
    let later = runlog.open("over").await.unwrap();
    let error = later.tool("book", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
}

/// Calls made while another intent's append is in flight are appended together. If that append gets no answer, no
/// call's effect runs, whether or not the intents are in the log.
#[tokio::test(flavor = "multi_thread")]
async fn intents_that_were_appended_together_and_got_no_answer_run_no_effect() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/records").unwrap();
    let runlog = deployment.connect_by(&proxy.url).await.unwrap();
    for landed in [true, false] {
        let id = format!("together-{landed}");
        let (run, ran) = (runlog.open(&id).await.unwrap(), AtomicUsize::new(0));
        let book = async |seat: usize| {
            let effect = async |call: Call| {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok(Json::from(json!(call.id)))
            };
            // Among the intents that are appended together, two each look the same.
            run.tool("book", &seat.div_ceil(2)).once(effect).await
        };
        let blocked = proxy.hold();
        let mut calls: Vec<_> = (0..8).map(|seat| Box::pin(book(seat))).collect();
        for call in &mut calls {
            assert!(call.now_or_never().is_none(), "no request was passed on");
        }
        proxy.skip(1);
        if landed {
            proxy.truncate_next_response();
        } else {
            proxy.drop_next_request();
        }
        drop(blocked);
        let mut answers = join_all(calls).await.into_iter();
        // It was sent before the others, and its result would be appended after theirs.
        assert_eq!(answers.next().unwrap().unwrap_err().side_effect(), SideEffect::Held);
        for (nth, answer) in answers.enumerate() {
            let error = answer.unwrap_err();
            assert_eq!(error.side_effect(), SideEffect::Unknown, "{nth}: {error}");
        }
        assert_eq!(ran.load(Ordering::SeqCst), 1, "landed: {landed}");
        let reopened = run.reopen().await.unwrap();
        assert_eq!((reopened.landed, reopened.not_done), if landed { (7, 7) } else { (0, 0) });
        let mut answered = Vec::new();
        for seat in 1..8 {
            answered.push(book(seat).await.unwrap().result.unwrap().to_value());
        }
        let next = deployment.connect().await.unwrap().open(&id).await.unwrap();
        let recovery = next.recovery();
        assert_eq!((recovery.completed.len(), recovery.pending.len(), ran.load(Ordering::SeqCst)), (8, 0, 8));
        let intents: Vec<Value> = recovery.completed[1..].iter().map(|done| json!(done.id)).collect();
        assert_eq!(answered, intents, "landed: {landed}: in the order of the intents");
    }
}

/// The response of a server that does not have the record.
const NOT_THERE: &str = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\ncontent-length: 121\r\n\
    connection: close\r\n\r\n{\"type\":\"about:blank#not_found\",\"title\":\"not found\",\"status\":404,\
    \"detail\":\"run decided has no record\",\"kind\":\"not_found\"}";

/// A server at an old position of the log does not know the intent of a call at `latest`. The call was decided before
/// its effect began, so it is not pending either.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_decided_before_its_effect_began_is_not_forgotten_through_an_older_answer() {
    let deployment = Deployment::http().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "consistency=latest").unwrap();
    let run = deployment.connect_by(&proxy.url).await.unwrap().open("decided").await.unwrap();
    // The intent is in the log, and its answer, which is also the read-back, is lost.
    proxy.answer_next(STRANGE[1], true);
    let error = run.tool("book", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Reopen), "{error}");

    let call = recovery(&deployment, "decided").await["pending"][0].clone();
    let (id, revision) = (call["id"].as_str().unwrap(), &call["revision"]);
    let url = format!("{}/v1/runs/decided/effects/{id}/resolution", deployment.server.url);
    let decision = json!({ "decision": "give_up", "who": "test", "why": "too late", "revision": revision,
        "force": true });
    let reply = runlog_tests::server::client().unwrap().post(url).json(&decision).send().await.unwrap();
    assert_eq!(reply.status(), 200);

    proxy.answer_next(NOT_THERE, false);
    run.reopen().await.unwrap();
    let answer = run.tool("book", &1).once(async |_| panic!("it runs")).await.unwrap();
    assert_eq!((answer.recorded, answer.error.unwrap().kind.as_str()), (true, "given_up"));
}

/// Sends a request line unchanged, which HTTP clients would normalize.
fn send_request_line(deployment: &Deployment, line: &str) -> (String, Value) {
    let address = deployment.server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
    let mut response_text = String::new();
    stream.read_to_string(&mut response_text).unwrap();
    let (head, body) = response_text.split_once("\r\n\r\n").unwrap();
    (head[..12].to_owned(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{response_text}: {error}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_no_url_can_name_is_refused_by_producers() {
    let (http, local) = (Backend::http().await.unwrap(), Backend::local().await.unwrap());
    for backend in [http, local] {
        for run in [".", ".."] {
            let refused = [
                backend.runlog.open(run).await.map(drop),
                backend.runlog.writer(run).await.map(drop),
                backend.runlog.checkpoint(run, None).await.map(drop),
                backend.runlog.run(run).await.map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_eq!((error.kind(), error.action()), (ErrorKind::Usage, Action::FixTheInput), "{error}");
                assert!(error.to_string().contains("URL"), "{error}");
            }
        }
        backend.open("...").await.turn("user", "this one can").await.unwrap();
    }
}

#[test]
fn a_path_that_clients_normalize_is_refused_and_never_answered_as_another() {
    let deployment = Deployment::http().unwrap();
    let paths = ["..", "%2e%2E/recovery", "./records", ".%2e/lookup?tool=a&args=1", "x/calls/%2E", "../tail"];
    for path in paths {
        let (status, problem) = send_request_line(&deployment, &format!("GET /v1/runs/{path}"));
        assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 400", &"usage".into()), "{path}: {problem}");
    }
    let (status, problem) = send_request_line(&deployment, "POST /v1/runs/%2e%2e/claims");
    assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 400", &"usage".into()), "{problem}");
    // A normalized path is refused, and not answered as an absent item.
    let (status, problem) = send_request_line(&deployment, "GET /v1/lookup?tool=a&args=1");
    assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 404", &"usage".into()), "{problem}");
}

fn deep(id: &str, nth: u32, levels: usize) -> JournalRecord {
    let content = Json::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels))).unwrap();
    let (message_id, kind) = (id.to_owned(), "user".to_owned());
    let turn = ConversationTurn { message_id, parent_id: None, thread_id: None, kind, content };
    let (run, id) = (RunId::new("deep").unwrap(), RecordId::new(id.to_owned()).unwrap());
    let mut record = JournalRecord::new(run, id, "test", turn.into());
    record.place.writer_id = WriterId::new("w".to_owned()).unwrap().into();
    (record.place.writer_seq, record.place.journal_seq) = (nth.into(), nth.into());
    record
}

/// By an older writer, or by another producer.
#[test]
fn a_record_nested_too_deep_is_reported_and_hides_no_other() {
    let deployment = Deployment::http().unwrap();
    let (status, problem) =
        deployment.server.post("/v1/runs/deep/records", &serde_json::to_value(deep("a", 1, 1)).unwrap()).unwrap();
    assert_eq!(status, 200, "{problem}");
    let refused = serde_json::to_string(&deep("b", 2, 126)).unwrap();
    let (status, problem) = posted(&deployment, &refused);
    assert_eq!((status, &problem["kind"]), (400, &"invalid".into()), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("nests 128 levels deep") && detail.contains("/payload/content"), "{detail}");

    let data = deployment.path("data");
    deployment.server.kill().unwrap();
    let partition = partition_of(RunId::new("deep").unwrap(), 4);
    let log = LocalLog::open(LocalConfig::new(data.join("log"))).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (nth, levels) in (2..).zip([126, 128, 125]) {
        let id = format!("{levels} levels");
        runtime.block_on(log.append(partition, vec![entry(&deep(&id, nth, levels))])).unwrap();
    }
    drop(log);
    let server = Launch::local(&data).partitions(4).start().unwrap();
    let journal = Journal::parse(&server.url, None).unwrap();
    let page = runtime.block_on(async {
        let runlog = Runlog::connect(Config::new(journal, "test")).await.unwrap();
        runlog.records("deep", &RecordFilter::default(), None, 10).await.unwrap()
    });
    let lines: Vec<String> = page
        .records
        .into_iter()
        .map(|read| read.record.map_or_else(|error| error.to_string(), |record| record.body.record_id.to_string()))
        .collect();
    assert_eq!((lines.len(), lines[0].as_str(), lines[3].as_str()), (4, "a", "125 levels"), "{lines:?}");
    for (lines, levels) in lines[1..3].iter().zip(["126", "128"]) {
        let whole =
            format!("record {levels} levels of run deep cannot be read whole: /payload/content nests {levels} levels");
        assert!(lines.starts_with(&whole), "{lines}");
    }
}

/// Posts a text unchanged.
fn posted(deployment: &Deployment, text: &str) -> (u16, Value) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let url = format!("{}/v1/runs/deep/records", deployment.server.url);
        let answer = runlog_tests::server::client().unwrap().post(url).body(text.to_owned()).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    })
}
