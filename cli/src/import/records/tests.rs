use std::collections::HashMap;
use std::convert::Infallible;

use runlog_schemas::codec::{self, Envelope};
use runlog_schemas::id::ContentHash;
use runlog_schemas::judge::lifecycle::{Family, State};
use runlog_schemas::judge::{
    CallState, CallStatus, CheckpointState, FirstJudgement, Head, PendingEffect, RunStatus, Verdict, View, judge,
};

use super::*;
use crate::import::{json::Value, tau_bench};

/// The simplest state of one run that the judge needs.
#[derive(Default)]
pub(in crate::import) struct Journal {
    pub(in crate::import) head: Head,
    seen: HashMap<RecordId, FirstJudgement>,
    calls: HashMap<RecordId, CallState>,
    /// The length of each checkpoint's message list.
    checkpoints: HashMap<String, u64>,
}

impl View for &Journal {
    type Error = Infallible;

    fn head(&mut self) -> Result<Head, Infallible> {
        Ok(self.head.clone())
    }

    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<FirstJudgement>, Infallible> {
        Ok(self.seen.get(record_id.as_str()).cloned())
    }

    /// Imports use no id twice.
    fn seen_conflict(&mut self, _: RecordId<&str>, _: ContentHash) -> Result<Option<FirstJudgement>, Infallible> {
        Ok(None)
    }

    fn call(&mut self, request: RecordId<&str>) -> Result<Option<CallState>, Infallible> {
        Ok(self.calls.get(request.as_str()).cloned())
    }

    /// Imports write no records with a lifecycle.
    fn state(&mut self, _: Family, _: &str) -> Result<Option<State>, Infallible> {
        Ok(None)
    }

    /// Imports write no decisions.
    fn pending_effect(&mut self, _: RecordId<&str>) -> Result<Option<PendingEffect>, Infallible> {
        Ok(None)
    }

    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, Infallible> {
        let messages = self.checkpoints.get(checkpoint_id);
        Ok(messages.map(|messages| CheckpointState { messages: *messages, pruned: false }))
    }

    /// These tests do not check sizes.
    fn message_bytes(&mut self, _: &str, _: u64, _: u64) -> Result<u64, Infallible> {
        Ok(0)
    }
}

impl Journal {
    /// Judges a record like a record from the log.
    pub(in crate::import) fn take(&mut self, record: &JournalRecord) -> Verdict {
        let bytes = codec::encode(record);
        let envelope = codec::read(&bytes).unwrap();
        let Ok(verdict) = judge(&envelope, &mut &*self);
        if let Verdict::Applied { head, .. } = &verdict {
            self.head = head.clone();
            self.apply(&envelope);
        }
        verdict
    }

    fn apply(&mut self, record: &Envelope<'_>) {
        let seen = FirstJudgement { content_hash: record.content_hash(), offset: 0.into(), index: 0, refused: None };
        self.seen.insert(record.record_id.to_owned(), seen);
        if let Some(id) = &record.facts.checkpoint_id {
            assert!(record.facts.spans.is_empty(), "an imported list only grows");
            let base = record.facts.base.as_ref().map_or(0, |base| self.checkpoints[base]);
            self.checkpoints.insert(id.clone(), base + record.facts.message_bytes.len() as u64);
        }
        let pending = CallState { status: CallStatus::Pending, outcome_hash: None, has_evidence: false };
        match record.facts.payload_type.as_str() {
            "tool_call_requested" => {
                self.calls.insert(record.record_id.to_owned(), pending);
            }
            "tool_call_completed" | "tool_call_failed" => {
                let ended = CallState { status: CallStatus::Completed, ..pending };
                self.calls.insert(record.facts.answers.clone().unwrap(), ended);
            }
            _ => {}
        }
    }
}

const FILE: &str = r####"[{"task_id":0,"trial":1,"reward":1.0,"traj":[{"role":"system","content":"s"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"find","arguments":"{\"n\":12345678901234567890}"}},{"id":"c","function":{"name":"book","arguments":"{}"}},{"id":"d","function":{"name":"book","arguments":"{}"}}]},{"role":"tool","content":"{\"a\": 1}"},{"role":"tool","content":"Error: full"},{"role":"assistant","content":"sorry"},{"role":"user","content":"bye"}]}]"####;

fn run() -> ImportedRun {
    tau_bench::plan(&Value::whole(FILE)).unwrap().remove(0)
}

fn run_records() -> Vec<JournalRecord> {
    records(&run()).collect()
}

