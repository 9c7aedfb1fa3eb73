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

    #[tokio::test]
    async fn an_address_that_is_taken_and_one_that_is_none_are_told_apart() {
        let taken = bind("127.0.0.1:0").await.unwrap();
        let again = bind(&taken.local_addr().unwrap().to_string()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Unavailable);
        assert_eq!(bind("nonsense").await.unwrap_err().kind(), ErrorKind::Usage);
    }
}
