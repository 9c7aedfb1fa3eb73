//! The answers, as JSON with the fields of the interface; lists whole and in one order, paging being the product's.
//!
//! Times are milliseconds (`updated_at_millis`). A text without a specified wording, such as a reason, is a single
//! word.

mod recover;

use crate::{
    checkpoints::{self, Checkpoint},
    effects::{self, Effect, KINDS},
    fold::{Model, Partition},
    hashes,
    record::{answers, number, payload_member, payload_type, text},
    run::{Entry, Reason, Run, Verdict},
};
use serde_json::{Value, json};
use std::sync::Arc;

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

    /// A member of a record's payload, or the record that removed its content.
    pub(crate) fn content(&self, entry: &Entry, value: Value) -> Value {
        match self.partition.taken_by(&self.model.rules, entry) {
            Some((how, offset)) => json!({how: self.model.position(self.number, offset, 0)}),
            None => value,
        }
    }

    /// The payload of a record within an entry, or the record that removed its content.
    pub(crate) fn content_of(&self, entry: &Entry, record: &Value) -> Value {
        match self.partition.taken_from(&self.model.rules, entry, record) {
            Some((how, offset)) => json!({how: self.model.position(self.number, offset, 0)}),
            None => record["payload"].clone(),
        }
    }

    /// Names the record that removed a record's content; `None` while the content is kept.
    fn dropped_content(&self, entry: &Entry, record: &Value, index: u32) -> Option<Value> {
        let (how, offset) = self.partition.taken_from(&self.model.rules, entry, record)?;
        Some(json!({
            "record_id": text(record, "/record_id"),
            "payload_type": payload_type(record),
            "position": self.model.position(self.number, entry.offset, index),
            how: self.model.position(self.number, offset, 0),
        }))
    }

    fn is_dropped(&self, at: usize) -> bool {
        self.partition.taken_by(&self.model.rules, &self.run.entries[at]).is_some()
    }

    pub(crate) fn latest(&self, covers: u64) -> Option<Checkpoint> {
        checkpoints::latest(&self.model.rules, self.run, covers, |at| self.is_dropped(at))
    }

    pub(crate) fn effects(&self) -> Arc<Vec<Effect>> {
        effects::run_effects(&self.model.rules, self.run)
    }

    fn head(&self) -> Value {
        let writer = self.run.writer();
        let last = self.run.applied_entries().last();
        // A batch counts as its records, and not itself.
        let datums = self.run.applied_entries().map(|entry| entry.datums.first().map(String::as_str));
        json!({
            "run_id": self.run_id,
            "status": self.run.status(&self.model.rules),
            "records": self.run.applied_entries().count(),
            "next_journal_seq": self.run.next_journal_seq(&self.model.rules),
            "next_writer_seq": self.run.next_writer_seq(&self.model.rules),
            "next_checkpoint_seq": crate::checkpoints::highest_seq(self.run) + 1,
            "epoch": writer.epoch,
            "writer_id": writer.id.unwrap_or_default(),
            "updated_at_millis": last.map(|entry| entry.log_millis),
            "position": last.map_or_else(|| self.model.position(self.number, 0, 0), |entry| self.position(entry)),
            "hash": hashes::run_hash(datums),
        })
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
    fn runs_with_records(&self) -> Vec<Seen<'_>> {
        self.all_runs().into_iter().filter(|seen| seen.run.applied_entries().next().is_some()).collect()
    }

    /// Every run with a record, by id.
    fn all_runs(&self) -> Vec<Seen<'_>> {
        let mut seen = Vec::new();
        for (number, partition) in (0..).zip(&self.partitions) {
            let runs = partition.runs.iter();
            seen.extend(runs.map(|(run_id, run)| Seen { model: self, partition, number, run, run_id }));
        }
        seen.sort_by_key(|seen| (seen.run_id, seen.number));
        seen
    }

    pub(crate) fn run(&self, run_id: &str) -> Option<Seen<'_>> {
        self.run_with_effects(run_id).filter(|seen| seen.run.applied_entries().next().is_some())
    }

    /// A run, also if its only records are skipped or displaced requests.
    pub(crate) fn run_with_effects(&self, run_id: &str) -> Option<Seen<'_>> {
        (0..).zip(&self.partitions).find_map(|(number, partition)| {
            let (run_id, run) = partition.runs.get_key_value(run_id)?;
            Some(Seen { model: self, partition, number, run, run_id })
        })
    }

    /// `runs`: the heads, by run id.
    pub fn runs(&self) -> Value {
        json!({"runs": self.runs_with_records().iter().map(Seen::head).collect::<Vec<_>>()})
    }

    /// A run's head; null where the run is unknown.
    pub fn head(&self, run_id: &str) -> Value {
        self.run(run_id).map_or(Value::Null, |seen| seen.head())
    }

    /// `lookup`: an occurrence of a fingerprint, by default the last one.
    pub fn lookup(&self, run_id: &str, fingerprint: &str, occurrence: Option<u32>) -> Value {
        let unknown = |occurrences: usize| {
            json!({"status": "unknown", "fingerprint": fingerprint, "occurrence": occurrence, "occurrences": occurrences,
                   "tool_name": null, "arguments": null, "result": null, "error": null, "position": null, "dropped": [],
                   "contradicted": false})
        };
        let Some(seen) = self.run_with_effects(run_id) else { return unknown(0) };
        let effects = seen.effects();
        let calls: Vec<&Effect> =
            effects.iter().filter(|call| call.fingerprint.as_deref() == Some(fingerprint)).collect();
        let wanted = occurrence.unwrap_or(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        let found = calls.iter().find(|call| call.occurrence == Some(wanted) && call.kind == KINDS[0]);
        let Some(call) = found else { return unknown(calls.len()) };
        let request = call.entry(seen.run, call.request);
        let (mut result, mut error) = effects::outcome(seen.run, call);
        let mut arguments = payload_member(&request.record, "arguments");
        let mut dropped: Vec<Value> = Vec::new();
        if let Some(row) = seen.dropped_content(request, &request.record, request.index) {
            arguments = Value::Null;
            dropped.push(row);
        }
        let adopted = call.adopted.map(|adopted| &call.evidence[adopted]);
        if let Some(entry) = call.content.map(|at| &seen.run.entries[at]) {
            let (record, index) = adopted.map_or((&*entry.record, entry.index), |one| (&one.result, one.index));
            if let Some(row) = seen.dropped_content(entry, record, index) {
                (result, error) = (Value::Null, Value::Null);
                dropped.push(row);
            }
        }
        json!({
            "status": call.status,
            "fingerprint": fingerprint,
            "occurrence": wanted,
            "occurrences": calls.len(),
            "tool_name": call.tool_name,
            "arguments": arguments,
            "result": result,
            "error": error,
            "position": seen.position(call.entry(seen.run, call.set_by)),
            "dropped": dropped,
            "contradicted": call.contradictions > 0,
        })
    }

    /// `checkpoint`: the latest valid checkpoint that covers at most `at_or_before`, in full; null if absent.
    pub fn checkpoint(&self, run_id: &str, at_or_before: Option<u64>) -> Value {
        let Some(seen) = self.run(run_id) else { return Value::Null };
        seen.latest(at_or_before.unwrap_or(u64::MAX)).map_or(Value::Null, |checkpoint| seen.checkpoint(&checkpoint))
    }

    /// `effects`: the pending effects of all runs, or all effects.
    pub fn effects(&self, only_pending: bool) -> Value {
        let row = |seen: &Seen<'_>, effect: &Effect| {
            let pending = effect.pending();
            let pending_view = seen.pending(effect);
            let status = if pending { "pending" } else { &effect.status };
            let started = effect.entry(seen.run, effect.started);
            json!({
                "run_id": seen.run_id,
                "position": seen.position(effect.entry(seen.run, effect.request)),
                "kind": effect.kind,
                "id": effect.id,
                "tool_name": effect.tool_name,
                "fingerprint": effect.fingerprint,
                "occurrence": effect.occurrence,
                "status": status,
                "class": if pending { pending_view["class"].clone() } else { Value::Null },
                "reason": if pending { pending_view["reason"].clone() } else { Value::Null },
                "evidence": seen.evidence(effect),
                "evidence_dropped": effect.discarded,
                "contradicting": seen.contradicting(effect),
                "contradictions": effect.contradictions,
                "revision": if pending { pending_view["revision"].clone() } else { Value::Null },
                "basis": if pending { pending_view["basis"].clone() } else { Value::Null },
                "since_millis": started.log_millis,
                "agent_id": text(&started.record, "/agent_id"),
                "writer_id": text(&started.record, "/writer_id"),
                "epoch": number(&started.record, "/writer_epoch"),
                "attempts": effect.starts,
                "idempotency_key": effect.key,
                "dedupe_key": effect.dedupe_key,
            })
        };
        let of_run = |seen: &Seen<'_>| -> Vec<Value> {
            let effects = seen.effects();
            let listed = effects.iter().filter(|effect| KINDS.contains(&effect.kind));
            listed.filter(|effect| !only_pending || effect.pending()).map(|effect| row(seen, effect)).collect()
        };
        json!({"effects": self.all_runs().iter().flat_map(of_run).collect::<Vec<_>>()})
    }

    /// `standing`: returns the open or ended items of a family (`approval`, `wake`, `run_message`, `write_back`,
    /// `code_edit_proposal`, `agent_pool`) in one run, by id.
    pub fn family_items(&self, run_id: &str, family: &str, ended: bool) -> Value {
        json!({"standing": self.run(run_id).map(|seen| seen.family_items(family, ended)).unwrap_or_default()})
    }

    /// `anomalies`: the refused records, of a run or of all runs, by partition and offset.
    pub fn anomalies(&self, run_id: Option<&str>) -> Value {
        let mut rows: Vec<((u32, u64, u32), Value)> = Vec::new();
        for (number, partition) in (0..).zip(&self.partitions) {
            let mut add = |(offset, index): (u64, u32), record: &Value, reason: Reason| {
                if run_id.is_none_or(|run_id| run_id == text(record, "/run_id")) {
                    let position = self.position(number, offset, index);
                    rows.push(((number, offset, index), anomaly(&position, record, reason)));
                }
            };
            for entry in partition.runs.values().flat_map(|run| &run.entries) {
                if let Verdict::Refused(reason) = entry.verdict {
                    add((entry.offset, entry.index), &entry.record, reason);
                }
            }
            for delivery in partition.strays.iter().map(|row| &row.delivery) {
                if let Some(record) = delivery.what.record() {
                    add((delivery.offset, 0), record, Reason::WrongPartition);
                }
            }
        }
        rows.sort_by_key(|(at, _)| *at);
        json!({"anomalies": rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>()})
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

    /// `outcome`: the outcome of the record at a position; null if no record was judged there. With the id of an
    /// applied batch it is the batch's own outcome, regardless of its first record's.
    pub fn outcome(&self, partition: u32, offset: u64, index: u32, record_id: &str) -> Value {
        let Some(rows) = self.partitions.get(partition as usize) else { return Value::Null };
        let stray = rows.strays.iter().find(|row| row.delivery.offset == offset);
        if let Some(record) = stray.and_then(|row| row.delivery.what.record()) {
            let reason = Some(Reason::WrongPartition);
            return self.outcome_row((partition, offset, 0), "refused", reason, text(record, "/record_id"));
        }
        let judged = |entry: &&Entry| !matches!(entry.verdict, Verdict::Skipped { .. });
        let here = |entry: &&Entry| entry.offset == offset && !entry.envelope && judged(entry);
        // An outcome of a batch as a whole is the outcome of each of its records.
        let whole = |entry: &&Entry| here(entry) && entry.kind == "batch";
        let envelope = |entry: &Entry| entry.envelope && entry.offset == offset && entry.id == record_id;
        if rows.runs.values().flat_map(|run| &run.entries).any(envelope) {
            return self.outcome_row((partition, offset, 0), "applied", None, record_id);
        }
        let of = |run: &'_ Run| -> Option<usize> {
            run.entries.iter().position(|entry| here(&entry) && (entry.index == index || whole(&entry)))
        };
        let Some((run, at)) = rows.runs.values().find_map(|run| of(run).map(|at| (run, at))) else {
            return Value::Null;
        };
        let entry = &run.entries[at];
        let place = (partition, entry.offset, entry.index);
        match entry.verdict {
            Verdict::Applied => self.outcome_row(place, "applied", None, &entry.id),
            Verdict::Refused(reason) => self.outcome_row(place, "refused", Some(reason), &entry.id),
            Verdict::Repeat(first) => {
                let mut first = &run.entries[first];
                let reason = match first.verdict {
                    Verdict::Refused(reason) => Some(reason),
                    _ => None,
                };
                // Each record of an applied batch has a position of its own.
                let within = run.entries.iter().find(|other| other.counts() && other.id == record_id);
                if let Some(within) = within.filter(|_| first.envelope && first.id != record_id) {
                    first = within;
                }
                self.outcome_row((partition, first.offset, first.index), "repeat", reason, &entry.id)
            }
            Verdict::Skipped { .. } => Value::Null,
        }
    }

    /// Returns the outcome of the first record with an id that was applied, or refused for its content; null without such a record.
    pub fn first_outcome(&self, run_id: &str, record_id: &str) -> Value {
        let number = hashes::partition_of(run_id, self.journal.partitions);
        let run = self.partitions.get(number as usize).and_then(|partition| partition.runs.get(run_id));
        let first = run.and_then(|run| run.by_id(record_id));
        let Some(entry) = first else { return Value::Null };
        let place = (number, entry.offset, if entry.envelope { 0 } else { entry.index });
        match entry.verdict {
            Verdict::Refused(reason) => self.outcome_row(place, "refused", Some(reason), record_id),
            _ => self.outcome_row(place, "applied", None, record_id),
        }
    }

    fn outcome_row(&self, at: (u32, u64, u32), outcome: &str, reason: Option<Reason>, record_id: &str) -> Value {
        json!({
            "position": self.position(at.0, at.1, at.2),
            "outcome": outcome,
            "reason": reason.map(Reason::as_str),
            "record_id": record_id,
            "record_writer": self.record_writer(at),
        })
    }

    /// Who wrote the record at a place; of a batch as a whole, and of each of its records, the batch's writer.
    fn record_writer(&self, (partition, offset, index): (u32, u64, u32)) -> Value {
        let rows = &self.partitions[partition as usize];
        let entries = rows.runs.values().flat_map(|run| &run.entries).filter(|entry| entry.offset == offset);
        let entry = entries.min_by_key(|entry| (entry.index != index, entry.envelope));
        let stray = || rows.strays.iter().find(|row| row.delivery.offset == offset)?.delivery.what.record();
        let record = entry.map(|entry| &*entry.record).or_else(stray);
        record.map_or(
            Value::Null,
            |record| json!({"writer_id": text(record, "/writer_id"), "epoch": number(record, "/writer_epoch")}),
        )
    }

    /// `show`: a run's applied records, in log order.
    pub fn show(&self, run_id: &str) -> Value {
        let Some(seen) = self.run(run_id) else { return json!({"records": []}) };
        let line = |entry: &Entry| {
            json!({
                "position": seen.position(entry),
                "run_id": run_id,
                "journal_seq": number(&entry.record, "/journal_seq"),
                "writer_seq": number(&entry.record, "/writer_seq"),
                "record_id": entry.id,
                "payload_type": payload_type(&entry.record),
                "answers": answers(&entry.record),
                "epoch": number(&entry.record, "/writer_epoch"),
                "timestamp_millis": number(&entry.record, "/timestamp_millis"),
                "payload": seen.content(entry, entry.record["payload"].clone()),
            })
        };
        json!({"records": seen.run.applied_entries().map(line).collect::<Vec<_>>()})
    }

    /// `doctor`'s partitions: the next offset to apply, and why one stopped.
    pub fn partitions(&self) -> Value {
        let row = |(number, partition): (u32, &Partition)| {
            json!({
                "partition": number,
                "applied": partition.next,
                "state": if partition.stopped.is_some() { "stopped" } else { "running" },
                "error": partition.stopped.as_ref().map(|(why, _)| why),
                "stopped_at": partition.stopped.as_ref().map(|(_, offset)| offset),
            })
        };
        json!({"partitions": (0..).zip(&self.partitions).map(row).collect::<Vec<_>>()})
    }

    /// The fingerprints of a run's calls, each once, with how many requests it has.
    pub fn fingerprints(&self, run_id: &str) -> Vec<(String, u32)> {
        let mut counts: Vec<(String, u32)> = Vec::new();
        for call in self.run_with_effects(run_id).map(|seen| seen.effects()).unwrap_or_default().iter() {
            let (Some(fingerprint), Some(occurrence)) = (&call.fingerprint, call.occurrence) else { continue };
            match counts.iter_mut().find(|(known, _)| known == fingerprint) {
                Some(known) => known.1 = known.1.max(occurrence),
                None => counts.push((fingerprint.clone(), occurrence)),
            }
        }
        counts
    }

    /// The families of [`Model::family_items`].
    pub const FAMILIES: [&str; 6] =
        ["approval", "wake", "run_message", "write_back", "code_edit_proposal", "agent_pool"];

    /// Every answer, for comparing whole models.
    pub fn everything(&self) -> Value {
        let mut runs = Vec::new();
        for seen in self.runs_with_records() {
            let lookups = self.fingerprints(seen.run_id).into_iter().flat_map(|(fingerprint, occurrences)| {
                (1..=occurrences)
                    .map(|occurrence| self.lookup(seen.run_id, &fingerprint, Some(occurrence)))
                    .collect::<Vec<_>>()
            });
            let standing = |family| [false, true].map(|ended| self.family_items(seen.run_id, family, ended));
            runs.push(json!({
                "recover": self.recover(seen.run_id),
                "lookups": lookups.collect::<Vec<_>>(),
                "checkpoint": self.checkpoint(seen.run_id, None),
                "standing": Self::FAMILIES.map(standing),
                "show": self.show(seen.run_id),
                "facts": self.times(seen.run_id).into_iter().map(|at| self.facts(seen.run_id, at)).collect::<Vec<_>>(),
            }));
        }
        let run_ids: Vec<String> = self.runs_with_records().iter().map(|seen| seen.run_id.to_owned()).collect();
        let events = Self::event_questions(&run_ids).iter().map(|filter| self.events(filter)).collect::<Vec<_>>();
        let offsets = self.partitions.iter().flat_map(|partition| &partition.log);
        let outcomes: Vec<Value> =
            offsets.map(|delivery| self.outcome(delivery.partition, delivery.offset, 0, "")).collect();
        json!({
            "partitions": self.partitions(), "runs": self.runs(), "of_runs": runs, "effects": self.effects(false),
            "anomalies": self.anomalies(None), "dead_letters": self.dead_letters(), "outcomes": outcomes,
            "events": events,
        })
    }
}

fn anomaly(position: &Value, record: &Value, reason: Reason) -> Value {
    json!({
        "position": position,
        "run_id": text(record, "/run_id"),
        "record_id": text(record, "/record_id"),
        "reason": reason.as_str(),
        "writer_id": text(record, "/writer_id"),
        "epoch": number(record, "/writer_epoch"),
    })
}
