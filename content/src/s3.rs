//! S3 object stores, with `object_store` over HTTP connections of this module.

use crate::{
    config::Config,
    error::{Error, Kind},
};
use http_body_util::BodyExt;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector as Tcp},
    rt::TokioExecutor,
};
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use std::{
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

/// The connect timeout.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The timeout of one attempt, short enough to leave time for another one if the store hangs.
const ATTEMPT_WAIT: Duration = Duration::from_secs(15);
/// Retries after the first attempt.
const RETRIES_MAX: usize = 5;

/// The option that lets content and the store's keys go over a network without TLS.
const ALLOW_HTTP: AmazonS3ConfigKey = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);

/// Opens the bucket with the configuration from environment and options. An option overrides the environment.
///
/// Errors: `Invalid` for an unknown option, and for an endpoint without TLS on another machine, unless `allow_http` is set.
pub(crate) fn open(bucket: &str, config: &Config) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    for (name, value) in &config.options {
        let key: AmazonS3ConfigKey = name.to_ascii_lowercase().parse().map_err(|error: object_store::Error| {
            Error::new(Kind::Invalid, format!("the content store has no option {name}")).because(error)
        })?;
        if matches!(key, AmazonS3ConfigKey::Client(_)) && key != ALLOW_HTTP {
            let message = format!(
                "the content store does not support the option {name}, because Runlog makes its connections itself"
            );
            return Err(Error::new(Kind::Invalid, message));
        }
        builder = builder.with_config(key, value);
    }
    let builder = over_tls(builder)?;
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

/// Accepts an endpoint without TLS on this machine, or if `allow_http` is set.
fn over_tls(builder: AmazonS3Builder) -> Result<AmazonS3Builder, Error> {
    let option = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
    let Some(endpoint) = option(AmazonS3ConfigKey::S3Endpoint).or_else(|| option(AmazonS3ConfigKey::Endpoint)) else {
        return Ok(builder);
    };
    let plain = endpoint.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http"));
    match plain.and_then(|(_, rest)| rest.split('/').next()) {
        None => Ok(builder),
        Some(authority) if is_this_machine(authority) => Ok(builder.with_allow_http(true)),
        Some(_) if option(ALLOW_HTTP).as_deref() == Some("true") => Ok(builder),
        Some(authority) => {
            let authority = authority.rsplit('@').next().unwrap_or_default();
            let what = format!("the content store's endpoint http://{authority} is not encrypted");
            Err(Error::new(
                Kind::Invalid,
                format!("{what}; use https://, or accept it with the option allow_http=true"),
            ))
        }
    }
}

/// Whether `HOST` or `HOST:PORT` is a loopback address.
fn is_this_machine(authority: &str) -> bool {
    let host = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    let address = authority.parse().map(|address: SocketAddr| address.ip()).or_else(|_| host.parse::<IpAddr>());
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    address.is_ok_and(|address| address.is_loopback())
        || authority == "localhost"
        || authority.strip_prefix("localhost:").is_some_and(is_port)
}

#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
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
                tracing::warn!(
                    "the system has no root certificates, so a content store over TLS is not trusted: {error}"
                );
                builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
            }
        };
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_WAIT));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let connector = if allows_http { connector.https_or_http() } else { connector.https_only() }.enable_http1();
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

/// Maps an error to a kind that object_store retries: always after a failed connect, else for idempotent requests.
fn kind(error: &ClientError) -> HttpErrorKind {
    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_tls_is_on_this_machine_or_accepted_by_name() {
        let opened = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            open("b", &Config { options, ..Config::new("s3://b") }).map_err(|error| error.to_string())
        };
        for endpoint in ["https://store:9000", "http://127.0.0.1:9000", "http://[::1]:9000/", "http://localhost:9000"] {
            assert!(opened(&[("endpoint", endpoint)]).is_ok(), "{endpoint}");
        }
        for endpoint in ["http://store:9000", "HTTP://10.0.0.1", "http://127.0.0.1:80@store/", "http://localhost.store"]
        {
            let refusal = opened(&[("endpoint", endpoint)]).expect_err(endpoint);
            assert!(refusal.contains("allow_http=true"), "{refusal}");
            assert!(opened(&[("endpoint", endpoint), ("allow_http", "true")]).is_ok(), "{endpoint}");
        }
        let ignored = opened(&[("allow_invalid_certificates", "true")]).expect_err("it would be ignored");
        assert!(ignored.contains("allow_invalid_certificates"), "{ignored}");
    }
}
