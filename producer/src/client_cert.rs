//! The client certificate for TLS, read from its files for each connection.

use crate::{
    error::{Action, Error},
    token::read_private,
};
use runlog_schemas::answer::ErrorKind;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// The maximum size of a private key file, bytes.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// A certificate and its key, read for each connection. A renewed certificate is used without a restart.
#[derive(Debug)]
pub(crate) struct ClientCert {
    cert: PathBuf,
    key: PathBuf,
    /// The last valid certificate, which is used while its files are being replaced.
    last: Mutex<Arc<CertifiedKey>>,
}

impl ClientCert {
    /// Errors: `Usage` for unusable files.
    pub(crate) fn open(cert: &Path, key: &Path) -> Result<Self, Error> {
        let last = Mutex::new(Arc::new(read(cert, key)?));
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), last })
    }
}

impl ResolvesClientCert for ClientCert {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let read = read(&self.cert, &self.key);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(now) => *last = Arc::new(now),
            Err(error) => tracing::warn!("the previous client certificate stays in use: {error}"),
        }
        Some(Arc::clone(&last))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn read(cert: &Path, key: &Path) -> Result<CertifiedKey, Error> {
    let pem = read_private(key, "private key", KEY_BYTES_MAX)?;
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| usage(format!("{} has no private key in PEM: {error}", key.display())))?;
    CertifiedKey::from_der(certificates(cert)?, der, &ring::default_provider()).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        usage(format!("client certificate {cert} and key {key} cannot be used together: {error}"))
    })
}

/// Reads the certificates of a PEM file, at least one.
///
/// Errors: `Usage` for an unreadable file, or a file without a certificate.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let named = path.display();
    let certs = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certs {
        Ok(certs) if certs.is_empty() => Err(usage(format!("{named} has no certificate in PEM"))),
        Ok(certs) => Ok(certs),
        Err(error) => Err(usage(format!("cannot read the certificates of {named}: {error}"))),
    }
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, Action::FixTheInput, message)
}
