//! The ledgers of killed processes.

use std::{fs::File, io::Write};

use runlog_tests::chaos::effect_desk::{append_line, lines};
use serde_json::json;

#[test]
fn documents_after_the_unfinished_line_of_a_killed_writer_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut file = File::options().create(true).append(true).open(&path).unwrap();
    let documents = [json!({ "done": true }), json!({ "done": false })];
    append_line(&file, &documents[0]).unwrap();
    file.write_all(b"\n{\"done\":tru").unwrap();
    append_line(&file, &documents[1]).unwrap();
    file.write_all(b"\n{\"do").unwrap();
    assert_eq!(lines(&path).unwrap(), documents);
    file.write_all(b"ne\": yes}\n").unwrap();
    lines(&path).unwrap_err();
}
