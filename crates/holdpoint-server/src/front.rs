//! What every request passes before a handler sees it, and every answer before it leaves.
//!
//! In this order: the name the client called us by, where the page that sends it comes from, how large and of what kind
//! the body says it is, and the token. Nothing of a body is read before all of that.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use holdpoint::core::limits::BODY_MAX_BYTES;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use tower_service::Service;

use crate::app::App;
use crate::endpoint::Endpoint;
use crate::refusal::Refusal;
use crate::stream::take_frames;

/// What a preflight of an allowed origin may ask for.
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id";

/// The door of the server.
#[derive(Clone)]
pub(crate) struct Front {
    app: Arc<App>,
    router: Router,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, router: Router) -> Self {
        Self { app, router }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        mut self,
        request: Request<hyper::body::Incoming>,
    ) -> Result<Response, Infallible> {
        let began = Instant::now();
        let method = request.method().clone();
        let origin = self.allowed_origin(request.headers());
        let mut response = match self.admit(&request) {
            Ok(Admitted::Preflight) => preflight(),
            // A router is always ready, and never fails.
            Ok(Admitted::Request) => match self.router.call(request.map(Body::new)).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(refusal) => {
                tracing::debug!(code = refusal.code(), "a request was turned away at the door");
                refusal.into_response()
            }
        };
        if method == Method::HEAD {
            // The head of a stream, and no stream.
            drop(take_frames(&mut response));
        }
        let route = response.extensions().get::<Endpoint>().map_or("other", |endpoint| endpoint.path());
        let status = response.status();
        self.app.metrics.answered(route, &method, status, began.elapsed());
        tracing::debug!(%method, route, status = status.as_u16(), "answered");
        dress(response.headers_mut(), origin);
        Ok(response)
    }

    fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        origin.to_str().is_ok_and(|text| self.app.origins.contains(text)).then(|| origin.clone())
    }

    fn admit<B>(&self, request: &Request<B>) -> Result<Admitted, Refusal> {
        let headers = request.headers();
        self.check_host(request)?;
        self.check_origin(headers)?;
        if *request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        {
            return Ok(Admitted::Preflight);
        }
        check_body(request)?;
        if !Endpoint::is_open(request.uri().path()) {
            self.check_token(headers)?;
        }
        Ok(Admitted::Request)
    }

    fn check_host<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let misdirected = || {
            let detail = "this server answers to localhost and loopback addresses with its own port only";
            Refusal::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail)
        };
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (host, second) = (hosts.next(), hosts.next());
        // HTTP/2, and HTTP/1 in absolute form, name the server in the URI.
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        let named = match (host, authority) {
            (None, None) => return Err(misdirected()),
            (Some(host), None) => host.to_str().is_ok_and(|host| self.app.place.is_named_by(host)),
            (None, Some(authority)) => self.app.place.is_named_by(authority),
            (Some(host), Some(authority)) => {
                self.app.place.is_named_by(authority)
                    && host.to_str().is_ok_and(|host| self.app.place.is_named_by(host))
            }
        };
        if named && second.is_none() { Ok(()) } else { Err(misdirected()) }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let known = headers
            .get_all(header::ORIGIN)
            .iter()
            .all(|origin| origin.to_str().is_ok_and(|origin| self.app.origins.contains(origin)));
        // A page of another site that sends no `Origin` still says this where the browser knows it.
        let cross = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
        if known && (!cross || headers.contains_key(header::ORIGIN)) {
            return Ok(());
        }
        let detail = "web pages of another origin may not send requests here";
        Err(Refusal::new(StatusCode::FORBIDDEN, "wrong_origin", detail))
    }

    /// From the `Authorization` header and nowhere else: not from a cookie, which a browser sends by itself, and not
    /// from a URL, which ends up in logs.
    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let is_it = match (given.next(), given.next()) {
            (Some(value), None) => bearer(value).is_some_and(|token| self.app.token.is(token)),
            (_, _) => false,
        };
        if is_it {
            return Ok(());
        }
        self.app.metrics.unauthenticated();
        let detail = "this needs the operator's token, as in `Authorization: Bearer <token>`; the server shows it once, when it starts";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
            .header(header::WWW_AUTHENTICATE, "Bearer realm=\"holdpoint\""))
    }
}

enum Admitted {
    Preflight,
    Request,
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// What the head says about the body. A body that says nothing is counted while it is read.
fn check_body<B>(request: &Request<B>) -> Result<(), Refusal> {
    let headers = request.headers();
    let encoded = headers.get_all(header::CONTENT_ENCODING).iter().any(|value| value != "identity");
    if encoded {
        let detail = "compressed bodies are not read; send it plain";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded_body", detail));
    }
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_MAX_BYTES as u64) {
        return Err(too_large());
    }
    if *request.method() == Method::POST && !is_json(headers) {
        let detail = "send `Content-Type: application/json`, in UTF-8";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
    }
    Ok(())
}

pub(crate) fn too_large() -> Refusal {
    let detail = format!("a body has at most {BODY_MAX_BYTES} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else { return false };
    let Ok(kind) = kind.to_str() else { return false };
    let mut parts = kind.split(';');
    let essence = parts.next().unwrap_or_default();
    // JSON in another encoding would be read as what it is not.
    let other_charset = parts.filter_map(|parameter| parameter.split_once('=')).any(|(name, value)| {
        name.trim().eq_ignore_ascii_case("charset")
            && !["utf-8", "utf8"].iter().any(|utf8| value.trim().trim_matches('"').eq_ignore_ascii_case(utf8))
    });
    essence.trim().eq_ignore_ascii_case("application/json") && !other_charset
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// The headers that every answer has. No wildcard, and no credentials: a page sends the token itself or not at all.
fn dress(headers: &mut HeaderMap, allowed_origin: Option<HeaderValue>) {
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let csp = "default-src 'none'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(csp));
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}
