//! A Python program can read a journal with the schema files only.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use runlog_log::{Log, Offset, PartitionId, kafka::KafkaConfig, kafka::KafkaLog};
use runlog_schemas::{
    codec,
    payload::{Payload, PayloadType},
    schema,
};
use runlog_tests::{
    kafka::Broker,
    programs::{here, output, python},
    server::Launch,
};
use serde_json::{Value, json};
use tempfile::tempdir;

const PARTITIONS: u32 = 4;

/// Payload types that `publish` does not accept: the types of a partition, `erasure`, and `stored_payload`, whose content
/// would be missing. The large turn below becomes a `stored_payload`.
const NOT_PUBLISHED: [&str; 5] =
    ["skip", "genesis", "retention_horizon", "erasure", PayloadType::StoredPayload.as_str()];

/// Fills a journal with every payload type, by all of its writers: the server, `publish`, an operator.
fn fill(folder: &Path, config: &KafkaConfig) -> anyhow::Result<()> {
    let content = format!("file:{}", folder.join("content").display());
    let server = Launch::kafka(folder, config).partitions(PARTITIONS).with("--content").with(&content).start()?;
    let runlog = server.runlog();
    let mut lines = String::new();
    for tag in Payload::TYPES.iter().filter(|tag| !NOT_PUBLISHED.contains(tag)) {
        let file = here(&format!("../schemas/examples/{tag}.json"));
        let example: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        lines.push_str(&format!("{example}\n"));
    }
    // Some examples are refused, but refused records are in the log as well.
    let published = runlog.json_with_input(&["publish"], &lines)?;
    let outcomes = published.documents()?;
    ensure!(
        outcomes.len() == Payload::TYPES.len() - NOT_PUBLISHED.len(),
        "publish: {} {}",
        published.stdout,
        published.stderr
    );
    let awkward = json!({
        "run_id": "übung/☃", "record_id": "1", "extra": {"kept": [1.5, null]},
        "payload": {"type": "conversation_turn", "message_id": "m", "kind": "user", "content": "\u{1F980}\n\u{0}"},
    });
    let outcome = runlog.json_with_input(&["publish"], &awkward.to_string())?.exits(0)?.json()?;
    let large = json!({
        "run_id": "large", "record_id": "1",
        "payload": {"type": "conversation_turn", "message_id": "m", "kind": "user", "content": "x".repeat(2 << 20)},
    });
    runlog.json_with_input(&["publish"], &large.to_string())?.exits(0)?;
    let place = format!("{}:{}", outcome["position"]["partition"], outcome["position"]["offset"]);
    runlog.answer(&[
        "dead-letter",
        "skip",
        &place,
        "--who",
        "a test",
        "--why",
        "the test needs one",
        "--force",
        "--yes",
    ])?;
    Ok(())
}

/// The records that our own reader decodes, by partition and offset.
fn decode_with_runlog(config: KafkaConfig) -> anyhow::Result<BTreeMap<(u64, u64), Value>> {
    let log = KafkaLog::connect(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut records = BTreeMap::new();
    for partition in PartitionId::all(PARTITIONS) {
        let end = runtime.block_on(log.bounds(partition, Duration::from_secs(30)))?.end;
        let mut reader = log.reader(&[(partition, Offset::ZERO)])?;
        while reader.position(partition).is_some_and(|position| position < end) {
            for delivery in reader.poll(100, Duration::from_secs(30))? {
                let record = codec::decode(codec::unframe(&delivery.value)?)?;
                let headers: BTreeMap<_, _> = delivery
                    .headers
                    .into_iter()
                    .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
                    .collect();
                let summary = json!({
                    "partition": partition, "offset": delivery.offset, "key": String::from_utf8(delivery.key)?,
                    "run_id": record.body.run_id, "record_id": record.body.record_id,
                    "record_kind": record.body.record_kind, "writer_epoch": record.place.writer_epoch,
                    "writer_seq": record.place.writer_seq, "journal_seq": record.place.journal_seq,
                    "payload_type": record.body.facts.payload_type, "headers": headers,
                });
                records.insert((partition.get().into(), delivery.offset.get()), summary);
            }
        }
    }
    Ok(records)
}

#[test]
fn a_python_program_with_only_the_schema_files_decodes_every_record_of_the_topic() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    fill(folder.path(), &config)?;
    // A separate folder, so that the program cannot use other files of ours.
    std::fs::copy(here("python/decode_topic.py"), folder.path().join("decode_topic.py"))?;
    let names: Vec<String> = schema::versions().iter().map(|version| format!("v{}.avsc", version.number)).collect();
    for (version, name) in schema::versions().iter().zip(&names) {
        std::fs::write(folder.path().join(name), version.text)?;
    }
    let mut decode = Command::new(python()?);
    decode.current_dir(folder.path()).args(["-I", "decode_topic.py", &config.brokers, &config.topic]).args(&names);
    let printed = output(&mut decode)?;

    let mut theirs = BTreeMap::new();
    let mut types = BTreeSet::new();
    for line in printed.lines() {
        let mut record: Value = serde_json::from_str(line)?;
        let members = record.as_object_mut().context("an object")?;
        // The branch of the union must match the payload type, which is a separate field.
        let name = members.remove("payload_name").context("a name")?;
        let (name, tag) =
            (name.as_str().context("text")?, members["payload_type"].as_str().context("text")?.to_owned());
        // In these two branches the facts name the type of the payload, which is encrypted or elsewhere.
        let tag = match name {
            "StoredPayload" => PayloadType::StoredPayload.to_string(),
            "Encrypted" => "encrypted".to_owned(),
            _ => tag,
        };
        ensure!(name.to_lowercase() == tag.replace('_', ""), "branch {name} of a {tag}");
        let fields = members.remove("payload_members").context("members")?;
        ensure!(fields.as_array().is_some_and(|fields| !fields.is_empty()), "a {tag} without members");
        types.insert(tag);
        let number = |name: &str| record[name].as_u64().context("a number");
        theirs.insert((number("partition")?, number("offset")?), record);
    }
    // No writer here appends a horizon, and a server refuses an erasure; the server wrote a skip and a genesis.
    let appended = |tag: &&&str| !["retention_horizon", "erasure"].contains(*tag);
    let expected = Payload::TYPES.iter().filter(appended).map(|tag| (*tag).to_owned()).collect();
    ensure!(types == expected, "payload types are missing: {types:?}");
    let ours = decode_with_runlog(config)?;
    for (place, record) in &ours {
        let decoded = theirs.remove(place).with_context(|| format!("Python did not see {record}"))?;
        ensure!(&decoded == record, "Python: {decoded}\nours:   {record}");
    }
    ensure!(theirs.is_empty(), "only Python sees {theirs:?}");
    Ok(())
}
