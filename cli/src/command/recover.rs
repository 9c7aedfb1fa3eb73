//! `recover`: all that a process needs to go on with a run.

use super::{Answer, Session, checkpoint};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{Done, Pending, Recovery, Standing},
    id::RecordId,
};
use std::collections::HashSet;

/// What a page has at the most.
const PAGE_MAX: u32 = 1000;

pub(super) async fn run(session: &Session, args: args::Recover) -> Result<Answer, Error> {
    let as_of = args.as_of.position()?;
    // Each page as of a position folds the run again.
    let limit = as_of.is_some().then_some(PAGE_MAX);
    let target = Target::run(&args.of.run)
        .path("/recovery")
        .with_flag("full", args.full)
        .with_some("limit", limit)
        .with_some("as_of", as_of);
    let mut recovery: Recovery = session.read(target.clone(), &args.reading).await?;
    // A cursor is bound to its position: all pages are of the same snapshot.
    while let Some(cursor) = recovery.next_cursor.take() {
        let next: Recovery = session.read(target.clone().with("cursor", &cursor), &args.reading).await?;
        let moved = next.next_cursor.as_ref() != Some(&cursor);
        join(&mut recovery, next);
        if !moved {
            break;
        }
    }
    session.output.answer(&recovery, human)?;
    Ok(Answer::from_bool(recovery.resumable))
}

/// Adds the next page: of each list what it has, of completed calls each once.
fn join(recovery: &mut Recovery, next: Recovery) {
    recovery.pending.extend(next.pending);
    recovery.approvals.extend(next.approvals);
    recovery.wakes.extend(next.wakes);
    recovery.messages.extend(next.messages);
    recovery.write_backs.extend(next.write_backs);
    let known: HashSet<RecordId> = recovery.completed.iter().map(|call| call.id.clone()).collect();
    recovery.completed.extend(next.completed.into_iter().filter(|call| !known.contains(&call.id)));
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
        ("status", Cell::word(&recovery.status)),
        ("resumable", Cell::word(resumable)),
        ("reason", recovery.reason.as_ref().into()),
        ("position", super::place(&recovery.position)),
        ("next journal_seq", recovery.next_journal_seq.into()),
        ("epoch", recovery.epoch.into()),
        ("records behind", recovery.records_after.into()),
        ("unclaimed", recovery.unclaimed.into()),
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
        None => text.title("no checkpoint: it starts at the beginning".to_owned()),
    }
    text.title(format!("{} pending", recovery.pending.len()));
    let rows = recovery.pending.iter().map(pending).collect();
    text.table(["TOOL", "N", "CLASS", "EVIDENCE", "WHY", "ID"], rows, "nothing is left open");
    text.title(format!("{} ended and not covered", recovery.completed.len()));
    let rows = recovery.completed.iter().map(done).collect();
    text.table(["TOOL", "N", "STATUS", "POSITION", "FINGERPRINT"], rows, "none");
    for (name, open) in [
        ("approvals not decided", &recovery.approvals),
        ("wakes waited for", &recovery.wakes),
        ("messages not delivered", &recovery.messages),
        ("write-backs staged", &recovery.write_backs),
    ] {
        if !open.is_empty() {
            text.title(format!("{} {name}", open.len()));
            text.table(["ID", "STATUS", "SINCE", "RECORD"], open.iter().map(standing).collect(), "none");
        }
    }
    super::missing(&recovery.missing_content, text);
}

fn standing(open: &Standing) -> [Cell; 4] {
    [Cell::from(&open.id), Cell::word(&open.status), super::place(&open.since), Cell::from(&open.record_id)]
}

fn pending(call: &Pending) -> [Cell; 6] {
    [
        Cell::from(&call.tool_name),
        call.occurrence.into(),
        Cell::word(&call.class),
        (call.evidence.len() as u64).into(),
        Cell::from(&call.reason),
        Cell::from(&call.id),
    ]
}

fn done(call: &Done) -> [Cell; 5] {
    [
        Cell::from(&call.tool_name),
        call.occurrence.into(),
        Cell::word(&call.status),
        super::place(&call.position),
        Cell::from(&call.fingerprint).dim(),
    ]
}
