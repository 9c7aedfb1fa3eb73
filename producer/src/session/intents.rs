//! Appends the intents of concurrent calls in the order of the calls, several in one append.
//!
//! ```text
//!   call ─▶ waiting ─▶ in flight, with other waiting intents ─▶ acknowledged: each call continues by itself
//!                        ├── no record was appended: an error for each call
//!                        └── unknown: the handle is stopped, and no waiting intent is sent
//! ```
//!
//! At most one such append is in flight. Any other operation first waits until all intents are settled, so the log has
//! the operations in their order. Effects keep that order, too ([`shared`](super::shared)).

use super::{
    appender::RunAppender,
    in_flight::InFlightCall,
    outcome::{AckedRecord, not_own_intent},
    replay::{CallKey, RecordedCall, Replay},
    sent_at::SentAt,
    shared::{Place, not_started},
    taken_call::TakenCall,
};
use crate::{
    config::failpoint,
    error::{Action, Error, SideEffect},
    metrics::metric,
    transport::{
        in_flight::SharedPermit,
        request::{AppendAsk, AppendFailed, AppendUntil, Appended, ToAppend},
    },
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{Epoch, Offset, RecordId},
    payload::Payload,
    record::JournalRecord,
};
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Intents in one append.
const TOGETHER_MAX: usize = 64;
/// Bytes of an append with several intents: far below the limits of a server or a log.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

type Outcome = Result<Vec<Appended>, AppendFailed>;

/// An append in flight. Any of its calls, or any other operation, can poll it.
pub(crate) type Ack = Shared<BoxFuture<'static, Arc<Outcome>>>;

/// The channel that a call waits on.
pub(crate) type Reply = oneshot::Receiver<Result<Admitted, Error>>;

/// A call whose intent or attempt is acknowledged.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) call: InFlightCall,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    pub(crate) acked: AckedRecord,
    /// The epoch that the record was written in.
    pub(crate) epoch: Epoch,
    pub(crate) place: Place,
    /// The number of refused results when the record was sent.
    pub(crate) refusals: u64,
}

/// The intent, or the attempt, of a call.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) record: JournalRecord,
    /// Its `traceparent`.
    pub(crate) trace: Option<String>,
    /// The call's state after the acknowledgement.
    pub(crate) call: RecordedCall,
    pub(crate) attempt: u32,
    pub(crate) key: CallKey,
    pub(crate) tool: String,
    /// For an attempt: the pending call, which is restored unless the attempt is acknowledged.
    pub(crate) taken: Option<TakenCall>,
    pub(crate) slot: OwnedSemaphorePermit,
    /// Released when the record is acknowledged, or its call is cancelled.
    pub(crate) permit: SharedPermit,
    pub(crate) place: Place,
    pub(crate) reply: oneshot::Sender<Result<Admitted, Error>>,
}

impl Intent {
    fn id(&self) -> &RecordId {
        &self.record.body.record_id
    }

    fn fail(self, error: &Error) {
        self.permit.give_back();
        let error = error.clone().about_record(self.id().borrow());
        // A cancelled call has dropped its receiver.
        drop(self.reply.send(Err(error)));
    }

    /// Whether it may be appended with others. A payload in the content store needs its own receipt.
    fn goes_with_others(&self) -> bool {
        !matches!(self.record.payload, Payload::StoredPayload(_))
    }

    fn to_append(&self) -> ToAppend<'_> {
        ToAppend::new(&self.record, self.trace.as_deref())
    }
}

/// One append.
#[derive(Debug)]
struct Group {
    /// With the numbers that the intents were sent under.
    intents: Vec<Intent>,
    begun: SentAt,
    /// The offset of the run's last known record when the append was sent.
    sent_after: Offset,
    /// The number of refused results when the append was sent.
    refusals: u64,
    /// The results whose outcomes the append also requests.
    also: Vec<Position>,
    ack: Ack,
}

