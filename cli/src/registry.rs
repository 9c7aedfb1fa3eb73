//! The journal's schema registry, as flag, environment and file name it.

use crate::{Error, config};
use runlog_registry::{Auth, Config, Kind, Registry};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{NoRegistry, Schemas},
    schema,
};
use std::{path::PathBuf, sync::Arc};

/// The registry's URL.
const URL: &str = "RUNLOG_REGISTRY";
/// `USER:PASSWORD` for the registry, so that a URL need not carry it.
const AUTH: &str = "RUNLOG_REGISTRY_AUTH";
/// A bearer token for the registry.
const TOKEN: &str = "RUNLOG_REGISTRY_TOKEN";

impl From<runlog_registry::Error> for Error {
    fn from(source: runlog_registry::Error) -> Self {
        let kind = match source.kind() {
            Kind::Invalid | Kind::Refused | Kind::Denied => ErrorKind::Invalid,
            Kind::NotFound => ErrorKind::NotFound,
            Kind::Unavailable => ErrorKind::Unavailable,
        };
        Self::new(kind, "schema registry failed").because(source)
    }
}

/// The registry that flag or environment (`given`) or file name for the records of `topic`; none where none does.
pub(crate) fn settings(
    given: Option<&str>,
    file: &config::Registry,
    topic: &str,
    dir: Option<PathBuf>,
) -> Result<Option<Config>, Error> {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(url) = given.filter(|url| !url.is_empty()).or(file.url.as_deref()) else { return Ok(None) };
    let mut config = Config::new(url, topic)?;
    if config.auth != Auth::None && given == Some(url) && env(URL).as_deref() != given {
        let what = "credentials on a command line can be read by other users of this machine";
        return Err(Error::new(ErrorKind::Usage, format!("{what}; give them in {AUTH} or {TOKEN}")));
    }
    if let Some(subject) = &file.subject {
        config.subject.clone_from(subject);
    }
    config.dir = dir;
    if let Some(text) = env(AUTH) {
        config.auth = Auth::basic(&text)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("{AUTH} must be USER:PASSWORD")))?;
    } else if let Some(token) = env(TOKEN).or_else(|| file.token.clone()) {
        config.auth = Auth::Bearer(token);
    } else if let Some(user) = &file.user {
        let password = file.password.clone().unwrap_or_default();
        config.auth = Auth::Basic { user: user.clone(), password };
    }
    Ok(Some(config))
}

/// The schemas of a server. One that the registry does not take ends it; where the registry does not answer, records are
/// read as far as its answers were kept, and appends wait until it does.
pub(crate) async fn schemas(config: Option<Config>) -> Result<Arc<dyn Schemas>, Error> {
    let Some(config) = config else { return Ok(Arc::new(NoRegistry)) };
    let registry = Registry::open(config)?;
    match registry.register(schema::lowest()).await {
        Ok(id) => tracing::info!(id, "records carry the registry's schema id"),
        Err(error) if error.kind() == Kind::Unavailable => tracing::warn!("nothing can be appended yet: {error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(Arc::new(registry))
}
