//! The first home of an older journal, and the takeover by a mirror whose home is lost.

use super::{skips::skip_of, *};
use futures_util::FutureExt as _;
use runlog_log::{Ack, Reader};
use runlog_projector::index::projector::{Decision, Sign, Taken};
use runlog_schemas::answer::Position;
use runlog_tests::hooked_log::{Hooks, hook};
use std::sync::atomic::AtomicBool;

async fn init(server: &Projector, sign: Sign<'_>) -> Result<Vec<Position>, Error> {
    let plan = server.plan_home(DEADLINE).await?;
    server.init_home(plan, decision(), sign, DEADLINE).await
}

pub(super) fn decision() -> Decision {
    Decision { who: "ann".into(), why: "checked".into() }
}

#[tokio::test]
async fn an_older_journal_gets_its_home_once_in_every_partition() -> anyhow::Result<()> {
    let (dir, older_dir, older, home) = (tempdir()?, tempdir()?, MemoryLog::new(PARTITIONS), log("home"));
    serve(older_dir.path(), &older).await?;
    mirror(&older, &home).await?;
    let server = serve(dir.path(), &home).await?;
    let no_id = serve(older_dir.path(), &older).await?;
    let refused = init(&no_id, &|_| {}).await.err().context("a log without an id")?;
    ensure!(refused.kind() == ErrorKind::Invalid, "{refused}");

    let sign = |record: &mut JournalRecord| record.body.facts.principal = Some("ann".into());
    let set = init(&server, &sign).await?;
    ensure!(set.len() == PARTITIONS as usize && server.home().role() == Role::Home, "{set:?}");
    let (again, grown) = (init(&server, &sign).await?, ends(&home).await?);
    ensure!(again.is_empty() && grown == [3_u32.into(), 3_u32.into()], "{again:?} {grown:?}");
    for partition in PartitionId::all(PARTITIONS) {
        let row: Option<meta::HomeRow> = server.store(partition)?.get(&meta::home())?;
        ensure!(row.is_some_and(|row| (row.epoch, row.log.as_str()) == (1, "memory:home")));
    }
    let unneeded = server.accept(None, decision(), &sign, DEADLINE).await.err().context("no home was lost")?;
    ensure!(unneeded.kind() == ErrorKind::Invalid, "{unneeded}");

    // Its mirror is one from the record on, and cannot be initialised.
    let (copy, copy_dir) = (log("copy"), tempdir()?);
    mirror(&home, &copy).await?;
    let at_mirror = serve(copy_dir.path(), &copy).await?;
    caught_up(&at_mirror).await?;
    let before = ends(&copy).await?;
    is_refused("a home of a mirror", init(&at_mirror, &sign).await)?;
    is_refused("an accept at a mirror", at_mirror.accept(None, decision(), &sign, DEADLINE).await)?;
    ensure!(ends(&copy).await? == before);
    all_builds(&home, async |projector| caught_up(projector).await).await?;
    Ok(())
}

fn is_doubt(server: &Projector, run: &str) -> bool {
    let checked = server.check_doubt(id::<RunId>(run).borrow());
    checked.is_err_and(|error| error.reason() == Some(ProblemReason::Doubt))
}

