//! Encodes the deliveries of a history, and gives the model the hashes of the encoded bytes.
//!
//! In the generator, the basis of an attempt or a decision is made of the model's hashes of the records' JSON. In the log it is made
//! of the content hashes of the encoded records: [`history`] replaces it.

use anyhow::Context;
use runlog_model::{History, Step, What};
use runlog_projector::index::{
    claimant::HEADER,
    home::{self, Accept, Carried, Home},
};
use runlog_schemas::{
    codec::{self, Envelope, Framing, RECORD_BYTES_MAX},
    datum::Sha256,
    draft::Draft,
    id::LogId,
    payload::Genesis,
    record::{JournalRecord, RecordKind},
};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};

/// One delivery, for the model and for the product.
#[derive(Debug)]
pub struct Encoded {
    /// With the hashes of the encoded records.
    pub model: runlog_model::Delivery,
    /// With the bytes.
    pub log: runlog_log::Delivery,
}

/// The history of a seed, each basis made of content hashes.
pub fn history(seed: u64) -> History {
    let mut history = runlog_model::history(seed);
    let mut contents = HashMap::new();
    for step in &mut history.steps {
        if let Step::Append { delivery, .. } = step
            && let What::Record { record, .. } = &mut delivery.what
        {
            let named = Value::clone(record);
            replace_bases(Arc::make_mut(record), &contents);
            remember_contents(&named, record, &mut contents);
        }
    }
    history
}

