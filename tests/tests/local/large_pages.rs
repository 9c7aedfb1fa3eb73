//! A page of large records ends early, so that it needs little memory: records of a run, effects, and recoveries.

use runlog_schemas::{
    id::{PartitionId, RunId},
    partition::partition_of,
};
use runlog_tests::server::Launch;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The bound of a page, bytes.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// The size of a record's content, bytes.
const RECORD_BYTES: usize = 240 << 10;
const RECORDS: usize = 100;
/// Late results of each call.
const RESULTS: usize = 3;

#[test]
fn a_page_of_large_records_ends_early_and_the_next_page_continues() {
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).partitions(1).start().unwrap();
    for number in 0..RECORDS {
        let id = format!("r-{number}");
        let content = "x".repeat(RECORD_BYTES);
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": content });
        let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
        assert_eq!(server.post("/v1/runs/r/records", &record).unwrap().0, 200);
    }
    // All records of the run, the records of a family, and the facts at a time. Each masked, unmasked, and as whole records.
    for select in ["", "&family=conversation_turn", "&at=2999-01-01T00:00:00Z"] {
        for show in ["", "&raw=true", "&raw=true&whole=true"] {
            let (mut found, mut pages, mut cursor) = (Vec::new(), 0, String::new());
            loop {
                let path = format!("/v1/runs/r/records?limit=1000{select}{show}{cursor}");
                let (status, page) = server.get(&path).unwrap();
                assert_eq!(status, 200, "{path}: {page}");
                let records = page["records"].as_array().unwrap();
                assert!(records.len() * RECORD_BYTES <= PAGE_BYTES_MAX + RECORD_BYTES, "{path}: {}", records.len());
                found.extend(records.iter().map(|line| line["record_id"].as_str().unwrap().to_owned()));
                pages += 1;
                let Value::String(next) = &page["next_cursor"] else { break };
                cursor = format!("&cursor={next}");
            }
            let expected: Vec<_> = (0..RECORDS).map(|number| format!("r-{number}")).collect();
            assert_eq!(found, expected, "{select}{show}");
            assert_eq!(pages, 2, "{select}{show}");
        }
    }
}

#[test]
fn a_page_of_effects_with_large_arguments_ends_early_and_the_next_page_continues() {
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).partitions(1).start().unwrap();
    let content = "x".repeat(RECORD_BYTES);
    for number in 0..RECORDS {
        let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "book",
            "arguments": { "n": number, "content": content } });
        let record = json!({ "run_id": "r", "record_id": format!("q-{number}"), "payload": payload });
        assert_eq!(server.post("/v1/runs/r/records", &record).unwrap().1["outcome"], "applied");
    }
    let (mut found, mut pages, mut cursor) = (BTreeSet::new(), 0, String::new());
    loop {
        let (status, page) = server.get(&format!("/v1/effects?limit=1000&consistency=latest{cursor}")).unwrap();
        assert_eq!(status, 200, "{page}");
        let effects = page["effects"].as_array().unwrap();
        assert!(effects.len() * RECORD_BYTES <= PAGE_BYTES_MAX + RECORD_BYTES, "{}", effects.len());
        assert!(effects.iter().all(|effect| effect["arguments"]["content"] == content));
        found.extend(effects.iter().map(|effect| effect["arguments"]["n"].as_u64().unwrap()));
        pages += 1;
        let Value::String(next) = &page["next_cursor"] else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((found.len(), pages), (RECORDS, 2));
}

#[test]
fn a_page_of_effects_with_large_evidence_ends_early_and_the_next_page_continues() {
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).partitions(2).start().unwrap();
    // The maximum in a record itself: longer content is in the content store, and shown as its claim check.
    let content = "x".repeat(RECORD_BYTES);
    let post = |run: &str, path: &str, body: &Value| server.post(&format!("/v1/runs/{run}/{path}"), body).unwrap().1;
    let fill = |run: &str, calls: usize| {
        let record = |id: String, payload: &Value| json!({ "run_id": run, "record_id": id, "payload": payload });
        for number in 0..calls {
            let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "book",
                "arguments": { "n": number } });
            assert_eq!(post(run, "records", &record(format!("q-{number}"), &call))["outcome"], "applied");
        }
        // The claim fences every later record without a writer.
        post(run, "claims", &json!({}));
        for (number, nth) in (0..calls).flat_map(|number| (0..RESULTS).map(move |nth| (number, nth))) {
            let request = format!("q-{number}");
            let result = json!({ "type": "tool_call_completed", "request_record_id": request, "result": content });
            assert_eq!(post(run, "records", &record(format!("late-{number}-{nth}"), &result))["reason"], "fenced");
        }
    };
    let pages = |path: &str, list: &str| {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, page) = server.get(&format!("{path}{cursor}")).unwrap();
            assert_eq!(status, 200, "{page}");
            pages.push(page[list].as_array().unwrap().clone());
            let Value::String(next) = &page["next_cursor"] else { return pages };
            cursor = format!("&cursor={next}");
        }
    };
    // The bound holds per page, regardless of the number of partitions.
    let two_runs = |partition| {
        let is_in_partition = move |run: &String| partition_of(RunId::new(run.as_str()).unwrap(), 2) == partition;
        (0..).map(|number| format!("run-{number}")).filter(is_in_partition).take(2)
    };
    PartitionId::all(2).flat_map(two_runs).for_each(|run| fill(&run, 7));
    let listed = pages("/v1/effects?limit=1000&consistency=latest", "effects");
    // Evidence has its result in the payload and beside it.
    let full = PAGE_BYTES_MAX.div_ceil(2 * RESULTS * RECORD_BYTES);
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [full, full, 28 - 2 * full]);
    assert!((0..2).all(|partition| listed.concat().iter().any(|effect| effect["position"]["partition"] == partition)));
    fill("large", full + 1);
    let listed = pages("/v1/runs/large/recovery?limit=1000", "pending");
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [full, 1]);
}
