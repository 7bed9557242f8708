//! What Chat Completions servers send.

use std::collections::BTreeMap;

use holdpoint_protocol::RawJson;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::WIRE;
use crate::assemble::{Fragment, Habits};
use crate::json;
use crate::sse::Step;
use crate::wire::reading::{Item, Reading, end_of};
use crate::wire::{Finished, WireReader};
use crate::{ModelError, Pieces, ReplyEnd};

type Raw<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
}

/// What a delta and a whole message have in common. Every leaf is raw: what it is meant to be is one thing, what
/// comes another.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_content: Raw<'a>,
    #[serde(borrow, default)]
    reasoning: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_details: Raw<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Option<Call<'a>>>>,
    #[serde(borrow, default)]
    function_call: Option<Function<'a>>,
    #[serde(borrow, default)]
    extra_content: Raw<'a>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
    /// A call of a tool with free text for its input.
    #[serde(borrow, default)]
    custom: Option<Function<'a>>,
    #[serde(borrow, default)]
    extra_content: Raw<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default, alias = "input")]
    arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct Usage<'a> {
    #[serde(borrow, default)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow, default)]
    completion_tokens: Raw<'a>,
}

/// What is kept of fields that must go back as they came; read again by the encoder.
#[derive(Serialize, Default)]
struct Kept<'a> {
    /// The server that made them.
    #[serde(skip_serializing_if = "str::is_empty")]
    from: &'a str,
    /// The field that reasoning came in.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<&'static str, RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Raw<'a>,
}

pub(super) struct Reader {
    reading: Reading,
    origin: String,
    /// The field reasoning comes in, once it came.
    reasoning_field: Option<&'static str>,
    details: Vec<RawJson>,
    message_extra: Option<RawJson>,
    call_extras: BTreeMap<usize, RawJson>,
}

