//! The demo's journal: local log, projector and HTTP server in this process.

use crate::error::Error;
use runlog_projector::{Clock, Config, Consistency, Projector, open};
use runlog_schemas::{answer::Verification, id::PartitionId};
use runlog_server::{Options, serve};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// Time limit for the requests in flight when the journal ends.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit for the index to catch up with the log.
const CATCH_UP_WAIT: Duration = Duration::from_secs(120);

/// The settings of a journal.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The folder of log, index and ledger.
    pub folder: PathBuf,
    /// Milliseconds since the Unix epoch.
    pub clock: Clock,
    /// Makes a random id.
    pub random_id: fn() -> String,
}

/// Serves the web page too.
fn options() -> Options {
    let mut options = Options::default();
    options.page = true;
    options
}

/// A running journal.
#[derive(Debug)]
pub(crate) struct Journal {
    setup: Setup,
    address: SocketAddr,
    pub(crate) projector: Arc<Projector>,
    end: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Journal {
    /// Opens or creates the journal, and serves it at a free port.
    pub(crate) async fn start(setup: Setup) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed("no port to listen at"))?;
        Self::start_at(setup, listener).await
    }

    pub(crate) async fn start_at(setup: Setup, listener: TcpListener) -> Result<Self, Error> {
        let address = listener.local_addr().map_err(failed("the listener has no address"))?;
        let projector = open::local(Config::new(&setup.folder, setup.clock, setup.random_id)).await?;
        let projector = Arc::new(projector);
        let (end, ended) = oneshot::channel();
        let until = async {
            // An error means that the sender was dropped. End then too.
            let _ = ended.await;
        };
        let server = tokio::spawn(serve(listener, Arc::clone(&projector), options(), until, GRACE));
        Ok(Self { setup, address, projector, end, server })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until all records of the log are applied.
    pub(crate) async fn caught_up(&self) -> Result<(), Error> {
        for partition in PartitionId::all(self.projector.journal().partitions) {
            self.projector.wait(partition, Consistency::Latest, CATCH_UP_WAIT).await?;
        }
        Ok(())
    }

    /// Compares the indices with the log.
    pub(crate) async fn verify(&self) -> Result<Verification, Error> {
        let (projector, start) = (Arc::clone(&self.projector), Instant::now());
        let verified = tokio::task::spawn_blocking(move || projector.verify()).await;
        let mut verified = verified.map_err(failed("the verification panicked"))??;
        verified.seconds = start.elapsed().as_secs_f64();
        Ok(verified)
    }

    /// Ends the server, then the projector. Returns when log and index are closed.
    pub(crate) async fn end(self) -> Result<Setup, Error> {
        // An error means that the server has ended already.
        let _ = self.end.send(());
        self.server.await.map_err(failed("the server panicked"))?;
        let projector = self.projector;
        let closed = tokio::task::spawn_blocking(move || {
            projector.end();
            Arc::into_inner(projector).is_some()
        });
        match closed.await.map_err(failed("the projector panicked"))? {
            true => Ok(self.setup),
            false => Err(Error::internal("cannot close the journal: a request is still in flight")),
        }
    }

    /// Ends the journal and deletes its index.
    pub(crate) async fn end_without_index(self) -> Result<Setup, Error> {
        let setup = self.end().await?;
        std::fs::remove_dir_all(setup.folder.join("index")).map_err(failed("the index cannot be removed"))?;
        Ok(setup)
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(what: &str) -> impl Fn(E) -> Error {
    move |error| Error::internal(what).because(error)
}
