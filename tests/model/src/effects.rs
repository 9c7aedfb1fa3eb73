//! Effects that may have happened: Runlog's tool calls, and the contract's effects, tool calls and deliveries. One
//! walk over a run computes the state of each.

use crate::{
    hashes,
    lifecycles::{self, Family, StateChange},
    record::{answers, number, payload_member, payload_type, same_payload, text, tool, value_at},
    rule::{Rule, Rules},
    run::{Entry, Run, Verdict},
};
use serde_json::{Value, json};
use std::sync::Arc;

mod judgement;
mod refused;
mod skips;

pub(crate) use judgement::refusal;
pub(crate) use refused::{EVIDENCE_MAX, Evidence};
pub(crate) use skips::{claim_skipped_by, without_skip};

/// The kinds, in the order in which a decision looks for an id.
pub(crate) const KINDS: [&str; 4] = ["tool_call", "effect", "tool", "output_delivery"];

/// The state of one effect. Numbers are indices of the run's entries.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// One of [`KINDS`].
    pub(crate) kind: &'static str,
    /// The request's record id, or the contract's id.
    pub(crate) id: String,
    pub(crate) tool_name: String,
    /// Only for Runlog's calls.
    pub(crate) fingerprint: Option<String>,
    /// Which request of the fingerprint, from 1.
    pub(crate) occurrence: Option<u32>,
    pub(crate) request: usize,
    /// Its place in the run's numbers: of a request that was not applied, the run's next number.
    pub(crate) seq: u64,
    /// The request, if it was skipped or displaced.
    unapplied: Option<Arc<Entry>>,
    pub(crate) key: Option<String>,
    /// A key of the receiver's.
    pub(crate) dedupe_key: Option<String>,
    /// The request says that it is safe to repeat.
    pub(crate) repeatable: bool,
    /// For a call `pending`, `completed` or `failed`; for the contract's own effects the state's name.
    pub(crate) status: String,
    pub(crate) ended: bool,
    /// What set the status.
    pub(crate) set_by: usize,
    /// The entry whose content the result or failure is: the completion, the adopted evidence, the resolution.
    pub(crate) content: Option<usize>,
    /// The evidence that was adopted.
    pub(crate) adopted: Option<usize>,
    pub(crate) starts: u32,
    /// The epoch of the last start.
    pub(crate) last_epoch: u64,
    /// Whether the claim of that epoch has a commitment.
    committed: bool,
    /// The request only reports another system's call.
    observed: bool,
    /// A skip voids or displaces the record that started it last.
    void_start: bool,
    /// A skip voids or displaces its newest record.
    void_newest: bool,
    /// The last skip that voids or displaces a record about it.
    void_until: Option<u64>,
    /// The entry that started it last.
    pub(crate) started: usize,
    /// A decision states that the last start did not happen.
    pub(crate) not_done: bool,
    pub(crate) evidence: Vec<Evidence>,
    /// How much evidence was discarded.
    pub(crate) discarded: u64,
    /// The epochs of its first starts.
    start_epochs: Vec<u64>,
    /// Counts applied records and results kept as evidence, discarded ones included. Different content under the id
    /// of existing evidence does not count.
    pub(crate) revision: u64,
    /// Its basis: a hash over the content hashes of the records that were applied to it or kept as its evidence.
    pub(crate) newest: String,
    /// A decision gave it up.
    given_up: bool,
    /// Refused results that contradict the end: that came after it, or before an end by a result.
    pub(crate) contradicting: Vec<Evidence>,
    /// How many contradicting results were kept, discarded ones included.
    pub(crate) contradictions: u64,
}

impl Effect {
    pub(crate) fn pending(&self) -> bool {
        !self.ended
    }

    /// The entry of its request, or another entry of its own.
    pub(crate) fn entry<'a>(&'a self, run: &'a Run, at: usize) -> &'a Entry {
        self.unapplied.as_deref().filter(|_| at == self.request).unwrap_or(&run.entries[at])
    }

