//! Questions at `latest`, and their expected answers: the model's answer at some moment between question and answer.
//!
//! While a question is open, the model is asked again after each record. The answer must equal one of the model's
//! answers.

use super::{Ledger, excuses};
use crate::plan::PUBLISHED;
use runlog_model::Model;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A question.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// A run's recovery, after its last checkpoint.
    Recovery(String),
    /// A run's head.
    Run(String),
    /// A call, by its fingerprint.
    Lookup { run_id: String, fingerprint: String, occurrence: Option<u32> },
    /// The outcome of the first record of an id.
    Known { run_id: String, record_id: String },
    /// All effects that are pending.
    Pending,
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Open {
    question: Question,
    /// The model's answers since then, each once.
    moments: Vec<Value>,
    /// How often a server had begun or ceased to read from a deposed leader at the start, and whether one did.
    deposed: (usize, bool),
    /// How often a server had begun or ceased to see a log end before its applied position at the start.
    ends_moved: usize,
}

/// The open questions, by number.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: usize,
    open: BTreeMap<usize, Open>,
}

impl Question {
    fn of_model(&self, model: &Model) -> Value {
        match self {
            Self::Recovery(run_id) => model.recover(run_id),
            Self::Run(run_id) => model.head(run_id),
            Self::Lookup { run_id, fingerprint, occurrence } => model.lookup(run_id, fingerprint, *occurrence),
            Self::Known { run_id, record_id } => {
                let mut outcome = model.first_outcome(run_id, record_id);
                if outcome.is_object() {
                    let head = model.head(run_id);
                    // A skip can displace all records of a run. It is then like a run without a claim.
                    let (epoch, writer_id) = if head.is_null() {
                        (json!(0), json!(""))
                    } else {
                        (head["epoch"].clone(), head["writer_id"].clone())
                    };
                    (outcome["epoch"], outcome["writer_id"]) = (epoch, writer_id);
                }
                outcome
            }
            Self::Pending => model.effects(true),
        }
    }

    /// The difference between an answer and the model's answer at a moment.
    fn differs(&self, answer: &Value, model: &Value) -> Option<String> {
        let members = |names: &[&str]| {
            let name = names.iter().find(|name| without_log(&answer[**name]) != model[**name])?;
            Some(format!("{name} is {} and not {}", answer[*name], model[*name]))
        };
        if answer.is_null() || model.is_null() {
            return (answer.is_null() != model.is_null()).then(|| format!("it is {answer} and not {model}"));
        }
        match self {
            Self::Recovery(_) => differs(answer, model),
            Self::Run(_) => members(&HEAD),
            Self::Lookup { .. } => {
                members(&["status", "occurrence", "occurrences", "result", "position", "contradicted"])
            }
            Self::Known { .. } => members(&["outcome", "reason", "position", "record_id", "epoch", "writer_id"]),
            Self::Pending => None,
        }
    }
}

/// A member of an answer; a position without its log, which the model does not know.
fn without_log(member: &Value) -> Value {
    let mut member = member.clone();
    if let Some(position) = member.as_object_mut() {
        position.remove("log");
    }
    member
}

const HEAD: [&str; 5] = ["status", "epoch", "writer_id", "next_journal_seq", "next_writer_seq"];

/// The pending effects of one partition, from a list for all partitions.
fn pending(list: &Value, partition: u32) -> BTreeSet<String> {
    let effects = list["effects"].as_array().into_iter().flatten();
    let here = effects.filter(|effect| effect["position"]["partition"] == partition);
    here.map(|effect| json!([effect["run_id"], effect["id"], effect["class"], effect["revision"]]).to_string())
        .collect()
}

fn evidence(call: &Value) -> Vec<Value> {
    let evidence = call["evidence"].as_array().into_iter().flatten();
    evidence.map(|one| json!([one["record_id"], one["adoptable"]])).collect()
}

/// An ended call that an answer about a run lacks, and another answer has.
fn lacks(answer: &Value, other: &Value) -> Option<String> {
    let ended = |of: &Value| -> BTreeSet<String> {
        let calls = of["completed"].as_array().into_iter().flatten();
        calls.map(|call| json!([call["id"], call["status"], call["position"]["offset"]]).to_string()).collect()
    };
    let (known, wanted) = (ended(answer), ended(other));
    wanted.difference(&known).next().map(|call| format!("the ended call {call}"))
}

