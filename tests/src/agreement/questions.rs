//! All queries that both the model and the product answer.

use super::{
    about::About,
    answers::{Answers, order_pending},
    difference::{First, Found, as_given, first},
};
use runlog_model::{Delivery, Event, EventFilter, History, Model};
use runlog_projector::index::{
    query::{self, effects::Listed, events::Filter},
    store::{Index, evolving, pools, write_backs},
};
use runlog_schemas::{
    id::{RecordId, RunId},
    refs::EntityKind,
};
use serde_json::{Value, json};

/// The model and the product, at one position of a history.
#[derive(Debug)]
pub struct Both<'a, A> {
    /// The model.
    pub model: &'a Model,
    /// The product.
    pub product: &'a A,
    /// The input of both.
    pub history: &'a History,
    /// Answers that were equal so far.
    answers: u64,
    /// The run and the record of the question, as members of an object.
    asked: Value,
}

/// The lifecycles: the model's names and the product's indices.
const FAMILIES: [(&str, Index); 6] = [
    ("approval", evolving::APPROVALS),
    ("wake", evolving::WAKES),
    ("run_message", evolving::MESSAGES),
    ("write_back", write_backs::INDEX),
    ("code_edit_proposal", evolving::PROPOSALS),
    ("agent_pool", pools::INDEX),
];

/// The beginnings of the product's reasons, with the model's word for each. No document fixes the wording.
const REASONS: [(&str, &str); 6] = [
    ("the run is ", "ended"),
    ("an effect may have happened and nobody recorded", "reconcile_required"),
    ("resolved as not done", "not_done"),
    ("its request says that it is safe to repeat", "repeatable"),
    ("has an idempotency or dedupe key", "key"),
    ("the effect may have happened and has no", "unknown_outcome"),
];

/// The result of a comparison, or the first difference.
pub(super) type Checked<T = ()> = Result<T, Found>;

impl<'a, A: Answers> Both<'a, A> {
    /// Both after the same events.
    pub fn new(model: &'a Model, product: &'a A, history: &'a History) -> Self {
        Self { model, product, history, answers: 0, asked: Value::Null }
    }

    /// Compares the answers to all questions; returns how many were compared.
    pub fn everything(mut self) -> Checked<u64> {
        self.compare_lists()?;
        let mut runs = self.history.runs.clone();
        runs.push("nobody's".to_owned());
        for run_id in &runs {
            self.compare_run(run_id)?;
        }
        self.asked = Value::Null;
        self.events()?;
        self.outcomes()?;
        Ok(self.answers)
    }

    /// The page limit of the next question.
    fn limit(&self) -> usize {
        self.product.page(self.history.seed + self.answers)
    }

    fn equal(&mut self, question: &str, model: &Value, product: anyhow::Result<Value>) -> Checked {
        self.answers += 1;
        let difference = match product {
            Ok(product) => first(model, &product),
            Err(error) => Some(First::whole(model, &format!("failed: {error:#}").into())),
        };
        let Some(First { path, model, product, mut around }) = difference else { return Ok(()) };
        around.add(&self.asked);
        let about = Box::new(About::find(&around, self.history, self.model));
        Err(Found { question: question.to_owned(), path, model, product, about })
    }

