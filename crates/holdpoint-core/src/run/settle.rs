//! How a call is answered: once, in one place.

use holdpoint_protocol::{
    EventBody, Executed, Notice, Status, Timestamp, ToolProgress, ToolResult, ToolResults,
};

use super::state::{CallState, Ending as RunEnding, Release};
use super::step::Stepper;
use super::{AuditRecord, Effect, LedgerLine, Probed, Refused, Stage, ToolEnd};
use crate::decision::Fact;
use crate::exec::exec_id;
use crate::message::{Message, ResultContent, ToolMessage};
use crate::tool::EffectClass;
use crate::wording::Ending;

impl Stepper<'_> {
    pub(super) fn finished(&mut self, index: u32, attempt: u32, end: ToolEnd) -> Result<(), Refused> {
        let call = self.run.calls.get(index as usize).ok_or(Refused("there is no such call"))?;
        let CallState::Executing { since, .. } = call.state else {
            return Err(Refused("the call is not running"));
        };
        if attempt != call.attempts {
            return Err(Refused("another attempt is running"));
        }
        match end {
            ToolEnd::Output(content) => self.settle_output(index, content),
            ToolEnd::Replayed { content, recorded_at } => {
                let edited = self.call(index).edited.clone();
                let arguments = edited.as_deref();
                self.settle_as(index, &Ending::Replayed { result: &content, recorded_at, arguments });
            }
            // It was told to stop, and proves that it did in time.
            ToolEnd::Error { not_executed: true, .. } if self.is_cancelled() => {
                self.settle_as(index, &Ending::Cancelled { executed: Executed::No });
            }
            ToolEnd::Error { code, message, not_executed } => {
                let executed = if not_executed { Executed::No } else { Executed::Yes };
                let edited = self.call(index).edited.clone();
                let arguments = edited.as_deref();
                self.settle_as(
                    index,
                    &Ending::ToolFailed { code: &code, message: &message, executed, arguments },
                );
            }
            ToolEnd::Lost { code, message } => {
                if !self.find_out(index, since) {
                    self.settle_broken(index, &code, &message);
                }
            }
            ToolEnd::Panicked => {
                self.settle_broken(index, "TOOL_PANICKED", "the tool broke down while it ran");
            }
            ToolEnd::TimedOut => {
                if !self.find_out(index, since) {
                    let executed = self.after_a_cut(index);
                    self.settle_as(index, &Ending::TimedOut { executed });
                }
            }
            ToolEnd::Cancelled => self.settle_cut(index),
        }
        self.ledger(index, attempt);
        self.advance();
        Ok(())
    }

    /// It failed in the middle, with what it may have done by then.
    fn settle_broken(&mut self, index: u32, code: &str, message: &str) {
        let executed = self.after_a_cut(index);
        let edited = self.call(index).edited.clone();
        let arguments = edited.as_deref();
        self.settle_as(index, &Ending::ToolFailed { code, message, executed, arguments });
    }

    /// A call that ended without an outcome: whoever can say what became of it is asked - the tool, or a person. Not when
    /// the run is ending, nor where the class of the tool makes it harmless to say that it is not known.
    fn find_out(&mut self, index: u32, since: Timestamp) -> bool {
        match (self.call(index).effect, &self.run.ending) {
            (EffectClass::AtMostOnce, None) => self.ask_in_doubt(index, since),
            (EffectClass::Verifiable, None) => self.probe(index),
            (EffectClass::ReadOnly | EffectClass::Idempotent, _)
            | (EffectClass::AtMostOnce | EffectClass::Verifiable, Some(_)) => return false,
        }
        true
    }

    fn is_cancelled(&self) -> bool {
        matches!(self.run.ending, Some(RunEnding::Cancel { .. } | RunEnding::Supersede { .. }))
    }

    fn ledger(&mut self, index: u32, attempt: u32) {
        let (status, executed) = match self.call(index).state {
            CallState::Settled { status, executed } => (status, executed),
            CallState::Proposed
            | CallState::Waiting { .. }
            | CallState::Cleared { .. }
            | CallState::Executing { .. }
            | CallState::Probing { .. } => (Status::OutcomeUnknown, Executed::Unknown),
        };
        let call = self.run.call_id(index);
        self.changes.executions.push(LedgerLine::Ended { call, attempt, status, executed });
    }

    fn settle_output(&mut self, index: u32, content: ResultContent) {
        match self.call(index).edited.clone() {
            Some(arguments) => {
                let ending = Ending::ExecutedWithChanges { arguments: &arguments, result: &content };
                self.settle_as(index, &ending);
            }
            None => self.settle_as(index, &Ending::Succeeded { result: &content }),
        }
    }

    /// What a cut-off execution may have done: nothing, if the tool only reads; else nobody knows.
    fn after_a_cut(&self, index: u32) -> Executed {
        match self.call(index).effect {
            EffectClass::ReadOnly => Executed::No,
            EffectClass::Idempotent | EffectClass::Verifiable | EffectClass::AtMostOnce => Executed::Unknown,
        }
    }

    pub(super) fn settle_cut(&mut self, index: u32) {
        match self.after_a_cut(index) {
            Executed::No => self.settle_as(index, &Ending::Cancelled { executed: Executed::No }),
            Executed::Yes | Executed::Unknown => self.settle_as(index, &Ending::OutcomeUnknown),
        }
    }

    fn probe(&mut self, index: u32) {
        let CallState::Executing { since, release } = self.call(index).state.clone() else { return };
        self.call_mut(index).state = CallState::Probing { since, release };
        let exec = exec_id(&self.run.tenant, self.run.call_id(index));
        self.effects.push(Effect::Probe { index, exec });
    }

    pub(super) fn probed(&mut self, index: u32, probe: Probed) -> Result<(), Refused> {
        let call = self.run.calls.get(index as usize).ok_or(Refused("there is no such call"))?;
        let CallState::Probing { since, release } = call.state.clone() else {
            return Err(Refused("the call is not being asked about"));
        };
        match probe {
            Probed::Done(content) => self.settle_output(index, content),
            Probed::NotDone if self.run.ending.is_none() => {
                let call = self.call_mut(index);
                call.unsure = false;
                call.state = CallState::Cleared { release };
            }
            Probed::NotDone => self.settle_as(index, &Ending::Cancelled { executed: Executed::No }),
            Probed::Unknown if self.run.ending.is_none() => self.ask_in_doubt(index, since),
            Probed::Unknown => self.settle_as(index, &Ending::OutcomeUnknown),
        }
        self.advance();
        Ok(())
    }

    /// Another process took the run over. What was running is not running here: per effect class it is run again,
    /// asked about, or put to a person.
    pub(super) fn recovered(&mut self, facts: Vec<Fact>) -> Result<(), Refused> {
        match self.run.stage {
            Stage::New => return Err(Refused("it has not begun")),
            Stage::Ruling => return Err(Refused("a ruling is never stored")),
            Stage::Finished(_) | Stage::Failed => return Err(Refused("the run has ended")),
            Stage::Asking | Stage::Answering => {}
        }
        self.cause = "recovery";
        self.run.unavailable = false;
        // A fact that fits no longer changes nothing, here as elsewhere.
        let _ = self.apply_facts(facts);
        match self.run.stage {
            Stage::Asking => {
                let round = self.run.round;
                self.event(EventBody::RoundRestarted(holdpoint_protocol::Round { round }));
                self.effects.push(Effect::CallModel { round });
            }
            Stage::Answering => {
                for index in 0..self.run.calls.len() as u32 {
                    self.recover_call(index);
                }
                self.recheck_waiting();
                self.advance();
            }
            // A fact has ended it.
            Stage::New | Stage::Ruling | Stage::Finished(_) | Stage::Failed => {}
        }
        Ok(())
    }

    /// Another process took the run over, and lacks what the run needs: nothing starts, nothing settles by itself, and that it
    /// waits is said once. Only what people have said is applied, and where that is an end the run ends: every call is
    /// answered without anything being run.
    pub(super) fn unavailable(&mut self, facts: Vec<Fact>, what: &str) -> Result<(), Refused> {
        if !matches!(self.run.stage, Stage::Asking | Stage::Answering) {
            return Err(Refused("there is nothing to carry on"));
        }
        let _ = self.apply_facts(facts);
        if self.run.ending.is_some() {
            for index in 0..self.run.calls.len() as u32 {
                self.recover_call(index);
            }
            self.advance();
            return Ok(());
        }
        let waits = self.run.suspended
            && self.run.calls.iter().all(|call| call.is_settled() || call.request().is_some())
            && !self.run.calls.iter().all(|call| call.is_settled());
        if waits {
            return Ok(());
        }
        self.resume();
        if !std::mem::replace(&mut self.run.unavailable, true) {
            self.notice("tool_unavailable", format!("{what} is not loaded in this process; the run waits"));
        }
        self.effects.push(Effect::Release);
        Ok(())
    }

    /// A tool may have been defined otherwise since a call began to wait.
    fn recheck_waiting(&mut self) {
        for index in 0..self.run.calls.len() as u32 {
            if let Some((_, holdpoint_protocol::InteractionKind::Approval)) = self.call(index).request() {
                self.effects.push(Effect::Recheck { index });
            }
        }
    }

    fn recover_call(&mut self, index: u32) {
        let (since, release) = match self.call(index).state.clone() {
            CallState::Executing { since, release } | CallState::Probing { since, release } => {
                (since, release)
            }
            CallState::Proposed
            | CallState::Waiting { .. }
            | CallState::Cleared { .. }
            | CallState::Settled { .. } => return,
        };
        let attempt = self.call(index).attempts;
        if self.run.ending.is_some() {
            self.settle_cut(index);
        } else {
            match self.call(index).effect {
                // One approve, one call: the class says that running it again is the same call.
                EffectClass::ReadOnly | EffectClass::Idempotent => self.again(index, release),
                EffectClass::Verifiable => {
                    self.call_mut(index).state = CallState::Executing { since, release };
                    self.probe(index);
                    return;
                }
                EffectClass::AtMostOnce => self.ask_in_doubt(index, since),
            }
        }
        self.ledger(index, attempt);
    }

    fn again(&mut self, index: u32, release: Release) {
        let call = self.call_mut(index);
        call.unsure = call.effect != EffectClass::ReadOnly;
        call.state = CallState::Cleared { release };
    }

    /// The grace of a cancel is over: what has not stopped is settled as cut off.
    pub(super) fn grace_over(&mut self) -> Result<(), Refused> {
        if !self.is_cancelled() {
            return Err(Refused("the run is not being cancelled"));
        }
        for index in 0..self.run.calls.len() as u32 {
            if matches!(self.call(index).state, CallState::Executing { .. } | CallState::Probing { .. }) {
                let attempt = self.call(index).attempts;
                self.settle_cut(index);
                self.ledger(index, attempt);
            }
        }
        self.advance();
        Ok(())
    }

    pub(super) fn progress(
        &mut self,
        index: u32,
        message: Option<String>,
        fraction: Option<f64>,
    ) -> Result<(), Refused> {
        let call = self.run.calls.get(index as usize).ok_or(Refused("there is no such call"))?;
        if !matches!(call.state, CallState::Executing { .. }) {
            return Err(Refused("the call is not running"));
        }
        let (tool_call_id, call_id) = (self.provider_id(index), self.run.call_id(index));
        self.event(EventBody::ToolProgress(ToolProgress { tool_call_id, call_id, message, fraction }));
        Ok(())
    }

    /// Answers a call: state, message, event and audit record, together or not at all.
    pub(super) fn settle_as(&mut self, index: u32, ending: &Ending<'_>) {
        let told = if self.call(index).unsure { ending.after_a_doubt() } else { *ending }.told();
        let (status, executed) = (told.status, told.executed);
        let call = self.run.call_id(index);
        self.call_mut(index).state = CallState::Settled { status, executed };
        let Some(slot) = self.open.slots.get_mut(index as usize) else { return };
        let message = told.message(index, slot.proposed.id.clone(), slot.proposed.name.clone());
        slot.result = Some(message.clone());
        self.event(EventBody::ToolResult(ToolResults { tool_results: vec![result_of(call, &message)] }));
        self.changes.messages.push((self.run.round, index + 1, Message::Tool(message)));
        let digest = self.call(index).digest;
        self.audit(AuditRecord {
            kind: "call_settled".into(),
            actor: None,
            call: Some(call),
            request: None,
            digest,
            what: format!("{} executed={}", status.as_str(), executed.as_str()),
        });
    }

    pub(super) fn notice_of(&mut self, index: u32, code: &str, message: String) {
        let call_id = Some(self.run.call_id(index));
        self.event(EventBody::Notice(Notice { code: code.into(), message, call_id }));
    }
}

/// A tool message as the stream shows it.
pub fn result_of(call_id: holdpoint_protocol::CallId, message: &ToolMessage) -> ToolResult {
    ToolResult {
        id: message.id.clone(),
        call_id,
        name: message.name.clone(),
        status: message.status,
        code: message.code.clone(),
        result: message.content.to_raw_json(),
        executed: message.executed,
        is_error: message.is_error,
    }
}
