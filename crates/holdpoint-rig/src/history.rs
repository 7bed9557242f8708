//! Our conversation as rig's.

use std::borrow::Cow;

use holdpoint_core::message::AssistantItem;
use holdpoint_models::wire::history::{Entry, IdRule, Said, Turn, WireResult, entries};
use holdpoint_models::{ModelError, ModelRequest};
use rig_core::completion::{CompletionRequest, ToolDefinition};
use rig_core::message::{
    AssistantContent, AssistantMessage, CallId, DocumentSourceKind, Image, ImageMediaType, Message, MimeType,
    Text, ToolCall, ToolFunction, ToolName, ToolResult, ToolResultContent, UserContent,
};
use serde::{Deserialize, Serialize};

use crate::WIRE;

/// Rig's own message, kept beside our items so that it can go back whole.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) rig: AssistantMessage,
}

fn unwritable(what: impl std::fmt::Display) -> ModelError {
    let message = format!("the request cannot be written for rig: {what}");
    ModelError { code: "bad_request", message, retryable: false, retry_after: None }
}

pub(crate) fn request(request: &ModelRequest) -> Result<CompletionRequest, ModelError> {
    let mut history = Vec::new();
    for entry in entries(&request.messages, WIRE, IdRule::Token64)? {
        match entry {
            Entry::User(said) => {
                history.push(Message::User { content: said.into_iter().map(user).collect() })
            }
            Entry::Reply(turn) => reply(turn, &mut history)?,
        }
    }
    let Some(last) = history.pop() else { return Err(unwritable("there is no message")) };
    let mut asked = CompletionRequest::new(last);
    history.append(&mut asked.chat_history);
    asked.chat_history = history;
    if !request.instructions.trim().is_empty() {
        asked = asked.preamble(request.instructions.as_ref());
    }
    for tool in request.tools.iter() {
        let name = ToolName::new(tool.name.as_str()).map_err(unwritable)?;
        asked.tools.push(ToolDefinition::new(name, tool.description.as_str(), tool.schema.clone()));
    }
    Ok(asked)
}

fn image(media_type: &str, data: &str) -> Image {
    Image {
        data: DocumentSourceKind::base64(data),
        media_type: ImageMediaType::from_mime_type(media_type),
        ..Image::default()
    }
}

fn user(said: Said<'_>) -> UserContent {
    match said {
        Said::Text(text) => UserContent::Text(Text::new(text)),
        Said::Image { media_type, data } => UserContent::Image(image(media_type, data)),
    }
}

fn reply(turn: Turn<'_>, history: &mut Vec<Message>) -> Result<(), ModelError> {
    let message = match own(&turn) {
        Some(own) => own,
        None => rebuilt(&turn)?,
    };
    // Rig pairs by its own ids; the order is ours.
    let ids: Vec<(CallId, ToolName)> =
        message.tool_calls().map(|call| (call.id.clone(), call.function.name.clone())).collect();
    history.push(Message::Assistant(message));
    let results = ids.into_iter().zip(turn.results).map(|((id, name), own)| result(id, name, own));
    let content: Vec<UserContent> = results.map(UserContent::ToolResult).collect();
    if !content.is_empty() {
        history.push(Message::User { content });
    }
    Ok(())
}

/// The message as rig made it, if it is there and still holds the calls that were answered.
fn own(turn: &Turn<'_>) -> Option<AssistantMessage> {
    let kept = turn.reply.items.iter().filter(|_| turn.own).find_map(|item| match item {
        AssistantItem::Opaque(raw) => serde_json::from_str::<Kept>(raw.get()).ok(),
        AssistantItem::Text(_) | AssistantItem::Reasoning { .. } | AssistantItem::Call(_) => None,
    })?;
    let names = kept.rig.tool_calls().map(|call| call.function.name.as_str());
    names.eq(turn.calls.iter().map(|call| call.name.as_ref())).then_some(kept.rig)
}

fn rebuilt(turn: &Turn<'_>) -> Result<AssistantMessage, ModelError> {
    let mut calls = turn.calls.iter();
    let mut content = Vec::new();
    for item in &turn.reply.items {
        match item {
            AssistantItem::Text(text) if text.trim().is_empty() => {}
            AssistantItem::Text(text) => content.push(AssistantContent::Text(Text::new(text.as_str()))),
            AssistantItem::Call(_) => {
                if let Some(call) = calls.next() {
                    let name = ToolName::new(call.name.as_ref()).map_err(unwritable)?;
                    let function = ToolFunction::parse(name, &call.arguments);
                    content.push(AssistantContent::ToolCall(ToolCall::from_wire(call.id.as_str(), function)));
                }
            }
            AssistantItem::Reasoning { .. } | AssistantItem::Opaque(_) => {}
        }
    }
    Ok(AssistantMessage::new(content))
}

fn result(call: CallId, name: ToolName, own: WireResult<'_>) -> ToolResult {
    let json = own.is_json.then(|| serde_json::from_str(&own.text).ok()).flatten();
    let text = || ToolResultContent::Text(Text::new(Cow::into_owned(own.text.clone())));
    let mut content = vec![json.map_or_else(text, |value| ToolResultContent::Json { value })];
    content.extend(
        own.images.iter().map(|(media_type, data)| ToolResultContent::Image(image(media_type, data))),
    );
    ToolResult { call, name, content, is_error: own.is_error }
}
