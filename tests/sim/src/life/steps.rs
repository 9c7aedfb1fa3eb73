//! The steps of a process's agent: calls and records, and the requirements for their answers.

use super::{Next, Process};
use crate::{
    ledger::{Started, failure},
    plan::{AGAIN, Ends, Start, Step, TRIES_ADDRESSED, What},
};
use runlog_producer::{Action, Answer, Ended, Error, Failure, Json, Outcome, Run, SideEffect};
use runlog_schemas::{
    answer::ErrorKind,
    id::RecordId,
    payload::{ConversationTurn, Payload},
    record::JournalRecord,
};
use serde_json::json;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

impl Process {
    pub(super) async fn call(&self, run: &Run, step: Step, tried: u32, what: (bool, u64, Ends, u32)) -> Next {
        let (key, ms, ends, like) = what;
        let (started, begun) = (Mutex::new(None), AtomicBool::new(false));
        let effect = |call: runlog_producer::Call| {
            let stage = self.stage.clone();
            let (life, of, id) = (self.life.id, step.run, step.id);
            // A receiver that deduplicates by key returns the result on the second attempt.
            // Without a key, what failed once may succeed later: the evidence of two attempts differs.
            let succeeds_later = ends == Ends::Unknown || !key && id.is_multiple_of(2);
            let ends = if succeeds_later && call.attempt > 1 { Ends::Done } else { ends };
            let number = {
                let mut ledger = stage.ledger();
                let begins = Started { life, run: of, step: id, request: call.id.as_str().to_owned() };
                let number = ledger.starts(begins, call.attempt, ends != Ends::Failed);
                let earlier_result = if key { ledger.keyed_result(of, id) } else { None };
                let result = earlier_result.unwrap_or_else(|| match ends {
                    Ends::Failed => failure("refused", &format!("by the receiver, {number}")),
                    _ => json!({ "effect": number }).to_string(),
                });
                ledger.results_in(of, id, &result);
                *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
                (number, result)
            };
            begun.store(true, Ordering::Relaxed);
            self.tell(|| format!("the effect of step {id} runs: call {} attempt {}", call.id, call.attempt));
            self.stage.count("effects");
            async move {
                sleep(Duration::from_millis(ms)).await;
                let (number, result) = number;
                match ends {
                    Ends::Unknown => Ended::Unknown("the receiver did not answer".to_owned()),
                    Ends::Failed => {
                        let message = result.strip_prefix("refused: ").unwrap_or_default().to_owned();
                        stage.ledger().ends(number, result.clone());
                        Ended::Failed(Failure { kind: "refused".to_owned(), message })
                    }
                    Ends::Done => {
                        stage.ledger().ends(number, result.clone());
                        Ended::Done(Json::parse(&result).unwrap_or_else(|_| Json::from(json!(null))))
                    }
                }
            }
        };
        let mut tool = run.tool("book", &json!({ "step": like }));
        if key {
            tool = tool.idempotency_key(format!("key-{}", step.id));
        }
        let at = tries(step, tried);
        self.stage.ledger().works(self.life.id, step.run, step.id, true);
        let calling = async {
            let _calling = self.calling();
            tool.once_or_unknown(effect).await
        };
        let came = self.guarded("call", at, (ms, Some(&begun)), calling).await;
        self.stage.ledger().works(self.life.id, step.run, step.id, false);
        let effect = *started.lock().unwrap_or_else(PoisonError::into_inner);
        match came {
            None => {
                self.stage.count(if effect.is_some() {
                    "call cancelled once its effect began"
                } else {
                    "call cancelled"
                });
                self.tell(|| format!("step {}: the call is dropped", step.id));
                self.stage.ledger().call_dropped(effect);
                self.holds(run);
                Next::Again
            }
            Some(Ok(answer)) => {
                self.tell(|| format!("step {}: {}", step.id, format_answer(&answer)));
                self.stage.ledger().answered(self.life.id, self.life.run, step.id, effect, &answer);
                self.holds(run);
                Next::Done
            }
            Some(Err(error)) => {
                self.stage.ledger().call_failed(effect, &error);
                self.holds(run);
                self.failed(run, step.id, &error).await
            }
        }
    }