    /// Whether the record that is judged now is between a record about it that a skip voids or displaces, and the skip.
    fn is_before_skip(&self, run: &Run) -> bool {
        self.void_until.is_some_and(|until| run.at < until)
    }

    /// Whether it may run again without anybody's decision.
    pub(crate) fn retry_safe(&self, rules: &Rules) -> bool {
        let usable =
            |key: &Option<String>| key.as_ref().is_some_and(|key| !rules.fires(Rule::KeyWithoutText, key.is_empty()));
        let of_call = self.kind == KINDS[0] && self.dedupe_key.is_some();
        let deduped = usable(&self.dedupe_key) && !rules.fires(Rule::DedupeKeyOfCall, of_call);
        self.not_done
            || rules.fires(Rule::Repeatable, self.repeatable)
            || rules.fires(Rule::KeyIsRetrySafe, usable(&self.key) || deduped)
    }

    /// A record about it counts.
    fn count(&mut self, rules: &Rules, entry: &Entry) {
        self.revision += 1;
        self.void_newest = false;
        self.newest = self.basis_after(rules, entry.content(0, &entry.record));
    }

    /// Its basis after a record with this content hash. No basis comes back.
    fn basis_after(&self, rules: &Rules, content: String) -> String {
        if rules.fires(Rule::BasisNeverReturns, true) { hashes::after(&self.newest, &content) } else { content }
    }

    /// Another record started it. Of one epoch 4 starts are remembered, of all 16.
    fn starts_by(&mut self, record: &Value) {
        let epoch = epoch(record);
        let of_epoch = self.start_epochs.iter().filter(|other| **other == epoch).count();
        if self.start_epochs.len() < 16 && of_epoch < 4 {
            self.start_epochs.push(epoch);
        }
    }

    fn end(&mut self, status: &str, set_by: usize, content: usize) {
        status.clone_into(&mut self.status);
        self.ended = true;
        self.set_by = set_by;
        self.content = Some(content);
        self.given_up = false;
    }

    /// A later record of the effect cancels its `not_done` decision.
    fn take_back(&mut self, rules: &Rules) {
        self.not_done = self.not_done && !rules.fires(Rule::NotDoneTakenBack, self.not_done);
    }

    /// The evidence that a decision with a basis adopts.
    pub(crate) fn adoptable_at_a_basis(&self, rules: &Rules) -> Option<usize> {
        self.adoptable(rules, &json!({"facts": {"basis": "any"}}))
    }

    /// The evidence that an `adopt` decision adopts: evidence that the effect happened, otherwise the last. A
    /// decision without a basis reads only the first evidence of each id.
    fn adoptable(&self, rules: &Rules, decision: &Value) -> Option<usize> {
        let by_id = value_at(decision, "/facts/basis").is_none();
        let reads = |evidence: &Evidence| !by_id || evidence.first;
        let last = self.evidence.iter().rposition(reads)?;
        let happened = self.evidence.iter().rposition(|evidence| reads(evidence) && evidence.happened());
        let contradicts = happened.is_some_and(|at| at != last);
        let by_any = if rules.fires(Rule::AdoptPrefersCompleted, contradicts) { happened? } else { last };
        // A result of a process that started the effect wins over one of others that says the same.
        let says = self.evidence[by_any].happened();
        let starts = |evidence: &Evidence| evidence.happened() == says && evidence.start.is_some();
        let by_starter = self.evidence.iter().rposition(starts).filter(|_| !by_id);
        let other = by_starter.is_some_and(|at| at != by_any);
        if rules.fires(Rule::AdoptPrefersStart, other) { by_starter } else { Some(by_any) }
    }
}

fn epoch(record: &Value) -> u64 {
    number(record, "/writer_epoch")
}

/// Whether the open states of a family are effects that may have happened.
pub(crate) fn is_effect(family: &Family) -> bool {
    KINDS.contains(&family.name)
}

