//! A prepared call.

use crate::{
    error::{Action, Error},
    session::{Session, replay::CallKey},
};
use runlog_schemas::{answer::ErrorKind, id::RecordId};

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
        let message = format!(
            "call {id} of {tool} in run {run_id} is pending: {why}; find out whether it happened, then \
             `runlog effects resolve {run_id} {id} …`"
        );
        let error = Error::new(ErrorKind::ReconcileRequired, Action::Operator, message);
        error.about_run(run_id).about_record(id.borrow())
    }
}

pub(super) fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, Action::FixTheInput, message)
}
