//! What Anthropic Messages sends.

use std::collections::BTreeMap;

use holdpoint_protocol::RawJson;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::WIRE;
use crate::assemble::{Fragment, Habits};
use crate::json;
use crate::sse::Step;
use crate::wire::reading::{Item, Reading, end_of};
use crate::wire::{Finished, WireReader};
use crate::{ModelError, Pieces};

type Raw<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(borrow, default)]
    content_block: Raw<'a>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    usage: Option<Usage<'a>>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

/// A whole message; the start of a stream brings it empty.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    stop_reason: Raw<'a>,
    #[serde(borrow, default)]
    usage: Option<Usage<'a>>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Usage<'a> {
    #[serde(borrow, default)]
    input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    output_tokens: Raw<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    partial_json: Raw<'a>,
    #[serde(borrow, default)]
    thinking: Raw<'a>,
    #[serde(borrow, default)]
    signature: Raw<'a>,
    #[serde(borrow, default)]
    stop_reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    thinking: Raw<'a>,
    #[serde(borrow, default)]
    signature: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    input: Raw<'a>,
}

/// Where the deltas of an open block go.
#[derive(Clone, Copy)]
enum Place {
    Text(usize),
    Reasoning(usize),
    Call,
    /// A block we do not understand: its fields, into which deltas are merged.
    Opaque(usize),
}

/// A block we do not understand, in the making.
struct Opaque {
    /// The item it will be.
    at: usize,
    fields: BTreeMap<String, RawJson>,
    /// Its input as text, if that comes in pieces.
    input: Option<String>,
    /// Its text, if that comes in pieces.
    text: Option<String>,
}

