//! `dead-letter`: records that could not be read, and skipping a record.

use super::{confirm::confirm, pages};
use crate::{
    args,
    client::{self, Target},
    error::Error,
    exit::Answer,
    render,
    session::{APPEND_WAIT, Session},
    text::{Cell, Text},
    value::LogPosition,
};
use runlog_schemas::{
    answer::{DeadLetters, ErrorKind, Feature, OrOther, Outcome, Position, SkipPlan, SkipTarget},
    id::{Offset, PartitionId},
    payload::PayloadType,
};
use serde::{Deserialize, Serialize};

pub(super) async fn list(session: &Session, args: args::DeadLetterList) -> Result<Answer, Error> {
    let target = Target::new("/v1/dead-letters");
    let list: DeadLetters = pages::get(session, target, &args.page, &args.reading).await?;
    session.output.answer(&list, |list, text| {
        text.list(&list.records, "every record could be read")
            .column("POSITION", |letter| render::position(&letter.position))
            .column("REASON", |letter| Cell::from(letter.reason.as_str()).bad())
            .column("BYTES", |letter| letter.bytes)
            .column("SHA256", |letter| &letter.sha256)
            .print();
        pages::print_rest(list, text);
    })?;
    Ok(Answer::Yes)
}

/// A dead letter and its first bytes.
#[derive(Debug, Deserialize, Serialize)]
struct Letter {
    position: Position,
    reason: String,
    sha256: String,
    bytes: u64,
    /// The reason why it could not be read.
    #[serde(default)]
    detail: Option<String>,
    /// The first bytes, at most 4096, hexadecimal.
    #[serde(default)]
    hex: String,
    /// The retention horizon that deleted the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<Position>,
}

pub(super) async fn show(session: &Session, args: args::DeadLetterShow) -> Result<Answer, Error> {
    let letter: Letter = session.read(letter_target(args.position), &args.reading).await?;
    session.output.answer(&letter, human)?;
    Ok(Answer::Yes)
}

fn letter_target(position: LogPosition) -> Target {
    Target::new("/v1/dead-letters").segment(position.to_string())
}

fn facts(letter: &Letter, text: &mut Text) {
    text.facts([
        ("position", render::position(&letter.position)),
        ("reason", Cell::from(&letter.reason).bad()),
        ("detail", letter.detail.as_ref().into()),
        ("bytes", letter.bytes.into()),
        ("sha256", Cell::from(&letter.sha256)),
    ]);
}

fn human(letter: &Letter, text: &mut Text) {
    facts(letter, text);
    if let Some(horizon) = &letter.dropped {
        let Position { partition, offset, .. } = horizon;
        text.facts([("dropped", format!("by the retention horizon at {partition}:{offset}").into())]);
        return;
    }
    text.title("first bytes".to_owned());
    for (index, digits) in letter.hex.as_bytes().chunks(32).enumerate() {
        let pairs: Vec<&str> = digits.chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok()).collect();
        let shown = pairs.iter().map(|pair| u8::from_str_radix(pair, 16).unwrap_or(0));
        let shown = shown.map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' });
        let shown: String = shown.collect();
        let address = format!("{:06x}", index * 16);
        text.columns([(6, Cell::from(address).dim()), (47, pairs.join(" ").into()), (0, shown.into())]);
    }
}

/// The body of a skip.
#[derive(Debug, Serialize)]
pub(super) struct Skip<'a> {
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
    pub(super) who: &'a str,
    pub(super) why: &'a str,
    /// The plan that the operator saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<&'a SkipPlan>,
}

