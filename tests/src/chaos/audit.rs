//! Compares the acknowledgements and the effects of agents with the journal. Reads from a server and from the agents' files
//! only, not from the producer.
//!
//! ```text
//!   lists: the acknowledgements of each agent ──▶ every line in its run's records
//!   records: every call of the journal ──▶ once in the ledger, with its result, and no other calls there
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::Path,
};

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::effect_desk::lines;
use super::{effect_desk::EffectDesk, gate_worker::AckedList};
use crate::{command::Runlog, writers::compare};

/// Queries in flight.
const CONCURRENCY: usize = 8;

/// A call in the journal.
#[derive(Debug)]
struct JournaledCall {
    /// Whether it has a key: its effect may happen again.
    keyed: bool,
    result: Value,
}

/// The calls of some runs, by the id of their request.
type Calls = BTreeMap<String, JournaledCall>;

/// The traces of the agents of a folder: their acknowledgements by run, and the effects.
#[derive(Debug)]
pub struct Evidence {
    lists: HashMap<String, Vec<Value>>,
    ledger: Vec<Value>,
}

impl Evidence {
    /// Reads the files of the agents in `folder`.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut lists = HashMap::<String, Vec<Value>>::new();
        for file in fs::read_dir(folder)? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with(AckedList::PREFIX) {
                for line in lines(&file.path())? {
                    lists.entry(line["run"].as_str().context("a run")?.to_owned()).or_default().push(line);
                }
            }
        }
        Ok(Self { lists, ledger: EffectDesk::in_folder(folder).effects()? })
    }

    /// The runs with an acknowledgement.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        self.lists.keys().map(String::as_str)
    }

    /// The lines of a kind.
    pub fn lines<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lists.values().flatten().filter(move |line| line["what"] == what)
    }

    /// The number of lines of a kind, by the text of a member.
    pub fn count(&self, what: &str, member: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines(what) {
            *counts.entry(line[member].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        counts
    }

    /// The number of acknowledged records.
    pub fn acknowledged(&self) -> usize {
        self.lists.values().flatten().filter(|line| line["position"].is_object()).count()
    }

    /// The number of effects.
    pub fn effects(&self) -> usize {
        self.ledger.len()
    }

    /// Fails unless the journal on the server at `url` has every acknowledgement, every call has ended, the effects are its
    /// calls, and the indices equal the log. Returns the number of calls. Must not be called inside a runtime.
    pub fn check(&self, url: &str) -> anyhow::Result<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let http = crate::server::client()?;
        let audits = stream::iter(&self.lists).map(|(run, acknowledged)| {
            let (http, base) = (&http, format!("{url}/v1/runs/{run}"));
            async move {
                let records = compare::lines(http, &base).await?;
                one_run(&records, acknowledged).with_context(|| run.clone())
            }
        });
        let calls: Vec<Calls> = runtime.block_on(audits.buffer_unordered(CONCURRENCY).try_collect())?;
        let calls: Calls = calls.into_iter().flatten().collect();
        check_effects(&self.ledger, &calls)?;
        Runlog::for_server(url).verified()?;
        Ok(calls.len())
    }
}

/// The calls of a run, each requested once and ended.
fn one_run(records: &[Value], acknowledged: &[Value]) -> anyhow::Result<Calls> {
    let mut at = HashMap::new();
    let (mut asked, mut calls, mut results) = (HashSet::new(), BTreeMap::new(), HashMap::new());
    for record in records {
        at.insert(record["position"].to_string(), record);
        let (id, payload) = (record["record_id"].as_str().context("an id")?, &record["payload"]);
        match record["payload_type"].as_str().unwrap_or_default() {
            "tool_call_requested" => {
                let call = format!("{} {}", payload["tool_name"], payload["arguments"]);
                ensure!(asked.insert(call.clone()), "{call} was requested twice");
                calls.insert(id.to_owned(), payload["tool_name"] == "reserve");
            }
            kind @ ("tool_call_completed" | "effect_resolution") => {
                let decided = kind == "effect_resolution" && payload["decision"] != "done";
                if !decided {
                    results.insert(payload["request_record_id"].as_str().unwrap_or_default(), &payload["result"]);
                }
            }
            _ => {}
        }
    }
    for line in acknowledged {
        let what = line["what"].as_str().unwrap_or_default();
        if what == "intent" {
            let is_there = line["id"].as_str().is_some_and(|id| calls.contains_key(id));
            ensure!(is_there, "acknowledged and not in the journal: {line}");
        } else if what == "answer" || line["position"].is_object() {
            let record = at.get(&line["position"].to_string());
            let record = record.with_context(|| format!("acknowledged and not in the journal: {line}"))?;
            let name = if what == "turn" { "content" } else { "result" };
            ensure!(record["payload"][name] == line[name], "{line} is {record}");
        }
    }
    let with_result = |(id, keyed): (String, bool)| {
        let result = results.get(id.as_str()).with_context(|| format!("call {id} never ended"))?;
        Ok((id, JournaledCall { keyed, result: (*result).clone() }))
    };
    calls.into_iter().map(with_result).collect()
}

/// Fails unless the ledger has every call of the journal with its result, and no other calls. A call without a key must be
/// there once.
fn check_effects(ledger: &[Value], calls: &Calls) -> anyhow::Result<()> {
    let mut happened: HashMap<&str, Vec<&Value>> = HashMap::new();
    for line in ledger {
        happened.entry(line["call"].as_str().context("a call")?).or_default().push(line);
    }
    for (id, known) in calls {
        let lines = happened.remove(&id[..]).with_context(|| format!("call {id} is in no ledger: {known:?}"))?;
        ensure!(known.keyed || lines.len() == 1, "without a key, and happened {} times: {lines:?}", lines.len());
        let keyed = lines.iter().all(|line| line["key"].is_string() == known.keyed);
        ensure!(keyed && lines.iter().all(|line| line["result"] == known.result), "{known:?}: {lines:?}");
    }
    ensure!(happened.is_empty(), "in the ledger and not in the journal: {happened:?}");
    Ok(())
}
