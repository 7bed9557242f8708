//! A request as Chat Completions wants it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use holdpoint_core::message::AssistantItem;
use holdpoint_core::tool::ToolDefinition;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Chat, WIRE};
use crate::json;
use crate::wire::history::{Entry, Said, Turn, WireResult, entries};
use crate::{ModelError, ModelRequest};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Out<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(flatten)]
    extra: &'a serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: ToolFunction<'a>,
}

#[derive(Serialize)]
struct ToolFunction<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a serde_json::Value,
}

/// A message of any role; what a role does not have is left out.
#[derive(Serialize)]
struct Out<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OutCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(flatten)]
    extra: BTreeMap<String, Extra<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Null,
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Text {
        #[serde(rename = "type")]
        kind: &'static str,
        text: Cow<'a, str>,
    },
    Image {
        #[serde(rename = "type")]
        kind: &'static str,
        image_url: ImageUrl,
    },
    /// A part the provider made.
    Own(&'a RawValue),
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Extra<'a> {
    Text(&'a str),
    Raw(&'a RawValue),
}

#[derive(Serialize)]
struct OutCall<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: OutFunction<'a>,
    #[serde(flatten)]
    extra: BTreeMap<String, &'a RawValue>,
}

#[derive(Serialize)]
struct OutFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// What [`super::decode`] keeps of the provider's own fields.
#[derive(Deserialize)]
struct Kept<'a> {
    /// The server that made them.
    #[serde(borrow, default)]
    from: Cow<'a, str>,
    /// The field that reasoning came in.
    field: Option<String>,
    /// The call they belong to, from 0; the message when absent.
    call: Option<usize>,
    #[serde(borrow, default)]
    fields: BTreeMap<String, &'a RawValue>,
    /// A part of the content.
    #[serde(borrow)]
    part: Option<&'a RawValue>,
}

pub(super) fn encode(wire: &Chat, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let history = entries(&request.messages, WIRE, wire.profile.ids)?;
    let mut messages = Vec::with_capacity(history.len() + 1);
    if !request.instructions.trim().is_empty() {
        messages.push(Out::new("system", Content::Text(Cow::Borrowed(&request.instructions))));
    }
    for entry in history {
        match entry {
            Entry::User(said) => messages.push(user(said)),
            Entry::Reply(turn) => reply(wire, turn, &mut messages),
        }
    }
    let limit = wire.options.max_output_tokens;
    let body = Body {
        model: &wire.options.model,
        messages,
        tools: request.tools.iter().map(tool).collect(),
        stream: request.stream,
        stream_options: (request.stream && wire.profile.stream_usage)
            .then_some(StreamOptions { include_usage: true }),
        max_tokens: limit.filter(|_| !wire.profile.max_completion_tokens),
        max_completion_tokens: limit.filter(|_| wire.profile.max_completion_tokens),
        extra: &wire.options.extra,
    };
    serde_json::to_vec(&body).map_err(ModelError::unwritable)
}

impl<'a> Out<'a> {
    fn new(role: &'static str, content: Content<'a>) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None, extra: BTreeMap::new() }
    }
}

fn tool(tool: &ToolDefinition) -> Tool<'_> {
    let function =
        ToolFunction { name: &tool.name, description: &tool.description, parameters: &tool.schema };
    Tool { kind: "function", function }
}

