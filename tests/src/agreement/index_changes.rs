//! The changes of all indices, per delivery: applied in order they produce the rows of the index.

use super::{as_of::all, difference::Found, in_process::InProcess, questions::Checked};
use runlog_log::Delivery;
use runlog_projector::index::{
    changes::{
        Changed, Deltas,
        shown::{self, Shows},
    },
    fold,
    query::TopicPartition,
    store::{
        Rows,
        horizons::{self, Horizons},
        meta, runs_by_time,
    },
};
use runlog_schemas::{codec::NoRegistry, datum::hex, id::PartitionId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Follows each partition over its folded log twice: once with its runs in memory, and once without, like a client that
/// resumes at a cursor. Both get the same changes. Each change fits the row before it, and all changes together produce
/// the rows. Each row has JSON with a unique key.
pub fn rows<'l, R: Rows>(product: &InProcess<'_, R>, folded: impl Iterator<Item = &'l [Delivery]>) -> Checked {
    let partitions = u32::try_from(product.rows.len()).unwrap_or(u32::MAX);
    for (rows, log) in product.rows.iter().zip(folded) {
        let failed = |error: &dyn std::fmt::Display| differs("the changes", format!("{error:#}"));
        let skips = fold::skips_of(*rows).map_err(|error| failed(&error))?;
        let mut in_memory = Deltas::new(partitions, Arc::new(NoRegistry), usize::MAX);
        let mut recomputed = Deltas::new(partitions, Arc::new(NoRegistry), 0);
        let mut followed = BTreeMap::new();
        for delivery in log {
            let delta = in_memory.compute(*rows, &skips, delivery).map_err(|error| failed(&error))?;
            let again = recomputed.compute(*rows, &skips, delivery).map_err(|error| failed(&error))?;
            let place = format!("the changes of {}:{}", delivery.partition, delivery.offset);
            if delta != again {
                return Err(differs(&place, format!("with runs in memory {delta:?}, without {again:?}")));
            }
            delta.rows.into_iter().try_for_each(|change| apply(&mut followed, &place, change))?;
        }
        let mut there = all(*rows);
        there.retain(|key, _| ![meta::INDEX.byte, horizons::INDEX.byte, runs_by_time::INDEX.byte].contains(&key[0]));
        if there != followed {
            let of = |a: &BTreeMap<Vec<u8>, Vec<u8>>, b: &BTreeMap<Vec<u8>, Vec<u8>>| {
                a.iter().find(|(key, row)| b.get(*key) != Some(*row)).map(|(key, _)| hex(key))
            };
            let what = format!("there {:?}, followed {:?}", of(&there, &followed), of(&followed, &there));
            return Err(differs("the rows after all changes", what));
        }
        let horizons = Horizons::read(|key| rows.get(key)).map_err(|error| failed(&error))?;
        let place = TopicPartition { topic: product.topic, partition: PartitionId::ZERO, log: None };
        let shows = Shows { place, horizons: &horizons, proofs: None };
        let mut keys = BTreeSet::new();
        for (key, row) in &there {
            shown::row_of(key, row, shows).map_err(|error| failed(&error))?;
            let shown = shown::key(key).map_err(|error| failed(&error))?;
            if !keys.insert((key[0], shown.to_string())) {
                return Err(differs("keys as JSON", format!("{shown} twice")));
            }
        }
    }
    Ok(())
}

fn apply(followed: &mut BTreeMap<Vec<u8>, Vec<u8>>, place: &str, Changed { key, old, new }: Changed) -> Checked {
    let before = match &new {
        Some(row) => followed.insert(key.clone(), row.clone()),
        None => followed.remove(&key),
    };
    if before == old && old != new {
        return Ok(());
    }
    Err(differs(place, format!("{} was {before:?}, not {old:?}, and is {new:?}", hex(&key))))
}

fn differs(question: &str, what: String) -> Found {
    let (path, model) = (String::new(), serde_json::Value::Null);
    Found { question: question.to_owned(), path, model, product: what.into(), about: Box::default() }
}
