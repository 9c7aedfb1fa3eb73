//! The timelines of all runs in one stream, of a local journal.

use runlog_tests::{server::Launch, tailed};
use tempfile::tempdir;

#[test]
fn a_tail_of_all_runs_has_every_applied_record_once_wherever_it_resumes() -> anyhow::Result<()> {
    let folder = tempdir()?;
    tailed::resumes_anywhere(&Launch::local(&folder.path().join("data")), folder.path())
}

#[test]
fn a_live_tail_of_all_runs_goes_on_behind_a_restart() -> anyhow::Result<()> {
    let folder = tempdir()?;
    tailed::shows_what_comes(&Launch::local(folder.path()))
}
