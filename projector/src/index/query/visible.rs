//! The runs that a query may see: lists omit all others, as if they did not exist.

use runlog_schemas::id::RunId;
use std::{fmt, str::FromStr, sync::Arc};

/// Selects runs by their id: `*` all runs, `acme/*` the runs that start with `acme/`, and `acme` the one run with that id.
///
/// Ids are compared byte by byte: neither case nor Unicode forms are folded. The text before a `*` ends with a separator:
/// one of `/ : . - _ # | ~ @`. So `acme/*` can never match `acme2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPattern {
    text: String,
    is_prefix: bool,
}

/// The characters that may precede a `*`.
const SEPARATORS: &[char] = &['/', ':', '.', '-', '_', '#', '|', '~', '@'];

/// The longest pattern, bytes: the longest run id and `*`.
const PATTERN_BYTES_MAX: usize = 1025;

/// The error in a text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Empty, or over its limit.
    #[error("a run pattern must have 1 to {PATTERN_BYTES_MAX} bytes")]
    Length,
    /// A star that is not the last character.
    #[error("`*` may only be the last character of a run pattern, but the pattern is {0:?}")]
    Star(String),
    /// No separator before the star.
    #[error("{0:?} would also match runs with a longer name: put a separator before `*`, as in \"acme/*\"")]
    NoSeparator(String),
}

impl FromStr for RunPattern {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(Malformed::Length);
        }
        let (start, is_prefix) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        if start.contains('*') {
            return Err(Malformed::Star(text.to_owned()));
        }
        if is_prefix && !start.is_empty() && !start.ends_with(SEPARATORS) {
            return Err(Malformed::NoSeparator(text.to_owned()));
        }
        Ok(Self { text: start.to_owned(), is_prefix })
    }
}

impl fmt::Display for RunPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

impl RunPattern {
    /// Whether it is `*`.
    pub fn is_all(&self) -> bool {
        self.is_prefix && self.text.is_empty()
    }

    /// Whether the pattern matches this run.
    pub fn matches(&self, run_id: RunId<&str>) -> bool {
        if self.is_prefix { run_id.as_str().starts_with(&self.text) } else { run_id.as_str() == self.text }
    }

    /// The longer one of the two prefixes, if one starts with the other. All runs with `prefix` that this pattern matches
    /// have it.
    fn within<'a>(&'a self, prefix: &'a str) -> Option<&'a str> {
        if self.text.starts_with(prefix) {
            Some(&self.text)
        } else {
            (self.is_prefix && prefix.starts_with(&self.text)).then_some(prefix)
        }
    }
}

/// The runs that a query may see. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible(Option<Arc<[RunPattern]>>);

impl Visible {
    /// No run.
    pub fn none() -> Self {
        Self(Some(Arc::new([])))
    }

    /// The runs that match one of the patterns.
    pub fn new(patterns: impl Into<Arc<[RunPattern]>>) -> Self {
        let patterns = patterns.into();
        Self(if patterns.iter().any(RunPattern::is_all) { None } else { Some(patterns) })
    }

    /// Whether all runs are visible.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The patterns; `*` for all runs.
    pub fn patterns(&self) -> Vec<String> {
        let Some(patterns) = &self.0 else { return vec!["*".to_owned()] };
        patterns.iter().map(ToString::to_string).collect()
    }

    /// Whether a run is visible.
    pub fn contains(&self, run_id: RunId<&str>) -> bool {
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(run_id)))
    }

    /// Prefixes, in order, such that every visible run with `prefix` has exactly one of them. A scan per prefix visits no
    /// other caller's runs.
    pub fn prefixes(&self, prefix: &str) -> Vec<String> {
        let Some(patterns) = &self.0 else { return vec![prefix.to_owned()] };
        let mut distinct: Vec<String> =
            patterns.iter().filter_map(|pattern| pattern.within(prefix)).map(str::to_owned).collect();
        distinct.sort();
        // A prefix sorts before all texts that start with it.
        distinct.dedup_by(|later, earlier| later.starts_with(earlier.as_str()));
        distinct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(patterns: &[&str]) -> Visible {
        Visible::new(patterns.iter().map(|text| text.parse().unwrap()).collect::<Vec<RunPattern>>())
    }

    fn run(text: &str) -> RunId<&str> {
        RunId::new(text).unwrap()
    }

    #[test]
    fn a_pattern_matches_no_similar_run_id() {
        let acme = visible(&["acme/*", "acme"]);
        for own in ["acme", "acme/", "acme/1", "acme/../x", "acme/é"] {
            assert!(acme.contains(run(own)), "{own}");
        }
        for other in ["acme2", "acme2/1", "Acme/1", "acme%2F1", "acm", "аcme/1", "acme\u{301}/1", " acme/1", "acme:1"]
        {
            assert!(!acme.contains(run(other)), "{other}");
        }
        assert!(!visible(&["caf\u{e9}/*"]).contains(run("cafe\u{301}/1")), "no Unicode form is folded into another");
        assert!(!Visible::none().contains(run("acme")) && Visible::default().contains(run("acme")));
    }

    #[test]
    fn a_pattern_that_could_match_other_runs_is_refused() {
        for text in ["acme*", "*acme", "a*b", "acme/**", "", "é*"] {
            assert!(text.parse::<RunPattern>().is_err(), "{text}");
        }
        for text in ["*", "acme", "acme/*", "acme:*", "a.b-*"] {
            assert_eq!(text.parse::<RunPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_prefixes_to_scan_contain_each_visible_run_once() {
        let visible = visible(&["b/*", "a/x/*", "a/*", "a/x", "c"]);
        assert_eq!(visible.prefixes(""), ["a/", "b/", "c"]);
        assert_eq!(visible.prefixes("a/x"), ["a/x"]);
        assert_eq!(visible.prefixes("a/x/"), ["a/x/"]);
        assert_eq!(visible.prefixes("d"), [""; 0]);
        assert_eq!(Visible::default().prefixes("d"), ["d"]);
    }
}
