//! The requests of one scenario, and the checks of an answer.

use crate::{
    client::{Client, Events, Received, Target},
    payloads,
    run::{Record, Run},
};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time limit of one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Largest number of requests of one rule.
const REQUESTS_MAX: u32 = 200;
/// Longest request or answer in a report, characters.
const REPORT_CHARS_MAX: usize = 1000;

/// A request whose answer differs from the expectation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finding {
    pub(crate) request: String,
    pub(crate) answer: String,
    pub(crate) expected: String,
}

/// Why a scenario ended early.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Another rule, if the failed step depends on it.
    pub(crate) needs: Option<&'static str>,
    pub(crate) finding: Finding,
}

pub(crate) type Checked<T = ()> = Result<T, Stop>;

/// Marks a step that depends on another rule than the tested one.
pub(crate) trait Needs: Sized {
    /// Attributes a failure of the step to `rule`.
    fn needs(self, rule: &'static str) -> Self;
}

impl<T> Needs for Checked<T> {
    fn needs(self, rule: &'static str) -> Self {
        self.map_err(|stop| Stop { needs: stop.needs.or(Some(rule)), ..stop })
    }
}

/// One rule's view of the server.
#[derive(Debug)]
pub(crate) struct Scenario<'a> {
    client: &'a Client,
    prefix: String,
    until: Instant,
    runs: u32,
    requests: u32,
}

impl<'a> Scenario<'a> {
    /// Creates a scenario whose run ids begin with `prefix`. After `wait` its requests fail.
    pub(crate) fn new(client: &'a Client, prefix: String, wait: Duration) -> Self {
        Self { client, prefix, until: Instant::now() + wait, runs: 0, requests: 0 }
    }

    /// Returns a new run with a unique id.
    pub(crate) fn run(&mut self) -> Run {
        self.runs += 1;
        Run::new(format!("{}.{}", self.prefix, self.runs))
    }

