//! Looks up every call of the agents by tool and arguments, with their keys shuffled: over HTTP and in this process, at
//! `eventual` and at `latest`.

use crate::{
    calls::{self, AgentCall},
    demo::Demo,
    dice::Dice,
    error::Error,
    journal::Journal,
    server::{Server, WAIT},
};
use hdrhistogram::Histogram;
use runlog_projector::{Consistency, index::query};
use runlog_schemas::{answer::Lookup, id::RunId};
use serde::Serialize;
use std::time::Instant;

/// The longest time that the histogram distinguishes, nanoseconds.
const NANOS_MAX: u64 = 60_000_000_000;
/// The stream of random numbers for the spelling. Trips do not use it.
const SPELLING: u64 = u64::MAX;

/// The results of one way of looking calls up.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// `http` or `in_process`.
    pub by: &'static str,
    /// `eventual` or `latest`.
    pub consistency: &'static str,
    /// Calls found with the answer that their agent got.
    pub found: u64,
    pub p50_micros: f64,
    pub p99_micros: f64,
}

/// Looks up every call in every way.
pub(crate) async fn measure_all(
    demo: &Demo,
    journal: &Journal,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Vec<Way>, Error> {
    let mut ways = Vec::new();
    for server in [Some(&demo.server), None] {
        for consistency in ["eventual", "latest"] {
            ways.push(measure(demo.seed, server, journal, consistency, agent_calls, differences).await?);
        }
    }
    Ok(ways)
}

/// Looks up every call at the server, or without one in this process.
pub(crate) async fn measure(
    seed: u64,
    server: Option<&Server>,
    journal: &Journal,
    consistency: &'static str,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Way, Error> {
    let mut nanos = Histogram::<u64>::new_with_bounds(1, NANOS_MAX, 3)
        .map_err(|error| Error::internal("latencies cannot be counted").because(error))?;
    let mut dice = Dice::new(seed, SPELLING);
    let mut matches = 0;
    for call in agent_calls {
        let arguments = calls::respell(&call.arguments, &mut dice);
        let start = Instant::now();
        let answer = match server {
            Some(server) => lookup_over_http(server, call, &arguments, consistency).await?,
            None => lookup_in_process(journal, call, &arguments, consistency).await?,
        };
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
    let by = if server.is_some() { "http" } else { "in_process" };
    Ok(Way { by, consistency, found: matches, p50_micros: micros(0.5), p99_micros: micros(0.99) })
}

async fn lookup_over_http(
    server: &Server,
    call: &AgentCall,
    arguments: &str,
    consistency: &str,
) -> Result<Lookup, Error> {
    let occurrence = call.occurrence.to_string();
    let query =
        [("tool", &*call.tool), ("args", arguments), ("occurrence", occurrence.as_str()), ("consistency", consistency)];
    server.get(&["runs", &call.run_id, "lookup"], &query).await
}

async fn lookup_in_process(
    journal: &Journal,
    call: &AgentCall,
    arguments: &str,
    consistency: &str,
) -> Result<Lookup, Error> {
    let projector = &journal.projector;
    let level = if consistency == "latest" { Consistency::Latest } else { Consistency::Eventual };
    let fingerprint = calls::fingerprint(&call.tool, arguments)?;
    let run_id = RunId::new(call.run_id.as_str()).map_err(|illegal| Error::internal(illegal.to_string()))?;
    let partition = projector.partition_of(run_id);
    projector.wait(partition, level, WAIT).await?;
    let (store, contents) =
        (projector.store(partition).map_err(runlog_projector::Error::from)?, projector.contents(WAIT));
    let place = projector.place(partition);
    let occurrence = Some(call.occurrence);
    Ok(query::lookup::get(&store.view(), &contents, place, run_id, fingerprint.borrow(), occurrence)?)
}
