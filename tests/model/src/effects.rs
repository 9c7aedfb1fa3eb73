//! Effects: tool calls, and the contract's effects by `effect_id`. What is known of each is one walk over its run.

use crate::{
    record::{answers, inner, number, payload_member, payload_type, same_payload, text, tool},
    rule::{Rule, Rules},
    run::{Entry, Reason, Run, Verdict},
};
use serde_json::{Value, json};

/// What is known of one effect. Numbers are indices of the run's entries.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// `tool_call` or `effect`.
    pub(crate) kind: &'static str,
    /// The request's record id, or the effect id.
    pub(crate) id: String,
    pub(crate) tool_name: String,
    pub(crate) fingerprint: String,
    /// Which request of the fingerprint, from 1; 0 for the contract's effects.
    pub(crate) occurrence: u32,
    pub(crate) request: usize,
    pub(crate) key: bool,
    /// `pending`, `completed`, `failed`; of the contract's effects the terminal status.
    pub(crate) status: String,
    /// What set the status.
    pub(crate) set_by: usize,
    /// Whose content the result or failure is: the completion, the adopted evidence, the resolution.
    pub(crate) content: Option<usize>,
    pub(crate) starts: u32,
    /// Somebody said that the last start did not happen.
    pub(crate) not_done: bool,
    /// Refused results: the entry, and the record within it.
    pub(crate) evidence: Vec<(usize, Value)>,
}

impl Effect {
    pub(crate) fn pending(&self) -> bool {
        self.status == "pending"
    }

    /// Whether it may run again without anybody's decision.
    pub(crate) fn retry_safe(&self, rules: &Rules) -> bool {
        rules.fires(Rule::KeyIsRetrySafe, self.key && !self.not_done) || self.not_done
    }

    fn end(&mut self, status: &str, set_by: usize, content: usize) {
        status.clone_into(&mut self.status);
        self.set_by = set_by;
        self.content = Some(content);
    }
}

/// All effects of a run, in the order of their requests.
pub(crate) fn of(rules: &Rules, run: &Run) -> Vec<Effect> {
    let mut effects: Vec<Effect> = Vec::new();
    for (at, entry) in run.entries.iter().enumerate() {
        match entry.verdict {
            Verdict::Applied if !entry.envelope => step(rules, &mut effects, at, entry),
            Verdict::Refused(reason) => evidence(rules, &mut effects, at, entry, reason),
            _ => {}
        }
    }
    effects
}

fn step(rules: &Rules, effects: &mut Vec<Effect>, at: usize, entry: &Entry) {
    let record = &entry.record;
    match entry.kind.as_str() {
        "tool_call_requested" | "effect_intent" => effects.push(requested(effects, at, record)),
        "tool_call_attempt" => {
            if let Some(effect) = pending(effects, record) {
                effect.starts += 1;
                effect.not_done = effect.not_done && !rules.fires(Rule::AttemptStartsAgain, effect.not_done);
            }
        }
        kind @ ("tool_call_completed" | "tool_call_failed") => {
            if let Some(effect) = pending(effects, record) {
                effect.end(kind.trim_start_matches("tool_call_"), at, at);
            }
        }
        "effect_result" => {
            let status = text(record, "/payload/terminal_status");
            if let Some(effect) = pending(effects, record)
                && !rules.fires(Rule::EffectUnknown, status == "unknown")
            {
                effect.end(status, at, at);
            }
        }
        "effect_resolution" => {
            if let Some(effect) = pending(effects, record) {
                resolve(rules, effect, at, record);
            }
        }
        _ => {}
    }
}

fn requested(effects: &[Effect], at: usize, record: &Value) -> Effect {
    let call = payload_type(record) == "tool_call_requested";
    let (tool_name, fingerprint) = if call { tool(record) } else { Default::default() };
    let before = effects.iter().filter(|other| call && other.fingerprint == fingerprint).count();
    let key = ["/idempotency_key", "/dedupe_key", "/payload/idempotency_key", "/payload/dedupe_key"];
    Effect {
        kind: if call { "tool_call" } else { "effect" },
        id: text(record, if call { "/record_id" } else { "/payload/effect_id" }).to_owned(),
        tool_name,
        fingerprint,
        occurrence: if call { u32::try_from(before + 1).unwrap_or(u32::MAX) } else { 0 },
        request: at,
        key: key.iter().any(|pointer| !text(record, pointer).is_empty()),
        status: "pending".to_owned(),
        set_by: at,
        content: None,
        starts: 1,
        not_done: false,
        evidence: Vec::new(),
    }
}

