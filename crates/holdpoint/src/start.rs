//! Starting a run: refused before it exists, or stored before anything happens.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::decision::CancelKind;
use holdpoint_core::message::UserMessage;
use holdpoint_core::run::{Birth, Changes, Input, Run};
use holdpoint_protocol::{AgentName, ConversationId, Pending, RunId};
use holdpoint_store::{Context, IdempotencyKey, Started};

use crate::agent::Agent;
use crate::driver::Driver;
use crate::inner::Inner;
use crate::outcome::RunOutcome;
use crate::{Runtime, ids};

/// What a run is started with.
#[derive(Debug, Clone)]
pub struct Start {
    /// What the user says.
    pub message: UserMessage,
    /// The agent; the runtime's first one when absent.
    pub agent: Option<AgentName>,
    /// One of the agent's models.
    pub model: Option<String>,
    /// The conversation to go on with; a new one when absent.
    pub conversation: Option<ConversationId>,
    /// Run without prompts. Refused unless the runtime grants it to this caller.
    pub bypass: bool,
    /// How long its approvals wait, where that is shorter than what the agent says. It can cut nothing else, and what it cuts
    /// short is never released by a preset.
    pub approval_timeout: Option<Duration>,
    /// A second start with the same key and body attaches to the run of the first.
    pub key: Option<IdempotencyKey>,
}

impl Start {
    /// A message to the default agent, in a new conversation.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            message: UserMessage::text(text),
            agent: None,
            model: None,
            conversation: None,
            bypass: false,
            approval_timeout: None,
            key: None,
        }
    }

    /// Its approvals wait no longer than this.
    #[must_use]
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        self.approval_timeout = Some(timeout);
        self
    }

    /// To this agent.
    #[must_use]
    pub fn agent(mut self, agent: AgentName) -> Self {
        self.agent = Some(agent);
        self
    }

    /// In this conversation.
    #[must_use]
    pub fn conversation(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }
}

/// A run that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedRun {
    /// The run.
    pub run: RunId,
    /// Whether an earlier start with the same key made it.
    pub existing: bool,
}

/// A run that was not started. Nothing was stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// There is no such agent.
    #[error("there is no agent `{agent}`; there are: {known}")]
    UnknownAgent {
        /// What was asked for.
        agent: AgentName,
        /// What there is.
        known: String,
    },
    /// The agent does not allow that model.
    #[error("agent `{agent}` does not allow model `{model}`; it allows: {known}")]
    UnknownModel {
        /// The agent.
        agent: AgentName,
        /// What was asked for.
        model: String,
        /// What it allows.
        known: String,
    },
    /// The caller may not bypass prompts.
    #[error(
        "running without prompts is not granted to this caller; leave bypassApproval out, or have the operator grant it"
    )]
    BypassNotGranted,
    /// A run of the conversation is open.
    #[error("run {run} of this conversation is open; decide what it waits for or cancel it first")]
    RunOpen {
        /// The open run.
        run: RunId,
        /// What it waits for.
        pending: Vec<Pending>,
    },
    /// The conversation belongs to somebody else.
    #[error("there is no such conversation")]
    NoSuchConversation,
    /// The key came with another body before.
    #[error("this idempotency key was used with another body; use a new key for a new request")]
    KeyReused,
    /// Too many interactions are pending.
    #[error("{pending} interactions are pending; decide some first")]
    TooManyPending {
        /// How many.
        pending: u64,
    },
    /// The process is stopping.
    #[error("the server is stopping; try again in a moment")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] holdpoint_store::Error),
}

/// What a new message does while a run of the conversation is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNewMessage {
    /// It is refused.
    #[default]
    Refuse,
    /// The open run is superseded, by the conversation's owner alone.
    Supersede,
}

/// How the first step of a run begins.
pub(crate) enum First {
    Message(UserMessage),
    Call { tool: String, arguments: String },
}

impl Runtime {
    /// Starts a run. It exists in the store when this returns, and goes on by itself.
    ///
    /// # Errors
    /// [`StartError`]: nothing was stored.
    pub async fn start(&self, cx: &Context, start: Start) -> Result<StartedRun, StartError> {
        let Start { message, agent, model, conversation, bypass, approval_timeout, key } = start;
        let spec = Spec { agent, model, conversation, bypass, approval_timeout, key };
        self.start_with(cx, spec, First::Message(message)).await
    }

    /// Starts a run and waits until it ends or needs a person.
    ///
    /// # Errors
    /// [`StartError`]: nothing was stored.
    pub async fn run(&self, cx: &Context, start: Start) -> Result<RunOutcome, StartError> {
        let started = self.start(cx, start).await?;
        Ok(self.wait(cx, started.run).await?)
    }

    /// One call without a model: the same gate, store, stream and record.
    ///
    /// # Errors
    /// [`StartError`]: nothing was stored.
    pub async fn invoke(
        &self,
        cx: &Context,
        agent: Option<AgentName>,
        tool: &str,
        arguments: &str,
        key: Option<IdempotencyKey>,
    ) -> Result<StartedRun, StartError> {
        let spec =
            Spec { agent, model: None, conversation: None, bypass: false, approval_timeout: None, key };
        let first = First::Call { tool: tool.to_owned(), arguments: arguments.to_owned() };
        self.start_with(cx, spec, first).await
    }