    fn compare_lists(&mut self) -> Checked {
        let limit = self.limit();
        let mut partitions = self.model.partitions()["partitions"].clone();
        let answer = self.product.partitions();
        for (row, answer) in
            list_items(&mut partitions).zip(answer.iter().flat_map(|answer| answer.as_array()).flatten())
        {
            if answer["applied"].is_null() {
                row["applied"] = Value::Null;
            }
        }
        self.equal("partitions", &partitions, answer)?;
        let mut runs = self.model.runs()["runs"].clone();
        list_items(&mut runs).for_each(dated);
        let answer = self.product.runs(limit).map(|runs| without(runs, &["age_millis"]));
        self.equal("runs", &runs, answer)?;
        let all = without_payloads(by_kind(self.model.effects(false)["effects"].clone()));
        for listed in [Listed::All, Listed::Pending, Listed::Unsafe, Listed::Contradicted] {
            let has = |effect: &&Value| match listed {
                Listed::All => true,
                Listed::Pending => effect["status"] == "pending",
                Listed::Unsafe => effect["class"] == "reconcile_required",
                Listed::Contradicted => effect["contradictions"] != 0,
            };
            let model: Value = all.as_array().into_iter().flatten().filter(has).cloned().collect();
            let answer =
                self.product.effects(listed, limit).map(|answer| without_payloads(by_kind(with_model_reasons(answer))));
            self.equal(&format!("effects {listed:?}"), &model, answer)?;
        }
        let answer = self.product.anomalies(None, limit).map(Value::from);
        self.equal("anomalies", &self.model.anomalies(None)["anomalies"], answer)?;
        let answer = self.product.dead_letters(limit).map(Value::from);
        self.equal("dead letters", &self.model.dead_letters()["records"], answer)?;
        self.open_items_everywhere()
    }

    /// The open items of all runs.
    fn open_items_everywhere(&mut self) -> Checked {
        let limit = self.limit();
        for (family, index) in FAMILIES {
            for ended in [false, true] {
                let rows = |run_id: &String| {
                    let rows = self.model.family_items(run_id, family, ended)["standing"].clone();
                    let rows = rows.as_array().cloned().unwrap_or_default();
                    rows.into_iter().map(|row| json!([run_id, row])).collect::<Vec<_>>()
                };
                let mut model: Vec<Value> = self.history.runs.iter().flat_map(rows).collect();
                model.sort_by_key(Value::to_string);
                let answer = self.product.open_items_everywhere(index, ended, limit).map(|answer| {
                    let mut answer: Vec<Value> = answer.into_iter().map(|(run_id, row)| json!([run_id, row])).collect();
                    answer.sort_by_key(Value::to_string);
                    answer.into()
                });
                self.equal(&format!("{family} everywhere, ended {ended}"), &model.into(), answer)?;
            }
        }
        Ok(())
    }

    /// Compares the answers about a run as of an earlier position; returns how many were compared. `shown` lists its records
    /// as of the position, in pages of the given limit.
    pub fn of_past(
        mut self,
        run_id: &str,
        shown: impl Fn(RunId<&str>, usize) -> anyhow::Result<Vec<Value>>,
    ) -> Checked<u64> {
        let id = RunId::new(run_id).expect("a run of the history has an id");
        self.compare_own_rows(run_id, id)?;
        self.records(run_id, shown(id, self.limit()))?;
        Ok(self.answers)
    }

    fn compare_run(&mut self, run_id: &str) -> Checked {
        let limit = self.limit();
        let id = RunId::new(run_id).expect("a run of the history has an id");
        self.compare_own_rows(run_id, id)?;
        self.records(run_id, self.product.show(id, limit))?;
        let answer = self.product.anomalies(Some(id), limit).map(Value::from);
        self.equal(&format!("anomalies of {run_id}"), &self.model.anomalies(Some(run_id))["anomalies"], answer)
    }

