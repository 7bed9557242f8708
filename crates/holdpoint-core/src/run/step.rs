//! One step: an input meets the state.

use holdpoint_protocol::{EventBody, RequestId, RunStarted, Timestamp};

use super::{AuditRecord, Changes, Cx, Effect, Input, OpenRound, Refused, Run, Settings, Stage};
use crate::message::{AssistantItem, AssistantMessage, Message, ProposedCall, UserMessage};

/// A step in progress: the state, what is to be stored, what is to be done.
pub(super) struct Stepper<'a> {
    pub(super) run: &'a mut Run,
    pub(super) open: &'a mut OpenRound,
    pub(super) changes: &'a mut Changes,
    pub(super) effects: Vec<Effect>,
    pub(super) settings: &'a Settings,
    pub(super) now: Timestamp,
    pub(super) fresh: &'a mut dyn FnMut() -> RequestId,
    /// What a suspended run is resumed by, should it be.
    pub(super) cause: &'static str,
}

impl Run {
    /// Takes one input. `changes` gathers what is to be stored, over as many steps as one transaction holds.
    ///
    /// # Errors
    /// [`Refused`] when the input does not fit where the run stands; then nothing has changed.
    pub fn step(
        &mut self,
        open: &mut OpenRound,
        input: Input,
        cx: &mut Cx<'_>,
        changes: &mut Changes,
    ) -> Result<Vec<Effect>, Refused> {
        let mut stepper = Stepper {
            run: self,
            open,
            changes,
            effects: Vec::new(),
            settings: cx.settings,
            now: cx.now,
            fresh: cx.fresh,
            cause: "decision",
        };
        stepper.take(input)?;
        Ok(stepper.effects)
    }
}

impl Stepper<'_> {
    fn take(&mut self, input: Input) -> Result<(), Refused> {
        match input {
            Input::Start { message, tools } => self.start(message, tools),
            Input::Invoke { tool, arguments } => self.invoke(tool, arguments),
            Input::Replied { round, reply } => self.replied(round, reply),
            Input::ModelFailed { round, code, message, retryable } => {
                self.model_failed(round, code, message, retryable)
            }
            Input::Ruled(ruled) => self.ruled(ruled),
            Input::Facts(facts) => self.facts(facts),
            Input::Checked { index, check } => self.checked(index, check),
            Input::Changed { index, tool, definition, ruling, invalid } => {
                self.changed(index, tool, definition, ruling, invalid)
            }
            Input::Finished { index, attempt, end } => self.finished(index, attempt, end),
            Input::Probed { index, probe } => self.probed(index, probe),
            Input::Progress { index, message, fraction } => self.progress(index, message, fraction),
            Input::Recovered { facts } => self.recovered(facts),
            Input::Unavailable { facts, what } => self.unavailable(facts, &what),
            Input::GraceOver => self.grace_over(),
        }
    }

    fn start(&mut self, message: UserMessage, tools: Vec<String>) -> Result<(), Refused> {
        self.begin(tools)?;
        self.changes.messages.push((0, 0, Message::User(message)));
        self.ask_model();
        Ok(())
    }

    fn invoke(&mut self, tool: String, arguments: String) -> Result<(), Refused> {
        self.begin(vec![tool.clone()])?;
        self.run.single = true;
        self.run.round = 1;
        self.run.stage = Stage::Asking;
        let call = ProposedCall { id: "invoke".into(), name: tool, arguments };
        let message = AssistantMessage { items: vec![AssistantItem::Call(call)], ..Default::default() };
        self.propose(message);
        Ok(())
    }

    fn begin(&mut self, tools: Vec<String>) -> Result<(), Refused> {
        if self.run.stage != Stage::New {
            return Err(Refused("it has begun already"));
        }
        self.event(EventBody::RunStarted(RunStarted {
            agent: self.run.agent.clone(),
            conversation_id: self.run.conversation.clone(),
            tools,
            bypass: self.run.bypass.clone(),
        }));
        let what =
            if self.run.bypass.is_some() { "run_started with prompts bypassed" } else { "run_started" };
        let actor = Some(self.run.actor.clone());
        self.audit(AuditRecord {
            kind: "run_started".into(),
            actor,
            call: None,
            request: None,
            digest: None,
            what: what.into(),
        });
        Ok(())
    }

    /// Opens the next round and asks the model.
    pub(super) fn ask_model(&mut self) {
        self.run.round += 1;
        self.run.calls.clear();
        *self.open = OpenRound::default();
        self.run.stage = Stage::Asking;
        self.effects.push(Effect::CallModel { round: self.run.round });
    }

    pub(super) fn event(&mut self, body: EventBody) {
        self.changes.events.push(body);
    }

    pub(super) fn audit(&mut self, record: AuditRecord) {
        self.changes.audit.push(record);
    }
}
