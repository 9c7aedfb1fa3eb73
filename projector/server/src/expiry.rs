//! Warns in the log and in a metric before the server's certificate and tokens expire.

use super::{auth::Authentication, tls::Tls};
use runlog_projector::index::{config::Clock, query::time};
use std::{sync::Arc, time::Duration};

/// How long before an expiry the warnings begin.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The interval of warnings.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// Tokens that warnings name; the metric has the first expiry.
const NAMED_MAX: usize = 10;

/// The credentials of a server that may expire.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) authentication: Option<Arc<Authentication>>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) clock: Clock,
}

impl Watched {
    /// The next expiry of the certificate and of the valid tokens, milliseconds since the Unix epoch, each with its
    /// name in the metric.
    pub(super) fn first(&self) -> [(&'static str, Option<u64>); 2] {
        let certificate = self.tls.as_ref().and_then(|tls| tls.expires_millis());
        let token = self.tokens().into_iter().map(|(expires, _)| expires).min();
        [("certificate", certificate), ("token", token)]
    }

    fn tokens(&self) -> Vec<(u64, String)> {
        self.authentication.as_ref().map(|authentication| authentication.expiring()).unwrap_or_default()
    }

    /// Makes the current warnings.
    fn warnings(&self) -> Vec<String> {
        let until = (self.clock)().saturating_add(u64::try_from(WARN_BEFORE.as_millis()).unwrap_or(u64::MAX));
        let mut warnings = Vec::new();
        if let Some(at) = self.tls.as_ref().and_then(|tls| tls.expires_millis()).filter(|at| *at < until) {
            warnings.push(format!("the certificate expires at {}", time(at)));
        }
        let mut tokens: Vec<_> = self.tokens().into_iter().filter(|(at, _)| *at < until).collect();
        tokens.sort();
        let more = tokens.len().saturating_sub(NAMED_MAX);
        tokens.truncate(NAMED_MAX);
        warnings.extend(
            tokens.into_iter().map(|(at, principal)| format!("a token of {principal} expires at {}", time(at))),
        );
        if more > 0 {
            warnings.push(format!("{more} more tokens expire in the next {} days", WARN_BEFORE.as_secs() / 86_400));
        }
        warnings
    }

    /// Warns once a day, and never resolves.
    pub(super) async fn warn(self) {
        loop {
            for warning in self.warnings() {
                tracing::warn!("{warning}");
            }
            tokio::time::sleep(WARN_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token_file::{Entry, Scope, TokenFile};

    #[test]
    fn tokens_that_expire_soon_are_warned_of_and_those_that_have_expired_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let entry = |principal: &str, number: u8, expires: Option<&str>| {
            let (entry, _) = Entry::new(principal.into(), [Scope::Append].into(), vec!["*".into()], &[number; 32]);
            Entry { expires: expires.map(str::to_owned), ..entry }
        };
        let tokens = vec![
            entry("gone", 1, Some("1970-01-01T00:00:01Z")),
            entry("soon", 2, Some("1970-01-14T00:00:00Z")),
            entry("later", 3, Some("1970-03-01T00:00:00Z")),
            entry("never", 4, None),
        ];
        TokenFile { tokens, ..TokenFile::default() }.write(&path).unwrap();
        let clock = || 2_000;
        let authentication = Some(Authentication::open(&path, clock).unwrap());
        let watched = Watched { authentication, tls: None, clock };
        assert_eq!(watched.first(), [("certificate", None), ("token", Some(13 * 24 * 60 * 60 * 1000))]);
        assert_eq!(watched.warnings(), ["a token of soon expires at 1970-01-14T00:00:00.000Z"]);
    }
}