pub(super) async fn skip(session: &Session, args: args::DeadLetterSkip) -> Result<Answer, Error> {
    let (wait, position) = (session.wait(&args.wait, APPEND_WAIT), args.position);
    let args::Attribution { who, why } = &args.attribution;
    let skip = Skip { partition: position.partition, offset: position.offset, who, why, plan: None };
    let target = || Target::new("/v1/skips");
    let journal = session.needs(&[Feature::DryRun, Feature::Force], wait).await?;
    let dry_run = target().with_flag("dry_run", true).with_flag("force", args.force);
    let plan: SkipPlan = session.client.post(dry_run, client::body(&skip)?, wait).await?;
    if args.dry_run {
        session.output.answer(&plan, skip_plan)?;
        return Ok(Answer::Yes);
    }
    let skippable = [SkipTarget::Unreadable, SkipTarget::Stop].iter().any(|target| plan.target == *target);
    if !skippable && !args.force {
        let what = format!(
            "{position} is not a dead letter, and no partition stopped there: a skip would void a record that can be read. \
             Nothing happened. `runlog dead-letter list` and `runlog doctor` list the records that can be skipped; \
             --force skips this record anyway"
        );
        return Err(Error::new(ErrorKind::Invalid, what).with("position", position.to_string()));
    }
    confirm(args.consent, &format!("skip {position}"), |text| skip_plan(&plan, text))?;
    // The partition can continue while the operator reads the plan.
    let body = client::body(&Skip { plan: journal.has(Feature::SkipPlans).then_some(&plan), ..skip })?;
    let outcome: Outcome = session.client.post(target().with_flag("force", args.force), body, wait).await?;
    session.output.answer(&outcome, render::outcome)?;
    Ok(Answer::from_outcome(&outcome))
}

fn skip_plan(plan: &SkipPlan, text: &mut Text) {
    let state = match plan.target.known() {
        Some(SkipTarget::Unreadable) => Cell::from("cannot be read"),
        Some(SkipTarget::Stop) => Cell::from("the partition stopped there"),
        _ => Cell::from("can be read; only --force skips it").bad(),
    };
    let loss = plan.payload_type.as_ref().and_then(OrOther::known).copied().map(loss);
    text.facts([
        ("position", render::position(&plan.position)),
        ("record", state),
        ("detail", plan.detail.as_ref().into()),
        ("run", plan.run_id.as_ref().map(ToString::to_string).as_ref().into()),
        ("record id", Cell::from(&plan.record_id)),
        ("payload type", plan.payload_type.as_ref().map(OrOther::as_str).into()),
        ("lost", loss.map(|loss| Cell::from(loss).bad()).into()),
        ("displaced", displaced(plan).map(|count| Cell::from(count).bad()).into()),
    ]);
    text.line([
        "every reader will ignore this record permanently; later records that depend on it may be refused".into()
    ]);
    if plan.run_id.is_some() {
        text.line([
            "its effects, and the effects of the displaced records, wait for decisions: end all processes of the run first".into()
        ]);
    }
}

/// Describes the later records that the skip displaces.
fn displaced(plan: &SkipPlan) -> Option<String> {
    plan.displaced.map(|count| match count {
        0 => "no later record of the run".to_owned(),
        1 => "1 later record of the run is applied now and will be refused".to_owned(),
        count => format!("{count} later records of the run are applied now and will be refused"),
    })
}

/// Describes the loss if a record of this type is skipped.
fn loss(payload_type: PayloadType) -> &'static str {
    match payload_type {
        PayloadType::ToolCallRequested => {
            "the request and its result: the call becomes pending, until someone decides whether it happened"
        }
        PayloadType::ToolCallCompleted | PayloadType::ToolCallFailed => {
            "the call's result: it becomes pending, until someone decides whether it happened"
        }
        PayloadType::EffectResolution => "the decision: its effect becomes pending again",
        PayloadType::RunClaim => "the claim, and with it every record that its writer appended: their effects too",
        PayloadType::Batch => "all records of the batch, with the calls and results among them",
        _ => "the record's content; an effect that it records becomes pending",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_sixteen_a_line_and_harmless() {
        let position = Position { topic: "t".into(), partition: 1.into(), offset: 2.into(), index: 0, log: None };
        let hex = "1b5b41".to_owned() + &"00".repeat(14);
        let letter = Letter {
            position,
            reason: "not_framed".into(),
            sha256: "s".into(),
            bytes: 17,
            detail: None,
            hex,
            dropped: None,
        };
        let mut text = Text::new(false);
        human(&letter, &mut text);
        let text = text.into_string();
        assert!(text.contains("000000  1b 5b 41 00 00 00 00 00 00 00 00 00 00 00 00 00  .[A............."), "{text}");
        assert!(text.contains("000010  00                                               ."), "{text}");
    }
}
