//! Two reports side by side: which ratios differ beyond their spread.

use std::fmt::Write;

use crate::report::{Report, Row, Unit, number};

/// How a ratio of one report relates to the same ratio of another report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// All rounds of the second report lie above all rounds of the first report.
    Higher,
    Lower,
    /// The rounds overlap: no difference is shown.
    WithinSpread,
}

pub(crate) fn change(before: &Row, after: &Row) -> Change {
    let ((before_least, before_most), (least, most)) = (before.spread(), after.spread());
    if least > before_most {
        Change::Higher
    } else if most < before_least {
        Change::Lower
    } else {
        Change::WithinSpread
    }
}

/// A table of the ratios that both reports have, and a line for each ratio that only one report has.
pub(crate) fn table(before: &Report, after: &Report) -> String {
    let mut text = String::from("| ratio | before | after | |\n|---|---:|---:|---|\n");
    for (name, row) in ratios(before) {
        let Some((_, other)) = ratios(after).find(|(other, _)| *other == name) else {
            _ = writeln!(text, "| {name} | {} | – | only before |", number(row.median()));
            continue;
        };
        let verdict = match change(row, other) {
            Change::Higher => "**higher**",
            Change::Lower => "**lower**",
            Change::WithinSpread => "within the spread",
        };
        _ = writeln!(text, "| {name} | {} | {} | {verdict} |", format_row(row), format_row(other));
    }
    for (name, row) in ratios(after).filter(|(name, _)| !ratios(before).any(|(other, _)| other == *name)) {
        _ = writeln!(text, "| {name} | – | {} | only after |", number(row.median()));
    }
    text
}

fn format_row(row: &Row) -> String {
    let (least, most) = row.spread();
    format!("{} ({} to {})", number(row.median()), number(least), number(most))
}

fn ratios(report: &Report) -> impl Iterator<Item = (String, &Row)> {
    report.figures.iter().flat_map(|figure| {
        let ratios = figure.rows.iter().filter(|row| row.unit == Unit::Ratio);
        ratios.map(|row| (format!("{}: {}", figure.title, row.name), row))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_differ_only_where_no_round_of_one_lies_within_the_others() {
        let row = |values: &[f64]| Row::new("a over b", Unit::Ratio, values.to_vec());
        let before = row(&[0.9, 1.0, 1.1]);
        assert_eq!(change(&before, &row(&[1.1, 1.5])), Change::WithinSpread);
        assert_eq!(change(&before, &row(&[1.5, 1.2])), Change::Higher);
        assert_eq!(change(&before, &row(&[0.2, 0.8])), Change::Lower);
    }
}
