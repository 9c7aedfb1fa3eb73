//! The result of a command.

use serde_json::Value;

/// The result of a command, or the error and whether another process took the run over.
pub(super) type Done = Result<Value, (String, bool)>;
