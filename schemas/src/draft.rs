//! Parses records in JSON, as scripts and HTTP clients write them: the contract's fields and Runlog's own, with defaults.

use crate::{
    canonical::escape,
    codec::{self, Unframed},
    datum::{Datum, ITEMS_MAX, Sha256},
    depth::{self, RECORD_LEVELS_MAX},
    id::{Epoch, JournalSeq, OrEmpty, RecordId, RunId, WriterId, WriterSeq},
    json::{
        self, Json,
        bounded::{self, Bounds},
        invalid,
    },
    messages,
    payload::{LoopCheckpoint, Payload, PayloadType},
    record::{Body, Facts, JournalRecord, REDACTION_DEFAULT, RecordKind, Sequencing, StatedFacts},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, value::RawValue};
use std::collections::BTreeMap;

pub use crate::json::Invalid;

mod batch;
mod new;
mod unknown;
mod warnings;

/// The placeholder id of a record without one, until [`Draft::name`] sets it.
pub const UNNAMED: RecordId<&str> = RecordId::ours("(unnamed)");

/// A parsed JSON record whose id and numbers may still be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The record; fields absent in the JSON have their defaults.
    pub record: JournalRecord,
    /// Whether `record_id` was given; otherwise it is [`UNNAMED`], which must not be appended.
    pub has_record_id: bool,
    /// Whether `journal_seq` was given.
    pub has_journal_seq: bool,
    /// Whether `writer_seq` was given.
    pub has_writer_seq: bool,
    /// Whether `writer_epoch` was given.
    pub has_writer_epoch: bool,
    /// Whether `writer_id` was given.
    pub has_writer_id: bool,
    /// Whether `timestamp_millis` was given.
    pub has_timestamp: bool,
}

