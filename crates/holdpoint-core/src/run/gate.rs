//! The gate. What is allowed is cleared, what asks is put to a person, and - the only place - a cleared call that
//! still is what was decided on gets its permit.

use std::sync::Arc;

use holdpoint_protocol::{EventBody, InteractionKind, Status, ToolStarted};

use super::state::{Call, CallState, Ending as RunEnding, PastCall, Release};
use super::step::Stepper;
use super::{AuditRecord, Check, ClosedBy, Effect, LedgerLine, OnInvalidCall, Refused, Ruled, Stage};
use crate::arguments::{Arguments, InvalidArguments};
use crate::digest::{CallDigest, CallDigestInput, DefinitionDigest};
use crate::exec::exec_id;
use crate::limits::PAST_CALLS_MAX;
use crate::permit::Permit;
use crate::policy::{Ruling, Verdict};
use crate::tool::ToolDefinition;
use crate::wording::Ending;

impl Stepper<'_> {
    /// Takes what is said of each proposed call, in order. All requests of the reply open here, in one step, before
    /// any call of it starts.
    pub(super) fn ruled(&mut self, ruled: Vec<Ruled>) -> Result<(), Refused> {
        if self.run.stage != Stage::Ruling {
            return Err(Refused("no ruling is expected"));
        }
        let proposed: Vec<u32> = (0u32..)
            .zip(&self.run.calls)
            .filter(|(_, call)| call.state == CallState::Proposed)
            .map(|(index, _)| index)
            .collect();
        if proposed.len() != ruled.len() {
            return Err(Refused("the ruling is for another number of calls"));
        }
        self.run.stage = Stage::Answering;
        if self.settings.on_invalid_call == OnInvalidCall::Stop {
            self.stop_on_invalid(&ruled);
        }
        for (index, ruled) in proposed.into_iter().zip(ruled) {
            self.rule(index, ruled);
        }
        self.advance();
        Ok(())
    }

    /// One call that cannot be taken stops the run: known before any other call of the reply is asked about.
    fn stop_on_invalid(&mut self, ruled: &[Ruled]) {
        let status = ruled.iter().find_map(|ruled| match ruled {
            Ruled::Unknown { .. } => Some(Status::UnknownTool),
            Ruled::Invalid(why) => Some(why.status()),
            Ruled::Forbidden { .. } | Ruled::Failed { .. } | Ruled::Verdict { .. } => None,
        });
        if let Some(status) = status {
            self.run.ending = Some(RunEnding::Invalid { status });
        }
    }

    fn rule(&mut self, index: u32, ruled: Ruled) {
        match ruled {
            Ruled::Unknown { known } => {
                let name = self.call(index).tool.clone();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                self.invalid(index, &Ending::UnknownTool { name: &name, known: &known });
            }
            Ruled::Invalid(why) => self.invalid(index, &Ending::InvalidArguments(&why)),
            Ruled::Forbidden { code } => {
                self.settle_as(index, &Ending::Forbidden { code: &code });
            }
            Ruled::Failed { what } => self.gate_error(index, &what),
            Ruled::Verdict { arguments, tool, definition, ruling } => {
                let call = self.call_mut(index);
                call.effect = tool.class();
                call.direct = tool.return_direct;
                call.definition = Some(definition);
                if let Some(slot) = self.open.slots.get_mut(index as usize) {
                    slot.arguments = Some(arguments);
                    slot.tool = Some(tool);
                }
                self.bind(index);
                self.apply(index, ruling);
            }
        }
    }

    fn invalid(&mut self, index: u32, ending: &Ending<'_>) {
        let status = ending.status();
        self.notice_of(index, status.as_str(), format!("a call could not be taken: {}", status.as_str()));
        self.settle_as(index, ending);
    }

    fn apply(&mut self, index: u32, ruling: Ruling) {
        match ruling.verdict {
            Verdict::Allow => self.call_mut(index).state = CallState::Cleared { release: Release::Policy },
            Verdict::Deny => {
                self.settle_as(index, &Ending::PolicyDenied { reason: &ruling.reason });
            }
            // The run is about to end: nobody is asked for a call that will not run.
            Verdict::Ask if self.run.ending.is_some() => {}
            Verdict::Ask => match self.run.bypass.clone() {
                Some(by) => {
                    self.call_mut(index).state = CallState::Cleared { release: Release::Bypass { by } }
                }
                None => self.ask(index, ruling.reason, None),
            },
        }
    }

    /// How things stand now, in the step that would start the call: nothing is taken from the time of the decision
    /// but the decision itself.
    pub(super) fn checked(&mut self, index: u32, check: Check) -> Result<(), Refused> {
        let call = self.run.calls.get(index as usize).ok_or(Refused("there is no such call"))?;
        let CallState::Cleared { release } = call.state.clone() else {
            return Err(Refused("the call is not waiting for its check"));
        };
        if self.run.stage != Stage::Answering || self.run.ending.is_some() {
            return Err(Refused("the run starts no more calls"));
        }
        match check {
            Check::Unavailable { what } => {
                // It is tried again for as long as it takes; that it waits is said once.
                if !std::mem::replace(&mut self.call_mut(index).unavailable, true) {
                    let message = format!("{what} is not loaded in this process; the call waits");
                    self.notice_of(index, "tool_unavailable", message);
                }
                self.effects.push(Effect::Release);
                return Ok(());
            }
            Check::Forbidden { code } => self.settle_as(index, &Ending::Forbidden { code: &code }),
            Check::Invalid(why) => self.settle_as(index, &Ending::InvalidArguments(&why)),
            Check::Failed { what } => self.gate_error(index, &what),
            Check::Now { tool, definition, ruling } => self.now(index, release, tool, definition, ruling),
        }
        if !matches!(self.call(index).state, CallState::Executing { .. }) {
            self.advance();
        }
        Ok(())
    }

    fn now(
        &mut self,
        index: u32,
        release: Release,
        tool: Arc<ToolDefinition>,
        definition: DefinitionDigest,
        ruling: Ruling,
    ) {
        self.call_mut(index).unavailable = false;
        let covered = match &release {
            // A bypass that was granted when the run began and is granted no more releases nothing.
            Release::Bypass { .. } if self.run.bypass.is_none() => Verdict::Allow,
            Release::Policy | Release::Decision { .. } | Release::Bypass { .. } => release.covers(),
        };
        if ruling.verdict == Verdict::Deny {
            self.settle_as(index, &Ending::PolicyDenied { reason: &ruling.reason });
        } else if self.call(index).definition != Some(definition) {
            let what = self.what_changed(index, &tool);
            self.rebind(index, tool, definition);
            self.ask(index, ruling.reason, Some(what));
        } else if ruling.verdict > covered {
            let what = format!("policy now asks ({}: {})", ruling.reason.policy, ruling.reason.rule);
            self.rebind(index, tool, definition);
            self.ask(index, ruling.reason, Some(what));
        } else {
            match self.permit(index) {
                Some(permit) => self.claim(index, release, permit),
                None => self.gate_error(index, "what would run is not what was decided on"),
            }
        }
    }

    /// The tool of a call that waits is defined otherwise now: nobody can approve the old one any more. The request is
    /// superseded, and asked again with what changed.
    pub(super) fn changed(
        &mut self,
        index: u32,
        tool: Arc<ToolDefinition>,
        definition: DefinitionDigest,
        ruling: Ruling,
        invalid: Option<InvalidArguments>,
    ) -> Result<(), Refused> {
        let call = self.run.calls.get(index as usize).ok_or(Refused("there is no such call"))?;
        let CallState::Waiting { request, kind: InteractionKind::Approval } = call.state else {
            return Err(Refused("the call does not wait for an approval"));
        };
        if call.definition == Some(definition) {
            return Err(Refused("the tool is what it was"));
        }
        self.close(index, request, ClosedBy::Superseded);
        let what = self.what_changed(index, &tool);
        self.rebind(index, tool, definition);
        if ruling.verdict == Verdict::Deny {
            self.settle_as(index, &Ending::PolicyDenied { reason: &ruling.reason });
        } else if let Some(why) = invalid {
            self.settle_as(index, &Ending::InvalidArguments(&why));
        } else {
            self.ask(index, ruling.reason, Some(what));
        }
        // It waits for something else now, and says so.
        self.run.suspended = false;
        self.advance();
        Ok(())
    }

    /// The permit: the text at hand, under the digest that was decided on, or nothing.
    fn permit(&self, index: u32) -> Option<Permit> {
        let call = self.call(index);
        let decided = call.digest?;
        let slot = self.open.slots.get(index as usize)?;
        let arguments = slot.arguments.as_ref()?;
        if self.digest_of(index, arguments)? != decided {
            return None;
        }
        let id = self.run.call_id(index);
        Some(Permit {
            call: id,
            exec: exec_id(&self.run.tenant, id),
            attempt: call.attempts + 1,
            tool: call.tool.clone(),
            arguments: Arc::clone(arguments.text()),
            digest: decided.to_string(),
        })
    }

    fn claim(&mut self, index: u32, release: Release, permit: Permit) {
        let (id, attempt) = (permit.call, permit.attempt);
        let Some(digest) = self.call(index).digest else { return };
        let (request, actor, what) = match &release {
            Release::Policy => (None, None, "released by policy".to_owned()),
            Release::Decision { request, by } => {
                (Some(*request), by.actor.clone(), "released by a decision".to_owned())
            }
            Release::Bypass { by } => (None, Some(by.clone()), "released by bypass".to_owned()),
        };
        self.remember_start(index);
        let since = self.now;
        let call = self.call_mut(index);
        call.attempts = attempt;
        call.state = CallState::Executing { since, release };
        self.changes.executions.push(LedgerLine::Started {
            call: id,
            attempt,
            exec: permit.exec,
            digest,
            request,
        });
        let tool_call_id = self.provider_id(index);
        self.event(EventBody::ToolStarted(ToolStarted { tool_call_id, call_id: id, attempt }));
        self.audit(AuditRecord {
            kind: "execution_started".into(),
            actor,
            call: Some(id),
            request,
            digest: Some(digest),
            what,
        });
        self.effects.push(Effect::Execute(permit));
    }

    /// Binds a call to the digest of what stands in its slot.
    pub(super) fn bind(&mut self, index: u32) {
        let digest = self
            .open
            .slots
            .get(index as usize)
            .and_then(|slot| slot.arguments.as_ref())
            .and_then(|arguments| self.digest_of(index, arguments));
        self.call_mut(index).digest = digest;
    }

    /// The same call under a new revision: what was decided on before covers it no longer.
    fn rebind(&mut self, index: u32, tool: Arc<ToolDefinition>, definition: DefinitionDigest) {
        let call = self.call_mut(index);
        call.revision += 1;
        call.definition = Some(definition);
        call.effect = tool.class();
        call.direct = tool.return_direct;
        call.digest_attempt = call.attempts + 1;
        if let Some(slot) = self.open.slots.get_mut(index as usize) {
            slot.tool = Some(tool);
        }
        self.bind(index);
    }

    fn what_changed(&self, index: u32, now: &ToolDefinition) -> String {
        let before = self.open.slots.get(index as usize).and_then(|slot| slot.tool.as_ref());
        match before {
            Some(before) => crate::tool::changes_between(before, now),
            None => "the tool's definition".to_owned(),
        }
    }

    fn digest_of(&self, index: u32, arguments: &Arguments) -> Option<CallDigest> {
        let call = self.call(index);
        Some(
            CallDigestInput {
                tenant: &self.run.tenant,
                call: self.run.call_id(index),
                attempt: call.digest_attempt,
                revision: call.revision,
                tool: &call.tool,
                definition: call.definition.as_ref()?,
                arguments: arguments.text(),
            }
            .digest(),
        )
    }

    /// The digest of a call without its place: the same for every time it is proposed.
    pub(super) fn fingerprint(&self, index: u32) -> Option<CallDigest> {
        let call = self.call(index);
        let arguments = self.open.slots.get(index as usize)?.arguments.as_ref()?;
        let mut place = self.run.call_id(0);
        place.round = 0;
        Some(
            CallDigestInput {
                tenant: &self.run.tenant,
                call: place,
                attempt: 0,
                revision: 0,
                tool: &call.tool,
                definition: call.definition.as_ref()?,
                arguments: arguments.text(),
            }
            .digest(),
        )
    }

    pub(super) fn past(&self, index: u32) -> Option<&PastCall> {
        if self.run.past.is_empty() {
            return None;
        }
        let fingerprint = self.fingerprint(index)?;
        self.run.past.iter().find(|past| past.fingerprint == fingerprint)
    }

    fn remember_start(&mut self, index: u32) {
        // A call that policy allows is not asked about, so nobody would read that it ran before.
        if matches!(self.call(index).state, CallState::Cleared { release: Release::Policy }) {
            return;
        }
        let at = self.now;
        if let Some(past) = self.remember(index) {
            past.at = at;
        }
    }

    /// The memory of this call, made if need be; the oldest gives way.
    pub(super) fn remember(&mut self, index: u32) -> Option<&mut PastCall> {
        let fingerprint = self.fingerprint(index)?;
        let known = self.run.past.iter().position(|past| past.fingerprint == fingerprint);
        let at = match known {
            Some(at) => at,
            None => {
                if self.run.past.len() >= PAST_CALLS_MAX {
                    // A declined call is kept longest: forgetting it would let it be asked again and again.
                    let out = self.run.past.iter().position(|past| past.declined == 0).unwrap_or(0);
                    self.run.past.remove(out);
                }
                self.run.past.push(PastCall { fingerprint, at: self.now, declined: 0, by: None });
                self.run.past.len() - 1
            }
        };
        self.run.past.get_mut(at)
    }

    pub(super) fn gate_error(&mut self, index: u32, what: &str) {
        self.notice_of(index, "gate_error", what.to_owned());
        self.settle_as(index, &Ending::GateError);
    }

    pub(super) fn call(&self, index: u32) -> &Call {
        &self.run.calls[index as usize]
    }

    pub(super) fn call_mut(&mut self, index: u32) -> &mut Call {
        &mut self.run.calls[index as usize]
    }

    pub(super) fn provider_id(&self, index: u32) -> String {
        self.open.slots.get(index as usize).map(|slot| slot.proposed.id.clone()).unwrap_or_default()
    }

    pub(super) fn status_of(&self, index: u32) -> Option<Status> {
        match self.call(index).state {
            CallState::Settled { status, .. } => Some(status),
            CallState::Proposed
            | CallState::Waiting { .. }
            | CallState::Cleared { .. }
            | CallState::Executing { .. }
            | CallState::Probing { .. } => None,
        }
    }
}
