//! An outcome names the writer of the record beside the writer of the run: only a record of the caller's own epoch
//! permits an effect.

use runlog_log::{Log, memory::MemoryLog};
use runlog_producer::{Config as Producing, Journal, Runlog};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::{http_proxy::HttpProxy, served::Served};
use serde_json::{Value, json};
use std::sync::Arc;

/// The run `r` on a server over a log in memory.
pub(crate) struct Site(pub(crate) Served);

impl Site {
    pub(crate) async fn start() -> Self {
        Self::over(Arc::new(MemoryLog::new(1))).await
    }

    pub(crate) async fn over(log: Arc<dyn Log>) -> Self {
        Self(Served::over(log).await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.0.post(&format!("/v1/runs/r{path}"), body).await.1
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.0.get(&format!("/v1/runs/r{path}")).await.1
    }

    /// Claims the run. Returns the writer as named in records, and in answers.
    async fn claim(&self) -> (Value, Value) {
        let claim = self.post("/claims", &json!({})).await;
        let (id, epoch) = (&claim["writer_id"], &claim["epoch"]);
        (json!({ "writer_id": id, "writer_epoch": epoch }), json!({ "writer_id": id, "epoch": epoch }))
    }
}

/// The intent that every process at this step of the agent writes.
pub(crate) fn intent(writer: &Value, id: &str) -> Value {
    let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book",
        "arguments": { "seat": id } });
    json!({ "run_id": "r", "record_id": id, "writer_id": writer["writer_id"], "writer_epoch": writer["writer_epoch"],
        "payload": call })
}