impl Draft {
    /// Parses one JSON object. For a new record, use [`Self::parse_new`].
    ///
    /// Required: `payload` with its `type`, and `run_id` unless the payload belongs to a partition. Other members
    /// have defaults; `facts` are derived from the payload. For a `stored_payload`, `record_kind` and `facts` are required
    /// too. Unknown members are kept in `unknown_fields`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let members: BTreeMap<String, Box<RawValue>> = bounded::within(text, &Bounds::of_values(ITEMS_MAX))
            .map_err(|e| invalid(format!("not a JSON object: {e}"), ""))?;
        check_depth(text, &members)?;
        let raw = members.get("payload").ok_or_else(|| invalid("a record needs a payload", "/payload"))?;
        let string = |name: &str| -> Result<Option<String>, Invalid> {
            members
                .get(name)
                .map(|raw| serde_json::from_str::<Option<String>>(raw.get()))
                .transpose()
                .map(Option::flatten)
                .map_err(|e| invalid(e, &format!("/{name}")))
        };
        let redacted = string("redaction_policy_id")?.is_some_and(|policy| policy != REDACTION_DEFAULT);
        let payload = Payload::from_json(raw).map_err(|e| invalid(e.what, &format!("/payload{}", e.pointer)))?;
        let payload = seal(payload, redacted)?;
        let given = |name: &str| string(name).map(|text| text.filter(|text| !text.is_empty()));
        let run_id = given("run_id")?.map(RunId::new).transpose().map_err(|e| invalid(e, "/run_id"))?;
        let record_id = string("record_id")?.map(RecordId::new).transpose().map_err(|e| invalid(e, "/record_id"))?;
        let writer_id = string("writer_id")?.unwrap_or_default();
        OrEmpty::<WriterId>::parse(writer_id).map_err(|e| invalid(e, "/writer_id"))?;
        let (kind, facts) = kind_and_facts(&payload, &members)?;
        if run_id.is_none() != kind.of_partition() {
            let what = if kind.of_partition() { "belongs to a partition, not to a run" } else { "needs a run_id" };
            return Err(invalid(format!("a {} {what}", kind.as_str()), "/run_id"));
        }
        let agent_id = string("agent_id")?.unwrap_or_else(|| "unknown".into());
        let has_record_id = record_id.is_some();
        let record_id = record_id.unwrap_or_else(|| UNNAMED.to_owned());
        let run_id = run_id.as_ref().map(RunId::borrow);
        let body = Body::new(run_id, record_id, &agent_id, kind, facts.clone());
        // Only a record that was written before has `facts`. It keeps its keys, or its lack of keys.
        let body = if members.contains_key("facts") { body } else { body.with_keys_of(&payload) };
        let defaults = JournalRecord { place: Sequencing::default(), body, payload };
        let mut record = overlay(defaults, &members)?;
        record.body.facts = facts;
        if matches!(record.payload, Payload::Encrypted(_))
            && let Some(facts) = members.get("facts")
        {
            // Facts cannot be derived from an encrypted payload, so the writer states them.
            record.body.facts = bounded::read(facts.get()).map_err(|e| invalid(e, "/facts"))?;
        }
        if redacted
            && matches!(record.payload, Payload::ToolJournalEntry(_))
            && let Some(given) = members.get("facts")
        {
            let given: Facts = bounded::read(given.get()).map_err(|e| invalid(e, "/facts"))?;
            record.body.facts = redacted_facts(&record.payload, record.body.facts, &given);
        }
        let facts = &record.body.facts;
        if facts.payload_type == PayloadType::ToolCallRequested && facts.fingerprint.is_none() {
            return Err(invalid("a request whose payload is hidden needs its fingerprint", "/facts/fingerprint"));
        }
        if !record.body.record_kind.carries(&record.body.facts.payload_type) {
            let what = format!("a {} cannot have a payload of this type", record.body.record_kind.as_str());
            return Err(invalid(what, "/record_kind"));
        }
        let bytes = record.to_bytes();
        let written = Unframed { version: record.version(), datum: &bytes };
        let stored = codec::decode(written).map_err(|e| invalid(e, ""))?;
        if stored != record && !kind.of_contract() {
            return Err(invalid("a number is outside of its range in the schema", ""));
        }
        // A contract's number outside Avro's range is kept in `unknown_fields`.
        record = stored;
        record.body.unknown_fields = unknown::members(&members, &record)?;
        let has = |name: &str| members.get(name).is_some_and(|raw| raw.get() != "null");
        Ok(Self {
            has_record_id,
            has_journal_seq: has("journal_seq"),
            has_writer_seq: has("writer_seq"),
            has_writer_epoch: has("writer_epoch"),
            has_writer_id: has("writer_id"),
            has_timestamp: has("timestamp_millis"),
            record,
        })
    }

    /// Sets the id of a record without one. Does not change an existing id.
    pub fn name(&mut self, id: RecordId) {
        if std::mem::replace(&mut self.has_record_id, true) {
            return;
        }
        let body = &mut self.record.body;
        // A request is its own subject.
        for subject in [&mut body.subject_ref, &mut body.event_index.subject_ref] {
            if UNNAMED == subject.id.as_str() {
                id.as_str().clone_into(&mut subject.id);
            }
        }
        body.record_id = id;
    }
}

/// Refuses a record that nests deeper than JSON readers accept, with a pointer to the nested member.
fn check_depth(text: &str, members: &BTreeMap<String, Box<RawValue>>) -> Result<(), Invalid> {
    if !depth::exceeds(text, RECORD_LEVELS_MAX) {
        return Ok(());
    }
    let mut pointer = String::new();
    let deep = |raw: &RawValue, above| depth::exceeds(raw.get(), RECORD_LEVELS_MAX - above);
    if let Some((name, raw)) = members.iter().find(|(_, raw)| deep(raw, 1)) {
        pointer = format!("/{}", escape(name));
        let below: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        let below = below.iter().find(|(_, raw)| deep(raw, 2)).map(|(name, _)| format!("/{}", escape(name)));
        pointer.extend(below);
    }
    let levels = depth::levels(text);
    Err(invalid(
        format!("a record nests {RECORD_LEVELS_MAX} levels deep at the most, this one nests {levels} levels deep"),
        &pointer,
    ))
}

