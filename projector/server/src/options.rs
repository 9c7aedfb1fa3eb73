//! The options of a server.

use super::{access::AllowedHosts, audit::Audit, auth::Authentication, instances::Instances, tls::Tls};
use std::sync::Arc;
use tokio::net::TcpListener;

/// How a server admits requests. Default: as on a machine with one user.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Names of this server.
    pub hosts: AllowedHosts,
    /// The accepted tokens. Default none: every client may do everything.
    pub authentication: Option<Arc<Authentication>>,
    /// The audit log. Default: none.
    pub audit: Option<Arc<Audit>>,
    /// The certificates. Default none: connections are not encrypted.
    pub tls: Option<Arc<Tls>>,
    /// The listener that answers `/healthz`, `/readyz` and `/metrics` without TLS and tokens. Default: only the main
    /// listener answers them.
    pub admin: Option<TcpListener>,
    /// Whether to serve the web page at `/ui`. Default: no.
    pub page: bool,
    /// The servers that share the journal's partitions. Default: this server knows no other server.
    pub instances: Option<Arc<Instances>>,
}

impl From<AllowedHosts> for Options {
    fn from(hosts: AllowedHosts) -> Self {
        Self { hosts, ..Self::default() }
    }
}
