//! `checkpoint`: the latest valid checkpoint of a run.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
};
use runlog_schemas::answer::Checkpoint;

pub(super) async fn run(session: &Session, args: args::Checkpoint) -> Result<Answer, Error> {
    let target = Target::run(&args.run.run)
        .path("/checkpoints/latest")
        .with_some("at_or_before", args.at_or_before)
        .with_some("as_of", args.as_of.position()?);
    // No checkpoint or no such run is `not_found`: exit code 1.
    let checkpoint: Checkpoint = session.read(target, &args.reading).await?;
    session.output.answer(&checkpoint, human)?;
    Ok(Answer::Yes)
}

fn human(checkpoint: &Checkpoint, text: &mut Text) {
    facts(checkpoint, text);
    let messages = checkpoint.messages.as_deref().unwrap_or_default();
    text.title(format!("{} messages", messages.len()));
    for message in messages {
        text.line([Cell::from(message.as_str())]);
    }
}

/// Prints a checkpoint without its messages.
pub(super) fn facts(checkpoint: &Checkpoint, text: &mut Text) {
    let unanswered = Some(checkpoint.unanswered.join(" ")).filter(|ids| !ids.is_empty());
    text.facts([
        ("checkpoint", Cell::from(&checkpoint.checkpoint_id)),
        ("number", checkpoint.checkpoint_seq.into()),
        ("covers", format!("journal_seq 1 to {}", checkpoint.covers_journal_seq).into()),
        ("unanswered", unanswered.into()),
        ("schema version", checkpoint.schema_version.into()),
        ("state", checkpoint.state.as_ref().map(|state| state.as_str()).into()),
        ("position", render::position(&checkpoint.position)),
    ]);
}
