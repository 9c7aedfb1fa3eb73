//! A server of this test's own, and the command run against it.

use serde_json::Value;
use std::{
    fmt::Write as _,
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Requests in flight in these tests have a deadline of a minute, and a tail has none: a server that waited for them would exit
/// later than this.
const EXIT_WAIT: Duration = Duration::from_secs(30);

/// Returns a command without the variables of the tests' own environment.
pub(super) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runlog"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUNLOG_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl CommandResult {
    pub(super) fn new(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the documents on stdout, one a line.
    pub(super) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"))).collect()
    }

    /// Returns the only document on stdout.
    pub(super) fn json(&self) -> Value {
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.remove(0)
    }

    /// Checks the exit code. Returns the document on stdout.
    pub(super) fn is(&self, code: i32) -> Value {
        assert_eq!(self.code, code, "{self:?}");
        self.json()
    }

    /// Checks the exit code. Returns the kind of error.
    pub(super) fn error(&self, code: i32) -> String {
        self.is(code)["error"]["kind"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// Runs a command that needs no server.
pub(super) fn run(arguments: &[&str]) -> CommandResult {
    CommandResult::new(command().args(arguments).output().unwrap())
}

/// Runs a command line without quoted words.
pub(super) fn run_line(line: &str) -> CommandResult {
    run(&line.split(' ').collect::<Vec<_>>())
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
    pub(super) partitions: u64,
}

impl Server {
    /// Serves the local log in `data`. Returns once the server listens.
    pub(super) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::launch(data, "127.0.0.1:0", flags)
    }

    /// Starts a server at an address.
    pub(super) fn start_at(data: &Path, address: &str) -> Self {
        Self::launch(data, address, &[])
    }

    /// Starts a server that writes its log to a file.
    pub(super) fn start_logged(data: &Path, flags: &[&str], log: &Path) -> Self {
        Self::launch_with(data, "127.0.0.1:0", flags, File::create(log).unwrap().into())
    }

    fn launch(data: &Path, address: &str, flags: &[&str]) -> Self {
        Self::launch_with(data, address, &[flags, &["-q"]].concat(), Stdio::inherit())
    }

    fn launch_with(data: &Path, address: &str, flags: &[&str], stderr: Stdio) -> Self {
        let mut command = command();
        command.args(["serve", "--local", "--listen", address, "--data"]).arg(data).args(flags);
        let mut child = command.stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: line["listening"].as_str().unwrap().to_owned(),
            partitions: line["partitions"].as_u64().unwrap(),
        }
    }

    /// Returns the command line, as other users of this machine read it.
    pub(super) fn command_line(&self) -> String {
        String::from_utf8(std::fs::read(format!("/proc/{}/cmdline", self.child.id())).unwrap()).unwrap()
    }

    /// Runs a command on this server, with `--json`.
    pub(super) fn ask(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::new(self.command(arguments).arg("--json").output().unwrap())
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command();
        command.env("RUNLOG_SERVER", &self.url).args(arguments);
        command
    }

    /// Publishes lines through stdin.
    pub(super) fn publish(&self, lines: &str) -> CommandResult {
        let mut child = self.command(&["publish", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Both pipes fill, so read the output while writing the input.
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
            CommandResult::new(child.wait_with_output().unwrap())
        })
    }

    /// Publishes records of one run, all of which must be applied.
    pub(super) fn publish_applied(&self, run_id: &str, payloads: &[(&str, &str)]) {
        let lines = payloads.iter().fold(String::new(), |mut lines, (id, payload)| {
            writeln!(lines, r#"{{"run_id":"{run_id}","record_id":"{id}","payload":{payload}}}"#).unwrap();
            lines
        });
        let result = self.publish(&lines);
        assert_eq!(result.code, 0, "{result:?}");
        assert!(result.lines().iter().all(|outcome| outcome["outcome"] == "applied"), "{result:?}");
    }

    /// Sends a signal and waits until the server exits. Returns the exit code. Fails after [`EXIT_WAIT`].
    pub(super) fn signal(mut self, name: &str) -> i32 {
        let start = Instant::now();
        let killed = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        while start.elapsed() < EXIT_WAIT {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not exit within {EXIT_WAIT:?} of SIG{name}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server in a folder that lasts as long as the test.
pub(super) fn server() -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    (folder, server)
}

/// Returns the status and the body of a plain GET.
pub(super) fn get(url: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Writes a file into a folder.
pub(super) fn file(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}
