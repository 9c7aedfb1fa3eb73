//! A tool call through the gate: intent, acknowledgement, read-back, an effect that takes no time, result.

use runlog_producer::{Config, Journal, Runlog};
use runlog_schemas::json::Json;
use runlog_tests::{kafka::Broker, server::Launch};
use serde_json::json;

use crate::{
    Scale,
    measure::{Latencies, at, one_by_one},
    report::{Figure, Goal, Row, Unit},
};

/// Calls before those that count.
const WARM_UP: u32 = 20;

pub(crate) async fn run(broker: &Broker, scale: &Scale) -> anyhow::Result<Figure> {
    let (dir, topic) = (tempfile::tempdir()?, broker.unique_topic());
    let server = Launch::kafka(dir.path(), &topic).partitions(4).start()?;
    let kafka = Journal::Kafka { brokers: topic.brokers.clone(), server: server.url.clone() };
    let (mut straight, mut http) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        let run = |way: &str| format!("{way}-{round}");
        straight.push(calls(kafka.clone(), &run("kafka"), scale).await?);
        http.push(calls(Journal::Http(server.url.clone()), &run("http"), scale).await?);
    }
    server.terminate()?;
    Ok(Figure {
        title: "A tool call through the gate".into(),
        method:
            "One agent, call after call; the server and its broker on the same machine. Two acknowledgements and one \
                 visibility are the least that the gate needs."
                .into(),
        rows: vec![
            Row::new("kafka:, p50", Unit::Millis, at(0.5, &straight)).goal(Goal::AtMost(2.5)),
            Row::new("kafka:, p99", Unit::Millis, at(0.99, &straight)),
            Row::new("http:, p50", Unit::Millis, at(0.5, &http)).goal(Goal::AtMost(3.0)),
            Row::new("http:, p99", Unit::Millis, at(0.99, &http)),
        ],
    })
}

async fn calls(journal: Journal, run: &str, scale: &Scale) -> anyhow::Result<Latencies> {
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
    one_by_one(scale.questions / 10, |nth| call(WARM_UP + nth)).await
}
