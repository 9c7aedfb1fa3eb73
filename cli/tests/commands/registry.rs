use super::{
    harness::{CommandResult, Server, command, run},
    stub::{FIRST, Fault, Stub},
    unreadable::{STARTED, append, run_in},
};
use runlog_log::{
    Log,
    local::{LocalConfig, LocalLog},
};
use runlog_schemas::{
    codec::{self, Framing},
    id::{Offset, PartitionId, RunId},
    payload::{Payload, RunLifecycle},
    record::JournalRecord,
    schema::JOURNAL_RECORD,
};
use std::{fs, path::Path, time::Duration};

/// The records of a partition, read while no server runs.
fn values(data: &Path, partition: impl Into<PartitionId>) -> Vec<Vec<u8>> {
    let log = LocalLog::open(LocalConfig::new(data.join("log"))).unwrap();
    let mut reader = log.reader(&[(partition.into(), Offset::ZERO)]).unwrap();
    reader.poll(100, Duration::from_secs(5)).unwrap().into_iter().map(|delivery| delivery.value).collect()
}

/// Ends a server and forgets its indices.
fn end_without_index(server: Server, data: &Path) {
    assert_eq!(server.signal("TERM"), 0);
    fs::remove_dir_all(data.join("index")).unwrap();
}

#[test]
fn both_framings_are_read_and_a_rebuild_needs_no_registry() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let (data, single, confluent) = (folder.path().join("data"), run_in(1), run_in(2));
    let server = Server::start(&data, &[]);
    server.publish_applied(&single, &[("s", STARTED)]);
    assert_eq!(server.signal("TERM"), 0);
    let server = Server::start(&data, &["--registry", &stub.url]);
    server.publish_applied(&confluent, &[("s", STARTED)]);
    assert_eq!(server.signal("TERM"), 0);
    assert_eq!(stub.state().subjects["runlog.journal-value"], [FIRST]);
    let framings = |partition| -> Vec<u8> { values(&data, partition).iter().map(|value| value[0]).collect() };
    assert_eq!((framings(1), framings(2)), (vec![0xc3, 0xc3], vec![0xc3, 0x00]));
    assert_eq!(codec::confluent_id(&values(&data, 2)[1]), Some(FIRST));

    // The registry is gone for good, and so are the indices.
    let url = stub.url.clone();
    drop(stub);
    fs::remove_dir_all(data.join("index")).unwrap();
    let server = Server::start(&data, &["--registry", &url]);
    for run_id in [&single, &confluent] {
        assert_eq!(server.ask(&["show", run_id]).lines().len(), 1, "{run_id}");
    }
    let ended = r#"{"type":"run_lifecycle","status":"completed"}"#;
    server.publish_applied(&confluent, &[("t", ended)]);
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
    end_without_index(server, &data);
    assert_eq!(framings(2), [0xc3, 0x00, 0x00]);

    // Without a registry the id of a schema is unknown: the partition stops, and the others are served.
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["show", &confluent]).error(4), "partition_stopped");
    assert_eq!(server.ask(&["show", &single]).lines().len(), 1);
    assert!(server.ask(&["doctor"]).is(1).to_string().contains("no registry is configured"));
}

#[test]
fn an_outage_of_the_registry_holds_a_partition_up_and_an_unknown_id_stops_it() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let (data, served, waiting, stopped) = (folder.path().join("data"), run_in(0), run_in(2), run_in(3));
    let flags = ["--registry", &stub.url];
    assert_eq!(Server::start(&data, &flags).signal("TERM"), 0);
    let record = |run_id: &str, id| {
        let payload = Payload::from(RunLifecycle { status: "started".into(), reason: String::new() });
        let mut record = JournalRecord::new(RunId::new(run_id).unwrap(), "s".parse().unwrap(), "a", payload);
        record.place.writer_id = "w".parse().unwrap();
        (record.place.writer_seq, record.place.journal_seq) = (1.into(), 1.into());
        codec::encode_as(&record, Framing::Confluent(id))
    };
    // The schema as another client registered it.
    let other = stub.add(&JOURNAL_RECORD.replacen("One record of", "A record of", 1));
    append(&data, 2, record(&waiting, other));
    let offset = append(&data, 3, record(&stopped, other + 1));
    stub.state().always = Some(Fault::Status(503));
    let server = Server::start(&data, &flags);
    server.publish_applied(&served, &[("s", STARTED)]);
    assert_eq!(server.ask(&["show", &waiting]).error(4), "partition_stopped");
    assert!(server.ask(&["doctor"]).is(1).to_string().contains("503"));
    stub.state().always = None;
    let mut shown = server.ask(&["show", &waiting]);
    for _ in 0..200 {
        if shown.code == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        shown = server.ask(&["show", &waiting]);
    }
    assert_eq!(shown.lines().len(), 1, "it resumes by itself");
    assert_eq!(server.ask(&["show", &stopped]).error(4), "partition_stopped");
    let place = format!("3:{offset}");
    server.ask(&["dead-letter", "skip", &place, "--who", "me", "--why", "not ours", "--yes"]).is(0);
    assert_eq!(server.ask(&["doctor"]).code, 0);
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
}

#[test]
fn a_server_does_not_start_if_the_registry_rejects_the_schema_or_is_unreachable() {
    let (stub, folder) = (Stub::start(), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let serve = |url: &str| {
        let data = data.to_str().unwrap();
        run(&["serve", "--json", "--local", "--listen", "127.0.0.1:0", "--data", data, "--registry", url])
    };
    stub.state().refuses = true;
    let refused = serve(&stub.url);
    assert!(refused.error(3) == "invalid" && refused.stdout.contains("incompatible"), "{refused:?}");
    assert_eq!(serve("nonsense").error(3), "invalid");
    let url = stub.url.replacen("http://", "http://me:s3cret@", 1);
    drop(stub);
    let result = serve(&url);
    assert!(result.error(2) == "usage" && !result.stdout.contains("s3cret"), "{result:?}");
    let arguments = ["serve", "--json", "--local", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let away = CommandResult::new(command().args(arguments).env("RUNLOG_REGISTRY", &url).output().unwrap());
    assert!(away.error(4) == "unavailable" && !away.stdout.contains("s3cret"), "{away:?}");
    assert!(!away.stderr.contains("s3cret"), "{away:?}");
}