/// The difference between a server's recovery of a run and the model's.
pub(crate) fn differs(answer: &Value, model: &Value) -> Option<String> {
    let pending = |of: &Value| -> Vec<Value> {
        let calls = of["pending"].as_array().into_iter().flatten();
        calls
            .map(|call| json!([call["id"], call["class"], call["revision"], call["attempts"], evidence(call)]))
            .collect()
    };
    let further = ["next_checkpoint_seq", "records_after", "resumable"];
    let scalar = HEAD.into_iter().chain(further).find(|name| answer[name] != model[name]);
    let difference = scalar.map(|name| format!("{name} is {} and not {}", answer[name], model[name]));
    let difference = difference.or_else(|| {
        let (actual, wanted) = (pending(answer), pending(model));
        (actual != wanted).then(|| format!("pending is {actual:?} and not {wanted:?}"))
    });
    let difference = difference.or_else(|| {
        let checkpoint = |of: &Value| of["checkpoint"]["checkpoint_id"].clone();
        let (actual, wanted) = (checkpoint(answer), checkpoint(model));
        (actual != wanted).then(|| format!("the checkpoint is {actual} and not {wanted}"))
    });
    let difference = difference.or_else(|| lacks(answer, model).map(|call| format!("it lacks {call}")));
    difference.or_else(|| lacks(model, answer).map(|call| format!("it has {call} too early")))
}

impl Ledger {
    /// Opens a question now, and returns its number.
    pub(crate) fn asks(&mut self, question: Question) -> usize {
        let now = self.model.as_ref().map_or(Value::Null, |model| question.of_model(model));
        let (deposed, ends_moved) = (self.deposed_since(), self.ends_moved);
        let number = self.questions.asked;
        self.questions.asked += 1;
        self.questions.open.insert(number, Open { question, moments: vec![now], deposed, ends_moved });
        number
    }

    /// The model has folded a record.
    pub(super) fn moves(&mut self) {
        let Some(model) = &self.model else { return };
        for open in self.questions.open.values_mut() {
            let now = open.question.of_model(model);
            if open.moments.last() != Some(&now) {
                open.moments.push(now);
            }
        }
    }

    /// A question is answered: null if the subject does not exist, `None` if no answer arrived.
    pub(crate) fn settle(&mut self, number: usize, answer: Option<&Value>) {
        let Some(Open { question, moments, deposed, ends_moved }) = self.questions.open.remove(&number) else { return };
        let Some(answer) = answer else { return };
        // A deposed leader's answer may be old. A server notices an end before its applied position, if it had
        // applied up to there before the question.
        if deposed.1 || deposed != self.deposed_since() {
            return self.excuse(excuses::DEPOSED_ANSWER);
        }
        if ends_moved != self.ends_moved {
            return self.excuse(excuses::END_MOVED);
        }
        if matches!(question, Question::Pending) {
            // For a stopped partition a list contains the state at the stop.
            let stopped = answer["unavailable_partitions"].as_array().cloned().unwrap_or_default();
            if !stopped.is_empty() {
                self.excuse(excuses::STOPPED_LIST);
            }
            for partition in (0..crate::stage::PARTITIONS).filter(|partition| !stopped.contains(&(*partition).into())) {
                let actual = pending(answer, partition);
                if !moments.iter().any(|moment| pending(moment, partition) == actual) {
                    let last = moments.last().map(|moment| pending(moment, partition));
                    self.fail(format!(
                        "the pending effects of partition {partition} at latest were never {actual:?} since they were asked \
                         for; in the end {last:?}"
                    ));
                }
            }
            return;
        }
        let differences: Vec<_> = moments.iter().map(|moment| question.differs(answer, moment)).collect();
        if !differences.contains(&None) {
            let (first, last) = (differences.first().cloned().flatten(), differences.last().cloned().flatten());
            self.fail(format!(
                "an answer at latest was true at none of {} moments since the question {question:?}: at first {}; in the \
                 end {}",
                differences.len(),
                first.unwrap_or_default(),
                last.unwrap_or_default()
            ));
        }
    }

    /// Stopped partitions, each with its offset.
    pub(crate) fn stopped(&self) -> Vec<(u64, u64)> {
        let answer = self.model.as_ref().map(Model::partitions).unwrap_or_default();
        let partitions = answer["partitions"].as_array().into_iter().flatten();
        let stopped = partitions.filter_map(|row| Some((row["partition"].as_u64()?, row["stopped_at"].as_u64()?)));
        stopped.collect()
    }

    /// The start of a partition's log has moved.
    pub(crate) fn truncated(&mut self, partition: u32, start: u64) {
        if let Some(model) = &mut self.model {
            model.start_moved(partition, start);
        }
        self.moves();
    }

    /// The fingerprints of a run's calls, each with its number of requests.
    pub(crate) fn fingerprints(&self, run_id: &str) -> Vec<(String, u32)> {
        self.model.as_ref().map(|model| model.fingerprints(run_id)).unwrap_or_default()
    }

    /// The id of some record of a run, regardless of its outcome.
    pub(crate) fn some_record(&self, run_id: &str, nth: u64) -> Option<String> {
        let all = self.records.values().filter(|landed| landed.record.body.run_id.as_str() == run_id);
        let ids: Vec<&str> = all.map(|landed| landed.record.body.record_id.as_str()).collect();
        let nth = usize::try_from(nth).unwrap_or_default();
        ids.get(nth % ids.len().max(1)).map(|id| (*id).to_owned())
    }

    /// All runs of handles, writers, clients of the protocol and publishers.
    pub(crate) fn runs() -> impl Iterator<Item = u32> {
        0..=PUBLISHED
    }
}
