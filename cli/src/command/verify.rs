//! `verify`: compares the live indices with indices rebuilt from the log.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    session::{Session, VERIFY_WAIT},
    text::{Cell, Text},
};
use runlog_schemas::answer::{IndexDigest, Verification};

pub(super) async fn run(session: &Session, args: args::Verify) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, VERIFY_WAIT);
    let result: Verification = session.client.post(Target::new("/v1/verify"), "{}".to_owned(), wait).await?;
    session.output.answer(&result, |result, text| human(result, session.verbose > 0, text))?;
    Ok(Answer::from_bool(result.equal))
}

/// Prints the verdict and the table of indices. Without `all` the table contains only the indices that differ.
fn human(result: &Verification, all: bool, text: &mut Text) {
    verdict(result, text);
    let equal = |index: &IndexDigest| index.live_digest == index.rebuilt_digest;
    let rows: Vec<_> = result
        .partitions
        .iter()
        .flat_map(|partition| partition.indices.iter().map(move |index| (partition, index)))
        .filter(|(_, index)| all || !equal(index))
        .collect();
    if rows.is_empty() {
        return;
    }
    text.list(&rows, "")
        .column("PARTITION", |(partition, _)| partition.partition)
        .column("END OFFSET", |(partition, _)| partition.offset)
        .column("INDEX", |(_, index)| &index.name)
        .column("ROWS", |(_, index)| index.rows)
        .column("", |(_, index)| Cell::status(if equal(index) { "equal" } else { "unequal" }))
        .column("LIVE", |(_, index)| Cell::from(&index.live_digest).clip(19).dim())
        .column("REBUILT", |(_, index)| Cell::from(&index.rebuilt_digest).clip(19).dim())
        .print();
    verdict(result, text);
}

fn verdict(result: &Verification, text: &mut Text) {
    let Verification { equal, records, partitions, seconds, .. } = result;
    let indices: usize = partitions.iter().map(|partition| partition.indices.len()).sum();
    let verdict = if *equal { Cell::from("equal").good() } else { Cell::from("unequal").bad() };
    let figures = format!(
        "{indices} indices in {} partitions against {records} records of the log, in {seconds:.2} s",
        partitions.len()
    );
    text.line([verdict.strong(), Cell::from(figures).dim()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::answer::PartitionDigest;

    #[test]
    fn the_verdict_is_the_first_line_and_the_last_and_what_differs_is_listed() {
        let index = |name: &str, rebuilt: &str| IndexDigest {
            name: name.into(),
            rows: 1,
            live_digest: "sha256:a".into(),
            rebuilt_digest: rebuilt.into(),
        };
        let indices = vec![index("runs", "sha256:a"), index("effects", "sha256:b")];
        let partitions = vec![PartitionDigest { partition: 0.into(), offset: 7.into(), indices }];
        let result =
            Verification { equal: false, records: 7, partitions, unavailable_partitions: Vec::new(), seconds: 0.1 };
        for (all, lines) in [(false, 4), (true, 5)] {
            let mut text = Text::new(false);
            human(&result, all, &mut text);
            let text = text.into_string();
            let shown: Vec<&str> = text.lines().collect();
            assert_eq!(shown.len(), lines, "{text}");
            assert!(shown[0].starts_with("unequal ") && shown[0] == shown[lines - 1], "{text}");
            assert!(text.contains("effects"), "{text}");
        }
    }
}
