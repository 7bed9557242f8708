//! What is said when something is refused: `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use holdpoint::protocol::Problem;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::Answer;

/// Where the kinds of problem are named.
const PROBLEM_TYPE: &str = "urn:holdpoint:problem:";

/// A request that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    detail: String,
    more: Map<String, Value>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), more: Map::new(), headers: Vec::new() }
    }

    /// What cannot be read, or does not belong together.
    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// Something of ours went wrong. What it was stays in the log, under a number that is shown.
    pub(crate) fn internal(error: &dyn std::fmt::Display) -> Self {
        Self::with_incident("internal", "something went wrong here; the server's log says what", error)
    }

    /// The same, where more can be said of it.
    pub(crate) fn with_incident(code: &'static str, detail: &str, error: &dyn std::fmt::Display) -> Self {
        let incident = getrandom::u32().unwrap_or_default();
        let incident = format!("{incident:08x}");
        tracing::error!(incident, code, %error, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, format!("{detail} (incident {incident})"))
            .with("incident", incident)
    }

    /// A further member of the problem.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    #[must_use]
    pub(crate) fn header(mut self, name: header::HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    #[must_use]
    pub(crate) fn retry_after(self, seconds: u32) -> Self {
        self.header(header::RETRY_AFTER, &seconds.to_string())
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    fn body(&self) -> String {
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            problem: &'a Problem,
            #[serde(flatten)]
            more: &'a Map<String, Value>,
        }
        let problem = Problem {
            r#type: format!("{PROBLEM_TYPE}{}", self.code),
            title: title(self.code),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
        };
        // Strings and numbers: writing them to memory has no way to fail.
        serde_json::to_string(&Whole { problem: &problem, more: &self.more }).unwrap_or_default()
    }

    /// The same as an answer that can be kept.
    pub(crate) fn into_answer(self) -> Answer {
        Answer::text(self.status, self.body())
    }
}

/// `stale_request` is titled `Stale request`.
fn title(code: &str) -> String {
    let mut title = code.replace('_', " ");
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(self.headers);
        response
    }
}
