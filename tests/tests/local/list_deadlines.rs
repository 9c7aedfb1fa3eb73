//! A list across all partitions has one deadline, regardless of their number.

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use runlog_log::{Log, PartitionId, memory::MemoryLog};
use runlog_projector::{Config, Executor, Projector};
use runlog_tests::agent::{Agent, entry, run_in};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const PARTITIONS: u32 = 2;

#[tokio::test(start_paused = true)]
async fn partitions_that_catch_up_late_do_not_prolong_the_deadline_of_a_list() -> anyhow::Result<()> {
    let (log, dir) = (MemoryLog::new(PARTITIONS), tempfile::tempdir()?);
    let executor = Executor::Caller(Arc::new(|task| drop(tokio::spawn(task))));
    let config = Config { executor, ..Config::new(dir.path(), || 0, || "journal".into()) };
    let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await?);
    for partition in PartitionId::all(PARTITIONS) {
        // All but the last partition lag.
        if partition != PartitionId::ZERO {
            log.hold(partition);
        }
        let turn = Agent::new(&run_in(partition, PARTITIONS, "run")).turn("hello");
        log.append(partition, vec![entry(&turn)]).await?;
    }
    let request = Request::get("/v1/effects?consistency=latest&deadline_ms=1000").body(Body::empty())?;
    let start = Instant::now();
    let late = async {
        sleep(Duration::from_millis(600)).await;
        while projector.step(100) > 0 {}
    };
    let (Ok(answer), ()) = tokio::join!(runlog_server::router(projector.clone()).oneshot(request), late);
    assert_eq!((answer.status(), start.elapsed().as_millis()), (StatusCode::SERVICE_UNAVAILABLE, 1000));
    Ok(())
}
