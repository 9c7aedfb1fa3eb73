//! The timelines of all runs in one stream, of a topic on a real broker.

use runlog_tests::{kafka::Broker, server::Launch, tailed};
use tempfile::tempdir;

#[test]
fn a_tail_of_all_runs_has_every_applied_record_once_wherever_it_resumes() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    tailed::resumes_anywhere(&Launch::kafka(&folder.path().join("data"), &config).partitions(4), folder.path())
}

#[test]
fn a_live_tail_of_all_runs_goes_on_behind_a_restart() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    tailed::shows_what_comes(&Launch::kafka(folder.path(), &config).partitions(4))
}