    /// The answers that depend only on the run's own rows.
    fn compare_own_rows(&mut self, run_id: &str, id: RunId<&str>) -> Checked {
        self.asked = json!({ "run_id": run_id });
        let limit = self.limit();
        let mut recovery = self.model.recover(run_id);
        order_pending(&mut recovery);
        let head = recovery["next_journal_seq"].as_u64().unwrap_or(1);
        if let Some(members) = recovery.as_object_mut() {
            members.remove("records");
            members.remove("updated_at_millis");
        }
        each_evidence(&mut recovery["pending"]).for_each(logged);
        let answer = self.product.recover(id, limit).map(|mut answer| {
            let resumes = answer["reason"].clone();
            if let Some(members) = answer.as_object_mut() {
                members.remove("next_cursor");
                members.insert("reason".to_owned(), model_reason(&resumes));
                members.get_mut("pending").into_iter().flat_map(list_items).for_each(|row| {
                    row["reason"] = model_reason(&row["reason"]);
                    row.as_object_mut().and_then(|members| members.remove("state"));
                });
            }
            let model = recovery["pending"].as_array().into_iter().flatten();
            let given = model.flat_map(|row| row["evidence"].as_array()).flatten();
            for (answer, given) in each_evidence(&mut answer["pending"]).zip(given) {
                answer["payload"] = as_given(&given["payload"], &answer["payload"]);
            }
            answer
        });
        self.equal(&format!("recover {run_id}"), &recovery, answer)?;
        self.calls(run_id, id)?;
        for covers in [None, Some(0), Some(head / 2), Some(head)] {
            let model = self.model.checkpoint(run_id, covers);
            self.equal(&format!("checkpoint {run_id} at {covers:?}"), &model, self.product.checkpoint(id, covers))?;
        }
        for (family, index) in FAMILIES {
            for ended in [false, true] {
                let model = self.model.family_items(run_id, family, ended)["standing"].clone();
                let answer = self.product.open_items(id, index, ended, limit).map(Value::from);
                self.equal(&format!("{family} of {run_id}, ended {ended}"), &model, answer)?;
            }
        }
        self.facts(run_id, id)?;
        Ok(())
    }

    fn calls(&mut self, run_id: &str, id: RunId<&str>) -> Checked {
        let mut fingerprints = self.model.fingerprints(run_id);
        fingerprints.push(("v1:00".to_owned(), 0));
        for (fingerprint, occurrences) in fingerprints {
            let wanted = (1..=occurrences + 1).map(Some).chain([None]);
            for occurrence in wanted {
                let mut model = self.model.lookup(run_id, &fingerprint, occurrence);
                model["missing_content"] = json!([]);
                let answer = self.product.lookup(id, &fingerprint, occurrence);
                self.equal(&format!("lookup {run_id} {fingerprint} {occurrence:?}"), &model, answer)?;
            }
        }
        Ok(())
    }

    fn records(&mut self, run_id: &str, answer: anyhow::Result<Vec<Value>>) -> Checked {
        let mut model = self.model.show(run_id)["records"].clone();
        for line in list_items(&mut model) {
            let millis = line["timestamp_millis"].take().as_u64().unwrap_or(0);
            line["timestamp"] = query::time(millis).into();
            let answers_nothing = line["answers"] == "";
            if let Some(members) = line.as_object_mut() {
                members.remove("timestamp_millis");
                members.retain(|name, _| name != "answers" || !answers_nothing);
            }
        }
        let answer = answer.map(|lines| {
            let mut lines = without(lines, &["cursor", "record_kind", "logged_at", "status", "tool_name"]);
            // The product adds defaults to a payload; it must contain all that its writer gave.
            for (line, model) in list_items(&mut lines).zip(model.as_array().into_iter().flatten()) {
                line["payload"] = as_given(&model["payload"], &line["payload"]);
            }
            lines
        });
        self.equal(&format!("records of {run_id}"), &model, answer)
    }

    fn events(&mut self) -> Checked {
        // A third of the questions at each position; over seeds and positions all of them.
        let turn = self.history.seed + self.answers;
        let questions = Model::event_questions(&self.history.runs);
        for asked in (turn..).zip(questions).filter(|(at, _)| at.is_multiple_of(3)).map(|(_, asked)| asked) {
            let limit = self.limit();
            let filter = filter(&asked);
            let model = by_place(self.model.events(&asked)["events"].clone());
            let answer = self.product.events(&filter, limit).map(|events| {
                let mut events = by_place(without(events, &["timestamp"]));
                // The product fills in an absent summary; a given summary must be complete.
                for (event, model) in list_items(&mut events).zip(model.as_array().into_iter().flatten()) {
                    let given = &model["event"];
                    event["event"] = if given.is_null() { Value::Null } else { as_given(given, &event["event"]) };
                }
                events
            });
            self.equal(&format!("events of {asked:?}"), &model, answer)?;
        }
        Ok(())
    }

