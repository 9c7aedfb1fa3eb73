//! The logs of the processes: the stderr of each is a file in the run's folder. A failed run reports the end of each file.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use tracing_subscriber::EnvFilter;

/// The log filter unless `RUST_LOG` is set. Requests are left out: agents send many, and the reported end is short.
const LEVELS: &str = "info,runlog_server::requests=warn,apache_avro=error,hyper_util=error,reqwest=error";
/// The reported lines at the end of each file.
const TAIL_LINES: usize = 40;
/// The reported length of a line at most, bytes.
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

/// The log file of a process. A restarted process appends to it.
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
