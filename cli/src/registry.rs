//! The journal's schema registry, from flag, environment and config file.

use crate::{config, error::Error};
use runlog_producer::Tls;
use runlog_registry::{Auth, Config, Kind, Registry};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{NoRegistry, Schemas},
    schema,
};
use std::{path::PathBuf, sync::Arc};

/// The registry's URL.
const URL: &str = "RUNLOG_REGISTRY";
/// `USER:PASSWORD` for the registry, so that the URL does not have to contain it.
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

/// A registry and the trusted authorities of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    config: Config,
    tls: Tls,
}

impl Settings {
    pub(crate) fn open(self) -> Result<Registry, Error> {
        let http = self.tls.http_client(self.config.is_encrypted())?;
        Ok(Registry::open(self.config, http)?)
    }
}

/// Returns the registry for the records of `topic` from flag or environment (`given`) or from the file, if configured.
pub(crate) fn settings(
    given: Option<&str>,
    file: &config::Config,
    topic: &str,
    dir: Option<PathBuf>,
) -> Result<Option<Settings>, Error> {
    let tls = Tls { ca: file.ca.clone(), ..Tls::default() };
    let file = &file.registry;
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
    Ok(Some(Settings { config, tls }))
}

/// Returns the schemas of a server. Fails if the registry refuses the schema. If the registry does not answer, the server
/// reads the records whose schemas are cached, and appends wait for the registry.
pub(crate) async fn schemas(settings: Option<Settings>) -> Result<Arc<dyn Schemas>, Error> {
    let Some(settings) = settings else { return Ok(Arc::new(NoRegistry)) };
    let registry = settings.open()?;
    match registry.register(schema::lowest()).await {
        Ok(id) => tracing::info!(id, "records carry the registry's schema id"),
        Err(error) if error.kind() == Kind::Unavailable => tracing::warn!("nothing can be appended yet: {error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(Arc::new(registry))
}