    async fn start_with(&self, cx: &Context, spec: Spec, first: First) -> Result<StartedRun, StartError> {
        let rt = &self.inner;
        if rt.shutdown.is_cancelled() || self.is_stopping() {
            return Err(StartError::Stopping);
        }
        let agent = rt.agent(spec.agent.as_ref())?;
        if agent.model_named(spec.model.as_deref()).is_none() {
            return Err(StartError::UnknownModel {
                agent: agent.name().clone(),
                model: spec.model.unwrap_or_default(),
                known: agent.model_names().collect::<Vec<_>>().join(", "),
            });
        }
        if spec.bypass && !(rt.bypass)(cx) {
            tracing::warn!(tenant = %cx.tenant, actor = %cx.actor, "a request to bypass approval was refused");
            return Err(StartError::BypassNotGranted);
        }
        match self.try_start(cx, &agent, &spec, &first).await? {
            Attempt::Started(started) => Ok(started),
            Attempt::Open { run, pending } if agent.on_new_message == OnNewMessage::Supersede => {
                self.supersede(cx, run, pending).await?;
                match self.try_start(cx, &agent, &spec, &first).await? {
                    Attempt::Started(started) => Ok(started),
                    Attempt::Open { run, pending } => Err(StartError::RunOpen { run, pending }),
                }
            }
            Attempt::Open { run, pending } => Err(StartError::RunOpen { run, pending }),
        }
    }

    /// Ends the open run in favour of a new message. What is in doubt stays, and the new message is refused.
    async fn supersede(&self, cx: &Context, run: RunId, pending: Vec<Pending>) -> Result<(), StartError> {
        match self.cancel_as(cx, run, CancelKind::Supersede).await {
            Ok(_) => {}
            Err(crate::CancelError::Store(error)) => return Err(error.into()),
            Err(crate::CancelError::NotFound | crate::CancelError::NotYours) => {
                return Err(StartError::RunOpen { run, pending });
            }
        }
        self.wait(cx, run).await?;
        Ok(())
    }

    async fn try_start(
        &self,
        cx: &Context,
        agent: &Arc<Agent>,
        spec: &Spec,
        first: &First,
    ) -> Result<Attempt, StartError> {
        let rt = &self.inner;
        let run = rt.new_run(cx, agent, spec);
        let id = run.id();
        let model = agent.model_named(spec.model.as_deref()).unwrap_or_else(|| Arc::clone(&agent.model));
        let mut driver = Driver::new(Arc::clone(rt), Arc::clone(agent), model, cx.clone(), run);
        let mut changes = Changes::default();
        // A run that is new takes its first input; there is nothing it could be refused for.
        let effects = driver.step(first.input(agent), &mut changes).await.unwrap_or_default();
        let (start, first_step) = driver.first_step(changes, &effects, spec.key.clone());
        let previous = match rt.store.start(cx, start).await? {
            Started::Created { previous, .. } => previous,
            Started::Existing { run } => return Ok(Attempt::Started(StartedRun { run, existing: true })),
            Started::KeyReused => return Err(StartError::KeyReused),
            Started::Open { run, pending } => return Ok(Attempt::Open { run, pending }),
            Started::NotYours => return Err(StartError::NoSuchConversation),
            Started::Full { pending } => return Err(StartError::TooManyPending { pending }),
        };
        holdpoint_store::failpoint("after_start");
        driver.began(first_step, previous);
        rt.tasks.spawn(driver.begin(effects));
        Ok(Attempt::Started(StartedRun { run: id, existing: false }))
    }
}

/// What is known of a run before it exists.
struct Spec {
    agent: Option<AgentName>,
    model: Option<String>,
    conversation: Option<ConversationId>,
    bypass: bool,
    approval_timeout: Option<Duration>,
    key: Option<IdempotencyKey>,
}

enum Attempt {
    Started(StartedRun),
    Open { run: RunId, pending: Vec<Pending> },
}

impl First {
    fn input(&self, agent: &Agent) -> Input {
        match self {
            Self::Message(message) => {
                Input::Start { message: message.clone(), tools: agent.tools.now().names().to_vec() }
            }
            Self::Call { tool, arguments } => {
                Input::Invoke { tool: tool.clone(), arguments: arguments.clone() }
            }
        }
    }
}

impl Inner {
    pub(crate) fn agent(&self, name: Option<&AgentName>) -> Result<Arc<Agent>, StartError> {
        let name = name.unwrap_or(&self.default_agent);
        self.agents.get(name).cloned().ok_or_else(|| {
            let mut known: Vec<&str> = self.agents.keys().map(AgentName::as_str).collect();
            known.sort_unstable();
            StartError::UnknownAgent { agent: name.clone(), known: known.join(", ") }
        })
    }

    fn new_run(&self, cx: &Context, agent: &Agent, spec: &Spec) -> Run {
        Run::new(Birth {
            id: ids::run_id(self.now()),
            tenant: cx.tenant.clone(),
            actor: cx.actor.clone(),
            agent: agent.name().clone(),
            conversation: spec.conversation.clone().unwrap_or_else(ids::conversation),
            model: spec.model.clone(),
            bypass: spec.bypass.then(|| cx.actor.clone()),
        })
        .approvals_at_most(
            spec.approval_timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}
