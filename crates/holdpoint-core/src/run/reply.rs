//! What the model replied: text is kept, calls stand only when the reply ended well, limits count what is proposed.

use holdpoint_protocol::{EventBody, Notice, Round, RoundMessage, RunError, Status, ToolCalls};

use super::state::{Call, CallState, Over};
use super::step::Stepper;
use super::{Effect, OpenRound, Refused, Replied, ReplyEnd, Stage};
use crate::message::{AssistantItem, AssistantMessage, Message};
use crate::tool::EffectClass;
use crate::wording::{Ending, note_on_broken_reply};

/// Replies in a row that may end badly before the run ends with an error.
const BROKEN_REPLIES_MAX: u8 = 2;

impl Stepper<'_> {
    pub(super) fn replied(&mut self, round: u32, reply: Replied) -> Result<(), Refused> {
        if self.run.stage != Stage::Asking || round != self.run.round {
            return Err(Refused("no reply is expected for this round"));
        }
        self.run.spent.replies += 1;
        self.run.spent.input_tokens += reply.input_tokens;
        self.run.spent.output_tokens += reply.output_tokens;
        if let Some(cost) = reply.cost_micro_dollars {
            self.run.spent.cost = Some(self.run.spent.cost.unwrap_or(0).saturating_add(cost));
        }
        if reply.other_choices.0 > 0 && reply.other_choices.1 {
            self.notice(
                "extra_choices",
                format!(
                    "the reply held {} more choice(s) with tool calls; only the first choice is read",
                    reply.other_choices.0
                ),
            );
        }
        match reply.end {
            ReplyEnd::Complete => self.propose(reply.message),
            ReplyEnd::Malformed(why) => self.broken(reply.message, Status::MalformedStream, why),
            ReplyEnd::Interrupted(why) => self.broken(reply.message, Status::StreamInterrupted, &why),
        }
        Ok(())
    }

    /// A reply that ended well: its calls are proposed, or it is the answer.
    pub(super) fn propose(&mut self, message: AssistantMessage) {
        self.run.broken_in_a_row = 0;
        *self.open = OpenRound::of(&message);
        self.text_event(&message);
        let text = message.text();
        self.changes.messages.push((self.run.round, 0, Message::Assistant(message)));
        if self.open.slots.is_empty() {
            self.answer(text);
            return;
        }
        self.calls_event();
        self.run.calls = self.open.slots.iter().map(|slot| Call::proposed(&slot.proposed.name)).collect();
        self.count();
        self.run.stage = Stage::Ruling;
        if self.run.calls.iter().any(|call| call.state == CallState::Proposed) {
            self.effects.push(Effect::Rule);
        } else {
            self.run.stage = Stage::Answering;
            self.advance();
        }
    }

    /// A reply that did not end well has no calls: nothing runs, nobody is asked, the next request says why.
    fn broken(&mut self, mut message: AssistantMessage, status: Status, why: &str) {
        message.items.retain(|item| match item {
            AssistantItem::Text(_) | AssistantItem::Reasoning { .. } => true,
            // A provider's own item may stand for half a call.
            AssistantItem::Call(_) | AssistantItem::Opaque(_) => false,
        });
        message.incomplete = Some(status);
        self.text_event(&message);
        let round = self.run.round;
        self.changes.messages.push((round, 0, Message::Assistant(message)));
        if let Some(note) = note_on_broken_reply(status) {
            self.changes.messages.push((round, 1, Message::Note(note.to_owned())));
        }
        self.event(EventBody::RoundCommitted(Round { round }));
        self.run.broken_in_a_row += 1;
        if self.run.broken_in_a_row >= BROKEN_REPLIES_MAX {
            self.fail(
                status.as_str(),
                format!("{BROKEN_REPLIES_MAX} replies in a row did not end well: {why}"),
                true,
            );
        } else {
            self.next_round();
        }
    }

    pub(super) fn model_failed(
        &mut self,
        round: u32,
        code: String,
        message: String,
        retryable: bool,
    ) -> Result<(), Refused> {
        if self.run.stage != Stage::Asking || round != self.run.round {
            return Err(Refused("no reply is expected for this round"));
        }
        self.failed(RunError { code, message, retryable });
        Ok(())
    }

    fn text_event(&mut self, message: &AssistantMessage) {
        let text = message.text();
        let reasoning = message.reasoning();
        if text.is_empty() && reasoning.is_none() && message.incomplete.is_none() {
            return;
        }
        let round = self.run.round;
        self.event(EventBody::Message(RoundMessage {
            round,
            text,
            reasoning,
            incomplete: message.incomplete,
        }));
    }

    fn calls_event(&mut self) {
        let tool_calls = (0u32..)
            .zip(&self.open.slots)
            .map(|(index, slot)| holdpoint_protocol::ProposedCall {
                id: slot.proposed.id.clone(),
                name: slot.proposed.name.clone(),
                arguments: slot.proposed.arguments.clone(),
                call_id: self.run.call_id(index),
            })
            .collect();
        self.event(EventBody::ToolCall(ToolCalls { tool_calls }));
    }

    /// Counts the calls against the limits. Over a limit, the call and every later call of the batch are answered.
    fn count(&mut self) {
        let limits = &self.settings.limits;
        let (total, per_tool, per_reply) =
            (limits.calls_total, limits.calls_per_tool, limits.calls_per_reply);
        for index in 0..self.run.calls.len() {
            let at = index as u32;
            if let Some(over) = &self.run.over {
                let what = over.what.clone();
                self.settle_as(at, &Ending::Limit { what: &what });
            } else if index >= per_reply {
                let what = format!("{per_reply} calls in one reply");
                self.settle_as(at, &Ending::Limit { what: &what });
            } else {
                let name = &self.run.calls[index].tool;
                let of_tool = self.run.spent.per_tool.get(name).copied().unwrap_or(0);
                let over = if self.run.spent.calls >= total {
                    Some(format!("{total} calls in a run"))
                } else if of_tool >= per_tool {
                    Some(format!("{per_tool} calls of `{name}` in a run"))
                } else {
                    None
                };
                match over {
                    Some(what) => {
                        self.settle_as(at, &Ending::Limit { what: &what });
                        self.run.over = Some(Over { what, last_round: false });
                    }
                    None => {
                        self.run.spent.calls += 1;
                        let name = name.clone();
                        *self.run.spent.per_tool.entry(name).or_insert(0) += 1;
                    }
                }
            }
        }
    }

    pub(super) fn notice(&mut self, code: &str, message: String) {
        self.event(EventBody::Notice(Notice { code: code.into(), message, call_id: None }));
    }
}

impl Call {
    fn proposed(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            definition: None,
            digest: None,
            effect: EffectClass::default(),
            direct: false,
            revision: 0,
            attempts: 0,
            digest_attempt: 1,
            unavailable: false,
            unsure: false,
            edited: None,
            state: CallState::Proposed,
        }
    }
}
