//! What a rule of a script answers.

use std::future::pending;
use std::time::Duration;

use holdpoint_core::message::{AssistantItem, AssistantMessage, ProposedCall};

use crate::{ModelError, ModelRequest, Pieces, Reply, ReplyEnd, Usage};

/// One answer of a script: a reply, a broken one, or an error.
#[derive(Debug, Clone)]
pub struct Answer {
    items: Vec<AssistantItem>,
    outcome: Outcome,
    usage: Usage,
    other_choices: u32,
    other_choices_had_calls: bool,
    delay: Duration,
    pace: Duration,
}

#[derive(Debug, Clone)]
enum Outcome {
    Reply(ReplyEnd),
    Error(ModelError),
    /// Nothing ever comes; only a cancel ends it.
    Hang,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            outcome: Outcome::Reply(ReplyEnd::Complete),
            usage: Usage::default(),
            other_choices: 0,
            other_choices_had_calls: false,
            delay: Duration::ZERO,
            pace: Duration::ZERO,
        }
    }
}

impl Answer {
    /// A reply with nothing in it.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A reply of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// A reply of one call.
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::default().and_call(id, name, arguments)
    }

    /// A reply of these items, in this order.
    pub fn items(items: impl IntoIterator<Item = AssistantItem>) -> Self {
        Self { items: items.into_iter().collect(), ..Self::default() }
    }

    /// No reply: this error.
    pub fn error(error: ModelError) -> Self {
        Self { outcome: Outcome::Error(error), ..Self::default() }
    }

    /// No reply ever; only a cancel ends the request.
    pub fn hang() -> Self {
        Self { outcome: Outcome::Hang, ..Self::default() }
    }

    /// ... and then this text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.items.push(AssistantItem::Text(text.into()));
        self
    }

    /// ... and then this reasoning.
    #[must_use]
    pub fn and_reasoning(mut self, text: impl Into<String>) -> Self {
        self.items.push(AssistantItem::Reasoning { text: text.into(), signature: None, native: None });
        self
    }

    /// ... and then this call. The id is the provider's: it may be empty or repeat another.
    #[must_use]
    pub fn and_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        let call = ProposedCall { id: id.into(), name: name.into(), arguments: arguments.into() };
        self.items.push(AssistantItem::Call(call));
        self
    }

    /// What it costs.
    #[must_use]
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Usage { input_tokens, output_tokens };
        self
    }

    /// How it ends (default: complete). An end that is not complete takes the calls away, as on a real wire.
    #[must_use]
    pub fn ending(mut self, end: ReplyEnd) -> Self {
        self.outcome = Outcome::Reply(end);
        self
    }

    /// The stream breaks off after what was said so far.
    #[must_use]
    pub fn interrupted(self, why: impl Into<String>) -> Self {
        self.ending(ReplyEnd::Interrupted(why.into()))
    }

    /// There were further choices, which nobody reads.
    #[must_use]
    pub fn other_choices(mut self, count: u32, had_calls: bool) -> Self {
        self.other_choices = count;
        self.other_choices_had_calls = had_calls;
        self
    }

    /// How long nothing comes before the answer does.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How long each streamed piece takes.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    pub(super) async fn give(
        &self,
        request: &ModelRequest,
        pieces: &mut dyn Pieces,
    ) -> Result<Reply, ModelError> {
        rest(request, self.delay).await?;
        let end = match &self.outcome {
            Outcome::Reply(end) => end,
            Outcome::Error(error) => return Err(error.clone()),
            Outcome::Hang => {
                return match request.cancel.run_until_cancelled(pending()).await {
                    Some(never) => never,
                    None => Err(ModelError::cancelled()),
                };
            }
        };
        if request.stream {
            self.stream(request, pieces).await?;
        }
        let mut items = self.items.clone();
        if *end != ReplyEnd::Complete {
            items.retain(|item| !matches!(item, AssistantItem::Call(_)));
        }
        Ok(Reply {
            message: AssistantMessage { items, wire: super::WIRE.to_owned(), incomplete: end.status() },
            end: end.clone(),
            usage: self.usage,
            other_choices: self.other_choices,
            other_choices_had_calls: self.other_choices_had_calls,
        })
    }

    /// Word by word, so that whoever watches gets more than one piece.
    async fn stream(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<(), ModelError> {
        for item in &self.items {
            match item {
                AssistantItem::Text(text) => {
                    for piece in text.split_inclusive(' ') {
                        rest(request, self.pace).await?;
                        pieces.text(piece);
                    }
                }
                AssistantItem::Reasoning { text, .. } => {
                    for piece in text.split_inclusive(' ') {
                        rest(request, self.pace).await?;
                        pieces.reasoning(piece);
                    }
                }
                AssistantItem::Call(_) | AssistantItem::Opaque(_) => {}
            }
        }
        Ok(())
    }
}

/// Waits, unless the run is cancelled first.
async fn rest(request: &ModelRequest, time: Duration) -> Result<(), ModelError> {
    if request.cancel.is_cancelled() {
        return Err(ModelError::cancelled());
    }
    if time.is_zero() {
        return Ok(());
    }
    match request.cancel.run_until_cancelled(tokio::time::sleep(time)).await {
        Some(()) => Ok(()),
        None => Err(ModelError::cancelled()),
    }
}
