//! The demo's output for people, step by step.

use crate::{
    error::Error,
    output::{Output, Progress},
    text::{Cell, Text},
};
use runlog_demo::{Event, Figures, Takeover, Undecided, Way, grouped};
use runlog_schemas::shell;
use std::path::Path;

/// Width of the names before the facts.
const NAME: usize = 11;
/// Commands up to this width are aligned. A longer command does not move the descriptions of the others.
const TRY_WIDTH: usize = 80;
/// Largest number of differences in the text.
const DIFFERENCES_SHOWN: usize = 20;

/// Prints the demo's progress. `--json` suppresses it.
#[derive(Debug)]
pub(super) struct Story<'a> {
    output: &'a Output,
    /// The progress bar while agents work.
    progress: Option<Progress>,
    steps: u32,
    agents: u32,
}

impl<'a> Story<'a> {
    /// Prints the first lines.
    pub(super) fn begin(output: &'a Output, agents: u32, seed: u64, folder: &Path, stays: bool) -> Result<Self, Error> {
        let title = format!("Runlog: {agents} live agents, a crash in the middle of a booking, an index deleted");
        let stays = if stays { "stays" } else { "is deleted at the end; --keep keeps it" };
        output.say(|text| {
            text.line([Cell::from(title).strong()]);
            text.line([Cell::from(format!("seed {seed}, folder {} ({stays})", folder.display())).dim()]);
        })?;
        Ok(Self { output, progress: None, steps: 0, agents })
    }

