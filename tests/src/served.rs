//! A server inside the test process, on its own port. [`server`](crate::server) starts a server process that can be
//! killed.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use runlog_content::Store;
use runlog_log::Log;
use runlog_projector::{Config, Projector};
use runlog_server::{Options, access::AllowedHosts, serve};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::server::client;

/// The grace period of the server's shutdown; unused, because the server never shuts down.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until the runtime ends. Returns the address.
pub async fn start(projector: Arc<Projector>, options: impl Into<Options>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, projector, options.into(), std::future::pending(), GRACE));
    Ok(address)
}

/// A server over a log, with its folder, which is deleted with it, and a client.
#[derive(Debug)]
pub struct Served {
    /// Its projector.
    pub projector: Arc<Projector>,
    /// Where it listens.
    pub address: SocketAddr,
    /// A client.
    pub http: reqwest::Client,
    _folder: TempDir,
}

impl Served {
    /// Starts it with the defaults.
    pub async fn over(log: Arc<dyn Log>) -> anyhow::Result<Self> {
        Self::with(log, id, AllowedHosts::default()).await
    }

    /// Starts it with another source of ids and other options.
    pub async fn with(log: Arc<dyn Log>, ids: fn() -> String, options: impl Into<Options>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let projector = Arc::new(Projector::start(Config::new(folder.path(), || 0, ids), log).await?);
        let address = start(projector.clone(), options).await?;
        Ok(Self { projector, address, http: client()?, _folder: folder })
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends GET; returns the status and the body.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        exchange(self.http.get(self.url(path))).await
    }

    /// Sends POST; returns the status and the body.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        exchange(self.http.post(self.url(path)).json(body)).await
    }
}

async fn exchange(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("a body in JSON"))
}

/// An id that is unique in this process, for servers that append their own records.
pub fn id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("id-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A content store in a folder.
pub fn content(folder: &Path) -> anyhow::Result<Store> {
    let config = runlog_content::Config::new(format!("file:{}", folder.display()));
    Store::open(&config).context("no content store")
}
