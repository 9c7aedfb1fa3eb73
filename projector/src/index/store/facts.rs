//! Evolving facts: what they are called, and which record states what. Their rows are those of their own indices: calls
//! in `tool_calls`, turns in `turns`, proposals in `proposals`; a retraction has a row in the index of the fact.

use runlog_schemas::{codec::Envelope, id::RecordId, payload::PayloadType, record::Validity, symbols};

symbols! {
    /// What evolving facts are about.
    Family {
        ToolCall = "tool_call", ConversationTurn = "conversation_turn", CodeEditProposal = "code_edit_proposal",
    }
}

/// The fact that an applied record states something of, and its key within the run: the request's record id, the
/// message id, the proposal's request id. What is hidden is told by the facts alone.
///
/// A decision is about a call where the run has that call, otherwise about another effect: that is not told here.
pub fn of<'a>(record: &'a Envelope<'_>) -> Option<(Family, &'a str)> {
    let facts = &record.facts;
    let answers = || Some((Family::ToolCall, facts.answers.as_ref()?.as_str()));
    match (facts.payload_type.known()?, facts.status.as_deref()) {
        (PayloadType::ToolCallRequested, _) => Some((Family::ToolCall, record.record_id.as_str())),
        (PayloadType::ToolCallCompleted | PayloadType::ToolCallFailed, _) => answers(),
        (PayloadType::EffectResolution, Some("done" | "adopt" | "give_up")) => answers(),
        (PayloadType::ConversationTurn, _) => Some((Family::ConversationTurn, facts.key.as_deref()?)),
        (PayloadType::CodeEditProposal, _) => {
            let key = facts.key.as_deref().filter(|key| RecordId::new(*key).is_ok())?;
            Some((Family::CodeEditProposal, key))
        }
        _ => None,
    }
}

/// From when on a record's statement holds: as it says, or from its writer's time.
pub fn validity(record: &Envelope<'_>) -> Validity {
    let written = i64::try_from(record.timestamp_millis).unwrap_or(i64::MAX);
    record.validity.unwrap_or(Validity { at: written, is_valid: true })
}