    /// An impatient agent makes a later call while a step waits for a decision. No call equals the later one.
    pub(super) async fn try_later_call(&self, run: &Run, waiting: Step) {
        let steps = self.stage.plan.steps(waiting.run);
        let equals =
            |of: u32| steps.iter().filter(|step| matches!(step.what, What::Call { like, .. } if like == of)).count();
        let is_later = |step: &&Step| step.id > waiting.id && !self.done().contains(&step.id);
        let later = steps.iter().filter(is_later).find_map(|step| match step.what {
            What::Call { key, ms, ends, like } if like == step.id && equals(like) == 1 => {
                Some((*step, (key, ms, ends, like)))
            }
            _ => None,
        });
        let Some((later, what)) = later else { return };
        self.stage.count("call while another one waits for a decision");
        if let Next::Done = self.call(run, later, TRIES_ADDRESSED + 1, what).await {
            self.done().insert(later.id);
        }
    }

    pub(super) async fn write(&self, run: &Run, step: Step, tried: u32) -> Next {
        let at = tries(step, tried);
        let (life, id) = (self.life.id, step.id);
        let content = json!({ "step": id, "by": life, "try": tried });
        let operation = async {
            match step.what {
                What::Checkpoint => self.checkpoint(run).await.map(|position| vec![position]),
                What::Turn => run.turn("user", &content).await.map(|position| vec![position]),
                What::Record { of } => run.record(fixed_record(run, of)?).await.map(|position| vec![position]),
                What::Batch { again } => {
                    let again = again.map(|again| fixed_record(run, again)).transpose()?;
                    run.batch(std::iter::once(fixed_record(run, id)?).chain(again).collect()).await
                }
                What::Spoiled { of } => run.batch(vec![fixed_record(run, id)?, record_with_id_of(run, id, of)?]).await,
                What::Prune => {
                    let covered = run.recovery().next_journal_seq;
                    run.prune_checkpoints(covered, false).await.map(|position| vec![position])
                }
                What::End => run.end(Outcome::Completed).await.map(|position| vec![position]),
                What::Misuse { of } => self.misuse(run, id, of).await.map(|()| Vec::new()),
                What::Flush | What::Call { .. } => run.flush().await.map(|()| Vec::new()),
            }
        };
        if step.what == What::Prune && self.life.start == Start::Unread {
            return Next::Done;
        }
        // A record that is not in the log yet would be applied.
        if matches!(step.what, What::Spoiled { of } if !self.stage.ledger().has_applied_in(step.run, &known_id(of))) {
            return Next::Done;
        }
        match self.guarded("write", at, (0, None), operation).await {
            None => {
                self.stage.count("write cancelled");
                self.tell(|| format!("step {id}: the write is dropped"));
                // Some agents ignore the outcome of a record.
                let careless = matches!(step.what, What::Turn | What::Record { .. }) && id.is_multiple_of(2);
                if step.what == What::Checkpoint || careless { Next::Done } else { Next::Again }
            }
            Some(Ok(positions)) => {
                let at: Vec<_> =
                    positions.iter().map(|at| format!("{}:{}:{}", at.partition, at.offset, at.index)).collect();
                self.tell(|| format!("step {id}: {:?} → Ok at {}", step.what, at.join(" ")));
                for (nth, position) in positions.into_iter().enumerate() {
                    let what = format!("step {id} of run {} in life {life}", self.life.run);
                    self.stage.ledger().acknowledged((self.life.run, life), &what, &position, |record| {
                        match (&record.payload, step.what) {
                            (Payload::ConversationTurn(turn), What::Turn) => turn.content.to_value() == content,
                            (Payload::ConversationTurn(turn), What::Record { of }) => {
                                turn.content.to_value() == json!({ "step": of })
                            }
                            (Payload::ConversationTurn(_), What::Spoiled { .. }) => true,
                            (Payload::ConversationTurn(turn), What::Batch { again }) => {
                                let step = if nth == 0 { Some(id) } else { again };
                                turn.content.to_value() == json!({ "step": step })
                            }
                            (Payload::RunLifecycle(_), What::End)
                            | (Payload::LoopCheckpoint(_), What::Checkpoint)
                            | (Payload::CheckpointPrune(_), What::Prune) => true,
                            _ => false,
                        }
                    });
                }
                Next::Done
            }
            // As expected. The handle may need a reopening.
            Some(Err(error)) if matches!(step.what, What::Spoiled { .. }) && error.kind() == ErrorKind::Conflict => {
                self.stage.count("batch with a record that is refused");
                self.tell(|| format!("step {id}: {error}"));
                Next::Done
            }
            // A skip displaced the record: it stays refused under its id.
            Some(Err(error)) if error.kind() == ErrorKind::Conflict && self.is_displaced(step) => {
                self.tell(|| format!("step {id}: {error}"));
                match self.reopen(run).await {
                    Next::Leave => Next::Leave,
                    _ => Next::Done,
                }
            }
            // The agent's loop continues.
            Some(Err(error)) if step.what == What::Checkpoint && error.action() != Action::Stop => {
                self.tell(|| format!("step {id}: {error}"));
                Next::Done
            }
            Some(Err(error)) => {
                let unknown = error.side_effect() == SideEffect::Unknown && error.action() == Action::Reopen;
                let next = self.failed(run, id, &error).await;
                // Reopening found the record that the error names in the log, or sent it again. That may be a record that
                // the handle sent before this step's: an earlier write that was dropped. What took too long as a whole may
                // have sent none, and names none.
                if let Some(sent) = error.subject().record_id.as_ref().filter(|_| unknown)
                    && step.what == What::Turn
                    && matches!(next, Next::Again | Next::NoRoom)
                {
                    self.stage.count("reopened after an unknown write");
                    if !self.stage.ledger().has_in(step.run, sent.as_str()) {
                        self.fail(format!(
                            "step {id}: reopened, and the unknown record {sent} is not in the log: {error}"
                        ));
                    }
                }
                next
            }
        }
    }

