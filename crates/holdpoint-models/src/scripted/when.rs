//! What a rule of a script asks of a request.

use holdpoint_core::message::{Message, ResultContent, ResultPart, ToolMessage, UserPart};
use holdpoint_protocol::Status;
#[cfg(feature = "yaml")]
use serde::Deserialize;

use crate::ModelRequest;

/// When a rule applies: everything that is set must hold. Nothing set: always.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "yaml", derive(Deserialize), serde(deny_unknown_fields, default))]
pub struct When {
    /// The last user message contains this text.
    pub user_contains: Option<String>,
    /// The instructions (the system prompt) contain this text.
    pub instructions_contain: Option<String>,
    /// Whether there is a tool result after the last user message.
    pub has_tool_result: Option<bool>,
    /// A tool result after the last user message is like this.
    pub tool_result: Option<ResultMatch>,
    /// A tool of this name is offered.
    pub tool_offered: Option<String>,
    /// A note of the runtime after the last user message contains this text.
    pub note_contains: Option<String>,
    /// The round: one more than the replies since the last user message.
    pub round: Option<u32>,
    /// The number of this request among all the model got, from 1.
    pub nth: Option<u64>,
}

/// What a tool result must be like: everything that is set must hold of one and the same result.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "yaml", derive(Deserialize), serde(deny_unknown_fields, default))]
pub struct ResultMatch {
    /// It answers a call of this tool.
    pub tool: Option<String>,
    /// It contains this text, as the model reads it.
    pub contains: Option<String>,
    /// It ended so.
    pub status: Option<Status>,
    /// Its stable reason code.
    pub code: Option<String>,
    /// Whether it is flagged as an error of the tool.
    pub is_error: Option<bool>,
}

impl ResultMatch {
    /// A result of this tool.
    pub fn of(tool: impl Into<String>) -> Self {
        Self { tool: Some(tool.into()), ..Self::default() }
    }

    /// ... that contains this text.
    #[must_use]
    pub fn containing(mut self, text: impl Into<String>) -> Self {
        self.contains = Some(text.into());
        self
    }

    /// ... that ended so.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    fn matches(&self, result: &ToolMessage) -> bool {
        self.tool.as_ref().is_none_or(|tool| *tool == result.name)
            && self.status.is_none_or(|status| status == result.status)
            && self.code.as_ref().is_none_or(|code| *code == result.code)
            && self.is_error.is_none_or(|flag| flag == result.is_error)
            && self.contains.as_ref().is_none_or(|text| contains(&result.content, text))
    }
}

fn contains(content: &ResultContent, text: &str) -> bool {
    match content {
        ResultContent::Text(own) => own.contains(text),
        ResultContent::Json(raw) => raw.get().contains(text),
        ResultContent::Parts(parts) => parts.iter().any(|part| match part {
            ResultPart::Text(own) => own.contains(text),
            ResultPart::Image { .. } => false,
        }),
    }
}

impl When {
    /// Always.
    pub fn any() -> Self {
        Self::default()
    }

    /// The last user message contains this text.
    #[must_use]
    pub fn user_contains(mut self, text: impl Into<String>) -> Self {
        self.user_contains = Some(text.into());
        self
    }

    /// The instructions contain this text.
    #[must_use]
    pub fn instructions_contain(mut self, text: impl Into<String>) -> Self {
        self.instructions_contain = Some(text.into());
        self
    }

    /// There is (or is not) a tool result after the last user message.
    #[must_use]
    pub fn has_tool_result(mut self, has: bool) -> Self {
        self.has_tool_result = Some(has);
        self
    }

    /// A tool result after the last user message is like this.
    #[must_use]
    pub fn tool_result(mut self, result: ResultMatch) -> Self {
        self.tool_result = Some(result);
        self
    }

    /// A tool of this name is offered.
    #[must_use]
    pub fn tool_offered(mut self, name: impl Into<String>) -> Self {
        self.tool_offered = Some(name.into());
        self
    }

    /// A note of the runtime after the last user message contains this text.
    #[must_use]
    pub fn note_contains(mut self, text: impl Into<String>) -> Self {
        self.note_contains = Some(text.into());
        self
    }

    /// It is this round since the last user message, from 1.
    #[must_use]
    pub fn round(mut self, round: u32) -> Self {
        self.round = Some(round);
        self
    }

    /// It is this request of all the model got, from 1.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    pub(super) fn matches(&self, request: &ModelRequest, nth: u64) -> bool {
        if self.nth.is_some_and(|wanted| wanted != nth) {
            return false;
        }
        if self.instructions_contain.as_ref().is_some_and(|text| !request.instructions.contains(text)) {
            return false;
        }
        if self.tool_offered.as_ref().is_some_and(|name| !request.tools.iter().any(|tool| tool.name == *name))
        {
            return false;
        }
        if self.user_contains.as_ref().is_some_and(|text| !user_contains(request, text)) {
            return false;
        }
        self.matches_turn(turn(request))
    }

    fn matches_turn<'a>(&self, turn: impl Iterator<Item = &'a Message>) -> bool {
        let (mut any_result, mut this_result) = (false, self.tool_result.is_none());
        let (mut this_note, mut replies) = (self.note_contains.is_none(), 0_u32);
        for message in turn {
            match message {
                Message::Tool(result) => {
                    any_result = true;
                    this_result |= self.tool_result.as_ref().is_some_and(|wanted| wanted.matches(result));
                }
                Message::Note(note) => {
                    this_note |= self.note_contains.as_ref().is_some_and(|text| note.contains(text));
                }
                Message::Assistant(_) => replies += 1,
                Message::User(_) => {}
            }
        }
        this_result
            && this_note
            && self.has_tool_result.is_none_or(|wanted| wanted == any_result)
            && self.round.is_none_or(|round| round == replies + 1)
    }
}

/// What came after the last user message, latest first.
fn turn(request: &ModelRequest) -> impl Iterator<Item = &Message> {
    request
        .messages
        .iter()
        .rev()
        .map(AsRef::as_ref)
        .take_while(|message| !matches!(message, Message::User(_)))
}

fn last_user(request: &ModelRequest) -> Option<&[UserPart]> {
    request.messages.iter().rev().find_map(|message| match message.as_ref() {
        Message::User(user) => Some(user.parts.as_slice()),
        Message::Assistant(_) | Message::Tool(_) | Message::Note(_) => None,
    })
}

fn texts(parts: &[UserPart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        UserPart::Text(text) => Some(text.as_str()),
        UserPart::Image { .. } => None,
    })
}

fn user_contains(request: &ModelRequest, text: &str) -> bool {
    last_user(request).is_some_and(|parts| texts(parts).any(|own| own.contains(text)))
}

pub(super) fn last_user_text(request: &ModelRequest) -> Option<String> {
    last_user(request).map(|parts| texts(parts).collect())
}
