//! `verify` detects every difference between an index and the log, and names the index.

use std::{ops::ControlFlow, path::Path};

use anyhow::{Context, ensure};
use runlog_projector::index::store::{Budget, Commit, INDICES, Index, Rows, Store};
use runlog_schemas::{
    id::PartitionId,
    judge::Head,
    payload::{Payload, lifetime::RetentionHorizon},
    record::JournalRecord,
};
use runlog_tests::{
    agent::{Agent, entry, run_in},
    example_records::{examples, number},
    foreign::append_local,
    server::Launch,
};
use serde_json::{Value, json};
use tempfile::tempdir;

const PARTITIONS: u32 = 4;
/// The damaged partition.
const PARTITION: u16 = 2;

type Row = (Vec<u8>, Vec<u8>);

/// The damage to an index.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Change,
    Drop,
    Add,
}

/// A journal whose partition [`PARTITION`] has rows in every index.
fn fill(launch: &Launch) -> anyhow::Result<()> {
    launch.start()?.kill()?;
    let mut records = Vec::new();
    for partition in PartitionId::all(PARTITIONS) {
        let mut agent = Agent::new(&run_in(partition, PARTITIONS, "run"));
        let mut made = vec![agent.lifecycle("started"), agent.turn("hello")];
        for (number, tool) in ["find", "book", "pay"].iter().enumerate() {
            let request = agent.request(tool, &json!({ "n": number }));
            let id = request.body.record_id.clone();
            made.push(request);
            match number {
                0 => made.push(agent.complete(&id, &json!("found"))),
                1 => made.push(agent.fail(&id, "full")),
                _ => {}
            }
        }
        made.push(agent.checkpoint(&[json!("hello")]));
        // Its content is missing: no index reads it.
        let mut turn = agent.turn("held elsewhere");
        turn.detach(0);
        made.push(turn);
        // Refused: the call was not requested.
        made.push(agent.complete("nothing", &json!(1)));
        records.extend(made.iter().map(|record| (partition, entry(record))));
    }
    // One record of each kind, each in a run of its own. A record that depends on another record is refused, which does
    // not matter here.
    for (at, mut record) in examples()?.into_iter().enumerate() {
        record.body.run_id = run_in(PARTITION, PARTITIONS, &format!("kind-{at}")).parse()?;
        if let Payload::Batch(batch) = &mut record.payload {
            batch.records.iter_mut().for_each(|inner| inner.body.run_id.clone_from(&record.body.run_id));
        }
        if matches!(record.payload, Payload::ToolCallRequested(_)) {
            record.body.idempotency_key = Some("key".into());
        }
        number(&mut record, &Head::default());
        records.push((PARTITION.into(), entry(&record)));
    }
    let horizon = RetentionHorizon {
        family: "conversation_turn".to_owned(),
        until_millis: i64::MAX,
        who: "jo".to_owned(),
        why: "policy".to_owned(),
    };
    let id = "horizon".to_owned().try_into()?;
    records.push((PARTITION.into(), entry(&JournalRecord::of_partition(id, "test", horizon.into()))));
    let mut noise = entry(&Agent::new("noise").turn(""));
    noise.value = b"not avro".to_vec();
    records.push((PARTITION.into(), noise));
    append_local(launch.dir(), &records)?;
    let server = launch.start()?;
    server.runlog().answer(&["runs", "--consistency", "latest"])?;
    server.runlog().verified()?;
    server.terminate()?;
    Ok(())
}

fn rows(store: &Store, index: Index) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let prefix = [index.byte];
    store.scan(&prefix, &prefix, rocksdb::Direction::Forward, &mut |key, row| {
        rows.push((key.to_vec(), row.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

/// Damages an index in a stopped server's folder. Returns the key and its previous row, for the repair.
fn damage(dir: &Path, index: Index, how: Damage) -> anyhow::Result<(Vec<u8>, Option<Vec<u8>>)> {
    let store = open(dir)?;
    let rows = rows(&store, index)?;
    let with_content = rows.iter().max_by_key(|(_, row)| !row.is_empty());
    let (key, row) = with_content.with_context(|| format!("no row in {index:?}"))?;
    let (mut key, before) = (key.clone(), row.clone());
    let mut after = Some(before.clone());
    match how {
        Damage::Change => after.iter_mut().for_each(|row| match row.last_mut() {
            Some(byte) => *byte ^= 1,
            None => row.push(1),
        }),
        Damage::Drop => after = None,
        Damage::Add => key.push(0),
    }
    store.commit(std::iter::once((key.as_slice(), after.as_deref())))?;
    Ok((key, (!matches!(how, Damage::Add)).then_some(before)))
}

fn open(dir: &Path) -> anyhow::Result<Store> {
    let folder = dir.join("index/1").join(PARTITION.to_string());
    Ok(Store::open(&folder, &Budget::new(8 << 20))?)
}

/// (partition, index, rows) of each index whose digests differ.
fn unequal(verification: &Value) -> anyhow::Result<Vec<(u64, String, u64)>> {
    let mut differing = Vec::new();
    for partition in verification["partitions"].as_array().context("partitions")? {
        let indices = partition["indices"].as_array().context("indices")?;
        ensure!(indices.len() == INDICES.len(), "every index is named: {indices:?}");
        for index in indices {
            let digest = |name: &str| index[name].as_str().filter(|digest| digest.starts_with("sha256:"));
            let (live, rebuilt) =
                (digest("live_digest").context("a digest")?, digest("rebuilt_digest").context("a digest")?);
            if live != rebuilt {
                let number = partition["partition"].as_u64().context("a number")?;
                let name = index["name"].as_str().context("a name")?.to_owned();
                differing.push((number, name, index["rows"].as_u64().context("rows")?));
            }
        }
    }
    Ok(differing)
}

#[test]
fn a_changed_dropped_or_added_row_is_detected_and_its_index_named() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path());
    fill(&launch)?;
    for index in INDICES {
        let count = rows(&open(folder.path())?, index)?.len() as u64;
        for how in [Damage::Change, Damage::Drop, Damage::Add] {
            let (key, before) = damage(folder.path(), index, how)?;
            // A server that continues to consume detects it, and so does a server that only serves.
            let server = if matches!(how, Damage::Drop) { launch.start()? } else { launch.clone().paused().start()? };
            let verification = server.runlog().json(&["verify"])?.exits(1)?.json()?;
            let rows = match how {
                Damage::Change => count,
                Damage::Drop => count - 1,
                Damage::Add => count + 1,
            };
            let expected = vec![(u64::from(PARTITION), index.name.to_owned(), rows)];
            ensure!(verification["equal"] == false, "{index:?} {how:?}: {verification}");
            ensure!(unequal(&verification)? == expected, "{index:?} {how:?}: {verification}");
            server.terminate()?;
            open(folder.path())?.commit(std::iter::once((key.as_slice(), before.as_deref())))?;
        }
    }
    let server = launch.start()?;
    server.runlog().verified()?;
    Ok(())
}
