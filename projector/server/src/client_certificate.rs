//! The certificate of a client's connection: its names and its expiry.

use super::{auth::identities::CertificateName, tls::not_after};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// A certificate from an authority of `--tls-client-ca`, verified by the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientCertificate {
    /// Its subject alternative names that are URIs or DNS names. An authority signed each of them.
    pub(super) names: Vec<CertificateName>,
    /// When it expires, milliseconds since the Unix epoch. A connection may outlive it, and TLS resumption does not
    /// present it again.
    pub(super) expires_millis: u64,
}

impl ClientCertificate {
    /// Reads the first certificate of a chain. Returns none without a certificate, or if it cannot be parsed.
    pub(super) fn from_chain(chain: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        let certificate = chain?.first()?;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let uris = parsed.valid_uri_names().map(|name| CertificateName::Uri(name.to_owned()));
        let dns = parsed.valid_dns_names().map(|name| CertificateName::Dns(name.to_ascii_lowercase()));
        Some(Self { names: uris.chain(dns).collect(), expires_millis: not_after(certificate)? })
    }
}
