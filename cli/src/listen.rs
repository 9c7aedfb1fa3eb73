//! Addresses to serve HTTP at.

use crate::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// Where HTTP is served by default.
pub(crate) const DEFAULT: &str = "127.0.0.1:7070";

/// Listens at an address of this machine.
///
/// Errors: `Unavailable` where it is in use, `Usage` for any other.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| unusable(address, &error))
}

/// What protects a server, or what an operator accepted instead where other machines reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Whoever is on the way can read and change requests.
    pub(crate) no_tls: bool,
    /// Whoever reaches the server may do everything.
    pub(crate) no_auth: bool,
}

/// Refuses to serve where other machines may ask without TLS or without tokens, unless that is accepted.
///
/// Errors: `Usage`.
pub(crate) fn check(address: SocketAddr, accepted: Accepted, asks_for_tokens: bool) -> Result<(), Error> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if !asks_for_tokens && !accepted.no_auth {
        return Err(Error::usage(format!(
            "other machines reach {address}, and whoever does may do everything: ask for tokens with --tokens FILE, listen at a \
             loopback address, or accept it with --insecure-no-auth"
        )));
    }
    if !accepted.no_tls {
        return Err(Error::usage(format!(
            "other machines reach {address}, and this version has no TLS: listen at a loopback address and put a proxy before \
             it that has, or accept it with --insecure-no-tls"
        )));
    }
    Ok(())
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

/// The address at which a client on this machine reaches a server that listens at `address`.
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
    fn the_url_that_is_printed_can_be_asked() {
        for (bound, url) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")] {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), url);
        }
    }

    #[test]
    fn other_machines_are_served_only_where_both_risks_are_accepted() {
        let checked =
            |address: &str, no_tls, no_auth| check(address.parse().unwrap(), Accepted { no_tls, no_auth }, false);
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(checked(address, false, false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            for (no_tls, no_auth) in [(false, false), (true, false), (false, true)] {
                assert_eq!(checked(address, no_tls, no_auth).unwrap_err().kind(), ErrorKind::Usage, "{address}");
            }
            assert!(checked(address, true, true).is_ok(), "{address}");
            let with_tokens = |no_tls| check(address.parse().unwrap(), Accepted { no_tls, no_auth: false }, true);
            assert!(with_tokens(true).is_ok() && with_tokens(false).is_err(), "{address}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_and_one_that_is_none_are_told_apart() {
        let taken = bind("127.0.0.1:0").await.unwrap();
        let again = bind(&taken.local_addr().unwrap().to_string()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Unavailable);
        assert_eq!(bind("nonsense").await.unwrap_err().kind(), ErrorKind::Usage);
    }
}