/// All effects of a run, in the order of their requests.
pub(crate) fn run_effects(rules: &Rules, run: &Run) -> Arc<Vec<Effect>> {
    run.effects.over(run.entries.len(), || walk(rules, run))
}

/// The run's writer, as far as the walk has come.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    epoch: u64,
    /// Whether the last claim has a commitment.
    committed: bool,
    /// The offset of the last skip of an earlier record of the run.
    until: Option<u64>,
    /// The epoch at the first skipped record before that skip.
    until_epoch: u64,
    /// The same, of the skips that take a number back, or an applied record.
    renumbered_until: Option<u64>,
    /// The offset of the last skip of an earlier claim.
    unclaimed_until: Option<u64>,
}

fn walk(rules: &Rules, run: &Run) -> Vec<Effect> {
    let mut effects: Vec<Effect> = Vec::new();
    let mut reached = Reached::default();
    for (at, entry) in run.entries.iter().enumerate() {
        reached.passes(rules, entry);
        match entry.verdict {
            Verdict::Applied if entry.kind == "run_claim" => {
                reached.epoch = number(&entry.record, "/writer_epoch");
                reached.committed = value_at(&entry.record, "/facts/commitment").is_some_and(Value::is_string);
            }
            Verdict::Applied if !entry.envelope => step(rules, &mut effects, run, at, reached.committed),
            Verdict::Applied => {}
            Verdict::Refused(reason) => {
                if skips::displaces(rules, reached, entry, reason) {
                    skips::leave_traces(rules, &mut effects, run, (at, reached));
                    continue;
                }
                for (index, record) in (0..).zip(entry.records()) {
                    if text(record, "/run_id") == text(&entry.record, "/run_id") {
                        refused::keep(rules, &mut effects, run, (at, index), record, (reason, reached.until.is_some()));
                    }
                }
            }
            Verdict::Repeat(first) => {
                if let Verdict::Refused(reason) = run.entries[first].verdict
                    && skips::displaces(rules, reached, entry, reason)
                {
                    skips::leave_traces(rules, &mut effects, run, (at, reached));
                }
            }
            Verdict::Skipped { .. } => skips::leave_traces(rules, &mut effects, run, (at, reached)),
        }
    }
    effects
}

/// `committed`: the last claim has a commitment.
fn step(rules: &Rules, effects: &mut Vec<Effect>, run: &Run, at: usize, committed: bool) {
    let entry = &run.entries[at];
    let record = &entry.record;
    match entry.kind.as_str() {
        "tool_call_requested" => {
            let effect = Effect { committed, ..effect_of_request(effects, at, entry) };
            effects.push(effect);
        }
        "tool_call_attempt" => {
            if let Some(effect) = pending(rules, effects, record) {
                effect.starts += 1;
                effect.starts_by(record);
                effect.last_epoch = number(record, "/writer_epoch");
                let unchecked = effect.void_start && value_at(record, "/facts/basis").is_none_or(Value::is_null);
                effect.void_start = rules.fires(Rule::UncheckedAttempt, unchecked);
                (effect.committed, effect.observed) = (committed, false);
                effect.started = at;
                effect.count(rules, entry);
                effect.not_done = effect.not_done && !rules.fires(Rule::AttemptStartsAgain, effect.not_done);
            }
        }
        kind @ ("tool_call_completed" | "tool_call_failed") => {
            if let Some(effect) = pending(rules, effects, record) {
                effect.end(kind.trim_start_matches("tool_call_"), at, at);
                effect.contradict_by_evidence(rules, record, None);
            }
        }
        "effect_resolution" => {
            if let Some(effect) = pending(rules, effects, record) {
                effect.count(rules, entry);
                resolve(rules, effect, at, record);
            }
        }
        _ => {
            if let Some(change) = lifecycles::state_change(rules, record).filter(|change| is_effect(change.family)) {
                stepped(rules, effects, run, at, &change);
            }
        }
    }
}