fn position_text(answer: &Value) -> String {
    let position = &answer["position"];
    format!("{}:{}:{}", position["partition"], position["offset"], position["index"])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_of_another_process_under_the_same_id_is_no_permission() {
    let site = Site::start().await;
    let (first, first_writer) = site.claim().await;
    let landed = site.post("/records", &intent(&first, "book-1")).await;
    assert_eq!((&landed["outcome"], &landed["record_writer"]), (&json!("applied"), &first_writer), "{landed}");
    let (second, second_writer) = site.claim().await;
    let also = format!("&also={}", position_text(&landed));
    let again = site.post(&format!("/records?consistency=latest{also}"), &intent(&second, "book-1")).await;
    assert_eq!((&again["outcome"], &again["writer"]), (&json!("repeat"), &second_writer), "{again}");
    let place = position_text(&again);
    let dry = site.post("/records?check=true", &intent(&second, "book-1")).await;
    let many = site.post("/records", &json!([intent(&second, "book-1"), intent(&second, "book-2")])).await;
    let by_place = site.get(&format!("/outcome?position={place}&record_id=book-1{also}")).await;
    let by_id = site.get("/outcome?record_id=book-1").await;
    let run_writer = |answer: &Value| json!({ "writer_id": answer["writer_id"], "epoch": answer["epoch"] });
    for answer in [&by_place, &by_id] {
        assert_eq!((&answer["outcome"], run_writer(answer)), (&json!("applied"), second_writer.clone()), "{answer}");
    }
    for answer in [&again, &again["also"][0], &dry, &many[0], &by_place, &by_place["also"][0], &by_id] {
        assert_eq!(answer["record_writer"], first_writer, "{answer}");
    }
    assert_eq!(many[1]["record_writer"], second_writer, "{many}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_this_epochs_record_names_its_sender_with_any_numbers() {
    let site = Site::start().await;
    let (mine, writer) = site.claim().await;
    site.post("/records", &intent(&mine, "book-1")).await;
    let again = site.post("/records?consistency=latest", &intent(&mine, "book-1")).await;
    assert_eq!((&again["outcome"], &again["record_writer"], &again["writer"]), (&json!("repeat"), &writer, &writer));
    let mut numbered = intent(&mine, "book-2");
    (numbered["writer_seq"], numbered["journal_seq"]) = (json!(2), json!(2));
    let outcome = site.post("/records?return=ack", &numbered).await;
    assert_eq!((&outcome["outcome"], &outcome["record_writer"]), (&json!("appended"), &Value::Null), "{outcome}");
    let late = site.post("/records?consistency=latest", &numbered).await;
    assert_eq!((&late["outcome"], &late["record_writer"]), (&json!("repeat"), &writer), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_is_twice_in_one_request_belongs_to_its_sender() {
    let site = Site::start().await;
    let (mine, writer) = site.claim().await;
    site.post("/records", &intent(&mine, "book-1")).await;
    // The run's last record does not belong to this epoch.
    let decision = json!({ "decision": "done", "result": 1, "who": "jo", "why": "looked", "revision": 1 });
    let decided = site.post("/effects/book-1/resolution", &decision).await;
    assert_ne!(decided["record_writer"], writer, "{decided}");
    let twice = site.post("/records", &json!([intent(&mine, "book-2"), intent(&mine, "book-2")])).await;
    assert_eq!((&twice[0]["outcome"], &twice[1]["outcome"]), (&json!("applied"), &json!("repeat")), "{twice}");
    for outcome in twice.as_array().unwrap() {
        assert_eq!(outcome["record_writer"], writer, "{twice}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_the_writer_that_sent_it_and_a_repeated_record_in_it_keeps_its_own() {
    let site = Site::start().await;
    let (first, first_writer) = site.claim().await;
    site.post("/records", &intent(&first, "book-1")).await;
    let (second, second_writer) = site.claim().await;
    let batch = |id: &str, ids: &[&str]| {
        let numbered = |(nth, id): (usize, &&str)| {
            let mut record = intent(&second, id);
            record["journal_seq"] = json!(nth + 1);
            record
        };
        let records: Vec<Value> = ids.iter().enumerate().map(numbered).collect();
        json!({ "run_id": "r", "record_id": id, "writer_id": second["writer_id"], "writer_epoch": second["writer_epoch"],
            "payload": { "type": "batch", "records": records } })
    };
    for (id, ids) in [("mixed", &["book-1", "book-2"][..]), ("repeats", &["book-1"])] {
        let outcome = site.post("/records", &batch(id, ids)).await;
        assert_eq!((&outcome["outcome"], &outcome["record_writer"]), (&json!("applied"), &second_writer), "{outcome}");
        let offset = &outcome["position"]["offset"];
        let within = site.get(&format!("/outcome?position=0:{offset}:0&record_id=book-1")).await;
        assert_eq!((&within["outcome"], &within["record_writer"]), (&json!("repeat"), &first_writer), "{within}");
        let by_id = site.get(&format!("/outcome?record_id={id}")).await;
        assert_eq!((&by_id["outcome"], &by_id["record_writer"]), (&json!("applied"), &second_writer), "{by_id}");
    }
    let refused = site.post("/records", &intent(&first, "book-3")).await;
    assert_eq!((&refused["reason"], &refused["record_writer"]), (&json!("fenced"), &first_writer), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_runs_no_effect_if_the_record_under_its_id_is_of_another_epoch() {
    let site = Site::start().await;
    site.claim().await;
    let proxy = HttpProxy::start(&site.0.url(""), "/records").unwrap();
    let config = Producing::new(Journal::parse(&proxy.url, None).unwrap(), "agent");
    let run = Runlog::connect(config).await.unwrap().open("r").await.unwrap();
    let position = json!({ "topic": "t", "partition": 0, "offset": 99, "index": 0 });
    let body = json!({ "outcome": "repeat", "reason": null, "position": position,
        "record_writer": { "writer_id": "other", "epoch": 1 }, "writer": { "writer_id": "mine", "epoch": 2 } });
    let body = body.to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    proxy.answer_next(&format!("{head}{body}"), true);
    let error = run.tool("book", &1).once(async |_| panic!("it runs")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_within_one_request_has_the_position_of_the_first_record() {
    let site = Site::start().await;
    let (writer, named) = site.claim().await;
    site.post("/records", &intent(&writer, "first")).await;
    let two = site.post("/records", &json!([intent(&writer, "twice"), intent(&writer, "twice")])).await;
    assert_eq!((&two[0]["outcome"], &two[1]["outcome"]), (&json!("applied"), &json!("repeat")), "{two}");
    assert_eq!([&two[1]["position"], &two[1]["journal_seq"]], [&two[0]["position"], &two[0]["journal_seq"]], "{two}");
    let mut batch = intent(&writer, "batch");
    batch["payload"] = json!({ "type": "batch", "records": [intent(&writer, "m-1"), intent(&writer, "m-2")] });
    let three = site.post("/records", &json!([batch, intent(&writer, "m-2"), intent(&writer, "m-2")])).await;
    for member in [&three[1], &three[2]] {
        assert_eq!((&member["outcome"], &member["record_writer"]), (&json!("repeat"), &named), "{three}");
        let read = site.get(&format!("/outcome?position={}&record_id=m-2", position_text(member))).await;
        assert_eq!((&read["outcome"], &read["record_writer"]), (&json!("applied"), &named), "{read}");
    }
    // A refused record permits nothing, also if it is queried by its position.
    let mut refused = intent(&writer, "refused");
    refused["writer_epoch"] = json!(7);
    let two = site.post("/records", &json!([refused, refused])).await;
    let read = site.get(&format!("/outcome?position={}", position_text(&two[1]))).await;
    assert_ne!(read["outcome"], "applied", "{two} {read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_repeats_a_record_before_a_new_one_is_applied() {
    let site = Site::start().await;
    let (writer, _) = site.claim().await;
    site.post("/records", &intent(&writer, "known")).await;
    let mut batch = intent(&writer, "batch");
    batch["payload"] = json!({ "type": "batch", "records": [intent(&writer, "known"), intent(&writer, "new"),
        intent(&writer, "new"), intent(&writer, "newer")] });
    let outcome = site.post("/records", &batch).await;
    assert_eq!((&outcome["outcome"], &outcome["reason"]), (&json!("applied"), &Value::Null), "{outcome}");
    for id in ["new", "newer"] {
        let read = site.get(&format!("/outcome?record_id={id}")).await;
        assert_eq!(read["outcome"], "applied", "{read}");
    }
}
