//! The report of a run, as JSON and as Markdown.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, path::Path};

use crate::{machine::Machine, peers::NotRun};

/// A run of the benchmarks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub machine: Machine,
    /// The command line of the run.
    pub command: String,
    #[serde(default)]
    pub not_run: Vec<NotRun>,
    pub figures: Vec<Figure>,
}

/// One subject, measured in several ways in alternating rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub title: String,
    /// The method of measurement, in a sentence or two.
    pub method: String,
    pub rows: Vec<Row>,
}

/// A quantity, with a value per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub name: String,
    pub unit: Unit,
    pub values: Vec<f64>,
    pub goal: Option<Goal>,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "records/s")]
    RecordsPerSecond,
    /// CPU time of all threads, µs.
    #[serde(rename = "µs of CPU/record")]
    CpuMicrosPerRecord,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "MiB")]
    Mebibytes,
    /// The ratio of two ways in the same round. Only ratios are compared between runs: other values depend on the machine.
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::RecordsPerSecond => "records/s",
            Self::CpuMicrosPerRecord => "µs of CPU/record",
            Self::Millis => "ms",
            Self::Mebibytes => "MiB",
            Self::Ratio => "ratio",
        }
    }
}

/// The goal of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: Unit, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit, values, goal: None }
    }

    /// The ratio `of` / `over` of each round.
    pub(crate) fn ratio(name: impl Into<String>, of: &[f64], over: &[f64]) -> Self {
        Self::new(name, Unit::Ratio, of.iter().zip(over).map(|(of, over)| of / over).collect())
    }

    #[must_use]
    pub(crate) fn goal(self, goal: Goal) -> Self {
        Self { goal: Some(goal), ..self }
    }

    /// The middle value; of an even number of values, the upper one of the middle two.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The least and the greatest value.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN))
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl Report {
    /// Writes `report.json`, `report.md` and a plot per figure into `dir`.
    pub(crate) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("report.json"), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(dir.join("report.md"), self.markdown())?;
        for figure in &self.figures {
            std::fs::write(dir.join(plot_name(figure)), crate::plot::svg(figure))?;
        }
        Ok(())
    }

    /// Reads a report that [`Report::write`] wrote.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let path = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
        let bytes = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{} is no report of `make bench`", path.display()))
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# Benchmarks\n\n`{}`\n\n{}\n", self.command, self.machine);
        for NotRun { peer, why, .. } in &self.not_run {
            _ = write!(text, "\n**Not run:** {}: {why}\n", peer.name());
        }
        for figure in &self.figures {
            _ = write!(text, "\n## {}\n\n{}\n\n![]({})\n\n", figure.title, figure.method, plot_name(figure));
            text.push_str("| | unit | median | least to greatest | goal | |\n|---|---|---:|---:|---:|---|\n");
            for row in &figure.rows {
                let (least, greatest) = row.spread();
                let (goal, met) = match row.goal {
                    None => (String::new(), ""),
                    Some(goal) => {
                        let text = match goal {
                            Goal::AtLeast(value) => format!("≥ {}", number(value)),
                            Goal::AtMost(value) => format!("≤ {}", number(value)),
                        };
                        (text, if goal.is_met(row.median()) { "met" } else { "**missed**" })
                    }
                };
                _ = writeln!(
                    text,
                    "| {} | {} | {} | {} to {} | {goal} | {met} |",
                    row.name,
                    row.unit.name(),
                    number(row.median()),
                    number(least),
                    number(greatest)
                );
            }
        }
        text
    }
}

fn plot_name(figure: &Figure) -> String {
    let name: String =
        figure.title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    format!("{name}.svg")
}

/// Formats with three significant digits, and with all digits before the decimal point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
