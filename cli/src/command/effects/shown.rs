//! The state of an effect that an operator decides about: read, shown before the question, and compared with a later
//! state.
//!
//! ```text
//!   recovery of the run, at latest ─▶ class, evidence, basis ─────────┐
//!   list of effects, at least there ─▶ arguments, start, run ─▶ same basis? ─▶ Shown
//! ```

use super::super::{pages, recover};
use crate::{
    args::{self, Deadline, ReadOptions},
    client::Target,
    error::Error,
    render,
    session::Session,
    text::{Cell, Text},
    value::{Consistency, LogPosition, Place},
};
use runlog_schemas::{
    answer::{
        Effect, EffectRun, Effects, ErrorKind, Evidence, Feature, Journal, Pending, PendingState, Position,
        ProblemReason, Runs,
    },
    json::Json,
};

/// Reads of an effect that changes between the recovery and the list.
const READS_MAX: u32 = 3;
/// Effects per page of the list.
const PAGE: u32 = 1000;
/// Number of characters of the arguments.
const ARGUMENTS_CHARS_MAX: usize = 4000;
/// Age of a run's last record after which a new one is news, milliseconds. A busy run writes during each prompt.
const QUIET_MILLIS: u64 = 30_000;

/// A pending effect as the operator sees it.
pub(super) struct Shown {
    pub(super) pending: Pending,
    /// `None` with `--yes`, from an older server, and without the scope for the list.
    details: Option<Effect>,
}

/// Reads the current state of the effect to decide about, or `None` if it is not pending.
pub(super) async fn read(session: &Session, args: &args::Resolve, journal: &Journal) -> Result<Option<Shown>, Error> {
    let mut reads = 1;
    loop {
        let Some((pending, last)) = pending(session, args).await? else { return Ok(None) };
        let details = if args.consent.yes || !journal.has(Feature::EffectFacts) {
            None
        } else {
            details(session, args, &pending, last, journal).await?
        };
        let is_same = details.as_ref().is_none_or(|details| details.pending.basis == pending.basis);
        if is_same || reads == READS_MAX {
            return Ok(Some(Shown { pending, details: details.filter(|_| is_same) }));
        }
        reads += 1;
    }
}

/// Returns the effect in the run's recovery, with the run's last record.
async fn pending(session: &Session, args: &args::Resolve) -> Result<Option<(Pending, Place)>, Error> {
    let reading =
        ReadOptions { consistency: Some(Consistency::Latest), wait: Deadline { deadline: args.wait.deadline } };
    let run_id = &args.run.run;
    let recovery = match recover::read_all_pages(session, run_id, false, None, &reading).await {
        // The current state is for agents. Operators decide by the state as of the run's last record.
        Err(error) if error.reason() == Some(ProblemReason::Doubt.as_str()) => {
            let target = Target::new("/v1/runs").with("prefix", run_id).with_flag("in_doubt", true).with("limit", 1);
            let Runs { runs, .. } = session.read(target, &reading).await?;
            let Some(run) = runs.into_iter().find(|run| run.run_id == *run_id) else { return Err(error) };
            recover::read_all_pages(session, run_id, false, Some(place_of(run.position)), &reading).await?
        }
        read => read?,
    };
    let is_named =
        |effect: &Pending| effect.id == args.id && args.kind.is_none_or(|kind| effect.kind.as_str() == kind.as_str());
    let mut named: Vec<_> = recovery.pending.into_iter().filter(is_named).collect();
    if named.len() > 1 {
        let kinds: Vec<_> = named.iter().map(|effect| effect.kind.as_str()).collect();
        let (id, kinds) = (&args.id, kinds.join(", "));
        let message =
            format!("run {run_id} has several pending effects with the id {id}: add --kind with one of {kinds}");
        return Err(Error::usage(message));
    }
    Ok(named.pop().map(|pending| (pending, place_of(recovery.position))))
}

fn place_of(Position { partition, offset, log, .. }: Position) -> Place {
    Place { position: LogPosition { partition, offset }, log }
}

/// Returns the effect in the list of effects, read at the run's record `last` or later. Stopped partitions of other runs do
/// not matter.
async fn details(
    session: &Session,
    args: &args::Resolve,
    pending: &Pending,
    last: Place,
    journal: &Journal,
) -> Result<Option<Effect>, Error> {
    let (run_id, tool) = (&args.run.run, journal.has(Feature::Filters).then_some(&pending.tool_name));
    let target = Target::new("/v1/effects")
        .with_flag("pending", true)
        .with("prefix", run_id)
        .with_some("tool", tool)
        .with("limit", PAGE);
    let reading =
        ReadOptions { consistency: Some(Consistency::AtLeast(last)), wait: Deadline { deadline: args.wait.deadline } };
    let mut listed: Option<Effect> = None;
    let visited = pages::visit_pages(async |cursor| {
        let page: Effects = session.read(target.clone().with_some("cursor", cursor), &reading).await?;
        listed = page.effects.into_iter().find(|effect| {
            let listed = &effect.pending;
            effect.run_id == *run_id && listed.kind == pending.kind && listed.id == pending.id
        });
        Ok(page.next_cursor.filter(|_| listed.is_none()))
    });
    match visited.await {
        // A partition of other runs can be rebuilding.
        Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Stale | ErrorKind::Unavailable) => {
            Ok(None)
        }
        visited => visited.map(|()| listed),
    }
}

