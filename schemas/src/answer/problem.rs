//! The error that a server returns instead of an answer.

use crate::{
    id::{LogId, Offset, PartitionId, RecordId},
    or_other::OrOther,
    subject::Subject,
};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// An error, in the command's form and as RFC 9457 problem details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Problem {
    /// `about:blank#KIND`.
    #[serde(rename = "type")]
    pub problem_type: String,
    /// The kind's name.
    pub title: String,
    /// The HTTP status.
    #[cfg_attr(feature = "openapi", schemars(range(min = 400, max = 599)))]
    pub status: u16,
    /// The problem, its subject and the remedy.
    pub detail: String,
    /// The kind, which determines the caller's reaction.
    pub kind: ErrorKind,
    /// The reason, for kinds with several reasons that need different reactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OrOther<ProblemReason>>,
    /// On `stale`: records not yet applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// With the reason `active`: the age of the last record of the run's writer, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_millis: Option<u64>,
    /// The topic of the error, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The partition of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionId>,
    /// The offset of the error. On `stale`, the offset below which every record must be applied (exclusive). On
    /// `partition_stopped`, the offset at which the partition stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// The record of the error; for a call, its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_id: Option<RecordId>,
    /// With the reason `mirror`: the log that is the journal's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<LogId>,
    /// With the reason `not_here`, from a server with a list of instances: the instances that have the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_here: Option<Elsewhere>,
}

/// The instances that have a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Elsewhere {
    /// The partition.
    pub partition: PartitionId,
    /// The URLs of the instances on which the partition is placed, the preferred instance first.
    pub instances: Vec<String>,
}

impl Problem {
    /// Returns the record or log position of the error.
    pub fn subject(&self) -> Subject {
        Subject {
            run_id: None,
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.offset,
            record_id: self.record_id.clone(),
        }
    }
}

crate::symbols! {
    /// The kind of an error, which determines the caller's reaction.
    ErrorKind {
        Usage = "usage", Invalid = "invalid", Stale = "stale", PartitionStopped = "partition_stopped",
        ClaimLost = "claim_lost", Fenced = "fenced", ReconcileRequired = "reconcile_required", TooLarge = "too_large",
        NotFound = "not_found", Unavailable = "unavailable", Internal = "internal", Conflict = "conflict",
        MissingContent = "missing_content", Overloaded = "overloaded", Forbidden = "forbidden",
        Unauthenticated = "unauthenticated",
    }
}

crate::symbols! {
    /// The reason of a refused request. `active`: a process may still be running the effect of the decision. `mirror`: the server
    /// reads a mirror of the journal; the request had no effect, and this server will not accept it. `foreign_log`: the position or
    /// cursor belongs to another log. `doubt`: the run's home was lost. `not_here`: the server does not hold the partition; the
    /// request had no effect.
    ProblemReason {
        Active = "active", Mirror = "mirror", ForeignLog = "foreign_log", Doubt = "doubt", NotHere = "not_here",
    }
}

impl ErrorKind {
    /// Returns the HTTP status of the kind.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Usage | Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::ClaimLost | Self::Fenced | Self::Conflict | Self::ReconcileRequired | Self::MissingContent => 409,
            Self::TooLarge => 413,
            Self::Overloaded => 429,
            Self::Internal => 500,
            Self::Stale | Self::PartitionStopped | Self::Unavailable => 503,
        }
    }

    /// Returns whether the request had no effect and the server will never accept the same record from this client.
    pub fn never_accepted(self) -> bool {
        matches!(self, Self::Forbidden | Self::Invalid | Self::MissingContent | Self::TooLarge | Self::Usage)
    }

    /// Returns the exit code of a command with this error.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::NotFound => 1,
            Self::Usage | Self::Forbidden | Self::Unauthenticated => 2,
            Self::Invalid
            | Self::TooLarge
            | Self::Conflict
            | Self::Fenced
            | Self::ClaimLost
            | Self::ReconcileRequired
            | Self::MissingContent => 3,
            Self::Stale | Self::PartitionStopped | Self::Unavailable | Self::Overloaded => 4,
            Self::Internal => 5,
        }
    }
}

/// Formats an error and its causes in one line, the detail of a problem. Omits a cause if the text already ends with it, because
/// some libraries print their source themselves.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    #[test]
    fn causes_are_joined_and_none_is_repeated() {
        let refused = || Some(Box::new(Failed { text: "connection refused", source: None }));
        let library = Some(Box::new(Failed { text: "fetch failed: connection refused", source: refused() }));
        let error = Failed { text: "cannot read the topic", source: library };
        assert_eq!(with_causes(&error), "cannot read the topic: fetch failed: connection refused");
        assert_eq!(with_causes(&Failed { text: "log", source: refused() }), "log: connection refused");
    }
}