    /// Prints the next part.
    pub(super) fn tell(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Step(title) => {
                self.steps += 1;
                let title = format!("{}  {title}", self.steps);
                self.output.say(|text| text.title(title))
            }
            Event::Fact(name, what) => {
                self.progress = None;
                self.fact(name, what.into())
            }
            Event::Verdict(what, proves) => {
                let what = Cell::from(what);
                self.fact("", if proves { what.good() } else { what.bad() })
            }
            Event::AgentEnded => {
                let bar = || self.output.progress("trips", self.agents.into());
                self.progress.get_or_insert_with(bar).advance(1);
                Ok(())
            }
            Event::TakenOver(takeover) => {
                self.progress.iter().for_each(Progress::clear);
                self.takeover(takeover)
            }
            Event::LookedUp(ways, calls) => self.lookups(ways, calls),
        }
    }

    /// Prints a name and a fact about it.
    fn fact(&self, name: &str, what: Cell) -> Result<(), Error> {
        self.output.say(|text| text.columns([(0, "  ".into()), (NAME, Cell::from(name).dim()), (0, what)]))
    }

    /// Prints the takeover of a run.
    fn takeover(&self, takeover: &Takeover) -> Result<(), Error> {
        let Takeover { run_id, booked_before, keyed, confirmation, .. } = takeover;
        let died = if *booked_before { "killed, the desk had booked" } else { "killed, nothing booked yet" };
        let outcome = match (keyed, booked_before) {
            (true, true) => format!("repeated with its key: {confirmation}, as before"),
            (true, false) => format!("repeated with its key: {confirmation}"),
            (false, true) => format!("reconciled: done, {confirmation}"),
            (false, false) => format!("reconciled: not done; repeated: {confirmation}"),
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
    fn lookups(&self, ways: &[Way], calls: u64) -> Result<(), Error> {
        let count = |way: &Way| Cell::from(format!("{} of {}", grouped(way.found), grouped(calls)));
        self.output.say(|text| {
            text.list(ways, "")
                .column("  ", |_| "  ")
                .column("ASKED", |way| if way.by == "http" { "over HTTP" } else { "in process" })
                .column("AT", |way| way.consistency)
                .column("FOUND", |way| if way.found == calls { count(way).good() } else { count(way).bad() })
                .column("P50", |way| Cell::from(micros(way.p50_micros)).right())
                .column("P99", |way| Cell::from(micros(way.p99_micros)).right())
                .print();
        })
    }

    /// Prints the end of the demo.
    pub(super) fn end(&self, figures: &Figures) -> Result<(), Error> {
        self.output.say(|text| {
            if figures.proved {
                proved(figures, text);
                next(figures, text);
            } else {
                differences(figures, text);
            }
            if figures.data.is_some() || figures.serving.is_some() {
                text.line([Cell::default()]);
            }
            if let Some(data) = &figures.data {
                let what = format!("Log, index and ledger are in {}", data.display());
                text.line([Cell::from(what).dim()]);
            }
            if let Some(url) = &figures.serving {
                text.line([Cell::from(format!("Serving {url} until Ctrl-C")).strong()]);
            }
        })
    }
}

/// Prints the claims and their proofs.
fn proved(figures: &Figures, text: &mut Text) {
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
    text.title(format!("What this showed, in {:.1} s", figures.seconds));
    for (claim, proof) in proofs {
        let claim = (31, claim.into());
        text.columns([(0, "  ".into()), (0, Cell::from("yes").good()), claim, (0, Cell::from(proof).dim())]);
    }
}

fn differences(figures: &Figures, text: &mut Text) {
    let shown = figures.differences.iter().take(DIFFERENCES_SHOWN);
    let more = figures.differences.len().saturating_sub(DIFFERENCES_SHOWN);
    text.title(format!("Differences found, after {:.1} s", figures.seconds));
    for difference in shown {
        text.line(["  ".into(), Cell::from(difference).bad()]);
    }
    if more > 0 {
        text.line(["  ".into(), Cell::from(format!("and {more} more; --json prints all")).bad()]);
    }
}

/// Prints the commands to try next.
fn next(figures: &Figures, text: &mut Text) {
    // The name by which this program was called.
    let program = std::env::args().next().filter(|program| !program.is_empty());
    let program = shell::quote(program.as_deref().unwrap_or("runlog"));
    let died = figures.takeovers.iter().find(|takeover| takeover.reconciled).or(figures.takeovers.first());
    let run = died.map_or("trip-0001", |takeover| takeover.run_id.as_str());
    let elsewhere = figures.serving.as_deref().filter(|url| *url != crate::config::SERVER);
    let at = elsewhere.map_or_else(String::new, |url| format!(" {}", shell::flag("--server", url)));
    let mut tries = Vec::new();
    if let Some(url) = &figures.serving {
        tries.push((format!("{url}/ui"), "open it in a browser: all runs, and a booking to decide"));
    }
    let serving = figures.serving.is_some();
    if !serving {
        tries.push((
            format!("{program} demo --serve"),
            "run the demo again and keep it serving; then, in another terminal:",
        ));
    }
    let indent = if serving { "" } else { "  " };
    tries.extend([
        (format!("{indent}{program} runs{at}"), "all runs"),
        (
            format!("{indent}{}{at}", shell::command(&format!("{program} show"), &[run], "")),
            "a run that was killed and taken over",
        ),
        (format!("{indent}{program} import tau-bench FILE{at}"), "runs that another framework recorded"),
    ]);
    if let Some(Undecided { run_id, id }) = figures.undecided {
        let decide = "--not-done --who you --why 'the desk has no such booking'";
        tries.push((format!("{program} effects --pending{at}"), "a booking whose outcome is unknown"));
        let resolve = format!("{program} effects resolve");
        tries.push((shell::command(&resolve, &[run_id, id], &format!("{decide}{at}")), "decide it"));
    }
    tries.push(("make kafka-up".into(), "Apache Kafka in Docker; prints HOST:PORT"));
    tries.push((format!("{program} serve --brokers HOST:PORT --data DIR"), "a journal on that Kafka"));
    let width = |line: &str| line.chars().count();
    let width = tries.iter().map(|(line, _)| width(line)).filter(|width| *width <= TRY_WIDTH).max().unwrap_or(0);
    text.title("What to try next".to_owned());
    for (line, what) in tries {
        text.columns([(0, "  ".into()), (width, Cell::from(line)), (0, Cell::from(what).dim())]);
    }
}

/// Formats a latency with its unit.
fn micros(micros: f64) -> String {
    if micros < 1000.0 { format!("{micros:.0} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_read_easily() {
        assert_eq!([3.4, 999.0, 1250.0].map(micros), ["3 µs", "999 µs", "1.2 ms"]);
    }
}
