//! Answers in JSON.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use holdpoint::store::StoredAnswer;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// An answer in JSON, whole, so that it can be kept under an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    status: StatusCode,
    body: String,
}

impl Answer {
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        // Our own structs of strings, numbers and JSON: writing them to memory has no way to fail.
        Self { status, body: serde_json::to_string(body).unwrap_or_default() }
    }

    pub(crate) fn ok(body: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, body)
    }

    pub(crate) fn text(status: StatusCode, body: String) -> Self {
        Self { status, body }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn to_stored(&self) -> StoredAnswer {
        StoredAnswer { status: self.status.as_u16(), body: self.body.clone() }
    }

    pub(crate) fn from_stored(stored: StoredAnswer) -> Self {
        let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
        Self { status, body: stored.body }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let problem = self.status.is_client_error() || self.status.is_server_error();
        let kind = if problem { "application/problem+json" } else { "application/json" };
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}
