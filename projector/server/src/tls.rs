//! The server's certificate, which follows its files.
//!
//! ```text
//!   cert, key, client CA ──every 2 s──▶ ServerConfig ──▶ the next handshakes
//! ```
//!
//! Existing connections keep their certificate. Unusable files change nothing.

use super::watched_file::{self, Reload, WatchedFile};
use runlog_log::private_file::{Exposure, exposure};
use runlog_projector::index::executor::Executor;
use runlog_schemas::datum::Sha256;
use rustls::{
    CertificateError, ClientConfig, RootCertStore, ServerConfig,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject},
    },
    server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier},
};
use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_rustls::TlsAcceptor;

/// The largest file, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The protocol inside TLS (ALPN).
const ALPN: &[u8] = b"http/1.1";

/// The files of certificates and keys, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's certificate, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// Its private key, which only its owner may read.
    pub key: PathBuf,
    /// The authorities of client certificates. If set, a client without a certificate from them is refused. Default
    /// none.
    pub client_ca: Option<PathBuf>,
}

/// Why certificates are not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Users other than the owner can read, write or replace the key.
    #[error("{}", exposure.message("private key", path))]
    Exposed {
        /// The file.
        path: PathBuf,
        /// How.
        exposure: Exposure,
    },
    /// A file is too long.
    #[error("{} is longer than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file does not contain the expected PEM items.
    #[error("{} has no {what} in PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected items.
        what: &'static str,
        /// Why; absent if the file simply has no such item.
        source: Option<pem::Error>,
    },
    /// Certificate and key do not match, or one of them is damaged.
    #[error("certificate {} and key {} cannot be used together", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// Authorities cannot be used.
    #[error("the authorities of {} cannot be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// TLS for a server's connections: 1.2 and 1.3.
pub struct Tls {
    files: Files,
    settings: WatchedFile<TlsSettings>,
}

/// The settings made from the files.
struct TlsSettings {
    config: Arc<ServerConfig>,
    /// When the first certificate of the server's chain expires, milliseconds since the Unix epoch.
    expires_millis: Option<u64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Blocking.
    ///
    /// Errors: any defect that makes them unusable.
    pub fn open(files: Files) -> Result<Arc<Self>, Error> {
        let content = Content::read(&files)?;
        let settings = WatchedFile::new(content.sha256(), content.build_settings(&files)?);
        Ok(Arc::new(Self { files, settings }))
    }

    /// Reads the files again. If they are unusable, the old certificates stay in use, and the reason is logged.
    /// Blocking.
    pub fn reload(&self) {
        let read = Content::read(&self.files).map(|content| (content.sha256(), content));
        match self.settings.update(read, |content, _| content.build_settings(&self.files)) {
            Reload::Same | Reload::Restored => {}
            Reload::Replaced => tracing::info!(cert = %self.files.cert.display(), "the certificates were read again"),
            Reload::Unusable(why) => {
                tracing::error!("the certificates stay as they were, since their files cannot be used: {why}");
            }
        }
    }

    /// Why the current files are not used; `None` if they are used.
    pub(super) fn failure(&self) -> Option<String> {
        self.settings.failure()
    }

    /// When the first certificate of the server's chain expires, milliseconds since the Unix epoch.
    pub(super) fn expires_millis(&self) -> Option<u64> {
        self.settings.current().expires_millis
    }

    /// Reads the files every 2 s, until the future is dropped.
    pub(super) async fn reload_periodically(self: Arc<Self>, executor: Executor) {
        watched_file::reload_periodically(executor, move || self.reload()).await;
    }

    /// The acceptor for the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.settings.current().config))
    }
}

/// The files' content.
struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Content {
    fn read(files: &Files) -> Result<Self, Error> {
        Ok(Self {
            cert: read(&files.cert, false)?,
            key: read(&files.key, true)?,
            client_ca: files.client_ca.as_deref().map(|path| read(path, false)).transpose()?,
        })
    }

    fn sha256(&self) -> [u8; 32] {
        let parts = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten();
        Sha256::of_prefixed(parts.map(Vec::as_slice)).0
    }

    fn build_settings(&self, files: &Files) -> Result<TlsSettings, Error> {
        let chain = certificates(&files.cert, &self.cert)?;
        let expires_millis = chain.iter().filter_map(not_after).min();
        Ok(TlsSettings { config: Arc::new(self.config(files, chain)?), expires_millis })
    }

    fn config(&self, files: &Files, chain: Vec<CertificateDer<'static>>) -> Result<ServerConfig, Error> {
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|source| no(&files.key, "private key", Some(source)))?;
        let pair = |source| Error::Pair { cert: files.cert.clone(), key: files.key.clone(), source };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(pair)?;
        let builder = match files.client_ca.as_deref().zip(self.client_ca.as_deref()) {
            None => builder.with_no_client_auth(),
            Some((path, pem)) => {
                let roots = Arc::new(roots(path, pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let refused = |error: VerifierBuilderError| unusable(path, error.into());
                builder.with_client_cert_verifier(verifier.map_err(refused)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

/// Reads the authorities of a PEM file, at least one. Blocking.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    roots(path, &read(path, false)?)
}

/// The authorities that this system trusts. Blocking.
pub(super) fn authorities_of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The settings of a client that trusts these authorities and shows no certificate.
pub(super) fn trusting(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, pem)? {
        roots.add(authority).map_err(|error| unusable(path, error.into()))?;
    }
    Ok(roots)
}

fn unusable(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Authorities { path: path.to_owned(), source }
}

/// Parses the certificates of a file, at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.map_err(|source| no(path, "certificate", Some(source)))?;
    if certificates.is_empty() { Err(no(path, "certificate", None)) } else { Ok(certificates) }
}

/// Returns when a certificate expires, milliseconds since the Unix epoch. rustls reports it only in the error of a
/// verification after that time.
pub(super) fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let too_late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], too_late, algorithms) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs().saturating_mul(1000))
        }
        _ => None,
    }
}

fn no(path: &Path, what: &'static str, source: Option<pem::Error>) -> Error {
    Error::Pem { path: path.to_owned(), what, source }
}

/// Reads a file. A private file must be usable by its owner only.
fn read(path: &Path, private: bool) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    if private && let Some(exposure) = exposure(&file, path).map_err(failed)? {
        return Err(Error::Exposed { path: path.to_owned(), exposure });
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES_MAX { Err(Error::TooLarge { path: path.to_owned() }) } else { Ok(content) }
}
