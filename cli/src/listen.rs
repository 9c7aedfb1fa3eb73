//! Addresses to serve HTTP at.

use crate::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// The default address of HTTP.
pub(crate) const DEFAULT: &str = "127.0.0.1:7070";

/// Listens at an address of this machine.
///
/// Errors: `Unavailable` for an address in use, `Usage` otherwise.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| unusable(address, &error))
}

/// The protection of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protected {
    /// Connections are encrypted.
    pub(crate) tls: bool,
    /// Requests need tokens.
    pub(crate) tokens: bool,
}

/// The missing protection that an operator accepted for requests of other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Others in the network can read and change requests.
    pub(crate) no_tls: bool,
    /// Every client that reaches the server may do everything.
    pub(crate) no_auth: bool,
}

/// Refuses an address that other machines can reach without TLS or without tokens, unless that is accepted.
///
/// Errors: `Usage` with all missing protection.
pub(crate) fn check(address: SocketAddr, protected: Protected, accepted: Accepted) -> Result<(), Error> {
    let mut missing = Vec::new();
    if !protected.tls && !accepted.no_tls {
        missing.push(
            "encrypt connections with --tls-cert FILE --tls-key FILE (or accept that they are not: --insecure-no-tls)",
        );
    }
    if !protected.tokens && !accepted.no_auth {
        missing.push("require tokens with --tokens FILE (or allow every client everything: --insecure-no-auth)");
    }
    if missing.is_empty() || address.ip().is_loopback() {
        return Ok(());
    }
    let missing = missing.join("; ");
    Err(Error::usage(format!("other machines reach {address}: {missing}; or listen at a loopback address")))
}

pub(crate) fn unusable(address: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let what = format!(
                "address {address} is in use; stop the process that listens there, or choose another address with --listen"
            );
            Error::new(ErrorKind::Unavailable, what).because(error.to_string())
        }
        _ => Error::usage(format!(
            "cannot listen at {address}; expected HOST:PORT of this machine, such as 127.0.0.1:7070"
        ))
        .because(error.to_string()),
    }
}

/// Returns the address at which a client on this machine reaches a server that listens at `address`.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_url_answers_requests() {
        for (bound, url) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")] {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), url);
        }
    }

    #[test]
    fn other_machines_are_served_only_where_each_risk_is_ruled_out_or_accepted() {
        let checked = |address: &str, tls, tokens, no_tls, no_auth| {
            check(address.parse().unwrap(), Protected { tls, tokens }, Accepted { no_tls, no_auth })
        };
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(checked(address, false, false, false, false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            for tls in [0, 1, 2] {
                for auth in [0, 1, 2] {
                    // Missing, ruled out, accepted.
                    let answer = checked(address, tls == 1, auth == 1, tls == 2, auth == 2);
                    let refusal = answer.map_or_else(|error| error.to_string(), |()| String::new());
                    assert_eq!(refusal.contains("--tls-cert"), tls == 0, "{refusal}");
                    assert_eq!(refusal.contains("--tokens"), auth == 0, "{refusal}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_address_in_use_and_an_invalid_address_have_different_errors() {
        let taken = bind("127.0.0.1:0").await.unwrap();
        let again = bind(&taken.local_addr().unwrap().to_string()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Unavailable);
        assert_eq!(bind("nonsense").await.unwrap_err().kind(), ErrorKind::Usage);
    }
}
