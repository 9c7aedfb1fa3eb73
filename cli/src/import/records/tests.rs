use super::*;
use crate::import::{json::Value, tau_bench};

const FILE: &str = r####"[{"task_id":0,"trial":1,"reward":1.0,"traj":[{"role":"system","content":"s"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"find","arguments":"{\"n\":12345678901234567890}"}},{"id":"c","function":{"name":"book","arguments":"{}"}},{"id":"d","function":{"name":"book","arguments":"{}"}}]},{"role":"tool","content":"{\"a\": 1}"},{"role":"tool","content":"Error: full"},{"role":"assistant","content":"sorry"},{"role":"user","content":"bye"}]}]"####;

fn run() -> ImportedRun {
    tau_bench::plan(&Value::whole(FILE)).unwrap().remove(0)
}

fn run_records() -> Vec<JournalRecord> {
    records(&run()).collect()
}

#[test]
fn the_records_of_a_run_are_the_same_every_time_with_uuid_v5_of_run_id_and_index_as_ids() {
    let records = run_records();
    assert_eq!(records, run_records(), "every time");
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
fn each_record_carries_the_hash_of_its_predecessor() {
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
fn a_checkpoint_covers_earlier_records_except_unanswered_calls() {
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
fn a_checkpoint_contains_its_new_messages_and_hashes_the_whole_list() {
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
