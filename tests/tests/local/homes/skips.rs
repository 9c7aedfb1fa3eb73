//! Skips of another log.

use super::*;

pub(super) fn skip_of(offset: u32) -> Entry {
    let payload = Payload::Skip(Skip { offset: offset.into(), who: "ann".into(), why: "poison".into() });
    entry(&JournalRecord::of_partition(id(format!("skip-{offset}")), "test", payload))
}

#[tokio::test]
async fn a_skip_of_another_log_stops_the_partition_until_a_skip_of_its_own_log_voids_it() -> anyhow::Result<()> {
    let (dir, home, copy, zero) = (tempdir()?, log("home"), log("copy"), PartitionId::ZERO);
    let at_home = serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    let horizon =
        RetentionHorizon { until_millis: 1, family: "turn_content".into(), who: "ann".into(), why: "law".into() };
    let horizon = entry(&JournalRecord::of_partition(id("horizon"), "test", Payload::RetentionHorizon(horizon)));
    // Voids the turn "two" of the home: the record at this offset of the mirror is another one.
    home.append(zero, vec![horizon, skip_of(3)]).await?;
    fill(&home, "s").await?;
    caught_up(&at_home).await?;
    mirror(&home, &copy).await?;
    let stops_at = 10_u32;
    let server = all_builds(&copy, async |projector| {
        let (kind, offset, error) = stopped(projector, zero).await?;
        ensure!((kind, offset) == (StopKind::ForeignSkip, stops_at.into()), "{kind:?} at {offset}: {error}");
        ensure!(
            error == "the skip at offset 10 names offset 3 of log memory:home; this log has other offsets",
            "{error}"
        );
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        Ok(())
    })
    .await?;
    drop(server);

    // A skip that the home writes does not end the stop, also if it names the offset of the stop. After the takeover one does.
    copy.append(zero, vec![skip_of(stops_at)]).await?;
    let still = async |projector: &Projector| {
        let reached = projector.wait_until(zero, |at| at.stopped.is_some());
        ensure!(tokio::time::timeout(DEADLINE, reached).await??.applied <= stops_at.into());
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        anyhow::Ok(())
    };
    drop(all_builds(&copy, async |projector| still(projector).await).await?);
    let takeover = home_of(2, "copy", Some("home"));
    for partition in PartitionId::all(PARTITIONS) {
        copy.append(partition, vec![carrier(&copy, &takeover).await?]).await?;
    }
    let (dir, live) = (tempdir()?, tempdir()?);
    let stopped_live = serve(live.path(), &copy).await?;
    ensure!(stopped(&stopped_live, zero).await?.0 == StopKind::ForeignSkip);
    // The skips by the home end no stop of the mirror: one of them is the second foreign skip.
    let second = copy.bounds(zero, DEADLINE).await?.end.get() - 2;
    copy.append(zero, vec![skip_of(stops_at), skip_of(u32::try_from(second)?)]).await?;
    for projector in [stopped_live, serve(dir.path(), &copy).await?] {
        // It is stopped until it has read its skips.
        while caught_up(&projector).await.is_err() {
            let continues = projector.wait_until(zero, |at| at.stopped.is_none());
            tokio::time::timeout(DEADLINE, continues).await??;
        }
        ensure!(projector.home().role() == Role::Home);
    }
    let server = all_builds(&copy, async |projector| caught_up(projector).await).await?;
    let skips = runlog_projector::index::fold::skips_of(&*server.store(zero)?)?;
    ensure!(skips.into_keys().eq([Offset::from(stops_at), second.try_into()?]), "no other record is voided");
    Ok(())
}
