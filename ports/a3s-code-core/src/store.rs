//! A session store that keeps its loop checkpoints in the journal and everything else in another store.

use crate::sink::CheckpointSink;
use a3s_code_core::{
    loop_checkpoint::LoopCheckpoint,
    orchestration::WorkflowCheckpoint,
    run::RunRecord,
    store::{
        SessionData, SessionSnapshotV1, SessionStore, SessionStoreCapabilities, SessionStoreCommitWatch,
        SessionStoreWriterLeaseV1,
    },
    subagent_task_tracker::SubagentTaskSnapshot,
    tools::ArtifactStore,
    trace::TraceEvent,
    verification::VerificationReport,
};
use anyhow::Result;
use std::{fmt, sync::Arc};

/// A session store whose loop checkpoints are in the journal. Pass it to `SessionOptions::with_session_store`, the only place
/// where version 9.1.3 accepts a store for its sessions' checkpoints. Sessions, artifacts, events and workflow checkpoints are in
/// the wrapped store.
///
/// A session's `resume_run` reads from this store, which can return errors: nothing panics here.
pub struct CheckpointedStore {
    sink: Arc<CheckpointSink>,
    rest: Arc<dyn SessionStore>,
}

impl CheckpointedStore {
    /// Keeps the loop checkpoints in `sink` and everything else in `rest`.
    pub fn new(sink: Arc<CheckpointSink>, rest: Arc<dyn SessionStore>) -> Self {
        Self { sink, rest }
    }

    /// The sink of the loop checkpoints.
    pub fn sink(&self) -> &Arc<CheckpointSink> {
        &self.sink
    }
}

impl fmt::Debug for CheckpointedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sink, rest) = (&self.sink, self.rest.backend_name());
        f.debug_struct("CheckpointedStore").field("sink", sink).field("rest", &rest).finish()
    }
}

#[async_trait::async_trait]
impl SessionStore for CheckpointedStore {
    /// An error if the checkpoint is lost; the caller logs it as a warning. The sink counts it too.
    async fn save_loop_checkpoint(&self, run_id: &str, checkpoint: &LoopCheckpoint) -> Result<()> {
        checkpoint.ensure_addressed_by(run_id)?;
        self.sink.save(checkpoint).await.map_err(anyhow::Error::from)
    }

    /// As [`CheckpointSink::try_load`].
    async fn load_loop_checkpoint(&self, run_id: &str) -> Result<Option<LoopCheckpoint>> {
        Ok(self.sink.try_load(run_id).await?)
    }

    /// As [`CheckpointSink::delete`].
    async fn delete_loop_checkpoint(&self, run_id: &str) -> Result<()> {
        Ok(self.sink.delete(run_id).await?)
    }

    /// The setting of the wrapped store. It does not encrypt checkpoints in the journal.
    fn capabilities(&self) -> SessionStoreCapabilities {
        SessionStoreCapabilities { encrypted_at_rest: false, ..self.rest.capabilities() }
    }

    fn backend_name(&self) -> &str {
        self.rest.backend_name()
    }

    /// That of the wrapped store, and whether the journal answers.
    async fn health_check(&self) -> Result<()> {
        self.rest.health_check().await?;
        self.sink.runlog().run("health").await?;
        Ok(())
    }

    async fn save(&self, session: &SessionData) -> Result<()> {
        self.rest.save(session).await
    }

    async fn load(&self, id: &str) -> Result<Option<SessionData>> {
        self.rest.load(id).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.rest.delete(id).await
    }

    async fn list(&self) -> Result<Vec<String>> {
        self.rest.list().await
    }

    async fn exists(&self, id: &str) -> Result<bool> {
        self.rest.exists(id).await
    }

    async fn save_snapshot(&self, snapshot: &SessionSnapshotV1) -> Result<()> {
        self.rest.save_snapshot(snapshot).await
    }

    async fn save_snapshot_cas(
        &self,
        snapshot: &SessionSnapshotV1,
        expected_current_digest: Option<&str>,
    ) -> Result<bool> {
        self.rest.save_snapshot_cas(snapshot, expected_current_digest).await
    }

    async fn load_snapshot(&self, id: &str) -> Result<Option<SessionSnapshotV1>> {
        self.rest.load_snapshot(id).await
    }

    async fn acquire_writer_lease(&self, holder_id: &str) -> Result<SessionStoreWriterLeaseV1> {
        self.rest.acquire_writer_lease(holder_id).await
    }

    async fn writer_lease(&self) -> Result<Option<SessionStoreWriterLeaseV1>> {
        self.rest.writer_lease().await
    }

    async fn watch_commits(&self) -> Result<SessionStoreCommitWatch> {
        self.rest.watch_commits().await
    }

    async fn save_artifacts(&self, id: &str, artifacts: &ArtifactStore) -> Result<()> {
        self.rest.save_artifacts(id, artifacts).await
    }

    async fn load_artifacts(&self, id: &str) -> Result<Option<ArtifactStore>> {
        self.rest.load_artifacts(id).await
    }

    async fn save_trace_events(&self, id: &str, events: &[TraceEvent]) -> Result<()> {
        self.rest.save_trace_events(id, events).await
    }

    async fn load_trace_events(&self, id: &str) -> Result<Option<Vec<TraceEvent>>> {
        self.rest.load_trace_events(id).await
    }

    async fn save_run_records(&self, id: &str, records: &[RunRecord]) -> Result<()> {
        self.rest.save_run_records(id, records).await
    }

    async fn load_run_records(&self, id: &str) -> Result<Option<Vec<RunRecord>>> {
        self.rest.load_run_records(id).await
    }

    async fn save_verification_reports(&self, id: &str, reports: &[VerificationReport]) -> Result<()> {
        self.rest.save_verification_reports(id, reports).await
    }

    async fn load_verification_reports(&self, id: &str) -> Result<Option<Vec<VerificationReport>>> {
        self.rest.load_verification_reports(id).await
    }

    async fn save_subagent_tasks(&self, id: &str, tasks: &[SubagentTaskSnapshot]) -> Result<()> {
        self.rest.save_subagent_tasks(id, tasks).await
    }

    async fn load_subagent_tasks(&self, id: &str) -> Result<Option<Vec<SubagentTaskSnapshot>>> {
        self.rest.load_subagent_tasks(id).await
    }

    async fn save_workflow_checkpoint(&self, workflow_id: &str, checkpoint: &WorkflowCheckpoint) -> Result<()> {
        self.rest.save_workflow_checkpoint(workflow_id, checkpoint).await
    }

    async fn load_workflow_checkpoint(&self, workflow_id: &str) -> Result<Option<WorkflowCheckpoint>> {
        self.rest.load_workflow_checkpoint(workflow_id).await
    }

    async fn delete_workflow_checkpoint(&self, workflow_id: &str) -> Result<()> {
        self.rest.delete_workflow_checkpoint(workflow_id).await
    }
}
