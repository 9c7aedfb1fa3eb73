//! A folder whose index was written by an older version.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{bail, ensure};
use runlog_log::{
    Delivery, Error, Log, Offset, PartitionId, Reader,
    local::{LocalConfig, LocalLog},
};
use runlog_projector::index::{
    Config, Consistency, Projector,
    store::{Budget, Commit, INDICES, Rows, Store, meta},
};
use runlog_schemas::{answer::ErrorKind, datum::Datum, id::RunId};
use runlog_tests::{
    hooked_log::{Hooks, hook},
    older_version,
    sample_journal::{self, CLAIMED},
    server::Launch,
};
use tempfile::{TempDir, tempdir};
use tokio::runtime::Runtime;

/// The default number of partitions of a served journal.
const PARTITIONS: u32 = 4;
/// Long enough for an existing index.
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

/// The log delivers no record until permitted, and may report that it lost its start.
#[derive(Debug)]
struct Held {
    flows: AtomicBool,
    start: Offset,
}

impl Held {
    fn open(dir: &Path, start: impl Into<Offset>) -> anyhow::Result<(Arc<dyn Log>, Arc<Self>)> {
        let hooks = Arc::new(Self { flows: false.into(), start: start.into() });
        Ok((hook(LocalLog::open(LocalConfig::new(dir.join("log")))?, &hooks), hooks))
    }
}

impl Hooks for Held {
    fn start(&self, _: Offset) -> Offset {
        self.start
    }

    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        // The genesis, one record, is read before all others.
        if max > 1 && !self.flows.load(Ordering::Acquire) {
            std::thread::park_timeout(timeout);
            return Ok(Vec::new());
        }
        reader.poll(max, timeout)
    }

    fn position(&self, reader: &dyn Reader, partition: PartitionId) -> Option<Offset> {
        if self.flows.load(Ordering::Acquire) { reader.position(partition) } else { None }
    }
}

fn store(dir: &Path, partition: PartitionId) -> Result<Store, runlog_projector::index::store::Error> {
    Store::open_any(&dir.join("index/1").join(partition.to_string()), &Budget::new(8 << 20))
}

/// A journal whose indices have another layout: only a store's metadata remains.
fn outgrown() -> anyhow::Result<TempDir> {
    let folder = tempdir()?;
    sample_journal::start(folder.path())?.terminate()?;
    for partition in PartitionId::all(PARTITIONS) {
        let store = store(folder.path(), partition)?;
        for index in INDICES {
            let (prefix, mut keys) = ([index.byte], Vec::new());
            store.scan(&prefix, &prefix, rocksdb::Direction::Forward, &mut |key, _| {
                keys.push(key.to_vec());
                Ok(ControlFlow::Continue(()))
            })?;
            store.commit(keys.iter().map(|key| (key.as_slice(), None)))?;
        }
        let older = (meta::LAYOUT - 1).to_bytes();
        store.commit(std::iter::once((meta::layout().bytes(), Some(older.as_slice()))))?;
    }
    Ok(folder)
}

#[test]
fn a_folder_of_an_older_version_opens_and_answers_as_that_version_did() -> anyhow::Result<()> {
    for (version, index) in [("696bf14", "as left"), ("401f8eb", "as left"), ("401f8eb", "built anew")] {
        let answers = older_version::answers(version)?;
        let folder = tempdir()?;
        older_version::copy(&older_version::data(version), folder.path())?;
        if index == "built anew" {
            std::fs::remove_dir_all(folder.path().join("index"))?;
        }
        let server = Launch::local(folder.path()).start()?;
        ensure!(answers.len() >= 10, "{version}: {} answers", answers.len());
        for (path, old) in answers {
            let sign = if path.contains('?') { '&' } else { '?' };
            let (status, new) = server.get(&format!("{path}{sign}consistency=latest"))?;
            ensure!(
                status == 200 && older_version::says(&new, &old),
                "{version}, index {index}, {path}:\n{new}\nand it was\n{old}"
            );
        }
        server.runlog().verified()?;
        server.terminate()?;
    }
    Ok(())
}

fn config(dir: &Path) -> Config {
    Config::new(dir, || 0, || "journal".to_owned())
}

fn generations(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for generation in std::fs::read_dir(dir.join("index"))? {
        let generation = generation?;
        for partition in std::fs::read_dir(generation.path())? {
            let name = (generation.file_name(), partition?.file_name());
            names.push(format!("{}/{}", name.0.display(), name.1.display()));
        }
    }
    names.sort();
    Ok(names)
}

#[test]
fn an_older_index_is_kept_during_its_rebuild_and_no_partial_answer_is_given() -> anyhow::Result<()> {
    let folder = outgrown()?;
    let runtime = Runtime::new()?;
    let run: RunId = CLAIMED.parse()?;
    // Killed before the new index has any row, and started again.
    for _ in 0..2 {
        let (log, _) = Held::open(folder.path(), Offset::ZERO)?;
        let projector = runtime.block_on(Projector::start(config(folder.path()), log))?;
        let partition = projector.partition_of(run.borrow());
        let Err(stale) = runtime.block_on(projector.wait(partition, Consistency::Eventual, SHORT)) else {
            bail!("an empty index answers");
        };
        ensure!(stale.kind() == ErrorKind::Stale, "{stale}");
    }
    let both = generations(folder.path())?;
    ensure!(
        both.len() == 2 * PARTITIONS as usize,
        "the older index stays until the new index has reached its offset: {both:?}"
    );

    let (log, held) = Held::open(folder.path(), Offset::ZERO)?;
    let projector = runtime.block_on(Projector::start(config(folder.path()), log))?;
    held.flows.store(true, Ordering::Release);
    for partition in PartitionId::all(PARTITIONS) {
        runtime.block_on(projector.wait(partition, Consistency::Eventual, LONG))?;
        runtime.block_on(projector.wait(partition, Consistency::Latest, LONG))?;
    }
    drop(projector);
    let left = generations(folder.path())?;
    ensure!(left == ["2/0", "2/1", "2/2", "2/3"], "the older index goes: {left:?}");
    let server = Launch::local(folder.path()).start()?;
    let (_, recovery) = server.get(&format!("/v1/runs/{CLAIMED}/recovery"))?;
    ensure!(recovery["pending"][0]["tool_name"] == "book", "{recovery}");
    server.runlog().verified()?;
    server.terminate()?;
    Ok(())
}

#[test]
fn an_older_index_is_left_unchanged_if_the_log_lost_its_start() -> anyhow::Result<()> {
    let folder = outgrown()?;
    let before = generations(folder.path())?;
    let (log, _) = Held::open(folder.path(), 1u32)?;
    let Err(refused) = Runtime::new()?.block_on(Projector::start(config(folder.path()), log)) else {
        bail!("it starts with an empty index")
    };
    let detail = refused.problem().detail;
    ensure!(detail.contains("begins at offset 1") && detail.contains("nothing was changed"), "{detail}");
    ensure!(generations(folder.path())? == before, "no other index was begun");
    for partition in PartitionId::all(PARTITIONS) {
        ensure!(store(folder.path(), partition)?.layout()? == meta::LAYOUT - 1, "it is still the older one");
    }
    Ok(())
}
