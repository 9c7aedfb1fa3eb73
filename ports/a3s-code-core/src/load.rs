//! Loads the last checkpoint of a run.

use crate::{error::LoadError, form};
use a3s_code_core::loop_checkpoint::LoopCheckpoint;
use runlog_ports::producer::Runlog;

/// The run's last checkpoint. `None` if the log proves that there is none.
pub(crate) async fn load(runlog: &Runlog, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
    let journal = LoadError::journal(run_id);
    // Read first: a checkpoint that is saved between the two reads is a later checkpoint, which is correct too.
    let Some(run) = runlog.run(run_id).await.map_err(&journal)? else { return Ok(None) };
    let last = run.next_checkpoint_seq.saturating_sub(1);
    let answer = runlog.checkpoint(run_id, None).await.map_err(&journal)?;
    let checkpoint_seq = answer.as_ref().map(|checkpoint| checkpoint.checkpoint_seq);
    if checkpoint_seq.unwrap_or(0) < last {
        return Err(LoadError::NotTheLast { run_id: run_id.to_owned(), last, found: checkpoint_seq });
    }
    answer.map_or(Ok(None), |checkpoint| form::checkpoint(run_id, &checkpoint))
}
