//! A prepared call.

use crate::{
    error::{Action, Error},
    session::{Session, replay::CallKey},
};
use runlog_schemas::{answer::ErrorKind, id::RecordId, shell};

/// A prepared call, without its arguments.
#[derive(Debug)]
pub(super) struct CallSpec<'a> {
    pub(super) session: &'a Session,
    /// The name of the tool.
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) repeatable: bool,
}

impl CallSpec<'_> {
    pub(super) fn key(&self) -> CallKey {
        self.key.clone().map(|key| (self.name.clone(), key))
    }

    /// Makes the error of a pending call whose effect may have happened.
    pub(super) fn pending(&self, id: &RecordId, why: &str) -> Error {
        self.pending_of(id, &self.name, why)
    }

    /// As [`CallSpec::pending`], for a call of another tool.
    pub(super) fn pending_of(&self, id: &RecordId, tool: &str, why: &str) -> Error {
        let run_id = self.session.client.id();
        let decide = self.decide(id);
        let message = format!("call {id} of {tool} in run {run_id} is pending: {why}; {decide}");
        let error = Error::new(ErrorKind::ReconcileRequired, Action::Operator, message);
        error.about_run(run_id).about_record(id.borrow())
    }

    /// Advises how to decide about a pending call, with the command.
    pub(super) fn decide(&self, id: &RecordId) -> String {
        let (run_id, options) = (&self.session.client.run_id, "--who NAME --why TEXT --done RESULT_AS_JSON");
        let command = shell::command("runlog effects resolve", &[run_id.as_str(), id.as_str()], options);
        format!(
            "find out whether it happened, then decide: `{command}`, or with `--not-done`, `--adopt` or `--give-up` in place of \
             `--done`"
        )
    }
}

pub(super) fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, Action::FixTheInput, message)
}