impl Reader {
    pub(super) fn new(habits: Habits, origin: &str) -> Self {
        Self {
            reading: Reading::new(WIRE, habits),
            origin: origin.to_owned(),
            reasoning_field: None,
            details: Vec::new(),
            message_extra: None,
            call_extras: BTreeMap::new(),
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, whole: bool, pieces: &mut dyn Pieces) {
        if let Some(error) = chunk.error {
            self.reading.fail_as_told(error);
            return;
        }
        if let Some(usage) = json::read::<Usage<'_>>(chunk.usage) {
            self.reading.usage.input_tokens = json::count(usage.prompt_tokens);
            self.reading.usage.output_tokens = json::count(usage.completion_tokens);
        }
        for (place, choice) in (0..).zip(chunk.choices.into_iter().flatten()) {
            match json::index(choice.index).unwrap_or(place) {
                0 => self.choice(choice, whole, pieces),
                other => {
                    let has = |delta: Option<&Delta<'_>>| {
                        delta.is_some_and(|delta| {
                            delta.function_call.is_some()
                                || delta.tool_calls.as_ref().is_some_and(|c| !c.is_empty())
                        })
                    };
                    let has_calls = has(choice.delta.as_ref()) || has(choice.message.as_ref());
                    self.reading.other_choice(other, has_calls);
                }
            }
        }
    }

    fn choice(&mut self, choice: Choice<'_>, whole: bool, pieces: &mut dyn Pieces) {
        let word = json::text(choice.finish_reason).filter(|word| !word.is_empty());
        let closing = word.is_some();
        match (choice.delta, choice.message) {
            (Some(delta), _) if !whole => self.delta(delta, false, closing, pieces),
            // A stream of whole messages: only a first one can be read, what follows would repeat it.
            (_, Some(message)) if whole || self.reading.items.is_empty() => {
                self.delta(message, true, closing, pieces)
            }
            (Some(delta), None) => self.delta(delta, true, closing, pieces),
            (Some(_) | None, Some(_)) | (None, None) => {}
        }
        if let Some(word) = word {
            self.reading.reason = Some(end_of(&word));
        }
    }

    fn delta(&mut self, delta: Delta<'_>, whole: bool, closing: bool, pieces: &mut dyn Pieces) {
        let (field, reasoning) = match json::text(delta.reasoning_content) {
            Some(text) => ("reasoning_content", Some(text)),
            None => ("reasoning", json::text(delta.reasoning)),
        };
        if let Some(text) = reasoning {
            self.reasoning_field.get_or_insert(field);
            self.reading.reasoning(None, &text, pieces);
        }
        for detail in json::entries(delta.reasoning_details) {
            if self.reading.keep(detail.get().len()) {
                self.details.push(detail.to_owned());
            }
        }
        match json::text(delta.content) {
            Some(text) => self.reading.text(None, &text, pieces),
            None => self.parts(delta.content, pieces),
        }
        if let Some(text) = json::text(delta.refusal) {
            self.reading.text(None, &text, pieces);
        }
        for (place, call) in delta.tool_calls.into_iter().flatten().flatten().enumerate() {
            self.call(&call, whole, closing, place);
        }
        if let Some(function) = delta.function_call {
            // The form before `tool_calls`: one call, no id, no index.
            let call =
                Call { index: None, id: None, function: Some(function), custom: None, extra_content: None };
            self.call(&call, whole, closing, 0);
        }
        if let Some(extra) = delta.extra_content
            && self.reading.keep(extra.get().len())
        {
            self.message_extra = Some(extra.to_owned());
        }
    }

    /// Content as a list of parts.
    fn parts(&mut self, content: Raw<'_>, pieces: &mut dyn Pieces) {
        #[derive(Deserialize)]
        struct Part<'a> {
            #[serde(borrow, default)]
            text: Raw<'a>,
            #[serde(borrow, default)]
            thinking: Raw<'a>,
        }
        for raw in json::entries(content) {
            let part = json::read::<Part<'_>>(Some(raw));
            let (text, thinking) = part.map_or((None, None), |part| (json::text(part.text), part.thinking));
            if let Some(text) = text {
                self.reading.text(None, &text, pieces);
            } else if let Some(thinking) = thinking {
                for thought in json::entries(Some(thinking)) {
                    let inner = json::read::<Part<'_>>(Some(thought)).and_then(|part| json::text(part.text));
                    self.reading.reasoning(None, &inner.unwrap_or_default(), pieces);
                }
            } else if let Some(kept) = self.kept(Kept { part: Some(raw), ..Kept::default() }) {
                self.reading.opaque(&kept);
            }
        }
    }

    fn call(&mut self, call: &Call<'_>, whole: bool, closing: bool, place: usize) {
        let function = call.function.as_ref().or(call.custom.as_ref());
        let (id, name) = (json::text(call.id), function.and_then(|function| json::text(function.name)));
        let arguments = function.and_then(|function| json::arguments(function.arguments));
        let index = json::index(call.index);
        let named = name.as_ref().is_some_and(|name| !name.is_empty());
        let keyless = index.is_none() && id.as_ref().is_none_or(|id| id.is_empty());
        let fragment = Fragment {
            index,
            id: id.as_deref(),
            name: name.as_deref(),
            arguments: arguments.as_deref(),
            // Two entries of one list are two calls, unless a key says otherwise.
            opens: whole || (place > 0 && keyless && named),
            closing,
        };
        let Some(at) = self.reading.call(fragment) else { return };
        if let Some(extra) = call.extra_content
            && self.reading.keep(extra.get().len())
        {
            self.call_extras.insert(at, extra.to_owned());
        }
    }

    fn into_finished(mut self, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.seal_reasoning();
        let mut fields = BTreeMap::new();
        if !self.details.is_empty()
            && let Ok(details) = to_raw_value(&self.details)
        {
            fields.insert("reasoning_details", details);
        }
        if let Some(extra) = self.message_extra.take() {
            fields.insert("extra_content", extra);
        }
        let mut own = Vec::new();
        if !fields.is_empty() {
            own.extend(self.kept(Kept { fields, ..Kept::default() }));
        }
        for (call, extra) in std::mem::take(&mut self.call_extras) {
            let fields = [("extra_content", extra)].into();
            own.extend(self.kept(Kept { call: Some(call), fields, ..Kept::default() }));
        }
        for raw in own {
            self.reading.opaque(&raw);
        }
        self.reading.finish(lost)
    }

    fn kept(&self, kept: Kept<'_>) -> Option<RawJson> {
        to_raw_value(&Kept { from: &self.origin, ..kept }).ok()
    }

    /// Notes the field reasoning came in, so that it can go back in that field; empty reasoning beside calls too.
    fn seal_reasoning(&mut self) {
        let Some(field) = self.reasoning_field else { return };
        let native = self.kept(Kept { field: Some(field), ..Kept::default() });
        let mut any = false;
        for item in &mut self.reading.items {
            if let Item::Reasoning { native: own, .. } = item {
                *own = native.clone();
                any = true;
            }
        }
        if !any && !self.reading.calls.is_empty() {
            let empty = Item::Reasoning { text: String::new(), signature: None, native };
            self.reading.items.insert(0, empty);
        }
    }
}

impl WireReader for Reader {
    fn event(&mut self, data: &str, pieces: &mut dyn Pieces) -> Step {
        let data = data.trim();
        if data.is_empty() {
            return Step::More;
        }
        if data == "[DONE]" {
            self.reading.mark = true;
            return Step::Done;
        }
        match serde_json::from_str(data) {
            Ok(chunk) => self.chunk(chunk, false, pieces),
            Err(error) => self.reading.fail_with(format!("the provider sent a line we cannot read: {error}")),
        }
        if self.reading.failed() { Step::Done } else { Step::More }
    }

    fn finish(self: Box<Self>, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.into_finished(lost)
    }
}

pub(super) fn whole(body: &str, origin: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
    let mut reader = Reader::new(Habits::default(), origin);
    match serde_json::from_str::<Chunk<'_>>(body) {
        Ok(chunk) if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(Vec::is_empty) => {
            reader.reading.fail_with("the provider's reply has no choices");
        }
        Ok(chunk) => {
            reader.chunk(chunk, true, pieces);
            // A whole document is whole; some servers leave the reason out.
            reader.reading.reason.get_or_insert(ReplyEnd::Complete);
            reader.reading.mark = true;
        }
        Err(error) => reader.reading.fail_with(format!("the provider sent a body we cannot read: {error}")),
    }
    reader.into_finished(None)
}
