//! One spelling for every JSON value, so that equal arguments have equal fingerprints
//! ([`Fingerprint::of_call`](crate::id::Fingerprint::of_call)).
//!
//! [`canonicalize`] is RFC 8785 (JCS) over JSON *text*, with one extension: integer literals keep their exact digits.
//! JCS itself sends every number through a double, which would make one call out of two that differ in a 64-bit id
//! only. It works on text because a parsed tree has already lost those digits, and the duplicate keys that are refused.
//!
//! ```text
//!  JSON text ──scan──▶ tokens ──┬──▶ compact: written as they come
//!           (grammar, depth)    └──▶ canonical: a tree, its keys sorted, then written
//! ```
//!
//! One pass over the input, with a depth limit. For any input, the cost is linear in the text, and n log n in the keys
//! of one object.

use std::borrow::Cow;

use crate::datum::Sha256;

mod scan;
#[cfg(test)]
mod tests;
mod write;

/// How deep arrays and objects may nest: a text with this many open at once is accepted, one more is refused.
pub const DEPTH_MAX: usize = 128;

/// Why a text was refused, and where in it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{problem} at {}", place(pointer))]
pub struct Error {
    /// RFC 6901 pointer to the innermost value that was being read; empty for the text itself.
    pub pointer: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// What a text was refused for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Not JSON (RFC 8259).
    #[error("not JSON: expected {expected} at byte {offset}")]
    Syntax {
        /// The expected token.
        expected: &'static str,
        /// From the start of the text, 0-based.
        offset: usize,
    },
    /// More than [`DEPTH_MAX`] arrays and objects are open at once.
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// Canonical form only: which of the two counts depends on the reader.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// Canonical form only: it has no UTF-8 spelling.
    #[error("a lone surrogate in a string")]
    LoneSurrogate,
    /// Canonical form only: a fraction or exponent beyond the range of a double.
    #[error("a number beyond the range of a double")]
    NotFinite,
}

fn place(pointer: &str) -> Cow<'_, str> {
    if pointer.is_empty() { "the top level".into() } else { pointer.into() }
}

/// A name as a segment of a JSON pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The canonical form of a JSON text.
///
/// Differs from RFC 8785 in this: a literal without fraction and exponent keeps its digits, however many, and only
/// `-0` becomes `0`. Within ±(2^53−1) that is the same text as RFC 8785 gives. Every other number is read as a double
/// and written as ECMAScript does.
///
/// # Errors
/// Besides what is not JSON: duplicate keys (compared after unescaping), lone surrogates, numbers that overflow a
/// double, more than [`DEPTH_MAX`] levels.
pub fn canonicalize(json: &str) -> Result<String, Error> {
    let mut tree = write::Builder::default();
    scan::scan(json, |token| tree.take(token))?;
    Ok(tree.finish(json.len()))
}

/// The same text without insignificant white space: every number and string keeps its spelling, keys their order and
/// their repetitions.
///
/// # Errors
/// What is not JSON, and more than [`DEPTH_MAX`] levels.
pub fn compact(json: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(json.len());
    scan::scan(json, |token| {
        out.push_str(token.text());
        Ok(())
    })?;
    Ok(out)
}

/// A JSON pointer to a member whose object has another member of the same name, compared after unescaping. `None` if every name
/// is unique, and for a text that is not JSON or nests too deep.
pub fn repeated_member(json: &str) -> Option<String> {
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
            _ => {}
        }
        Ok(())
    });
    match scanned {
        Err(Error { pointer, problem: Problem::DuplicateKey(name) }) => Some(format!("{pointer}/{}", escape(&name))),
        _ => None,
    }
}

/// Whether a JSON text nests no deeper than [`DEPTH_MAX`].
pub(crate) fn nests_within_bounds(json: &str) -> bool {
    scan::scan(json, |_| Ok(())).is_ok()
}

/// Lower-case hex of the SHA-256 of the canonical form of arguments.
pub(crate) fn args_sha256(arguments: &str) -> Result<String, Error> {
    Ok(Sha256::of(canonicalize(arguments)?.as_bytes()).to_string())
}
