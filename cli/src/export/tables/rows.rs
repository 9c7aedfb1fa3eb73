//! Collects the calls and effects of one run from its applied records.

use super::file::{Table, number, time};
use crate::{error::Error, export::source::Entry, value::LogPosition};
use runlog_schemas::{
    answer::{EffectKind, LifecycleStatus, OrOther, Pending, Position},
    id::{JournalSeq, Offset, RecordId, RunId},
    judge::lifecycle::{Family, StateChange, StatusReport},
    payload::{Payload, PayloadType},
};
use std::collections::{BTreeMap, HashMap};

/// A call, from its request to its end.
#[derive(Debug, Default)]
struct Call {
    request_id: Option<String>,
    call_id: Option<String>,
    arguments: Option<String>,
    result: Option<String>,
    error: Option<(String, String)>,
    attempts: u64,
    ended_by: Option<String>,
    ended_at: Option<String>,
    observed: bool,
}

/// An effect. A call is one too.
#[derive(Debug)]
struct Effect {
    kind: EffectKind,
    id: RecordId,
    tool_name: String,
    fingerprint: Option<String>,
    occurrence: Option<u64>,
    status: OrOther<LifecycleStatus>,
    ended: bool,
    position: Position,
    journal_seq: JournalSeq,
    requested_at: String,
    call: Call,
}

/// The effects of one run so far, in the order of their requests.
#[derive(Debug)]
pub(super) struct RunRows {
    pending: HashMap<(EffectKind, RecordId), Pending>,
    effects: Vec<Effect>,
    by_id: HashMap<(EffectKind, RecordId), usize>,
    /// Number of requests with each fingerprint.
    occurrences: BTreeMap<String, u64>,
}

impl RunRows {
    /// Starts a run. `pending` contains its pending effects at the same position, as the server returns them.
    pub(super) fn new(pending: Vec<Pending>) -> Self {
        let with_key = |pending: Pending| Some(((*pending.kind.known()?, pending.id.clone()), pending));
        Self {
            pending: pending.into_iter().filter_map(with_key).collect(),
            effects: Vec::new(),
            by_id: HashMap::new(),
            occurrences: BTreeMap::new(),
        }
    }

    /// Adds the run's next record. If it decides to adopt evidence, returns the effect and the position before the decision. At
    /// that position the server still returns the evidence.
    pub(super) fn apply(&mut self, entry: Entry) -> Option<(RecordId, LogPosition)> {
        let facts = &entry.envelope.as_ref()?.facts;
        match facts.payload_type.known()? {
            PayloadType::ToolCallRequested | PayloadType::ToolJournalEntry => self.add_request(entry),
            PayloadType::ToolCallAttempt => {
                let answers = facts.answers.clone()?;
                self.open_effect(&answers)?.call.attempts += 1;
            }
            PayloadType::ToolCallCompleted | PayloadType::ToolCallFailed | PayloadType::EffectResolution => {
                return self.end_effect(entry);
            }
            _ => self.apply_report(&entry),
        }
        None
    }

