//! The machine and the versions of a measurement.

use serde::{Deserialize, Serialize};
use std::{fmt, fs, process::Command, thread};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory: String,
    pub system: String,
    /// The commit, with `+` if files differ from it.
    pub runlog: String,
    pub librdkafka: String,
    pub rustc: String,
    /// The load average of the minute before the run: the use of the machine by other processes.
    pub load_before: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let commit = read_output("git", &["describe", "--always", "--exclude=*", "--dirty=+"]);
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory: field("/proc/meminfo", "MemTotal"),
            system: read_output("uname", &["-sr"]),
            runlog: commit,
            librdkafka: rdkafka::util::get_rdkafka_version().1,
            rustc: read_output("rustc", &["--version"]),
            load_before: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next().map(str::to_owned))
                .unwrap_or_else(unknown),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, memory, system, runlog, librdkafka, rustc, load_before } = self;
        write!(
            f,
            "{cores} cores of {cpu}, {memory}, {system}; Runlog {runlog}, librdkafka {librdkafka}, {rustc}; load before: {load_before}."
        )
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The first value of `name` in a file of `name: value` lines.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or_else(unknown, |(_, value)| value.trim().to_owned())
}

fn read_output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    output.map_or_else(unknown, |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