#[test]
fn the_records_of_a_run_are_the_same_every_time_and_importing_again_changes_nothing() {
    let first = run_records();
    assert_eq!(first, run_records());
    let mut journal = Journal::default();
    for record in &first {
        assert!(matches!(journal.take(record), Verdict::Applied { no_op: false, .. }), "{:?}", record.body.facts);
    }
    assert_eq!((journal.head.status, journal.head.next_journal_seq), (RunStatus::Completed, 14.into()));
    for record in &first {
        assert!(matches!(journal.take(record), Verdict::Repeat { .. }));
    }
}

#[test]
fn an_import_killed_halfway_and_repeated_completes() {
    let all = run_records();
    let mut journal = Journal::default();
    all[..7].iter().for_each(|record| drop(journal.take(record)));
    let verdicts: Vec<_> = all.iter().map(|record| matches!(journal.take(record), Verdict::Applied { .. })).collect();
    assert_eq!(verdicts, (0..all.len()).map(|index| index >= 7).collect::<Vec<_>>());
}

#[test]
fn ids_are_uuid_v5_of_run_id_and_index() {
    let records = run_records();
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_URL, b"urn:runlog:import");
    let writer = Uuid::new_v5(&namespace, b"tau-bench:0:1");
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.place.writer_id.as_str(), writer.to_string());
        assert_eq!(record.body.record_id.as_str(), Uuid::new_v5(&writer, index.to_string().as_bytes()).to_string());
        assert_eq!((record.place.writer_epoch, record.place.writer_seq.get()), (Epoch::ZERO, index as u64 + 1));
        assert_eq!(record.place.timestamp_millis, index as u64 * 1000);
    }
}

#[test]
fn each_record_carries_the_hash_of_the_one_before() {
    let records = run_records();
    assert_eq!(records[0].place.prev_hash, None);
    for pair in records.windows(2) {
        assert_eq!(pair[1].place.prev_hash, Some(pair[0].content_hash().into()));
    }
}

#[test]
fn calls_keep_their_arguments_and_results_to_the_letter() {
    let records = run_records();
    let Payload::ToolCallRequested(call) = &records[3].payload else { panic!("{:?}", records[3].payload) };
    assert_eq!((call.request_id.as_str(), call.call_id.as_str(), call.tool_name.as_str()), ("message-1", "c", "find"));
    assert_eq!(call.parent_id.as_deref(), Some("message-1"));
    assert_eq!(call.arguments.as_ref().unwrap().as_str(), r#"{"n":12345678901234567890}"#);
    assert_eq!(call.clone(), call.clone().seal().unwrap());
    let Payload::ToolCallCompleted(completed) = &records[6].payload else { panic!("{:?}", records[6].payload) };
    assert_eq!(completed.request_record_id, records[3].body.record_id);
    assert_eq!(completed.result.as_ref().unwrap().as_str(), r#""{\"a\": 1}""#);
    let Payload::ToolCallFailed(failed) = &records[8].payload else { panic!("{:?}", records[8].payload) };
    assert_eq!((&failed.request_record_id, failed.error_message.as_str()), (&records[4].body.record_id, "Error: full"));
}

#[test]
fn a_checkpoint_covers_what_is_before_it_but_for_the_calls_without_answer() {
    let run = run();
    let records: Vec<_> = records(&run).collect();
    // The round of three calls has two results: the first checkpoint belongs to the message after it.
    let Payload::LoopCheckpoint(checkpoint) = &records[11].payload else { panic!("{:?}", records[11].payload) };
    assert_eq!(checkpoint.covers_journal_seq, records[10].place.journal_seq);
    assert_eq!(records[11].place.journal_seq, JournalSeq::ZERO);
    assert_eq!(checkpoint.unanswered, [records[5].body.record_id.clone()]);
    assert_eq!((&checkpoint.base, &checkpoint.messages[..]), (&None, &run.messages[..5]));
    assert_eq!((checkpoint.checkpoint_seq, checkpoint.tool_calls_count), (1, 2));
    assert_eq!(checkpoint.state_hash, checkpoint.content_hash());
}

#[test]
fn a_checkpoint_brings_the_messages_since_the_one_before_and_hashes_all_of_them() {
    let file = r#"[{"task_id":0,"trial":1,"reward":1.0,"traj":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}]"#;
    let run = tau_bench::plan(&Value::whole(file)).unwrap().remove(0);
    let saved: Vec<_> = records(&run)
        .filter_map(|record| match record.payload {
            Payload::LoopCheckpoint(checkpoint) => Some(checkpoint),
            _ => None,
        })
        .collect();
    assert_eq!((&saved[0].base, &saved[0].messages[..]), (&None, &run.messages[..2]));
    assert_eq!((saved[1].base.as_deref(), &saved[1].messages[..]), (Some("checkpoint-1"), &run.messages[2..]));
    let hashes: Vec<_> = run.messages.iter().map(messages::hash).collect();
    assert_eq!(saved[1].state_hash, saved[1].hash_with(&hashes));
}
