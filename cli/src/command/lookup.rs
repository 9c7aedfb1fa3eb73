//! `lookup`: what is known of one tool call.

use super::{Answer, Session};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
    value,
};
use runlog_schemas::{answer::Lookup, canonical, id::Fingerprint};

/// Arguments beyond this are asked for by their fingerprint: a URL holds 64 KiB, and encoding can make three of one.
const ARGS_BYTES_MAX: usize = 16 << 10;

pub(super) async fn run(session: &Session, args: args::Lookup) -> Result<Answer, Error> {
    let arguments = value::arguments("--args", &args.args)?;
    let call = Target::run(&args.of.run).path("/lookup").with("tool", &args.tool);
    let call = if arguments.len() <= ARGS_BYTES_MAX {
        call.with("args", &arguments)
    } else {
        call.with("fingerprint", Fingerprint::of(&args.tool, &canonical::args_sha256(&arguments)))
    };
    let target = call.with_some("occurrence", args.occurrence).with_some("as_of", args.as_of.position()?);
    let found: Lookup = session.read(target, &args.reading).await?;
    session.output.answer(&found, human)?;
    Ok(answer(&found.status))
}

/// A call that has not ended may or may not have happened: nobody can build on it.
fn answer(status: &str) -> Answer {
    Answer::from_bool(matches!(status, "completed" | "failed"))
}

fn human(found: &Lookup, text: &mut Text) {
    let occurrence = found.occurrence.map(|occurrence| format!("{occurrence} of {}", found.occurrences));
    let error = found.error.as_ref().map(|error| Cell::from(format!("{}: {}", error.kind, error.message)).bad());
    text.facts([
        ("status", Cell::word(&found.status)),
        ("tool", found.tool_name.as_ref().into()),
        ("arguments", found.arguments.as_ref().map(|arguments| arguments.as_str()).into()),
        ("result", found.result.as_ref().map(|result| result.as_str()).into()),
        ("error", error.into()),
        ("occurrence", occurrence.into()),
        ("fingerprint", Cell::from(&found.fingerprint)),
        ("position", found.position.as_ref().map(super::place).into()),
    ]);
    super::missing(&found.missing_content, text);
    super::dropped(&found.dropped, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_ended_is_a_yes() {
        for (status, expected) in
            [("completed", Answer::Yes), ("failed", Answer::Yes), ("pending", Answer::No), ("unknown", Answer::No)]
        {
            assert_eq!(answer(status), expected, "{status}");
        }
    }
}
