//! The protection of a connection to a server: the server's certificate, the client's certificate, and the token.

use crate::{
    client_cert::{ClientCert, certificates},
    error::{Action, Error},
    token::Token,
};
use reqwest::{
    ClientBuilder, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
    redirect,
};
use runlog_schemas::answer::ErrorKind;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore, client::WantsClientCert,
    crypto::ring,
};
use std::{error, io, net::IpAddr, path::PathBuf, sync::Arc};

/// The certificates for `https://` connections, in PEM files. Default: the system's authorities, and no client certificate. The
/// authorities are read once per client. The client certificate is read for each connection, so that it can be renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Trusted authorities, which replace the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate, followed by its intermediate certificates.
    pub client_cert: Option<PathBuf>,
    /// The private key of `client_cert`; only its owner may read the file. Default: the file of the certificate.
    pub client_key: Option<PathBuf>,
}

impl Tls {
    /// Uses the files that `RUNLOG_CA`, `RUNLOG_CLIENT_CERT` and `RUNLOG_CLIENT_KEY` name.
    pub fn from_env() -> Self {
        let path_from = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            ca: path_from("RUNLOG_CA"),
            client_cert: path_from("RUNLOG_CLIENT_CERT"),
            client_key: path_from("RUNLOG_CLIENT_KEY"),
        }
    }

    /// Errors: `Usage` for an unusable file.
    fn config(&self) -> Result<ClientConfig, Error> {
        let builder = config(self.authorities()?)?;
        let config = match (&self.client_cert, &self.client_key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(cert), key) => {
                let own = ClientCert::open(cert, key.as_ref().unwrap_or(cert))?;
                Ok(builder.with_client_cert_resolver(Arc::new(own)))
            }
            (None, Some(key)) => {
                Err(usage(format!("the client key {} has no certificate: name its file too", key.display())))
            }
        };
        let mut config = config?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Starts an HTTP client whose `https://` connections use these certificates. It follows no redirect, which could lead to
    /// `http://`. For a client that will not connect over TLS, no certificate is read.
    ///
    /// Errors: `Usage` for an unusable file.
    pub fn http_client(&self, is_encrypted: bool) -> Result<ClientBuilder, Error> {
        // Needed for `http://` too: otherwise reqwest uses the process's default crypto provider, and panics without
        // one.
        let tls = if is_encrypted { self.config()? } else { config(RootCertStore::empty())?.with_no_client_auth() };
        Ok(ClientBuilder::new().redirect(redirect::Policy::none()).tls_backend_preconfigured(tls))
    }

    fn authorities(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &self.ca {
            for authority in certificates(ca)? {
                let refused = |error| usage(format!("an authority of {} cannot be used: {error}", ca.display()));
                roots.add(authority).map_err(refused)?;
            }
            return Ok(roots);
        }
        // rustls may be unable to parse some of the system's authorities.
        let native_certs = rustls_native_certs::load_native_certs();
        let (taken, _) = roots.add_parsable_certificates(native_certs.certs);
        if taken == 0 {
            return Err(usage(
                "this system has no certificate authorities: name a file of them with --ca or RUNLOG_CA".to_owned(),
            ));
        }
        Ok(roots)
    }
}

/// Starts a configuration: TLS 1.2 and 1.3 with ring, and these authorities.
fn config(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| usage(format!("TLS cannot be used: {error}")))?;
    Ok(builder.with_root_certificates(roots))
}

/// The credentials and the TLS settings of a client.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// The token for every request. Default none.
    pub token: Option<Token>,
    /// The certificates for `https://` servers.
    pub tls: Tls,
    /// Sends the token over `http://` to other machines too, where others on the network can read it. Default false.
    pub insecure_no_tls: bool,
}

