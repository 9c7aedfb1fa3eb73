//! The registry's address, credentials and timeouts.

use crate::error::{Error, Kind};
use reqwest::Url;
use std::{fmt, path::PathBuf, time::Duration};

/// The credentials of requests.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// No credentials.
    #[default]
    None,
    /// HTTP's basic authentication.
    Basic {
        /// The user, or API key.
        user: String,
        /// The password, or API secret.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic(…)",
            Self::Bearer(_) => "Bearer(…)",
        })
    }
}

impl Auth {
    /// Reads `USER:PASSWORD`.
    pub fn basic(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        Some(Self::Basic { user: user.to_owned(), password: password.to_owned() })
    }
}

/// The configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The base of the interface, without credentials.
    pub(crate) url: Url,
    /// The credentials. Default: those in the URL, if any.
    pub auth: Auth,
    /// The subject of the journal's records.
    pub subject: String,
    /// The folder for cached answers. Without one, they are kept in memory only. Default none.
    pub dir: Option<PathBuf>,
    /// Time limit of one request. Default 5 s.
    pub request: Duration,
    /// Time limit of one query, its retries included. Default 20 s.
    pub deadline: Duration,
    /// Pause after a query without an answer, before the next query for the same id. Default 2 s.
    pub pause: Duration,
}

impl Config {
    /// The defaults for the registry at `url` (`http` or `https`, credentials allowed) and the records of `topic`.
    pub fn new(url: &str, topic: &str) -> Result<Self, Error> {
        // The message does not repeat the text, which may contain a password.
        let wrong = |why: &dyn fmt::Display| {
            Error::new(Kind::Invalid, format!("invalid registry URL, expected for example http://host:8081: {why}"))
        };
        let mut url = Url::parse(url).map_err(|error| wrong(&error))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong(&"it must begin with http:// or https:// and name a host"));
        }
        let auth = match (url.username(), url.password()) {
            ("", None) => Auth::None,
            (user, password) => {
                Auth::Basic { user: percent_decoded(user), password: percent_decoded(password.unwrap_or_default()) }
            }
        };
        if url.set_username("").is_err() || url.set_password(None).is_err() {
            return Err(wrong(&"its credentials cannot be separated from it"));
        }
        // Resource paths are appended to the path of the base.
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&base);
        Ok(Self {
            url,
            auth,
            subject: format!("{topic}-value"),
            dir: None,
            request: Duration::from_secs(5),
            deadline: Duration::from_secs(20),
            pause: Duration::from_secs(2),
        })
    }

    /// Whether requests to the registry use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns the URL of a resource. Percent-encodes the segments.
    pub(crate) fn resource(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Returns the URL for messages. It contains no credentials.
    pub(crate) fn display_url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_removed_from_the_url_and_never_printed() {
        let config = Config::new("http://me:s%40cret@host:8081/api/", "t").unwrap();
        assert_eq!(config.auth, Auth::Basic { user: "me".into(), password: "s@cret".into() });
        assert_eq!((config.display_url(), config.subject.as_str()), ("http://host:8081/api", "t-value"));
        assert!(!format!("{config:?}").contains("cret"));
        let error = Config::new("me:s@cret@host", "t").unwrap_err();
        assert!(error.kind() == Kind::Invalid && !error.to_string().contains("cret"), "{error}");
    }

    #[test]
    fn segments_are_encoded_after_the_base() {
        let at = |url: &str| Config::new(url, "t").unwrap().resource(&["subjects", "a/b c-value", "versions"]);
        assert_eq!(at("http://h").as_str(), "http://h/subjects/a%2Fb%20c-value/versions");
        assert_eq!(at("http://h/base/").as_str(), "http://h/base/subjects/a%2Fb%20c-value/versions");
    }
}
