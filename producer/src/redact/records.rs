//! Redacts the content of a record before it is encoded. Pure.
//!
//! Ids, references, hashes, keys, numbers, statuses and names never change, because the journal finds, judges and recognises
//! records by them.

use super::{Redaction, join};
use crate::error::{Action, Error};
use runlog_schemas::{
    answer::ErrorKind,
    json::{Json, members},
    payload::{LoopCheckpoint, Payload, PayloadType, wrapped::HostPayload},
    record::{Facts, JournalRecord, REDACTION_DEFAULT},
};
use serde_json::{Value, value::RawValue};

/// Name endings of members with human-readable text.
const PROSE: [&str; 6] = ["summary", "reason", "detail", "why", "label", "replacement"];
/// A member that matches [`PROSE`] and contains a symbol instead.
const SYMBOL: &str = "stop_reason";
/// Name endings of members that identify something.
const NAMES: [&str; 9] = ["_id", "_ids", "_ref", "_refs", "_key", "_keys", "_hash", "_seq", "fingerprint"];

impl Redaction {
    /// Redacts a record. Its facts, and so its fingerprints, keep the original content's values.
    ///
    /// Errors: `Invalid` for a checkpoint with a base, if a value must be removed: its hash covers the whole list, which is not
    /// available here.
    pub(crate) fn record(&self, record: &mut JournalRecord) -> Result<(), Error> {
        let sized = matches!(record.payload, Payload::LoopCheckpoint(_));
        self.payload(&mut record.payload).map_err(|what| {
            let message = format!("record {} cannot be redacted: {what}", record.body.record_id);
            Error::new(ErrorKind::Invalid, Action::FixTheInput, message).about_record(record.body.record_id.borrow())
        })?;
        if sized {
            // The facts contain the sizes of the messages.
            record.body.facts = Facts::from_payload(&record.payload);
        }
        self.envelope(record)?;
        if let Some(changed) = record.body.unknown_fields.as_deref().and_then(|kept| self.unknown(kept)) {
            record.body.unknown_fields = Some(changed);
        }
        self.sign(record);
        Ok(())
    }

    /// Names the policy in the record.
    pub(crate) fn sign(&self, record: &mut JournalRecord) {
        if record.body.redaction_policy_id == REDACTION_DEFAULT {
            self.policy_id().clone_into(&mut record.body.redaction_policy_id);
        }
    }

    fn payload(&self, payload: &mut Payload) -> Result<(), String> {
        let content = |json: &mut Json| *json = self.json(None, json);
        // A result does not name its tool.
        let result = |json: &mut Json| *json = self.json_of_some_tool(json);
        match payload {
            Payload::ConversationTurn(turn) => content(&mut turn.content),
            Payload::CodeEditProposal(proposal) => content(&mut proposal.diffs),
            Payload::ToolCallRequested(call) => {
                call.arguments = call.arguments.as_ref().map(|json| self.json(Some(&call.tool_name), json));
            }
            Payload::ToolCallCompleted(call) => call.result.iter_mut().for_each(result),
            Payload::ToolCallFailed(call) => call.error_message = self.text(&call.error_message),
            Payload::EffectResolution(resolution) => {
                resolution.result.iter_mut().for_each(result);
                resolution.why = self.text(&resolution.why);
            }
            Payload::ToolJournalEntry(entry) => {
                entry.arguments = self.json(Some(&entry.tool_name), &entry.arguments);
                entry.result = self.json(Some(&entry.tool_name), &entry.result);
                entry.call_fingerprint = self.text(&entry.call_fingerprint);
            }
            Payload::LoopCheckpoint(checkpoint) => self.checkpoint(checkpoint)?,
            Payload::HostPayload(host) => self.host(host),
            Payload::Batch(batch) => {
                for record in &mut batch.records {
                    self.record(record).map_err(|error| error.to_string())?;
                }
            }
            // Their content is not readable here.
            Payload::Encrypted(_) | Payload::StoredPayload(_) => {}
            other if other.payload_type() == PayloadType::WriteBackRejected => self.rejected(other)?,
            other => self.contract(other)?,
        }
        Ok(())
    }

