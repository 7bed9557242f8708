//! Whether the server lives, is ready, and how it does.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::answer::Answer;
use crate::app::App;
use crate::openapi;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// `GET /healthz`: the process answers.
pub(super) fn health() -> Answer {
    Answer::ok(&Health { status: "ok" })
}

/// `GET /readyz`: it can work, which it cannot without its store, nor while nothing can be written to it, nor while others may take
/// it for gone. Nothing is written for this: writes that failed are what it goes by.
pub(super) async fn ready(app: &App) -> Result<Answer, Refusal> {
    if app.closing.is_cancelled() {
        return Err(Refusal::stopping());
    }
    app.store().now().await?;
    if app.store().term().is_none() {
        return Err(Refusal::lease_lapsed());
    }
    if let Some(trouble) = app.runtime.write_trouble() {
        return Err(Refusal::not_writable(&trouble));
    }
    Ok(Answer::ok(&Health { status: "ready" }))
}

/// `GET /metrics`, for Prometheus.
pub(super) async fn metrics(app: &App) -> Result<Response, Refusal> {
    let stats = app.store().stats().await?;
    let oldest_s = match stats.oldest_pending {
        None => None,
        Some(at) => {
            let age_ms = app.store().now().await?.as_millisecond() - at.as_millisecond();
            Some(std::time::Duration::from_millis(age_ms.max(0).unsigned_abs()).as_secs_f64())
        }
    };
    let mut response = Response::new(Body::from(app.metrics.text(&app.runtime, &stats, oldest_s)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// `GET /openapi.json`.
pub(super) fn openapi() -> Answer {
    Answer::text(StatusCode::OK, openapi::document().to_string())
}
