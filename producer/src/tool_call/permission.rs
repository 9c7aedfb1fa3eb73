//! Decides whether the effect of an acknowledged intent may run.
//!
//! It may if the intent was applied, its call has not changed since, **and** this handle still writes the run. All come from one view
//! at `latest` after the acknowledgement.

use super::call_spec::CallSpec;
use crate::{
    config::failpoint,
    error::{Error, SideEffect},
    metrics::metric,
    session::{
        in_flight::InFlightCall,
        outcome::{
            AckedRecord, has_changed, is_of_another_epoch, not_own_intent, repeats_earlier, sent_too_long_ago,
            taken_over, too_late,
        },
        sent_at::{START_WITHIN, SentAt},
        shared::{Place, earlier_late, not_started},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, ReadBack},
    id::{Epoch, RecordId},
    judge::Class,
};
use tokio::time::{timeout, timeout_at};

/// Whether the effect of an acknowledged intent may run.
enum Permission {
    /// It may run: the read-back, and when that was requested.
    Granted(Box<ReadBack>, SentAt),
    /// It must not run, and the handle stops with this error.
    Denied(Error),
    /// It must not run, but the handle need not stop: another call failed first, the call has changed, or the run's writer could not be
    /// determined.
    NotStarted(Error),
}

/// Waits until the effect of an acknowledged intent may run. Fails if a result was refused after the intent was sent;
/// `refusals` is the count at that time.
pub(super) async fn permit_effect(
    spec: &CallSpec<'_>,
    mut in_flight: InFlightCall,
    mut acked: AckedRecord,
    epoch: Epoch,
    refusals: u64,
    place: &Place,
) -> Result<InFlightCall, Error> {
    let (session, client) = (spec.session, &spec.session.client);
    let unknown = |error: Error| error.with_side_effect(SideEffect::Unknown);
    match wait_for_permission(spec, &mut in_flight, &mut acked, epoch, place).await {
        Permission::Granted(..) => {}
        Permission::NotStarted(error) => return Err(unknown(error)),
        Permission::Denied(error) => {
            // Calls that fail because of this one get the error with which the handle stops.
            let error = if error.kind() == ErrorKind::Fenced { error } else { error.stopping() };
            // Fails the place before waiting for the lock, since the call may be cancelled there.
            place.fail(&error);
            let stopped = session.lock().await.map(|mut state| {
                // Fails the calls whose intents were sent meanwhile, too.
                place.fail_later(&error);
                state.appender.stop_or_lose(error.clone())
            });
            return Err(unknown(stopped.unwrap_or(error)));
        }
    }
    let is_refused = client.shared.lock().results.refusals() != refusals;
    if is_refused {
        // The effect does not run, even if another operation reports the refusal: the permission expires meanwhile.
        let mut guard = session.lock().await.map_err(unknown)?;
        guard.appender.check_results().and_then(|()| guard.appender.check_ready()).map_err(unknown)?;
        return Err(unknown(too_late(client.id(), &acked, client.config.read_back)));
    }
    Ok(in_flight)
}

