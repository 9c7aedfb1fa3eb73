//! Reads of the index on a thread that may block.

use runlog_projector::index::{error::Error, projector::Projector};
use runlog_schemas::{answer::ErrorKind, id::RunId};
use std::sync::Arc;

/// Runs a read of the index on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    read: impl FnOnce(&Projector, RunId<&str>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (reader, run_id) = (Arc::clone(projector), run_id.to_owned());
    let read = projector.read(move || read(&reader, run_id.borrow()));
    read.await.map_err(|error| Error::new(ErrorKind::Internal, "a read of the index panicked").because(error))?
}
