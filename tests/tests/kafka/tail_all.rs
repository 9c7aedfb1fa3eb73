//! The tail of all runs in one stream, on a real broker.

use runlog_tests::{claims::tail_all, kafka::Broker, server::Launch};
use tempfile::tempdir;

#[test]
fn a_tail_of_all_runs_has_every_applied_record_once_wherever_it_resumes() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    tail_all::every_record_is_delivered_once_after_any_cursor(
        &Launch::kafka(&folder.path().join("data"), &config).partitions(4),
        folder.path(),
    )
}

#[test]
fn a_live_tail_of_all_runs_continues_after_a_restart() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    tail_all::a_live_tail_continues_after_a_restart(&Launch::kafka(folder.path(), &config).partitions(4))
}
