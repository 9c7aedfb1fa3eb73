//! Refuses a new call of a program that does not make the recorded calls of the process before it.

use super::call_spec::CallSpec;
use crate::{
    error::{Action, Error},
    session::{open::OnDivergence, replay::Replay},
};
use runlog_schemas::{answer::ErrorKind, id::RecordId};

/// The maximum number of calls that an error names with their arguments.
const NAMED_MAX: usize = 3;
/// The maximum number of characters of the arguments of a named call.
const ARGUMENTS_MAX: usize = 100;

/// Checks a new call, which may repeat the effect of a recorded call that was not requested.
pub(super) async fn check(spec: &CallSpec<'_>, replay: &Replay) -> Result<(), Error> {
    // The key of a call shows that it repeats no other.
    if spec.session.on_divergence == OnDivergence::Allow || spec.key.is_some() || spec.repeatable {
        return Ok(());
    }
    let calls = replay.not_requested();
    // Boxed, because the future of each call contains it.
    if calls.is_empty() { Ok(()) } else { Err(Box::pin(diverged(spec, calls)).await?) }
}

/// Makes the error of a new call, although these recorded calls were not requested.
async fn diverged(spec: &CallSpec<'_>, calls: Vec<RecordId>) -> Result<Error, Error> {
    let client = &spec.session.client;
    let mut named = Vec::new();
    for id in calls.iter().take(NAMED_MAX) {
        let call = client.transport.call(client.id(), id.borrow()).await?;
        let arguments = call.arguments.as_ref().map_or("", |arguments| arguments.as_str());
        let arguments: String = arguments.chars().take(ARGUMENTS_MAX).collect();
        named.push(format!("{}({arguments}), call {id}", call.tool_name.unwrap_or_default()));
    }
    let more = match calls.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!(
        "{} is a new call in run {}, and recorded calls after the checkpoint were not requested: {}{more}. Nothing ran, because \
         the new call may repeat one of them. Make them again first, with the same arguments, or open the run with \
         OnDivergence::Allow",
        spec.name,
        client.run_id,
        named.join("; ")
    );
    let error = Error::new(ErrorKind::Conflict, Action::FixTheInput, message);
    Ok(error.because_not_requested(calls))
}