#[tokio::test]
async fn a_mirror_takes_over_once_no_record_arrives_and_its_runs_stay_in_doubt_until_they_are_accepted()
-> anyhow::Result<()> {
    let (home_dir, dir, home, copy) = (tempdir()?, tempdir()?, log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    // Partition 0 of the mirror is stopped by a skip of the home.
    home.append(PartitionId::ZERO, vec![skip_of(3)]).await?;
    mirror(&home, &copy).await?;
    let server = serve(dir.path(), &copy).await?;
    let other = server.take_home(&log_id("other"), decision()).await.err().context("it is not the home")?;
    ensure!(other.kind() == ErrorKind::Invalid && other.to_string().contains("memory:home"), "{other}");
    ensure!(server.home().role() == Role::Mirror && !is_doubt(&server, "new"));

    let Taken::Now(positions) = server.take_home(&log_id("home"), decision()).await? else { anyhow::bail!("taken") };
    ensure!(positions.len() == PARTITIONS as usize && server.home().role() == Role::Home, "{positions:?}");
    let row = server.home().known().context("a home")?;
    ensure!((row.epoch, row.log.as_str(), row.from.as_str()) == (2, "memory:copy", "memory:home"), "{row:?}");
    server.log().append(PartitionId::ZERO, vec![skip_of(8)]).await?;
    server.wait_until(PartitionId::ZERO, |at| at.stopped.is_none()).await?;
    caught_up(&server).await?;
    let after = ends(&copy).await?;
    drop(server);

    // The same flags again, after a restart, have no effect.
    let server = serve(dir.path(), &copy).await?;
    let Taken::Before(missing) = server.take_home(&log_id("home"), decision()).await? else { anyhow::bail!("again") };
    ensure!(missing.is_empty() && ends(&copy).await? == after, "{missing:?}");
    let open = run_in(1_u16, PARTITIONS, "r");
    fill(&copy, "later").await?;
    caught_up(&server).await?;
    let later = run_in(1_u16, PARTITIONS, "later");
    // A record after the takeover may be a late copy of the home's record.
    ensure!(is_doubt(&server, &open) && is_doubt(&server, "unknown") && is_doubt(&server, &later));
    let at = server.accept(Some(id(&open)), decision(), &|_| {}, DEADLINE).await?;
    ensure!(at.len() == 1 && at[0].partition == server.partition_of(id::<RunId>(&open).borrow()), "{at:?}");
    ensure!(!is_doubt(&server, &open) && is_doubt(&server, "unknown"));
    ensure!(server.accept(None, decision(), &|_| {}, DEADLINE).await?.len() == PARTITIONS as usize);
    ensure!(!is_doubt(&server, "unknown") && is_doubt(&server, &run_in(0_u16, PARTITIONS, "r")));
    fill(&copy, "new").await?;
    caught_up(&server).await?;
    // A second acceptance has no effect.
    server.accept(None, decision(), &|_| {}, DEADLINE).await?;
    ensure!(is_doubt(&server, &later) && !is_doubt(&server, &run_in(1_u16, PARTITIONS, "new")));
    all_builds(&copy, async |projector| caught_up(projector).await).await?;
    Ok(())
}

/// A copier that is not stopped: it copies the home's new records between two looks at the ends of the mirror.
#[derive(Debug)]
struct Copying {
    home: MemoryLog,
    copy: MemoryLog,
    looks: AtomicU32,
}

impl Hooks for Copying {
    fn end(&self, end: Offset) -> Offset {
        // Each partition was looked at once.
        if self.looks.fetch_add(1, Ordering::Relaxed) == PARTITIONS {
            mirror(&self.home, &self.copy).now_or_never().unwrap().unwrap();
            return self.copy.bounds(PartitionId::ZERO, DEADLINE).now_or_never().unwrap().unwrap().end;
        }
        end
    }
}

#[tokio::test]
async fn a_mirror_does_not_take_over_while_records_arrive() -> anyhow::Result<()> {
    let (home_dir, dir, home, copy) = (tempdir()?, tempdir()?, log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    mirror(&home, &copy).await?;
    let copying = Arc::new(Copying { home: home.clone(), copy: copy.clone(), looks: AtomicU32::new(0) });
    let server = serve_log(dir.path(), hook(copy.clone(), &copying)).await?;
    caught_up(&server).await?;
    fill(&home, "r").await?;
    copying.looks.store(0, Ordering::Relaxed);
    let refused = server.take_home(&log_id("home"), decision()).await?;
    let (partition, offset) = (PartitionId::ZERO, 2_u32.into());
    ensure!(refused == Taken::RecordsArrive { partition, offset }, "{refused:?}");
    ensure!(server.home().role() == Role::Mirror);
    ensure!(deliveries(&home, PartitionId::ZERO).await?.len() == deliveries(&copy, PartitionId::ZERO).await?.len());
    Ok(())
}

/// A log whose partition 1 refuses appends.
#[derive(Debug)]
struct Refusing;

impl Hooks for Refusing {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        if partition == PartitionId::ZERO {
            return log.append(partition, batch);
        }
        let error = runlog_log::Error::new(Kind::Fatal, log.topic(), "the test says so").in_partition(partition);
        Box::pin(std::future::ready(Err(error)))
    }
}

#[tokio::test]
async fn until_an_interrupted_takeover_is_repeated_all_runs_of_a_partition_without_its_record_are_in_doubt()
-> anyhow::Result<()> {
    let (home_dir, dir, home, copy) = (tempdir()?, tempdir()?, log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    mirror(&home, &copy).await?;
    let server = serve_log(dir.path(), hook(copy.clone(), &Arc::new(Refusing))).await?;
    let interrupted = server.take_home(&log_id("home"), decision()).await.err().context("partition 1 refuses")?;
    ensure!(interrupted.to_string().contains("the test says so"), "{interrupted}");
    drop(server);

    let server = serve(dir.path(), &copy).await?;
    fill(&copy, "later").await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Home);
    let [in_zero, in_one] = [0_u16, 1].map(|partition| run_in(partition, PARTITIONS, "later"));
    ensure!(is_doubt(&server, &in_zero) && is_doubt(&server, &in_one));
    let early = server.accept(Some(id(&in_one)), decision(), &|_| {}, DEADLINE).await.err().context("too early")?;
    ensure!(early.kind() == ErrorKind::Conflict && early.to_string().contains("--take-home memory:home"), "{early}");
    // The other partition can begin runs all the same.
    let [new_in_zero, new_in_one] = [0_u16, 1].map(|partition| run_in(partition, PARTITIONS, "new"));
    let partly =
        server.accept(None, decision(), &|_| {}, DEADLINE).await.err().context("partition 1 lacks the record")?;
    ensure!(partly.kind() == ErrorKind::Conflict, "{partly}");
    ensure!(!is_doubt(&server, &new_in_zero) && is_doubt(&server, &new_in_one));

    let Taken::Before(completed) = server.take_home(&log_id("home"), decision()).await? else {
        anyhow::bail!("it took over a second time")
    };
    ensure!(completed.len() == 1 && completed[0].partition == PartitionId::try_from(1_u32)?, "{completed:?}");
    ensure!(is_doubt(&server, &in_one), "it began before the record of its partition");
    server.accept(Some(id(&in_one)), decision(), &|_| {}, DEADLINE).await?;
    ensure!(!is_doubt(&server, &in_one));
    Ok(())
}

/// From a moment on, delivers no records, and partition 1 accepts no append.
#[derive(Debug, Default)]
struct Overloaded(AtomicBool);

impl Hooks for Overloaded {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        if !self.0.load(Ordering::Relaxed) || partition == PartitionId::ZERO {
            return log.append(partition, batch);
        }
        let error = runlog_log::Error::new(Kind::Retry, log.topic(), "the queue is full").in_partition(partition);
        Box::pin(std::future::ready(Err(error)))
    }

    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, runlog_log::Error> {
        if self.0.load(Ordering::Relaxed) { Ok(Vec::new()) } else { reader.poll(max, timeout) }
    }
}