    fn add_request(&mut self, entry: Entry) {
        let Entry { line, envelope: Some(envelope), payload, hidden } = entry else { return };
        let fingerprint = envelope.facts.fingerprint.as_ref().map(ToString::to_string);
        // The journal numbers the occurrences of requests. An observed call has no request.
        let observed = envelope.facts.payload_type == PayloadType::ToolJournalEntry;
        let occurrence = fingerprint.as_ref().filter(|_| !observed).map(|fingerprint| {
            let count = self.occurrences.entry(fingerprint.clone()).or_default();
            *count += 1;
            *count
        });
        let mut effect = Effect {
            kind: EffectKind::ToolCall,
            id: line.record_id.clone(),
            tool_name: envelope.facts.tool_name.clone().unwrap_or_default(),
            fingerprint,
            occurrence,
            status: LifecycleStatus::Pending.into(),
            ended: false,
            position: line.position,
            journal_seq: line.journal_seq,
            requested_at: line.timestamp.clone(),
            call: Call { attempts: 1, ..Call::default() },
        };
        match payload {
            Some(Payload::ToolCallRequested(request)) => {
                effect.call.request_id = Some(request.request_id);
                effect.call.call_id = Some(request.call_id);
                effect.call.arguments = request.arguments.map(|arguments| arguments.as_str().to_owned());
            }
            Some(Payload::ToolJournalEntry(entry)) if hidden.is_none() => {
                effect.call.arguments = Some(entry.arguments.as_str().to_owned());
                effect.call.result = Some(entry.result.as_str().to_owned());
            }
            _ => {}
        }
        if observed {
            // The record is also the end of the call.
            effect.status = OrOther::of(envelope.facts.status.as_deref().unwrap_or("unknown"));
            effect.ended = true;
            effect.call.observed = true;
            effect.call.ended_by = Some(line.record_id.to_string());
            effect.call.ended_at = Some(line.timestamp);
            // Neither does a later record answer it, nor does it answer a request.
            self.effects.push(effect);
            return;
        }
        self.push(effect);
    }

    fn push(&mut self, effect: Effect) {
        self.by_id.insert((effect.kind, effect.id.clone()), self.effects.len());
        self.effects.push(effect);
    }

    fn get(&mut self, kind: EffectKind, id: &RecordId) -> Option<&mut Effect> {
        let index = *self.by_id.get(&(kind, id.clone()))?;
        self.effects.get_mut(index)
    }

    /// Returns the effect that a record answers: the open effect with this id of the first kind in order.
    fn open_effect(&mut self, id: &RecordId) -> Option<&mut Effect> {
        let open = |kind: &&EffectKind| {
            let index = self.by_id.get(&(**kind, id.clone()));
            index.and_then(|index| self.effects.get(*index)).is_some_and(|effect| !effect.ended)
        };
        let kind = *EffectKind::ALL.iter().find(open)?;
        self.get(kind, id)
    }

    fn end_effect(&mut self, entry: Entry) -> Option<(RecordId, LogPosition)> {
        let Entry { line, envelope, payload, hidden } = entry;
        let facts = envelope?.facts;
        let id = facts.answers?;
        let decision = facts.status.unwrap_or_default();
        let effect = self.open_effect(&id)?;
        let status = match (facts.payload_type.known()?, decision.as_str()) {
            (PayloadType::ToolCallCompleted, _) | (_, "done") => LifecycleStatus::Completed,
            (PayloadType::ToolCallFailed, _) | (_, "give_up") => LifecycleStatus::Failed,
            (_, "adopt") => {
                let before = LogPosition {
                    partition: line.position.partition,
                    offset: Offset::new(line.position.offset.get().checked_sub(1)?).ok()?,
                };
                effect.call.ended_by = Some(line.record_id.to_string());
                effect.call.ended_at = Some(line.timestamp);
                return Some((id, before));
            }
            // `not_done` does not end an effect. It only permits to run the effect again.
            _ => return None,
        };
        effect.status = status.into();
        effect.ended = true;
        effect.call.ended_by = Some(line.record_id.to_string());
        effect.call.ended_at = Some(line.timestamp);
        let shown = hidden.is_none();
        match payload {
            Some(Payload::ToolCallCompleted(done)) if shown => {
                effect.call.result = done.result.map(|result| result.as_str().to_owned());
            }
            Some(Payload::ToolCallFailed(failed)) => {
                let message = if shown { failed.error_message } else { String::new() };
                effect.call.error = Some((failed.error_kind, message));
            }
            Some(Payload::EffectResolution(decision)) if shown => {
                effect.call.result = decision.result.map(|result| result.as_str().to_owned());
            }
            _ => {}
        }
        None
    }

    /// Ends an effect with the status of the adopted evidence.
    pub(super) fn adopt(&mut self, id: &RecordId, status: Option<OrOther<LifecycleStatus>>) {
        if let Some(effect) = self.open_effect(id) {
            effect.ended = true;
            effect.status = status.unwrap_or_else(|| OrOther::of("unknown"));
        }
    }

