//! The certificate that a client showed when it connected: the names of its subject, and when it ends.

use super::{auth::identities::CertificateName, tls::not_after};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// A certificate of an authority of `--tls-client-ca`: the handshake verified it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientCertificate {
    /// Its subject alternative names that are URIs or DNS names. An authority signed each of them.
    pub(super) names: Vec<CertificateName>,
    /// When it ends, milliseconds since the Unix epoch. A connection may outlive it, and resumes without showing it again.
    pub(super) expires_millis: u64,
}

impl ClientCertificate {
    /// The first one of a chain; none where the client showed none, or one that names nobody.
    pub(super) fn of(chain: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        let certificate = chain?.first()?;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let uris = parsed.valid_uri_names().map(|name| CertificateName::Uri(name.to_owned()));
        let dns = parsed.valid_dns_names().map(|name| CertificateName::Dns(name.to_ascii_lowercase()));
        Some(Self { names: uris.chain(dns).collect(), expires_millis: not_after(certificate)? })
    }
}