/// The records of a batch; empty for other records.
fn inner(record: &Value) -> &[Value] {
    record.pointer("/payload/records").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn replace_bases(record: &mut Value, contents: &HashMap<String, String>) {
    if let Some(basis) = record.pointer_mut("/facts/basis")
        && let Some(generated) = basis.as_str()
    {
        *basis = runlog_model::basis(generated, |content| contents.get(content).cloned()).into();
    }
    for record in record.pointer_mut("/payload/records").and_then(Value::as_array_mut).into_iter().flatten() {
        replace_bases(record, contents);
    }
}

/// Maps the generator's hash of a record, and of the records within, to the content hash.
fn remember_contents(named: &Value, record: &Value, contents: &mut HashMap<String, String>) {
    for (named, record) in inner(named).iter().zip(inner(record)) {
        remember_contents(named, record, contents);
    }
    if let Ok(draft) = Draft::parse(&record.to_string()) {
        contents.insert(runlog_model::content_hash(named), draft.record.content_hash().to_string());
    }
}

/// Encodes the record of a delivery.
pub fn encode(delivery: &runlog_model::Delivery) -> anyhow::Result<Encoded> {
    let mut headers = Vec::new();
    let (value, what) = match &delivery.what {
        What::Record { record, version, claimant, .. } => {
            let written =
                Draft::parse(&record.to_string()).with_context(|| format!("invalid record: {record}"))?.record;
            if written.body.record_kind == RecordKind::Genesis && delivery.offset > 0 {
                headers = without_effect(delivery);
            }
            headers.extend(claimant.iter().map(|claimant| (HEADER.to_owned(), claimant.clone().into_bytes())));
            let value = match version {
                1 => codec::encode(&written),
                _ => codec::encode_renumbered(&written, Framing::SingleObject),
            };
            let (datums, contents) = hashes(&value)?;
            let (record, version, claimant) = (Arc::clone(record), *version, claimant.clone());
            (value, What::Record { record, version, datums, contents, claimant })
        }
        What::Unreadable { reason, bytes, .. } => {
            let value = unreadable(reason, *bytes)?;
            let (sha256, bytes) = (Sha256::of(&value).to_string(), value.len() as u64);
            (value, What::Unreadable { reason: reason.clone(), sha256, bytes })
        }
        what @ (What::UnknownSchema { .. } | What::UnknownOfRun { .. }) => {
            ([&[0xC3, 0x01][..], &[0xEE; 8], b"of a later version"].concat(), what.clone())
        }
    };
    let log = runlog_log::Delivery {
        partition: delivery.partition.try_into()?,
        offset: delivery.offset.try_into()?,
        timestamp_millis: delivery.log_millis,
        key: key(delivery, &what),
        value,
        headers,
    };
    Ok(Encoded { model: runlog_model::Delivery { what, ..delivery.clone() }, log })
}

/// The key of a record's message: the run's id, as our writers send it. A record that can be read names its run itself, so that some
/// have no key or another run's, which changes no answer.
fn key(delivery: &runlog_model::Delivery, what: &What) -> Vec<u8> {
    match what {
        What::UnknownOfRun { run_id, .. } => run_id.clone().into_bytes(),
        What::Record { record, .. } => match delivery.offset % 8 {
            6 => Vec::new(),
            7 => b"another run".to_vec(),
            _ => record["run_id"].as_str().unwrap_or_default().into(),
        },
        What::Unreadable { .. } | What::UnknownSchema { .. } => Vec::new(),
    }
}

/// The headers of a further genesis record, which change no answer: an acceptance of runs, bytes that are no header of this version,
/// or none.
fn without_effect(delivery: &runlog_model::Delivery) -> Vec<(String, Vec<u8>)> {
    let accept = Accept { epoch: 2, run: None, who: "ann".into(), why: "checked".into() };
    match (delivery.offset + delivery.partition as u64) % 4 {
        0 => vec![home::header(&Carried::Accept(accept))],
        1 => vec![(home::HEADER.into(), br#"{"home":{"epoch":9}}"#.to_vec())],
        2 => vec![(home::HEADER.into(), vec![0xFF; 9])],
        _ => Vec::new(),
    }
}

/// The log that is the journal's home in [`name_home`].
pub fn own_log() -> Option<LogId> {
    LogId::memory("own")
}

/// Names the home of the journal in the genesis of a partition: the own log, in epoch 2. A further genesis without a header names an
/// earlier home, as a record does that a mirror copies late.
pub fn name_home(log: &mut runlog_log::Delivery) {
    let is_genesis = codec::unframe(&log.value)
        .ok()
        .and_then(|bytes| Envelope::read(bytes).ok())
        .is_some_and(|record| record.kind == RecordKind::Genesis);
    let (epoch, of) = if log.offset.get() == 0 { (2, own_log()) } else { (1, LogId::memory("earlier")) };
    if let Some(of) = of.filter(|_| is_genesis && log.headers.is_empty()) {
        let home = Home { epoch, log: of, from: None, who: "ann".into(), why: "moved".into() };
        log.headers.push(home::header(&Carried::Home(home)));
    }
}

/// The hashes that the run is hashed over, and the content hashes: a batch counts as its records.
fn hashes(value: &[u8]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let envelope = Envelope::read(codec::unframe(value)?)?;
    let records = match envelope.kind {
        RecordKind::Batch => envelope.records()?,
        _ => vec![envelope],
    };
    let datums = records.iter().map(|record| record.record_hash().to_string()).collect();
    Ok((datums, records.iter().map(|record| record.content_hash().to_string()).collect()))
}

/// Bytes that are unreadable for this reason; they differ by `number`.
fn unreadable(reason: &str, number: u64) -> anyhow::Result<Vec<u8>> {
    let number_text = number.to_string();
    Ok(match reason {
        "not_framed" => format!("not a record: {number_text}").into_bytes(),
        "undecodable" => {
            let genesis = Genesis { journal_id: number_text, partitions: 1 };
            let id = runlog_schemas::id::RecordId::new("cut".to_owned())?;
            let mut whole = codec::encode(&JournalRecord::of_partition(id, "test", genesis.into()));
            whole.truncate(whole.len() - 1);
            whole
        }
        "too_large" => {
            let mut whole = vec![b'x'; RECORD_BYTES_MAX + 1];
            whole[..number_text.len()].copy_from_slice(number_text.as_bytes());
            whole
        }
        other => anyhow::bail!("no bytes are unreadable for {other}"),
    })
}
