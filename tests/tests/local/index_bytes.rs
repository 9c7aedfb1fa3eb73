//! The size of an index: rows and bytes per record of each index, as accepted in `index_bytes.txt`. An index that grows costs
//! memory, disk and time at each record. `RUNLOG_INDEX_BYTES=write` writes the file.

use anyhow::{Context as _, ensure};
use runlog_log::{
    Entry, Log as _,
    local::{LocalConfig, LocalLog},
};
use runlog_projector::{
    Config, Consistency,
    index::{
        bulk,
        store::{Budget, Rows as _, Store, index_of},
    },
    open,
};
use runlog_schemas::{codec, id::PartitionId};
use runlog_tests::small_runs::{Shape, SmallRuns};
use std::{collections::BTreeMap, env, fmt::Write as _, fs, ops::ControlFlow, path::Path, time::Duration};

const RECORDS: u64 = 12_000;
const SHAPE: Shape = Shape { of_a_run: 300, at_a_time: 40, text_bytes: 180 };
const ACCEPTED: &str = "tests/local/index_bytes.txt";
const SLACK_PERCENT: f64 = 5.0;
const WAIT: Duration = Duration::from_secs(600);

/// Folds the records one by one into an index in this folder.
async fn fold(dir: &Path) -> anyhow::Result<()> {
    let limits = bulk::Limits { offsets_min: u64::MAX, ..bulk::Limits::default() };
    let config = || Config { partitions: Some(1), bulk: limits, ..Config::new(dir, || 0, || "index-bytes".to_owned()) };
    // The first start writes the genesis.
    drop(open::local(config()).await?);
    let log = LocalLog::open(LocalConfig::new(dir.join("log")))?;
    let mut runs = SmallRuns::new(19, SHAPE);
    let acks: Vec<_> = (0..RECORDS)
        .map(|_| {
            let entry = Entry { value: codec::encode(&runs.record()), ..Entry::default() };
            log.append(PartitionId::ZERO, vec![entry])
        })
        .collect();
    for ack in acks {
        ack.await?;
    }
    drop(log);
    open::local(config()).await?.wait(PartitionId::ZERO, Consistency::Latest, WAIT).await?;
    Ok(())
}

/// Rows and bytes per record of each index, in the order of their names, and the bytes of the file of bodies.
fn measured(dir: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let dir = dir.join("index/1/0");
    let store = Store::open(&dir, &Budget::new(64 << 20))?;
    let mut sums = BTreeMap::new();
    let per_record = |number: usize| number as f64 / RECORDS as f64;
    store.scan(&[], &[], rocksdb::Direction::Forward, &mut |key, row| {
        if let Some(index) = index_of(key) {
            *sums.entry(format!("{}.rows", index.name)).or_default() += per_record(1);
            *sums.entry(format!("{}.bytes", index.name)).or_default() += per_record(key.len() + row.len());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let bodies = fs::metadata(dir.join("bodies-0"))?.len();
    sums.insert("file of bodies.bytes".to_owned(), per_record(usize::try_from(bodies)?));
    Ok(sums)
}

#[test]
fn an_index_writes_no_more_rows_and_bytes_per_record_than_accepted() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    tokio::runtime::Runtime::new()?.block_on(fold(folder.path()))?;
    let measured = measured(folder.path())?;
    if env::var("RUNLOG_INDEX_BYTES").as_deref() == Ok("write") {
        let mut text = String::from("# Rows and bytes per record. See index_bytes.rs.\n");
        measured.iter().try_for_each(|(name, value)| writeln!(text, "{name} {value:.3}"))?;
        return Ok(fs::write(ACCEPTED, text)?);
    }
    let text = fs::read_to_string(ACCEPTED)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let accepted: BTreeMap<&str, f64> = lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').context("a name and a number")?;
            anyhow::Ok((name, value.parse()?))
        })
        .collect::<Result<_, _>>()?;
    let mut over = String::new();
    for (name, value) in &measured {
        let limit =
            accepted.get(name.as_str()).map_or(0.0, |accepted| accepted * (1.0 + SLACK_PERCENT / 100.0) + 0.001);
        if *value > limit {
            writeln!(over, "{name}: {value:.3} per record, the limit is {limit:.3}")?;
        }
    }
    ensure!(over.is_empty(), "{over}if that is meant: RUNLOG_INDEX_BYTES=write, run this test, and commit {ACCEPTED}");
    Ok(())
}
