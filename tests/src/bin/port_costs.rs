//! What a port's append and lookup take beside the producer's own, for whoever counts instructions.
//!
//! ```text
//!   port_costs PORT append|lookup TIMES           through the port
//!   port_costs PORT bare-append|bare-lookup TIMES such records through `Writer` and `Runlog::records`
//! ```
//!
//! Everything is in this process, on a local journal of its own. Both begin with the same first appends through the port, and the
//! bare ones make and write records of their payload, and look for them by the entry that the port finds them by. What the port
//! is given is made beforehand, as much of it however many times: only what it does with it is counted.

use std::env;

use agent_sdk_core::{
    AgentId, EffectId, EffectIntent, EffectKind, EntityKind, EntityRef, JournalRecordBase, RunId, RunJournal,
    RunJournalReader, SourceKind, SourceRef,
};
use anyhow::{Context, bail, ensure};
use bob_core::journal::{JournalEntry, ToolJournalPort};
use runlog_ports::{
    Blocking, agent_sdk_core as sdk,
    bob_core::ToolJournal,
    codetether::{Checks, Op, WritebackJournal},
    observability::{self, ObservabilityStore, ToolCallReq},
};
use runlog_producer::{
    Config, Journal, JournalRecord, RecordFilter, Runlog, Writer,
    id::RecordId,
    payload::Payload,
    record::{Body, Facts, Place},
};
use runlog_tests::ported::{request, row};
use serde_json::json;
use tokio::runtime::Runtime;

const RUN: &str = "counted";
/// Rows that the store's lookups go round.
const ROWS: u8 = 8;
/// The session's time, milliseconds since the Unix epoch.
const NOW: u64 = 1_795_305_600_000;

/// What is appended, in order.
type Made<T> = std::vec::IntoIter<T>;

/// A port, opened.
enum Port {
    AgentSdkCore(sdk::Journal, Made<agent_sdk_core::JournalRecord>),
    BobCore(Runtime, ToolJournal, Made<JournalEntry>, Vec<String>),
    Codetether(WritebackJournal),
    Observability(observability::Store, Made<ToolCallReq>),
}

fn intent(n: u8) -> agent_sdk_core::JournalRecord {
    let source = || SourceRef::with_kind(SourceKind::Host, "source.counted");
    let mut base = JournalRecordBase::new(
        u64::from(n) + 1,
        format!("intent.{n}"),
        RunId::new(RUN),
        AgentId::new("agent.counted"),
        source(),
    );
    base.timestamp_millis = NOW;
    let subject = EntityRef::new(EntityKind::ToolCall, format!("call.{n}").as_str());
    let effect = EffectId::new(format!("effect.{n}"));
    let summary = "a word, and more. ".repeat(20);
    let intent = EffectIntent::new(effect, EffectKind::ToolExecution, subject, source(), summary);
    agent_sdk_core::JournalRecord::effect_intent(base, intent)
}

fn entry(n: u8) -> JournalEntry {
    let arguments = json!({ "flight": "HAT136", "seats": [n, 2], "passenger": { "name": "Ada", "loyal": true } });
    JournalEntry {
        session_id: RUN.into(),
        call_fingerprint: JournalEntry::fingerprint("book_flight", &arguments),
        tool_name: "book_flight".into(),
        arguments,
        result: json!({ "confirmation": "c-1", "text": "a word, and more. ".repeat(20) }),
        is_error: false,
        timestamp_ms: NOW,
    }
}

/// As many of them as there can be.
fn all<T>(make: impl FnMut(u8) -> T) -> Made<T> {
    (0..=u8::MAX).map(make).collect::<Vec<_>>().into_iter()
}

impl Port {
    fn open(name: &str, journal: &Blocking) -> anyhow::Result<Self> {
        let of_its_own = journal.clone();
        Ok(match name {
            "agent-sdk-core" => Self::AgentSdkCore(sdk::Journal::on(of_its_own), all(intent)),
            "bob-core" => {
                let fingerprints = (0..ROWS).map(|n| entry(n).call_fingerprint).collect();
                Self::BobCore(runtime()?, ToolJournal::new(journal.runlog().clone()), all(entry), fingerprints)
            }
            "codetether" => Self::Codetether(WritebackJournal::open(of_its_own, RUN, || NOW, Checks::default())?),
            "observability" => {
                let told = observability::Config { content: true };
                Self::Observability(observability::Store::open(of_its_own, RUN, told)?, all(|n| request(n, 10)))
            }
            _ => bail!("{name:?} is no port"),
        })
    }

    fn append(&mut self) -> anyhow::Result<()> {
        match self {
            Self::AgentSdkCore(journal, made) => drop(journal.append(made.next().context("another one")?)?),
            Self::BobCore(runtime, journal, made, _) => {
                runtime.block_on(journal.append(made.next().context("another one")?))?;
            }
            Self::Codetether(journal) => drop(journal.stage(Op::Compaction { before: 120, after: 24 })?),
            Self::Observability(store, made) => {
                store.record_tool_call_requested(made.next().context("another one")?)?;
            }
        }
        Ok(())
    }

