//! Compares the product with the independent model over seeded histories: equal answers to every query, or the seed,
//! the position, the query and both answers.
//!
//! ```text
//!   seed ─▶ runlog-model: History ─▶ encoding (JSON ─▶ Avro record bytes) ──┬─▶ pure: the fold over rows in memory ─┐
//!                                              │                            └─▶ disk: log, loop, RocksDB, crashes ──┤
//!                                              └─▶ Model ─▶ answers ══ question by question ══ the product's queries ┘
//! ```
//!
//! `kafka` does the same to a server on a real topic, with real processes and kills. There the model reads the records of
//! the topic.

pub mod about;
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

/// Rules of the model that the product does not implement yet: the erasure of content.
pub const NOT_IN_THE_PRODUCT: [Rule; 1] = [Rule::Erasure];

/// Positions of a history that are compared, including its end, unless `RUNLOG_LOOKS` is set. The long run has more
/// histories with fewer positions each. A single position is the end in every other history, and any position in the rest.
const LOOKS: u64 = 3;
/// One seed in this number is also compared as of an earlier position.
const EARLIER_EVERY: u64 = 4;
/// One seed in this number also follows the changes of all indices.
const FOLLOWED_EVERY: u64 = 24;

/// The model without the rules that the product lacks, and without `broken`.
fn model(history: &History, broken: Option<Rule>) -> Model {
    let mut off = NOT_IN_THE_PRODUCT.to_vec();
    off.extend(broken);
    Model::new(history.journal.clone()).breaking(&off)
}

/// The result of a seed without a difference.
#[derive(Debug)]
pub struct Checked {
    /// The model at the end of the history. It has counted which rules decided a record.
    pub model: Model,
    /// The number of compared answers.
    pub answers: u64,
}

/// The positions of a history that are compared.
fn looks(history: &History) -> BTreeSet<usize> {
    let looks = number("RUNLOG_LOOKS").unwrap_or(LOOKS).max(1);
    let mut positions = history.samples(if looks == 1 { 1 } else { looks - 1 });
    if looks == 1 && positions.len() > 1 {
        // Keeps the end for every other seed.
        positions.remove(usize::from(history.seed.is_multiple_of(2)));
    }
    positions.into_iter().collect()
}

/// Compares the pure projection with the model over a seed's history, at some positions.
///
/// With `broken` the model lacks that rule, and the caller expects a difference.
pub fn pure(seed: u64, broken: Option<Rule>) -> Result<Checked, Difference> {
    let history = history(seed);
    let at = |position: usize| Difference::after_event(seed, position);
    let mut model = model(&history, broken);
    // Every other seed's journal has a home, which changes no answer.
    let mut product = pure::Product::with_home(&history, seed.is_multiple_of(2));
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

/// Compares all answers. Returns how many were equal, or the first difference.
fn compare(model: &Model, product: &impl Answers, history: &History) -> Result<u64, difference::Found> {
    questions::Both::new(model, product, history).everything()
}

/// Compares the answers as of an earlier position. Also folds all runs again and compares their rows with the index.
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
