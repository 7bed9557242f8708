//! A request as Anthropic Messages wants it.

use std::borrow::Cow;

use holdpoint_core::message::{AssistantItem, AssistantMessage};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::RawJson;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Anthropic, DEFAULT_MAX_TOKENS, WIRE};
use crate::wire::history::{Entry, IdRule, Said, Turn, WireCall, WireResult, entries};
use crate::{ModelError, ModelRequest};

/// Stands in front of a history that does not begin with the user: this API refuses it otherwise.
const CONTINUED: &str = "[A note from the runtime, not from the user: the conversation goes on from here.]";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    system: &'a str,
    messages: Vec<Out<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    #[serde(flatten)]
    extra: &'a serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: &'a serde_json::Value,
}

#[derive(Serialize)]
struct Out<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Typed<'a> {
    Text { text: Cow<'a, str> },
    Image { source: Source<'a> },
    Thinking { thinking: &'a str, signature: &'a str },
    ToolUse { id: String, name: Cow<'a, str>, input: RawJson },
    ToolResult { tool_use_id: String, content: Vec<Typed<'a>>, is_error: bool },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Typed(Typed<'a>),
    /// A block the provider made, exactly as it came.
    Own(&'a RawValue),
}

#[derive(Serialize)]
struct Source<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'a str,
    data: &'a str,
}

pub(super) fn encode(
    wire: &Anthropic,
    request: &ModelRequest,
    paused: &[AssistantMessage],
) -> Result<Vec<u8>, ModelError> {
    let history = entries(&request.messages, WIRE, IdRule::Token64)?;
    let mut messages: Vec<Out<'_>> = Vec::with_capacity(history.len() + 1);
    if matches!(history.first(), Some(Entry::Reply(_))) {
        add(&mut messages, "user", vec![text(Cow::Borrowed(CONTINUED))]);
    }
    for entry in history {
        match entry {
            Entry::User(said) => add(&mut messages, "user", said.into_iter().map(user).collect()),
            Entry::Reply(turn) => reply(turn, &mut messages)?,
        }
    }
    for part in paused {
        // The paused reply goes back as it is, as the last message: the provider goes on with it.
        let blocks = part.items.iter().filter_map(|item| own_block(item, true)).collect();
        add(&mut messages, "assistant", blocks);
    }
    let system = if request.instructions.trim().is_empty() { "" } else { &request.instructions };
    let body = Body {
        model: &wire.options.model,
        max_tokens: wire.options.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        system,
        messages,
        tools: request.tools.iter().map(tool).collect(),
        stream: request.stream,
        extra: &wire.options.extra,
    };
    serde_json::to_vec(&body).map_err(ModelError::unwritable)
}

fn tool(tool: &ToolDefinition) -> Tool<'_> {
    Tool { name: &tool.name, description: &tool.description, input_schema: &tool.schema }
}

/// Neighbours of one role are one message. Results stay in front: they are added right after their calls.
fn add<'a>(messages: &mut Vec<Out<'a>>, role: &'static str, content: Vec<Block<'a>>) {
    match messages.last_mut() {
        Some(last) if last.role == role => last.content.extend(content),
        Some(_) | None if content.is_empty() => {}
        Some(_) | None => messages.push(Out { role, content }),
    }
}

fn text(text: Cow<'_, str>) -> Block<'_> {
    Block::Typed(Typed::Text { text })
}

fn image<'a>(media_type: &'a str, data: &'a str) -> Typed<'a> {
    Typed::Image { source: Source { kind: "base64", media_type, data } }
}

fn user(said: Said<'_>) -> Block<'_> {
    match said {
        Said::Text(own) => text(own),
        Said::Image { media_type, data } => Block::Typed(image(media_type, data)),
    }
}

/// Text and what is this wire's own. Calls are written from the turn, with their legal ids.
fn own_block(item: &AssistantItem, own: bool) -> Option<Block<'_>> {
    match item {
        // Blank text is refused by this API.
        AssistantItem::Text(said) if said.trim().is_empty() => None,
        AssistantItem::Text(said) => Some(text(Cow::Borrowed(said))),
        AssistantItem::Reasoning { text, signature: Some(signature), .. } if own => {
            Some(Block::Typed(Typed::Thinking { thinking: text, signature }))
        }
        AssistantItem::Opaque(raw) if own => Some(Block::Own(raw)),
        AssistantItem::Reasoning { .. } | AssistantItem::Opaque(_) | AssistantItem::Call(_) => None,
    }
}

fn reply<'a>(turn: Turn<'a>, messages: &mut Vec<Out<'a>>) -> Result<(), ModelError> {
    let mut calls = turn.calls.into_iter();
    let mut blocks = Vec::with_capacity(turn.reply.items.len());
    for item in &turn.reply.items {
        match item {
            AssistantItem::Call(_) => {
                if let Some(call) = calls.next() {
                    blocks.push(tool_use(call)?);
                }
            }
            AssistantItem::Text(_) | AssistantItem::Reasoning { .. } | AssistantItem::Opaque(_) => {
                blocks.extend(own_block(item, turn.own));
            }
        }
    }
    add(messages, "assistant", blocks);
    add(messages, "user", turn.results.into_iter().map(result).collect());
    Ok(())
}

fn tool_use(call: WireCall<'_>) -> Result<Block<'_>, ModelError> {
    let input = RawValue::from_string(call.arguments.into_owned()).map_err(ModelError::unwritable)?;
    Ok(Block::Typed(Typed::ToolUse { id: call.id, name: call.name, input }))
}

fn result(result: WireResult<'_>) -> Block<'_> {
    let mut content = vec![Typed::Text { text: result.text }];
    content.extend(result.images.into_iter().map(|(media_type, data)| image(media_type, data)));
    Block::Typed(Typed::ToolResult { tool_use_id: result.id, content, is_error: result.is_error })
}
