//! Appends on one connection are numbered in the order of arrival, despite another server's numbering and wherever
//! the connection is cut.

use runlog_log::memory::MemoryLog;
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

const RUN: &str = "shared";
/// Records of each connection.
const RECORDS: usize = 24;

/// Two servers over one log, and the writer of the run.
struct Site {
    servers: [Served; 2],
    writer: String,
}

impl Site {
    async fn start() -> Self {
        let log = MemoryLog::new(1);
        let served = async || Served::over(Arc::new(log.clone())).await.unwrap();
        let servers = [served().await, served().await];
        let (_, claim) = servers[0].post(&format!("/v1/runs/{RUN}/claims"), &json!({})).await;
        Self { servers, writer: claim["writer_id"].as_str().unwrap().to_owned() }
    }

    /// A record without numbers.
    fn turn_record(&self, name: &str, number: usize) -> Value {
        let payload = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": number });
        json!({ "run_id": RUN, "record_id": format!("{name}-{number}"), "writer_id": self.writer, "writer_epoch": 1,
            "timestamp_millis": 1, "payload": payload })
    }
}

/// A connection that sends without waiting for answers.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn to(server: &Served) -> Self {
        Self(BufReader::new(TcpStream::connect(server.address).await.unwrap()))
    }

    async fn send(&mut self, what: &str, body: &Value) {
        let body = body.to_string();
        let request = format!(
            "POST /v1/runs/{RUN}/{what} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    /// The next answer, whose status is 200; `None` once the connection has ended.
    async fn answer(&mut self) -> Option<Value> {
        let (mut line, mut length) = (String::new(), 0);
        if self.0.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        assert_eq!(line.trim_end(), "HTTP/1.1 200 OK");
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).await.unwrap();
            let header = line.to_ascii_lowercase();
            length = header.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        Some(serde_json::from_slice(&body).unwrap())
    }
}

/// Sends all of a connection's records at once, and reads their answers.
async fn sent_at_once(site: &Site, server: usize, name: &str) -> Vec<Value> {
    let mut connection = Connection::to(&site.servers[server]).await;
    for number in 0..RECORDS {
        connection.send("records", &site.turn_record(name, number)).await;
    }
    let mut answers = Vec::new();
    for _ in 0..RECORDS {
        answers.push(connection.answer().await.unwrap());
    }
    answers
}

/// The numbers of answers that all say `applied`, or an applied record's `repeat`.
fn numbers(answers: &[Value]) -> Vec<u64> {
    let number = |answer: &Value| {
        assert!(answer["outcome"] != "refused" && answer["reason"].is_null(), "{answer}");
        answer["journal_seq"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    answers.iter().map(number).collect()
}

/// Every number once, and each connection's numbers in the order in which it sent its records.
fn assert_in_order(connections: &[Vec<u64>]) {
    for numbers in connections {
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    }
    let mut all = connections.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=(connections.len() * RECORDS) as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_on_a_connection_are_numbered_in_the_order_of_arrival_while_two_servers_number_one_writers_records() {
    let site = Site::start().await;
    let (one, other, third) =
        tokio::join!(sent_at_once(&site, 0, "one"), sent_at_once(&site, 1, "other"), sent_at_once(&site, 1, "third"));
    assert_in_order(&[numbers(&one), numbers(&other), numbers(&third)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_connection_leaves_the_first_of_its_records_and_the_rest_follow_in_order_when_all_are_sent_again() {
    let site = Site::start().await;
    let cut = async |name: &str, answered: usize| {
        let mut connection = Connection::to(&site.servers[0]).await;
        for number in 0..RECORDS {
            connection.send("records", &site.turn_record(name, number)).await;
        }
        for _ in 0..answered {
            connection.answer().await.unwrap();
        }
        drop(connection);
        sent_at_once(&site, 1, name).await
    };
    let (one, other, third) = tokio::join!(cut("one", 0), cut("other", 3), cut("third", RECORDS / 2));
    assert_in_order(&[numbers(&one), numbers(&other), numbers(&third)]);
}
