//! What people said, and what the clock did, applied to the call it is about.

use std::sync::Arc;

use holdpoint_protocol::{ActorId, By, DecisionWord, InteractionKind, RequestId, Then};

use super::state::{CallState, Ending as RunEnding, Release};
use super::step::Stepper;
use super::{Effect, Refused, Stage};
use crate::arguments::Arguments;
use crate::decision::{CancelKind, Decision, Fact};
use crate::wording::Ending;

impl Stepper<'_> {
    /// Applies facts, in order, and goes on. When none fits, nothing has changed.
    pub(super) fn facts(&mut self, facts: Vec<Fact>) -> Result<(), Refused> {
        self.apply_facts(facts)?;
        self.advance();
        Ok(())
    }

    /// Applies facts, in order. One that does not fit is passed over.
    pub(super) fn apply_facts(&mut self, facts: Vec<Fact>) -> Result<(), Refused> {
        let mut refused = None;
        let mut applied = false;
        for fact in facts {
            match self.fact(fact) {
                Ok(()) => applied = true,
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if !applied => Err(why),
            Some(_) | None => Ok(()),
        }
    }

    fn fact(&mut self, fact: Fact) -> Result<(), Refused> {
        match fact {
            Fact::SetAside { request } => self.run.set_aside = Some(request),
            Fact::Decided { request, decision } if self.run.set_aside == Some(request) => {
                self.cause = "decision";
                self.decided_aside(*decision);
            }
            Fact::Decided { request, decision } => {
                self.cause = "decision";
                let (index, kind) = self.waiting(request)?;
                self.decided(index, kind, request, *decision);
            }
            Fact::Expired { request } => {
                self.cause = "timeout";
                let (index, kind) = self.waiting(request)?;
                match kind {
                    InteractionKind::Approval | InteractionKind::Question | InteractionKind::Quarantine => {
                        self.settle_as(index, &Ending::Expired);
                    }
                    InteractionKind::InDoubt => self.settle_as(index, &Ending::OutcomeUnknown),
                }
            }
            Fact::GateError { request } => {
                let (index, kind) = self.waiting(request)?;
                self.unfit(index, kind, "the approval handler failed");
            }
            Fact::Cancelled { by, kind } => self.cancelled(by, kind)?,
        }
        Ok(())
    }

    fn waiting(&self, request: RequestId) -> Result<(u32, InteractionKind), Refused> {
        let index = self.run.call_of(request).ok_or(Refused("no call waits for this request"))?;
        let (_, kind) = self.call(index).request().ok_or(Refused("no call waits for this request"))?;
        Ok((index, kind))
    }

    /// Applies a stored decision. It is taken once and stays taken; one that does not fit the call after all lets nothing
    /// run, and is no reason to keep the call waiting for ever.
    fn decided(&mut self, index: u32, kind: InteractionKind, request: RequestId, decision: Decision) {
        // The store compared the digest already; a second look costs nothing and the promise hangs on it.
        if self.call(index).digest != Some(decision.digest) {
            return self.unfit(index, kind, "the decision is about something else");
        }
        // A rule lets go of an approval. A question and a doubt are for people.
        if decision.rule.is_some() && kind != InteractionKind::Approval {
            return self.unfit(index, kind, "no rule decides this");
        }
        match (decision.word, kind) {
            (DecisionWord::Approve, InteractionKind::Approval | InteractionKind::InDoubt) => {
                self.clear(index, request, decision);
            }
            (DecisionWord::ApproveWith, InteractionKind::Approval) => {
                self.clear_edited(index, request, decision);
            }
            (DecisionWord::Decline, InteractionKind::Approval | InteractionKind::Question) => {
                self.remember_decline(index, decision.by.clone());
                let by = &decision.by;
                let reason = decision.reason.as_deref();
                self.settle_as(index, &Ending::Declined { reason, by });
                self.then(decision.then);
            }
            (DecisionWord::Feedback, InteractionKind::Approval | InteractionKind::Question) => {
                let by = &decision.by;
                let reason = decision.reason.as_deref().unwrap_or_default();
                self.settle_as(index, &Ending::Feedback { reason, by });
                self.then(decision.then);
            }
            (DecisionWord::Ran, InteractionKind::InDoubt) => {
                let result = decision.result.as_deref().map_or("null", |raw| raw.get());
                self.settle_as(index, &Ending::ReportedRan { result });
            }
            // What may have run is not made undone by a no.
            (
                DecisionWord::Leave | DecisionWord::Decline | DecisionWord::Feedback,
                InteractionKind::InDoubt,
            ) => {
                self.settle_as(index, &Ending::OutcomeUnknown);
            }
            (_, InteractionKind::Quarantine)
            | (
                DecisionWord::Ran | DecisionWord::Leave,
                InteractionKind::Approval | InteractionKind::Question,
            )
            | (DecisionWord::Approve, InteractionKind::Question)
            | (DecisionWord::ApproveWith, InteractionKind::InDoubt | InteractionKind::Question)
            | (DecisionWord::Answer, _) => self.unfit(index, kind, "this word does not decide this request"),
        }
    }

    fn unfit(&mut self, index: u32, kind: InteractionKind, what: &str) {
        match kind {
            InteractionKind::Approval | InteractionKind::Question | InteractionKind::Quarantine => {
                self.gate_error(index, what);
            }
            InteractionKind::InDoubt => self.settle_as(index, &Ending::OutcomeUnknown),
        }
    }

    fn clear(&mut self, index: u32, request: RequestId, decision: Decision) {
        self.call_mut(index).state =
            CallState::Cleared { release: Release::Decision { request, by: decision.by } };
    }

    /// The edited text is what was approved: a new revision, with a digest of its own.
    fn clear_edited(&mut self, index: u32, request: RequestId, decision: Decision) {
        let max = self.settings.limits.argument_bytes;
        // Read before it was stored, but perhaps under another bound than that of the process that goes on here.
        let Some(Ok(arguments)) = decision.arguments.as_deref().map(|text| Arguments::parse(text, max))
        else {
            return self.gate_error(index, "the edited arguments cannot be read");
        };
        let call = self.call_mut(index);
        call.revision += 1;
        call.edited = Some(Arc::clone(arguments.text()));
        if let Some(slot) = self.open.slots.get_mut(index as usize) {
            slot.arguments = Some(arguments);
        }
        self.bind(index);
        self.clear(index, request, decision);
    }

    fn remember_decline(&mut self, index: u32, by: By) {
        let now = self.now;
        if let Some(past) = self.remember(index) {
            past.declined = past.declined.saturating_add(1);
            past.at = now;
            past.by = Some(by);
        }
    }

    fn then(&mut self, then: Then) {
        match then {
            Then::Continue => {}
            Then::Stop => {
                if self.run.ending.is_none() {
                    self.run.ending = Some(RunEnding::Stop);
                }
            }
        }
    }

    fn cancelled(&mut self, by: ActorId, kind: CancelKind) -> Result<(), Refused> {
        self.cause = "cancel";
        let ending = match kind {
            CancelKind::Cancel => RunEnding::Cancel { by },
            CancelKind::Supersede => RunEnding::Supersede { by },
        };
        match self.run.stage {
            Stage::Finished(_) | Stage::Failed => Err(Refused("the run has ended")),
            Stage::New | Stage::Asking | Stage::Ruling => {
                self.run.ending = Some(ending);
                self.effects.push(Effect::CancelModel);
                self.withdraw_set_aside();
                self.finish_ended();
                Ok(())
            }
            Stage::Answering => {
                let first =
                    !matches!(self.run.ending, Some(RunEnding::Cancel { .. } | RunEnding::Supersede { .. }));
                // A cancel outranks a supersede: it also lets go of doubts.
                if first || kind == CancelKind::Cancel {
                    self.run.ending = Some(ending);
                }
                if first {
                    self.cancel_running();
                }
                Ok(())
            }
        }
    }

    fn cancel_running(&mut self) {
        for index in 0..self.run.calls.len() as u32 {
            match self.call(index).state {
                CallState::Executing { .. } | CallState::Probing { .. } => {
                    self.effects.push(Effect::CancelTool { index });
                }
                CallState::Proposed
                | CallState::Waiting { .. }
                | CallState::Cleared { .. }
                | CallState::Settled { .. } => {}
            }
        }
    }
}
