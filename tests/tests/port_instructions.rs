//! A port takes little more than the producer alone does, in instructions: callgrind counts the same however busy the machine is.
//!
//! ```text
//!   port_costs PORT append 10 ──▶ a ─┐
//!   port_costs PORT append 90 ──▶ b ─┴─▶ (b - a) / 80, and the same for what the producer does with the same record
//! ```

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

const TIMES: [u64; 2] = [10, 90];
/// How many percent more than the producer alone a port may take.
const PERCENT: u64 = 10;
/// What ports do.
const COUNTED: [(&str, &str); 7] = [
    ("agent-sdk-core", "append"),
    ("agent-sdk-core", "lookup"),
    ("bob-core", "append"),
    ("bob-core", "lookup"),
    ("codetether", "append"),
    ("observability", "append"),
    ("observability", "lookup"),
];

/// The program without its debug information, some of which valgrind does not read.
fn stripped(dir: &Path) -> anyhow::Result<PathBuf> {
    let program = dir.join("port_costs");
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(&program).arg(env!("CARGO_BIN_EXE_port_costs"));
    let done = strip.status().context("strip does not start; it comes with the linker")?;
    ensure!(done.success(), "strip: {done}");
    Ok(program)
}

/// Instructions of a process that does something so often.
fn count(program: &Path, port: &str, what: &str, times: u64) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = command.args([port, what]).arg(times.to_string()).output();
    let output = output.context("valgrind does not start; scripts/setup.sh test installs it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    Ok(collected.with_context(|| format!("no count: {said}"))?.1.trim().parse()?)
}

fn each(program: &Path, port: &str, what: &str) -> anyhow::Result<u64> {
    let [few, many] = TIMES;
    Ok((count(program, port, what, many)?.saturating_sub(count(program, port, what, few)?)) / (many - few))
}

#[test]
fn a_port_takes_at_most_a_tenth_more_instructions_than_the_producer_alone() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let (program, mut over) = (stripped(dir.path())?, Vec::new());
    for (port, what) in COUNTED {
        let (taken, alone) = (each(&program, port, what)?, each(&program, port, &format!("bare-{what}"))?);
        println!("{port} {what}: {taken} instructions, {alone} without it");
        if taken * 100 > alone * (100 + PERCENT) {
            over.push(format!("{port} {what}: {taken}, more than {alone} and {PERCENT} %"));
        }
    }
    ensure!(over.is_empty(), "{}", over.join("\n"));
    Ok(())
}