    /// Whether a step writes records under ids of its agent, one of which a skip displaced.
    fn is_displaced(&self, step: Step) -> bool {
        let ids = match step.what {
            What::Record { of } => vec![known_id(of)],
            What::Batch { again } => std::iter::once(step.id).chain(again).map(known_id).collect(),
            _ => return false,
        };
        self.stage.ledger().displaces_one_of(step.run, &ids)
    }

    /// Makes a call under the key of another call. It must be refused.
    async fn misuse(&self, run: &Run, step: u32, of: u32) -> Result<(), Error> {
        let tool = run.tool("book", &json!({ "step": step })).idempotency_key(format!("key-{of}"));
        let effect = async |call: runlog_producer::Call| {
            self.fail(format!("step {step} runs under the key of step {of}, as call {}", call.id));
            Ok(Json::from(json!(null)))
        };
        match tool.once(effect).await {
            Err(error) if error.kind() == ErrorKind::Conflict && error.action() == Action::FixTheInput => {
                self.stage.count("key refused with other arguments");
                Ok(())
            }
            Err(error) => Err(error),
            Ok(answer) => {
                self.fail(format!("step {step} has the key of step {of}, and is answered: {}", format_answer(&answer)));
                Ok(())
            }
        }
    }
}

/// The number under which a try of a step is addressed.
fn tries(step: Step, tried: u32) -> u32 {
    if tried <= TRIES_ADDRESSED { tried * AGAIN + step.id } else { u32::MAX }
}

/// A record with the same id and content in every process.
fn fixed_record(run: &Run, id: u32) -> Result<JournalRecord, Error> {
    let turn = ConversationTurn {
        message_id: format!("m-{id}"),
        parent_id: None,
        thread_id: None,
        kind: "user".to_owned(),
        content: Json::from(json!({ "step": id })),
    };
    let mut record = run.draft(turn)?;
    record.body.record_id = RecordId::new(known_id(id))?;
    Ok(record)
}

fn known_id(id: u32) -> String {
    format!("record-{id}")
}

/// A record of step `id` under the id of the record of step `of`.
fn record_with_id_of(run: &Run, id: u32, of: u32) -> Result<JournalRecord, Error> {
    let mut record = fixed_record(run, id)?;
    record.body.record_id = RecordId::new(known_id(of))?;
    Ok(record)
}

fn format_answer(answer: &Answer) -> String {
    let value = match (&answer.result, &answer.error) {
        (_, Some(error)) => failure(&error.kind, &error.message),
        (Some(result), None) => result.as_str().to_owned(),
        (None, None) => "nothing".to_owned(),
    };
    let how = if answer.recorded { "recorded" } else { "answered" };
    let at = answer.position.as_ref().map(|position| format!("{}:{}", position.partition, position.offset));
    format!("{how} {value} at {}", at.unwrap_or_default())
}