/// A record of one of the contract's effects.
fn stepped(rules: &Rules, effects: &mut Vec<Effect>, run: &Run, at: usize, change: &StateChange) {
    let family = change.family;
    let ends = family.ends(&change.state);
    let unknown = rules.fires(Rule::EffectUnknown, change.state == "unknown" && family.name == "effect");
    // With the rule off, an unknown result is an end.
    let ends = ends || (!unknown && change.state == "unknown" && family.name == "effect");
    let effect = effects.iter_mut().find(|effect| effect.kind == family.name && effect.id == change.key.id);
    let Some(effect) = effect else {
        let only_requested = family.name == "tool" && matches!(change.state.as_str(), "requested" | "request_modified");
        if family.moves(rules, None, &change.state) && !rules.fires(Rule::ToolNotStarted, only_requested) {
            let mut effect = new_effect(family, &change.key.id, at, &run.entries[at]);
            change.state.clone_into(&mut effect.status);
            effect.ended = ends;
            effects.push(effect);
        }
        return;
    };
    let moves = family.moves(rules, Some(&effect.status), &change.state);
    if effect.ended || ends {
        let again =
            effect.status == change.state && same_payload(&run.entries[effect.set_by].record, &run.entries[at].record);
        if ends && moves && !again {
            let first = effect.pending();
            effect.end(&change.state, at, at);
            if first {
                effect.contradict_by_evidence(rules, &run.entries[at].record, Some(family));
            }
        }
    } else if family.rank(&change.state).is_some() {
        if rules.fires(Rule::IntentAgain, starts(family, &change.state)) {
            effect.starts += 1;
            effect.starts_by(&run.entries[at].record);
        }
        effect.started = at;
        effect.count(rules, &run.entries[at]);
        effect.take_back(rules);
        if moves {
            change.state.clone_into(&mut effect.status);
            effect.set_by = at;
        }
    }
}

/// Whether a state says that the effect starts.
fn starts(family: &Family, state: &str) -> bool {
    matches!(
        (family.name, state),
        ("effect", "intent") | ("tool", "intent_recorded") | ("output_delivery", "requested")
    )
}

/// The key that a record was made with: the envelope's, or the payload's.
fn key(record: &Value, name: &str) -> Option<String> {
    if let Some(key) = record.get(name).and_then(Value::as_str) {
        return Some(key.to_owned());
    }
    let payload = match payload_type(record) {
        "effect_intent" | "tool" => format!("/payload/{name}"),
        "output_delivery" if text(record, "/payload/record_type") == "intent" => format!("/payload/record/{name}"),
        _ => String::new(),
    };
    value_at(record, &payload).and_then(Value::as_str).filter(|_| !payload.is_empty()).map(str::to_owned)
}

fn effect_of_request(effects: &[Effect], at: usize, entry: &Entry) -> Effect {
    let record = &entry.record;
    let (tool_name, fingerprint) = tool(record);
    let before = effects.iter().filter(|other| other.fingerprint.as_ref() == Some(&fingerprint)).count();
    Effect {
        tool_name,
        fingerprint: Some(fingerprint),
        occurrence: Some(u32::try_from(before + 1).unwrap_or(u32::MAX)),
        ..effect("tool_call", text(record, "/record_id"), at, entry)
    }
}

fn new_effect(family: &Family, id: &str, at: usize, entry: &Entry) -> Effect {
    let record = &entry.record;
    let kind = KINDS.into_iter().find(|kind| *kind == family.name).unwrap_or_default();
    let tool_name = match payload_type(record) {
        "effect_intent" => text(record, "/payload/kind"),
        "tool" => text(record, "/payload/canonical_tool_name"),
        _ => "",
    };
    Effect { tool_name: tool_name.to_owned(), ..effect(kind, id, at, entry) }
}