fn text_part(text: Cow<'_, str>) -> Part<'_> {
    Part::Text { kind: "text", text }
}

fn image_part<'a>(media_type: &str, data: &str) -> Part<'a> {
    Part::Image { kind: "image_url", image_url: ImageUrl { url: format!("data:{media_type};base64,{data}") } }
}

/// Text alone is sent as text: many servers know nothing else.
fn user(said: Vec<Said<'_>>) -> Out<'_> {
    let only_text = said.iter().all(|part| matches!(part, Said::Text(_)));
    let mut parts: Vec<Part<'_>> = said
        .into_iter()
        .map(|part| match part {
            Said::Text(text) => text_part(text),
            Said::Image { media_type, data } => image_part(media_type, data),
        })
        .collect();
    if only_text {
        let mut texts = parts.drain(..).filter_map(|part| match part {
            Part::Text { text, .. } => Some(text),
            Part::Image { .. } | Part::Own(_) => None,
        });
        let first = texts.next().unwrap_or_default();
        let joined = texts.fold(first, |all, next| Cow::Owned(format!("{all}\n\n{next}")));
        return Out::new("user", Content::Text(joined));
    }
    Out::new("user", Content::Parts(parts))
}

fn reply<'a>(wire: &Chat, turn: Turn<'a>, messages: &mut Vec<Out<'a>>) {
    let mut calls: Vec<OutCall<'a>> = turn
        .calls
        .into_iter()
        .map(|call| OutCall {
            id: call.id,
            kind: "function",
            function: OutFunction { name: call.name, arguments: call.arguments },
            extra: BTreeMap::new(),
        })
        .collect();
    let own = |raw: &'a RawValue| json::read::<Kept<'a>>(Some(raw)).filter(|kept| kept.from == wire.origin);
    let mut extra = BTreeMap::new();
    let mut own_parts = Vec::new();
    let mut text: Option<Cow<'a, str>> = None;
    for item in &turn.reply.items {
        match item {
            AssistantItem::Text(piece) => {
                text = Some(
                    text.map_or(Cow::Borrowed(piece.as_str()), |all| Cow::Owned(format!("{all}{piece}"))),
                );
            }
            AssistantItem::Reasoning { text, native: Some(native), .. }
                if turn.own && wire.profile.echo_reasoning =>
            {
                // Empty reasoning goes back as well: some servers refuse calls without the field.
                let field = own(native).and_then(|kept| kept.field);
                extra.extend(field.map(|field| (field, Extra::Text(text))));
            }
            AssistantItem::Reasoning { .. } => {}
            AssistantItem::Opaque(raw) if turn.own => match own(raw) {
                Some(Kept { part: Some(part), .. }) => own_parts.push(Part::Own(part)),
                Some(Kept { call: Some(call), fields, .. }) => {
                    if let Some(call) = calls.get_mut(call) {
                        call.extra.extend(fields);
                    }
                }
                Some(Kept { fields, .. }) => {
                    extra.extend(fields.into_iter().map(|(k, v)| (k, Extra::Raw(v))))
                }
                None => {}
            },
            AssistantItem::Opaque(_) | AssistantItem::Call(_) => {}
        }
    }
    let text = text.filter(|text| !text.is_empty());
    let content = match text {
        Some(text) if !own_parts.is_empty() => {
            own_parts.insert(0, text_part(text));
            Content::Parts(own_parts)
        }
        None if !own_parts.is_empty() => Content::Parts(own_parts),
        Some(text) => Content::Text(text),
        None if wire.profile.null_content => Content::Null,
        None => Content::Text(Cow::Borrowed("")),
    };
    messages.push(Out { tool_calls: calls, extra, ..Out::new("assistant", content) });
    results(wire, turn.results, messages);
}

fn results<'a>(wire: &Chat, results: Vec<WireResult<'a>>, messages: &mut Vec<Out<'a>>) {
    // A tool message is text. Images follow as the user's, after the last result: nothing may come between those.
    let mut images = Vec::new();
    for result in results {
        for (media_type, data) in &result.images {
            images.push(text_part(Cow::Owned(format!("[An image that tool `{}` returned:]", result.name))));
            images.push(image_part(media_type, data));
        }
        let text = match wire.profile.object_results {
            true => Cow::Owned(result.as_object().into_owned()),
            false => result.text,
        };
        messages.push(Out { tool_call_id: Some(result.id), ..Out::new("tool", Content::Text(text)) });
    }
    if !images.is_empty() {
        messages.push(Out::new("user", Content::Parts(images)));
    }
}
