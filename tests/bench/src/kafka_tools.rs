//! Apache Kafka's own performance tools: `kafka-producer-perf-test` and `kafka-consumer-perf-test`, each a process.

use anyhow::{Context, ensure};
use runlog_log::kafka::KafkaConfig;
use runlog_tests::{programs::output, random::Random};
use std::{io::Write, path::PathBuf, process::Command, time::Duration};

use crate::{
    measure::{Cost, cpu_of_children},
    peers, records,
};

const PAYLOADS: usize = 100_000;

/// The tools, and a file of payloads for the producer.
#[derive(Debug)]
pub(crate) struct KafkaTools {
    jars: PathBuf,
    payloads: tempfile::NamedTempFile,
}

impl KafkaTools {
    /// Fetches the tools. Payloads have 500 incompressible bytes of text, because the tool reads lines.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let jars = peers::jars()?;
        let (mut payloads, mut random) = (tempfile::NamedTempFile::new()?, Random::new(5));
        let lines = (0..PAYLOADS).map(|_| records::incompressible(&mut random, 500));
        payloads.write_all(lines.collect::<Vec<_>>().join("\n").as_bytes())?;
        let tools = Self { jars, payloads };
        // Fails before any measurement if a program is missing, for example Java.
        output(tools.tool("ConsumerPerformance").arg("--version"))?;
        Ok(tools)
    }

    fn tool(&self, class: &str) -> Command {
        let mut java = Command::new("java");
        java.args(["-Duser.language=en", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]);
        java.arg(self.jars.join("*")).arg(format!("org.apache.kafka.tools.{class}"));
        java
    }

    /// Sends `warm_up` uncounted records, then `records` records. The time is measured by the tool, from the first counted
    /// record to the last acknowledgement. The CPU time of the whole process is divided over all records.
    pub(crate) fn produce(&self, topic: &KafkaConfig, warm_up: u64, records: u64) -> anyhow::Result<Cost> {
        let mut tool = self.tool("ProducerPerformance");
        let all = warm_up + records;
        tool.args(["--topic", &topic.topic, "--bootstrap-server", &topic.brokers, "--throughput", "-1"]);
        tool.args(["--num-records", &all.to_string(), "--warmup-records", &warm_up.to_string()]);
        tool.arg("--payload-file").arg(self.payloads.path());
        // The defaults of librdkafka: batches of at most 1,000,000 bytes, and a buffer of 100,000 records.
        tool.args(["--command-property", "acks=all", "enable.idempotence=true", "linger.ms=0", "compression.type=lz4"]);
        tool.args(["batch.size=1000000", "buffer.memory=67108864"]);
        let before = cpu_of_children()?;
        let printed = output(&mut tool)?;
        let cpu = cpu_of_children()?.saturating_sub(before);
        let (sent, rate) =
            steady_state(&printed).with_context(|| format!("unexpected output of the tool: {printed}"))?;
        ensure!(sent == records, "{sent} of {records} records were sent: {printed}");
        let share = records as f64 / all as f64;
        Ok(Cost { records, wall: Duration::from_secs_f64(records as f64 / rate), cpu: cpu.mul_f64(share) })
    }

    /// Consumes `records` records. The time is measured by the tool, from the partition assignment. The CPU time is of the
    /// whole process.
    pub(crate) fn consume(&self, topic: &KafkaConfig, records: u64) -> anyhow::Result<Cost> {
        let mut tool = self.tool("ConsumerPerformance");
        tool.args(["--topic", &topic.topic, "--bootstrap-server", &topic.brokers, "--hide-header"]);
        tool.args(["--num-records", &records.to_string()]);
        let before = cpu_of_children()?;
        let printed = output(&mut tool)?;
        let cpu = cpu_of_children()?.saturating_sub(before);
        let (read, wall) = fetched(&printed).with_context(|| format!("unexpected output of the tool: {printed}"))?;
        ensure!(read >= records, "{read} of {records} records were read: {printed}");
        Ok(Cost { records: read, wall, cpu })
    }
}

/// Records and records a second after the warm-up: `N steady state records sent, R records/sec (…), …`.
fn steady_state(printed: &str) -> Option<(u64, f64)> {
    let line = printed.lines().rev().find(|line| line.contains(" steady state records sent"))?;
    let (sent, rest) = line.split_once(" steady state records sent, ")?;
    let (rate, _) = rest.split_once(" records/sec")?;
    Some((sent.trim().parse().ok()?, rate.parse().ok()?))
}

/// Records, and the fetch time, from the line: start, end, MB, MB/s, **records**, records/s, rebalance ms, **fetch ms**, rates.
fn fetched(printed: &str) -> Option<(u64, Duration)> {
    let fields: Vec<&str> = printed.lines().last()?.split(", ").collect();
    let [_, _, _, _, records, _, _, fetch_millis, _, _] = fields[..] else { return None };
    Some((records.parse().ok()?, Duration::from_millis(fetch_millis.parse().ok()?)))
}
