//! The handlers, thin: read what came, ask the runtime, say what it said.

mod agents;
mod audit;
mod chat;
mod decide;
mod interactions;
mod outcome;
mod runs;
mod status;

pub(crate) use outcome::pending;

use std::sync::Arc;

use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::endpoint::Endpoint;
use crate::idempotency;
use crate::refusal::Refusal;
use crate::routes::Call;

pub(crate) async fn handle(app: &Arc<App>, call: Call) -> Result<Response, Refusal> {
    match call.endpoint {
        Endpoint::Chat => chat::chat(app, &call).await.map(IntoResponse::into_response),
        Endpoint::ChatStream => chat::chat_stream(app, &call).await,
        Endpoint::ToolInvoke => chat::invoke(app, &call).await.map(IntoResponse::into_response),
        Endpoint::ChatApproval => {
            let posted = decide::read_lenient(&call)?;
            idempotency::once(app, &call, |app| decide::decide_lenient(app, posted)).await
        }
        Endpoint::InteractionDecision => {
            let posted = decide::read_strict(&call)?;
            idempotency::once(app, &call, |app| decide::decide_strict(app, posted)).await
        }
        Endpoint::RunCancel => {
            let run = runs::read_cancel(&call)?;
            idempotency::once(app, &call, move |app| runs::cancel(app, run)).await
        }
        Endpoint::PolicyExplain => {
            let asked = agents::read_explain(&call)?;
            idempotency::once(app, &call, |app| agents::explain(app, asked)).await
        }
        Endpoint::Runs => runs::list(app, &call).await.map(IntoResponse::into_response),
        Endpoint::Run => runs::one(app, &call).await.map(IntoResponse::into_response),
        Endpoint::RunEvents => runs::events(app, &call).await,
        Endpoint::Interactions => interactions::list(app, &call).await.map(IntoResponse::into_response),
        Endpoint::Interaction => interactions::one(app, &call).await.map(IntoResponse::into_response),
        Endpoint::InteractionEvents => interactions::events(app, &call).await,
        Endpoint::Agents => agents::list(app, &call).map(IntoResponse::into_response),
        Endpoint::Audit => audit::list(app, &call).await.map(IntoResponse::into_response),
        Endpoint::AuditVerify => audit::verify(app, &call).await.map(IntoResponse::into_response),
        Endpoint::Health => Ok(status::health().into_response()),
        Endpoint::Ready => status::ready(app).await.map(IntoResponse::into_response),
        Endpoint::Metrics => status::metrics(app).await,
        Endpoint::OpenApi => Ok(status::openapi().into_response()),
    }
}
