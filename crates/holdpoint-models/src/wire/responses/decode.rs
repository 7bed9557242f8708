//! What OpenAI Responses sends.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::WIRE;
use crate::assemble::{Fragment, Habits};
use crate::json;
use crate::sse::Step;
use crate::wire::reading::{Item, Reading, end_of};
use crate::wire::{Finished, WireReader};
use crate::{ModelError, Pieces, ReplyEnd};

type Raw<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    output_index: Raw<'a>,
    #[serde(borrow, default)]
    item_id: Raw<'a>,
    #[serde(borrow, default)]
    item: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
    #[serde(borrow, default)]
    input: Raw<'a>,
    #[serde(borrow, default)]
    summary_index: Raw<'a>,
    #[serde(borrow, default)]
    response: Option<Response<'a>>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

/// A whole response; the last event of a stream brings it too.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    incomplete_details: Option<Details<'a>>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Usage<'a> {
    #[serde(borrow, default)]
    input_tokens: Raw<'a>,
    #[serde(borrow, default)]
    output_tokens: Raw<'a>,
}

#[derive(Deserialize)]
struct OutputItem<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    call_id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
    #[serde(borrow, default)]
    input: Raw<'a>,
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    summary: Raw<'a>,
}

#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call,
    Other,
}

/// An output item that was opened.
struct Opened {
    index: Option<u64>,
    id: String,
    kind: Kind,
    /// Its place among the items; of a call, its number among the calls.
    at: usize,
    /// A call's own id and name, to be met again at its end.
    call_id: String,
    name: String,
}

