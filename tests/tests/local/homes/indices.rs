//! What an index knows of its log and of the homes in it.

use super::*;

#[tokio::test]
async fn an_index_of_another_log_stops_by_name_and_an_older_index_is_adopted_once() -> anyhow::Result<()> {
    let (dir, home, copy) = (tempdir()?, log("home"), log("copy"));
    let server = serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    caught_up(&server).await?;
    drop(server);
    // Equal records at equal offsets: only the id differs.
    for partition in PartitionId::all(PARTITIONS) {
        for Delivery { key, value, headers, .. } in deliveries(&home, partition).await? {
            copy.append(partition, vec![Entry { key, value, headers }]).await?;
        }
    }
    let server = serve(dir.path(), &copy).await?;
    for partition in PartitionId::all(PARTITIONS) {
        let (kind, _, error) = stopped(&server, partition).await?;
        ensure!(kind == StopKind::ForeignLog, "{error}");
        ensure!(error == "the index was built from log memory:home, this is log memory:copy", "{error}");
    }
    server.wait(PartitionId::ZERO, Consistency::Eventual, DEADLINE).await?;
    drop(server);

    // An index from before logs had ids: the same records from a log without an id.
    let (older_dir, older) = (tempdir()?, MemoryLog::new(PARTITIONS));
    let server = serve(older_dir.path(), &older).await?;
    fill(&older, "r").await?;
    caught_up(&server).await?;
    ensure!(server.store(PartitionId::ZERO)?.row(meta::log().bytes())?.is_none());
    drop(server);
    let (first, second) = (log("first"), log("second"));
    for to in [&first, &second] {
        for partition in PartitionId::all(PARTITIONS) {
            for Delivery { key, value, headers, .. } in deliveries(&older, partition).await? {
                to.append(partition, vec![Entry { key, value, headers }]).await?;
            }
        }
    }
    let server = serve(older_dir.path(), &first).await?;
    caught_up(&server).await?;
    let adopted: Option<meta::LogRow> = server.store(PartitionId::ZERO)?.get(&meta::log())?;
    ensure!(adopted.is_some_and(|row| row.log == "memory:first"));
    ensure!(server.home().role() == Role::Unknown);
    drop(server);
    let server = serve(older_dir.path(), &second).await?;
    ensure!(stopped(&server, PartitionId::ZERO).await?.0 == StopKind::ForeignLog);
    Ok(())
}

#[tokio::test]
async fn an_older_index_that_differs_from_the_log_is_not_adopted() -> anyhow::Result<()> {
    let (dir, older) = (tempdir()?, MemoryLog::new(PARTITIONS));
    let server = serve(dir.path(), &older).await?;
    fill(&older, "r").await?;
    caught_up(&server).await?;
    drop(server);
    let other = log("other");
    for partition in PartitionId::all(PARTITIONS) {
        let genesis = deliveries(&older, partition).await?.remove(0);
        other
            .append(partition, vec![Entry { key: genesis.key, value: genesis.value, headers: genesis.headers }])
            .await?;
    }
    fill(&other, "s").await?;
    let server = serve(dir.path(), &other).await?;
    ensure!(stopped(&server, PartitionId::ZERO).await?.0 == StopKind::LogDiverged);
    ensure!(server.store(PartitionId::ZERO)?.row(meta::log().bytes())?.is_none());
    Ok(())
}