    /// Adds a record about an effect of the run-journal contract.
    fn apply_report(&mut self, entry: &Entry) {
        let Some(facts) = entry.envelope.as_ref().map(|envelope| &envelope.facts) else { return };
        let Some(family) = facts.payload_type.known().copied().and_then(Family::from_payload_type) else { return };
        let (Some(kind), Some(key), Some(status)) = (EffectKind::from_family(family), &facts.key, &facts.status) else {
            return;
        };
        let Ok(id) = RecordId::new(key.clone()) else { return };
        let report = StatusReport { family, key: key.clone(), status: OrOther::of(status) };
        let before = self.get(kind, &id).map(|effect| effect.status.clone());
        match report.change_from(before.as_ref()) {
            StateChange::Unchanged => return,
            StateChange::Open if before.is_none() && !family.may_have_happened(&report.status) => return,
            _ => {}
        }
        let ended = report.change_from(before.as_ref()) == StateChange::Ended;
        if let Some(effect) = self.get(kind, &id) {
            effect.status = report.status;
            effect.ended = ended;
            return;
        }
        let line = &entry.line;
        self.push(Effect {
            kind,
            id,
            tool_name: facts.tool_name.clone().unwrap_or_default(),
            fingerprint: None,
            occurrence: None,
            status: report.status,
            ended,
            position: line.position.clone(),
            journal_seq: line.journal_seq,
            requested_at: line.timestamp.clone(),
            call: Call::default(),
        });
    }

    /// Writes the rows of the run to both tables, in the order of the requests.
    pub(super) fn write(self, run_id: &RunId, calls: &mut Table, effects: &mut Table) -> Result<(), Error> {
        let Self { pending, effects: all, .. } = self;
        for effect in all {
            if effect.kind == EffectKind::ToolCall {
                effect.write_call(run_id, calls)?;
            }
            if !effect.call.observed {
                let pending = pending.get(&(effect.kind, effect.id.clone()));
                effect.write(run_id, pending, effects)?;
            }
        }
        Ok(())
    }
}

impl Effect {
    fn write_call(&self, run_id: &RunId, table: &mut Table) -> Result<(), Error> {
        let (error_kind, error_message) = self.call.error.clone().unzip();
        table.row([
            run_id.as_str().into(),
            self.id.as_str().into(),
            self.position.partition.get().into(),
            self.position.offset.get().into(),
            self.position.index.into(),
            number(self.journal_seq),
            self.call.observed.into(),
            self.call.request_id.clone().into(),
            self.call.call_id.clone().into(),
            self.tool_name.as_str().into(),
            self.fingerprint.clone().into(),
            self.occurrence.into(),
            self.call.arguments.clone().into(),
            self.status.as_str().into(),
            self.call.result.clone().into(),
            error_kind.into(),
            error_message.into(),
            self.call.attempts.into(),
            time(Some(&self.requested_at)),
            self.call.ended_by.clone().into(),
            time(self.call.ended_at.as_deref()),
        ])
    }

    fn write(&self, run_id: &RunId, pending: Option<&Pending>, table: &mut Table) -> Result<(), Error> {
        let status = if self.ended { self.status.as_str() } else { "pending" };
        table.row([
            run_id.as_str().into(),
            self.kind.as_str().into(),
            self.id.as_str().into(),
            self.tool_name.as_str().into(),
            self.fingerprint.clone().into(),
            self.occurrence.into(),
            status.into(),
            pending.map(|pending| pending.class.as_str().to_owned()).into(),
            pending.map(|pending| pending.reason.clone()).into(),
            pending.map(|pending| pending.evidence.len() as u64).into(),
            pending.map(|pending| pending.revision).into(),
            self.position.partition.get().into(),
            self.position.offset.get().into(),
            self.position.index.into(),
            number(self.journal_seq),
        ])
    }
}
