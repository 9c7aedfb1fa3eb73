//! `lookup`: the state of one tool call in the journal.

use super::recover;
use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
    value,
};
use runlog_schemas::{
    answer::{Class, Evidence, Lookup, LookupStatus, OrOther, Pending},
    id::RecordId,
};
use serde::Serialize;

/// Longest arguments in a URL, bytes. Longer arguments are replaced by their fingerprint: a URL holds 64 KiB, and
/// encoding can triple the length.
const ARGS_BYTES_MAX: usize = 16 << 10;

/// The answer. For a pending call it also contains the request.
#[derive(Debug, Serialize)]
struct LookupAnswer {
    #[serde(flatten)]
    call: Lookup,
    #[serde(flatten)]
    request: Option<Request>,
}

/// The request of a pending call, and whether it may run again.
#[derive(Debug, Serialize)]
struct Request {
    id: RecordId,
    class: OrOther<Class>,
    reason: String,
    evidence: Vec<Evidence>,
    evidence_dropped: u64,
    idempotency_key: Option<String>,
}

impl From<Pending> for Request {
    fn from(pending: Pending) -> Self {
        let Pending { id, class, reason, evidence, evidence_dropped, idempotency_key, .. } = pending;
        Self { id, class, reason, evidence, evidence_dropped, idempotency_key }
    }
}

pub(super) async fn run(session: &Session, args: args::Lookup) -> Result<Answer, Error> {
    let arguments = value::arguments("--args", &args.args)?;
    let as_of = args.as_of.position()?;
    let target = Target::run(&args.run.run).path("/lookup").with("tool", &args.tool);
    let target = if arguments.len() <= ARGS_BYTES_MAX {
        target.with("args", &arguments)
    } else {
        target.with("fingerprint", value::fingerprint("--args", &args.tool, &arguments)?)
    };
    let target = target.with_some("occurrence", args.occurrence).with_some("as_of", as_of.as_ref());
    let call: Lookup = session.read(target, &args.reading).await?;
    let answer = answer(&call.status);
    let request = if answer == Answer::Pending {
        let pending = recover::read_all_pages(session, &args.run.run, false, as_of, &args.reading).await?.pending;
        let same = |pending: &Pending| {
            pending.fingerprint.as_ref() == Some(&call.fingerprint) && Some(pending.occurrence) == call.occurrence
        };
        pending.into_iter().find(same).map(Request::from)
    } else {
        None
    };
    session.output.answer(&LookupAnswer { call, request }, human)?;
    Ok(answer)
}

/// Maps the status to an exit code. A status that this build does not know counts as pending: the call may have happened.
fn answer(status: &OrOther<LookupStatus>) -> Answer {
    match status {
        OrOther::Known(LookupStatus::Completed | LookupStatus::Failed) => Answer::Yes,
        OrOther::Known(LookupStatus::Unknown) => Answer::No,
        OrOther::Known(LookupStatus::Pending) | OrOther::Other(_) => Answer::Pending,
    }
}

fn human(found: &LookupAnswer, text: &mut Text) {
    let LookupAnswer { call, request } = found;
    let occurrence = call.occurrence.map(|occurrence| format!("{occurrence} of {}", call.occurrences));
    let error = call.error.as_ref().map(|error| Cell::from(format!("{}: {}", error.kind, error.message)).bad());
    let facts = [
        ("status", Cell::status(call.status.as_str())),
        ("tool", call.tool_name.as_ref().into()),
        ("arguments", call.arguments.as_ref().map(|arguments| arguments.as_str()).into()),
        ("result", call.result.as_ref().map(|result| result.as_str()).into()),
        ("error", error.into()),
        ("occurrence", occurrence.into()),
        ("fingerprint", Cell::from(&call.fingerprint)),
        ("position", call.position.as_ref().map(render::position).into()),
    ];
    match request {
        None => text.facts(facts),
        Some(Request { id, class, reason, evidence, evidence_dropped, .. }) => {
            text.facts(facts.into_iter().chain([
                ("request id", Cell::from(id).strong()),
                ("class", Cell::status(class.as_str())),
                ("why", reason.into()),
                ("evidence", (evidence.len() as u64).into()),
            ]));
            render::evidence(evidence, *evidence_dropped, text);
        }
    }
    if call.contradicted {
        let what = "a later result contradicts this: see `runlog effects --contradicted`";
        text.line([Cell::from(what).warn()]);
    }
    render::missing(&call.missing_content, text);
    render::dropped(&call.dropped, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_and_unknown_have_exit_codes_of_their_own() {
        for (status, code) in
            [("completed", 0), ("failed", 0), ("pending", 6), ("unknown", 1), ("of a newer server", 6)]
        {
            assert_eq!(answer(&OrOther::of(status)).exit_code(), code, "{status}");
        }
    }
}
