//! A tool call through the gate: intent, acknowledgement, read-back, an effect that takes no time, result. One call at a
//! time, and several concurrent calls, as models request them.

use futures_util::future::try_join_all;
use runlog_producer::{Config, Journal, Runlog};
use runlog_schemas::json::Json;
use runlog_tests::{kafka::Broker, server::Launch};
use serde_json::json;

use crate::{
    Scale,
    measure::{Latencies, one_by_one, quantiles},
    report::{Figure, Goal, Row, Unit},
};

/// Calls before the measurement.
const WARM_UP: u32 = 20;
/// Concurrent calls.
const AT_ONCE: u32 = 8;

pub(crate) async fn run(broker: &Broker, scale: &Scale) -> anyhow::Result<Figure> {
    let (dir, topic) = (tempfile::tempdir()?, broker.unique_topic());
    let server = Launch::kafka(dir.path(), &topic).partitions(4).start()?;
    let kafka = Journal::Kafka { brokers: topic.brokers.clone(), server: server.url.clone() };
    let (mut straight, mut http): ([Vec<Latencies>; 2], [Vec<Latencies>; 2]) = Default::default();
    for round in 0..scale.rounds {
        let run = |way: &str| format!("{way}-{round}");
        for (nth, at_once) in [1, AT_ONCE].into_iter().enumerate() {
            straight[nth].push(calls(kafka.clone(), &run(&format!("kafka-{at_once}")), at_once, scale).await?);
            let journal = Journal::Http(server.url.clone());
            http[nth].push(calls(journal, &run(&format!("http-{at_once}")), at_once, scale).await?);
        }
    }
    server.terminate()?;
    Ok(Figure {
        title: "A tool call through the gate".into(),
        method:
            "One agent, call after call, or a number of calls at once until the last of them is answered; the server and its broker on \
                 the same machine. Two acknowledgements and one visibility are the least that the gate needs."
                .into(),
        rows: vec![
            Row::new("kafka:, p50", Unit::Millis, quantiles(0.5, &straight[0])).goal(Goal::AtMost(2.5)),
            Row::new("kafka:, p99", Unit::Millis, quantiles(0.99, &straight[0])),
            Row::new("http:, p50", Unit::Millis, quantiles(0.5, &http[0])).goal(Goal::AtMost(3.0)),
            Row::new("http:, p99", Unit::Millis, quantiles(0.99, &http[0])),
            Row::new("kafka:, 8 calls at once, p50", Unit::Millis, quantiles(0.5, &straight[1])),
            Row::new("http:, 8 calls at once, p50", Unit::Millis, quantiles(0.5, &http[1])),
        ],
    })
}

/// Each latency is the time of `at_once` concurrent calls.
async fn calls(journal: Journal, run: &str, at_once: u32, scale: &Scale) -> anyhow::Result<Latencies> {
    let runlog = Runlog::connect(Config::new(journal, "bench")).await?;
    let run = runlog.open(run).await?;
    let call = async |nth: u32| -> anyhow::Result<()> {
        let tool = run.tool("book", &json!({ "seat": nth }));
        tool.once(|_| async { Ok(Json::from(json!({ "ok": true }))) }).await?;
        Ok(())
    };
    for nth in 0..WARM_UP {
        call(nth).await?;
    }
    let all = async |nth: u32| -> anyhow::Result<()> {
        try_join_all((0..at_once).map(|each| call(WARM_UP + nth * at_once + each))).await?;
        Ok(())
    };
    one_by_one(scale.questions / 10, all).await
}
