//! The application's process: its arguments, its output, and its costs.

use anyhow::{Context, ensure};
use runlog_tests::programs::{here, output};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::questions::Journal;
use crate::{
    measure::{Cost, cpu, peak_mib},
    peers,
    served::LONG,
};

/// The compiled application.
#[derive(Debug)]
pub(crate) struct Streams {
    jars: PathBuf,
    classes: tempfile::TempDir,
}

/// The processing guarantee of an application, and whether it has changelogs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    name: &'static str,
    pub(super) changelog: bool,
}

pub(super) const WITHOUT: Guarantee = Guarantee { name: "at_least_once", changelog: false };
pub(super) const AT_LEAST_ONCE: Guarantee = Guarantee { name: "at_least_once", changelog: true };
pub(super) const EXACTLY_ONCE: Guarantee = Guarantee { name: "exactly_once_v2", changelog: true };

impl Streams {
    pub(crate) fn install() -> anyhow::Result<Self> {
        let (jars, classes) = (peers::jars()?, tempfile::tempdir()?);
        let mut compiler = Command::new("javac");
        compiler.arg("-cp").arg(jars.join("*")).arg("-d").arg(classes.path());
        output(compiler.arg(here("peers/StreamsIndex.java")))?;
        Ok(Self { jars, classes })
    }

    /// Starts the application. It exits once it has applied `records` records (0 is allowed) and answered.
    pub(super) fn start(&self, journal: &Journal, state: &State, records: u64) -> anyhow::Result<Application> {
        let complaints = state.dir.path().join("stderr.txt");
        let mut java = Command::new("java");
        java.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"]);
        java.arg(format!("{}:{}", self.jars.join("*").display(), self.classes.path().display()));
        java.args(["StreamsIndex", &journal.topic.brokers, &journal.topic.topic, &state.application]);
        java.arg(state.stores()).args([state.guarantee.name, &state.guarantee.changelog.to_string()]);
        let schemas = ["v1", "v2"].map(|version| here(&format!("../schemas/avsc/{version}/JournalRecord.avsc")));
        java.arg(std::env::join_paths(schemas)?).arg(records.to_string()).arg(&journal.questions_file);
        java.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&complaints)?);
        let mut child = java.spawn().context("java")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                send.send(line).ok();
            }
        });
        Ok(Application { child, lines, complaints })
    }
}

/// A running application. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Application {
    child: Child,
    lines: mpsc::Receiver<String>,
    complaints: PathBuf,
}

/// A line of the process, with its time and the CPU time used so far.
#[derive(Clone, Debug)]
pub(super) struct OutputLine {
    pub(super) rest: String,
    at: Instant,
    cpu: Duration,
}

impl OutputLine {
    /// The cost of `records` records from this line to `end`.
    pub(super) fn cost_until(&self, end: &Self, records: u64) -> Cost {
        Cost { records, wall: end.at - self.at, cpu: end.cpu.saturating_sub(self.cpu) }
    }
}

impl Application {
    /// Waits for a line that begins with a word.
    pub(super) fn says(&self, word: &str) -> anyhow::Result<OutputLine> {
        let line = self.lines.recv_timeout(LONG).ok();
        let rest = line.as_deref().and_then(|line| line.strip_prefix(word));
        // Only the beginning: the first failure is the cause, and stack traces are long.
        let complaints =
            || fs::read_to_string(&self.complaints).unwrap_or_default().chars().take(2_000).collect::<String>();
        let rest = rest.with_context(|| format!("Streams printed {line:?} and not {word}: {}", complaints()))?;
        Ok(OutputLine {
            rest: rest.trim_start().to_owned(),
            at: Instant::now(),
            cpu: cpu(&self.child.id().to_string())?,
        })
    }

    /// Its peak resident memory, MiB.
    pub(super) fn peak_mib(&self) -> anyhow::Result<f64> {
        peak_mib(self.child.id())
    }

    /// Its answers; returns when it has committed and exited.
    pub(super) fn answers(mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let answers = (0..count).map(|_| Ok(self.says("answer")?.rest)).collect::<anyhow::Result<Vec<_>>>()?;
        self.says("ended")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "Streams ended with {status}");
        Ok(answers)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // It has exited already unless a step failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The folder and the topics of an application.
#[derive(Debug)]
pub(super) struct State {
    application: String,
    guarantee: Guarantee,
    dir: tempfile::TempDir,
}

impl State {
    pub(super) fn new(guarantee: Guarantee) -> anyhow::Result<Self> {
        Ok(Self { application: crate::id(), guarantee, dir: tempfile::tempdir()? })
    }

    pub(super) fn stores(&self) -> PathBuf {
        self.dir.path().join("stores")
    }
}