pub(super) struct Reader {
    reading: Reading,
    places: BTreeMap<u64, Place>,
    opaque: Vec<Opaque>,
    /// Calls whose block began with an empty input: without a delta it is what was meant.
    empty_inputs: Vec<usize>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            reading: Reading::new(WIRE, Habits::default()),
            places: BTreeMap::new(),
            opaque: Vec::new(),
            empty_inputs: Vec::new(),
        }
    }

    fn usage(&mut self, usage: &Usage<'_>) {
        let input = [usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
        let input = input.into_iter().map(json::count).fold(0, u64::saturating_add);
        // Both events report totals; the later one may leave the input out.
        if input > 0 {
            self.reading.usage.input_tokens = input;
        }
        if usage.output_tokens.is_some() {
            self.reading.usage.output_tokens = json::count(usage.output_tokens);
        }
    }

    fn stop(&mut self, reason: Raw<'_>) {
        if let Some(word) = json::text(reason).filter(|word| !word.is_empty()) {
            self.reading.paused = word == "pause_turn";
            self.reading.reason = Some(end_of(&word));
        }
    }

    fn take(&mut self, event: Event<'_>, pieces: &mut dyn Pieces) -> Step {
        let kind = json::text(event.kind).unwrap_or_default();
        if let Some(usage) = &event.usage {
            self.usage(usage);
        }
        match kind.as_ref() {
            "message_start" => {
                if let Some(usage) = event.message.and_then(|message| message.usage) {
                    self.usage(&usage);
                }
            }
            "content_block_start" => {
                let index = json::index(event.index);
                if let Some(raw) = event.content_block {
                    self.block(raw, index, pieces);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = &event.delta {
                    self.delta(delta, json::index(event.index), pieces);
                }
            }
            "message_delta" => {
                if let Some(delta) = event.delta {
                    self.stop(delta.stop_reason);
                }
            }
            "message_stop" => {
                self.reading.mark = true;
                return Step::Done;
            }
            "error" => match event.error {
                Some(error) => self.reading.fail_as_told(error),
                None => self.reading.fail_with("the provider reports an error and does not say which"),
            },
            // Pings, block ends, and events of a later version.
            _ if event.error.is_some() => event.error.into_iter().for_each(|e| self.reading.fail_as_told(e)),
            _ => {}
        }
        if self.reading.failed() { Step::Done } else { Step::More }
    }

    /// A block begins, or stands there whole.
    fn block(&mut self, raw: &RawValue, index: Option<u64>, pieces: &mut dyn Pieces) {
        let Some(block) = json::read::<Block<'_>>(Some(raw)) else {
            self.reading.fail_with("the provider sent a content block we cannot read");
            return;
        };
        let kind = json::text(block.kind).unwrap_or_default();
        let place = match kind.as_ref() {
            "tool_use" => self.tool_use(&block, index),
            "text" => {
                let Some(at) = self.reading.push(Item::Open) else { return };
                self.reading.text(Some(at), &json::text(block.text).unwrap_or_default(), pieces);
                Place::Text(at)
            }
            "thinking" => {
                let Some(at) = self.reading.push(Item::Open) else { return };
                self.reading.reasoning(Some(at), &json::text(block.thinking).unwrap_or_default(), pieces);
                self.sign(at, &json::text(block.signature).unwrap_or_default());
                Place::Reasoning(at)
            }
            _ => {
                let fields = json::read::<BTreeMap<String, RawJson>>(Some(raw));
                let (true, Some(fields)) = (self.reading.keep(raw.get().len()), fields) else { return };
                let Some(at) = self.reading.push(Item::Opaque(raw.to_owned())) else { return };
                self.opaque.push(Opaque { at, fields, input: None, text: None });
                Place::Opaque(self.opaque.len() - 1)
            }
        };
        if let Some(index) = index {
            self.places.insert(index, place);
        }
    }

    fn tool_use(&mut self, block: &Block<'_>, index: Option<u64>) -> Place {
        // The input of a start is `{}` and its text comes in deltas; it must not be glued in front of them. A server
        // that sends it whole sends no deltas; if it sends both, nobody can say what was meant, and it stays both.
        let start = json::arguments(block.input);
        let empty = start.as_ref().is_some_and(|text| text.bytes().all(|b| b"{} \t\r\n".contains(&b)));
        let (id, name) = (json::text(block.id), json::text(block.name));
        let call = self.reading.call(Fragment {
            index,
            id: id.as_deref(),
            name: name.as_deref(),
            arguments: start.as_deref().filter(|_| !empty),
            opens: true,
            closing: false,
        });
        if empty {
            self.empty_inputs.extend(call);
        }
        Place::Call
    }

    fn sign(&mut self, at: usize, piece: &str) {
        if piece.is_empty() || !self.reading.keep(piece.len()) {
            return;
        }
        if let Some(open @ Item::Open) = self.reading.items.get_mut(at) {
            // Thinking can be withheld and signed all the same.
            *open = Item::Reasoning { text: String::new(), signature: None, native: None };
        }
        if let Some(Item::Reasoning { signature, .. }) = self.reading.items.get_mut(at) {
            signature.get_or_insert_default().push_str(piece);
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, index: Option<u64>, pieces: &mut dyn Pieces) {
        let place = index.and_then(|index| self.places.get(&index).copied());
        if let Some(Place::Opaque(own)) = place {
            self.merge(own, delta);
            return;
        }
        let at = place.and_then(|place| match place {
            Place::Text(at) | Place::Reasoning(at) => Some(at),
            Place::Call | Place::Opaque(_) => None,
        });
        match json::text(delta.kind).unwrap_or_default().as_ref() {
            "text_delta" => self.reading.text(at, &json::text(delta.text).unwrap_or_default(), pieces),
            "thinking_delta" => {
                self.reading.reasoning(at, &json::text(delta.thinking).unwrap_or_default(), pieces)
            }
            "signature_delta" => {
                let at = at.or_else(|| self.reading.items.len().checked_sub(1));
                if let Some(at) = at {
                    self.sign(at, &json::text(delta.signature).unwrap_or_default());
                }
            }
            "input_json_delta" => {
                let piece = json::arguments(delta.partial_json);
                self.reading.call(Fragment { index, arguments: piece.as_deref(), ..Fragment::default() });
            }
            // Citations and what later versions bring: about text, never about calls.
            _ => {}
        }
    }

    /// A delta of a block we do not understand: its input or text is appended, so that the block goes back whole.
    fn merge(&mut self, own: usize, delta: &Delta<'_>) {
        let Some(block) = self.opaque.get_mut(own) else { return };
        let (all, piece) = match (json::arguments(delta.partial_json), json::text(delta.text)) {
            (Some(piece), _) => (&mut block.input, piece),
            (None, Some(piece)) => (&mut block.text, piece),
            (None, None) => return,
        };
        if self.reading.keep(piece.len()) {
            all.get_or_insert_default().push_str(&piece);
        }
    }

    fn seal_opaque(&mut self) {
        for Opaque { at, mut fields, input, text } in self.opaque.drain(..) {
            if input.is_none() && text.is_none() {
                continue;
            }
            let input = input.and_then(|text| RawValue::from_string(text).ok());
            let text = text.and_then(|text| to_raw_value(&text).ok());
            fields.extend(input.map(|input| ("input".to_owned(), input)));
            fields.extend(text.map(|text| ("text".to_owned(), text)));
            if let (Ok(raw), Some(Item::Opaque(item))) =
                (to_raw_value(&fields), self.reading.items.get_mut(at))
            {
                *item = raw;
            }
        }
    }

    fn into_finished(mut self, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.seal_opaque();
        for call in std::mem::take(&mut self.empty_inputs) {
            // Whatever came in deltas stays; only where none came is the empty start what was meant.
            self.reading.calls.confirm(call, "{}");
        }
        self.reading.finish(lost)
    }
}

impl WireReader for Reader {
    fn event(&mut self, data: &str, pieces: &mut dyn Pieces) -> Step {
        let data = data.trim();
        if data.is_empty() {
            return Step::More;
        }
        match serde_json::from_str(data) {
            Ok(event) => self.take(event, pieces),
            Err(error) => {
                self.reading.fail_with(format!("the provider sent a line we cannot read: {error}"));
                Step::Done
            }
        }
    }

    fn finish(self: Box<Self>, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.into_finished(lost)
    }
}

pub(super) fn whole(body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
    let mut reader = Reader::new();
    match serde_json::from_str::<Message<'_>>(body) {
        Ok(Message { error: Some(error), .. }) => reader.reading.fail_as_told(error),
        Ok(message) => {
            if message.content.is_none() {
                reader.reading.fail_with("the provider's reply has no content");
            }
            for raw in json::entries(message.content) {
                reader.block(raw, None, pieces);
            }
            if let Some(usage) = &message.usage {
                reader.usage(usage);
            }
            reader.stop(message.stop_reason);
            reader.reading.reason.get_or_insert(crate::ReplyEnd::Complete);
            reader.reading.mark = true;
        }
        Err(error) => reader.reading.fail_with(format!("the provider sent a body we cannot read: {error}")),
    }
    reader.into_finished(None)
}
