//! Scopes, and the checks of an entry's permissions.

use runlog_projector::index::query::visible::{Malformed, RunPattern};
use runlog_schemas::symbols;
use std::collections::BTreeSet;

/// Patterns of runs of one token.
const PATTERNS_MAX: usize = 64;
/// The longest principal, bytes.
const PRINCIPAL_BYTES_MAX: usize = 128;

symbols! {
    /// A permission of a token, for the runs that the token names.
    ///
    /// * `Append`: claim runs and append records.
    /// * `ReadMeta`: read everything except content: lists, statuses, effects, events, masked records.
    /// * `ReadContent`: arguments, results, messages, checkpoints, whole records.
    /// * `Approve`: record that an approval was given.
    /// * `Resolve`: decide pending effects, and what `Approve` allows.
    /// * `Operate`: skip records, set retention horizons, verify, diagnose. Only for all runs.
    /// * `Audit`: verify, diagnose and read metrics. Only for all runs.
    Scope {
        Append = "append", ReadMeta = "read_meta", ReadContent = "read_content", Approve = "approve", Resolve = "resolve",
        Operate = "operate", Audit = "audit",
    }
}

/// Checks a principal's permissions. Returns the runs that they apply to.
///
/// Errors: the reason in words.
pub(super) fn check_grant(
    principal: &str,
    scopes: &BTreeSet<Scope>,
    runs: &[String],
) -> Result<Vec<RunPattern>, String> {
    check_principal(principal)?;
    if scopes.is_empty() {
        return Err("no scope: it would allow nothing".to_owned());
    }
    if runs.is_empty() || runs.len() > PATTERNS_MAX {
        return Err(format!("`runs` has 1 to {PATTERNS_MAX} patterns; \"*\" is all runs"));
    }
    let runs = runs.iter().map(|text| text.parse()).collect::<Result<Vec<RunPattern>, Malformed>>();
    let runs = runs.map_err(|error| error.to_string())?;
    let for_all = scopes.contains(&Scope::Operate) || scopes.contains(&Scope::Audit);
    if for_all && !runs.iter().any(RunPattern::is_all) {
        return Err("`operate` and `audit` are for all runs: `runs` needs \"*\"".to_owned());
    }
    Ok(runs)
}

pub(super) fn check_principal(principal: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-@/:+".contains(c);
    if (1..=PRINCIPAL_BYTES_MAX).contains(&principal.len()) && principal.chars().all(legal) {
        return Ok(());
    }
    Err(format!("a principal has 1 to {PRINCIPAL_BYTES_MAX} ASCII letters, digits and characters of `. _ - @ / : +`"))
}
