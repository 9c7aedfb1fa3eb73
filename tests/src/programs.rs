//! Programs that are not ours, and files of this crate that they are run with.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};

/// A file, its path given from this crate's folder.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a program to its end; what it printed, without the last line's end.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// A Python with the libraries that our programs in it need.
pub fn python() -> anyhow::Result<PathBuf> {
    output(&mut Command::new(here("python/venv.sh"))).map(PathBuf::from).context("no Python")
}
