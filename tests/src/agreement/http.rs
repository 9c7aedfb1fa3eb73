//! A server's answers over HTTP.

use super::answers::{Answers, PAGES_MAX, recovered};
use crate::server::{self, Server};
use anyhow::{Context, bail, ensure};
use runlog_projector::index::{
    query::{effects::Listed, events::Filter},
    store::Index,
};
use runlog_schemas::{
    id::{RecordId, RunId},
    partition::partition_of,
    refs::EntityKind,
};
use serde_json::{Value, json};
use std::{cell::Cell, fmt::Write as _};
use tokio::runtime::Runtime;

/// Longer than any list.
const PAGE: usize = 1000;
/// How long an answer may wait for the projector.
const DEADLINE: &str = "deadline_ms=60000";
/// A part of the error of each kind of stop, with the model's name of the kind.
const STOPS: [(&str, &str); 2] = [("unknown schema", "unknown_schema"), ("expected the genesis", "not_a_journal")];

/// The HTTP client.
#[derive(Debug)]
pub struct Asker {
    http: reqwest::Client,
    runtime: Runtime,
}

impl Asker {
    /// A client that keeps its connections open.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { http: server::client()?, runtime })
    }

    /// The status and the JSON of an answer; `path` begins with a slash and is encoded.
    pub fn get(&self, server: &Server, path: &str) -> anyhow::Result<(u16, Value)> {
        let url = format!("{}{path}", server.url);
        self.runtime.block_on(async {
            let response = self.http.get(&url).send().await.with_context(|| url.clone())?;
            let status = response.status().as_u16();
            Ok((status, response.json().await.with_context(|| url.clone())?))
        })
    }

    /// Waits until an offset of a partition is applied or the partition is stopped. Returns whether it is stopped.
    pub fn stopped_before(&self, server: &Server, partition: u32, offset: u64) -> anyhow::Result<bool> {
        let path = format!("/v1/runs?limit=1&consistency=at-least={partition}:{offset}&{DEADLINE}");
        match self.get(server, &path)? {
            (200, answer) => {
                let unavailable = answer["unavailable_partitions"].as_array().context("unavailable partitions")?;
                Ok(unavailable.iter().any(|unavailable| *unavailable == partition))
            }
            (status, problem) => bail!("{path}: {status} {problem}"),
        }
    }
}

/// A partition, as the model has it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The last record of the log.
    pub last: Option<u64>,
    /// Whether it is stopped before that record.
    pub stopped: bool,
}

/// A server that has applied as much as the model.
#[derive(Debug)]
pub struct Http<'a> {
    asker: &'a Asker,
    server: &'a Server,
    parts: Vec<Part>,
    questions: Cell<u64>,
}

impl<'a> Http<'a> {
    /// Questions of `asker` to `server`.
    pub fn new(asker: &'a Asker, server: &'a Server, parts: Vec<Part>) -> Self {
        Self { asker, server, parts, questions: Cell::new(0) }
    }

    /// The consistency parameter of a query, so that its answer is not stale: `latest` and `at-least` in turns.
    fn consistency_of(&self, run_id: RunId<&str>) -> String {
        let partition = partition_of(run_id, u32::try_from(self.parts.len()).unwrap_or(1));
        let part = self.parts[partition.index()];
        match part.last {
            // A stopped partition answers only at `eventual`; the caller has awaited its state.
            _ if part.stopped => "consistency=eventual".to_owned(),
            Some(last) if self.questions.get() % 2 == 1 => {
                format!("consistency=at-least={partition}:{last}&{DEADLINE}")
            }
            _ => format!("consistency=latest&{DEADLINE}"),
        }
    }

    /// The consistency parameter of a list over all partitions.
    fn consistency_everywhere(&self) -> String {
        let any = self.parts.iter().any(|part| part.stopped);
        if any { "consistency=eventual".to_owned() } else { format!("consistency=latest&{DEADLINE}") }
    }

    /// An answer; `None` if the server answers 404 `not_found`.
    fn get_if_exists(&self, path: &str) -> anyhow::Result<Option<Value>> {
        self.questions.set(self.questions.get() + 1);
        match self.asker.get(self.server, path)? {
            (200, answer) => Ok(Some(answer)),
            (404, problem) if problem["kind"] == "not_found" => Ok(None),
            (status, problem) => bail!("{path}: {status} {problem}"),
        }
    }