#[tokio::test]
async fn homes_and_accepts_are_the_same_in_every_build_of_the_index() -> anyhow::Result<()> {
    let (dir, home) = (tempdir()?, log("home"));
    serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    let taken = home_of(2, "other", Some("home"));
    for carried in
        [accept_of(1, Some("b")), accept_of(1, None), taken, home_of(1, "late", None), accept_of(2, Some("a"))]
    {
        home.append(PartitionId::ZERO, vec![carrier(&home, &carried).await?]).await?;
    }
    fill(&home, "s").await?;
    let mut malformed = carrier(&home, &accept_of(2, None)).await?;
    malformed.headers.last_mut().context("a header")?.1 = b"{\"home\":{}}".to_vec();
    home.append(PartitionId::ZERO, vec![malformed, carrier(&home, &home_of(2, "rival", None)).await?]).await?;
    // After a takeover the first accept counts. One for the home before it is a late copy.
    for again in [accept_of(1, None), accept_of(2, None), accept_of(2, None), accept_of(2, Some("a"))] {
        home.append(PartitionId::ZERO, vec![carrier(&home, &again).await?]).await?;
    }
    let server = all_builds(&home, async |projector| caught_up(projector).await).await?;
    let known = server.home().known().context("a home")?;
    ensure!(
        (known.epoch, known.log.as_str(), known.rival.as_str()) == (2, "memory:other", "memory:rival"),
        "{known:?}"
    );
    ensure!((known.origin.as_str(), known.offset) == ("memory:home", 6_u32.into()), "{known:?}");
    ensure!(server.home().role() == Role::Contested);
    let store = server.store(PartitionId::ZERO)?;
    for (run, offset) in [(Some("a"), 8_u32), (Some("b"), 4), (None, 15)] {
        let run_id: Option<RunId> = run.map(id);
        let row: Option<meta::AcceptRow> = store.get(&meta::accepted(run_id.as_ref().map(RunId::borrow)))?;
        ensure!(row.is_some_and(|row| row.offset == offset.into()), "{run:?}");
    }
    let other: Option<meta::HomeRow> = server.store(1_u32.try_into()?)?.get(&meta::home())?;
    ensure!(other.is_some_and(|row| row.epoch == 1), "the row is the partition's own");
    Ok(())
}

#[tokio::test]
async fn a_journal_that_arrives_in_another_journals_topic_stops_the_partition() -> anyhow::Result<()> {
    let (dir, home) = (tempdir()?, log("home"));
    serve(dir.path(), &home).await?;
    // Two servers created the journal at the same time: the second genesis has no effect.
    home.append(PartitionId::ZERO, vec![foreign_genesis("home")]).await?;
    fill(&home, "r").await?;
    home.append(PartitionId::ZERO, vec![foreign_genesis("elsewhere")]).await?;
    fill(&home, "s").await?;
    let server = all_builds(&home, async |projector| {
        let (kind, offset, error) = stopped(projector, PartitionId::ZERO).await?;
        ensure!((kind, offset) == (StopKind::NotAJournal, 5_u32.into()), "{kind:?} at {offset}: {error}");
        ensure!(error.contains("journal another of log memory:elsewhere"), "{error}");
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        Ok(())
    })
    .await?;
    ensure!(server.home().role() == Role::Home);
    Ok(())
}

/// A genesis of another journal without a header, as an older server writes it.
fn older_foreign_genesis() -> Entry {
    let mut entry = foreign_genesis("unused");
    entry.headers.retain(|(name, _)| name != home::HEADER);
    entry
}

#[tokio::test]
async fn an_older_journal_that_arrives_in_another_journals_topic_stops_it_only_after_its_home() -> anyhow::Result<()> {
    let (dir, older) = (tempdir()?, MemoryLog::new(PARTITIONS));
    serve(dir.path(), &older).await?;
    let genesis = deliveries(&older, PartitionId::ZERO).await?.remove(0);
    // A journal without a home, in a log with an id.
    let (own, one): (_, PartitionId) = (log("own"), 1_u32.try_into()?);
    for partition in PartitionId::all(PARTITIONS) {
        let Delivery { key, value, headers, .. } = genesis.clone();
        own.append(partition, vec![Entry { key, value, headers }]).await?;
    }
    // Before a home: two older servers may have created the journal at the same time, and the first genesis decided.
    own.append(PartitionId::ZERO, vec![older_foreign_genesis()]).await?;
    fill(&own, "r").await?;
    let server = all_builds(&own, async |projector| caught_up(projector).await).await?;
    ensure!(server.home().role() == Role::Unknown);
    // After it: a server that knows homes names its log, so the record is a copy.
    for partition in PartitionId::all(PARTITIONS) {
        own.append(partition, vec![carrier(&own, &home_of(1, "own", None)).await?]).await?;
    }
    own.append(PartitionId::ZERO, vec![older_foreign_genesis()]).await?;
    fill(&own, "s").await?;
    let server = all_builds(&own, async |projector| {
        let (kind, offset, error) = stopped(projector, PartitionId::ZERO).await?;
        ensure!((kind, offset) == (StopKind::NotAJournal, 6_u32.into()), "{kind:?} at {offset}: {error}");
        ensure!(error.contains("a genesis of journal another arrives"), "{error}");
        Ok(projector.caught_up(one, DEADLINE).await?)
    })
    .await?;
    ensure!(server.home().role() == Role::Home);
    Ok(())
}
