//! Looks up every call of the agents by tool and arguments, with their keys shuffled: over HTTP and in this process, at
//! `eventual` and at `latest`.

use super::{
    calls::{self, AgentCall},
    dice::Dice,
    journal::Journal,
    site::{Site, WAIT},
};
use crate::{Error, client::Target};
use hdrhistogram::Histogram;
use runlog_projector::{
    Consistency,
    index::query::{self, TopicPartition},
};
use runlog_schemas::{
    answer::{ErrorKind, Lookup},
    id::RunId,
};
use serde::Serialize;
use std::time::Instant;

/// The longest time that the histogram distinguishes, nanoseconds.
const NANOS_MAX: u64 = 60_000_000_000;
/// The stream of random numbers for the spelling. Trips do not use it.
const SPELLING: u64 = u64::MAX;

/// The results of one way of looking calls up.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Way {
    /// `http` or `in_process`.
    pub(super) by: &'static str,
    /// `eventual` or `latest`.
    pub(super) consistency: &'static str,
    /// Calls found with the answer that their agent got.
    pub(super) found: u64,
    pub(super) p50_micros: f64,
    pub(super) p99_micros: f64,
}

/// Looks up every call in every way.
pub(super) async fn measure_all(
    site: &Site,
    journal: &Journal,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Vec<Way>, Error> {
    let mut ways = Vec::new();
    for consistency in ["eventual", "latest"] {
        let ask = async |call: &AgentCall, arguments: &str| lookup_over_http(site, call, arguments, consistency).await;
        ways.push(measure(site.seed, "http", consistency, agent_calls, differences, ask).await?);
    }
    for consistency in ["eventual", "latest"] {
        ways.push(measure_in_process(site.seed, journal, consistency, agent_calls, differences).await?);
    }
    Ok(ways)
}

/// Looks up every call in this process.
pub(super) async fn measure_in_process(
    seed: u64,
    journal: &Journal,
    consistency: &'static str,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Way, Error> {
    let level = if consistency == "latest" { Consistency::Latest } else { Consistency::Eventual };
    let ask = async |call: &AgentCall, arguments: &str| lookup_in_process(journal, call, arguments, level).await;
    measure(seed, "in_process", consistency, agent_calls, differences, ask).await
}

async fn measure(
    seed: u64,
    by: &'static str,
    consistency: &'static str,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
    ask: impl AsyncFn(&AgentCall, &str) -> Result<Lookup, Error>,
) -> Result<Way, Error> {
    let no_histogram = |error| Error::new(ErrorKind::Internal, "latencies cannot be counted").because(error);
    let mut nanos = Histogram::<u64>::new_with_bounds(1, NANOS_MAX, 3).map_err(no_histogram)?;
    let mut dice = Dice::new(seed, SPELLING);
    let mut matches = 0;
    for call in agent_calls {
        let arguments = calls::respell(&call.arguments, &mut dice);
        let start = Instant::now();
        let answer = ask(call, &arguments).await?;
        nanos.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(NANOS_MAX));
        if call.agrees(&answer) {
            matches += 1;
        } else {
            let AgentCall { run_id, tool, occurrence, heard, .. } = call;
            differences.push(format!(
                "{tool} {arguments} of run {run_id}, occurrence {occurrence}: its agent got {heard:?}, but the lookup returned {answer:?}"
            ));
        }
    }
    let micros = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Way { by, consistency, found: matches, p50_micros: micros(0.5), p99_micros: micros(0.99) })
}

async fn lookup_over_http(site: &Site, call: &AgentCall, arguments: &str, consistency: &str) -> Result<Lookup, Error> {
    let target = Target::run(&call.run_id)
        .path("/lookup")
        .with("tool", &call.tool)
        .with("args", arguments)
        .with("occurrence", call.occurrence)
        .with("consistency", consistency);
    site.client.get(target, WAIT).await
}

async fn lookup_in_process(
    journal: &Journal,
    call: &AgentCall,
    arguments: &str,
    consistency: Consistency,
) -> Result<Lookup, Error> {
    let projector = journal.projector();
    let fingerprint = calls::fingerprint(&call.tool, arguments)?;
    let run_id = RunId::new(call.run_id.as_str())?;
    let partition = projector.partition_of(run_id);
    projector.wait(partition, consistency, WAIT).await?;
    let store = projector.store(partition);
    let place = TopicPartition { topic: projector.log().topic(), partition };
    Ok(query::lookup::get(
        &store.view(),
        &projector.contents(WAIT),
        place,
        run_id,
        fingerprint.borrow(),
        Some(call.occurrence),
    )?)
}
