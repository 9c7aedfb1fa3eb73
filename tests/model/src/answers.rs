//! The answers, as JSON with the fields of the interface; lists whole and in one order, paging being the product's.
//!
//! Times stand as milliseconds (`updated_at_millis`). What no document fixes (the wording of reasons) stands as one word.

mod recover;

use crate::{
    checkpoints::{self, Checkpoint},
    effects::{self, Effect},
    fold::{Model, Partition},
    hashes,
    record::{inner, number, payload_member, payload_type, text},
    run::{Entry, Reason, Run, Verdict},
};
use serde_json::{Value, json};

/// A run with the partition that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) model: &'a Model,
    pub(crate) partition: &'a Partition,
    pub(crate) number: u32,
    pub(crate) run: &'a Run,
    pub(crate) run_id: &'a str,
}

impl Seen<'_> {
    pub(crate) fn position(&self, entry: &Entry) -> Value {
        self.model.position(self.number, entry.offset, entry.index)
    }

    /// A member of a record's payload, or who took it away.
    pub(crate) fn content(&self, entry: &Entry, value: Value) -> Value {
        match self.partition.taken_by(&self.model.rules, entry) {
            Some((how, offset)) => json!({how: self.model.position(self.number, offset, 0)}),
            None => value,
        }
    }

    fn gone(&self, at: usize) -> bool {
        self.partition.taken_by(&self.model.rules, &self.run.entries[at]).is_some()
    }

    pub(crate) fn latest(&self, covers: u64) -> Option<Checkpoint> {
        checkpoints::latest(&self.model.rules, self.run, covers, |at| self.gone(at))
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        effects::of(&self.model.rules, self.run)
    }

    fn head(&self) -> Value {
        let writer = self.run.writer();
        let last = self.run.applied().last();
        // A batch is one datum.
        let whole = |entry: &&Entry| entry.verdict == Verdict::Applied && (entry.envelope || !self.within(entry));
        let datums = self.run.entries.iter().filter(whole);
        json!({
            "run_id": self.run_id,
            "status": self.run.status(),
            "records": self.run.applied().count(),
            "next_journal_seq": self.run.next_journal_seq(&self.model.rules),
            "next_writer_seq": self.run.next_writer_seq(&self.model.rules),
            "epoch": writer.epoch,
            "writer_id": writer.id,
            "updated_at_millis": last.map(|entry| entry.log_millis),
            "position": last.map(|entry| self.position(entry)),
            "hash": hashes::run_hash(datums.map(|entry| entry.datum_sha256.as_deref())),
        })
    }

    /// Whether an entry stands within a batch.
    fn within(&self, entry: &Entry) -> bool {
        self.run.entries.iter().any(|other| other.envelope && other.offset == entry.offset) && !entry.envelope
    }

    fn checkpoint(&self, checkpoint: &Checkpoint) -> Value {
        let entry = &self.run.entries[checkpoint.at];
        json!({
            "checkpoint_id": checkpoint.id,
            "covers_journal_seq": checkpoint.covers,
            "checkpoint_seq": number(&entry.record, "/payload/checkpoint_seq"),
            "schema_version": number(&entry.record, "/payload/schema_version"),
            "messages": checkpoint.messages,
            "state": payload_member(&entry.record, "state"),
            "unanswered": crate::record::list(&entry.record, "/payload/unanswered"),
            "position": self.position(entry),
        })
    }
}

impl Model {
    pub(crate) fn position(&self, partition: u32, offset: u64, index: u32) -> Value {
        json!({"topic": self.journal.topic, "partition": partition, "offset": offset, "index": index})
    }