    fn checkpoint(&self, checkpoint: &mut LoopCheckpoint) -> Result<(), String> {
        let before = checkpoint.clone();
        let parts = checkpoint.messages.iter_mut().chain(&mut checkpoint.state).chain(&mut checkpoint.total_usage);
        parts.chain(&mut checkpoint.verification_reports).for_each(|json| *json = self.json(None, json));
        if *checkpoint == before {
            return Ok(());
        }
        if let Some(base) = &checkpoint.base {
            return Err(format!("its state_hash covers the whole list, which builds on checkpoint {base}"));
        }
        checkpoint.state_hash = checkpoint.content_hash();
        Ok(())
    }

    /// Redacts JSON by pointers and patterns, and other text by patterns. Bytes that are not text are unchanged.
    fn host(&self, host: &mut HostPayload) {
        let Ok(text) = std::str::from_utf8(&host.bytes.0) else { return };
        let essence = host.content_type.split(';').next().unwrap_or_default().trim();
        let json = if essence.ends_with("json") { Json::parse(text).ok() } else { None };
        let changed = match json {
            Some(json) => Some(self.json(None, &json)).filter(|new| *new != json).map(|new| new.as_str().to_owned()),
            None => Some(self.text(text)).filter(|new| new != text),
        };
        if let Some(changed) = changed {
            host.bytes.0 = changed.into_bytes();
        }
    }

    /// Redacts the detail of a rejection. Its reason is a symbol.
    fn rejected(&self, payload: &mut Payload) -> Result<(), String> {
        let mut json = serde_json::to_value(&*payload).map_err(|error| error.to_string())?;
        let Some(Value::String(detail)) = json.pointer_mut("/reason/detail") else { return Ok(()) };
        let redacted = self.text(detail);
        if redacted != *detail {
            *detail = redacted;
            *payload = serde_json::from_value(json).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Redacts only the human-readable text of a payload that refers to its content.
    fn contract(&self, payload: &mut Payload) -> Result<(), String> {
        let text = Json::of(payload).map_err(|error| error.to_string())?;
        let Some(changed) = self.prose(text.as_str(), false) else { return Ok(()) };
        let changed = RawValue::from_string(changed).map_err(|error| error.to_string())?;
        *payload = Payload::from_json(&changed).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Redacts the envelope's human-readable text about sources, destinations and subjects.
    fn envelope(&self, record: &mut JournalRecord) -> Result<(), Error> {
        let failed = |error: serde_json::Error| {
            let message = format!("the envelope of a record cannot be redacted: {error}");
            Error::new(ErrorKind::Internal, Action::Operator, message)
        };
        let text = Json::of(&record.body).map_err(failed)?;
        if let Some(changed) = self.prose(text.as_str(), false) {
            record.body = serde_json::from_str(&changed).map_err(failed)?;
        }
        Ok(())
    }

    /// Applies the patterns to the human-readable text in a JSON text. `None` if it does not change.
    fn prose(&self, text: &str, here: bool) -> Option<String> {
        match text.as_bytes().first()? {
            b'"' if here => self.string(text),
            b'{' => {
                let members = members(text).ok()?;
                let parts = members.iter().map(|(name, value)| {
                    let here = name != SYMBOL && PROSE.iter().any(|end| name.ends_with(end));
                    (super::named(name), *value, self.prose(value, here))
                });
                join('{', parts, '}')
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                join('[', items.iter().map(|item| (String::new(), item.get(), self.prose(item.get(), here))), ']')
            }
            _ => None,
        }
    }

    /// Redacts unknown members, keyed by JSON pointer.
    fn unknown(&self, kept: &str) -> Option<String> {
        let members = members(kept).ok()?;
        let parts = members.iter().map(|(pointer, value)| {
            let names = NAMES.iter().any(|end| pointer.ends_with(end));
            let new = if names { None } else { self.change(value, &[]) };
            (super::named(pointer), *value, new)
        });
        join('{', parts, '}')
    }
}
