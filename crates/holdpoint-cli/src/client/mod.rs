//! The client of a server: HTTP/1.1, one connection a request, the operator's token on every one.

mod api;
mod sse;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::fail::{Fail, Result};

pub(crate) use api::Decided;
pub(crate) use stream::{Events, Follow, Item};

/// Where a server is when nobody says.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7411";

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the head of an answer may take. A decision is answered when it is on disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest answer that is read whole, in bytes.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// A server, and the token to speak to it with.
#[derive(Clone)]
pub(crate) struct Client {
    base: Base,
    token: String,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// `127.0.0.1:7411`, as it goes into `Host`.
    authority: String,
    host: String,
    port: u16,
}

impl Base {
    /// Reads `http://HOST:PORT`, of this machine alone: the token would travel in plain text to any other.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let shown = crate::text::line(url);
        let bad = |why: &str| Fail::usage(format!("`{shown}` cannot be used as a server: {why}"));
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(
                bad("it does not begin with `http://`").hint(format!("write it like {SERVER_DEFAULT}"))
            );
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| bad("its port is not a number up to 65535"))?)
            }
            Some(_) | None => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_local =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !is_local {
            return Err(bad("it is not on this machine, and the token would travel in plain text")
                .hint("reach it through a tunnel, such as `ssh -L 7411:127.0.0.1:7411 HOST`"));
        }
        Ok(Self { authority: authority.to_owned(), host: host.to_owned(), port })
    }
}

impl Client {
    /// A client of the server at this address.
    pub(crate) fn new(url: &str, token: impl Into<String>) -> Result<Self> {
        let token = token.into().trim().to_owned();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Fail::usage("that is not a token: it is one word of ASCII characters"));
        }
        Ok(Self { base: Base::parse(url)?, token })
    }

    /// The server's address, as `--server` takes it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.base.authority)
    }

    fn no_server(&self, why: &dyn std::fmt::Display) -> Fail {
        Fail::no_server(format!("no server answers at http://{}: {why}", self.base.authority))
            .hint("start one with `holdpoint serve`, or name another with --server URL")
    }

    /// Sends one request and waits for the head of its answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Option<String>,
    ) -> Result<Response<Incoming>> {
        let connect = TcpStream::connect((self.base.host.as_str(), self.base.port));
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(stream) => stream.map_err(|error| self.no_server(&error))?,
            Err(_) => return Err(self.no_server(&"the connection did not come about")),
        };
        // A decision is a few bytes: they should not wait for more.
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.no_server(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.base.authority)
            .header(AUTHORIZATION, format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| Fail::usage(format!("the request cannot be written: {error}")))?;
        match tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
            Ok(answer) => answer.map_err(|error| self.no_server(&error)),
            Err(_) => Err(self.no_server(&"it took the request and did not answer")),
        }
    }

    /// Sends one request and reads its whole answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Option<String>,
    ) -> Result<Answer> {
        let (head, body) = self.send(method, path, headers, body).await?.into_parts();
        let body = Limited::new(body, ANSWER_MAX_BYTES)
            .collect()
            .await
            .map_err(|error| self.no_server(&format_args!("its answer broke off: {error}")))?;
        let text = String::from_utf8(body.to_bytes().into())
            .map_err(|_| Fail::new("the server's answer is not UTF-8; is it a Holdpoint server?"))?;
        Ok(Answer { status: head.status, text })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Answer {
    /// The value of a good answer.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(self) -> Result<T> {
        if !self.status.is_success() {
            return Err(self.refusal());
        }
        serde_json::from_str(&self.text)
            .map_err(|error| Fail::new(format!("the server's answer cannot be read: {error}")))
    }

    /// What a refusal says.
    pub(crate) fn refusal(&self) -> Fail {
        if self.status == StatusCode::UNAUTHORIZED {
            return Fail::new("the server does not know this token").hint(
                "a server makes a new token each time it starts and shows it once; set HOLDPOINT_TOKEN to it",
            );
        }
        match self.problem() {
            Some(problem) => Fail::new(crate::text::line(&problem.detail)),
            None => Fail::new(format!("the server answered {} and said nothing", self.status)),
        }
    }

    pub(crate) fn problem(&self) -> Option<holdpoint_protocol::Problem> {
        serde_json::from_str(&self.text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_this_machine_alone() {
        for (url, port) in [
            ("http://127.0.0.1:7411", 7411),
            ("http://127.0.0.1:7411/", 7411),
            ("http://localhost", 80),
            ("http://[::1]:80", 80),
            ("http://[::1]", 80),
        ] {
            assert_eq!(Base::parse(url).map(|base| base.port).map_err(|e| e.to_string()), Ok(port), "{url}");
        }
        for url in [
            "https://127.0.0.1:7411",
            "127.0.0.1:7411",
            "http://192.0.2.1:7411",
            "http://localhost.evil.example",
            "http://127.0.0.1@evil.example",
            "http://127.0.0.1:7411/x",
            "http://127.0.0.1:99999",
            "http://",
            "",
        ] {
            assert!(Base::parse(url).is_err(), "{url}");
        }
    }
}
