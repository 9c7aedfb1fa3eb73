//! `GET /v1/overview`: the figures of a dashboard. The time grows with the partitions, not with the runs.
//!
//! Offsets and states come from the health of the partitions, counts from the counters of `/metrics`. A caller that
//! does not see all runs gets counts of its own runs. Runs, refused and unreadable records are not counted per run, so such
//! a caller gets no counts of these.

use super::{app::App, health::health, metrics::Counted, parameters::Nothing, problem::Refusal, scrape};
use axum::{Json, extract::Query};
use runlog_projector::index::{error::Error, query::counts::PendingCounts};
use runlog_schemas::answer::{
    Overview, PartitionHealth, PartitionProgress, PartitionState, PendingByClass, PendingByState,
};
use std::collections::BTreeSet;

/// Returns the counts over the runs that the caller may see.
async fn read_counts(app: &App) -> Result<Counted, Error> {
    let visible = app.caller.visible();
    if visible.is_all() {
        scrape::counts(app).await
    } else {
        app.read(move |app| Ok(scrape::count(app, &visible))).await
    }
}

fn progress(health: &PartitionHealth) -> PartitionProgress {
    PartitionProgress {
        partition: health.partition,
        applied: health.applied,
        end: health.end,
        lag: health.end.map(|end| end.since(health.applied)),
        state: health.state.clone(),
    }
}

fn pending(counts: PendingCounts) -> PendingByState {
    PendingByState { running: counts.running, waiting: counts.waiting }
}

pub(super) async fn overview(app: App, _: Query<Nothing>) -> Result<Json<Overview>, Refusal> {
    let health = health(&app).await;
    let Counted { counts, unreadable } = read_counts(&app).await?;
    let is_stopped = |health: &PartitionHealth| health.state == PartitionState::Stopped;
    let is_unavailable = |health: &&PartitionHealth| {
        let rebuilt = app.projector.is_rebuilding(health.partition).unwrap_or(true);
        is_stopped(health) || rebuilt || health.end.is_none() || unreadable.contains(&health.partition)
    };
    let unavailable = health.iter().filter(is_unavailable).map(|health| health.partition);
    let unavailable: BTreeSet<_> = unavailable.chain(app.projector.absent()).collect();
    let sees_all = app.caller.visible().is_all();
    let partitions: Vec<_> = health.iter().map(progress).collect();
    Ok(Json(Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        topic: app.projector.log().topic().to_owned(),
        journal_id: app.projector.journal().journal_id.clone(),
        lag: partitions
            .iter()
            .map(|partition| partition.lag)
            .sum::<Option<u64>>()
            .filter(|_| app.projector.holds_all()),
        partitions,
        stopped: health.iter().filter(|health| is_stopped(health)).map(|health| health.partition).collect(),
        unavailable_partitions: unavailable.into_iter().collect(),
        runs: sees_all.then_some(counts.runs),
        pending: PendingByClass {
            retry_safe: pending(counts.retry_safe),
            reconcile_required: pending(counts.reconcile_required),
        },
        contradicted: counts.contradicted,
        refused: sees_all.then_some(counts.anomalies),
        dead_letters: sees_all.then_some(counts.dead_letters),
    }))
}
