//! Opening requests: what a person is shown, and what their decision binds to.

use holdpoint_protocol::{
    ApprovalRequest, DecisionWord, EventBody, InDoubtRequest, InteractionKind, Reason, RequestId, Timestamp,
};

use super::state::{CallState, PastCall};
use super::step::Stepper;
use super::{AuditRecord, Opened};
use crate::digest::CallDigest;
use crate::limits::ASKED_AGAIN_MAX;
use crate::render::render;
use crate::terms::Terms;
use crate::tool::ToolDefinition;
use crate::wording::Ending;

impl Stepper<'_> {
    /// Opens a request for a call, unless the same call was declined too often already.
    pub(super) fn ask(&mut self, index: u32, reason: Reason, changed: Option<String>) {
        let past = self.past(index).cloned();
        if let Some(PastCall { declined, by: Some(by), at, .. }) = &past
            && *declined >= ASKED_AGAIN_MAX
        {
            self.settle_as(index, &Ending::DeclinedBefore { by, at: *at });
            return;
        }
        let (Some(digest), Some(slot)) = (self.call(index).digest, self.open.slots.get(index as usize))
        else {
            self.gate_error(index, "the call has no digest");
            return;
        };
        let (Some(arguments), Some(tool)) = (&slot.arguments, &slot.tool) else {
            self.gate_error(index, "the call was not resolved");
            return;
        };
        let mut shown =
            render(&self.run.agent, tool, arguments, Some(self.open.text.as_str()).filter(|t| !t.is_empty()));
        if let Some(past) = past {
            shown.warnings.push(repeated(&past, self.now));
        }
        if self.call(index).unsure {
            shown.warnings.push("an earlier attempt of this very call may have taken effect".into());
        }
        let request = (self.fresh)();
        let terms = self.terms(tool, InteractionKind::Approval);
        let event = ApprovalRequest {
            request_id: request,
            call_id: self.run.call_id(index),
            tool_call_id: slot.proposed.id.clone(),
            tool_name: tool.name.clone(),
            arguments: arguments.text().to_string(),
            digest: digest.to_string(),
            reason,
            decisions: vec![
                DecisionWord::Approve,
                DecisionWord::ApproveWith,
                DecisionWord::Decline,
                DecisionWord::Feedback,
            ],
            grants: Vec::new(),
            deadline: terms.deadline,
            on_timeout: terms.on_timeout(InteractionKind::Approval),
            preset: terms.preset().map(str::to_owned),
            approvers: terms.approvers(false),
            escalate_to: terms.escalate_to.clone(),
            render: shown,
            revision: self.call(index).revision,
            changed,
            replayed: false,
        };
        self.opened(
            index,
            request,
            InteractionKind::Approval,
            digest,
            terms,
            EventBody::ApprovalRequest(event),
        );
    }

    /// Opens the question what became of a call that may have run.
    pub(super) fn ask_in_doubt(&mut self, index: u32, started_at: Timestamp) {
        let attempt = self.call(index).attempts;
        self.call_mut(index).digest_attempt = attempt + 1;
        self.call_mut(index).unsure = true;
        self.bind(index);
        let (Some(digest), Some(slot)) = (self.call(index).digest, self.open.slots.get(index as usize))
        else {
            self.settle_as(index, &Ending::OutcomeUnknown);
            return;
        };
        let (Some(arguments), Some(tool)) = (&slot.arguments, &slot.tool) else {
            self.settle_as(index, &Ending::OutcomeUnknown);
            return;
        };
        let request = (self.fresh)();
        let terms = self.terms(tool, InteractionKind::InDoubt);
        let event = InDoubtRequest {
            request_id: request,
            call_id: self.run.call_id(index),
            tool_call_id: slot.proposed.id.clone(),
            tool_name: tool.name.clone(),
            arguments: arguments.text().to_string(),
            digest: digest.to_string(),
            attempt,
            started_at,
            late_result: None,
            decisions: vec![DecisionWord::Ran, DecisionWord::Leave, DecisionWord::Approve],
            deadline: terms.deadline,
            on_timeout: terms.on_timeout(InteractionKind::InDoubt),
            render: render(&self.run.agent, tool, arguments, None),
            replayed: false,
        };
        self.opened(
            index,
            request,
            InteractionKind::InDoubt,
            digest,
            terms,
            EventBody::InDoubtRequest(event),
        );
    }

    fn opened(
        &mut self,
        index: u32,
        request: RequestId,
        kind: InteractionKind,
        digest: CallDigest,
        terms: Terms,
        event: EventBody,
    ) {
        let call = self.run.call_id(index);
        self.call_mut(index).state = CallState::Waiting { request, kind };
        self.changes.opened.push(Opened {
            request,
            call,
            kind,
            revision: self.call(index).revision,
            digest,
            terms,
            event: self.changes.events.len(),
        });
        self.event(event);
        self.audit(AuditRecord {
            kind: "request_opened".into(),
            actor: None,
            call: Some(call),
            request: Some(request),
            digest: Some(digest),
            what: match kind {
                InteractionKind::Approval => "approval".into(),
                InteractionKind::Question => "question".into(),
                InteractionKind::InDoubt => "in_doubt".into(),
            },
        });
    }

    /// A doubt is no approval: only configuration says how long it stands.
    fn terms(&self, tool: &ToolDefinition, kind: InteractionKind) -> Terms {
        let approval = &self.settings.approval;
        let rule = match kind {
            InteractionKind::Approval => approval.of_approval(tool),
            InteractionKind::Question | InteractionKind::InDoubt => approval.of(&tool.name),
        };
        Terms::new(rule, kind, self.run.approval_at_most_ms, self.now)
    }
}

fn repeated(past: &PastCall, now: Timestamp) -> String {
    let seconds = (now.as_millisecond() - past.at.as_millisecond()).max(0) / 1000;
    match &past.by {
        Some(by) if past.declined > 0 => {
            let who = by.actor.as_ref().map_or("nobody", |actor| actor.as_str());
            format!(
                "the same call was declined {} time(s) in this run, last by {who} {seconds} s ago",
                past.declined
            )
        }
        Some(_) | None => format!("the same call ran {seconds} s ago in this run"),
    }
}