/// Reads an acknowledged intent back until its effect may run now, and waits for the verdicts on earlier calls.
async fn wait_for_permission(
    spec: &CallSpec<'_>,
    in_flight: &mut InFlightCall,
    acked: &mut AckedRecord,
    epoch: Epoch,
    place: &Place,
) -> Permission {
    let client = &spec.session.client;
    let config = &client.config;
    loop {
        // Asks before it fetches the permission, which must be used while it is fresh.
        if let Err(error) = client.ask_by_id().await {
            return Permission::NotStarted(error);
        }
        if let Err(error) = client.ask_if_many().await {
            return Permission::NotStarted(error);
        }
        let (answer, requested_at) = match check_may_run(spec, acked, epoch).await {
            Permission::Granted(answer, requested_at) => (answer, requested_at),
            Permission::Denied(error) if error.kind() == ErrorKind::Stale => {
                // Another call waited too long for this unpolled call and stopped the handle, which may be ready again.
                return match place.failure() {
                    Some(other) => Permission::NotStarted(not_started(in_flight.id(), &other)),
                    None => Permission::Denied(error),
                };
            }
            refused => return refused,
        };
        let outcome = &answer.outcome;
        if repeats_earlier(outcome, acked.sent_after) || is_of_another_epoch(outcome, epoch) {
            // The outcome belongs to another call's record, so it says nothing about this call's effect.
            in_flight.disown();
            return Permission::Denied(not_own_intent(client.id(), acked, &outcome.position));
        }
        if answer.changed {
            return Permission::NotStarted(changed(spec, in_flight.id(), acked).await);
        }
        // Bounded, because an earlier call may never be polled.
        match timeout(config.read_back, place.earlier_failed()).await {
            Ok(None) => {}
            Ok(Some(error)) => return Permission::NotStarted(not_started(in_flight.id(), &error)),
            Err(_) => {
                let error = earlier_late(in_flight.id(), config.read_back);
                place.fail_with_earlier(&error);
                return Permission::Denied(error);
            }
        }
        if acked.sent_at.age() > START_WITHIN {
            return Permission::Denied(sent_too_long_ago(client.id(), acked));
        }
        let is_fresh = requested_at.age() <= config.read_back;
        if is_fresh && client.shared.lock().results.next_by_id().is_none() {
            return Permission::Granted(answer, requested_at);
        }
        // The permission expired during an earlier call's read-back.
        acked.read_back = None;
    }
}

/// Makes the error of a call that has changed since its intent or attempt: a result arrived, or somebody decided about it.
async fn changed(spec: &CallSpec<'_>, call: &RecordId, acked: &AckedRecord) -> Error {
    let client = &spec.session.client;
    let now = match client.pending_recovery().await {
        Ok(now) => now,
        Err(error) => return error,
    };
    match now.pending.iter().find(|pending| pending.id == *call) {
        Some(pending) if pending.class != Class::RetrySafe => spec.pending(call, &pending.reason),
        _ => has_changed(client.id(), &spec.name, call, acked),
    }
}

/// Whether the effect of an intent, acknowledged in `epoch`, may run: the intent was applied, **and** this handle
/// still writes the run. Both come from one view at `latest` after the acknowledgement.
///
/// After another process claims the run, the intent stays applied, but its effect belongs to that process. A claim
/// of this handle, which was reopened meanwhile, does not change that. Whose claim it was is known after a
/// reopening in progress has ended. An answer past its deadline by that time is too old, since another process may
/// have claimed the run.
///
/// A read-back that came with the acknowledgement counts from when the intent was sent.
async fn check_may_run(spec: &CallSpec<'_>, acked: &AckedRecord, epoch: Epoch) -> Permission {
    let (session, client) = (spec.session, &spec.session.client);
    let (config, deadline) = (&client.config, client.config.read_back);
    if acked.read_back.is_some() {
        (config.failpoints)(failpoint::READ_BACK_ANSWERED);
        config.observe(metric::READ_BACK_SECONDS, acked.sent_at.instant);
    }
    let (answer, requested_at) = match acked.read_back.clone().filter(|_| acked.sent_at.age() <= deadline) {
        Some(answer) => (answer, acked.sent_at),
        None => {
            let requested_at = SentAt::now(config);
            match client.read_back(acked).await {
                Ok(answer) => (answer, requested_at),
                Err(error) => return Permission::Denied(error),
            }
        }
    };
    if answer.epoch == epoch {
        return Permission::Granted(Box::new(answer), requested_at);
    }
    let lock = timeout_at(requested_at.instant + deadline, session.lock()).await;
    match lock.map(|guard| guard.map(|guard| guard.appender.is_writer_since(epoch, &answer))) {
        Ok(Ok(true)) if requested_at.age() <= deadline => Permission::Granted(Box::new(answer), requested_at),
        Ok(Ok(false)) => Permission::Denied(taken_over(client.id(), acked, &answer)),
        Ok(Err(error)) => Permission::NotStarted(error),
        _ => Permission::Denied(too_late(client.id(), acked, deadline)),
    }
}
