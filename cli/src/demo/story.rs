//! The demo's output for people, step by step. `--json` suppresses it.

use super::{crash::Takeover, figures::Figures, lookups::Way, undecided::Undecided};
use crate::{
    Error,
    output::Output,
    text::{Cell, Text},
};

/// Width of the names before the facts.
const NAME: usize = 11;

/// Prints the demo's progress.
#[derive(Debug)]
pub(super) struct Story<'a> {
    output: &'a Output,
    /// The name by which this program was called, for the commands to try next.
    program: String,
    steps: u32,
}

impl<'a> Story<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        let program = std::env::args().next().filter(|program| !program.is_empty());
        Self { output, program: program.unwrap_or_else(|| "runlog".into()), steps: 0 }
    }

    /// Prints a line.
    pub(super) fn say(&self, what: Cell) -> Result<(), Error> {
        self.output.say(|text| text.line([what]))
    }

    /// Prints the title of the next step.
    pub(super) fn step(&mut self, title: &str) -> Result<(), Error> {
        self.steps += 1;
        let title = format!("{}  {title}", self.steps);
        self.output.say(|text| text.title(title))
    }

    /// Prints a name and a fact about it.
    pub(super) fn fact(&self, name: &str, what: impl Into<Cell>) -> Result<(), Error> {
        self.output.say(|text| fact(text, name, what.into()))
    }

    /// Prints the takeover of a run.
    pub(super) fn takeover(&self, takeover: &Takeover) -> Result<(), Error> {
        let Takeover { run_id, booked_before, keyed, confirmation, .. } = takeover;
        let died = if *booked_before { "killed, the desk had booked" } else { "killed, nothing booked yet" };
        let outcome = match (keyed, booked_before) {
            (true, true) => format!("asked again by its key: {confirmation}, as before"),
            (true, false) => format!("asked again by its key: {confirmation}"),
            (false, true) => format!("reconciled: done, {confirmation}"),
            (false, false) => format!("reconciled: not done; asked again: {confirmation}"),
        };
        self.output.say(|text| {
            text.columns([
                (0, "  ".into()),
                (9, Cell::from(run_id)),
                (27, died.into()),
                (0, Cell::from(outcome).good()),
            ]);
        })
    }

    /// Prints the results of all lookups.
    pub(super) fn lookups(&self, ways: &[Way], calls: u64) -> Result<(), Error> {
        let row = |way: &Way| {
            let by = if way.by == "http" { "over HTTP" } else { "in process" };
            let found_cell = Cell::from(format!("{} of {}", grouped(way.found), grouped(calls)));
            let found_cell = if way.found == calls { found_cell.good() } else { found_cell.bad() };
            let (p50, p99) = (micros(way.p50_micros), micros(way.p99_micros));
            [
                "  ".into(),
                by.into(),
                way.consistency.into(),
                found_cell,
                Cell::from(p50).right(),
                Cell::from(p99).right(),
            ]
        };
        let rows = ways.iter().map(row).collect();
        self.output.say(|text| text.table(["  ", "ASKED", "AT", "FOUND", "P50", "P99"], rows, ""))
    }

    /// Prints the conclusion, or the differences.
    pub(super) fn end(&self, figures: &Figures) -> Result<(), Error> {
        if figures.proved { self.proved(figures) } else { self.not_proved(figures) }
    }

    fn proved(&self, figures: &Figures) -> Result<(), Error> {
        let Figures { agents, audit, processes, killed, taken_over, reconciled, rebuild, .. } = figures;
        let way = figures.lookups.iter().find(|way| way.by == "http" && way.consistency == "latest");
        let lookup_proof = way.map_or_else(String::new, |way| {
            let (p50, p99) = (micros(way.p50_micros), micros(way.p99_micros));
            format!("{} of {} calls; over HTTP p50 {p50}, p99 {p99}", grouped(way.found), grouped(figures.calls))
        });
        let (records, rate) = (grouped(rebuild.records), grouped(rebuild.records_per_second as u64));
        let proofs = [
            ("no booking twice or lost", format!("{} bookings of {agents} agents", grouped(audit.in_ledger))),
            (
                "a killed agent's run continues",
                format!("{killed} of {processes} processes killed, {taken_over} runs taken over"),
            ),
            ("unknown effects never run twice", format!("{reconciled} of those runs reconciled by an operator")),
            ("a call is found by fingerprint", lookup_proof),
            (
                "the log is the only source of truth",
                format!("the index rebuilt from {records} records, {rate} a second, and equal"),
            ),
        ];
        self.output.say(|text| {
            text.title(format!("What this showed, in {:.1} s", figures.seconds));
            for (claim, proof) in proofs {
                let claim = (31, claim.into());
                text.columns([(0, "  ".into()), (0, Cell::from("yes").good()), claim, (0, Cell::from(proof).dim())]);
            }
        })
    }

    fn not_proved(&self, figures: &Figures) -> Result<(), Error> {
        let shown = figures.differences.iter().take(DIFFERENCES_SHOWN);
        let more = figures.differences.len().saturating_sub(DIFFERENCES_SHOWN);
        self.output.say(|text| {
            text.title(format!("Differences found, after {:.1} s", figures.seconds));
            for difference in shown {
                text.line(["  ".into(), Cell::from(difference).bad()]);
            }
            if more > 0 {
                text.line(["  ".into(), Cell::from(format!("and {more} more; --json prints all")).bad()]);
            }
        })
    }

    /// Prints the commands to try next.
    pub(super) fn next(&self, figures: &Figures) -> Result<(), Error> {
        let program = &self.program;
        let died = figures.takeovers.iter().find(|takeover| takeover.reconciled).or(figures.takeovers.first());
        let run = died.map_or("trip-0001", |takeover| takeover.run_id.as_str());
        let elsewhere = figures.serving.as_deref().filter(|url| *url != crate::config::SERVER);
        let at = elsewhere.map_or_else(String::new, |url| format!(" --server {url}"));
        let mut tries = Vec::new();
        let serving = figures.serving.is_some();
        if !serving {
            tries.push((
                format!("{program} demo --serve"),
                "the demo again, which then keeps serving; in another terminal:",
            ));
        }
        let indent = if serving { "" } else { "  " };
        tries.extend([
            (format!("{indent}{program} runs{at}"), "all runs"),
            (format!("{indent}{program} show {run}{at}"), "a run that was killed and taken over"),
            (format!("{indent}{program} import tau-bench FILE{at}"), "runs that another framework recorded"),
        ]);
        if let Some(Undecided { run_id, id }) = figures.undecided {
            let decide = "--not-done --who you --why 'the desk has no such booking'";
            tries.push((format!("{program} effects --pending{at}"), "a booking whose outcome is unknown"));
            tries.push((format!("{program} effects resolve {run_id} {id} {decide}{at}"), "decide it"));
        }
        tries.push(("make kafka-up".into(), "Apache Kafka in Docker; prints HOST:PORT"));
        tries.push((format!("{program} serve --brokers HOST:PORT --data DIR"), "a journal on it"));
        let width = |line: &str| line.chars().count();
        let width = tries.iter().map(|(line, _)| width(line)).filter(|width| *width <= TRY_WIDTH).max().unwrap_or(0);
        self.output.say(|text| {
            text.title("What to try next".to_owned());
            for (line, what) in tries {
                text.columns([(0, "  ".into()), (width, Cell::from(line)), (0, Cell::from(what).dim())]);
            }
        })
    }
}

/// Commands up to this width are aligned. A longer command does not move the descriptions of the others.
const TRY_WIDTH: usize = 80;
/// Largest number of differences in the text.
const DIFFERENCES_SHOWN: usize = 20;

fn fact(text: &mut Text, name: &str, what: Cell) {
    text.columns([(0, "  ".into()), (NAME, Cell::from(name).dim()), (0, what)]);
}

/// Formats `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a latency with its unit.
fn micros(micros: f64) -> String {
    if micros < 1000.0 { format!("{micros:.0} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_easily() {
        assert_eq!(
            [0, 12, 999, 1000, 123_456, 1_234_567].map(grouped),
            ["0", "12", "999", "1,000", "123,456", "1,234,567"]
        );
        assert_eq!([3.4, 999.0, 1250.0].map(micros), ["3 µs", "999 µs", "1.2 ms"]);
    }
}
