//! Compares the product with the independent model over seeded histories: equal answers to every query, or the seed,
//! the position, the query and both answers.
//!
//! ```text
//!   seed ─▶ runlog-model: History ─▶ encoding (JSON ─▶ Avro record bytes) ──┬─▶ pure: the fold over rows in memory ─┐
//!                                              │                            └─▶ disk: log, loop, RocksDB, crashes ──┤
//!                                              └─▶ Model ─▶ answers ══ question by question ══ the product's queries ┘
//! ```
//!
//! `kafka` does the same to a server on a real topic, with real processes and real kills: there the model reads what the
//! topic came to hold.

pub mod answers;
pub mod appender;
pub mod as_of;
pub mod bulk;
pub mod difference;
pub mod disk;
pub mod encoding;
pub mod http;
pub mod in_process;
pub mod index_changes;
pub mod kafka;
pub mod pure;
pub mod questions;
pub mod seeds;
pub mod witness;

use answers::Answers;
use difference::Difference;
use encoding::history;
use in_process::InProcess;
use runlog_model::{Event, History, Model, Rule};
use runlog_projector::index::store::Rows;
use seeds::number;
use std::collections::BTreeSet;

/// Rules of the model that the product does not have yet: nothing erases content.
pub const NOT_IN_THE_PRODUCT: [Rule; 1] = [Rule::Erasure];

/// How often a history is looked at, its end included, where `RUNLOG_LOOKS` says nothing else: the long run has more histories
/// and fewer looks at each. One look is at the end of every other history, and at any position of the rest.
const LOOKS: u64 = 3;
/// Every so many seeds are asked as of an earlier position, too.
const EARLIER_EVERY: u64 = 4;
/// Of every so many seeds, the changes of all indices are followed.
const FOLLOWED_EVERY: u64 = 24;

/// A model of what the product is to be, perhaps with another rule switched off.
fn model(history: &History, broken: Option<Rule>) -> Model {
    let mut off = NOT_IN_THE_PRODUCT.to_vec();
    off.extend(broken);
    Model::new(history.journal.clone()).breaking(&off)
}

/// What a seed came to.
#[derive(Debug)]
pub struct Checked {
    /// The model at the history's end: it knows which rules decided something.
    pub model: Model,
    /// Answers that were compared.
    pub answers: u64,
}

/// Where a history is looked at.
fn looks(history: &History) -> BTreeSet<usize> {
    let looks = number("RUNLOG_LOOKS").unwrap_or(LOOKS).max(1);
    let mut positions = history.samples(if looks == 1 { 1 } else { looks - 1 });
    if looks == 1 && positions.len() > 1 {
        // The end of every other one.
        positions.remove(usize::from(history.seed.is_multiple_of(2)));
    }
    positions.into_iter().collect()
}

/// Compares the pure projection with the model over a seed's history, at some positions.
///
/// With `broken` the model lacks that rule: a difference then is what is looked for.
pub fn pure(seed: u64, broken: Option<Rule>) -> Result<Checked, Difference> {
    let history = history(seed);
    let at = |position: usize| Difference::after_event(seed, position);
    let mut model = model(&history, broken);
    let mut product = pure::Product::new(&history);
    let samples = looks(&history);
    let mut answers = 0;
    for (position, event) in history.events().iter().enumerate() {
        match event {
            Event::Deliver(delivery) => {
                let written = encoding::encode(delivery).map_err(|error| at(position).failed(&error))?;
                model.deliver(&written.model);
                product.deliver(written.log).map_err(|error| at(position).failed(&error))?;
            }
            Event::StartMoved { partition, start } => {
                model.start_moved(*partition, *start);
                product.start_moved(*partition, *start).map_err(|error| at(position).failed(&error))?;
            }
        }
        if samples.contains(&position) {
            product.settle().map_err(|error| at(position).failed(&error))?;
            answers += compare(&model, &product.queries(), &history).map_err(|compared| at(position).over(compared))?;
        }
    }
    let end = || at(history.events().len());
    product.settle().map_err(|error| end().failed(&error))?;
    if seed.is_multiple_of(EARLIER_EVERY) {
        let compared = earlier(&model, &product.queries(), &history);
        answers += compared.map_err(|compared| end().over(compared))?;
    }
    if seed.is_multiple_of(FOLLOWED_EVERY) {
        let compared = index_changes::rows(&product.queries(), product.folded());
        compared.map_err(|compared| end().over(compared))?;
    }
    Ok(Checked { model, answers })
}

/// Asks both everything. Returns how many answers were equal, or the first that were not.
fn compare(model: &Model, product: &impl Answers, history: &History) -> Result<u64, difference::Found> {
    questions::Both { model, product, history, answers: 0 }.everything()
}

/// Asks both as of an earlier position, and compares the rows of all runs folded again with those that are there.
fn earlier<R: Rows>(model: &Model, product: &InProcess<'_, R>, history: &History) -> Result<u64, difference::Found> {
    as_of::rows(product, history)?;
    as_of::compare(model, product, history)
}

/// The events of a seed's history as text, to investigate a difference.
pub fn describe(seed: u64) -> Vec<String> {
    describe_history(&history(seed))
}

fn describe_history(history: &History) -> Vec<String> {
    let line = |(position, event): (usize, Event)| match event {
        Event::Deliver(delivery) => {
            let what = match delivery.what.record() {
                Some(record) => record.to_string(),
                None => format!("{:?}", delivery.what),
            };
            format!("{position}: {}:{} {what}", delivery.partition, delivery.offset)
        }
        Event::StartMoved { partition, start } => format!("{position}: {partition} starts at {start}"),
    };
    history.events().into_iter().enumerate().map(line).collect()
}
