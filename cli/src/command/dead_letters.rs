//! `dead-letter`: what could not be read, and voiding it.

use super::{APPEND_WAIT, Answer, Session, pages};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{DeadLetters, Outcome, Position},
    id::{Offset, PartitionId},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub(super) async fn list(session: &Session, args: args::DeadLetterList) -> Result<Answer, Error> {
    let mut unavailable = BTreeSet::new();
    let (records, next_cursor) = pages::gather(args.page.limit, args.page.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/dead-letters").with("limit", limit).with_some("cursor", cursor);
        let page: DeadLetters = session.read(target, &args.reading).await?;
        unavailable.extend(page.unavailable_partitions);
        Ok((page.records, page.next_cursor))
    })
    .await?;
    let unavailable_partitions = unavailable.into_iter().collect();
    session.output.answer(&DeadLetters { records, unavailable_partitions, next_cursor }, |page, text| {
        let rows = page.records.iter().map(|letter| {
            [
                super::place(&letter.position),
                Cell::from(&letter.reason).bad(),
                letter.bytes.into(),
                (&letter.sha256).into(),
            ]
        });
        text.table(["POSITION", "REASON", "BYTES", "SHA256"], rows.collect(), "everything could be read");
        super::unavailable(&page.unavailable_partitions, text);
        super::more(page.next_cursor.as_deref(), text);
    })?;
    Ok(Answer::Yes)
}

/// One of them, with its first bytes.
#[derive(Debug, Deserialize, Serialize)]
struct Letter {
    position: Position,
    reason: String,
    sha256: String,
    bytes: u64,
    /// What the reader stumbled over.
    #[serde(default)]
    detail: Option<String>,
    /// At most the first 4096 bytes, hexadecimal.
    #[serde(default)]
    hex: String,
}

pub(super) async fn show(session: &Session, args: args::DeadLetterShow) -> Result<Answer, Error> {
    let target = Target::new("/v1/dead-letters").segment(args.place.to_string());
    let letter: Letter = session.read(target, &args.reading).await?;
    session.output.answer(&letter, human)?;
    Ok(Answer::Yes)
}

fn human(letter: &Letter, text: &mut Text) {
    text.facts([
        ("position", super::place(&letter.position)),
        ("reason", Cell::from(&letter.reason).bad()),
        ("detail", letter.detail.as_ref().into()),
        ("bytes", letter.bytes.into()),
        ("sha256", Cell::from(&letter.sha256)),
    ]);
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
}

pub(super) async fn skip(session: &Session, args: args::DeadLetterSkip) -> Result<Answer, Error> {
    let skip = Skip {
        partition: args.place.partition,
        offset: args.place.offset,
        who: &args.signed.who,
        why: &args.signed.why,
    };
    let wait = session.wait(&args.wait, APPEND_WAIT);
    let outcome: Outcome = session.client.post(Target::new("/v1/skips"), super::body(&skip)?, wait).await?;
    session.output.answer(&outcome, super::outcome)?;
    Ok(Answer::of(&outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_sixteen_a_line_and_harmless() {
        let position = Position { topic: "t".into(), partition: 1.into(), offset: 2.into(), index: 0 };
        let hex = "1b5b41".to_owned() + &"00".repeat(14);
        let letter = Letter { position, reason: "not_framed".into(), sha256: "s".into(), bytes: 17, detail: None, hex };
        let mut text = Text::new(false);
        human(&letter, &mut text);
        let text = text.into_string();
        assert!(text.contains("000000  1b 5b 41 00 00 00 00 00 00 00 00 00 00 00 00 00  .[A............."), "{text}");
        assert!(text.contains("000010  00                                               ."), "{text}");
    }
}
