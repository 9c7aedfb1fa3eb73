//! `verify`: the indices against the log.

use super::{Answer, Session, VERIFY_WAIT};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::answer::Verification;

pub(super) async fn run(session: &Session, args: args::Verify) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, VERIFY_WAIT);
    let result: Verification = session.client.post(Target::new("/v1/verify"), "{}".to_owned(), wait).await?;
    session.output.answer(&result, human)?;
    Ok(Answer::from_bool(result.equal))
}

fn human(result: &Verification, text: &mut Text) {
    let rows = result.partitions.iter().flat_map(|partition| {
        partition.indices.iter().map(|index| {
            let equal = index.live_digest == index.rebuilt_digest;
            [
                partition.partition.into(),
                partition.offset.into(),
                Cell::from(&index.name),
                index.rows.into(),
                Cell::word(if equal { "equal" } else { "unequal" }),
                Cell::from(&index.live_digest).clip(19).dim(),
                Cell::from(&index.rebuilt_digest).clip(19).dim(),
            ]
        })
    });
    let heads = ["PARTITION", "BELOW", "INDEX", "ROWS", "", "LIVE", "REBUILT"];
    text.table(heads, rows.collect(), "nothing to compare");
    let verdict = if result.equal { Cell::from("equal").good() } else { Cell::from("unequal").bad() };
    let figures = format!("{} records in {:.2} s", result.records, result.seconds);
    text.title("the indices and the log are".to_owned());
    text.line([verdict.strong(), Cell::from(figures).dim()]);
}
