//! Private parsers of credentials, for the fuzz targets in `projector/fuzz`. Only compiled with `--cfg fuzzing`.
//!
//! Each function panics if a claim about its parser does not hold.

use super::{
    auth::{fuzzed, token_file},
    client_certificate::ClientCertificate,
    mount::router_with,
    options::Options,
};
use axum::Router;
use runlog_projector::index::projector::Projector;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

pub use fuzzed::{jwt, key_set, receipt, token_file};

/// Makes the routes like [`router`](super::router), with options.
pub fn router(projector: Arc<Projector>, options: Options) -> Router {
    router_with(projector, options)
}

/// Reads the names of a certificate.
pub fn certificate(der: &[u8]) {
    let certificate = CertificateDer::from(der);
    if let Some(read) = ClientCertificate::from_chain(Some(&[certificate])) {
        // The expiry is formatted in warnings.
        assert!(!token_file::format_time(read.expires_millis).is_empty());
    }
}
