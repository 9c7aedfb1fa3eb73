//! The demo's journal: local log, projector and HTTP server in this process.

use crate::Error;
use runlog_projector::{Config, Consistency, Projector, open};
use runlog_schemas::{
    answer::{ErrorKind, Verification},
    id::PartitionId,
};
use runlog_server::{access::AllowedHosts, serve};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// Time limit for the requests in flight when the journal ends.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit for the index to catch up with the log.
const CATCH_UP_WAIT: Duration = Duration::from_secs(120);

/// A running journal.
#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
    address: SocketAddr,
    projector: Arc<Projector>,
    end: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Journal {
    /// Opens or creates the journal in `dir`, and serves it.
    pub(super) async fn start(dir: &Path, listener: TcpListener) -> Result<Self, Error> {
        let address = listener.local_addr().map_err(|error| internal_error("the listener has no address", error))?;
        let projector = open::local(Config::new(dir, crate::now_millis, crate::random_id)).await?;
        let projector = Arc::new(projector);
        let (end, ended) = oneshot::channel();
        let until = async {
            // An error means that the sender was dropped. End then too.
            let _ = ended.await;
        };
        let server = tokio::spawn(serve(listener, Arc::clone(&projector), AllowedHosts::default(), until, GRACE));
        Ok(Self { dir: dir.to_owned(), address, projector, end, server })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn projector(&self) -> &Arc<Projector> {
        &self.projector
    }

    /// Waits until all records of the log are applied.
    pub(super) async fn caught_up(&self) -> Result<(), Error> {
        for partition in PartitionId::all(self.projector.journal().partitions) {
            self.projector.wait(partition, Consistency::Latest, CATCH_UP_WAIT).await?;
        }
        Ok(())
    }

    /// Compares the indices with the log.
    pub(super) async fn verify(&self) -> Result<Verification, Error> {
        let (projector, begun) = (Arc::clone(&self.projector), Instant::now());
        let verified = tokio::task::spawn_blocking(move || projector.verify()).await;
        let mut verified = verified.map_err(|error| internal_error("the verification panicked", error))??;
        verified.seconds = begun.elapsed().as_secs_f64();
        Ok(verified)
    }

    /// Ends the server, then the projector. Returns when log and index are closed.
    pub(super) async fn end(self) -> Result<(), Error> {
        // An error means that the server has ended already.
        let _ = self.end.send(());
        self.server.await.map_err(|error| internal_error("the server panicked", error))?;
        let projector = self.projector;
        let closed = tokio::task::spawn_blocking(move || {
            projector.end();
            Arc::into_inner(projector).is_some()
        });
        match closed.await.map_err(|error| internal_error("the projector panicked", error))? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Internal, "cannot close the journal: a request is still in flight")),
        }
    }

    /// Ends the journal and deletes its index.
    pub(super) async fn end_without_index(self) -> Result<(), Error> {
        let index = self.dir.join("index");
        self.end().await?;
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(index)).await;
        let removed = removed.map_err(|error| internal_error("removing the index panicked", error))?;
        removed.map_err(|error| internal_error("the index cannot be removed", error))
    }
}

/// Listens at a free port.
pub(super) async fn any_port() -> Result<TcpListener, Error> {
    TcpListener::bind("127.0.0.1:0").await.map_err(|error| internal_error("no port to listen at", error))
}

fn internal_error(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, what).because(error)
}