    /// Returns the prefix of the ids of this rule's runs.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn get(&mut self, target: Target) -> Checked<Answer> {
        let request = clip(&format!("GET {}", target.as_str()));
        self.ask(request, |client, wait| client.get(&target, wait))
    }

    pub(crate) fn post(&mut self, target: Target, body: String) -> Checked<Answer> {
        let request = clip(&format!("POST {} {body}", target.as_str()));
        self.ask(request, |client, wait| client.post(&target, body, wait))
    }

    fn ask(
        &mut self,
        request: String,
        send: impl FnOnce(&Client, Duration) -> Result<Received, String>,
    ) -> Checked<Answer> {
        self.requests += 1;
        let remaining = self.remaining();
        let sent = if remaining.is_zero() || self.requests > REQUESTS_MAX {
            Err("not sent, because the rule reached its time limit or its maximum of requests".to_owned())
        } else {
            send(self.client, remaining)
        };
        let Received { status, content_type, body } = sent.map_err(|answer| {
            let finding = Finding { request: request.clone(), answer, expected: "an answer in time".to_owned() };
            Stop { needs: None, finding }
        })?;
        let json = serde_json::from_str(&body).unwrap_or_default();
        Ok(Answer { request, status, content_type, text: body, json })
    }

    /// Returns the time limit of the next answer.
    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).min(ANSWER_WAIT)
    }

    /// Opens a run's tail from its beginning. The tail then also returns records that are appended later.
    pub(crate) fn open_tail(&mut self, run: &Run) -> Checked<Tail> {
        let target = Target::run(&run.id).path("/tail").with("from", "beginning");
        let request = format!("GET {}", target.as_str());
        let opened = self.client.events(&target, self.remaining());
        opened.map(|events| Tail { events, request: request.clone() }).map_err(|answer| {
            let finding = Finding { request, answer, expected: "a stream of events".to_owned() };
            Stop { needs: None, finding }
        })
    }

    /// Returns the next line of a tail.
    pub(crate) fn next(&mut self, tail: &mut Tail) -> Checked<Value> {
        let answer = match self.client.next(&mut tail.events, self.remaining()) {
            Ok(Some(data)) => match serde_json::from_str(&data) {
                Ok(line) => return Ok(line),
                Err(_) => data,
            },
            Ok(None) => "the stream ended".to_owned(),
            Err(why) => why,
        };
        let finding = Finding { request: tail.request.clone(), answer, expected: "another event".to_owned() };
        Err(Stop { needs: None, finding })
    }

    /// Queries a run at least up to its last append.
    pub(crate) fn query_run(&mut self, run: &Run, path: &str, query: &[(&str, &str)]) -> Checked<Answer> {
        let mut target = with_consistency(Target::run(&run.id).path(path), run);
        for (name, value) in query {
            target = target.with(name, value);
        }
        self.get(target)
    }

    /// Queries the run itself, without a subpath.
    pub(crate) fn head(&mut self, run: &Run) -> Checked<Answer> {
        self.query_run(run, "", &[])?.ok()
    }

    pub(crate) fn recovery(&mut self, run: &Run) -> Checked<Answer> {
        self.query_run(run, "/recovery", &[])?.ok()
    }

    pub(crate) fn lookup(&mut self, run: &Run, tool: &str, arguments: &Value) -> Checked<Answer> {
        self.query_run(run, "/lookup", &[("tool", tool), ("args", &arguments.to_string())])?.ok()
    }

    /// Queries the open or the ended items of one of the run's lists.
    pub(crate) fn query_items(&mut self, run: &Run, list: &str, ended: bool) -> Checked<Answer> {
        self.query_run(run, &format!("/standing/{list}"), &[("ended", if ended { "true" } else { "false" })])?.ok()
    }

    /// Queries the facts that hold `seconds` after [`CLOCK`](crate::run::CLOCK).
    pub(crate) fn facts(&mut self, run: &Run, seconds: u64) -> Checked<Answer> {
        let at = format!("2026-11-22T00:{:02}:{:02}Z", seconds / 60, seconds % 60);
        self.query_run(run, "/facts", &[("at", &at)])?.ok()
    }

    /// Queries records by their summaries.
    pub(crate) fn events(&mut self, run: &Run, query: &[(&str, &str)]) -> Checked<Answer> {
        let mut target = with_consistency(Target::new("/v1/events"), run).with("limit", 1000);
        for (name, value) in query {
            target = target.with(name, value);
        }
        self.get(target)?.ok()
    }

    /// Posts an arbitrary body to a run's records.
    pub(crate) fn body(&mut self, run: &Run, body: String) -> Checked<Answer> {
        self.post(Target::run(&run.id).path("/records"), body)
    }

    /// Appends a record and returns its outcome.
    pub(crate) fn send(&mut self, run: &mut Run, record: &Record) -> Checked<Answer> {
        let answer = self.body(run, record.0.to_string())?.ok()?;
        run.note_position(&answer);
        Ok(answer)
    }

    /// Appends the writer's next record, which must be applied. Returns its id.
    pub(crate) fn append(&mut self, run: &mut Run, payload: Value) -> Checked<String> {
        let record = run.record(payload);
        self.send(run, &record)?.expect_applied()?;
        Ok(record.id().to_owned())
    }

    /// Appends a record of a kind that needs no claim. It must be applied.
    pub(crate) fn decide(&mut self, run: &mut Run, payload: Value) -> Checked<Answer> {
        let record = run.unclaimed_record(payload);
        self.send(run, &record)?.expect_applied()
    }

    /// Claims the run for `writer` at the next epoch.
    pub(crate) fn claim(&mut self, run: &mut Run, writer: &str) -> Checked<Answer> {
        self.claim_with(run, writer, Value::Null)
    }

    /// Claims the run for `writer` at the next epoch. The claim has `facts` unless they are null.
    pub(crate) fn claim_with(&mut self, run: &mut Run, writer: &str, facts: Value) -> Checked<Answer> {
        let mut record = run.claim(writer, run.epoch + 1);
        if !facts.is_null() {
            record = record.with("facts", facts);
        }
        let answer = self.send(run, &record)?.expect_applied().needs("claim_applied")?;
        (run.writer, run.epoch, run.writer_seq) = (writer.to_owned(), run.epoch + 1, 1);
        Ok(answer)
    }

    /// Sends a result with an unclaimed epoch, so that it is fenced and kept as evidence. Returns its id.
    pub(crate) fn evidence(&mut self, run: &mut Run, result: Value) -> Checked<String> {
        let late = run.clone().record(result).with("writer_epoch", run.epoch + 7);
        let late = late.with("record_id", format!("late-{}", self.requests));
        self.send(run, &late)?.expect_refused("fenced").needs("fenced_unclaimed")?;
        Ok(late.id().to_owned())
    }

    /// Appends a tool call request, which stays pending. Returns its id.
    pub(crate) fn pending(&mut self, run: &mut Run) -> Checked<String> {
        self.append(run, payloads::request("book", &serde_json::json!({"seat": 1})))
    }
}