    fn lookup(&self, n: u8) -> anyhow::Result<()> {
        let n = n % ROWS;
        let found = match self {
            Self::AgentSdkCore(journal, _) => journal.records_for_run(&RunId::new(RUN))?.len() == usize::from(ROWS),
            Self::BobCore(runtime, journal, _, fingerprints) => {
                let fingerprint = &fingerprints[usize::from(n)];
                runtime.block_on(journal.lookup(&RUN.to_owned(), fingerprint))?.is_some()
            }
            Self::Codetether(journal) => !journal.entries()?.is_empty(),
            Self::Observability(store, _) => store.get_tool_call(row(n), "call")?.is_some(),
        };
        ensure!(found, "it was appended");
        Ok(())
    }
}

fn last(runlog: &Runlog, runtime: &Runtime) -> anyhow::Result<JournalRecord> {
    let page = runtime.block_on(runlog.records(RUN, &RecordFilter::default(), None, 1000))?;
    page.records.into_iter().next_back().context("a record")?.record.map_err(Into::into)
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Another record like one that a port wrote, as a host makes it that is its own: with an id as long, in the same lists, from the
/// same time on. What the port keeps in it of its own is not the host's.
fn made(writer: &Writer, of: &JournalRecord, n: u8) -> anyhow::Result<JournalRecord> {
    let mut payload = of.payload.clone();
    let length = of.body.record_id.as_str().len();
    let record_id = RecordId::new(format!("{n:0length$}"))?;
    let Payload::EffectIntent(intent) = &mut payload else {
        let mut made = writer.draft(Some(record_id), payload)?;
        made.body.session_id.clone_from(&of.body.session_id);
        made.body.event_index.session_id.clone_from(&of.body.event_index.session_id);
        made.body.correlation_keys.clone_from(&of.body.correlation_keys);
        made.body.event_index.correlation_keys.clone_from(&of.body.correlation_keys);
        made.body.redaction_policy_id.clone_from(&of.body.redaction_policy_id);
        made.body.validity = of.body.validity;
        return Ok(made);
    };
    // An effect is intended once.
    let effect = format!("bare.{n}");
    let intended = std::mem::replace(&mut intent.effect_id, effect.clone());
    let facts = Facts::of(&payload);
    let mut body = Body { record_id, facts, unknown_fields: None, ..of.body.clone() };
    let related = body.related_refs.iter_mut().chain(&mut body.event_index.related_refs);
    related.filter(|named| named.id == intended).for_each(|named| named.id.clone_from(&effect));
    Ok(JournalRecord { place: Place::default(), body, payload })
}

/// A record but for what names it. What is compared is to be equal so: a comparison of unlike records would say nothing.
fn unnamed(record: &JournalRecord) -> anyhow::Result<String> {
    let body = Body { unknown_fields: None, ..record.body.clone() };
    let key = body.facts.key.as_ref().filter(|_| matches!(record.payload, Payload::EffectIntent(_)));
    let text = serde_json::to_string(&body)?.replace(&format!("{:?}", body.record_id.as_str()), "ID");
    Ok(key.map_or_else(|| text.clone(), |key| text.replace(&format!("{key:?}"), "KEY")))
}

/// The same through the producer alone.
fn bare(runlog: &Runlog, what: &str, times: u8) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let record = last(runlog, &runtime)?;
    if what == "bare-lookup" {
        let key = record.body.correlation_keys.first().map(|key| (key.key.clone(), key.value.clone()));
        let (limit, found) = if key.is_some() { (1, 1) } else { (1000, usize::from(ROWS)) };
        let which = RecordFilter { correlation: key, ..RecordFilter::default() };
        for _ in 0..times {
            let page = runtime.block_on(runlog.records(RUN, &which, None, limit))?;
            ensure!(page.records.len() >= found, "they are found");
        }
        return Ok(());
    }
    let writer = runtime.block_on(runlog.writer(RUN))?;
    let (ours, theirs) = (unnamed(&made(&writer, &record, 0)?)?, unnamed(&record)?);
    ensure!(ours == theirs, "the records are not alike:\n{ours}\n{theirs}");
    for n in 0..times {
        runtime.block_on(writer.write(made(&writer, &record, n)?))?;
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, what, times] = arguments.as_slice() else { bail!("{arguments:?} are not PORT WHAT TIMES") };
    let (times, dir): (u8, _) = (times.parse()?, tempfile::tempdir()?);
    ensure!(times <= u8::MAX - ROWS, "at most {} times", u8::MAX - ROWS);
    let journal = Blocking::connect(Config::new(Journal::Local(dir.path().to_owned()), "agent"))?;
    let mut opened = Port::open(port, &journal)?;
    (0..ROWS).try_for_each(|_| opened.append())?;
    match what.as_str() {
        "append" => (0..times).try_for_each(|_| opened.append()),
        "lookup" => (0..times).try_for_each(|n| opened.lookup(n)),
        what => bare(journal.runlog(), what, times),
    }
}
