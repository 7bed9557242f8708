//! The conversation as it is kept: what was said, what was called, what came back.
//!
//! A model adapter turns a slice of [`Message`] into its provider's wire form. The slice it gets is always
//! whole: every call of an [`AssistantMessage`] is followed by its [`ToolMessage`], in the order of the calls.

use holdpoint_protocol::{Executed, RawJson, Status};
use serde::{Deserialize, Serialize};

/// One entry of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What the user said.
    User(UserMessage),
    /// What the model replied.
    Assistant(AssistantMessage),
    /// How one call of the reply before it ended.
    Tool(ToolMessage),
    /// A word from the runtime to the model: why its last reply broke off. Not from the user.
    Note(String),
}

/// What the user said.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserMessage {
    /// The parts, in order.
    pub parts: Vec<UserPart>,
}

/// A part of what the user said.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserPart {
    /// Text.
    Text(String),
    /// An image: its media type and its bytes as base64.
    Image {
        /// `image/png` and the like.
        media_type: String,
        /// The bytes, base64.
        data: String,
    },
}

impl UserMessage {
    /// A message of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { parts: vec![UserPart::Text(text.into())] }
    }
}

/// What the model replied, in the order it came.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The items, in order.
    pub items: Vec<AssistantItem>,
    /// Which wire made it (`openai-chat`, `anthropic`, `openai-responses`, `scripted`): provider-made items
    /// are replayed to that wire alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wire: String,
    /// Set when the reply did not end well. Then it has no calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Status>,
}

/// One item of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssistantItem {
    /// Text for the user.
    Text(String),
    /// The model's reasoning.
    Reasoning {
        /// What it shows of it.
        text: String,
        /// The provider's proof, replayed exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// The provider's own item, replayed exactly to the wire that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<RawJson>,
    },
    /// A tool call.
    Call(ProposedCall),
    /// An item of the provider's that we do not understand: kept in order, replayed to its wire, dropped for others.
    Opaque(RawJson),
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedCall {
    /// The provider's id: data, possibly empty, repeated, or reused later.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The argument text exactly as it came: never parsed, repaired or re-serialised. Empty when absent.
    pub arguments: String,
}

impl AssistantMessage {
    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ProposedCall> {
        self.items.iter().filter_map(|item| match item {
            AssistantItem::Call(call) => Some(call),
            AssistantItem::Text(_) | AssistantItem::Reasoning { .. } | AssistantItem::Opaque(_) => None,
        })
    }

    /// All text, joined.
    pub fn text(&self) -> String {
        self.items
            .iter()
            .filter_map(|item| match item {
                AssistantItem::Text(text) => Some(text.as_str()),
                AssistantItem::Reasoning { .. } | AssistantItem::Call(_) | AssistantItem::Opaque(_) => None,
            })
            .collect()
    }

    /// All shown reasoning, joined; `None` when there is none.
    pub fn reasoning(&self) -> Option<String> {
        let all: String = self
            .items
            .iter()
            .filter_map(|item| match item {
                AssistantItem::Reasoning { text, .. } => Some(text.as_str()),
                AssistantItem::Text(_) | AssistantItem::Call(_) | AssistantItem::Opaque(_) => None,
            })
            .collect();
        (!all.is_empty()).then_some(all)
    }
}

/// How one call ended, as the model is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolMessage {
    /// The index of the call in the reply, from 0.
    pub index: u32,
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// The stable reason code.
    pub code: String,
    /// Whether it took effect.
    pub executed: Executed,
    /// What the model reads.
    pub content: ResultContent,
    /// Whether it is an error of the tool. Never set for a call that a person or a policy did not let run.
    #[serde(default)]
    pub is_error: bool,
}

/// What a tool returned. Text stays text; JSON stays the JSON it was.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultContent {
    /// Text, never parsed, even if it looks like JSON.
    Text(String),
    /// A JSON value, as it was written.
    Json(RawJson),
    /// Several parts, for tools that return images beside text.
    Parts(Vec<ResultPart>),
}

/// A part of a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPart {
    /// Text.
    Text(String),
    /// An image: its media type and its bytes as base64.
    Image {
        /// `image/png` and the like.
        media_type: String,
        /// The bytes, base64.
        data: String,
    },
}

impl ResultContent {
    /// The content as JSON: a string for text, the value itself for JSON, an array for parts.
    pub fn to_raw_json(&self) -> RawJson {
        let made = match self {
            Self::Text(text) => serde_json::value::to_raw_value(text),
            Self::Json(raw) => return raw.clone(),
            Self::Parts(parts) => serde_json::value::to_raw_value(parts),
        };
        // Strings and our own structs: writing them to memory has no way to fail.
        made.unwrap_or_else(|_| RawJson::from(serde_json::value::RawValue::NULL.to_owned()))
    }
}

/// Whether a history can be sent to a model: every call of a reply is answered once, right after it, in its order, and
/// there is no answer without a call.
pub fn is_whole<'a>(messages: impl IntoIterator<Item = &'a Message>) -> bool {
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        match message {
            Message::Assistant(reply) => {
                for (index, call) in (0u32..).zip(reply.calls()) {
                    let answers = |answer: &&Message| match answer {
                        Message::Tool(answer) => answer.index == index && answer.id == call.id,
                        Message::User(_) | Message::Assistant(_) | Message::Note(_) => false,
                    };
                    if messages.next_if(answers).is_none() {
                        return false;
                    }
                }
            }
            Message::Tool(_) => return false,
            Message::User(_) | Message::Note(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(ids: &[&str]) -> Message {
        let call = |id: &&str| {
            AssistantItem::Call(ProposedCall {
                id: (*id).into(),
                name: "read".into(),
                arguments: "{}".into(),
            })
        };
        Message::Assistant(AssistantMessage { items: ids.iter().map(call).collect(), ..Default::default() })
    }

    fn answer(index: u32, id: &str) -> Message {
        Message::Tool(ToolMessage {
            index,
            id: id.into(),
            name: "read".into(),
            status: Status::Succeeded,
            code: "SUCCEEDED".into(),
            executed: Executed::Yes,
            content: ResultContent::Text("x".into()),
            is_error: false,
        })
    }

    #[test]
    fn a_history_is_whole_when_every_call_has_its_answer_in_its_place() {
        let user = || Message::User(UserMessage::text("go"));
        let table = [
            (vec![], true),
            (vec![user(), reply(&[])], true),
            (vec![user(), reply(&["a", "a"]), answer(0, "a"), answer(1, "a"), reply(&[])], true),
            (vec![reply(&["a"])], false),
            (vec![reply(&["a", "b"]), answer(0, "a")], false),
            (vec![reply(&["a", "b"]), answer(1, "b"), answer(0, "a")], false),
            (vec![reply(&["a"]), answer(0, "a"), answer(0, "a")], false),
            (vec![reply(&["a"]), user(), answer(0, "a")], false),
            (vec![answer(0, "a"), user()], false),
            (vec![reply(&["a"]), answer(0, "b")], false),
        ];
        for (messages, whole) in table {
            assert_eq!(is_whole(&messages), whole, "{messages:?}");
        }
    }
}
