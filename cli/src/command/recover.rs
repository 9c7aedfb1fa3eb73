//! `recover`: the state that a process needs to resume a run.

use super::checkpoint;
use crate::{
    args::{self, ReadOptions},
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
    value::Place,
};
use runlog_schemas::{
    answer::Recovery,
    id::{RecordId, RunId},
};
use std::collections::HashSet;

/// Largest page.
const PAGE_MAX: u32 = 1000;

pub(super) async fn run(session: &Session, args: args::Recover) -> Result<Answer, Error> {
    let recovery = read_all_pages(session, &args.run.run, args.full, args.as_of.position()?, &args.reading).await?;
    session.output.answer(&recovery, human)?;
    Ok(Answer::from_bool(recovery.resumable))
}

/// Reads all pages of a run's recovery and joins them. All pages show one snapshot, because a cursor is bound to its position.
pub(super) async fn read_all_pages(
    session: &Session,
    run_id: &RunId,
    full: bool,
    as_of: Option<Place>,
    reading: &ReadOptions,
) -> Result<Recovery, Error> {
    // For each page as of a position the server folds the run again, so use large pages.
    let limit = as_of.is_some().then_some(PAGE_MAX);
    let target = Target::run(run_id)
        .path("/recovery")
        .with_flag("full", full)
        .with_some("limit", limit)
        .with_some("as_of", as_of);
    let mut recovery: Recovery = session.read(target.clone(), reading).await?;
    while let Some(cursor) = recovery.next_cursor.take() {
        let next: Recovery = session.read(target.clone().with("cursor", &cursor), reading).await?;
        let moved = next.next_cursor.as_ref() != Some(&cursor);
        join(&mut recovery, next);
        if !moved {
            break;
        }
    }
    Ok(recovery)
}

/// Appends the next page. A completed call on both pages is kept once.
fn join(recovery: &mut Recovery, next: Recovery) {
    recovery.pending.extend(next.pending);
    recovery.approvals.extend(next.approvals);
    recovery.wakes.extend(next.wakes);
    recovery.messages.extend(next.messages);
    recovery.write_backs.extend(next.write_backs);
    let completed_ids: HashSet<RecordId> = recovery.completed.iter().map(|call| call.id.clone()).collect();
    recovery.completed.extend(next.completed.into_iter().filter(|call| !completed_ids.contains(&call.id)));
    recovery.unclaimed = recovery.completed.len() as u64;
    recovery.missing_content.extend(next.missing_content);
    recovery.resumable &= next.resumable;
    recovery.reason = recovery.reason.take().or(next.reason);
    recovery.next_cursor = next.next_cursor;
}

fn human(recovery: &Recovery, text: &mut Text) {
    let resumable = if recovery.resumable { "yes" } else { "no" };
    text.facts([
        ("run", Cell::from(&recovery.run_id).strong()),
        ("status", Cell::status(recovery.status.as_str())),
        ("resumable", Cell::status(resumable)),
        ("reason", recovery.reason.as_ref().into()),
        ("position", render::position(&recovery.position)),
        ("next journal_seq", recovery.next_journal_seq.into()),
        ("epoch", recovery.epoch.into()),
        ("records after checkpoint", recovery.records_after.into()),
        ("not requested again", recovery.unclaimed.into()),
        ("hash", Cell::from(recovery.hash.to_string()).dim()),
    ]);
    match &recovery.checkpoint {
        Some(latest) => {
            text.title("checkpoint".to_owned());
            checkpoint::facts(latest, text);
            for message in latest.messages.as_deref().unwrap_or_default() {
                text.line([Cell::from(message.as_str())]);
            }
        }
        None => text.title("no checkpoint: the run resumes from its beginning".to_owned()),
    }
    text.title(format!("{} pending", recovery.pending.len()));
    text.list(&recovery.pending, "no pending calls")
        .column("TOOL", |call| &call.tool_name)
        .column("N", |call| call.occurrence)
        .column("STATE", |call| call.state.as_ref().map(|state| Cell::status(state.as_str())))
        .column("CLASS", |call| Cell::status(call.class.as_str()))
        .column("EVIDENCE", |call| call.evidence.len() as u64)
        .column("WHY", |call| &call.reason)
        .column("ID", |call| &call.id)
        .print();
    for call in recovery.pending.iter().filter(|call| !call.evidence.is_empty()) {
        text.title(format!("evidence of {}", call.id));
        render::evidence(&call.evidence, call.evidence_dropped, text);
    }
    text.title(format!("{} completed after the checkpoint", recovery.completed.len()));
    text.list(&recovery.completed, "none")
        .column("TOOL", |call| &call.tool_name)
        .column("N", |call| call.occurrence)
        .column("STATUS", |call| Cell::status(call.status.as_str()))
        .column("POSITION", |call| render::position(&call.position))
        .column("FINGERPRINT", |call| Cell::from(&call.fingerprint).dim())
        .print();
    for (name, open) in [
        ("undecided approvals", &recovery.approvals),
        ("pending wake conditions", &recovery.wakes),
        ("undelivered messages", &recovery.messages),
        ("staged write-backs", &recovery.write_backs),
    ] {
        if !open.is_empty() {
            text.title(format!("{} {name}", open.len()));
            text.list(open, "none")
                .column("ID", |item| &item.id)
                .column("STATUS", |item| Cell::status(item.status.as_str()))
                .column("SINCE", |item| render::position(&item.since))
                .column("RECORD", |item| &item.record_id)
                .print();
        }
    }
    render::missing(&recovery.missing_content, text);
}
