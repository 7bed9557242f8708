//! Rig's stream as one of our replies.

use std::collections::HashMap;

use holdpoint_core::arguments::{ARGUMENTS_MAX_BYTES, peel_double_encoded};
use holdpoint_core::message::{AssistantItem, AssistantMessage, ProposedCall};
use holdpoint_models::wire::REPLY_MAX_BYTES;
use holdpoint_models::{ModelError, Pieces, Reply, ReplyEnd, Usage};
use rig_core::completion::{CompletionResponse, FinishReason};
use rig_core::error::ProviderError;
use rig_core::message::{AssistantContent, CallId, ToolCall};
use rig_core::streaming::{Item, Part, StreamEvent};

use crate::history::Kept;
use crate::{WIRE, error};

/// What a reply's stream brought.
#[derive(Default)]
pub(crate) struct Reading {
    /// Text and reasoning so far, for a reply that breaks off.
    shown: Vec<AssistantItem>,
    /// Argument text by part, exactly as the provider sent it.
    arguments: HashMap<Part, String>,
    /// The same by call, once the call's part ended.
    texts: HashMap<CallId, Vec<String>>,
    bytes: usize,
}

impl Reading {
    pub(crate) fn take(&mut self, item: Item<StreamEvent>, pieces: Option<&mut dyn Pieces>) {
        let Item::Event(event) = item else { return };
        match event {
            StreamEvent::Text { text, .. } => {
                self.bytes += text.len();
                if let Some(pieces) = pieces {
                    pieces.text(&text);
                }
                match self.shown.last_mut() {
                    Some(AssistantItem::Text(all)) => all.push_str(&text),
                    _ => self.shown.push(AssistantItem::Text(text)),
                }
            }
            StreamEvent::Reasoning { text, .. } => {
                self.bytes += text.len();
                if let Some(pieces) = pieces {
                    pieces.reasoning(&text);
                }
                match self.shown.last_mut() {
                    Some(AssistantItem::Reasoning { text: all, .. }) => all.push_str(&text),
                    _ => self.shown.push(AssistantItem::Reasoning { text, signature: None, native: None }),
                }
            }
            StreamEvent::Arguments { part, json } => {
                let all = self.arguments.entry(part).or_default();
                // Just long enough to be refused as too large.
                if all.len() <= ARGUMENTS_MAX_BYTES {
                    self.bytes += json.len();
                    all.push_str(&json);
                }
            }
            StreamEvent::End { part, content: AssistantContent::ToolCall(call) } => {
                if let Some(text) = self.arguments.remove(&part) {
                    self.texts.entry(call.id).or_default().push(text);
                }
            }
            StreamEvent::End { .. } | StreamEvent::Start { .. } => {}
        }
    }

    /// The reply is over its bound: what there is of it.
    pub(crate) fn over(&mut self) -> Option<Reply> {
        let over = self.bytes > REPLY_MAX_BYTES;
        over.then(|| self.cut(ReplyEnd::Interrupted(format!("the reply is over {REPLY_MAX_BYTES} bytes"))))
    }

    fn cut(&mut self, end: ReplyEnd) -> Reply {
        reply(std::mem::take(&mut self.shown), end, Usage::default())
    }

    /// The stream ended in an error: a broken reply if there was anything of it, else none.
    pub(crate) fn broken(mut self, failed: &ProviderError) -> Result<Reply, ModelError> {
        let begun = !self.shown.is_empty() || !self.arguments.is_empty() || !self.texts.is_empty();
        if !begun {
            return Err(error::of(failed));
        }
        let status = failed.provider_response_status().map(|status| status.as_u16());
        Ok(self.cut(ReplyEnd::Interrupted(error::message(failed, status))))
    }

    pub(crate) fn finish(mut self, response: CompletionResponse) -> Reply {
        let usage = Usage {
            input_tokens: response.usage.input_tokens.unwrap_or(0),
            output_tokens: response.usage.output_tokens.unwrap_or(0),
        };
        let end = end(&response);
        let message = response.head().with_content(response.choice.clone()).with_stop(response.stop());
        let mut items = Vec::with_capacity(response.choice.len() + 1);
        for content in response.choice {
            match content {
                AssistantContent::Text(text) => items.push(AssistantItem::Text(text.text)),
                AssistantContent::Reasoning(own) => {
                    items.push(AssistantItem::Reasoning { text: own.text, signature: None, native: None });
                }
                AssistantContent::ToolCall(call) if end == ReplyEnd::Complete => {
                    items.push(AssistantItem::Call(self.call(call)));
                }
                // What else there is goes back in rig's own message, which is kept whole.
                _ => {}
            }
        }
        if end == ReplyEnd::Complete {
            let kept = serde_json::value::to_raw_value(&Kept { rig: message });
            items.extend(kept.ok().map(AssistantItem::Opaque));
        }
        reply(items, end, usage)
    }

    fn call(&mut self, call: ToolCall) -> ProposedCall {
        let sent =
            self.texts.get_mut(&call.id).filter(|texts| !texts.is_empty()).map(|texts| texts.remove(0));
        let function = call.function;
        let arguments = sent.or(function.invalid_arguments).unwrap_or_else(|| {
            // The provider sent a value, not a text; this is the text that is then shown, decided on and run.
            serde_json::Value::Object(function.arguments).to_string()
        });
        ProposedCall {
            // An id that rig made up says nothing about the provider.
            id: call.id.provider().map(|id| id.as_str().to_owned()).unwrap_or_default(),
            name: function.name.as_str().to_owned(),
            arguments: peel_double_encoded(&arguments).unwrap_or(arguments),
        }
    }
}

fn reply(items: Vec<AssistantItem>, end: ReplyEnd, usage: Usage) -> Reply {
    let message = AssistantMessage { items, wire: WIRE.to_owned(), incomplete: end.status() };
    Reply { message, end, usage, other_choices: 0, other_choices_had_calls: false }
}

fn end(response: &CompletionResponse) -> ReplyEnd {
    if let Some(why) = response.error.as_ref().or(response.aborted.as_ref()) {
        let why: String = why.chars().take(500).collect();
        return ReplyEnd::Interrupted(format!("the provider failed the reply: {why}"));
    }
    match response.finish_reason() {
        None | Some(FinishReason::Stop | FinishReason::ToolCalls) => ReplyEnd::Complete,
        Some(FinishReason::Length) => ReplyEnd::Length,
        Some(FinishReason::ContentFilter) => ReplyEnd::Filtered,
        // Rig's list may grow: what is unclear is not executed.
        Some(other) => ReplyEnd::Interrupted(format!("the provider ended the reply with {other:?}")),
    }
}
