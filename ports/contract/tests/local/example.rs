//! Kills the port's example during its effect and starts it again.

use anyhow::{Context, ensure};
use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

#[path = "../../../examples/agent_sdk_core.rs"]
#[allow(unreachable_pub, reason = "a program of its own")]
mod program;

/// The example's arguments, separated by spaces.
const ARGUMENTS: &str = "EXAMPLE_ARGUMENTS";

#[test]
#[ignore = "started by the other test, as a process of its own"]
fn the_example() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = env::var(ARGUMENTS)?;
    program::example(arguments.split(' ').map(str::to_owned))
}

fn start(arguments: &str) -> anyhow::Result<Child> {
    let mut example = Command::new(env::current_exe()?);
    example.args(["--ignored", "--exact", "--nocapture", "example::the_example"]).env(ARGUMENTS, arguments);
    Ok(example.stdout(Stdio::piped()).spawn()?)
}

fn run_example(arguments: &str) -> anyhow::Result<String> {
    let mut example = start(arguments)?;
    let mut output = String::new();
    example.stdout.take().context("its output")?.read_to_string(&mut output)?;
    ensure!(example.wait()?.success(), "{output}");
    Ok(output)
}

#[test]
fn a_kernel_run_killed_during_its_effect_is_resumed_and_ends() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments = format!("local:{} run-1", folder.path().display());
    let mut example = start(&format!("{arguments} hold"))?;
    let lines = BufReader::new(example.stdout.take().context("its output")?).lines();
    let reached_provider = lines.map_while(Result::ok).any(|line| line.ends_with("the provider is asked"));
    example.kill()?;
    example.wait()?;
    ensure!(reached_provider, "the effect began");
    let resumed = run_example(&arguments)?;
    ensure!(resumed.contains("5 records, 1 effects pending"), "where it was killed: {resumed}");
    ensure!(resumed.contains("forty-two, 10 records"), "as if it had never been: {resumed}");
    let again = run_example(&arguments)?;
    ensure!(
        again.contains("the run is completed") && !again.contains("the provider is asked"),
        "nothing twice: {again}"
    );
    Ok(())
}
