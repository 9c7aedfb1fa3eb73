//! The contract of `Log`, for the adapters that need no broker.

use std::{any::Any, process::Command, sync::Arc};

use runlog_log::{
    Kind, Log, Offset, PartitionId,
    local::{LocalConfig, LocalLog},
    memory::MemoryLog,
};
use runlog_tests::log_contract::{
    PARTITIONS, append,
    crash::{self, about},
    entry, ids, wait,
};

const DIR: &str = "RUNLOG_CHILD_DIR";

fn local_in(dir: impl Into<std::path::PathBuf>) -> Arc<dyn Log> {
    Arc::new(LocalLog::open(LocalConfig { partitions: Some(PARTITIONS), ..LocalConfig::new(dir) }).unwrap())
}

mod memory {
    use super::*;

    fn empty_log() -> (Arc<dyn Log>, impl Any) {
        (Arc::new(MemoryLog::new(PARTITIONS)) as Arc<dyn Log>, ())
    }

    runlog_tests::log_contract!(empty_log);
}

mod local {
    use super::*;

    fn empty_log() -> (Arc<dyn Log>, impl Any) {
        let dir = tempfile::tempdir().unwrap();
        (local_in(dir.path()), dir)
    }

    runlog_tests::log_contract!(empty_log);

    #[test]
    fn a_log_keeps_its_id_when_it_is_opened_again() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let open = |number: usize| -> Arc<dyn Log> {
            let ids: fn() -> String = || uuid::Uuid::new_v4().to_string();
            let config = LocalConfig { ids: Some(ids), ..LocalConfig::new(dirs[number].path()) };
            Arc::new(LocalLog::open(config).unwrap())
        };
        ids::a_log_keeps_its_id_when_it_is_opened_again(|| open(0), &open(1));
    }
}

#[test]
fn acknowledged_records_survive_kill_9_of_the_process_that_has_the_local_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut acked = Vec::new();
    for round in 0..5 {
        let environment = [(DIR, dir.path().to_str().unwrap())];
        acked.extend(crash::kill_after(
            "log_contract::child_appends_to_the_local_log",
            &environment,
            about(200 << round),
        ));
        // The kill also freed the directory.
        crash::assert_holds(&local_in(dir.path()), &acked);
    }
}

#[test]
#[ignore = "the process that is killed"]
fn child_appends_to_the_local_log() {
    crash::append_until_killed(&local_in(std::env::var(DIR).unwrap()));
}

/// A limit on file size simulates a full disk; the kernel's signal about it is ignored, as a server does.
#[test]
fn a_failed_write_is_reported_and_the_log_continues() {
    let dir = tempfile::tempdir().unwrap();
    let binary = std::env::current_exe().unwrap();
    let child = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec prlimit --fsize=8388608 "$@""#, "sh"])
        .arg(binary)
        .args(["--exact", "log_contract::child_whose_files_may_not_grow", "--ignored", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let stdout = String::from_utf8(child.stdout).unwrap();
    assert!(stdout.contains("failed and continued"), "{stdout}");
    // The log contains exactly the acknowledged records.
    let log = local_in(dir.path());
    let mut reader = log.reader(&[(PartitionId::ZERO, Offset::ZERO)]).unwrap();
    let records = runlog_tests::log_contract::read(&mut reader, 120);
    runlog_tests::log_contract::assert_drained(&mut reader);
    for (number, record) in records.iter().enumerate() {
        assert!(record.value.starts_with(format!("{number} ").as_bytes()) && record.offset.get() == number as u64);
    }
}

#[test]
#[ignore = "the process whose disk is full"]
fn child_whose_files_may_not_grow() {
    let log = local_in(std::env::var(DIR).unwrap());
    let mut failures = 0;
    for number in 0..120 {
        // Compresses well: the write-ahead log fills up, its tables do not.
        let value = format!("{number} {}", "x".repeat(200_000));
        while let Err(error) = wait(log.append(PartitionId::ZERO, vec![entry(value.clone())])) {
            // A retryable failure means that no record landed, so the append may be repeated.
            assert_eq!(error.kind(), Kind::Retry, "{error:?}");
            failures += 1;
            assert!(failures < 100, "{error:?}");
        }
    }
    assert!(failures > 0);
    append(&log, 1, &["other partitions too"]).unwrap();
    println!("failed and continued");
}
