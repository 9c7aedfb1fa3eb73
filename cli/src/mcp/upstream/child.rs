//! An MCP server that runs as a process. Its stderr is the gate's.

use super::{FromServer, ToServer};
use crate::{
    error::Error,
    mcp::{message::LINE_BYTES_MAX, stdio::LINES_MAX},
};
use runlog_schemas::answer::ErrorKind;
use rustix::process::{Pid, Signal, kill_process};
use std::{ffi::OsString, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    time::timeout,
};

/// Time for the process to end after its input ended, and then again after SIGTERM. Clients wait 2 s before they send SIGTERM.
const END_WAIT: Duration = Duration::from_millis(1500);

/// Starts the command. Its output ends with [`FromServer::Gone`].
pub(crate) fn start(
    command: &[OsString],
    lines: mpsc::Receiver<ToServer>,
) -> Result<(Child, mpsc::Receiver<FromServer>), Error> {
    let [program, arguments @ ..] = command else { return Err(Error::usage("a command is missing after --")) };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The gate ends it; a gate that is killed leaves it at the end of its input.
        .kill_on_drop(true)
        .spawn();
    let mut child = started.map_err(|error| {
        let what = format!("cannot start the MCP server {}", program.display());
        Error::new(ErrorKind::Usage, what).because(error)
    })?;
    let (sender, from_server) = mpsc::channel(LINES_MAX);
    if let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
        tokio::spawn(write(stdin, lines));
        tokio::spawn(read(stdout, sender));
    }
    Ok((child, from_server))
}

/// Writes until the queue is closed, and then closes the server's input.
async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<ToServer>) {
    while let Some(ToServer { line, .. }) = lines.recv().await {
        let written = async {
            stdin.write_all(format!("{line}\n").as_bytes()).await?;
            stdin.flush().await
        };
        // The reader sees the end of the server.
        if written.await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, sender: mpsc::Sender<FromServer>) {
    let mut stdout = BufReader::new(stdout);
    let why = loop {
        let mut line = Vec::new();
        match (&mut stdout).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line).await {
            Ok(_) if line.last() != Some(&b'\n') && line.len() > LINE_BYTES_MAX => {
                break format!("the MCP server sent a message of more than {LINE_BYTES_MAX} bytes");
            }
            Ok(_) if line.last() != Some(&b'\n') => break "the MCP server ended".to_owned(),
            Ok(_) => {
                line.pop();
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(FromServer::Line(line)).await.is_err() {
                    return;
                }
            }
            Err(error) => break format!("the output of the MCP server cannot be read: {error}"),
        }
    };
    drop(sender.send(FromServer::Gone(why)).await);
}

/// Waits for the end of a process whose input has ended. Then sends SIGTERM, then SIGKILL.
pub(crate) async fn end(mut child: Child) {
    if timeout(END_WAIT, child.wait()).await.is_ok() {
        return;
    }
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(END_WAIT, child.wait()).await.is_err() {
        drop(child.kill().await);
    }
}