fn effect(kind: &'static str, id: &str, at: usize, entry: &Entry) -> Effect {
    let record = &entry.record;
    Effect {
        kind,
        id: id.to_owned(),
        tool_name: String::new(),
        fingerprint: None,
        occurrence: None,
        request: at,
        seq: number(record, "/journal_seq"),
        unapplied: None,
        key: key(record, "idempotency_key"),
        dedupe_key: key(record, "dedupe_key"),
        repeatable: record["facts"]["repeatable"] == true,
        status: "pending".to_owned(),
        ended: false,
        set_by: at,
        content: None,
        adopted: None,
        starts: 1,
        last_epoch: number(record, "/writer_epoch"),
        committed: false,
        observed: record["facts"]["observed"] == true,
        void_start: false,
        void_newest: false,
        void_until: None,
        started: at,
        not_done: false,
        evidence: Vec::new(),
        discarded: 0,
        start_epochs: vec![epoch(record)],
        revision: 1,
        newest: entry.content(0, record),
        given_up: false,
        contradicting: Vec::new(),
        contradictions: 0,
    }
}

fn resolve(rules: &Rules, effect: &mut Effect, at: usize, record: &Value) {
    match text(record, "/payload/decision") {
        "done" if rules.fires(Rule::ResolvedDone, true) => effect.end("completed", at, at),
        "give_up" if rules.fires(Rule::ResolvedGiveUp, true) => {
            effect.end("failed", at, at);
            effect.given_up = true;
        }
        "not_done" if rules.fires(Rule::ResolvedNotDone, true) => effect.not_done = true,
        "adopt" if rules.fires(Rule::ResolvedAdopt, true) => {
            if let Some(adopted) = effect.adoptable(rules, record) {
                let Evidence { entry, status, .. } = effect.evidence[adopted].clone();
                effect.end(&status, at, entry);
                effect.adopted = Some(adopted);
            }
        }
        _ => {}
    }
}

/// Which effect a record answers: a decision names it by any id, and the first kind that knows it has it. A decision with a basis is
/// about the pending effect that has the basis, if there is one.
fn answered_effect(rules: &Rules, effects: &[Effect], record: &Value) -> Option<usize> {
    let id = answers(record);
    let basis = value_at(record, "/facts/basis").and_then(Value::as_str);
    if let Some(basis) = basis.filter(|_| payload_type(record) == "effect_resolution") {
        let names = |effect: &Effect| {
            KINDS.contains(&effect.kind) && effect.id == id && effect.pending() && effect.newest == basis
        };
        let named = effects.iter().position(names);
        if let Some(at) = named
            && rules.fires(Rule::DecisionOfBasis, true)
        {
            return Some(at);
        }
    }
    let kinds = if payload_type(record) == "effect_resolution" { &KINDS[..] } else { &KINDS[..1] };
    kinds.iter().find_map(|kind| effects.iter().position(|effect| effect.kind == *kind && effect.id == id))
}

fn pending<'a>(rules: &Rules, effects: &'a mut [Effect], record: &Value) -> Option<&'a mut Effect> {
    let at = answered_effect(rules, effects, record)?;
    Some(&mut effects[at]).filter(|effect| effect.pending())
}

/// The state of one of the contract's effects, whether it is an end, and the entry that set it.
pub(crate) fn effect_state(rules: &Rules, run: &Run, change: &StateChange) -> Option<(String, bool, usize)> {
    let all = run_effects(rules, run);
    let effect = all.iter().find(|effect| effect.kind == change.family.name && effect.id == change.key.id)?;
    Some((effect.status.clone(), effect.ended, effect.set_by))
}

/// The result and the failure that a finished effect answers with.
pub(crate) fn outcome(run: &Run, effect: &Effect) -> (Value, Value) {
    let Some(at) = effect.content else { return (Value::Null, Value::Null) };
    // An adopted result may be within a refused batch.
    let adopted = effect.adopted.map(|adopted| &effect.evidence[adopted].result);
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
