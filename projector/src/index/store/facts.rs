//! Evolving facts: their families, and the fact that a record states. Their rows are in the index of each family: calls in
//! `tool_calls`, turns in `turns`, proposals in `proposals`. A retraction has a row in the index of the retracted fact.

use runlog_schemas::{codec::Envelope, id::RecordId, payload::PayloadType, record::Validity, symbols};

symbols! {
    /// The families of evolving facts.
    Family {
        ToolCall = "tool_call", ConversationTurn = "conversation_turn", CodeEditProposal = "code_edit_proposal",
    }
}

/// The fact about which an applied record makes a statement: its family, and its key within the run. The key is the
/// request's record id, the message id, or the proposal's request id. For a hidden payload it follows from the record's
/// `facts` alone.
///
/// A decision is about a call if the run has that call, otherwise about another effect. This function does not distinguish
/// these cases.
pub fn fact_of<'a>(record: &'a Envelope<'_>) -> Option<(Family, &'a str)> {
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

/// The valid time of a record's statement: its own `validity`, or the writer's timestamp.
pub fn validity(record: &Envelope<'_>) -> Validity {
    let written = i64::try_from(record.timestamp_millis).unwrap_or(i64::MAX);
    record.validity.unwrap_or(Validity { at: written, is_valid: true })
}