    fn facts(&mut self, run_id: &str, id: RunId<&str>) -> Checked {
        let limit = self.limit();
        for (turn, at) in (self.history.seed..).zip(self.model.times(run_id)) {
            let model = self.model.facts(run_id, at)["facts"].clone();
            let answer = self.product.facts(id, at, limit).map(|facts| without(facts, &["at", "status"]));
            self.equal(&format!("facts of {run_id} at {at}"), &model, answer)?;
            if !turn.is_multiple_of(3) {
                continue;
            }
            let places: Value = model.as_array().into_iter().flatten().map(|fact| fact["position"].clone()).collect();
            let lines = self.product.show_at(id, at, limit);
            let answer = lines.map(|lines| lines.into_iter().map(|line| line["position"].clone()).collect());
            self.equal(&format!("records of {run_id} as of {at}"), &places, answer)?;
        }
        Ok(())
    }

    fn outcomes(&mut self) -> Checked {
        let events = self.history.events();
        let deliveries = events.iter().filter_map(|event| match event {
            Event::Deliver(delivery) => Some(delivery),
            Event::StartMoved { .. } => None,
        });
        for delivery in deliveries {
            let Some(record) = delivery.what.record() else { continue };
            let Some(run_id) = record["run_id"].as_str() else { continue };
            self.outcome(delivery, 0, run_id, record)?;
            for (index, inner) in (0..).zip(record["payload"]["records"].as_array().into_iter().flatten()) {
                self.outcome(delivery, index, run_id, inner)?;
            }
            let record_id = record["record_id"].as_str().unwrap_or_default();
            let model = self.model.first_outcome(run_id, record_id);
            let id = RecordId::new(record_id).expect("a record of the history has an id");
            self.asked = json!({ "run_id": run_id, "record_id": record_id });
            let answer = self.product.by_id(RunId::new(run_id).expect("a run has an id"), id).map(unnumbered);
            self.equal(&format!("the record {record_id} of {run_id}"), &model, answer)?;
        }
        Ok(())
    }

    fn outcome(&mut self, delivery: &Delivery, index: u32, run_id: &str, record: &Value) -> Checked {
        let (partition, offset) = (delivery.partition, delivery.offset);
        if !self.product.tells_outcomes(partition) {
            return Ok(());
        }
        let record_id = record["record_id"].as_str().unwrap_or_default();
        self.asked = json!({ "run_id": run_id, "record_id": record_id });
        let mut model = self.model.outcome(partition, offset, index, record_id);
        let (run, id) = (RunId::new(run_id).expect("an id"), RecordId::new(record_id).expect("an id"));
        let mut answer = self.product.outcome(partition, (offset, index), run, id).map(unnumbered);
        if let Some(members) = model.as_object_mut() {
            members.insert("record_id".to_owned(), record_id.into());
        } else if answer.as_ref().is_ok_and(|answer| answer["outcome"] == "repeat") {
            // The model judged no record there; the product answers for the first record with this id.
            answer = Ok(Value::Null);
        }
        self.equal(&format!("outcome of {partition}:{offset}.{index}, {record_id} of {run_id}"), &model, answer)
    }
}

/// The model's filter as the product's.
fn filter(asked: &EventFilter) -> Filter {
    let entity = |(kind, id): &(String, String)| {
        let kind = EntityKind::ALL.iter().find(|known| known.as_str() == kind).expect("a kind of entity");
        (*kind, id.clone())
    };
    Filter {
        run_id: asked.run_id.as_ref().map(|id| RunId::new(id.as_str()).expect("a run has an id").to_owned()),
        family: asked.family.clone(),
        kind: asked.kind.clone(),
        subject: asked.subject.as_ref().map(entity),
        related: asked.related.as_ref().map(entity),
        correlation: asked.correlation.clone().into_iter().collect(),
        tag: asked.tag.clone(),
        ..Filter::default()
    }
}

