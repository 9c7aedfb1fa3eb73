//! Measures the cost of checkpoints after every turn (`make checkpoints`): for several stories and numbers of turns, and
//! for the recorded runs in `RUNLOG_SAMPLES`. Loads and compares every checkpoint.

use runlog_tests::{
    checkpoints::{Costs, Recorded, measure, recorded_file, stories::Story},
    random::Random,
    recorded,
};

#[allow(clippy::print_stdout, reason = "its purpose is to print figures")]
pub(crate) fn run() -> anyhow::Result<()> {
    let seed = Random::seed();
    let most = std::env::var("RUNLOG_BENCH_TURNS").ok().map(|turns| turns.parse()).transpose()?.unwrap_or(5000);
    println!("RUNLOG_SEED={seed}; sizes in KiB, but `a list's row`, `over` (bytes read beyond the list's) and rows\n");
    println!("{HEADER}");
    for format in ["tau-bench", "swe-agent"] {
        for file in recorded::samples(format)? {
            let Recorded { runs, costs } = recorded_file(format, &file)?;
            let name: String =
                file.file_stem().map(|stem| stem.to_string_lossy().chars().take(24).collect()).unwrap_or_default();
            row(&format!("{name}, {runs} runs, {}", costs.turns), &costs);
        }
    }
    println!();
    for story in Story::ALL {
        for turns in [10, 100, 500, 5000].into_iter().filter(|turns| *turns <= most) {
            row(&format!("{story:?} {turns}"), &measure(story, turns, seed)?);
        }
    }
    Ok(())
}

const HEADER: &str = "checkpoints                                  messages      whole        log  log/messages  a record over  \
                      message rows  list rows  a list's row  read: rows over  bytes over  seeks";

#[allow(clippy::print_stdout, reason = "its purpose is to print figures")]
fn row(name: &str, costs: &Costs) {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    println!(
        "{name:<42} {:>10.1} {:>10.1} {:>10.1} {:>13.2} {:>14} {:>13.1} {:>10.1} {:>13} {:>16} {:>11} {:>6}",
        kib(costs.messages),
        kib(costs.naive),
        kib(costs.log),
        costs.log as f64 / costs.messages.max(1) as f64,
        costs.log.saturating_sub(costs.brought) / costs.turns.max(1),
        kib(costs.message_rows),
        kib(costs.list_rows),
        costs.list_row_max,
        costs.rows_read_beyond_max,
        costs.bytes_read_beyond_max,
        costs.seeks_max,
    );
}
