//! Starting: a message, or one call without a model.

use std::sync::Arc;

use axum::response::Response;
use holdpoint::core::message::UserMessage;
use holdpoint::protocol::{AgentName, ConversationId, RunId};
use holdpoint::{Start, StartedRun};

use super::outcome;
use crate::answer::Answer;
use crate::app::App;
use crate::idempotency::key_of;
use crate::refusal::Refusal;
use crate::routes::Call;
use crate::stream::{self, Options};
use crate::strict_json::{Fields, arguments_of, text_of};

/// `POST /chat`: the run, watched until it ends or needs a person.
pub(super) async fn chat(app: &Arc<App>, call: &Call) -> Result<Answer, Refusal> {
    let start = read_chat(call)?;
    let started = start_whole(app, start).await?;
    outcome::wait(app, started.run).await
}

/// `POST /chat/stream`: the run, watched event by event.
pub(super) async fn chat_stream(app: &Arc<App>, call: &Call) -> Result<Response, Refusal> {
    let options = Options::read(call)?;
    let start = read_chat(call)?;
    let started = start_whole(app, start).await?;
    stream::run(app, started.run, options).await
}

/// `POST /v1/tools/{name}/invoke`: one call, through the same gate.
pub(super) async fn invoke(app: &Arc<App>, call: &Call) -> Result<Answer, Refusal> {
    let mut fields = Fields::read(&call.body)?;
    let arguments = fields.take("arguments").map(|raw| arguments_of("arguments", raw)).transpose()?;
    let agent = agent_of(&mut fields)?;
    check_bypass(app, fields.flag("bypassApproval")?, "POST /v1/tools/{name}/invoke")?;
    fields.finish("arguments, agent, bypassApproval")?;
    let key = key_of(call)?;
    let (tool, arguments) = (call.id.clone(), arguments.unwrap_or_default());
    let started = app
        .whole(
            move |app| async move { Ok(app.runtime.invoke(&app.cx, agent, &tool, &arguments, key).await?) },
        )
        .await?;
    outcome::wait(app, started.run).await
}

/// One call cannot be started with prompts bypassed: it is one prompt. Asking for it is refused as elsewhere.
fn check_bypass(app: &App, asked: bool, route: &str) -> Result<(), Refusal> {
    if !asked {
        return Ok(());
    }
    tracing::warn!(actor = %app.cx.actor, route, "a request to bypass approval was refused");
    Err(holdpoint::StartError::BypassNotGranted.into())
}

fn read_chat(call: &Call) -> Result<Start, Refusal> {
    let mut fields = Fields::read(&call.body)?;
    let query = fields.text("query")?.filter(|query| !query.trim().is_empty());
    let agent = agent_of(&mut fields)?;
    let model = fields.text("model")?;
    let conversation = fields.take("conversationId").map(conversation_of).transpose()?;
    let bypass = fields.flag("bypassApproval")?;
    // Some front ends send it with everything. Nothing in it means anything here.
    let _ = fields.take("metadata");
    let approval_timeout = fields.milliseconds("approvalTimeoutMs")?;
    fields.finish("query, agent, model, conversationId, bypassApproval, approvalTimeoutMs, metadata")?;
    let Some(query) = query else {
        return Err(Refusal::bad_request(
            "no_query",
            "`query` is what the user says; it is missing or blank",
        ));
    };
    let (message, key) = (UserMessage::text(query), key_of(call)?);
    Ok(Start { message, agent, model, conversation, bypass, approval_timeout, key })
}

fn agent_of(fields: &mut Fields<'_>) -> Result<Option<AgentName>, Refusal> {
    let Some(raw) = fields.take("agent") else { return Ok(None) };
    let name = text_of("agent", raw)?;
    AgentName::new(&name).map(Some).map_err(|_| bad_name("agent"))
}

fn conversation_of(raw: &serde_json::value::RawValue) -> Result<ConversationId, Refusal> {
    ConversationId::new(&text_of("conversationId", raw)?).map_err(|_| bad_name("conversationId"))
}

fn bad_name(field: &str) -> Refusal {
    let detail =
        format!("`{field}` is 1 to 128 ASCII letters, digits and `_ - : @ .`, and does not start with a dot");
    Refusal::bad_request("bad_name", detail)
}

async fn start_whole(app: &Arc<App>, start: Start) -> Result<StartedRun, Refusal> {
    app.whole(move |app| async move { Ok(app.runtime.start(&app.cx, start).await?) }).await
}

/// The id of a run in a path. What is no id names no run.
pub(super) fn run_id(call: &Call) -> Result<RunId, Refusal> {
    call.id.parse().map_err(|_| Refusal::not_found("there is no such run"))
}
