//! The end of a round, and of a run.

use holdpoint_protocol::{EventBody, Finish, FinishStatus, Round, RunError, Status, ToolResult};

use super::settle::result_of;
use super::state::{Ending as RunEnding, Over};
use super::step::Stepper;
use super::{AuditRecord, Stage};
use crate::message::ResultContent;

impl Stepper<'_> {
    /// Every call of the round is answered: the round enters the history, and the run goes on or ends.
    pub(super) fn commit_round(&mut self) {
        let round = self.run.round;
        self.event(EventBody::RoundCommitted(Round { round }));
        if self.run.ending.is_some() {
            self.finish_ended();
        } else if self.run.single {
            let status = match self.status_of(0) {
                Some(Status::Succeeded | Status::ExecutedWithChanges) => FinishStatus::Success,
                Some(_) | None => FinishStatus::Stopped,
            };
            self.finish_with_results(status);
        } else if self.all_direct() {
            self.finish_with_results(FinishStatus::Success);
        } else if self.run.over.as_ref().is_some_and(|over| over.last_round) {
            self.finish(FinishStatus::LimitExceeded, self.open.text.clone(), None);
        } else {
            self.next_round();
        }
    }

    /// `return_direct`: every call is direct and succeeded as the model wrote it.
    fn all_direct(&self) -> bool {
        (0..self.run.calls.len() as u32).all(|index| {
            let call = self.call(index);
            call.direct && call.edited.is_none() && self.status_of(index) == Some(Status::Succeeded)
        })
    }

    fn finish_with_results(&mut self, status: FinishStatus) {
        let results: Vec<ToolResult> = (0u32..)
            .zip(&self.open.slots)
            .filter_map(|(index, slot)| Some(result_of(self.run.call_id(index), slot.result.as_ref()?)))
            .collect();
        let text: Vec<&str> = self
            .open
            .slots
            .iter()
            .filter_map(|slot| match &slot.result.as_ref()?.content {
                ResultContent::Text(text) => Some(text.as_str()),
                ResultContent::Json(raw) => Some(raw.get()),
                ResultContent::Parts(_) => None,
            })
            .collect();
        let text = text.join("\n");
        self.finish(status, text, Some(results));
    }

    /// The next round, or - once a soft limit was reached - the last one.
    pub(super) fn next_round(&mut self) {
        if self.run.over.is_none() {
            self.run.over = self.over_budget().map(|what| Over { what, last_round: false });
        }
        match &mut self.run.over {
            Some(over) if over.last_round => {
                self.finish(FinishStatus::LimitExceeded, self.open.text.clone(), None);
                return;
            }
            Some(over) => {
                over.last_round = true;
                let message = format!("limit reached: {}; the model gets one more round", over.what);
                self.notice("limit", message);
            }
            None => {}
        }
        self.ask_model();
    }

    fn over_budget(&self) -> Option<String> {
        let limits = &self.settings.limits;
        let spent = &self.run.spent;
        if self.run.round >= limits.rounds {
            return Some(format!("{} rounds", limits.rounds));
        }
        if let Some(tokens) = limits.tokens.filter(|max| spent.input_tokens + spent.output_tokens >= *max) {
            return Some(format!("{tokens} tokens"));
        }
        if let Some(cost) = limits.cost_micro_dollars.filter(|max| spent.cost.unwrap_or(0) >= *max) {
            return Some(format!("a cost of {cost} millionths of a dollar"));
        }
        limits.active_ms.filter(|max| spent.active_ms >= *max).map(|ms| format!("{ms} ms of work"))
    }

    /// The model's answer: the run is done.
    pub(super) fn answer(&mut self, text: String) {
        let round = self.run.round;
        self.event(EventBody::RoundCommitted(Round { round }));
        // Over a soft limit the run ends as such, even when the one more round brought an answer.
        let over = self.run.over.is_some();
        let status = if over { FinishStatus::LimitExceeded } else { FinishStatus::Success };
        self.finish(status, text, None);
    }

    /// Ends a run that was on its way to an end before its answer.
    pub(super) fn finish_ended(&mut self) {
        match self.run.ending.clone() {
            Some(RunEnding::Cancel { .. }) => self.finish(FinishStatus::Cancelled, String::new(), None),
            Some(RunEnding::Supersede { .. }) => self.finish(FinishStatus::Superseded, String::new(), None),
            Some(RunEnding::Stop) => self.finish(FinishStatus::Stopped, self.open.text.clone(), None),
            Some(RunEnding::GivenUp { .. }) => {
                self.fail(
                    "quarantined",
                    "the run was set aside because every process that carried it on ended, and an operator let it end"
                        .into(),
                    false,
                );
            }
            Some(RunEnding::Invalid { status }) => {
                self.fail(
                    status.as_str(),
                    "the model made a call that cannot be taken; the agent is set to stop then".into(),
                    false,
                );
            }
            None => {}
        }
    }

    fn finish(&mut self, status: FinishStatus, text: String, results: Option<Vec<ToolResult>>) {
        self.run.stage = Stage::Finished(status);
        self.run.suspended = false;
        self.run.calls.clear();
        self.run.past.clear();
        let usage = self.run.usage();
        self.event(EventBody::Finish(Finish { status, text, results, usage }));
        self.ended(format!("{status:?}").to_lowercase());
    }

    pub(super) fn fail(&mut self, code: &str, message: String, retryable: bool) {
        self.failed(RunError { code: code.to_owned(), message, retryable });
    }

    pub(super) fn failed(&mut self, error: RunError) {
        self.run.stage = Stage::Failed;
        self.run.suspended = false;
        self.run.calls.clear();
        let what = format!("error {}", error.code);
        self.event(EventBody::Error(error));
        self.ended(what);
    }

    fn ended(&mut self, what: String) {
        self.audit(AuditRecord {
            kind: "run_ended".into(),
            actor: None,
            call: None,
            request: None,
            digest: None,
            what,
        });
    }
}
