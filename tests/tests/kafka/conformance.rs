//! Our server on Apache Kafka keeps every rule of `runlog conformance`, with version 3 of the schema and at the default.

use anyhow::ensure;
use runlog_tests::{claims::port_conformance, kafka::Broker, port_fixture::PortBackend, server::Launch};
use tempfile::tempdir;

#[test]
fn our_server_on_kafka_keeps_every_rule() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let server = Launch::kafka(folder.path(), &config).partitions(4).with("--write-schema").with("3").start()?;
    let ran = server.runlog().json(&["conformance", "--partition-rules"])?;
    let report = ran.json()?;
    let all_pass = report["failed"] == 0 && report["skipped"] == 0 && report["passed"].as_u64() > Some(100);
    let shown = report["rules"].as_array().into_iter().flatten().filter(|line| line["outcome"] != "pass");
    ensure!(all_pass && ran.code == Some(0), "{:#?}", shown.collect::<Vec<_>>());
    server.terminate()?;
    Ok(())
}

#[test]
fn every_rule_holds_on_a_journal_that_ports_write_to_on_kafka() -> anyhow::Result<()> {
    port_conformance::every_rule_holds_on_a_journal_that_ports_write_to(&PortBackend::kafka()?)
}
