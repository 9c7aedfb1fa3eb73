//! Queries as of earlier positions: compares the runs that the product folds again from its index with the model at the
//! same position.

use super::{
    difference::Found,
    in_process::InProcess,
    questions::{Both, Checked},
};
use runlog_model::{History, Model};
use runlog_projector::index::{
    as_of::{Limits, RunAsOf},
    store::{Parts, Rows, anomalies, dead_letters, decode, horizons, meta, runs_by_time},
};
use runlog_schemas::{
    datum::hex,
    id::{Offset, PartitionId, RunId},
    judge::Reason,
    partition::partition_of,
};
use std::{collections::BTreeMap, ops::ControlFlow};

/// No limit of bytes or time.
const LIMITS: Limits = Limits { bytes: usize::MAX, until: None };

/// Compares the answers about the runs of one partition as of one earlier position; the seed selects both. Returns how
/// many answers were equal.
pub fn compare<R: Rows>(model: &Model, product: &InProcess<'_, R>, history: &History) -> Checked<u64> {
    let partitions = u64::from(history.journal.partitions);
    let at = u32::try_from(history.seed / 7 % partitions).unwrap_or(0);
    let applied = model.partitions()["partitions"][at as usize]["applied"].as_u64().unwrap_or(0);
    if applied == 0 {
        return Ok(0);
    }
    let offset = history.seed.wrapping_mul(7919) % applied;
    let then = model.as_of(at, offset);
    let mut answers = 0;
    for run_id in runs(history, at) {
        let failure = |error: &dyn std::fmt::Display| failure(&format!("{run_id} as of {at}:{offset}"), error);
        let to = Offset::new(offset).map_err(|error| failure(&error))?;
        let past = past(product, history, at, run_id, to).map_err(|error| failure(&error))?;
        let rows = vec![past.rows(); product.rows.len()];
        let queries = InProcess { topic: product.topic, rows, parts: Vec::new() };
        let both = Both::new(&then, &queries, history);
        let shown = |id: RunId<&str>, limit: usize| product.show_as_of(id, limit, Some(to));
        answers += both.of_past(run_id, shown).map_err(|found| found.as_of(at, offset))?;
    }
    Ok(answers)
}

/// Folds all runs again to the end, and fails unless their rows equal the rows of the index.
pub fn rows<R: Rows>(product: &InProcess<'_, R>, history: &History) -> Checked {
    for at in 0..history.journal.partitions {
        let mut folded = BTreeMap::new();
        for run_id in runs(history, at) {
            let past = past(product, history, at, run_id, Offset::MAX).map_err(|error| failure(run_id, &error))?;
            folded.extend(
                all(past.rows())
                    .into_iter()
                    .filter(|(key, _)| ![horizons::INDEX.byte, runs_by_time::INDEX.byte].contains(&key[0])),
            );
        }
        let there = keep_run_rows(all(product.rows[at as usize]));
        let differs = |(key, row): (&Vec<u8>, &Vec<u8>)| (folded.get(key) != Some(row)).then(|| key.clone());
        let more = || folded.keys().find(|key| !there.contains_key(*key)).cloned();
        if let Some(key) = there.iter().find_map(differs).or_else(more) {
            let row = |rows: &BTreeMap<Vec<u8>, Vec<u8>>| rows.get(&key).map(|row| hex(row)).into();
            let question = format!("rows of partition {at} folded again");
            let (model, product) = (row(&there), row(&folded));
            return Err(Found { question, path: hex(&key), model, product, about: Box::default() });
        }
    }
    Ok(())
}

fn runs(history: &History, at: u32) -> impl Iterator<Item = &str> {
    let here = move |run_id: &&str| {
        let id = RunId::new(*run_id).expect("a run of the history has an id");
        partition_of(id, history.journal.partitions).get() == at
    };
    history.runs.iter().map(String::as_str).filter(here)
}

fn past<R: Rows>(
    product: &InProcess<'_, R>,
    history: &History,
    at: u32,
    run_id: &str,
    to: Offset,
) -> Result<RunAsOf, anyhow::Error> {
    let mut past = RunAsOf::new(RunId::new(run_id.to_owned())?, PartitionId::new(at)?, history.journal.partitions);
    past.fold(product.rows[at as usize], to, LIMITS)?;
    Ok(past)
}

fn failure(question: &str, error: &dyn std::fmt::Display) -> Found {
    let product = format!("failed: {error:#}").into();
    let (path, model) = (String::new(), serde_json::Value::Null);
    Found { question: question.to_owned(), path, model, product, about: Box::default() }
}

pub(super) fn all<R: Rows>(rows: &R) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    rows.scan(&[], &[], rocksdb::Direction::Forward, &mut |key, row| {
        all.insert(key.to_vec(), row.to_vec());
        Ok(ControlFlow::Continue(()))
    })
    .expect("rows can be read");
    all
}

/// Removes the rows of the partition itself and the rows of records in the wrong partition.
fn keep_run_rows(mut rows: BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows.retain(|key, _| {
        ![meta::INDEX.byte, dead_letters::INDEX.byte, horizons::INDEX.byte, runs_by_time::INDEX.byte].contains(&key[0])
    });
    let refused: Vec<_> = rows.iter().filter(|(key, _)| key.starts_with(anomalies::prefix().bytes())).collect();
    let mut strays = Vec::new();
    for (key, row) in refused {
        let anomaly: anomalies::AnomalyRow = decode(key, row).expect("an anomaly");
        let mut parts = Parts::new(key);
        if let (Reason::WrongPartition, Some(offset), Some(index)) = (anomaly.reason, parts.offset(), parts.u32()) {
            strays.push(key.clone());
            strays.push(anomalies::of_run(anomaly.run_id.borrow(), offset, index).into_bytes());
        }
    }
    strays.iter().for_each(|key| drop(rows.remove(key)));
    rows
}