    /// All items of a list; empty if the server answers 404 `not_found`.
    fn all(&self, path: &str, list: &str, limit: usize) -> anyhow::Result<Vec<Value>> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let Some(mut page) = self.get_if_exists(&format!("{path}&limit={limit}{cursor}"))? else {
                return Ok(items);
            };
            let Value::Array(more) = page[list].take() else { bail!("{path} has no {list}: {page}") };
            ensure!(more.len() <= limit, "{path}: a page of {} with limit {limit}", more.len());
            items.extend(more);
            let Some(next) = page["next_cursor"].as_str() else { return Ok(items) };
            let next = format!("&cursor={next}");
            ensure!(cursor != next, "{path}: the next page is the same page");
            cursor = next;
        }
        bail!("{path}: more than {PAGES_MAX} pages")
    }
}

/// Percent-encodes text for a path or a query.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        // Writing to a String cannot fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => write!(encoded, "{}", byte as char),
            _ => write!(encoded, "%{byte:02X}"),
        };
        encoded
    })
}

fn run_path(run_id: RunId<&str>, rest: &str) -> String {
    format!("/v1/runs/{}/{rest}", percent_encode(run_id.as_str()))
}

impl Answers for Http<'_> {
    /// Mostly one page, since each page is a request.
    fn page(&self, number: u64) -> usize {
        if number.is_multiple_of(7) { usize::try_from(number % 5).unwrap_or(0) + 2 } else { PAGE }
    }

    fn partitions(&self) -> anyhow::Result<Value> {
        let doctor = self.get_if_exists("/v1/doctor")?.context("a doctor")?;
        let row = |row: &Value| {
            let text = row["error"].as_str();
            let kind =
                text.map(|text| STOPS.iter().find(|(part, _)| text.contains(part)).map_or(text, |(_, kind)| kind));
            let prefix = format!("partition {} is stopped at offset ", row["partition"]);
            let mut findings = doctor["findings"].as_array().into_iter().flatten();
            let at = findings.find_map(|finding| finding["what"].as_str()?.strip_prefix(&prefix)?.split_once(':'));
            let stopped_at = at.and_then(|(offset, _)| offset.parse::<u64>().ok());
            json!({"partition": row["partition"], "applied": null, "state": row["state"], "error": kind, "stopped_at": stopped_at})
        };
        Ok(doctor["partitions"].as_array().context("partitions")?.iter().map(row).collect())
    }

    fn runs(&self, limit: usize) -> anyhow::Result<Vec<Value>> {
        self.all(&format!("/v1/runs?{}", self.consistency_everywhere()), "runs", limit)
    }

    fn recover(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Value> {
        let path = run_path(run_id, &format!("recovery?full=true&limit={limit}&{}", self.consistency_of(run_id)));
        recovered(limit, |cursor| {
            self.get_if_exists(&cursor.map_or(path.clone(), |cursor| format!("{path}&cursor={cursor}")))
        })
    }

    fn lookup(&self, run_id: RunId<&str>, fingerprint: &str, occurrence: Option<u32>) -> anyhow::Result<Value> {
        let occurrence = occurrence.map(|occurrence| format!("&occurrence={occurrence}")).unwrap_or_default();
        let path = format!(
            "lookup?tool=any&fingerprint={}{occurrence}&{}",
            percent_encode(fingerprint),
            self.consistency_of(run_id)
        );
        Ok(self.get_if_exists(&run_path(run_id, &path))?.unwrap_or_default())
    }

    fn checkpoint(&self, run_id: RunId<&str>, at_or_before: Option<u64>) -> anyhow::Result<Value> {
        let covers = at_or_before.map(|covers| format!("&at_or_before={covers}")).unwrap_or_default();
        let path = run_path(run_id, &format!("checkpoints/latest?{}{covers}", self.consistency_of(run_id)));
        Ok(self.get_if_exists(&path)?.unwrap_or_default())
    }

    fn show(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Vec<Value>> {
        self.all(&run_path(run_id, &format!("records?raw=true&{}", self.consistency_of(run_id))), "records", limit)
    }

    fn events(&self, filter: &Filter, limit: usize) -> anyhow::Result<Vec<Value>> {
        let entity =
            |of: &Option<(EntityKind, String)>| of.as_ref().map(|(kind, id)| format!("{}:{id}", kind.as_str()));
        let fresh = filter
            .run_id
            .as_ref()
            .map_or_else(|| self.consistency_everywhere(), |run| self.consistency_of(run.borrow()));
        let mut path = format!("/v1/events?{fresh}");
        for (name, value) in [
            ("run", filter.run_id.as_ref().map(|run| run.as_str().to_owned())),
            ("family", filter.family.clone()),
            ("kind", filter.kind.clone()),
            ("subject", entity(&filter.subject)),
            ("related", entity(&filter.related)),
            ("tag", filter.tag.clone()),
        ] {
            if let Some(value) = value {
                write!(path, "&{name}={}", percent_encode(&value))?;
            }
        }
        for (key, value) in &filter.correlation {
            write!(path, "&correlation={}", percent_encode(&format!("{key}={value}")))?;
        }
        self.all(&path, "events", limit)
    }

    fn facts(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>> {
        let path = format!("facts?at={}&{}", time(at_millis)?, self.consistency_of(run_id));
        self.all(&run_path(run_id, &path), "facts", limit)
    }

    fn show_at(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>> {
        let path = format!("records?raw=true&at={}&{}", time(at_millis)?, self.consistency_of(run_id));
        self.all(&run_path(run_id, &path), "records", limit)
    }

    fn open_items(&self, run_id: RunId<&str>, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<Value>> {
        let path = format!("standing/{}?ended={ended}&{}", index.name, self.consistency_of(run_id));
        self.all(&run_path(run_id, &path), "standing", limit)
    }

    /// The server has no such list, so this queries each run.
    fn open_items_everywhere(&self, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<(RunId, Value)>> {
        let mut items = Vec::new();
        for run in self.runs(PAGE)? {
            let run_id = RunId::new(run["run_id"].as_str().context("a run has an id")?.to_owned())?;
            let standing = self.open_items(run_id.borrow(), index, ended, limit)?;
            items.extend(standing.into_iter().map(|standing| (run_id.clone(), standing)));
        }
        Ok(items)
    }

    fn effects(&self, listed: Listed, limit: usize) -> anyhow::Result<Vec<Value>> {
        let only = match listed {
            Listed::All => "pending=false",
            Listed::Pending => "pending=true",
            Listed::Unsafe => "pending=true&unsafe=true",
            Listed::Contradicted => "contradicted=true",
        };
        let path = format!("/v1/effects?{only}&{}", self.consistency_everywhere());
        self.all(&path, "effects", limit)
    }

    fn anomalies(&self, run_id: Option<RunId<&str>>, limit: usize) -> anyhow::Result<Vec<Value>> {
        let path = match run_id {
            // Refused records of a run may be in other partitions; the caller has awaited their state.
            Some(run_id) => {
                format!("/v1/anomalies?run={}&{}", percent_encode(run_id.as_str()), self.consistency_of(run_id))
            }
            None => format!("/v1/anomalies?{}", self.consistency_everywhere()),
        };
        self.all(&path, "anomalies", limit)
    }

    fn dead_letters(&self, limit: usize) -> anyhow::Result<Vec<Value>> {
        self.all(&format!("/v1/dead-letters?{}", self.consistency_everywhere()), "records", limit)
    }

    /// A stopped partition refuses queries by position.
    fn tells_outcomes(&self, partition: u32) -> bool {
        self.parts.get(partition as usize).is_some_and(|part| !part.stopped)
    }

    fn outcome(
        &self,
        partition: u32,
        (offset, index): (u64, u32),
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
    ) -> anyhow::Result<Value> {
        let place = format!("position={partition}:{offset}:{index}&record_id={}", percent_encode(record_id.as_str()));
        let answer =
            self.get_if_exists(&run_path(run_id, &format!("outcome?{place}&{}", self.consistency_of(run_id))))?;
        Ok(answer.map(without_run_state).unwrap_or_default())
    }

    fn by_id(&self, run_id: RunId<&str>, record_id: RecordId<&str>) -> anyhow::Result<Value> {
        let path = format!("outcome?record_id={}&{}", percent_encode(record_id.as_str()), self.consistency_of(run_id));
        Ok(self.get_if_exists(&run_path(run_id, &path))?.map(without_run_state).unwrap_or_default())
    }
}

/// The outcome of a record, without the state of the run: its writer, and whether the record's call has changed.
fn without_run_state(mut read_back: Value) -> Value {
    if let Some(members) = read_back.as_object_mut() {
        for member in ["epoch", "writer_id", "changed"] {
            members.remove(member);
        }
    }
    read_back
}

/// RFC 3339, as query parameters have it.
fn time(millis: i64) -> anyhow::Result<String> {
    Ok(runlog_projector::index::query::time(u64::try_from(millis).context("a time before 1970")?))
}
