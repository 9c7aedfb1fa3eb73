//! Mirrors whose transactions were aborted.

use super::{takeover::decision, *};
use runlog_log::Reader;
use runlog_projector::index::{
    rebuild,
    store::{Folder, Storage},
};
use runlog_tests::hooked_log::{Hooks, hook};
use std::{collections::BTreeSet, sync::Mutex};

/// Appends of aborted transactions, which only uncommitted readers get.
#[derive(Clone, Debug, Default)]
struct Aborted {
    records: Arc<Mutex<BTreeSet<(PartitionId, Offset)>>>,
    committed: bool,
}

impl Aborted {
    async fn append_aborted(&self, log: &MemoryLog, partition: PartitionId, entry: Entry) -> anyhow::Result<()> {
        let offsets = log.append(partition, vec![entry]).await?;
        self.records.lock().unwrap().extend(offsets.into_iter().map(|offset| (partition, offset)));
        log.skip(partition, 1);
        Ok(())
    }
}

impl Hooks for Aborted {
    fn reads_committed(&self) -> bool {
        self.committed
    }

    fn reads_uncommitted(&self) -> bool {
        !self.committed
    }

    fn committed(self: &Arc<Self>) -> Option<Arc<Self>> {
        Some(Arc::new(Self { committed: true, ..(**self).clone() }))
    }

    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, runlog_log::Error> {
        let mut records = reader.poll(max, timeout)?;
        let aborted = self.records.lock().unwrap();
        records.retain(|record| !self.committed || !aborted.contains(&(record.partition, record.offset)));
        Ok(records)
    }
}

#[tokio::test]
async fn a_log_that_began_as_a_mirror_is_read_committed_and_an_uncommitted_index_is_built_again() -> anyhow::Result<()>
{
    let (dir, zero) = (tempdir()?, PartitionId::ZERO);
    // The journal has no home yet when the mirror begins.
    let (home, home_dir) = (MemoryLog::new(PARTITIONS), tempdir()?);
    serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    let (copy, aborted) = (log("copy"), Arc::new(Aborted::default()));
    let genesis = deliveries(&home, zero).await?.remove(0);
    aborted
        .append_aborted(&copy, zero, Entry { key: genesis.key, value: genesis.value, headers: genesis.headers })
        .await?;
    for partition in PartitionId::all(PARTITIONS) {
        for (nth, Delivery { key, value, headers, .. }) in deliveries(&home, partition).await?.into_iter().enumerate() {
            let entry = Entry { key, value, headers };
            if nth == 2 {
                aborted.append_aborted(&copy, partition, entry.clone()).await?;
            }
            copy.append(partition, vec![entry]).await?;
        }
        aborted
            .append_aborted(&copy, partition, entry(&Agent::new(&run_in(partition, PARTITIONS, "ghost")).claim()))
            .await?;
    }
    let has_ghost = |projector: &Projector, partition: PartitionId| -> anyhow::Result<bool> {
        let ghost: RunId = id(run_in(partition, PARTITIONS, "ghost"));
        Ok(projector
            .store(partition)?
            .row(runlog_projector::index::store::runs::key(ghost.borrow()).bytes())?
            .is_some())
    };
    let server = serve_log(dir.path(), hook(copy.clone(), &aborted)).await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Unknown && has_ghost(&server, zero)?);
    // The home is initialised, and the mirror copies that. The ghosts stay until the restart.
    let (home_record, one) = (carrier(&home, &home_of(1, "home", None)).await?, 1_u32.try_into()?);
    copy.append(zero, vec![home_record.clone()]).await?;
    copy.append(one, vec![home_record]).await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Mirror && !server.log().reads_committed());
    // So the server cannot take over either.
    let refused = server.take_home(&log_id("home"), decision()).await.err().context("it took over")?;
    ensure!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("start it again"), "{refused}");
    drop(server);

    let generations =
        |partition| rebuild::generations(&Folder::new(Storage::Disk, dir.path().join("index")), partition);
    let fresh_dir = tempdir()?;
    for start in 0..3 {
        let server = serve_log(dir.path(), hook(copy.clone(), &aborted)).await?;
        caught_up(&server).await?;
        let fresh = serve_log(fresh_dir.path(), hook(copy.clone(), &aborted)).await?;
        caught_up(&fresh).await?;
        for partition in PartitionId::all(PARTITIONS) {
            ensure!(!has_ghost(&server, partition)?, "start {start}, partition {partition}");
            // The fresh index was read uncommitted, until its home was known.
            if start > 0 {
                same_rows(partition, &rows(&*server.store(partition)?)?, &rows(&*fresh.store(partition)?)?)?;
            }
        }
        ensure!(server.log().reads_committed() && generations(zero) == [2], "start {start}: {:?}", generations(zero));
    }

    // A server with a new folder learns the homes from the records that it reads uncommitted: the restart makes it the home.
    let server = serve_log(dir.path(), hook(copy.clone(), &aborted)).await?;
    server.take_home(&log_id("home"), decision()).await?;
    let late_dir = tempdir()?;
    let late = serve_log(late_dir.path(), hook(copy.clone(), &aborted)).await?;
    caught_up(&late).await?;
    ensure!(server.home().role() == Role::Home && late.home().role() == Role::Uncommitted);
    let turn = entry(&Agent::new(&run_in(zero, PARTITIONS, "new")).turn("one"));
    ensure!(late.log().append(zero, vec![turn]).await.is_err_and(|error| error.kind() == Kind::NotHome));
    let latest = late.wait(zero, Consistency::Latest, DEADLINE).await.err().context("it was read at latest")?;
    ensure!(latest.to_string().contains("restart the server"), "{latest}");
    drop(late);
    let late = serve_log(late_dir.path(), hook(copy.clone(), &aborted)).await?;
    caught_up(&late).await?;
    ensure!(late.home().role() == Role::Home && !has_ghost(&late, zero)?);
    same_rows(zero, &rows(&*late.store(zero)?)?, &rows(&*server.store(zero)?)?)?;
    Ok(())
}
