//! Parses a batch in JSON. Each of its records has the form of a single record.

use super::Draft;
use crate::{
    payload::{
        Payload,
        wrapped::{BATCH_RECORDS_MAX, Batch},
    },
    record::RecordKind,
};
use serde::Deserialize;
use serde_json::value::RawValue;

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            records: Vec<Box<RawValue>>,
        }
        let raw = Raw::deserialize(d)?;
        let record = |raw: &RawValue| match Draft::parse(raw.get()) {
            Ok(draft) if matches!(draft.record.payload, Payload::Batch(_)) => {
                Err(serde::de::Error::custom("a batch within a batch"))
            }
            Ok(draft)
                if draft.record.body.facts.has_decision_basis()
                    && draft.record.body.record_kind == RecordKind::EffectResolution =>
            {
                Err(serde::de::Error::custom("a decision within a batch"))
            }
            Ok(draft) if !draft.has_record_id => {
                Err(serde::de::Error::custom("a record of a batch needs its record_id"))
            }
            Ok(draft) => Ok(draft.record),
            Err(error) => Err(serde::de::Error::custom(error)),
        };
        if raw.records.len() > BATCH_RECORDS_MAX {
            return Err(serde::de::Error::custom("too many records in a batch"));
        }
        Ok(Self { records: raw.records.iter().map(|raw| record(raw)).collect::<Result<_, _>>()? })
    }
}
