//! Pages of large records end before they take much memory, whatever of the records they show.

#![allow(clippy::unwrap_used, reason = "tests")]

use runlog_tests::server::Launch;
use serde_json::{Value, json};

/// The bound of a page, and what a record of the run has; bytes.
const PAGE_BYTES_MAX: usize = 16 << 20;
const RECORD_BYTES: usize = 240 << 10;
const RECORDS: usize = 100;

#[test]
fn a_page_of_large_records_ends_early_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).partitions(1).start().unwrap();
    for number in 0..RECORDS {
        let id = format!("r-{number}");
        let content = "x".repeat(RECORD_BYTES);
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": content });
        let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
        assert_eq!(server.post("/v1/runs/r/records", &record).unwrap().0, 200);
    }
    // All of the run, those of a family, and what holds at a time; shown, masked, and as whole records.
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
