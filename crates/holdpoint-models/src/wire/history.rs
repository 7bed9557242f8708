//! The conversation as every provider accepts it: pairs complete, ids unique and legal, names legal, arguments an
//! object, nothing empty. What is left for a wire is its own syntax. Public for adapters to other libraries.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use holdpoint_core::arguments::history_form;
use holdpoint_core::message::{
    AssistantItem, AssistantMessage, Message, ProposedCall, ResultContent, ResultPart, ToolMessage, UserPart,
};

use crate::ModelError;

/// The longest tool name any of our wires accepts, in bytes.
const NAME_MAX_BYTES: usize = 64;

/// Stands where a provider refuses an empty result.
const NO_OUTPUT: &str = "(no output)";

/// Which ids a provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdRule {
    /// Any visible ASCII, at most 40 bytes: OpenAI's bound.
    Visible40,
    /// Letters, digits, `_` and `-`, at most 64 bytes.
    Token64,
    /// Exactly nine letters or digits: Mistral.
    Nine,
}

impl IdRule {
    fn allows(self, id: &str) -> bool {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        match self {
            Self::Visible40 => (1..=40).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()),
            Self::Token64 => (1..=64).contains(&id.len()) && id.bytes().all(token),
            Self::Nine => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }

    fn mint(self, n: u64) -> String {
        match self {
            Self::Visible40 | Self::Token64 => format!("hp_{n}"),
            Self::Nine => format!("hp{:0>7}", base36(n)),
        }
    }
}

fn base36(mut n: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((n % 36) as u32, 36).unwrap_or('0'));
        n /= 36;
        if n == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// A part of the conversation.
pub enum Entry<'a> {
    /// What the user said, and what the runtime notes. Neighbours are one entry: several providers insist that user
    /// and assistant take turns.
    User(Vec<Said<'a>>),
    /// A reply, and how its calls ended.
    Reply(Turn<'a>),
}

/// A part of what the user said.
pub enum Said<'a> {
    /// Text, never blank.
    Text(Cow<'a, str>),
    /// An image: its media type and its bytes as base64.
    Image {
        /// `image/png` and the like.
        media_type: &'a str,
        /// The bytes, base64.
        data: &'a str,
    },
}

/// A reply, and how its calls ended.
pub struct Turn<'a> {
    /// The reply as it is kept.
    pub reply: &'a AssistantMessage,
    /// The provider's own items may go back: it is the wire that made them, and the reply ended well.
    pub own: bool,
    /// Its calls, in order.
    pub calls: Vec<WireCall<'a>>,
    /// Their results: as many, in the same order.
    pub results: Vec<WireResult<'a>>,
}

/// A call, as it may be sent.
pub struct WireCall<'a> {
    /// Its id: unique in the conversation, and legal.
    pub id: String,
    /// Its tool's name, legal.
    pub name: Cow<'a, str>,
    /// A JSON object, always.
    pub arguments: Cow<'a, str>,
}

/// A result, as it may be sent.
pub struct WireResult<'a> {
    /// The id of its call.
    pub id: String,
    /// The name of its tool.
    pub name: Cow<'a, str>,
    /// What the model reads; never empty.
    pub text: Cow<'a, str>,
    /// Images beside the text: media type and bytes as base64.
    pub images: Vec<(&'a str, &'a str)>,
    /// The text is JSON.
    pub is_json: bool,
    /// It is an error of the tool.
    pub is_error: bool,
}

/// Reads a conversation for a wire with this rule for ids. It is an error if a call has no result, or a result no
/// call: no provider would accept it, and none may be made up.
pub fn entries<'a>(
    messages: &'a [Arc<Message>],
    wire: &str,
    rule: IdRule,
) -> Result<Vec<Entry<'a>>, ModelError> {
    let mut ids = Ids { rule, used: HashSet::new(), calls: 0 };
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(messages.len());
    for message in messages {
        match message.as_ref() {
            Message::User(user) => said(&mut entries, user.parts.iter().filter_map(part)),
            Message::Note(note) => {
                let note = format!("[A note from the runtime, not from the user: {note}]");
                said(&mut entries, [Said::Text(Cow::Owned(note))]);
            }
            Message::Assistant(reply) => {
                let turn = turn(reply, wire, &mut ids);
                if !turn.is_empty() {
                    entries.push(Entry::Reply(turn));
                }
            }
            Message::Tool(result) => answer(&mut entries, result)?,
        }
    }
    match entries.iter().find_map(unanswered) {
        Some(call) => Err(broken(format!("the call of tool `{}` has no result", call.name))),
        None => Ok(entries),
    }
}

fn broken(what: String) -> ModelError {
    let message = format!("the history is not whole: {what}");
    ModelError { code: "bad_request", message, retryable: false, retry_after: None }
}

