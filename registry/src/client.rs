//! The requests to Confluent Schema Registry's REST API.
//!
//! | purpose | request | answers besides 200 |
//! |---|---|---|
//! | the schema of an id | `GET /schemas/ids/{id}` | 404 with code 40403 |
//! | the id of a schema | `POST /subjects/{subject}` | 404 with code 40401 or 40403 |
//! | a new id | `POST /subjects/{subject}/versions` | 409, 422 with code 42201 |
//! | compatibility of a schema | `POST /compatibility/subjects/{subject}/versions/latest` | 404 with code 40401 or 40402 |
//!
//! Each request may be repeated. A 404 without such a code does not come from a registry and is treated as no answer.

use crate::{
    config::{Auth, Config},
    error::{Error, Kind},
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::json;
use std::time::{Duration, Instant};

/// The maximum number of attempts at a request.
const ATTEMPTS_MAX: u32 = 4;
/// The pause before the second attempt; it doubles with each attempt.
const BACKOFF: Duration = Duration::from_millis(100);
/// The largest body that is read, bytes.
const BODY_BYTES_MAX: usize = 8 << 20;
/// The media type of Confluent's interface.
const MEDIA: &str = "application/vnd.schemaregistry.v1+json";

/// The interface's "no such subject", "no such version", "no such schema".
const NOT_FOUND: [u64; 3] = [40401, 40402, 40403];

/// A client without a cache. See [`crate::Registry`] for one with a cache.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    config: Config,
}

