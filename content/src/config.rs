//! The store's address, and the limit above which payloads go to the store.

use crate::error::{Error, Kind};
use std::{collections::BTreeMap, fmt, ops::RangeInclusive, path::PathBuf, time::Duration};

/// Default of [`Config::inline_bytes_max`].
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// Allowed values of [`Config::inline_bytes_max`]. A record has at most 1 MiB, and its envelope needs part of it.
pub const INLINE_BYTES_RANGE: RangeInclusive<usize> = 1 << 10..=768 << 10;

/// The options that a store is opened with.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// `file:DIR`, or `s3://BUCKET/PREFIX`.
    pub url: String,
    /// For S3: `endpoint`, `region`, `access_key_id`, `secret_access_key` and any other option of object_store. They
    /// override the environment's `AWS_…` variables. Default none.
    pub options: BTreeMap<String, String>,
    /// Longest encoding of a payload that stays in its record, bytes. Default [`INLINE_BYTES_MAX`].
    pub inline_bytes_max: usize,
    /// Time limit of a call on the store, its retries included. Default 30 s.
    pub deadline: Duration,
}

/// Options hold secrets: only their names are shown.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &self.url)
            .field("options", &self.options.keys())
            .field("inline_bytes_max", &self.inline_bytes_max)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl Config {
    /// The defaults, at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        let (options, inline_bytes_max) = (BTreeMap::new(), INLINE_BYTES_MAX);
        Self { url: url.into(), options, inline_bytes_max, deadline: Duration::from_secs(30) }
    }

    pub(crate) fn location(&self) -> Result<Location, Error> {
        let invalid = |what: &str| {
            let message = format!("the content store {:?} {what}; use file:DIR or s3://BUCKET/PREFIX", self.url);
            Err(Error::new(Kind::Invalid, message))
        };
        if !INLINE_BYTES_RANGE.contains(&self.inline_bytes_max) {
            let (least, most) = (INLINE_BYTES_RANGE.start(), INLINE_BYTES_RANGE.end());
            let message =
                format!("the inline limit of {} bytes is not between {least} and {most}", self.inline_bytes_max);
            return Err(Error::new(Kind::Invalid, message));
        }
        if let Some(rest) = self.url.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            return match bucket {
                "" => invalid("names no bucket"),
                bucket => Ok(Location::S3 { bucket: bucket.into(), prefix: prefix.trim_matches('/').into() }),
            };
        }
        let Some(path) = self.url.strip_prefix("file:") else { return invalid("is neither a folder nor an S3 bucket") };
        // file:///a and file:/a are the same folder. file:a is relative to the working directory.
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        match path {
            "" | "//" => invalid("names no folder"),
            path if path.starts_with("//") => invalid("names a host"),
            _ if !self.options.is_empty() => invalid("is a folder, which has no options"),
            path => Ok(Location::Folder(PathBuf::from(path))),
        }
    }
}

/// The location of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Folder(PathBuf),
    S3 { bucket: String, prefix: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_options_are_not_printed() {
        let options = [("secret_access_key".to_owned(), "hunter2".to_owned())].into();
        let shown = format!("{:?}", Config { options, ..Config::new("s3://b") });
        assert!(shown.contains("secret_access_key") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_url_names_a_folder_or_a_bucket_and_nothing_else() {
        let location = |url: &str| Config::new(url).location();
        for (url, path) in [("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("file:a", "a"), ("file:./a b", "./a b")] {
            assert_eq!(location(url).expect(url), Location::Folder(path.into()));
        }
        for (url, bucket, prefix) in [("s3://b", "b", ""), ("s3://b/", "b", ""), ("s3://b/x/y/", "b", "x/y")] {
            assert_eq!(location(url).expect(url), Location::S3 { bucket: bucket.into(), prefix: prefix.into() });
        }
        for url in ["", "/a", "file:", "file://", "file://host/a", "s3:", "s3://", "s3:///x", "gs://b", "http://h/b"] {
            assert_eq!(location(url).expect_err(url).kind(), Kind::Invalid, "{url}");
        }
    }
}
