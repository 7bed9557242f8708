//! A reply in the making: what a wire's events add up to, and whether it stands.

use holdpoint_core::message::{AssistantItem, AssistantMessage};
use holdpoint_protocol::RawJson;
use serde_json::value::RawValue;

use super::{Finished, error_text};
use crate::assemble::{Assembler, Fragment, Habits};
use crate::{ModelError, Pieces, Reply, ReplyEnd, Usage};

/// The most of one reply that is kept, in bytes: text, reasoning, arguments and the provider's own items.
pub const REPLY_MAX_BYTES: usize = 32 * 1024 * 1024;

/// The most of a provider's message that is passed on, in characters.
const MESSAGE_MAX_CHARS: usize = 500;

/// The most items of one reply.
pub const ITEMS_MAX: usize = 4_096;

/// The most further choices that are told apart.
const CHOICES_MAX: usize = 128;

pub(crate) enum Item {
    Text(String),
    Reasoning {
        text: String,
        signature: Option<String>,
        native: Option<RawJson>,
    },
    Call(usize),
    Opaque(RawJson),
    /// A place that was opened and not filled yet.
    Open,
}

pub(crate) struct Reading {
    wire: &'static str,
    pub(crate) items: Vec<Item>,
    pub(crate) calls: Assembler,
    pub(crate) usage: Usage,
    pub(crate) paused: bool,
    /// How the provider says it ended.
    pub(crate) reason: Option<ReplyEnd>,
    /// The end mark came (`[DONE]`, `message_stop`).
    pub(crate) mark: bool,
    failure: Option<ModelError>,
    kept: usize,
    others: Vec<u64>,
    others_had_calls: bool,
}

impl Reading {
    pub(crate) fn new(wire: &'static str, habits: Habits) -> Self {
        Self {
            wire,
            items: Vec::new(),
            calls: Assembler::new(habits),
            usage: Usage::default(),
            paused: false,
            reason: None,
            mark: false,
            failure: None,
            kept: 0,
            others: Vec::new(),
            others_had_calls: false,
        }
    }

    /// Counts bytes that will be kept; `false` when the reply is over its bound.
    pub(crate) fn keep(&mut self, bytes: usize) -> bool {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept.saturating_add(self.calls.kept_bytes()) > REPLY_MAX_BYTES {
            self.fail_with(format!("the reply is over {REPLY_MAX_BYTES} bytes"));
            return false;
        }
        true
    }

    /// Adds an item: its place, or `None` when there are too many.
    pub(crate) fn push(&mut self, item: Item) -> Option<usize> {
        if self.items.len() == ITEMS_MAX {
            self.fail_with(format!("the reply has more than {ITEMS_MAX} items"));
            return None;
        }
        self.items.push(item);
        Some(self.items.len() - 1)
    }

    /// Text for the item at `at`, or, without one, for the last item if it is text, else for a new one.
    pub(crate) fn text(&mut self, at: Option<usize>, piece: &str, pieces: &mut dyn Pieces) {
        if piece.is_empty() || !self.keep(piece.len()) {
            return;
        }
        pieces.text(piece);
        let at = at.or_else(|| self.items.len().checked_sub(1));
        match at.and_then(|at| self.items.get_mut(at)) {
            Some(Item::Text(text)) => text.push_str(piece),
            Some(open @ Item::Open) => *open = Item::Text(piece.to_owned()),
            Some(Item::Reasoning { .. } | Item::Call(_) | Item::Opaque(_)) | None => {
                self.push(Item::Text(piece.to_owned()));
            }
        }
    }

    /// Reasoning, placed like text.
    pub(crate) fn reasoning(&mut self, at: Option<usize>, piece: &str, pieces: &mut dyn Pieces) {
        if piece.is_empty() || !self.keep(piece.len()) {
            return;
        }
        pieces.reasoning(piece);
        let fresh = || Item::Reasoning { text: piece.to_owned(), signature: None, native: None };
        let at = at.or_else(|| self.items.len().checked_sub(1));
        match at.and_then(|at| self.items.get_mut(at)) {
            Some(Item::Reasoning { text, .. }) => text.push_str(piece),
            Some(open @ Item::Open) => *open = fresh(),
            Some(Item::Text(_) | Item::Call(_) | Item::Opaque(_)) | None => {
                self.push(fresh());
            }
        }
    }

    /// A fragment of a call: the call it went to, if any.
    pub(crate) fn call(&mut self, fragment: Fragment<'_>) -> Option<usize> {
        let placed = match self.calls.take(fragment) {
            Ok(placed) => placed?,
            Err(error) => {
                self.fail_with(error.to_string());
                return None;
            }
        };
        if placed.opened {
            self.push(Item::Call(placed.call))?;
        }
        // What the assembler keeps, not what came: 50 MB of arguments end as one refused call, not as a broken reply.
        self.keep(0).then_some(placed.call)
    }