impl Shown {
    /// Prints the effect with its evidence.
    pub(super) fn print(&self, text: &mut Text) {
        let Self { pending, details } = self;
        let mut facts = vec![
            ("tool", Cell::from(&pending.tool_name)),
            ("state", pending.state.as_ref().map(|state| Cell::status(state.as_str())).into()),
            ("class", Cell::status(pending.class.as_str())),
            ("why", Cell::from(&pending.reason)),
            ("attempts", pending.attempts.into()),
            ("idempotency key", pending.idempotency_key.as_ref().or(pending.dedupe_key.as_ref()).into()),
        ];
        facts.extend(details.iter().flat_map(process_facts));
        text.facts(facts);
        if pending.evidence.is_empty() {
            text.line([Cell::from("no evidence").dim()]);
        }
        render::evidence(&pending.evidence, pending.evidence_dropped, text);
    }
}

/// Returns the facts about the process that started the effect last, and about the run.
fn process_facts(effect: &Effect) -> Vec<(&'static str, Cell)> {
    let ago =
        |millis: Option<u64>| millis.map_or("unknown".into(), |millis| format!("{} ago", render::age_text(millis)));
    let arguments = effect.arguments.as_ref().map(Json::as_str);
    let mut facts = vec![
        ("arguments", Cell::from(arguments).clip(ARGUMENTS_CHARS_MAX)),
        ("started at", effect.since.as_ref().into()),
        ("started", ago(effect.age_millis).into()),
        ("agent", effect.agent_id.as_ref().into()),
        ("writer", effect.writer_id.as_ref().into()),
        ("epoch", effect.epoch.into()),
    ];
    if let Some(run) = &effect.run {
        facts.extend([
            ("run", Cell::status(run.status.as_str())),
            ("run's writer", Cell::from(&run.writer_id)),
            ("claimed by", run.claimed_by.as_ref().into()),
            ("run's epoch", run.epoch.into()),
            ("last record", ago(run.age_millis).into()),
        ]);
    }
    facts
}

/// Returns the changes of an effect since it was shown, none if it is not pending any more: the server refuses that decision.
pub(super) fn changes(shown: Option<&Shown>, now: Option<&Shown>) -> Vec<String> {
    let (shown, now) = match (shown, now) {
        (_, None) => return Vec::new(),
        (None, Some(_)) => return vec!["the effect is pending now".into()],
        (Some(shown), Some(now)) => (shown, now),
    };
    let mut changes = effect_changes(&shown.pending, &now.pending);
    if let (Some(shown), Some(now)) = (&shown.details, &now.details) {
        changes.extend(process_changes(shown, now));
    }
    changes
}

/// Returns the changes that records about the effect made.
fn effect_changes(shown: &Pending, now: &Pending) -> Vec<String> {
    if (shown.revision, shown.basis) == (now.revision, now.basis) {
        return Vec::new();
    }
    let mut changes = Vec::new();
    if shown.revision != now.revision {
        changes.push(format!("revision: {}, was {}", now.revision, shown.revision));
    }
    if shown.attempts != now.attempts {
        changes.push(format!("attempts: {}, was {}", now.attempts, shown.attempts));
    }
    if (&shown.class, &shown.reason) != (&now.class, &now.reason) {
        changes.push(format!("class: {} ({}), was {} ({})", now.class, now.reason, shown.class, shown.reason));
    }
    let was_shown = |evidence: &Evidence| {
        let same = |shown: &Evidence| shown.record_id == evidence.record_id && shown.position == evidence.position;
        shown.evidence.iter().any(same)
    };
    let new = now.evidence.iter().filter(|evidence| !was_shown(evidence));
    changes.extend(new.map(|evidence| format!("new evidence: {}, record {}", evidence.status, evidence.record_id)));
    if changes.is_empty() {
        changes.push("a new record about it: read the effect again".into());
    }
    changes
}

/// Returns the changes of the run and of its process. They leave the effect's basis unchanged, so the server accepts the
/// decision.
fn process_changes(shown: &Effect, now: &Effect) -> Vec<String> {
    let mut changes = Vec::new();
    let is_running =
        |effect: &Effect| effect.pending.state.as_ref().is_some_and(|state| *state == PendingState::Running);
    if is_running(now) && !is_running(shown) {
        changes.push("state: running, was waiting".into());
    }
    if shown.arguments != now.arguments {
        changes.push("arguments: their content was deleted or masked".into());
    }
    let (Some(shown), Some(now)) = (&shown.run, &now.run) else { return changes };
    let holder = |run: &EffectRun| (run.status.clone(), run.epoch, run.writer_id.clone());
    if holder(shown) != holder(now) {
        let named =
            |run: &EffectRun| format!("{} in epoch {} of writer {:?}", run.status, run.epoch, run.writer_id.as_str());
        changes.push(format!("run: {}, was {}", named(now), named(shown)));
    } else if let (Some(before), Some(after)) = (shown.age_millis, now.age_millis)
        && before > QUIET_MILLIS
        && after < before
    {
        let (before, after) = (render::age_text(before), render::age_text(after));
        changes.push(format!("last record of the run: {after} ago, was {before} ago"));
    }
    changes
}
