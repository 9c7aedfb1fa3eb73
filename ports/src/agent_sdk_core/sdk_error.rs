//! Converts the journal's errors to the SDK's.

use ::agent_sdk_core::{AgentError, AgentErrorKind, RetryClassification};
use runlog_producer::{Error, answer::ErrorKind};

/// The error as the SDK's. `unknown`: the record may be in the journal despite the error.
pub(super) fn sdk_error(error: &Error, unknown: bool) -> AgentError {
    let (kind, retry) = match error.kind() {
        ErrorKind::Conflict | ErrorKind::Invalid | ErrorKind::Usage => {
            return AgentError::contract_violation(error.to_string());
        }
        ErrorKind::ClaimLost | ErrorKind::Fenced => (AgentErrorKind::JournalFailure, RetryClassification::NotRetryable),
        ErrorKind::Unavailable | ErrorKind::Stale if unknown => {
            (AgentErrorKind::JournalFailure, RetryClassification::RepairNeeded)
        }
        ErrorKind::Unavailable | ErrorKind::Stale | ErrorKind::Overloaded => {
            (AgentErrorKind::JournalFailure, RetryClassification::Retryable)
        }
        ErrorKind::MissingContent | ErrorKind::NotFound => {
            (AgentErrorKind::RecoveryRepairNeeded, RetryClassification::RepairNeeded)
        }
        ErrorKind::TooLarge | ErrorKind::PartitionStopped | ErrorKind::Forbidden | ErrorKind::Unauthenticated => {
            (AgentErrorKind::HostConfigurationNeeded, RetryClassification::HostConfigurationNeeded)
        }
        ErrorKind::ReconcileRequired | ErrorKind::Internal => {
            (AgentErrorKind::JournalFailure, RetryClassification::RepairNeeded)
        }
    };
    let may = if unknown { "; the record may be in the journal" } else { "" };
    AgentError::new(kind, retry, format!("{error}{may}"))
}

/// A record that was read does not belong to the SDK.
pub(super) fn foreign(what: &str, error: &impl std::fmt::Display) -> AgentError {
    let message = format!("{what} is not what agent-sdk-core writes: {error}");
    AgentError::new(AgentErrorKind::RecoveryRepairNeeded, RetryClassification::RepairNeeded, message)
}
