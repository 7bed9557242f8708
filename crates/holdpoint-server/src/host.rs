//! Which names this server answers to. A page of another site that reaches a loopback port by a name of its own (DNS
//! rebinding) says that name in `Host`, and is turned away.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::ServerError;

/// The port that need not be written.
const HTTP_PORT: u16 = 80;

/// Where the server is, as clients may write it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    port: u16,
}

impl Place {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self { port: address.port() }
    }

    /// Whether a `Host` or an authority names this server: a loopback address or `localhost`, and the very port.
    pub(crate) fn is_named_by(self, authority: &str) -> bool {
        let (name, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, after)) => match after.strip_prefix(':') {
                Some(port) => (inside, Some(port)),
                None if after.is_empty() => (inside, None),
                None => return false,
            },
            None => match authority.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None => HTTP_PORT,
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => match text.parse() {
                Ok(port) => port,
                Err(_) => return false,
            },
            Some(_) => return false,
        };
        let is_v6 = authority.starts_with('[');
        let is_local = match name.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() && ip.is_ipv6() == is_v6,
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        };
        is_local && port == self.port
    }

    /// The origins of the server's own pages.
    pub(crate) fn origins(self) -> HashSet<String> {
        ["localhost", "127.0.0.1", "[::1]"]
            .into_iter()
            .map(|name| match self.port {
                HTTP_PORT => format!("http://{name}"),
                port => format!("http://{name}:{port}"),
            })
            .collect()
    }
}

/// An origin as browsers write it: scheme, host, port, and nothing else.
pub(crate) fn allowed_origin(text: &str) -> Result<String, ServerError> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |rest: &str| {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]".contains(&b);
        !rest.is_empty() && rest.bytes().all(legal)
    };
    match rest {
        Some(rest) if is_plain(rest) => Ok(text.to_owned()),
        Some(_) | None => Err(ServerError::Origin(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_with_our_port_name_us() {
        let place = Place { port: 8410 };
        for good in ["127.0.0.1:8410", "localhost:8410", "LocalHost:8410", "[::1]:8410", "127.0.0.2:8410"] {
            assert!(place.is_named_by(good), "{good}");
        }
        for bad in [
            "",
            "evil.example:8410",
            "127.0.0.1",
            "127.0.0.1:8411",
            "127.0.0.1:8410@evil.example",
            "user@127.0.0.1:8410",
            "127.0.0.1:08410x",
            "127.0.0.1:8410:8410",
            "127.0.0.1.evil.example:8410",
            "localhost.evil.example:8410",
            "localhost.:8410",
            "0.0.0.0:8410",
            "[::]:8410",
            "::1:8410",
            "[127.0.0.1]:8410",
            "[::1]8410",
            "[::1",
            "2130706433:8410",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "10.0.0.1:8410",
        ] {
            assert!(!place.is_named_by(bad), "{bad}");
        }
        assert!(Place { port: 80 }.is_named_by("localhost"));
    }

    #[test]
    fn an_allowed_origin_is_scheme_host_and_port() {
        for good in ["https://app.example", "http://localhost:3000", "http://[::1]:3000"] {
            assert!(allowed_origin(good).is_ok(), "{good}");
        }
        for bad in [
            "*",
            "null",
            "app.example",
            "https://",
            "https://app.example/",
            "https://a b",
            "https://*.example",
        ] {
            assert!(allowed_origin(bad).is_err(), "{bad}");
        }
    }
}
