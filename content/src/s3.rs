//! Object stores that speak S3, by `object_store` over a connection of our own.

use crate::{Config, Error, Kind};
use http_body_util::BodyExt;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector as Tcp},
    rt::TokioExecutor,
};
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use std::{pin::Pin, sync::Arc, time::Duration};

/// The connect timeout.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The timeout of one attempt, short enough to leave time for another one if the store hangs.
const ATTEMPT_WAIT: Duration = Duration::from_secs(15);
/// Retries after the first attempt.
const RETRIES_MAX: usize = 5;

/// The bucket, as environment and options say. An option wins over the environment.
pub(crate) fn open(bucket: &str, config: &Config) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    for (name, value) in &config.options {
        let key: AmazonS3ConfigKey = name.to_ascii_lowercase().parse().map_err(|error: object_store::Error| {
            Error::new(Kind::Invalid, format!("the content store has no option {name}")).because(error)
        })?;
        builder = builder.with_config(key, value);
    }
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(3),
        ..BackoffConfig::default()
    };
    let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: config.deadline };
    let built = builder.with_retry(retry).with_http_connector(Connector).build();
    let store = built.map_err(|error| {
        Error::new(Kind::Invalid, format!("the content store {} cannot be opened", config.url)).because(error)
    })?;
    Ok(Arc::new(store))
}

#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source| object_store::Error::Generic { store: "S3", source };
        let builder = || {
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| failed(Box::new(error)))
        };
        let tls = match builder()?.with_native_roots() {
            Ok(rooted) => rooted.with_no_client_auth(),
            Err(error) => {
                // A store in the same network may be used without TLS.
                tracing::warn!("the system has no certificates, so that no content store is trusted over TLS: {error}");
                builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
            }
        };
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_WAIT));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp));
        Ok(HttpClient::new(Connection(client)))
    }
}

#[derive(Debug)]
struct Connection(Client<HttpsConnector<Tcp>, HttpRequestBody>);

type Answered<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Connection {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Answered<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let answered = tokio::time::timeout(ATTEMPT_WAIT, self.0.request(request)).await;
            let answered = answered.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
            let (parts, body) = answered.map_err(|error| HttpError::new(kind(&error), error))?.into_parts();
            let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
        })
    }
}

/// The errors that object_store may retry: all but an answer that is not HTTP.
fn kind(error: &ClientError) -> HttpErrorKind {
    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted }
}