/// Sorts by partition and position: the order over several lists is unspecified.
fn by_place(mut events: Value) -> Value {
    if let Some(events) = events.as_array_mut() {
        let place = |event: &Value| ["partition", "offset", "index"].map(|name| event["position"][name].as_u64());
        events.sort_by_key(place);
    }
    events
}

/// The items of a list.
fn list_items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

/// Items without some members.
fn without(mut items: Vec<Value>, names: &[&str]) -> Value {
    for item in &mut items {
        if let Some(members) = item.as_object_mut() {
            members.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    items.into()
}

/// Removes the journal number of a repeated record, which the model's outcome does not contain.
fn unnumbered(mut outcome: Value) -> Value {
    if let Some(members) = outcome.as_object_mut() {
        members.remove("journal_seq");
    }
    outcome
}

/// The model's time as the product writes it.
fn dated(run: &mut Value) {
    let millis = run["updated_at_millis"].as_u64().unwrap_or(0);
    run["updated_at"] = query::time(millis).into();
    if let Some(members) = run.as_object_mut() {
        members.remove("updated_at_millis");
    }
}

fn model_reason(reason: &Value) -> Value {
    let Some(text) = reason.as_str() else { return Value::Null };
    REASONS.iter().find(|(begins, _)| text.starts_with(begins)).map_or(reason.clone(), |(_, word)| (*word).into())
}

/// Effects with the model's words for reasons, without arguments and without members that depend on the time of the query.
fn with_model_reasons(mut effects: Vec<Value>) -> Value {
    for effect in &mut effects {
        effect["reason"] = model_reason(&effect["reason"]);
        if let Some(members) = effect.as_object_mut() {
            members.retain(|name, _| !["state", "age_millis", "arguments", "run"].contains(&name.as_str()));
        }
    }
    effects.into()
}

/// The refused results of all effects of a list: evidence, and contradictions of their outcomes.
fn each_evidence(effects: &mut Value) -> impl Iterator<Item = &mut Value> {
    let members = list_items(effects).flat_map(|effect| effect.as_object_mut()).flatten();
    let refused = members.filter(|(name, _)| matches!(name.as_str(), "evidence" | "contradicting"));
    refused.flat_map(|(_, results)| list_items(results))
}

/// The model's time of evidence as the product writes it.
fn logged(evidence: &mut Value) {
    if let Some(millis) = evidence.as_object_mut().and_then(|members| members.remove("logged_at_millis")) {
        evidence["logged_at"] = query::time(millis.as_i64().unwrap_or(0).max(0).cast_unsigned()).into();
    }
}

/// Effects with the product's times, without the payloads and the results of their evidence, which lists mask.
fn without_payloads(mut effects: Value) -> Value {
    for effect in list_items(&mut effects) {
        if let Some(millis) = effect.as_object_mut().and_then(|members| members.remove("since_millis")) {
            let since = millis.as_i64().filter(|millis| *millis > 0);
            effect["since"] = since.map(|millis| query::time(millis.cast_unsigned())).into();
        }
    }
    for evidence in each_evidence(&mut effects) {
        logged(evidence);
        if let Some(members) = evidence.as_object_mut() {
            members.retain(|name, _| !["payload", "result", "error"].contains(&name.as_str()));
        }
    }
    effects
}

/// Sorts by run, kind and id: the order over several partitions is unspecified.
fn by_kind(mut effects: Value) -> Value {
    if let Some(effects) = effects.as_array_mut() {
        effects.sort_by_key(|effect| ["run_id", "kind", "id"].map(|name| effect[name].to_string()));
    }
    effects
}
