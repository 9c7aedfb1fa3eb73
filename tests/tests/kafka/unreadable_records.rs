//! Unreadable records in a topic: a foreign client appends them while a server runs.

use runlog_log::{Entry, Offset, PartitionId};
use runlog_tests::{
    foreign::append_kafka,
    kafka::Broker,
    server::Launch,
    unreadable::{self, Journal, PARTITIONS},
};
use tempfile::tempdir;

fn with_journal(story: impl Fn(&Journal<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    let append = |records: &[(PartitionId, Entry)]| -> anyhow::Result<Vec<Offset>> { append_kafka(&config, records) };
    let launch = Launch::kafka(folder.path(), &config).partitions(PARTITIONS);
    story(&Journal { launch, append: &append, shared: true })
}

#[test]
fn an_unreadable_record_is_a_dead_letter_and_its_partition_continues() -> anyhow::Result<()> {
    with_journal(|journal| unreadable::dead_letters(journal, true, true))
}

#[test]
fn an_unknown_schema_stops_its_partition_alone_until_the_record_is_skipped() -> anyhow::Result<()> {
    with_journal(unreadable::stops)
}

#[test]
fn a_rebuild_that_stops_at_a_record_is_installed_up_to_there() -> anyhow::Result<()> {
    with_journal(unreadable::voids_and_stops)
}

#[test]
fn a_skip_of_an_applied_record_voids_it_for_good() -> anyhow::Result<()> {
    with_journal(unreadable::voids)
}