fn resolve(rules: &Rules, effect: &mut Effect, at: usize, record: &Value) {
    match text(record, "/payload/decision") {
        "done" if rules.fires(Rule::ResolvedDone, true) => effect.end("completed", at, at),
        "give_up" if rules.fires(Rule::ResolvedGiveUp, true) => effect.end("failed", at, at),
        "not_done" if rules.fires(Rule::ResolvedNotDone, true) => effect.not_done = true,
        "adopt" if rules.fires(Rule::ResolvedAdopt, true) => {
            if let Some((adopted, result)) = effect.evidence.last().cloned() {
                effect.end(status_of(&result), at, adopted);
            }
        }
        _ => {}
    }
}

/// The status that a result gives its effect.
pub(crate) fn status_of(result: &Value) -> &str {
    match payload_type(result) {
        "tool_call_completed" => "completed",
        "tool_call_failed" => "failed",
        _ => text(result, "/payload/terminal_status"),
    }
}

/// A refused result is kept while its effect is pending, each once.
fn evidence(rules: &Rules, effects: &mut [Effect], at: usize, entry: &Entry, reason: Reason) {
    let rule = match reason {
        Reason::Fenced => Rule::EvidenceFenced,
        Reason::Ended => Rule::EvidenceEnded,
        _ => return,
    };
    let records = if entry.kind == "batch" { inner(&entry.record) } else { std::slice::from_ref(&*entry.record) };
    for record in records.iter().filter(|record| is_result(record)) {
        let Some(effect) = pending(effects, record) else { continue };
        let kept = effect.evidence.iter().any(|(_, other)| text(other, "/record_id") == text(record, "/record_id"));
        if !kept && rules.fires(rule, true) {
            effect.evidence.push((at, record.clone()));
        }
    }
}

fn is_result(record: &Value) -> bool {
    matches!(payload_type(record), "tool_call_completed" | "tool_call_failed" | "effect_result")
}

/// Whether a record is about an effect: contract results name it by effect id, resolutions by either.
fn about(effect: &Effect, record: &Value) -> bool {
    match payload_type(record) {
        "effect_result" => effect.kind == "effect" && effect.id == text(record, "/payload/effect_id"),
        "effect_resolution" => effect.id == answers(record),
        _ => effect.kind == "tool_call" && effect.id == answers(record),
    }
}

fn pending<'a>(effects: &'a mut [Effect], record: &Value) -> Option<&'a mut Effect> {
    effects.iter_mut().find(|effect| effect.pending() && about(effect, record))
}

/// Whether a record of an effect's lifecycle is an illegal step.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let effects = of(rules, run);
    let kind = payload_type(record);
    if kind == "effect_intent" {
        let id = text(record, "/payload/effect_id");
        let taken = effects.iter().any(|effect| effect.kind == "effect" && effect.id == id);
        return rules.fires(Rule::EffectTransition, taken).then_some(Reason::Transition);
    }
    let rule = match kind {
        "effect_result" => Rule::EffectTransition,
        "effect_resolution" => Rule::ResolutionTransition,
        "tool_call_attempt" | "tool_call_completed" | "tool_call_failed" => Rule::CallTransition,
        _ => return None,
    };
    let effect = effects.iter().find(|effect| about(effect, record));
    let ended_by = effect.filter(|effect| !effect.pending()).map(|effect| &run.entries[effect.set_by].record);
    let again = is_result(record) && ended_by.is_some_and(|first| same_payload(first, record));
    if rules.fires(Rule::SameCompletion, again) {
        return None;
    }
    let adopts_nothing = kind == "effect_resolution"
        && text(record, "/payload/decision") == "adopt"
        && effect.is_some_and(|effect| effect.evidence.is_empty());
    let answers_nothing = effect.is_none_or(|effect| !effect.pending());
    rules.fires(rule, answers_nothing || adopts_nothing).then_some(Reason::Transition)
}

/// The result and the failure that a finished effect answers with.
pub(crate) fn outcome(run: &Run, effect: &Effect) -> (Value, Value) {
    let Some(at) = effect.content else { return (Value::Null, Value::Null) };
    // An adopted result may stand within a refused batch.
    let adopted = effect.evidence.iter().rev().find(|(entry, _)| *entry == at).map(|(_, result)| result);
    let record = adopted.unwrap_or(&run.entries[at].record);
    match (payload_type(record), effect.status.as_str()) {
        ("tool_call_failed", _) => {
            let error = json!({"kind": payload_member(record, "error_kind"), "message": payload_member(record, "error_message")});
            (Value::Null, error)
        }
        ("effect_resolution", "failed") => {
            (Value::Null, json!({"kind": "given_up", "message": payload_member(record, "why")}))
        }
        _ => (payload_member(record, "result"), Value::Null),
    }
}

/// The `journal_seq` of an effect's request.
pub(crate) fn request_seq(run: &Run, effect: &Effect) -> u64 {
    number(&run.entries[effect.request].record, "/journal_seq")
}