/// The intents of a handle whose calls still wait for them.
#[derive(Debug, Default)]
pub(crate) struct Intents {
    /// In the order of the calls.
    waiting: VecDeque<Intent>,
    in_flight: Option<Group>,
    /// How many of the first intents are appended one by one, after the server refused them all because of one.
    one_by_one: usize,
    /// Intents whose append was unknown, until reopening settles them.
    pub(crate) unknown: VecDeque<JournalRecord>,
}

impl Intents {
    pub(crate) fn push(&mut self, intent: Intent) {
        self.waiting.push_back(intent);
    }

    /// Drops cancelled intents that are not sent. Returns whether a cancelled intent is in flight. Once that one is
    /// acknowledged, its call is in the journal and counts as never started.
    pub(crate) fn forget_cancelled(&mut self) -> bool {
        self.waiting.retain(|intent| !intent.reply.is_closed());
        self.in_flight.iter().flat_map(|group| &group.intents).any(|intent| intent.reply.is_closed())
    }

    /// Whether an intent belongs to the call with this key.
    pub(crate) fn has_key(&self, key: &CallKey) -> bool {
        let sent = self.in_flight.iter().flat_map(|group| &group.intents);
        key.is_some() && self.waiting.iter().chain(sent).any(|intent| intent.key == *key)
    }

    /// Settles an acknowledged append, then sends waiting intents unless an append is in flight. Returns the append in
    /// flight. If there is none, an intent waits only because a result was refused and no operation has reported it.
    pub(crate) fn advance(&mut self, appender: &mut RunAppender, replay: &mut Replay) -> Option<Ack> {
        if let Some(group) = &self.in_flight {
            let Some(acked) = group.ack.peek().cloned() else { return Some(group.ack.clone()) };
            if let Some(group) = self.in_flight.take() {
                self.settle_group(group, &acked, appender, replay);
            }
        }
        self.send_waiting(appender)
    }

    /// Waits until no intent is in flight or waits for another intent.
    pub(crate) async fn drain(&mut self, appender: &mut RunAppender, replay: &mut Replay) {
        while let Some(ack) = self.advance(appender, replay) {
            // The next `advance` applies the outcome.
            drop(ack.await);
        }
    }

    fn send_waiting(&mut self, appender: &mut RunAppender) -> Option<Ack> {
        self.forget_cancelled();
        while let Some(error) = self.waiting.front().and_then(|intent| intent.place.failure())
            && let Some(intent) = self.waiting.pop_front()
        {
            self.one_by_one = self.one_by_one.saturating_sub(1);
            let error = not_started(intent.id(), &error).without_side_effect();
            intent.fail(&error);
        }
        if self.waiting.is_empty() {
            self.one_by_one = 0;
            return None;
        }
        if let Err(error) = appender.check_ready() {
            self.waiting.drain(..).for_each(|intent| intent.fail(&error));
            return None;
        }
        let refusals = {
            let results = &appender.client.shared.lock().results;
            if results.has_refused() {
                return None;
            }
            results.refusals()
        };
        let first = self.waiting.pop_front()?;
        Some(self.send_group(first, refusals, appender))
    }

