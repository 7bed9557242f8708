//! A request as OpenAI Responses wants it.

use std::borrow::Cow;

use holdpoint_core::message::AssistantItem;
use holdpoint_core::tool::ToolDefinition;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Responses, WIRE};
use crate::wire::history::{Entry, IdRule, Said, Turn, entries};
use crate::{ModelError, ModelRequest};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<Input<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(flatten)]
    extra: &'a serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a serde_json::Value,
    /// Strict mode rewrites schemas; ours is checked by the gate.
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Typed(Typed<'a>),
    /// An item the provider made, exactly as it came.
    Own(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Typed<'a> {
    Message { role: &'static str, content: Vec<Content<'a>> },
    FunctionCall { call_id: String, name: Cow<'a, str>, arguments: Cow<'a, str> },
    FunctionCallOutput { call_id: String, output: Output<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: Cow<'a, str> },
    OutputText { text: &'a str },
    InputImage { image_url: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Content<'a>>),
}

pub(super) fn encode(wire: &Responses, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let mut input = Vec::with_capacity(request.messages.len());
    for entry in entries(&request.messages, WIRE, IdRule::Token64)? {
        match entry {
            Entry::User(said) => {
                let content = said.into_iter().map(user).collect();
                input.push(Input::Typed(Typed::Message { role: "user", content }));
            }
            Entry::Reply(turn) => reply(turn, &mut input),
        }
    }
    let body = Body {
        model: &wire.options.model,
        instructions: if request.instructions.trim().is_empty() { "" } else { &request.instructions },
        input,
        tools: request.tools.iter().map(tool).collect(),
        stream: request.stream,
        store: false,
        include: if wire.encrypted_reasoning { vec!["reasoning.encrypted_content"] } else { Vec::new() },
        max_output_tokens: wire.options.max_output_tokens,
        extra: &wire.options.extra,
    };
    serde_json::to_vec(&body).map_err(ModelError::unwritable)
}

fn tool(tool: &ToolDefinition) -> Tool<'_> {
    let ToolDefinition { name, description, schema, .. } = tool;
    Tool { kind: "function", name, description, parameters: schema, strict: false }
}

fn image(media_type: &str, data: &str) -> Content<'static> {
    Content::InputImage { image_url: format!("data:{media_type};base64,{data}") }
}

fn user(said: Said<'_>) -> Content<'_> {
    match said {
        Said::Text(text) => Content::InputText { text },
        Said::Image { media_type, data } => image(media_type, data),
    }
}

fn reply<'a>(turn: Turn<'a>, input: &mut Vec<Input<'a>>) {
    let mut calls = turn.calls.into_iter();
    for item in &turn.reply.items {
        match item {
            AssistantItem::Text(text) if text.is_empty() => {}
            AssistantItem::Text(text) => {
                let content = vec![Content::OutputText { text }];
                input.push(Input::Typed(Typed::Message { role: "assistant", content }));
            }
            AssistantItem::Call(_) => input.extend(calls.next().map(|call| {
                Input::Typed(Typed::FunctionCall {
                    call_id: call.id,
                    name: call.name,
                    arguments: call.arguments,
                })
            })),
            AssistantItem::Reasoning { native: Some(raw), .. } | AssistantItem::Opaque(raw) if turn.own => {
                input.push(Input::Own(raw));
            }
            AssistantItem::Reasoning { .. } | AssistantItem::Opaque(_) => {}
        }
    }
    for result in turn.results {
        let output = if result.images.is_empty() {
            Output::Text(result.text)
        } else {
            let mut parts = vec![Content::InputText { text: result.text }];
            parts.extend(result.images.into_iter().map(|(media_type, data)| image(media_type, data)));
            Output::Parts(parts)
        };
        input.push(Input::Typed(Typed::FunctionCallOutput { call_id: result.id, output }));
    }
}
