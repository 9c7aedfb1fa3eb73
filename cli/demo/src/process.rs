//! Child processes of the demo: this program with a hidden command. A child does not outlive its parent. Dropping its handle
//! kills it, and it ends by itself when its stdin closes.

use crate::error::Error;
use runlog_schemas::answer::ErrorKind;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{io, os::unix::process::ExitStatusExt, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// The signal that a process cannot handle.
const SIGKILL: i32 = 9;
/// Time limit for a process to exit after it printed its answer.
const EXIT_WAIT: Duration = Duration::from_secs(10);
/// Exit code of a process whose parent has ended.
const ORPHANED: i32 = 4;

/// Ends this process when its stdin closes. The end of the parent also closes it.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        // Whether reading ends or fails, the parent has ended.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(ORPHANED);
    });
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Closing it ends the child.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts `runlog --json ARGUMENTS`.
    pub(crate) fn start(name: String, arguments: &[String]) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::internal(format!("the process of {name} did not start")).because(error);
        // The program's file may have been replaced since this process started. The link still names the running
        // program.
        let link = Path::new("/proc/self/exe");
        let program = if link.exists() { link.to_owned() } else { std::env::current_exe().map_err(failed)? };
        let mut command = Command::new(program);
        command.arg0("runlog").arg("--json").args(arguments).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let stdin = child.stdin.take();
        Ok(Self { name, child, lines: BufReader::new(stdout).lines(), _stdin: stdin })
    }

    /// Returns the next document that the process prints. If it prints an error, returns that error.
    pub(crate) async fn document<T: DeserializeOwned>(&mut self, wait: Duration) -> Result<T, Error> {
        let unavailable = |what: &str| Error::unavailable(format!("the process of {} {what}", self.name));
        let line = tokio::time::timeout(wait, self.lines.next_line()).await;
        let line = line.map_err(|_| unavailable(&format!("printed nothing for {} s", wait.as_secs())))?;
        let line = line.map_err(|error| unavailable("cannot be read").because(error))?;
        let line = line.ok_or_else(|| unavailable("ended without an answer"))?;
        let strange = |error| Error::internal(format!("the process of {} printed {line}", self.name)).because(error);
        let document: Value = serde_json::from_str(&line).map_err(strange)?;
        if let Some(error) = document.get("error") {
            let kind = serde_json::from_value(error["kind"].clone()).unwrap_or(ErrorKind::Internal);
            return Err(Error::new(kind, error["message"].as_str().unwrap_or(&line)));
        }
        serde_json::from_value(document).map_err(strange)
    }

    /// Returns the only document of the process, after the process has exited.
    pub(crate) async fn answer<T: DeserializeOwned>(mut self, wait: Duration) -> Result<T, Error> {
        let answer = self.document(wait).await;
        match tokio::time::timeout(EXIT_WAIT, self.child.wait()).await {
            Ok(Ok(status)) if answer.is_err() || status.success() => answer,
            _ => Err(Error::internal(format!("the process of {} did not exit with code 0 in time", self.name))),
        }
    }

    /// Kills the process with SIGKILL and waits until it has exited.
    pub(crate) async fn kill(mut self) -> Result<(), Error> {
        let failed = |what: String| Error::internal(format!("{} was not killed: {what}", self.name));
        let killed = tokio::time::timeout(EXIT_WAIT, self.child.kill()).await;
        killed.map_err(|_| failed("it is still running".into()))?.map_err(|error| failed(error.to_string()))?;
        match self.child.wait().await {
            Ok(status) if status.signal() == Some(SIGKILL) => Ok(()),
            other => Err(failed(format!("it had already exited: {other:?}"))),
        }
    }

    /// The process id, while the process runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }
}
