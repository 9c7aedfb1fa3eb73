//! The context of the commands that query a server: client, output and settings.

use crate::{
    args::{Deadline, ReadOptions},
    client::{Client, Target},
    config::Config,
    error::Error,
    output::Output,
};
use runlog_schemas::answer::{ErrorKind, Feature, Journal};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Default time limit of an answer.
pub(crate) const READ_WAIT: Duration = Duration::from_secs(10);
/// Default time limit of an append.
pub(crate) const APPEND_WAIT: Duration = Duration::from_secs(30);
/// Default time limit of a verification.
pub(crate) const VERIFY_WAIT: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) config: Config,
    /// Number of `-v` flags.
    pub(crate) verbose: u8,
}

impl Session {
    /// Gets an answer with the freshness of `options`.
    pub(crate) async fn read<T: DeserializeOwned>(&self, target: Target, options: &ReadOptions) -> Result<T, Error> {
        let target = target.with_some("consistency", self.config.consistency(options));
        self.client.get(target, self.wait(&options.wait, READ_WAIT)).await
    }

    /// Gets an answer, or `None` if it is "not found".
    pub(crate) async fn find<T: DeserializeOwned>(&self, target: Target, wait: Duration) -> Result<Option<T>, Error> {
        match self.client.get(target, wait).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that the server has all of `features`, before a request that a server without them would misunderstand. Returns the
    /// server's journal, which lists the others.
    ///
    /// Errors: `Usage` with the missing feature. The check has no effect.
    pub(crate) async fn needs(&self, features: &[Feature], wait: Duration) -> Result<Journal, Error> {
        let journal: Journal = self.client.get(Target::new("/v1/journal"), wait).await?;
        match features.iter().find(|feature| !journal.has(**feature)) {
            None => Ok(journal),
            Some(feature) => Err(Error::usage(format!(
                "{} does not have the feature {feature}; {}. Nothing happened",
                self.client.base(),
                feature.remedy()
            ))),
        }
    }

    pub(crate) fn wait(&self, given: &Deadline, default: Duration) -> Duration {
        self.config.deadline(given.deadline).unwrap_or(default)
    }
}
