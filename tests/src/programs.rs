//! Programs that cargo built next to a test, external programs, and the files of this crate that they need.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};

/// A file, by its path relative to this crate's folder.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A program or an example that cargo built into the profile's folder, TARGET/debug. A test is in its subfolder deps.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let own = env::current_exe()?;
    let program = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    program.with_context(|| format!("{name} is not in the folder of {}", own.display()))
}

/// A command that starts one of the processes of `bin/test_process/main.rs`.
pub fn test_process(name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(built("test_process")?);
    // The backtrace of an error fills the reported end of a process's log, and says less than the error.
    command.arg(name).env("RUST_LIB_BACKTRACE", "0");
    Ok(command)
}

/// Runs a program to its end; returns its stdout without the last line end.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// A Python interpreter with the libraries that our Python programs need.
pub fn python() -> anyhow::Result<PathBuf> {
    output(&mut Command::new(here("python/venv.sh"))).map(PathBuf::from).context("no Python")
}
