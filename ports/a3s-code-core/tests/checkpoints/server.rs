//! A server process. Dropping the value kills it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use runlog_a3s_code_core::{
    CheckpointSink,
    producer::{Config, Journal, Runlog},
};
use tempfile::TempDir;

/// A server and its folder.
pub(crate) struct Server {
    dir: TempDir,
    log: Vec<String>,
    /// `HOST:PORT`, unchanged by a restart.
    address: String,
    /// The brokers that sinks append to; `None` to append through the server.
    brokers: Option<String>,
    server: Child,
}

impl Server {
    /// On a local log.
    pub(crate) fn local() -> Self {
        Self::start(tempfile::tempdir().unwrap(), vec!["--local".to_owned()])
    }

    /// On a new topic.
    pub(crate) fn kafka() -> Self {
        let brokers = brokers();
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().file_name().and_then(|name| name.to_str()).unwrap();
        let topic = format!("heavy-{}", name.trim_start_matches('.'));
        Self::start(dir, ["--brokers", &brokers, "--topic", &topic, "--partitions", "2"].map(str::to_owned).into())
    }

    /// On a new topic; sinks append to the broker directly.
    #[cfg(feature = "kafka")]
    pub(crate) fn kafka_itself() -> Self {
        let mut server = Self::kafka();
        server.brokers = Some(brokers());
        server
    }

    fn start(dir: TempDir, log: Vec<String>) -> Self {
        let (server, address) = serve(&dir, &log, "127.0.0.1:0");
        Self { dir, log, address, brokers: None, server }
    }

    fn journal(&self) -> Journal {
        match &self.brokers {
            Some(brokers) => Journal::Kafka { brokers: brokers.clone(), server: self.url() },
            None => Journal::Http(self.url()),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts it again at the same address after [`Server::kill`].
    pub(crate) fn restart(&mut self) {
        (self.server, self.address) = serve(&self.dir, &self.log, &self.address);
    }

    /// A closure that starts it again from another thread.
    pub(crate) fn restarter(&self) -> impl FnOnce() -> Child + Send + use<> {
        let (dir, log, address) = (self.dir.path().to_owned(), self.log.clone(), self.address.clone());
        move || serve(&dir, &log, &address).0
    }

    /// Takes over a server process that [`Server::restarter`] started.
    pub(crate) fn adopt(&mut self, server: Child) {
        self.server = server;
    }

    /// Sends SIGSTOP: it neither answers nor closes connections. All its threads are stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.server.id());
        let start = Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().all(|task| is_stopped(&task.unwrap().path())) {
            assert!(start.elapsed() < Duration::from_secs(30), "the server is not stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGCONT after [`Server::pause`].
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.server.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) async fn runlog(&self) -> Runlog {
        runlog(self.journal()).await
    }

    /// A sink with a connection of its own, as another process has.
    pub(crate) async fn sink(&self) -> CheckpointSink {
        CheckpointSink::new(self.runlog().await).save_wait(Duration::from_secs(60))
    }
}

fn brokers() -> String {
    std::env::var("RUNLOG_BROKERS").expect("RUNLOG_BROKERS names a broker")
}

async fn runlog(journal: Journal) -> Runlog {
    Runlog::connect(Config::new(journal, "test")).await.expect("a journal")
}

/// A sink on a server's journal.
pub(crate) async fn sink(url: &str) -> CheckpointSink {
    CheckpointSink::new(runlog(Journal::Http(url.to_owned())).await).save_wait(Duration::from_secs(60))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// Whether a thread, by its folder in /proc, is stopped.
fn is_stopped(task: &Path) -> bool {
    let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

fn serve(dir: impl AsRef<Path>, log: &[String], address: &str) -> (Child, String) {
    let runlog = std::env::var_os("RUNLOG_BIN").expect("RUNLOG_BIN names the command");
    let mut command = Command::new(runlog);
    command.args(["--json", "serve", "--listen", address, "--data"]).arg(dir.as_ref()).args(log);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    // The rest is read, so that it never has to wait for a full pipe.
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let says: serde_json::Value = serde_json::from_str(&line).expect("the server says where it listens");
    let address = says["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    (server, address)
}
