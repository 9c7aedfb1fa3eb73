//! What the processes log: each to its stderr, which is a file in the run's folder. When a run fails, the ends are told.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use tracing_subscriber::EnvFilter;

/// What is logged, unless `RUST_LOG` says otherwise. No requests: agents ask all the time, and the tail is short.
const LEVELS: &str = "info,runlog_projector::server::requests=warn,apache_avro=error,hyper_util=error,reqwest=error";
/// How many lines at the end of each file are told.
const TAIL_LINES: usize = 40;
/// No line is told farther than this, bytes.
const LINE_BYTES_MAX: usize = 500;
const EXTENSION: &str = "log";

/// Starts the log of a process of the fleet.
pub fn start() {
    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LEVELS));
    tracing_subscriber::fmt().with_env_filter(levels).with_writer(io::stderr).with_ansi(false).init();
}

fn path(folder: &Path, process: &str) -> PathBuf {
    folder.join(process).with_extension(EXTENSION)
}

/// The file of a process. Each life goes on where the one before was killed.
pub(super) fn file(folder: &Path, process: &str) -> io::Result<File> {
    File::options().create(true).append(true).open(path(folder, process))
}

/// The last lines of a process.
pub(super) fn tail(folder: &Path, process: &str) -> String {
    let text = fs::read(path(folder, process)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].iter();
    let cut = |line: &&str| format!("  {}\n", &line[..line.floor_char_boundary(LINE_BYTES_MAX)]);
    format!("{process}, the last of {} lines:\n{}", lines.len(), tail.map(cut).collect::<String>())
}
