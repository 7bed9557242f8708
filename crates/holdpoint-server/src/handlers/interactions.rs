//! The inbox: listed, looked at, watched.

use std::sync::Arc;

use axum::response::Response;
use holdpoint::protocol::RequestId;
use holdpoint::store::InteractionFilter;

use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;
use crate::stream;

/// `GET /v1/interactions`.
pub(super) async fn list(app: &App, call: &Call) -> Result<Answer, Refusal> {
    call.query.only(&["status", "kind", "run", "group", "cursor", "limit"])?;
    let filter = InteractionFilter {
        status: call.query.word("status")?,
        kind: call.query.word("kind")?,
        run: call.query.parsed("run")?,
        group: call.query.parsed("group")?,
    };
    let page = app.store().interactions(&app.cx, &filter, &call.query.page()?).await?;
    Ok(Answer::ok(&page))
}

/// `GET /v1/interactions/{requestId}`.
pub(super) async fn one(app: &App, call: &Call) -> Result<Answer, Refusal> {
    let missing = || Refusal::not_found("there is no such request");
    let request: RequestId = call.id.parse().map_err(|_| missing())?;
    let interaction = app.store().interaction(&app.cx, request).await?.ok_or_else(missing)?;
    Ok(Answer::ok(&interaction))
}

/// `GET /v1/interactions/events`.
pub(super) async fn events(app: &Arc<App>, call: &Call) -> Result<Response, Refusal> {
    call.query.only(&[])?;
    stream::inbox(app).await
}
