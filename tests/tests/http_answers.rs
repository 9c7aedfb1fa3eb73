//! Answers over HTTP that are not the server's, those of a proxy before it and those that were cut off; and questions that are
//! not what was meant.

#![allow(clippy::unwrap_used, reason = "a test fails where its journal does")]

use runlog_producer::{Action, Happened, JournalRecord, Json, Select, Writer, payload::ConversationTurn};
use runlog_schemas::{answer::ErrorKind, id::RecordId};
use runlog_tests::{cut::Relay, site::Site, way::Way};
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// What proxies say where the server behind them does not, or not in time; and answers that end before their end, of which
/// nothing says how long they were to be.
const STRANGE: [&str; 7] = [
    "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\nconnection: close\r\n\r\n<h1>502 Bad Gateway</h1>",
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"error\":\"504\"}",
    "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\nconnection: close\r\n\r\nslow",
    "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"position\":{\"topic\":\"run",
    "HTTP/1.1 200 OK\r\ncontent-length: 400\r\nconnection: close\r\n\r\n{\"position\":",
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{\"type\":\"about:blank#invalid\",",
];

fn turn(writer: &Writer, id: &str) -> JournalRecord {
    let (message_id, kind) = (id.to_owned(), "user".to_owned());
    let turn =
        ConversationTurn { message_id, parent_id: None, thread_id: None, kind, content: Json::from(Value::Null) };
    writer.draft(Some(RecordId::new(id.to_owned()).unwrap()), turn).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_something_else_answered_is_unknown_until_it_is_written_again() {
    let site = Site::http().unwrap();
    let relay = Relay::start(&site.server.url, "/records").unwrap();
    let writer = site.connect_by(&relay.url).await.unwrap().writer("proxied").await.unwrap();
    let mut ids = Vec::new();
    for (nth, answer) in STRANGE.iter().enumerate() {
        for passed in [true, false] {
            let id = format!("{nth}-{passed}");
            relay.answer_next(answer, passed);
            let error = writer.write(turn(&writer, &id)).await.unwrap_err();
            let told = (error.kind(), error.happened(), error.action());
            assert_eq!(told, (ErrorKind::Unavailable, Happened::Unknown, Action::Reopen), "{answer}: {error}");
            writer.write(turn(&writer, &id)).await.unwrap_or_else(|error| panic!("{answer}, {passed}: {error}"));
            ids.push(id);
        }
    }
    let page = site.connect().await.unwrap().records("proxied", &Select::default(), None, 1000).await.unwrap();
    let records = page.records.into_iter().map(|read| read.record.unwrap());
    let turns = records.filter(|record| record.payload.payload_type() == "conversation_turn");
    assert_eq!(turns.map(|turn| turn.body.record_id.as_str().to_owned()).collect::<Vec<_>>(), ids, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_something_else_answered_is_to_be_asked_again_and_never_answered_with_nothing() {
    let site = Site::http().unwrap();
    let relay = Relay::start(&site.server.url, "/checkpoints").unwrap();
    let runlog = site.connect_by(&relay.url).await.unwrap();
    for answer in STRANGE {
        relay.answer_next(answer, false);
        let error = runlog.checkpoint("asked", None).await.unwrap_err();
        assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{answer}: {error}");
        assert!(runlog.checkpoint("asked", None).await.unwrap().is_none(), "{answer}");
    }
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot found";
    relay.answer_next(missing, false);
    let error = runlog.checkpoint("asked", None).await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::Internal, Action::Operator), "{error}");
}

/// What the server says to a request line as it is, which clients make another one of.
fn asked(site: &Site, line: &str) -> (String, Value) {
    let address = site.server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    (head[..12].to_owned(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{said}: {error}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_no_url_can_name_is_refused_by_producers() {
    let (http, local) = (Way::http().await.unwrap(), Way::local().await.unwrap());
    for way in [http, local] {
        for run in [".", ".."] {
            let refused = [
                way.runlog.open(run).await.map(drop),
                way.runlog.writer(run).await.map(drop),
                way.runlog.checkpoint(run, None).await.map(drop),
                way.runlog.run(run).await.map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_eq!((error.kind(), error.action()), (ErrorKind::Usage, Action::FixTheInput), "{error}");
                assert!(error.to_string().contains("URL"), "{error}");
            }
        }
        way.open("...").await.turn("user", "this one can").await.unwrap();
    }
}

#[test]
fn a_path_that_clients_make_another_one_of_is_refused_and_never_answered_for() {
    let site = Site::http().unwrap();
    let paths = ["..", "%2e%2E/recovery", "./records", ".%2e/lookup?tool=a&args=1", "x/calls/%2E", "../tail"];
    for path in paths {
        let (status, problem) = asked(&site, &format!("GET /v1/runs/{path}"));
        assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 400", &"usage".into()), "{path}: {problem}");
    }
    let (status, problem) = asked(&site, "POST /v1/runs/%2e%2e/claims");
    assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 400", &"usage".into()), "{problem}");
    // What is left of a path by clients that do take it out is no answer that something is not there.
    let (status, problem) = asked(&site, "GET /v1/lookup?tool=a&args=1");
    assert_eq!((status.as_str(), &problem["kind"]), ("HTTP/1.1 404", &"usage".into()), "{problem}");
}