fn said<'a>(entries: &mut Vec<Entry<'a>>, parts: impl IntoIterator<Item = Said<'a>>) {
    match entries.last_mut() {
        Some(Entry::User(own)) => own.extend(parts),
        Some(Entry::Reply(_)) | None => entries.push(Entry::User(parts.into_iter().collect())),
    }
    // A message of blank text alone has nothing to say.
    if matches!(entries.last(), Some(Entry::User(parts)) if parts.is_empty()) {
        entries.pop();
    }
}

fn part(part: &UserPart) -> Option<Said<'_>> {
    match part {
        UserPart::Text(text) if text.trim().is_empty() => None,
        UserPart::Text(text) => Some(Said::Text(Cow::Borrowed(text))),
        UserPart::Image { media_type, data } => Some(Said::Image { media_type, data }),
    }
}

fn turn<'a>(reply: &'a AssistantMessage, wire: &str, ids: &mut Ids) -> Turn<'a> {
    let complete = reply.incomplete.is_none();
    let calls = if complete { reply.calls().map(|call| ids.call(call)).collect() } else { Vec::new() };
    Turn { reply, own: complete && reply.wire == wire, calls, results: Vec::new() }
}

impl Turn<'_> {
    /// Whether there is nothing in it that a provider would accept.
    fn is_empty(&self) -> bool {
        self.reply.items.iter().all(|item| match item {
            AssistantItem::Text(text) => text.trim().is_empty(),
            AssistantItem::Reasoning { .. } => true,
            AssistantItem::Opaque(_) => !self.own,
            AssistantItem::Call(_) => self.calls.is_empty(),
        })
    }
}

fn answer<'a>(entries: &mut [Entry<'a>], result: &'a ToolMessage) -> Result<(), ModelError> {
    let stray = || broken(format!("a result of tool `{}` belongs to no call", result.name));
    let Some(Entry::Reply(turn)) = entries.last_mut() else { return Err(stray()) };
    let index = usize::try_from(result.index).map_err(|_| stray())?;
    // Results stand in the order of the calls; by our own index, never by the provider's id.
    if index != turn.results.len() {
        return Err(stray());
    }
    let call = turn.calls.get(index).ok_or_else(stray)?;
    let (text, images) = result_text(&result.content);
    let (id, name) = (call.id.clone(), call.name.clone());
    let is_json = matches!(result.content, ResultContent::Json(_));
    turn.results.push(WireResult { id, name, text, images, is_json, is_error: result.is_error });
    Ok(())
}

fn unanswered<'e, 'a>(entry: &'e Entry<'a>) -> Option<&'e WireCall<'a>> {
    match entry {
        Entry::User(_) => None,
        Entry::Reply(turn) => turn.calls.get(turn.results.len()),
    }
}

fn result_text(content: &ResultContent) -> (Cow<'_, str>, Vec<(&str, &str)>) {
    let (text, images) = match content {
        ResultContent::Text(text) => (Cow::Borrowed(text.as_str()), Vec::new()),
        ResultContent::Json(raw) => (Cow::Borrowed(raw.get()), Vec::new()),
        ResultContent::Parts(parts) => {
            let (mut texts, mut images) = (Vec::new(), Vec::new());
            for part in parts {
                match part {
                    ResultPart::Text(text) => texts.push(text.as_str()),
                    ResultPart::Image { media_type, data } => {
                        images.push((media_type.as_str(), data.as_str()))
                    }
                }
            }
            (Cow::Owned(texts.join("\n")), images)
        }
    };
    let text = if text.trim().is_empty() { Cow::Borrowed(NO_OUTPUT) } else { text };
    (text, images)
}

impl WireResult<'_> {
    /// The result as a JSON object, for providers that take nothing else. JSON stays the JSON it is; text stays
    /// text, even if it looks like JSON.
    pub fn as_object(&self) -> Cow<'_, str> {
        match self.is_json {
            true if self.text.trim_start().starts_with('{') => Cow::Borrowed(&self.text),
            true => Cow::Owned(format!("{{\"result\":{}}}", self.text)),
            false => Cow::Owned(serde_json::json!({ "result": self.text }).to_string()),
        }
    }
}

struct Ids {
    rule: IdRule,
    used: HashSet<String>,
    calls: u64,
}

impl Ids {
    fn call<'a>(&mut self, call: &'a ProposedCall) -> WireCall<'a> {
        self.calls += 1;
        let own = self.rule.allows(&call.id) && self.used.insert(call.id.clone());
        let id = if own { call.id.clone() } else { self.mint() };
        WireCall { id, name: legal_name(&call.name), arguments: history_form(&call.arguments) }
    }

    /// From the call's place in the history, so that it is the same in every request and after a restart.
    fn mint(&mut self) -> String {
        let mut n = self.calls;
        loop {
            let id = self.rule.mint(n);
            if self.used.insert(id.clone()) {
                return id;
            }
            n += 1_000_000;
        }
    }
}

/// A name a provider accepts in history, also for a call of a tool that never existed.
fn legal_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        return Cow::Borrowed("unnamed_tool");
    }
    if name.len() <= NAME_MAX_BYTES && name.chars().all(legal) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take(NAME_MAX_BYTES).map(|c| if legal(c) { c } else { '_' }).collect())
}