#[derive(Deserialize)]
struct Refusal {
    error_code: u64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct SchemaOf {
    schema: String,
    #[serde(default, rename = "schemaType")]
    schema_type: Option<String>,
    /// Only their number matters.
    #[serde(default)]
    references: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct IdOf {
    id: u32,
}

#[derive(Deserialize)]
struct Compatibility {
    is_compatible: bool,
}

impl Client {
    /// Creates a client from `http`, which has the trusted authorities, without sending a request. It follows no redirect,
    /// which could send credentials to another host.
    ///
    /// Errors: `Invalid` for credentials that would go to another machine without TLS.
    pub fn new(config: Config, http: reqwest::ClientBuilder) -> Result<Self, Error> {
        let mut builder =
            http.connect_timeout(config.request).timeout(config.request).redirect(reqwest::redirect::Policy::none());
        if matches!(config.url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            builder = builder.no_proxy();
        } else if !config.is_encrypted() && config.auth != Auth::None {
            let what = format!("the credentials for the registry {} would not be encrypted", config.display_url());
            return Err(Error::new(Kind::Invalid, format!("{what}; use https://")));
        }
        let http = builder
            .build()
            .map_err(|error| Error::new(Kind::Invalid, format!("cannot create the HTTP client: {error}")))?;
        Ok(Self { http, config })
    }

    /// The client's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Reads the text of the Avro schema with this id. A schema of another type, or with references, is `Refused`.
    pub async fn schema(&self, id: u32) -> Result<String, Error> {
        let answer: SchemaOf = self.send_with_retries(Method::GET, &["schemas", "ids", &id.to_string()], None).await?;
        match answer.schema_type.as_deref() {
            None | Some("AVRO") if answer.references.is_empty() => Ok(answer.schema),
            None | Some("AVRO") => Err(Error::new(Kind::Refused, format!("id {id} is a schema that refers to others"))),
            Some(other) => Err(Error::new(Kind::Refused, format!("id {id} is not an Avro schema but {other}"))),
        }
    }

    /// Reads the subject's id of `schema`.
    pub async fn look_up(&self, schema: &str) -> Result<u32, Error> {
        let body = json!({ "schema": schema });
        Ok(self.send_with_retries::<IdOf>(Method::POST, &["subjects", &self.config.subject], Some(body)).await?.id)
    }

    /// Registers `schema` with the subject, which must accept it. Returns its id, also if it was registered before.
    pub async fn register(&self, schema: &str) -> Result<u32, Error> {
        let body = json!({ "schema": schema });
        Ok(self
            .send_with_retries::<IdOf>(Method::POST, &["subjects", &self.config.subject, "versions"], Some(body))
            .await?
            .id)
    }

    /// Returns whether the subject would accept `schema`, by its own rule against its latest version. True for a new subject.
    pub async fn is_compatible(&self, schema: &str) -> Result<bool, Error> {
        let path = ["compatibility", "subjects", &self.config.subject, "versions", "latest"];
        match self.send_with_retries::<Compatibility>(Method::POST, &path, Some(json!({ "schema": schema }))).await {
            Ok(answer) => Ok(answer.is_compatible),
            Err(error) if error.kind() == Kind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends a request until there is an answer, at most [`ATTEMPTS_MAX`] times within the deadline.
    async fn send_with_retries<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<serde_json::Value>,
    ) -> Result<T, Error> {
        let until = Instant::now() + self.config.deadline;
        let mut wait = BACKOFF;
        for attempt in 1.. {
            let mut request = self.http.request(method.clone(), self.config.resource(path));
            if let Some(body) = &body {
                request = request.json(body);
            }
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.send_once(request.header("accept", MEDIA));
            let error = match tokio::time::timeout(left, answer).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => self.unavailable("gave no answer in time"),
            };
            let left = until.saturating_duration_since(Instant::now());
            if error.kind() != Kind::Unavailable || attempt >= ATTEMPTS_MAX || left <= wait {
                return Err(error);
            }
            tracing::debug!(attempt, "{error}; retrying");
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Err(self.unavailable("was not asked"))
    }

    async fn send_once<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let request = match &self.config.auth {
            Auth::None => request,
            Auth::Basic { user, password } => request.basic_auth(user, Some(password)),
            Auth::Bearer(token) => request.bearer_auth(token),
        };
        let response = request.send().await.map_err(|error| self.unavailable(cause(&error)))?;
        let status = response.status();
        let body = self.read_body(response).await?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                self.unavailable(format!(
                    "answered {status} with a body that is not of the registry's interface: {error}"
                ))
            });
        }
        let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
        let code = refusal.as_ref().map(|refusal| refusal.error_code);
        let reason = refusal.map_or_else(|| "without an error message".to_owned(), |refusal| refusal.message);
        let message = format!("registry {} answered {status}: {reason}", self.config.display_url());
        Err(match (status, code) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Error::new(Kind::Denied, message),
            (StatusCode::NOT_FOUND, Some(code)) if NOT_FOUND.contains(&code) => Error::new(Kind::NotFound, message),
            (StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY, Some(_)) => Error::new(Kind::Refused, message),
            _ => Error::new(Kind::Unavailable, message),
        })
    }

    async fn read_body(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unavailable(cause(&error)))? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(self.unavailable(format!("answered with more than {BODY_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn unavailable(&self, what: impl std::fmt::Display) -> Error {
        Error::new(Kind::Unavailable, format!("registry {} {what}", self.config.display_url()))
    }
}

/// Returns the innermost cause. The outer causes repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "gave no answer in time".to_owned();
    }
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    let why = source.to_string();
    // The words of rustls, whose error is inside an I/O error here.
    let remedy =
        if why.contains("UnknownIssuer") { "; name a file of its certificate authorities with --ca" } else { "" };
    format!("does not answer: {why}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_another_machine_over_tls_only() {
        let opened = |url: &str| {
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let tls =
                rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            Client::new(Config::new(url, "t").unwrap(), reqwest::Client::builder().tls_backend_preconfigured(tls))
        };
        for url in ["https://me:secret@host", "http://host", "http://me:secret@127.0.0.1:8081"] {
            assert!(opened(url).is_ok(), "{url}");
        }
        let refusal = opened("http://me:secret@host:8081").unwrap_err();
        assert!(refusal.kind() == Kind::Invalid && !refusal.to_string().contains("secret"), "{refusal}");
    }
}