/// Checks that `record` equals the result of [`Draft::parse`] for `payload`, the content of its claim check.
pub fn fits(record: &JournalRecord, payload: &Payload) -> Result<(), Invalid> {
    if matches!(payload, Payload::Encrypted(_)) {
        // Kind and facts of an encrypted payload cannot be checked.
        return Ok(());
    }
    if !record.body.record_kind.carries(&payload.payload_type().into()) {
        return Err(invalid("not the kind of the stored payload", "/record_kind"));
    }
    let redacted = record.body.redaction_policy_id != REDACTION_DEFAULT;
    let given = &record.body.facts;
    let facts = Facts::from_payload(payload).with_stated(payload, given.into());
    let facts = if redacted { redacted_facts(payload, facts, given) } else { facts };
    if record.body.facts != facts {
        return Err(invalid("not the facts of the stored payload", "/facts"));
    }
    if seal(payload.clone(), redacted)? != *payload {
        return Err(invalid("the stored payload lacks a member that its content determines", "/payload/sha256"));
    }
    Ok(())
}

/// Returns the facts of a redacted payload. The writer provides hashes of redacted content: a tool journal entry keeps the
/// fingerprint of its original arguments.
fn redacted_facts(payload: &Payload, facts: Facts, given: &Facts) -> Facts {
    match payload {
        Payload::ToolJournalEntry(_) => {
            Facts { key: given.key.clone(), fingerprint: given.fingerprint.clone(), ..facts }
        }
        _ => facts,
    }
}

/// Returns the payload's kind and facts; for a stored payload, the kind and facts that the client states.
fn kind_and_facts(
    payload: &Payload,
    members: &BTreeMap<String, Box<RawValue>>,
) -> Result<(RecordKind, Facts), Invalid> {
    let member = |name: &str| members.get(name).map_or("null", |raw| raw.get());
    let Payload::StoredPayload(stored) = payload else {
        let stated = || bounded::read::<Option<StatedFacts>>(member("facts")).map_err(|e| invalid(e, "/facts"));
        let stated = match payload {
            Payload::Contract(contract) if contract.payload_type() == PayloadType::Approval => stated()?,
            Payload::EffectResolution(_)
            | Payload::ToolCallAttempt(_)
            | Payload::ToolCallRequested(_)
            | Payload::ToolCallCompleted(_)
            | Payload::ToolCallFailed(_)
            | Payload::RunClaim(_)
            | Payload::Retraction(_)
            | Payload::Skip(_)
            | Payload::RetentionHorizon(_) => stated()?,
            _ => None,
        };
        return Ok((
            RecordKind::from_payload(payload),
            Facts::from_payload(payload).with_stated(payload, stated.unwrap_or_default()),
        ));
    };
    let kind: RecordKind = serde_json::from_str(member("record_kind")).map_err(|e| invalid(e, "/record_kind"))?;
    let facts: Facts = bounded::read(member("facts")).map_err(|e| invalid(e, "/facts"))?;
    if !kind.may_be_stored() {
        return Err(invalid(
            format!("the payload of a {} cannot be in a content store", kind.as_str()),
            "/record_kind",
        ));
    }
    if !stored.fits(&facts.payload_type) {
        return Err(invalid("facts do not match the type of the stored payload", "/facts/payload_type"));
    }
    Ok((kind, facts))
}

/// Fills in hashes of a payload's content and checks given hashes. Redacted arguments are not hashed.
fn seal(payload: Payload, redacted: bool) -> Result<Payload, Invalid> {
    match payload {
        Payload::ToolCallRequested(call) => {
            let call = call.seal().map_err(|e| invalid(e, "/payload/arguments"))?;
            if call.tool_name.is_empty() || call.fingerprint.is_none() {
                return Err(invalid("a request needs tool_name, and arguments or args_sha256", "/payload"));
            }
            if !call.is_sealed(redacted) {
                let what = "args_sha256 or fingerprint does not match the tool and the arguments; leave them out";
                return Err(invalid(what, "/payload"));
            }
            Ok(Payload::ToolCallRequested(call))
        }
        Payload::EffectResolution(resolution) => {
            let invalid = |what: &str, member: &str| Err(invalid(what, &format!("/payload/{member}")));
            match resolution.decision.as_str() {
                "done" if resolution.result.is_none() => invalid("done needs a result, which may be null", "result"),
                "done" | "adopt" | "not_done" | "give_up" if resolution.who.is_empty() || resolution.why.is_empty() => {
                    invalid("a resolution needs who and why", "who")
                }
                "done" | "adopt" | "not_done" | "give_up" => Ok(Payload::EffectResolution(resolution)),
                _ => invalid("not one of done, adopt, not_done, give_up", "decision"),
            }
        }
        Payload::LoopCheckpoint(checkpoint) => seal_checkpoint(checkpoint).map(Payload::LoopCheckpoint),
        other => Ok(other),
    }
}

