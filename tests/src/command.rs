//! The command, run as a user runs it: arguments in; exit code, stdout and stderr out.

use std::{
    env,
    ffi::OsStr,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// How long a command may take; a slower command is killed.
const RUN_WAIT: Duration = Duration::from_secs(120);
/// The pause between two checks of an ending process.
const LOOK: Duration = Duration::from_millis(2);

/// Variables that are removed, so that the environment of the test run does not configure the command.
const ENVIRONMENT: [&str; 14] = [
    "RUNLOG_SERVER",
    "RUNLOG_BROKERS",
    "RUNLOG_DATA",
    "RUNLOG_LISTEN",
    "RUNLOG_TOPIC",
    "RUNLOG_INSTANCE",
    "RUNLOG_PARTITIONS",
    "RUNLOG_CONTENT",
    "RUNLOG_CONSISTENCY",
    "RUNLOG_DEADLINE",
    "RUNLOG_CA",
    "RUNLOG_CLIENT_CERT",
    "RUNLOG_CLIENT_KEY",
    "RUST_LOG",
];

/// Returns the path of the binary: `RUNLOG_BIN`, else `bin/runlog` of the repository, else the binary that cargo built next to
/// this test.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("RUNLOG_BIN") {
        let named = PathBuf::from(named);
        ensure!(named.is_file(), "RUNLOG_BIN names {}, which is not a file", named.display());
        return Ok(named);
    }
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin/runlog");
    // A test is in TARGET/debug/deps.
    let test = env::current_exe()?;
    let beside = test.ancestors().nth(2).map(|folder| folder.join("runlog")).unwrap_or_default();
    for path in [&built, &beside] {
        if path.is_file() {
            return Ok(path.clone());
        }
    }
    bail!("no runlog at {} or {}: `make build` makes it, RUNLOG_BIN names another", built.display(), beside.display())
}

/// A command of the binary, without the variables of [`ENVIRONMENT`].
pub(crate) fn command() -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    for name in ENVIRONMENT {
        command.env_remove(name);
    }
    Ok(command)
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The arguments, for messages.
    pub line: String,
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Ran {
    /// Returns itself if the exit code is `code`, otherwise an error.
    pub fn exits(self, code: i32) -> anyhow::Result<Self> {
        ensure!(
            self.code == Some(code),
            "`runlog {}` ended with {:?} instead of {code}\nstdout: {}\nstderr: {}",
            self.line,
            self.code,
            head(&self.stdout),
            head(&self.stderr)
        );
        Ok(self)
    }

    /// The only document on stdout.
    pub fn json(&self) -> anyhow::Result<Value> {
        let mut documents = self.documents()?;
        ensure!(documents.len() == 1, "`runlog {}` printed {} documents", self.line, documents.len());
        documents.pop().context("one document")
    }

    /// The documents on stdout, one per line. Fails if there is other text.
    pub fn documents(&self) -> anyhow::Result<Vec<Value>> {
        let document = |line: &str| {
            serde_json::from_str(line).with_context(|| format!("`runlog {}` printed {}", self.line, head(line)))
        };
        self.stdout.lines().map(document).collect()
    }

    /// `error.kind` of the document on stdout.
    pub fn error_kind(&self) -> anyhow::Result<String> {
        let document = self.json()?;
        let error = &document["error"];
        ensure!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "no message in {document}");
        Ok(error["kind"].as_str().with_context(|| format!("no kind in {document}"))?.to_owned())
    }
}

fn head(text: &str) -> String {
    text.chars().take(2000).collect()
}

/// Runs commands against one server.
#[derive(Clone, Debug, Default)]
pub struct Runlog {
    server: Option<String>,
    token: Option<String>,
}

impl Runlog {
    /// Commands against the server at `url`.
    pub fn for_server(url: &str) -> Self {
        Self { server: Some(url.to_owned()), token: None }
    }

    /// The commands send this token.
    pub(crate) fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// Commands without a server.
    pub fn without_server() -> Self {
        Self::default()
    }

    /// Runs the arguments without `--json`.
    pub fn plain<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<Ran> {
        self.run(arguments, "", &[])
    }

    /// Runs them with `--json`.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<Ran> {
        self.run(arguments, "", &["--json"])
    }

    /// Runs them with `--json` and with `input` on stdin.
    pub fn json_with_input<S: AsRef<OsStr>>(&self, arguments: &[S], input: &str) -> anyhow::Result<Ran> {
        self.run(arguments, input, &["--json"])
    }

    /// Runs them with `--json`; returns the document, or an error if the exit code is not 0.
    pub fn answer<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<Value> {
        self.json(arguments)?.exits(0)?.json()
    }

    /// Publishes records. Fails unless each is applied.
    pub fn publish(&self, records: &[Value]) -> anyhow::Result<()> {
        let lines: Vec<String> = records.iter().map(Value::to_string).collect();
        for outcome in self.json_with_input(&["publish"], &lines.join("\n"))?.exits(0)?.documents()? {
            ensure!(outcome["outcome"] == "applied", "{outcome}");
        }
        Ok(())
    }

    /// Fails unless `verify` finds the indices equal to the log.
    pub fn verified(&self) -> anyhow::Result<()> {
        let verification = self.json(&["verify"])?.exits(0)?;
        ensure!(verification.json()?["equal"] == true, "verify: {}", verification.stdout);
        Ok(())
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S], input: &str, flags: &[&str]) -> anyhow::Result<Ran> {
        let mut command = command()?;
        // Global flags come first, because later arguments may begin with a hyphen.
        if let Some(server) = &self.server {
            command.arg("--server").arg(server);
        }
        command.args(flags).args(arguments).envs(self.token.as_ref().map(|token| ("RUNLOG_TOKEN", token)));
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        run(command, head(&words.join(" ")), input)
    }
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command, line: String, input: &str) -> anyhow::Result<Ran> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("`runlog {line}` does not start"))?;
    let stdout = collect(child.stdout.take().context("stdout is piped")?);
    let stderr = collect(child.stderr.take().context("stderr is piped")?);
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let input = input.to_owned();
    // A command that ends early closes its stdin, so a failed write is no error.
    let feeder = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let code = wait_for_exit(&mut child, RUN_WAIT).with_context(|| format!("`runlog {line}`"))?;
    let joined = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
    feeder.join().ok();
    Ok(Ran { line, code, stdout: joined(stdout), stderr: joined(stderr) })
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a process and returns its exit code; kills it and fails after `wait`.
pub(crate) fn wait_for_exit(child: &mut Child, wait: Duration) -> anyhow::Result<Option<i32>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if started.elapsed() > wait {
            child.kill()?;
            child.wait()?;
            bail!("it did not end within {wait:?} and was killed");
        }
        thread::sleep(LOOK);
    }
}
