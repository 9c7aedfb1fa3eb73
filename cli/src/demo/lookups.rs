//! Looks up every call of the agents by tool and arguments, with their keys shuffled: over HTTP and in this process, at
//! `eventual` and at `latest`.

use super::{
    calls::{self, Known},
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
pub(super) async fn all_ways(
    site: &Site,
    journal: &Journal,
    known: &[Known],
    differences: &mut Vec<String>,
) -> Result<Vec<Way>, Error> {
    let mut ways = Vec::new();
    for consistency in ["eventual", "latest"] {
        let ask = async |known: &Known, arguments: &str| over_http(site, known, arguments, consistency).await;
        ways.push(one_way(site.seed, "http", consistency, known, differences, ask).await?);
    }
    for consistency in ["eventual", "latest"] {
        ways.push(in_process(site.seed, journal, consistency, known, differences).await?);
    }
    Ok(ways)
}

/// Looks up every call in this process.
pub(super) async fn in_process(
    seed: u64,
    journal: &Journal,
    consistency: &'static str,
    known: &[Known],
    differences: &mut Vec<String>,
) -> Result<Way, Error> {
    let fresh = if consistency == "latest" { Consistency::Latest } else { Consistency::Eventual };
    let ask = async |known: &Known, arguments: &str| directly(journal, known, arguments, fresh).await;
    one_way(seed, "in_process", consistency, known, differences, ask).await
}

async fn one_way(
    seed: u64,
    by: &'static str,
    consistency: &'static str,
    known: &[Known],
    differences: &mut Vec<String>,
    ask: impl AsyncFn(&Known, &str) -> Result<Lookup, Error>,
) -> Result<Way, Error> {
    let no_histogram = |error| Error::new(ErrorKind::Internal, "latencies cannot be counted").because(error);
    let mut nanos = Histogram::<u64>::new_with_bounds(1, NANOS_MAX, 3).map_err(no_histogram)?;
    let mut dice = Dice::new(seed, SPELLING);
    let mut found = 0;
    for known in known {
        let arguments = calls::respell(&known.arguments, &mut dice);
        let begun = Instant::now();
        let answer = ask(known, &arguments).await?;
        nanos.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(NANOS_MAX));
        if known.agrees(&answer) {
            found += 1;
        } else {
            let Known { run_id, tool, occurrence, heard, .. } = known;
            differences.push(format!(
                "{tool} {arguments} of run {run_id}, occurrence {occurrence}: its agent got {heard:?}, but the lookup returned {answer:?}"
            ));
        }
    }
    let micros = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Way { by, consistency, found, p50_micros: micros(0.5), p99_micros: micros(0.99) })
}

async fn over_http(site: &Site, known: &Known, arguments: &str, consistency: &str) -> Result<Lookup, Error> {
    let target = Target::run(&known.run_id)
        .path("/lookup")
        .with("tool", &known.tool)
        .with("args", arguments)
        .with("occurrence", known.occurrence)
        .with("consistency", consistency);
    site.client.get(target, WAIT).await
}

async fn directly(journal: &Journal, known: &Known, arguments: &str, fresh: Consistency) -> Result<Lookup, Error> {
    let projector = journal.projector();
    let fingerprint = calls::fingerprint(&known.tool, arguments)?;
    let run_id = RunId::new(known.run_id.as_str())?;
    let partition = projector.partition_of(run_id);
    projector.wait(partition, fresh, WAIT).await?;
    let store = projector.store(partition);
    let place = TopicPartition { topic: projector.log().topic(), partition };
    Ok(query::lookup::get(
        &store.view(),
        &projector.contents(WAIT),
        place,
        run_id,
        fingerprint.borrow(),
        Some(known.occurrence),
    )?)
}
