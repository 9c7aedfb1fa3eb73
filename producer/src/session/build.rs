//! Builds records before they are numbered: this needs no lock of the handle.

use crate::{
    config::{Config, failpoint},
    error::Error,
    transport::Transport,
};
use runlog_schemas::{
    depth,
    id::{RecordId, RunId},
    payload::Payload,
    record::JournalRecord,
};

/// Builds a record without numbers from a record id, a payload, and a call's key if it has one. A payload that is too
/// large goes to the content store.
pub(crate) async fn build_record(
    transport: &Transport,
    config: &Config,
    run_id: RunId<&str>,
    (record_id, payload, key): (RecordId, Payload, Option<&str>),
) -> Result<JournalRecord, Error> {
    let mut record = JournalRecord::new(run_id, record_id, &config.agent_id, payload);
    record.body.idempotency_key = key.map(str::to_owned);
    if let Some(redaction) = &config.redaction {
        redaction.policy_id().clone_into(&mut record.body.redaction_policy_id);
    }
    offload_payload(transport, config, record).await
}

/// Moves a payload that is too large for its record into the content store.
pub(super) async fn offload_payload(
    transport: &Transport,
    config: &Config,
    record: JournalRecord,
) -> Result<JournalRecord, Error> {
    let (id, run_id) = (&record.body.record_id, &record.body.run_id);
    let deep = |why: &str| format!("record {id} of run {run_id} could not be read whole: {why}");
    depth::check(&record).map_err(|too_deep| Error::from(too_deep).map_message(deep).about_record(id.borrow()))?;
    let record = transport.offload_payload(record).await?;
    if matches!(record.payload, Payload::StoredPayload(_)) {
        (config.failpoints)(failpoint::CONTENT_STORED);
    }
    Ok(record)
}
