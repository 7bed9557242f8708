//! A run that ended every process which carried it on: what an operator is shown of it, and what their decision does.

use holdpoint_protocol::{
    DecisionWord, EventBody, OnTimeout, QuarantineRequest, Render, RenderField, RequestId, Resumed,
    Timestamp, UnendedCall,
};

use super::state::{CallState, Ending as RunEnding};
use super::step::Stepper;
use super::{AuditRecord, Run, Stage};
use crate::decision::Decision;
use crate::digest::{CallDigest, set_aside_digest};

/// That a run is set aside, ready to be stored: the request that an operator decides, with its event and its record.
#[derive(Debug, Clone)]
pub struct SetAside {
    /// What a decision binds to.
    pub digest: CallDigest,
    /// The event that announces the request.
    pub event: EventBody,
    /// The record for the audit chain.
    pub audit: AuditRecord,
}

impl Run {
    /// What is shown of this run, which is set aside `since` now under this request, after `claims` processes ended with it.
    pub fn to_set_aside(&self, request: RequestId, claims: u32, since: Timestamp) -> SetAside {
        let calls = self.unended();
        let digest = set_aside_digest(&self.tenant, self.id, request, claims, &calls);
        let doing = match self.stage {
            Stage::Asking => format!("waiting for the model's reply of round {}", self.round),
            Stage::New | Stage::Ruling | Stage::Answering | Stage::Finished(_) | Stage::Failed => {
                format!("answering the calls of round {}", self.round)
            }
        };
        let mut fields = vec![
            field("run", self.id.to_string()),
            field("what it was doing", doing),
            field("processes that ended with it", claims.to_string()),
        ];
        fields.extend(calls.iter().map(|call| {
            let UnendedCall { call_id, tool_name, attempt, started_at } = call;
            let tool = crate::display::visible(tool_name).text;
            field("may have run", format!("{tool} ({call_id}), attempt {attempt}, started at {started_at}"))
        }));
        let render = Render {
            title: format!("a run of {} ended every process that carried it on, and was set aside", self.agent),
            fields,
            warnings: vec![
                "approve takes it up again, and it may end the next process: what ended the others should be gone first"
                    .into(),
            ],
        };
        let audit = AuditRecord {
            kind: "quarantined".into(),
            actor: None,
            call: None,
            request: Some(request),
            digest: Some(digest),
            what: format!("after {claims} claims without progress"),
        };
        let event = EventBody::QuarantineRequest(QuarantineRequest {
            request_id: request,
            agent: self.agent.clone(),
            round: self.round,
            claims,
            since,
            calls,
            digest: digest.to_string(),
            decisions: vec![DecisionWord::Approve, DecisionWord::Decline],
            on_timeout: OnTimeout::Wait,
            render,
            replayed: false,
        });
        SetAside { digest, event, audit }
    }

    /// The calls that were started and of which no end is known.
    fn unended(&self) -> Vec<UnendedCall> {
        (0u32..)
            .zip(&self.calls)
            .filter_map(|(index, call)| match call.state {
                CallState::Executing { since, .. } | CallState::Probing { since, .. } => Some(UnendedCall {
                    call_id: self.call_id(index),
                    tool_name: call.tool.clone(),
                    attempt: call.attempts,
                    started_at: since,
                }),
                CallState::Proposed
                | CallState::Waiting { .. }
                | CallState::Cleared { .. }
                | CallState::Settled { .. } => None,
            })
            .collect()
    }
}

fn field(name: &str, value: String) -> RenderField {
    RenderField { name: name.into(), value }
}

impl Stepper<'_> {
    /// An operator has decided. Only an approve has it go on; whatever else was stored ends it.
    pub(super) fn decided_aside(&mut self, decision: Decision) {
        self.run.set_aside = None;
        match (decision.word, &decision.rule) {
            (DecisionWord::Approve, None) => {
                self.run.suspended = false;
                self.event(EventBody::Resumed(Resumed { by: self.cause.into() }));
            }
            (
                DecisionWord::Approve
                | DecisionWord::ApproveWith
                | DecisionWord::Decline
                | DecisionWord::Feedback
                | DecisionWord::Answer
                | DecisionWord::Ran
                | DecisionWord::Leave,
                _,
            ) => self.give_up(decision),
        }
    }

    fn give_up(&mut self, decision: Decision) {
        // A cancel that came before ends it just as well, and says who asked for it.
        if self.run.ending.is_none() {
            self.run.ending = Some(RunEnding::GivenUp { by: decision.by });
        }
        match self.run.stage {
            Stage::New | Stage::Asking | Stage::Ruling => self.finish_ended(),
            Stage::Answering | Stage::Finished(_) | Stage::Failed => {}
        }
    }

    /// Closes the request of a run that was set aside, because the run ends without its answer.
    pub(super) fn withdraw_set_aside(&mut self) {
        let Some(request) = self.run.set_aside.take() else { return };
        self.close_request(None, None, request, self.why_withdrawn());
    }
}