    /// Every run with at least one applied record, by id.
    fn seen(&self) -> Vec<Seen<'_>> {
        let mut seen = Vec::new();
        for (number, partition) in (0..).zip(&self.partitions) {
            let runs = partition.runs.iter().filter(|(_, run)| run.applied().next().is_some());
            seen.extend(runs.map(|(run_id, run)| Seen { model: self, partition, number, run, run_id }));
        }
        seen.sort_by_key(|seen| (seen.run_id, seen.number));
        seen
    }

    pub(crate) fn run(&self, run_id: &str) -> Option<Seen<'_>> {
        self.seen().into_iter().find(|seen| seen.run_id == run_id)
    }

    /// `runs`: the heads, by run id.
    pub fn runs(&self) -> Value {
        json!({"runs": self.seen().iter().map(Seen::head).collect::<Vec<_>>()})
    }

    /// `lookup`: an occurrence of a fingerprint, the last one where none is named.
    pub fn lookup(&self, run_id: &str, fingerprint: &str, occurrence: Option<u32>) -> Value {
        let unknown = |occurrences: usize| {
            json!({"status": "unknown", "fingerprint": fingerprint, "occurrence": occurrence, "occurrences": occurrences,
                   "tool_name": null, "arguments": null, "result": null, "error": null, "position": null})
        };
        let Some(seen) = self.run(run_id) else { return unknown(0) };
        let calls: Vec<Effect> = seen
            .effects()
            .into_iter()
            .filter(|call| call.kind == "tool_call" && call.fingerprint == fingerprint)
            .collect();
        let wanted = occurrence.unwrap_or(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        let Some(call) = calls.iter().find(|call| call.occurrence == wanted) else { return unknown(calls.len()) };
        let request = &seen.run.entries[call.request];
        let (result, error) = effects::outcome(seen.run, call);
        let told = |value: Value| match call.content {
            Some(at) if !value.is_null() => seen.content(&seen.run.entries[at], value),
            _ => value,
        };
        json!({
            "status": call.status,
            "fingerprint": fingerprint,
            "occurrence": wanted,
            "occurrences": calls.len(),
            "tool_name": call.tool_name,
            "arguments": seen.content(request, payload_member(&request.record, "arguments")),
            "result": told(result),
            "error": told(error),
            "position": seen.position(&seen.run.entries[call.set_by]),
        })
    }

    /// `checkpoint`: the latest valid one that covers at most `at_or_before`, whole; null where there is none.
    pub fn checkpoint(&self, run_id: &str, at_or_before: Option<u64>) -> Value {
        let Some(seen) = self.run(run_id) else { return Value::Null };
        seen.latest(at_or_before.unwrap_or(u64::MAX)).map_or(Value::Null, |checkpoint| seen.checkpoint(&checkpoint))
    }

    /// `effects --pending`: over all runs, by run id and request.
    pub fn effects(&self) -> Value {
        let of_run = |seen: &Seen<'_>| -> Vec<Value> {
            let pending = seen.effects().into_iter().filter(Effect::pending);
            pending
                .map(|effect| {
                    let mut row = seen.pending(&effect);
                    row["run_id"] = seen.run_id.into();
                    row["position"] = seen.position(&seen.run.entries[effect.request]);
                    row
                })
                .collect()
        };
        json!({"effects": self.seen().iter().flat_map(of_run).collect::<Vec<_>>()})
    }

    /// `anomalies`: what was refused, of a run or of all, by partition and offset.
    pub fn anomalies(&self, run_id: Option<&str>) -> Value {
        let mut rows: Vec<((u32, u64), Value)> = Vec::new();
        for (number, partition) in (0..).zip(&self.partitions) {
            let mut add = |offset: u64, record: &Value, reason: Reason| {
                if run_id.is_none_or(|run_id| run_id == text(record, "/run_id")) {
                    rows.push(((number, offset), self.anomaly(number, offset, record, reason)));
                }
            };
            for entry in partition.runs.values().flat_map(|run| &run.entries) {
                if let Verdict::Refused(reason) = entry.verdict {
                    add(entry.offset, &entry.record, reason);
                }
            }
            for delivery in partition.strays.iter().map(|row| &row.delivery) {
                if let Some(record) = delivery.what.record() {
                    add(delivery.offset, record, Reason::WrongPartition);
                }
            }
        }
        rows.sort_by_key(|(at, _)| *at);
        json!({"anomalies": rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>()})
    }

    fn anomaly(&self, partition: u32, offset: u64, record: &Value, reason: Reason) -> Value {
        json!({
            "position": self.position(partition, offset, 0),
            "run_id": text(record, "/run_id"),
            "record_id": text(record, "/record_id"),
            "reason": reason.as_str(),
            "writer_id": text(record, "/writer_id"),
            "epoch": number(record, "/writer_epoch"),
        })
    }

    /// `dead-letter list`, by partition and offset.
    pub fn dead_letters(&self) -> Value {
        let rows = self.partitions.iter().flat_map(|partition| &partition.dead).map(|row| &row.delivery);
        let rows = rows.filter_map(|delivery| match &delivery.what {
            crate::delivery::What::Unreadable { reason, sha256, bytes } => Some(json!({
                "position": self.position(delivery.partition, delivery.offset, 0),
                "reason": reason, "sha256": sha256, "bytes": bytes,
            })),
            _ => None,
        });
        json!({"records": rows.collect::<Vec<_>>()})
    }

    /// `outcome`: what became of the record at a position; null where none was judged there.
    pub fn outcome(&self, partition: u32, offset: u64, index: u32) -> Value {
        let Some(rows) = self.partitions.get(partition as usize) else { return Value::Null };
        let entries = || rows.runs.values().flat_map(|run| run.entries.iter().map(move |entry| (run, entry)));
        let stray =
            rows.strays.iter().find(|row| row.delivery.offset == offset).and_then(|row| row.delivery.what.record());
        if let Some(record) = stray {
            return self.told(
                (partition, offset, index),
                "refused",
                Some(Reason::WrongPartition),
                text(record, "/record_id"),
            );
        }
        let here = |entry: &Entry| entry.offset == offset && !entry.envelope;
        let found = entries().find(|(_, entry)| {
            let whole = || inner(&entry.record).len() as u64 > u64::from(index) && entry.verdict != Verdict::Applied;
            here(entry) && (entry.index == index || whole())
        });
        let Some((run, entry)) = found else { return Value::Null };
        match entry.verdict {
            Verdict::Applied => self.told((partition, offset, index), "applied", None, &entry.id),
            Verdict::Refused(reason) => self.told((partition, offset, index), "refused", Some(reason), &entry.id),
            Verdict::Repeat(first) => {
                let first = &run.entries[first];
                let reason = match first.verdict {
                    Verdict::Refused(reason) => Some(reason),
                    _ => None,
                };
                self.told((partition, first.offset, first.index), "repeat", reason, &entry.id)
            }
        }
    }

    fn told(&self, at: (u32, u64, u32), outcome: &str, reason: Option<Reason>, record_id: &str) -> Value {
        json!({
            "position": self.position(at.0, at.1, at.2),
            "outcome": outcome,
            "reason": reason.map(Reason::as_str),
            "record_id": record_id,
        })
    }

    /// `show`: a run's applied records, in log order.
    pub fn show(&self, run_id: &str) -> Value {
        let Some(seen) = self.run(run_id) else { return json!({"records": []}) };
        let line = |entry: &Entry| {
            json!({
                "position": seen.position(entry),
                "journal_seq": number(&entry.record, "/journal_seq"),
                "writer_seq": number(&entry.record, "/writer_seq"),
                "record_id": entry.id,
                "payload_type": payload_type(&entry.record),
                "epoch": number(&entry.record, "/writer_epoch"),
                "payload": seen.content(entry, entry.record["payload"].clone()),
            })
        };
        json!({"records": seen.run.applied().map(line).collect::<Vec<_>>()})
    }

    /// `doctor`'s partitions: the next offset to apply, and why one stopped.
    pub fn partitions(&self) -> Value {
        let row = |(number, partition): (u32, &Partition)| {
            json!({
                "partition": number,
                "applied": partition.next,
                "state": if partition.stopped.is_some() { "stopped" } else { "running" },
                "error": partition.stopped.as_ref().map(|(why, _)| why),
            })
        };
        json!({"partitions": (0..).zip(&self.partitions).map(row).collect::<Vec<_>>()})
    }

    /// Every answer there is, for whoever compares whole models.
    pub fn everything(&self) -> Value {
        let mut runs = Vec::new();
        for seen in self.seen() {
            let mut calls: Vec<Effect> = seen.effects();
            calls.retain(|call| call.kind == "tool_call");
            let lookup = |call: &Effect| self.lookup(seen.run_id, &call.fingerprint, Some(call.occurrence));
            runs.push(json!({
                "recover": self.recover(seen.run_id),
                "lookups": calls.iter().map(lookup).collect::<Vec<_>>(),
                "checkpoint": self.checkpoint(seen.run_id, None),
                "show": self.show(seen.run_id),
                "facts": self.facts(seen.run_id, i64::MAX),
            }));
        }
        let offsets = self.partitions.iter().flat_map(|partition| &partition.log);
        let outcomes: Vec<Value> =
            offsets.map(|delivery| self.outcome(delivery.partition, delivery.offset, 0)).collect();
        json!({
            "partitions": self.partitions(), "runs": self.runs(), "of_runs": runs, "effects": self.effects(),
            "anomalies": self.anomalies(None), "dead_letters": self.dead_letters(), "outcomes": outcomes,
        })
    }
}