pub(super) struct Reader {
    reading: Reading,
    opened: Vec<Opened>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { reading: Reading::new(WIRE, Habits::default()), opened: Vec::new() }
    }

    fn take(&mut self, event: Event<'_>, whole: Raw<'_>, pieces: &mut dyn Pieces) -> Step {
        let kind = json::text(event.kind).unwrap_or_default();
        let delta = || json::text(event.delta).unwrap_or_default();
        match kind.as_ref() {
            "response.output_item.added" => {
                if let Some(raw) = event.item {
                    self.open(raw, json::index(event.output_index));
                }
            }
            "response.output_item.done" => {
                if let Some(raw) = event.item {
                    self.close(raw, &event, pieces);
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let at = self.place(&event, Kind::Message);
                self.reading.text(at, &delta(), pieces);
            }
            "response.reasoning_summary_part.added" if json::index(event.summary_index) > Some(0) => {
                let at = self.place(&event, Kind::Reasoning);
                self.reading.reasoning(at, "\n\n", pieces);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let at = self.place(&event, Kind::Reasoning);
                self.reading.reasoning(at, &delta(), pieces);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.call_piece(&event);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let whole = json::arguments(event.arguments.or(event.input));
                if let (Some(call), Some(whole)) = (self.place(&event, Kind::Call), whole) {
                    self.confirm(call, &whole);
                }
            }
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                match event.response {
                    Some(response) => self.response(&response, kind.as_ref(), pieces),
                    None => self.reading.fail_with("the provider ended the reply and sent none"),
                }
                self.reading.mark = true;
                return Step::Done;
            }
            // The event itself is the error; some servers nest it.
            "error" => match event.error.or(whole) {
                Some(error) => self.reading.fail_as_told(error),
                None => self.reading.fail_with("the provider reports an error"),
            },
            _ => event.error.into_iter().for_each(|error| self.reading.fail_as_told(error)),
        }
        if self.reading.failed() { Step::Done } else { Step::More }
    }

    /// The place of an event's item: by its index, else by its id, else the last of its kind.
    fn find(&self, index: Option<u64>, id: &str, kind: Kind) -> Option<&Opened> {
        let mut own = self.opened.iter().rev().filter(|opened| opened.kind == kind);
        match index {
            Some(index) => own.find(|opened| opened.index == Some(index)),
            None if !id.is_empty() => own.find(|opened| opened.id == id),
            None => own.next(),
        }
    }

    fn place(&self, event: &Event<'_>, kind: Kind) -> Option<usize> {
        let id = json::text(event.item_id).unwrap_or_default();
        self.find(json::index(event.output_index), &id, kind).map(|opened| opened.at)
    }

    fn call_piece(&mut self, event: &Event<'_>) {
        let piece = json::arguments(event.delta);
        let id = json::text(event.item_id).unwrap_or_default();
        let index = json::index(event.output_index);
        // By the call's own id as well: two calls can share an index.
        let found = self.find(index, &id, Kind::Call);
        let (index, call_id) = found.map_or((index, String::new()), |own| (own.index, own.call_id.clone()));
        let fragment =
            Fragment { index, id: Some(&call_id), arguments: piece.as_deref(), ..Fragment::default() };
        self.reading.call(fragment);
    }

    fn open(&mut self, raw: &RawValue, index: Option<u64>) {
        let Some(item) = json::read::<OutputItem<'_>>(Some(raw)) else {
            self.reading.fail_with("the provider sent an item we cannot read");
            return;
        };
        let kind = kind_of(&item);
        let text = |raw| json::text(raw).unwrap_or_default().into_owned();
        let (id, call_id, name) = (text(item.id), text(item.call_id), text(item.name));
        let at = if kind == Kind::Call {
            let arguments = json::arguments(item.arguments.or(item.input));
            let opened = self.reading.call(Fragment {
                index,
                id: Some(&call_id),
                name: Some(&name),
                arguments: arguments.as_deref(),
                opens: true,
                closing: false,
            });
            // A call with nothing in it opens nothing.
            let Some(call) = opened else { return };
            call
        } else {
            let Some(at) = self.reading.push(Item::Open) else { return };
            at
        };
        self.opened.push(Opened { index, id, kind, at, call_id, name });
    }

    /// An item's end brings it whole: what came in pieces must be the same, and what did not come is taken from it.
    fn close(&mut self, raw: &RawValue, event: &Event<'_>, pieces: &mut dyn Pieces) {
        let Some(item) = json::read::<OutputItem<'_>>(Some(raw)) else {
            self.reading.fail_with("the provider sent an item we cannot read");
            return;
        };
        let kind = kind_of(&item);
        let index = json::index(event.output_index);
        let id = json::text(item.id).unwrap_or_default();
        if self.find(index, &id, kind).is_none() {
            self.open(raw, index);
        }
        let Some((at, call_id, name)) =
            self.find(index, &id, kind).map(|own| (own.at, own.call_id.clone(), own.name.clone()))
        else {
            return;
        };
        self.fill(raw, &item, kind, at, pieces);
        let differs = |raw, own: &str| json::text(raw).is_some_and(|text| !text.is_empty() && text != own);
        if kind == Kind::Call && (differs(item.call_id, &call_id) || differs(item.name, &name)) {
            self.reading.fail_with("the provider sent two versions of one call");
        }
    }

    fn fill(
        &mut self,
        raw: &RawValue,
        item: &OutputItem<'_>,
        kind: Kind,
        at: usize,
        pieces: &mut dyn Pieces,
    ) {
        let empty = matches!(self.reading.items.get(at), Some(Item::Open));
        match kind {
            Kind::Call => {
                if let Some(whole) = json::arguments(item.arguments.or(item.input)) {
                    self.confirm(at, &whole);
                }
            }
            Kind::Message if empty => {
                for part in parts(item.content) {
                    let text = json::text(part.text).or_else(|| json::text(part.refusal)).unwrap_or_default();
                    self.reading.text(Some(at), &text, pieces);
                }
            }
            Kind::Message => {}
            Kind::Reasoning => {
                if empty {
                    let texts: Vec<_> =
                        parts(item.summary).into_iter().filter_map(|part| json::text(part.text)).collect();
                    self.reading.reasoning(Some(at), &texts.join("\n\n"), pieces);
                }
                if !self.reading.keep(raw.get().len()) {
                    return;
                }
                if let Some(open @ Item::Open) = self.reading.items.get_mut(at) {
                    *open = Item::Reasoning { text: String::new(), signature: None, native: None };
                }
                if let Some(Item::Reasoning { native, .. }) = self.reading.items.get_mut(at) {
                    *native = Some(raw.to_owned());
                }
            }
            Kind::Other => {
                if self.reading.keep(raw.get().len())
                    && let Some(item) = self.reading.items.get_mut(at)
                {
                    *item = Item::Opaque(raw.to_owned());
                }
            }
        }
    }

    fn confirm(&mut self, call: usize, whole: &str) {
        if !whole.is_empty() && !self.reading.calls.confirm(call, whole) {
            self.reading.fail_with("the provider sent two versions of one call's arguments");
        }
    }

    fn response(&mut self, response: &Response<'_>, kind: &str, pieces: &mut dyn Pieces) {
        if let Some(usage) = json::read::<Usage<'_>>(response.usage) {
            self.reading.usage.input_tokens = json::count(usage.input_tokens);
            self.reading.usage.output_tokens = json::count(usage.output_tokens);
        }
        if let Some(error) = response.error {
            self.reading.fail_as_told(error);
            return;
        }
        self.output(&json::entries(response.output), pieces);
        let status = json::text(response.status).unwrap_or_default();
        let reason = response.incomplete_details.as_ref().and_then(|details| json::text(details.reason));
        self.reading.reason = Some(match (kind, status.as_ref()) {
            ("response.failed", _) | (_, "failed") => {
                self.reading.fail_with("the provider reports that the reply failed");
                return;
            }
            ("response.incomplete", _) | (_, "incomplete") => {
                match end_of(reason.as_deref().unwrap_or("error")) {
                    // "Incomplete" and a good reason do not go together: it is incomplete.
                    ReplyEnd::Complete => {
                        ReplyEnd::Interrupted("the provider says the reply is incomplete".into())
                    }
                    end @ (ReplyEnd::Length | ReplyEnd::Filtered | ReplyEnd::Interrupted(_)) => end,
                }
            }
            (_, "" | "completed") if kind != "response.cancelled" => ReplyEnd::Complete,
            (_, other) => ReplyEnd::Interrupted(format!("the provider ended the reply as {other:?}")),
        });
    }

    /// The whole output at the end: read if nothing came before it; else it must hold as many calls as did.
    fn output(&mut self, output: &[&RawValue], pieces: &mut dyn Pieces) {
        if output.is_empty() {
            return;
        }
        if self.opened.is_empty() && self.reading.items.is_empty() {
            for (index, raw) in (0..).zip(output) {
                self.open(raw, Some(index));
                let Some(item) = json::read::<OutputItem<'_>>(Some(raw)) else { return };
                let kind = kind_of(&item);
                if let Some(at) = self.find(Some(index), "", kind).map(|own| own.at) {
                    self.fill(raw, &item, kind, at, pieces);
                }
            }
            return;
        }
        let is_call = |raw: &&&RawValue| {
            json::read::<OutputItem<'_>>(Some(raw)).is_some_and(|item| kind_of(&item) == Kind::Call)
        };
        if output.iter().filter(is_call).count() != self.reading.calls.len() {
            self.reading.fail_with("the provider's stream and its end do not hold the same calls");
        }
    }
}

