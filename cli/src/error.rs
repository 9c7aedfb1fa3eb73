//! The error of all commands. Its kind determines the exit code; `exit` lists the codes.

use runlog_schemas::{
    answer::{self, Elsewhere, ErrorKind, Problem},
    subject::Subject,
};
use serde_json::{Map, Value};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a command has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    kind: ErrorKind,
    message: String,
    /// Further members of the error document, for scripts.
    details: Map<String, Value>,
    #[source]
    source: Option<Source>,
    output_closed: bool,
}

impl Error {
    /// Creates an error. `message` contains the failure, its subject and the remedy.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: Map::new(), source: None, output_closed: false }
    }

    /// Creates an error about a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Creates the error after which the command ends without a failure, because the reader of stdout has closed it.
    pub(crate) fn output_closed() -> Self {
        Self { output_closed: true, ..Self::new(ErrorKind::Internal, "the output was closed") }
    }

    /// Adds a member to the error's document.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The reason, for kinds with several reasons.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.details.get("reason").and_then(Value::as_str)
    }

    /// Adds the error's subject as members of its document.
    fn about(self, subject: Subject) -> Self {
        let Subject { run_id, topic, partition, offset, record_id } = subject;
        let members = [
            ("run_id", run_id.map(|run_id| run_id.as_str().into())),
            ("topic", topic.map(Value::from)),
            ("partition", partition.map(|partition| partition.get().into())),
            ("offset", offset.map(|offset| offset.get().into())),
            ("record_id", record_id.map(|record_id| record_id.as_str().into())),
        ];
        let details = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        details.fold(self, |error, (name, value): (_, Value)| error.with(name, value))
    }

    /// Copies the further members of another error.
    #[must_use]
    pub(crate) fn with_details_of(mut self, other: &Self) -> Self {
        self.details.extend(other.details.clone());
        self
    }

    /// Sets the cause.
    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the reader of stdout has closed it.
    pub(crate) fn is_output_closed(&self) -> bool {
        self.output_closed
    }

    /// Formats the message and its causes.
    pub(crate) fn chain(&self) -> String {
        answer::with_causes(self)
    }

    /// Returns the document that `--json` prints.
    pub(crate) fn document(&self) -> Value {
        let mut error = Map::new();
        error.insert("kind".into(), self.kind.as_str().into());
        error.insert("message".into(), self.chain().into());
        error.extend(self.details.clone());
        serde_json::json!({ "error": error })
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let subject = problem.subject();
        let mut error = Self::new(problem.kind, problem.detail).about(subject);
        if let Some(reason) = problem.reason {
            error = error.with("reason", reason.as_str());
        }
        if let Some(Elsewhere { instances, .. }) = problem.not_here {
            error = error.with("instances", instances);
        }
        let numbers = [("lag", problem.lag), ("age_millis", problem.age_millis)];
        let present = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        present.fold(error, |error, (name, number)| error.with(name, number))
    }
}

impl From<runlog_projector::Error> for Error {
    fn from(source: runlog_projector::Error) -> Self {
        source.problem().into()
    }
}

impl From<runlog_log::Error> for Error {
    fn from(source: runlog_log::Error) -> Self {
        runlog_projector::Error::from(source).into()
    }
}

impl From<runlog_producer::Error> for Error {
    fn from(source: runlog_producer::Error) -> Self {
        Self::new(source.kind(), source.to_string())
    }
}

impl From<runlog_demo::Error> for Error {
    fn from(source: runlog_demo::Error) -> Self {
        Self::new(source.kind(), answer::with_causes(&source))
    }
}

impl From<runlog_producer::content::Error> for Error {
    fn from(source: runlog_producer::content::Error) -> Self {
        Self::new(source.error_kind(), "content store failed").because(source)
    }
}

impl From<runlog_conformance::Error> for Error {
    fn from(source: runlog_conformance::Error) -> Self {
        use runlog_conformance::Error as E;
        let kind = match source {
            E::Url { .. } => ErrorKind::Usage,
            E::Unavailable { .. } => ErrorKind::Unavailable,
            E::Client(_) => ErrorKind::Internal,
        };
        Self::new(kind, source.to_string())
    }
}

impl From<runlog_schemas::id::Illegal> for Error {
    fn from(illegal: runlog_schemas::id::Illegal) -> Self {
        Self::new(ErrorKind::Usage, illegal.to_string())
    }
}

impl From<crate::import::Error> for Error {
    fn from(source: crate::import::Error) -> Self {
        use crate::import::Error as E;
        let error = match &source {
            E::Empty { folder: file } | E::TooDeep { folder: file } | E::Unreadable { file, .. } => {
                import_error(file.display().to_string())
            }
            E::Malformed { file, path, .. } => import_error(file.display().to_string()).with("path", path.as_str()),
            E::Collision { run_id, .. } | E::TooLarge { run_id, .. } | E::NoRecord { run_id, .. } => {
                Self::new(ErrorKind::Invalid, "nothing was imported").with("run_id", run_id.as_str())
            }
        };
        error.because(source)
    }
}

fn import_error(file: String) -> Error {
    Error::new(ErrorKind::Invalid, "nothing was imported").with("file", file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_carries_kind_message_and_causes() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Internal, "it broke").because(cause).with("line", 3);
        let expected =
            serde_json::json!({"error": {"kind": "internal", "message": "it broke: disk on fire", "line": 3}});
        assert_eq!(error.document(), expected);
    }

    #[test]
    fn a_problem_keeps_its_kind_lag_and_position() {
        let problem = Problem {
            problem_type: "about:blank#stale".into(),
            title: "stale".into(),
            status: 503,
            detail: "behind".into(),
            kind: ErrorKind::Stale,
            reason: None,
            lag: Some(7),
            age_millis: None,
            topic: Some("t".into()),
            partition: Some(1.into()),
            offset: Some(9.into()),
            record_id: None,
            home: None,
            not_here: None,
        };
        let error = Error::from(problem);
        let expected = serde_json::json!({
            "kind": "stale", "message": "behind", "lag": 7, "topic": "t", "partition": 1, "offset": 9,
        });
        assert_eq!((error.kind().exit_code(), error.document()["error"].clone()), (4, expected));
    }
}