    /// Sends an intent together with the waiting intents that may share its append.
    fn send_group(&mut self, first: Intent, refusals: u64, appender: &mut RunAppender) -> Ack {
        let client = &appender.client;
        let alone = self.one_by_one > 0 || !first.goes_with_others();
        self.one_by_one = self.one_by_one.saturating_sub(1);
        let (mut bytes, mut intents) = (first.permit.bytes(), vec![first]);
        while !alone
            && intents.len() < TOGETHER_MAX
            && let Some(next) = self.waiting.front()
            && next.goes_with_others()
            && bytes + next.permit.bytes() <= TOGETHER_BYTES_MAX
            && client.transport.go_together(intents[0].to_append(), next.to_append())
            // Two records with one id go apart, so that the second is recognised as a repeat of another call's record.
            && intents.iter().all(|intent| intent.id() != next.id())
        {
            bytes += next.permit.bytes();
            intents.extend(self.waiting.pop_front());
        }
        appender.numbers.number_all(intents.iter_mut().map(|intent| &mut intent.record), client.config.clock);
        intents.iter().for_each(|_| (client.config.failpoints)(failpoint::RECORD_NUMBERED));
        // A server answers `also` for one record only; with several, each call uses a read-back.
        let also = if intents.len() == 1 { client.unjudged() } else { Vec::new() };
        let ack = {
            let (transport, also) = (Arc::clone(&client.transport), also.clone());
            let records: Vec<_> = intents.iter().map(|intent| (intent.record.clone(), intent.trace.clone())).collect();
            async move {
                let all: Vec<_> =
                    records.iter().map(|(record, trace)| ToAppend::new(record, trace.as_deref())).collect();
                Arc::new(transport.append(&all, AppendAsk { until: AppendUntil::ReadBack, also: &also }).await)
            }
        };
        let (begun, sent_after, ack) = (SentAt::now(&client.config), appender.numbers.seen, ack.boxed().shared());
        self.in_flight = Some(Group { intents, begun, sent_after, refusals, also, ack: ack.clone() });
        // Starts the append now, not when a call is polled.
        drop(ack.clone().now_or_never());
        ack
    }

    /// Sends each call of an append its outcome.
    fn settle_group(&mut self, group: Group, acked: &Outcome, appender: &mut RunAppender, replay: &mut Replay) {
        let Group { intents, begun, sent_after, refusals, also, .. } = group;
        let appended = match acked {
            Ok(appended) => appended,
            Err(AppendFailed { error, untouched }) => {
                appender.client.config.count(metric::APPEND_FAILED);
                let is_of_one = error.action() == Action::FixTheInput || error.kind() == ErrorKind::ReconcileRequired;
                if *untouched && intents.len() > 1 && is_of_one {
                    // One of the intents caused the error. Nothing was appended.
                    self.one_by_one = intents.len();
                    intents.into_iter().rev().for_each(|intent| self.waiting.push_front(intent));
                } else if *untouched {
                    intents.into_iter().for_each(|intent| intent.fail(error));
                } else {
                    let error = appender.stop(error.clone()).with_side_effect(SideEffect::Unknown);
                    for intent in intents {
                        self.unknown.push_back(intent.record.clone());
                        intent.fail(&error);
                    }
                }
                return;
            }
        };
        let all_judged = {
            let results = &mut appender.client.shared.lock().results;
            if let Some(first) = appended.first() {
                results.apply_outcomes(&also, &first.also);
            }
            results.len() == 0
        };
        for (intent, appended) in intents.into_iter().zip(appended.iter().cloned()) {
            intent.permit.give_back();
            let record = intent.record.clone();
            let acked = match appender.acknowledged(record, appended, (begun, sent_after)) {
                Ok(acked) if acked.repeats_earlier => {
                    let error = not_own_intent(appender.client.id(), &acked, &acked.position);
                    Err(appender.stop(error).with_side_effect(SideEffect::Unknown))
                }
                acked => acked,
            };
            let mut acked = match acked {
                Ok(acked) => acked,
                Err(error) => {
                    intent.place.fail(&error);
                    intent.fail(&error);
                    continue;
                }
            };
            if !all_judged {
                // The answer lacks outcomes of earlier results, so a read-back fetches them before the effect runs.
                acked.read_back = None;
            }
            let Intent { call, attempt, key, tool, taken, slot, place, reply, .. } = intent;
            if let Some(taken) = taken {
                taken.keep();
            } else {
                let key = key.as_ref().map(|(_, key)| key.as_str());
                replay.add(acked.journal_seq, &tool, key, call.clone());
            }
            let by = (acked.record_id.clone(), acked.position.clone());
            let call = InFlightCall::admitted(appender.client.shared.clone(), call, key, by, slot);
            let epoch = appender.numbers.epoch;
            // A cancelled call is dropped here, and counts as never started.
            drop(reply.send(Ok(Admitted { call, attempt, acked, epoch, place, refusals })));
        }
    }
}