fn kind_of(item: &OutputItem<'_>) -> Kind {
    match json::text(item.kind).unwrap_or_default().as_ref() {
        "message" => Kind::Message,
        "reasoning" => Kind::Reasoning,
        "function_call" | "custom_tool_call" => Kind::Call,
        _ => Kind::Other,
    }
}

fn parts(raw: Raw<'_>) -> Vec<ContentPart<'_>> {
    json::entries(raw).into_iter().filter_map(|part| json::read(Some(part))).collect()
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
            Ok(event) => self.take(event, serde_json::from_str(data).ok(), pieces),
            Err(error) => {
                self.reading.fail_with(format!("the provider sent a line we cannot read: {error}"));
                Step::Done
            }
        }
    }

    fn finish(self: Box<Self>, lost: Option<&str>) -> Result<Finished, ModelError> {
        self.reading.finish(lost)
    }
}

pub(super) fn whole(body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
    let mut reader = Reader::new();
    match serde_json::from_str::<Response<'_>>(body) {
        Ok(response) if response.error.is_none() && response.output.is_none() => {
            reader.reading.fail_with("the provider's reply has no output");
        }
        Ok(response) => {
            reader.response(&response, "", pieces);
            reader.reading.mark = true;
        }
        Err(error) => reader.reading.fail_with(format!("the provider sent a body we cannot read: {error}")),
    }
    reader.reading.finish(None)
}