impl Run {
    /// Makes later reads include the position in `answer`.
    pub(crate) fn note_position(&mut self, answer: &Answer) {
        let last = answer.json.as_array().and_then(|all| all.last()).unwrap_or(&answer.json);
        let position = &last["position"];
        if let (Some(partition), Some(offset)) = (position["partition"].as_u64(), position["offset"].as_u64()) {
            self.last = self.last.max(Some((partition, offset)));
        }
    }
}

/// An open tail.
#[derive(Debug)]
pub(crate) struct Tail {
    events: Events,
    request: String,
}

fn with_consistency(target: Target, run: &Run) -> Target {
    match run.last {
        Some((partition, offset)) => target.with("consistency", format!("at-least={partition}:{offset}")),
        None => target.with("consistency", "latest"),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(REPORT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// An answer and its request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    request: String,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Answer {
    /// Returns the failure that this answer is not the expected one.
    pub(crate) fn failure(&self, expected: impl Into<String>) -> Stop {
        let answer = clip(&format!("{} {}", self.status, self.text));
        Stop { needs: None, finding: Finding { request: self.request.clone(), answer, expected: expected.into() } }
    }

    /// Fails with `expected` unless `is_expected`.
    pub(crate) fn check(&self, is_expected: bool, expected: impl Into<String>) -> Checked {
        if is_expected { Ok(()) } else { Err(self.failure(expected)) }
    }

    pub(crate) fn ok(self) -> Checked<Self> {
        self.check(self.status == 200, "status 200")?;
        Ok(self)
    }

    /// Returns the value at a JSON pointer, or null if absent.
    pub(crate) fn value_at(&self, pointer: &str) -> &Value {
        self.json.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn has(&self, pointer: &str, value: impl Into<Value>) -> Checked {
        let value = value.into();
        self.check(*self.value_at(pointer) == value, format!("{value} at {pointer}"))
    }

    /// Returns the list at a JSON pointer.
    pub(crate) fn list(&self, pointer: &str) -> Checked<&Vec<Value>> {
        self.value_at(pointer).as_array().ok_or_else(|| self.failure(format!("a list at {pointer}")))
    }

    /// Checks that `member` of a list's items has these values, in this order.
    pub(crate) fn lists(&self, pointer: &str, member: &str, values: &[&str]) -> Checked {
        let actual: Vec<&str> =
            self.list(pointer)?.iter().map(|item| item[member].as_str().unwrap_or_default()).collect();
        self.check(actual == values, format!("{member} {values:?} in {pointer}"))
    }

    /// Returns the only item of a list.
    pub(crate) fn only(&self, pointer: &str) -> Checked<&Value> {
        match self.list(pointer)?.as_slice() {
            [item] => Ok(item),
            _ => Err(self.failure(format!("one item in {pointer}"))),
        }
    }

    /// Checks that the record was applied.
    pub(crate) fn expect_applied(self) -> Checked<Self> {
        self.check(
            self.value_at("/outcome") == "applied" && self.value_at("/reason").is_null(),
            "outcome applied, reason null",
        )?;
        Ok(self)
    }

    /// Checks that the record was refused for this reason.
    pub(crate) fn expect_refused(self, reason: &str) -> Checked<Self> {
        let is_refused = self.value_at("/outcome") == "refused" && self.value_at("/reason") == reason;
        self.check(is_refused, format!("outcome refused, reason {reason}"))?;
        Ok(self)
    }

    /// Checks that the record repeats an earlier record and got the reason and position of `first`.
    pub(crate) fn expect_repeat(&self, first: &Self) -> Checked {
        let is_repeat = self.value_at("/outcome") == "repeat"
            && self.value_at("/reason") == first.value_at("/reason")
            && self.value_at("/position") == first.value_at("/position");
        let expected =
            format!("outcome repeat, reason {}, position {}", first.value_at("/reason"), first.value_at("/position"));
        self.check(is_repeat, expected)
    }

    /// Checks that the answer is a problem with this status and kind.
    pub(crate) fn expect_problem(&self, status: u16, kind: &str) -> Checked {
        let is_problem = self.status == status && self.value_at("/kind") == kind;
        self.check(is_problem, format!("status {status} and a problem of kind {kind}"))
    }

    /// Returns the position of the appended record as `P:O`.
    pub(crate) fn position_text(&self) -> String {
        format!("{}:{}", self.value_at("/position/partition"), self.value_at("/position/offset"))
    }
}
