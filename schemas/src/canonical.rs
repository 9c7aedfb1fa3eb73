//! One spelling for every JSON value, so that equal arguments have equal fingerprints
//! ([`Fingerprint::of_call`](crate::id::Fingerprint::of_call)).
//!
//! [`canonicalize`] is RFC 8785 (JCS) over JSON *text*, with one extension: integer literals keep their exact digits.
//! JCS itself converts every number to a double. Two calls that differ only in a 64-bit id would then be one call. The
//! function works on text, because a parsed tree has already lost those digits and the duplicate keys, which are refused.
//!
//! ```text
//!  JSON text ──scan──▶ tokens ──┬──▶ compact: written in order
//!           (grammar, depth)    └──▶ canonical: a tree, its keys sorted, then written
//! ```
//!
//! It makes one pass over the input, with a depth limit. The cost is always linear in the text, and n log n in the keys of one
//! object.

use std::borrow::Cow;

use crate::datum::Sha256;

mod error;
mod scan;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use error::escape;
pub use error::{DEPTH_MAX, Error, Problem};

/// Returns the canonical form of a JSON text.
///
/// Differs from RFC 8785 in one rule: a literal without fraction and exponent keeps all its digits, and only `-0` becomes `0`.
/// Within ±(2^53−1) the result equals RFC 8785. Every other number is read as a double and written as in ECMAScript.
///
/// # Errors
/// Invalid JSON, duplicate keys (compared after unescaping), lone surrogates, numbers that overflow a double, and more than
/// [`DEPTH_MAX`] levels.
pub fn canonicalize(json: &str) -> Result<String, Error> {
    let mut tree = write::Builder::default();
    scan::scan(json, |token| tree.take(token))?;
    Ok(tree.finish(json.len()))
}

/// Removes insignificant white space. Numbers and strings keep their spelling. Keys keep their order and repetitions.
///
/// # Errors
/// Invalid JSON, and more than [`DEPTH_MAX`] levels.
pub fn compact(json: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(json.len());
    scan::scan(json, |token| {
        out.push_str(token.text());
        Ok(())
    })?;
    Ok(out)
}

/// Returns what readers of the text understand differently, and a JSON pointer to it: a member whose object has another member of the
/// same name, compared after unescaping, or a number beyond the range of a double. `None` also for a text that is not JSON or nests
/// too deeply.
pub fn ambiguity(json: &str) -> Option<(&'static str, String)> {
    let (mut open, mut names) = (Vec::new(), Vec::<Cow<'_, str>>::new());
    let scanned = scan::scan(json, |token| {
        match token {
            scan::Token::OpenObject => open.push(names.len()),
            // A lone surrogate has no unescaped form.
            scan::Token::Key(raw) => names.push(scan::unescape(raw).unwrap_or(Cow::Borrowed(raw))),
            scan::Token::CloseObject => {
                let start = open.pop().unwrap_or_default();
                let own = &mut names[start..];
                own.sort_unstable();
                if let Some(pair) = own.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(Problem::DuplicateKey(pair[0].clone().into_owned()));
                }
                names.truncate(start);
            }
            scan::Token::Number(raw) => write::check_range(raw)?,
            _ => {}
        }
        Ok(())
    });
    let Error { pointer, problem } = scanned.err()?;
    match problem {
        Problem::DuplicateKey(name) => {
            Some(("two members of one object have this name", format!("{pointer}/{}", escape(&name))))
        }
        Problem::NotFinite => Some(("a number beyond the range of a double", pointer)),
        _ => None,
    }
}

/// Returns whether a JSON text nests no deeper than [`DEPTH_MAX`].
pub(crate) fn nests_within_bounds(json: &str) -> bool {
    scan::scan(json, |_| Ok(())).is_ok()
}

/// Returns the SHA-256 of the canonical form of arguments, in lower-case hex.
pub(crate) fn args_sha256(arguments: &str) -> Result<String, Error> {
    Ok(Sha256::of(canonicalize(arguments)?.as_bytes()).to_string())
}
