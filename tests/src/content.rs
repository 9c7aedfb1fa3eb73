//! Content that is too large for a record, and an S3 server to hold it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use runlog_content::Config;
use serde_json::Value;

use crate::server::client;

/// How long the server may take to report its address.
const START_WAIT: Duration = Duration::from_secs(60);

/// Text of this many bytes, generated from `seed` without repetition.
pub fn text(bytes: usize, seed: u64) -> String {
    let mut state = seed;
    let mut letters = String::with_capacity(bytes);
    while letters.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        letters.extend(state.to_be_bytes()[..4].iter().map(|byte| char::from(b'a' + byte % 26)));
    }
    letters.truncate(bytes);
    letters
}

/// The objects of a content store in a folder, by name; without the incomplete files of killed uploads.
pub fn objects(content: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut by_name = BTreeMap::new();
    let Ok(folders) = std::fs::read_dir(content.join("sha256")) else { return Ok(by_name) };
    for folder in folders {
        for object in std::fs::read_dir(folder?.path())? {
            let path = object?.path();
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            if name.len() == 64 {
                by_name.insert(name, path);
            }
        }
    }
    Ok(by_name)
}

/// The content hash in the run's record of this type, from the reference that `show` returns.
pub fn named(lines: &[Value], payload_type: &str) -> anyhow::Result<String> {
    let line =
        lines.iter().find(|line| line["payload_type"] == payload_type && line["payload"]["type"] == "stored_payload");
    let line = line.with_context(|| format!("no {payload_type} is held elsewhere"))?;
    Ok(line["payload"]["sha256"].as_str().context("a hash")?.to_owned())
}

/// moto's server, which implements S3. Dropping it kills it.
#[derive(Debug)]
pub struct S3 {
    child: Child,
    /// `http://HOST:PORT`.
    pub endpoint: String,
}

impl S3 {
    /// Starts it on a free port.
    pub fn start() -> anyhow::Result<Self> {
        let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/venv.sh");
        let made = Command::new(&venv).stdin(Stdio::null()).output()?;
        ensure!(made.status.success(), "{}: {}", venv.display(), String::from_utf8_lossy(&made.stderr));
        let python = String::from_utf8(made.stdout)?;
        let mut command = Command::new(python.trim_end());
        command.args(["-I", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context("moto's server does not start")?;
        let mut server = Self { child, endpoint: String::new() };
        let stderr = BufReader::new(server.child.stderr.take().context("stderr is piped")?);
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            // Reads to the end, so that the server never blocks on a full pipe.
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("Running on ") {
                    send.send(url.trim().to_owned()).ok();
                }
            }
        });
        server.endpoint = receive.recv_timeout(START_WAIT).context("moto's server did not start")?;
        Ok(server)
    }

    /// Creates a bucket, and returns the configuration of a store in it.
    pub async fn bucket(&self, name: &str) -> anyhow::Result<Config> {
        let made = client()?.put(format!("{}/{name}", self.endpoint)).send().await?;
        ensure!(made.status().is_success(), "the bucket was not made: {}", made.status());
        let options = [
            ("endpoint", self.endpoint.as_str()),
            ("region", "us-east-1"),
            ("access_key_id", "test"),
            ("secret_access_key", "test"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Ok(Config { options, ..Config::new(format!("s3://{name}/runlog/content")) })
    }

    /// Changes an object without the store; `method` is PUT or DELETE.
    pub async fn meddle(&self, method: &str, bucket: &str, sha256: &str, body: Vec<u8>) -> anyhow::Result<()> {
        let url = format!("{}/{bucket}/runlog/content/sha256/{}/{sha256}", self.endpoint, &sha256[..2]);
        // moto requires credentials, but does not check the signature.
        let who =
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let request = client()?.request(method.parse()?, url).header("Authorization", who).body(body);
        let answer = request.send().await?;
        ensure!(answer.status().is_success(), "{method} {sha256}: {}", answer.status());
        Ok(())
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
