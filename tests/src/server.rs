//! A server process that tests kill, pause and restart. Dropping the value ends it.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use runlog_log::kafka::KafkaConfig;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{self, Ran, Runlog};

/// How long a server may take to report its address.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a server may take to shut down, as its documentation promises.
const END_WAIT: Duration = Duration::from_secs(10);
/// How long an answer over HTTP may take.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The arguments of a server; the same value starts it again.
#[derive(Clone, Debug)]
pub struct Launch {
    dir: PathBuf,
    arguments: Vec<String>,
    temporary: Option<Arc<TempDir>>,
    token: Option<String>,
}

impl Launch {
    /// On a local log under `dir`.
    pub fn local(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), arguments: vec!["--local".into()], temporary: None, token: None }
    }

    /// On a local log in a new folder, which is deleted with this value and its servers.
    pub fn temporary() -> anyhow::Result<Self> {
        let folder = Arc::new(tempfile::tempdir()?);
        Ok(Self { temporary: Some(folder.clone()), ..Self::local(folder.path()) })
    }

    /// On a topic, with its indices under `dir`.
    pub fn kafka(dir: &Path, config: &KafkaConfig) -> Self {
        let arguments = ["--brokers", &config.brokers, "--topic", &config.topic].map(str::to_owned);
        Self { dir: dir.to_owned(), arguments: arguments.into(), temporary: None, token: None }
    }

    /// With another argument.
    #[must_use]
    pub fn with(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// With `--partitions`.
    #[must_use]
    pub fn partitions(self, count: u32) -> Self {
        self.with("--partitions").with(&count.to_string())
    }

    /// With a token of an agent, which decides nothing, at schema version 3: results of such a credential are limited to its own calls.
    pub fn with_token(mut self) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&self.dir)?;
        let tokens = self.dir.join("tokens.json").display().to_string();
        let flags = ["--principal", "agent", "--scope", "append,read_meta,read_content", "--runs", "*"];
        let create = [&["token", "create", "--tokens", tokens.as_str()], &flags[..]].concat();
        let created = Runlog::without_server().answer(&create)?;
        self.token = Some(created["token"].as_str().context("a token")?.to_owned());
        Ok(self.with("--tokens").with(&tokens).with("--write-schema").with("3"))
    }

    /// With a projector that does not consume.
    #[must_use]
    pub fn paused(self) -> Self {
        self.with("--paused")
    }

    /// The folder of log and indices.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn command(&self) -> anyhow::Result<Command> {
        let mut command = command::command()?;
        command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.dir).args(&self.arguments);
        Ok(command)
    }

    /// Runs a server that exits before it serves.
    pub fn refused(&self) -> anyhow::Result<Ran> {
        command::run(self.command()?, format!("serve {}", self.arguments.join(" ")), "")
    }

    /// Starts it, and waits until it listens.
    pub fn start(&self) -> anyhow::Result<Server> {
        std::fs::create_dir_all(&self.dir)?;
        let complaints = self.dir.join(".stderr.txt");
        let stderr = File::options().create(true).append(true).open(&complaints)?;
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let child = command.spawn().context("the server does not start")?;
        let folder = self.temporary.clone();
        let token = self.token.clone();
        let mut server = Server { child, url: String::new(), partitions: 0, token, complaints, _folder: folder };
        let stdout = server.child.stdout.take().context("stdout is piped")?;
        let first = first_line(stdout).recv_timeout(START_WAIT).ok().filter(|line| !line.is_empty());
        let first = first.ok_or_else(|| {
            let status =
                server.child.try_wait().ok().flatten().map_or("still running".to_owned(), |status| status.to_string());
            anyhow!("the server did not start, {status}: {}", server.stderr())
        })?;
        let says: Value = serde_json::from_str(&first).with_context(|| format!("its first line is {first}"))?;
        server.url = says["listening"].as_str().with_context(|| format!("no URL in {first}"))?.to_owned();
        server.partitions = says["partitions"].as_u64().with_context(|| format!("no count in {first}"))?.try_into()?;
        Ok(server)
    }
}

/// The first line of a stream. Also reads the rest, so that the process never blocks on a full pipe.
fn first_line(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line).ok();
        send.send(line).ok();
        std::io::copy(&mut stdout.by_ref(), &mut std::io::sink()).ok();
    });
    receive
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    complaints: PathBuf,
    /// Its URL: `http://HOST:PORT`, or `https://…` with TLS.
    pub url: String,
    /// The journal's partition count.
    pub partitions: u32,
    /// The token that its clients send.
    pub token: Option<String>,
    _folder: Option<Arc<TempDir>>,
}

impl Server {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Commands against this server.
    pub fn runlog(&self) -> Runlog {
        Runlog::for_server(&self.url).with_token(self.token.clone())
    }

    /// Its stderr so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.complaints).unwrap_or_default()
    }

    /// Sends SIGKILL; returns when the process has ended.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGKILL and starts another server on the same data folder.
    pub fn restart(&mut self, launch: &Launch) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        *self = launch.start()?;
        Ok(())
    }

    /// Ends the server with SIGTERM, so that it writes its whole index to disk, and starts it.
    pub fn restart_whole(&mut self, launch: &Launch) -> anyhow::Result<()> {
        self.signal("TERM")?;
        command::wait_for_exit(&mut self.child, END_WAIT)?;
        *self = launch.start()?;
        Ok(())
    }

    /// Sends SIGTERM; returns the exit code and the time until the exit.
    pub fn terminate(mut self) -> anyhow::Result<(Option<i32>, Duration)> {
        let started = Instant::now();
        self.signal("TERM")?;
        let code = command::wait_for_exit(&mut self.child, END_WAIT)?;
        Ok((code, started.elapsed()))
    }

    /// Waits until it ends by itself; returns the exit code and its stderr.
    pub fn await_end(mut self) -> anyhow::Result<(Option<i32>, String)> {
        let code = command::wait_for_exit(&mut self.child, END_WAIT)?;
        Ok((code, self.stderr()))
    }

    /// Sends SIGHUP: the server reads its certificates and tokens again.
    pub fn hang_up(&self) -> anyhow::Result<()> {
        self.signal("HUP")
    }

    /// Waits until its stderr contains `text`.
    pub fn await_complaint(&self, text: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        while !self.stderr().contains(text) {
            ensure!(started.elapsed() < END_WAIT, "no {text:?} in {}", self.stderr());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends SIGSTOP: the server neither answers nor closes connections.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal("STOP")
    }

    /// Sends SIGCONT: ends [`Server::stop`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(sent.success(), "SIG{name} was not sent: {sent}");
        Ok(())
    }

    /// Sends GET; `path` begins with a slash and is encoded. Returns the status and the body.
    pub fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        exchange(client()?.get(format!("{}{path}", self.url)))
    }

    /// Sends POST with a JSON body; returns the status and the body.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        exchange(client()?.post(format!("{}{path}", self.url)).json(body))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A client for servers on this machine.
pub fn client() -> anyhow::Result<reqwest::Client> {
    Ok(runlog_producer::Tls::default().http_client(false)?.no_proxy().timeout(ANSWER_WAIT).build()?)
}

/// Sends the request on a new runtime; must not be called inside another one.
fn exchange(request: reqwest::RequestBuilder) -> anyhow::Result<(u16, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let response = request.send().await?;
        let status = response.status().as_u16();
        let body = response.text().await?;
        // Answers that are not JSON (health, metrics) are returned as text.
        Ok((status, serde_json::from_str(&body).unwrap_or(Value::String(body))))
    })
}