/// Fills in or checks `state_hash`. A checkpoint with a base must have it, because only the writer has the whole list.
fn seal_checkpoint(mut checkpoint: LoopCheckpoint) -> Result<LoopCheckpoint, Invalid> {
    if checkpoint.base.is_some() {
        if Sha256::parse(&checkpoint.state_hash).is_some_and(|hash| hash.to_string() == checkpoint.state_hash) {
            return Ok(checkpoint);
        }
        let what = "a checkpoint with a base needs the state_hash of its whole list, 64 lower-case hexadecimal digits";
        return Err(invalid(what, "/payload/state_hash"));
    }
    if messages::resolve(0, checkpoint.messages.len() as u64, &checkpoint.spans).is_none() {
        return Err(invalid("a span is not within the messages, and there is no base", "/payload/spans"));
    }
    let hash = checkpoint.content_hash();
    if checkpoint.state_hash.is_empty() {
        checkpoint.state_hash = hash;
    } else if checkpoint.state_hash != hash {
        return Err(invalid("state_hash is not the hash of the content", "/payload/state_hash"));
    }
    Ok(checkpoint)
}

/// Values of a record's JSON outside of its payload: they are in the record itself, whose size is limited.
const ENVELOPE_VALUES_MAX: usize = codec::RECORD_BYTES_MAX / 2;

/// The members of a record's sequencing.
const PLACE: [&str; 6] = ["writer_id", "writer_epoch", "writer_seq", "prev_hash", "journal_seq", "timestamp_millis"];

/// Overrides the record's defaults by the given members.
fn overlay(defaults: JournalRecord, members: &BTreeMap<String, Box<RawValue>>) -> Result<JournalRecord, Invalid> {
    let fields = |part| match part {
        Ok(Value::Object(fields)) => Ok(fields),
        other => Err(invalid(format!("defaults do not serialise: {other:?}"), "")),
    };
    let mut place = fields(serde_json::to_value(&defaults.place))?;
    let mut body = fields(serde_json::to_value(&defaults.body))?;
    let bounds = Bounds::of_values(ENVELOPE_VALUES_MAX);
    for (name, raw) in members {
        if matches!(name.as_str(), "payload" | "facts" | "unknown_fields" | "record_id") {
            continue;
        }
        Json::parse(raw.get()).map_err(|e| invalid(e, &format!("/{name}")))?;
        let value = json::value_within(raw.get(), &bounds).map_err(|e| invalid(e, &format!("/{name}")))?;
        if !value.is_null() {
            let part = if PLACE.contains(&name.as_str()) { &mut place } else { &mut body };
            part.insert(name.clone(), value);
        }
    }
    number::<Epoch>(&place, "writer_epoch")?;
    number::<WriterSeq>(&place, "writer_seq")?;
    number::<JournalSeq>(&place, "journal_seq")?;
    let place: Sequencing = serde_json::from_value(Value::Object(place)).map_err(|e| invalid(e, ""))?;
    let body: Body = serde_json::from_value(Value::Object(body)).map_err(|e| invalid(e, ""))?;
    if i64::try_from(place.timestamp_millis).is_err() {
        return Err(invalid("larger than a 64-bit signed integer", "/timestamp_millis"));
    }
    Ok(JournalRecord { place, body, payload: defaults.payload })
}

/// Refuses an invalid number, with its pointer.
fn number<T: DeserializeOwned>(all: &Map<String, Value>, name: &str) -> Result<(), Invalid> {
    let value = all.get(name).cloned().unwrap_or_default();
    serde_json::from_value::<T>(value).map(drop).map_err(|e| invalid(e, &format!("/{name}")))
}