impl Security {
    /// Builds a client for the server at `http://…` or `https://…`. It uses no proxy and follows no redirect.
    ///
    /// Errors: `Usage` for another URL, for a token that would be sent unencrypted to another machine, and for unusable files.
    pub fn client(&self, server: &str) -> Result<ClientBuilder, Error> {
        // The error must not repeat credentials.
        let shown = if server.contains('@') { String::new() } else { format!(" {server:?}") };
        let refusal = |why: String| usage(format!("invalid server URL{shown}: {why}"));
        let url = Url::parse(server).map_err(|error| refusal(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refusal("it must start with https:// or http://".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refusal("it must have no query and no fragment".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let why = "credentials do not belong in a URL: name a file with --token-file or RUNLOG_TOKEN_FILE";
            return Err(usage(format!("invalid server URL: {why}")));
        }
        let encrypted = url.scheme() == "https";
        if self.token.is_some() && !encrypted && !self.insecure_no_tls && !url.host_str().is_some_and(is_loopback) {
            return Err(usage(format!(
                "the token is not sent to {server}, since others on the network could read it: use https://, or accept that \
                 with --insecure-no-tls (Config::insecure_no_tls)"
            )));
        }
        // A proxy from the environment would also receive requests for loopback addresses.
        Ok(self.tls.http_client(encrypted)?.no_proxy().default_headers(self.headers()?))
    }

    fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(token.header());
            let mut value = value.map_err(|error| usage(format!("the token cannot be sent: {error}")))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// Whether a URL's host is a loopback name or address, without asking the resolver.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let by_address = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    by_address || host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, Action::FixTheInput, message)
}

/// Explains a TLS failure, with its remedy. `None` for an error with another cause.
pub fn tls_failure(error: &reqwest::Error) -> Option<String> {
    let is_encrypted = error.url().is_some_and(|url| url.scheme() == "https");
    let mut was_closed = false;
    let mut next: Option<&(dyn error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(explained(found));
        }
        was_closed |= error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        // `io::Error::source` skips the wrapped error itself.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    // In TLS 1.3 the client completes the handshake before the server has checked the client certificate. If the refusal
    // arrives before the request is sent, hyper does not expose it.
    (is_encrypted && was_closed).then(|| CLOSED.to_owned())
}

/// The message for a connection that the server closed between the handshake and the request.
const CLOSED: &str = "the server closed the connection before the request was sent: either it asks for a client certificate \
                      (name its files with --client-cert and --client-key, or RUNLOG_CLIENT_CERT and RUNLOG_CLIENT_KEY), or \
                      it does not accept this client's certificate, or it is shutting down";

fn explained(error: &rustls::Error) -> String {
    use CertificateError as Certificate;
    let what = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "the server's certificate is of an authority that is not trusted here: name the authority's file with --ca or \
             RUNLOG_CA"
        }
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "the server's certificate has expired: renew it, and check this machine's clock"
        }
        rustls::Error::InvalidCertificate(Certificate::NotValidYet | Certificate::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet: check this machine's clock"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "the server's certificate is for another name: use a name of the certificate in the URL",
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a client certificate: name its files with --client-cert and --client-key, or \
             RUNLOG_CLIENT_CERT and RUNLOG_CLIENT_KEY"
        }
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::DecryptError,
        ) => "the server does not accept this client's certificate",
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS: use http://",
        _ => "no TLS connection can be made",
    };
    format!("{what} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(server: &str, security: &Security) -> String {
        security.client(server).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_token_goes_over_tls_or_to_this_machine_unless_that_is_accepted() {
        let token = Some(Token::new("secret").unwrap());
        let mut security = Security { token, ..Security::default() };
        for server in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "http://a.LOCALHOST.:1/x"] {
            assert_eq!(refusal(server, &security), "", "{server}");
        }
        for server in ["http://h", "http://10.0.0.1:7070", "http://localhost.example", "http://127.0.0.1.example"] {
            let error = refusal(server, &security);
            assert!(
                error.contains("https://") && error.contains("--insecure-no-tls") && !error.contains("secret"),
                "{error}"
            );
            assert_eq!(refusal(server, &Security::default()), "", "without a token: {server}");
        }
        security.insecure_no_tls = true;
        assert_eq!(refusal("http://h", &security), "");
    }

    #[test]
    fn a_url_that_is_no_servers_is_refused_without_its_password() {
        for url in [
            "",
            "h:7070",
            "ftp://h",
            "http://",
            "http://h/?a=b",
            "http://h/#a",
            "https://me:hunter2@h",
            "ftp://me:hunter2@h",
            "http://me:hunter2@",
        ] {
            let error = refusal(url, &Security::default());
            assert!(error.contains("invalid server URL") && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_client_key_without_certificate_and_a_file_without_certificates_are_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = || Some(file.path().to_owned());
        for tls in [
            Tls { ca: path(), ..Tls::default() },
            Tls { client_key: path(), ca: None, client_cert: None },
            Tls { ca: Some("/nowhere".into()), ..Tls::default() },
        ] {
            let named = tls.ca.clone().or(tls.client_key.clone()).unwrap();
            let error = refusal("https://h", &Security { tls, ..Security::default() });
            // Without system authorities the error is about them instead.
            assert!(error.contains(named.to_str().unwrap()) || error.contains("--ca"), "{error}");
        }
    }
}