    pub(crate) fn opaque(&mut self, raw: &RawValue) {
        if self.keep(raw.get().len()) {
            self.push(Item::Opaque(raw.to_owned()));
        }
    }

    /// A further choice, which nobody reads.
    pub(crate) fn other_choice(&mut self, index: u64, has_calls: bool) {
        self.others_had_calls |= has_calls;
        if !self.others.contains(&index) && self.others.len() < CHOICES_MAX {
            self.others.push(index);
        }
    }

    /// The provider reports an error inside a reply that began as a good one.
    pub(crate) fn fail_as_told(&mut self, error: &RawValue) {
        let told = error_text(error);
        let (code, retryable) = told.class();
        let message = format!("the provider reports an error: {}", short(&told.message));
        self.fail(ModelError { code, message, retryable, retry_after: None });
    }

    /// The reply cannot be read.
    pub(crate) fn fail_with(&mut self, message: impl Into<String>) {
        let message = short(&message.into());
        self.fail(ModelError { code: "provider_error", message, retryable: true, retry_after: None });
    }

    pub(crate) fn fail(&mut self, error: ModelError) {
        self.failure.get_or_insert(error);
    }

    pub(crate) fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// What it all came to. A reply stands when nothing failed and the provider said that it ended: by its reason, or
    /// by its end mark alone if every call is whole.
    pub(crate) fn finish(mut self, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.items.retain(|item| !matches!(item, Item::Open));
        let end = match (self.failure.take(), lost, self.reason.take()) {
            (Some(error), _, _) => {
                if self.items.is_empty() {
                    return Err(error);
                }
                ReplyEnd::Interrupted(error.message)
            }
            // After the end mark nothing is read, so nothing can be lost.
            (None, Some(lost), reason) if !(self.mark && reason.is_some()) => self.broken(lost)?,
            (None, _, Some(reason)) => reason,
            (None, _, None) if self.mark && !self.items.is_empty() && self.calls.all_whole() => {
                ReplyEnd::Complete
            }
            (None, _, None) if self.mark => self.broken("the provider's stream ended without saying how")?,
            (None, _, None) => self.broken("the provider's stream ended without an end mark")?,
        };
        Ok(self.reply(end))
    }

    fn broken(&self, how: &str) -> Result<ReplyEnd, ModelError> {
        if self.items.is_empty() {
            let message = format!("no reply came: {how}");
            return Err(ModelError { code: "provider_error", message, retryable: true, retry_after: None });
        }
        Ok(ReplyEnd::Interrupted(how.to_owned()))
    }

    fn reply(self, end: ReplyEnd) -> Finished {
        let stands = end == ReplyEnd::Complete;
        let mut calls: Vec<Option<_>> = self.calls.finish().into_iter().map(Some).collect();
        let item = |item| match item {
            Item::Text(text) => Some(AssistantItem::Text(text)),
            Item::Reasoning { text, signature, native } => {
                Some(AssistantItem::Reasoning { text, signature, native })
            }
            Item::Call(call) if stands => calls.get_mut(call).and_then(Option::take).map(AssistantItem::Call),
            Item::Opaque(raw) => Some(AssistantItem::Opaque(raw)),
            Item::Call(_) | Item::Open => None,
        };
        let items = self.items.into_iter().filter_map(item).collect();
        Finished {
            reply: Reply {
                message: AssistantMessage { items, wire: self.wire.to_owned(), incomplete: end.status() },
                end,
                usage: self.usage,
                other_choices: u32::try_from(self.others.len()).unwrap_or(u32::MAX),
                other_choices_had_calls: self.others_had_calls,
            },
            paused: self.paused && stands,
        }
    }
}

/// A provider's words, bounded: they go into events and logs.
pub(crate) fn short(text: &str) -> String {
    let mut short: String = text.chars().take(MESSAGE_MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// How a reply ended, by the provider's word for it. A word nobody knows is not a good end: what is unclear is not
/// executed.
pub(crate) fn end_of(word: &str) -> ReplyEnd {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "stop" | "tool_calls" | "tool_call" | "tool_use" | "function_call" | "end_turn" | "stop_sequence"
        | "pause_turn" | "eos" | "eos_token" | "end" | "done" | "complete" | "completed" | "finish"
        | "finished" => ReplyEnd::Complete,
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "model_length"
        | "model_context_window_exceeded"
        | "context_length"
        | "token_limit" => ReplyEnd::Length,
        "content_filter"
        | "content_filtered"
        | "refusal"
        | "safety"
        | "sensitive"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "guardrail_intervened" => ReplyEnd::Filtered,
        "error" | "network_error" | "insufficient_system_resource" | "abort" | "aborted" | "cancelled" => {
            ReplyEnd::Interrupted(format!("the provider ended the reply with `{lower}`"))
        }
        _ => {
            let word: String = word.chars().take(64).collect();
            ReplyEnd::Interrupted(format!(
                "the provider ended the reply with a word we do not know: {word:?}"
            ))
        }
    }
}
