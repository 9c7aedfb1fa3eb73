//! Converts a checkpoint of a3s-code-core to one of the journal, and back.
//!
//! ```text
//!   a3s       {schema_version, run_id, session_id, turn, messages: [m1, m2], …}
//!   record    session_id, turn, tool_calls_count    for readers of the journal
//!             messages   m1, m2                     each written by the first checkpoint that has it
//!             state      the checkpoint as it serialises, without messages
//!             schema_version   Runlog's own; `state` contains a3s-code-core's
//! ```
//!
//! Readers skip a record whose `schema_version` they do not know, and return an older one. A checkpoint of a later version of
//! a3s-code-core must be refused instead, so that version is not the record's.

use crate::error::{LoadError, SCHEMA_VERSION_MAX};
use a3s_code_core::loop_checkpoint::LoopCheckpoint;
use runlog_ports::producer::{Json, LoopState, answer};
use serde::Deserialize;

/// The checkpoint as a loop's state.
///
/// Errors: the checkpoint does not serialise.
pub(crate) fn state(checkpoint: &LoopCheckpoint) -> Result<LoopState, serde_json::Error> {
    let messages = checkpoint.messages.iter().map(Json::of).collect::<Result<_, _>>()?;
    // Field by field, so that no message is copied.
    let rest = LoopCheckpoint {
        schema_version: checkpoint.schema_version,
        run_id: checkpoint.run_id.clone(),
        session_id: checkpoint.session_id.clone(),
        capability_binding: checkpoint.capability_binding.clone(),
        standing_context_digest: checkpoint.standing_context_digest.clone(),
        durable_source: checkpoint.durable_source.clone(),
        turn: checkpoint.turn,
        messages: Vec::new(),
        total_usage: checkpoint.total_usage.clone(),
        tool_calls_count: checkpoint.tool_calls_count,
        verification_reports: checkpoint.verification_reports.clone(),
        convergence: checkpoint.convergence.clone(),
        checkpoint_ms: checkpoint.checkpoint_ms,
    };
    Ok(LoopState {
        session_id: checkpoint.session_id.clone(),
        turn: checkpoint.turn as u64,
        messages,
        state: Some(Json::of(&rest)?),
        tool_calls_count: checkpoint.tool_calls_count as u64,
    })
}

/// The members of a checkpoint that show whether this build can read it.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema_version: u32,
    #[allow(dead_code, reason = "its presence distinguishes a checkpoint of a3s-code-core from another agent's state")]
    run_id: String,
    /// It is [`deleted`].
    #[serde(default)]
    deleted: bool,
}

/// The state that marks a run's checkpoints as deleted.
pub(crate) fn deleted(run_id: &str) -> LoopState {
    let state = serde_json::json!({ "run_id": run_id, "deleted": true });
    LoopState { state: Some(state.into()), ..LoopState::default() }
}

/// Converts the checkpoint that the journal returned for `run_id`; `None` if it was deleted.
///
/// Errors: not a checkpoint of a3s-code-core, a version beyond [`SCHEMA_VERSION_MAX`], not loadable for a3s-code-core,
/// or another run's.
pub(crate) fn checkpoint(run_id: &str, answered: &answer::Checkpoint) -> Result<Option<LoopCheckpoint>, LoadError> {
    let not_theirs = |source| LoadError::NotTheirs { run_id: run_id.to_owned(), source };
    let state = answered.state.as_ref().map_or("null", Json::as_str);
    let Head { schema_version, deleted, .. } = serde_json::from_str(state).map_err(not_theirs)?;
    if deleted {
        return Ok(None);
    }
    if schema_version > SCHEMA_VERSION_MAX {
        return Err(LoadError::FutureVersion { run_id: run_id.to_owned(), schema_version });
    }
    let mut checkpoint: LoopCheckpoint = serde_json::from_str(state).map_err(not_theirs)?;
    for message in answered.messages.iter().flatten() {
        checkpoint.messages.push(serde_json::from_str(message.as_str()).map_err(not_theirs)?);
    }
    let loadable = checkpoint.ensure_loadable().and_then(|()| checkpoint.ensure_addressed_by(run_id));
    loadable.map_err(|error| LoadError::Refused { run_id: run_id.to_owned(), source: error.into() })?;
    Ok(Some(checkpoint))
}
