//! Runs: listed, looked at, watched, cancelled.

use std::sync::Arc;

use axum::response::Response;
use holdpoint::Cancelled;
use holdpoint::protocol::RunId;
use holdpoint::store::RunFilter;
use http::StatusCode;
use serde::Serialize;

use super::chat::run_id;
use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;
use crate::stream::{self, Options};
use crate::strict_json::Fields;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelAnswer {
    run_id: RunId,
    /// `cancelling`, or `ended` where there was nothing left to cancel.
    status: &'static str,
}

/// `GET /v1/runs`.
pub(super) async fn list(app: &App, call: &Call) -> Result<Answer, Refusal> {
    call.query.only(&["status", "cursor", "limit"])?;
    let filter = RunFilter { status: call.query.word("status")?, ..RunFilter::default() };
    let page = app.store().runs(&app.cx, &filter, &call.query.page()?).await?;
    Ok(Answer::ok(&page))
}

/// `GET /v1/runs/{runId}`.
pub(super) async fn one(app: &App, call: &Call) -> Result<Answer, Refusal> {
    let view = app.store().run(&app.cx, run_id(call)?).await?;
    view.map(|view| Answer::ok(&view)).ok_or_else(|| Refusal::not_found("there is no such run"))
}

/// `GET /v1/runs/{runId}/events`.
pub(super) async fn events(app: &Arc<App>, call: &Call) -> Result<Response, Refusal> {
    let options = Options::read(call)?;
    stream::run(app, run_id(call)?, options).await
}

/// Reads `POST /v1/runs/{runId}/cancel`: the body is empty, or an empty object.
pub(super) fn read_cancel(call: &Call) -> Result<RunId, Refusal> {
    if !call.body.is_empty() {
        Fields::read(&call.body)?.finish("none")?;
    }
    run_id(call)
}

/// Cancels. A run that is being cancelled, or has ended, is left as it is, and that is no error.
pub(super) async fn cancel(app: Arc<App>, run: RunId) -> Result<Answer, Refusal> {
    let (code, status) = match app.runtime.cancel(&app.cx, run).await? {
        Cancelled::Noted | Cancelled::Repeated => (StatusCode::ACCEPTED, "cancelling"),
        Cancelled::Ended => (StatusCode::OK, "ended"),
    };
    Ok(Answer::json(code, &CancelAnswer { run_id: run, status }))
}
