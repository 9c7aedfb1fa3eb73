//! The projector is killed while agents write to its topic on a real broker.

use runlog_log::kafka::KafkaLog;
use runlog_tests::{claims::killed_server, kafka::Broker, server::Launch, writers::kafka::Kafka};
use tempfile::tempdir;

#[test]
fn a_projector_killed_at_random_moments_loses_no_acknowledged_record_and_applies_none_twice() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let launch = Launch::kafka(folder.path(), &config).partitions(4);
    let claims = |number: usize| number.is_multiple_of(3);
    killed_server::acknowledged_records_are_applied_once(&launch, claims, |_| Ok(Kafka(KafkaLog::connect(config)?)))
}