#[tokio::test]
async fn an_accept_that_failed_after_an_append_does_not_claim_that_it_had_no_effect() -> anyhow::Result<()> {
    let (home_dir, dir, home, copy) = (tempdir()?, tempdir()?, log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    mirror(&home, &copy).await?;
    let overloaded = Arc::new(Overloaded::default());
    let server = serve_log(dir.path(), hook(copy.clone(), &overloaded)).await?;
    server.take_home(&log_id("home"), decision()).await?;
    caught_up(&server).await?;
    let before = ends(&copy).await?;
    overloaded.0.store(true, Ordering::Relaxed);
    let failed = server.accept(None, decision(), &|_| {}, Duration::from_millis(50)).await.err().context("it waits")?;
    ensure!(ends(&copy).await? != before, "partition 0 has the record");
    ensure!(failed.kind() == ErrorKind::Unavailable && failed.to_string().contains("the queue is full"), "{failed}");
    Ok(())
}

#[tokio::test]
async fn a_server_whose_partitions_are_all_stopped_learns_the_takeover_from_the_records_after_the_stops()
-> anyhow::Result<()> {
    let (home_dir, dir, home, copy) = (tempdir()?, tempdir()?, log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    for partition in PartitionId::all(PARTITIONS) {
        home.append(partition, vec![skip_of(3)]).await?;
    }
    mirror(&home, &copy).await?;
    let server = serve(dir.path(), &copy).await?;
    server.take_home(&log_id("home"), decision()).await?;
    drop(server);
    let server = serve(dir.path(), &copy).await?;
    let learned = async {
        while server.home().role() != Role::Home {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, learned).await.context("the home is not learned")?;
    ensure!(is_doubt(&server, "unknown"));
    for partition in PartitionId::all(PARTITIONS) {
        let (kind, offset, _) = stopped(&server, partition).await?;
        ensure!(kind == StopKind::ForeignSkip);
        server.log().append(partition, vec![skip_of(u32::try_from(offset.get())?)]).await?;
        let continues = server.wait_until(partition, |at| at.stopped.is_none());
        let continued = tokio::time::timeout(DEADLINE, continues).await;
        continued.with_context(|| format!("{:?}", server.progress(partition)))??;
    }
    caught_up(&server).await
}

#[tokio::test]
async fn no_log_of_a_journal_without_a_home_takes_over() -> anyhow::Result<()> {
    let (older_dir, dir, older, copy) = (tempdir()?, tempdir()?, MemoryLog::new(PARTITIONS), log("copy"));
    serve(older_dir.path(), &older).await?;
    mirror(&older, &copy).await?;
    let (server, before) = (serve(dir.path(), &copy).await?, ends(&copy).await?);
    for lost in ["copy", "older"] {
        let refused = server.take_home(&log_id(lost), decision()).await.err().context("it took over")?;
        ensure!(refused.kind() == ErrorKind::Invalid, "{refused}");
    }
    ensure!(server.home().role() == Role::Unknown && ends(&copy).await? == before);
    Ok(())
}

#[tokio::test]
async fn two_servers_of_one_mirror_take_over_together() -> anyhow::Result<()> {
    let (home_dir, dirs, home, copy) = (tempdir()?, [tempdir()?, tempdir()?], log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    mirror(&home, &copy).await?;
    let servers = [serve(dirs[0].path(), &copy).await?, serve(dirs[1].path(), &copy).await?];
    let lost = log_id("home");
    let [first, second] = servers.each_ref().map(|server| server.take_home(&lost, decision()));
    let (first, second) = tokio::join!(first, second);
    first?;
    second?;
    for server in &servers {
        caught_up(server).await?;
        let row = server.home().known().context("a home")?;
        ensure!((row.epoch, row.rival.as_str()) == (2, "") && server.home().role() == Role::Home, "{row:?}");
        ensure!(is_doubt(server, &run_in(0_u16, PARTITIONS, "r")));
    }
    Ok(())
}
