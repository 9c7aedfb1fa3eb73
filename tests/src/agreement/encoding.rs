//! Encodes the deliveries of a history, and gives the model the hashes of the encoded bytes.

use anyhow::Context;
use runlog_model::What;
use runlog_schemas::{
    codec::{self, Envelope, Framing, RECORD_BYTES_MAX},
    datum::Sha256,
    draft::Draft,
    payload::Genesis,
    record::{JournalRecord, RecordKind},
};
use std::sync::Arc;

/// One delivery, for the model and for the product.
#[derive(Debug)]
pub struct Encoded {
    /// With the hashes of what was encoded.
    pub model: runlog_model::Delivery,
    /// With the bytes.
    pub log: runlog_log::Delivery,
}

/// Encodes the record of a delivery.
pub fn encode(delivery: &runlog_model::Delivery) -> anyhow::Result<Encoded> {
    let (value, what) = match &delivery.what {
        What::Record { record, version, .. } => {
            let written = Draft::parse(&record.to_string()).with_context(|| format!("not taken: {record}"))?.record;
            let value = match version {
                1 => codec::encode(&written),
                _ => codec::encode_renumbered(&written, Framing::SingleObject)?,
            };
            let datums = datums(&value)?.iter().map(Sha256::to_string).collect();
            (value, What::Record { record: Arc::clone(record), version: *version, datums })
        }
        What::Unreadable { reason, bytes, .. } => {
            let value = unreadable(reason, *bytes)?;
            let (sha256, bytes) = (Sha256::of(&value).to_string(), value.len() as u64);
            (value, What::Unreadable { reason: reason.clone(), sha256, bytes })
        }
        what @ What::UnknownSchema { .. } => {
            ([&[0xC3, 0x01][..], &[0xEE; 8], b"of a later version"].concat(), what.clone())
        }
    };
    let log = runlog_log::Delivery {
        partition: delivery.partition.try_into()?,
        offset: delivery.offset.try_into()?,
        timestamp_millis: delivery.log_millis,
        key: Vec::new(),
        value,
        headers: Vec::new(),
    };
    Ok(Encoded { model: runlog_model::Delivery { what, ..delivery.clone() }, log })
}

/// The hashes that the run is hashed over: a batch counts as its records.
fn datums(value: &[u8]) -> anyhow::Result<Vec<Sha256>> {
    let envelope = Envelope::read(codec::unframe(value)?)?;
    match envelope.kind {
        RecordKind::Batch => Ok(envelope.records()?.iter().map(Envelope::record_hash).collect()),
        _ => Ok(vec![envelope.record_hash()]),
    }
}

/// Bytes that cannot be read for this reason, different ones for different numbers.
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
