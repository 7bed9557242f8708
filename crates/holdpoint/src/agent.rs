//! An agent: a declared configuration of model, instructions, tools, policy and limits.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::limits::Limits;
use holdpoint_core::policy::{Policy, PolicyStack, Preset};
use holdpoint_core::run::{Execution, OnInvalidCall, Settings};
use holdpoint_core::terms::{ApprovalTerms, AtDeadline, TermsRule, ToolTerms};
use holdpoint_models::Model;
use holdpoint_protocol::AgentName;
use holdpoint_tools::{Extensions, Tool, ToolSource};

use crate::RunInfo;
use crate::handler::ApprovalHandler;
use crate::hooks::{AroundRound, AroundRun};
use crate::listener::Listener;
use crate::permission::Permission;
use crate::shelf::{Shelf, Source};
use crate::start::OnNewMessage;
use crate::toolset::{BadToolset, Toolset};

/// How long a tool may run when its definition does not say.
pub const TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

type ContextProvider = dyn Fn(&RunInfo) -> Extensions + Send + Sync;

/// A declared agent. Built once, used by any number of runs.
pub struct Agent {
    pub(crate) name: AgentName,
    pub(crate) instructions: Arc<str>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) models: Vec<Arc<dyn Model>>,
    pub(crate) tools: Shelf,
    pub(crate) policy: PolicyStack,
    pub(crate) settings: Settings,
    pub(crate) permission: Option<Arc<dyn Permission>>,
    pub(crate) handler: Option<Arc<dyn ApprovalHandler>>,
    pub(crate) listeners: Vec<Arc<dyn Listener>>,
    pub(crate) around_run: Vec<Arc<dyn AroundRun>>,
    pub(crate) around_round: Vec<Arc<dyn AroundRound>>,
    pub(crate) context: Option<Box<ContextProvider>>,
    pub(crate) stream: bool,
    pub(crate) on_new_message: OnNewMessage,
    pub(crate) presets: Vec<Preset>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name)
            .field("tools", &self.tools.now())
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent of this name on this model. Without a policy, every call asks.
    pub fn builder(name: impl Into<String>, model: impl Model) -> AgentBuilder {
        Self::on(name, Arc::new(model))
    }

    /// The same, on a model that is shared.
    pub fn on(name: impl Into<String>, model: Arc<dyn Model>) -> AgentBuilder {
        AgentBuilder {
            name: name.into(),
            instructions: String::new(),
            model,
            models: Vec::new(),
            tools: Vec::new(),
            sources: Vec::new(),
            layers: Vec::new(),
            settings: Settings::default(),
            permission: None,
            handler: None,
            listeners: Vec::new(),
            around_run: Vec::new(),
            around_round: Vec::new(),
            context: None,
            stream: true,
            on_new_message: OnNewMessage::default(),
            presets: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &AgentName {
        &self.name
    }

    /// Its tools, as they are now.
    pub fn tools(&self) -> Arc<Toolset> {
        self.tools.now()
    }

    /// Its policy.
    pub fn policy(&self) -> &PolicyStack {
        &self.policy
    }

    /// The models a request may name, the agent's own first.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.model.name()).chain(self.models.iter().map(|model| model.name()))
    }

    /// How its requests wait.
    pub fn approval(&self) -> &ApprovalTerms {
        &self.settings.approval
    }

    /// The presets that may decide at a deadline.
    pub fn presets(&self) -> &[Preset] {
        &self.presets
    }

    pub(crate) fn preset(&self, name: &str) -> Option<&Preset> {
        self.presets.iter().find(|preset| preset.name() == name)
    }

    pub(crate) fn model_named(&self, name: Option<&str>) -> Option<Arc<dyn Model>> {
        let Some(name) = name else { return Some(Arc::clone(&self.model)) };
        std::iter::once(&self.model).chain(&self.models).find(|model| model.name() == name).cloned()
    }
}

/// Says what an agent is.
pub struct AgentBuilder {
    name: String,
    instructions: String,
    model: Arc<dyn Model>,
    models: Vec<Arc<dyn Model>>,
    tools: Vec<Arc<dyn Tool>>,
    sources: Vec<Source>,
    layers: Vec<Policy>,
    settings: Settings,
    permission: Option<Arc<dyn Permission>>,
    handler: Option<Arc<dyn ApprovalHandler>>,
    listeners: Vec<Arc<dyn Listener>>,
    around_run: Vec<Arc<dyn AroundRun>>,
    around_round: Vec<Arc<dyn AroundRound>>,
    context: Option<Box<ContextProvider>>,
    stream: bool,
    on_new_message: OnNewMessage,
    presets: Vec<Preset>,
}

/// An agent that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BadAgent {
    /// Its name is not one.
    #[error("agent name {name:?}: use 1 to 128 letters, digits, `_ - : @ .`, not starting with a dot")]
    Name {
        /// The name.
        name: String,
    },
    /// Its tools do not fit together.
    #[error("agent {agent}: {source}")]
    Tools {
        /// The agent.
        agent: AgentName,
        /// Why.
        source: BadToolset,
    },
    /// A preset is to decide at a deadline, and there is none of that name.
    #[error("agent {agent}: there is no preset `{preset}` to decide at a deadline")]
    NoPreset {
        /// The agent.
        agent: AgentName,
        /// What was named.
        preset: String,
    },
    /// Two presets have one name.
    #[error("agent {agent}: two presets are named `{preset}`")]
    PresetTwice {
        /// The agent.
        agent: AgentName,
        /// The name.
        preset: String,
    },
    /// A limit is over what can be configured.
    #[error("agent {agent}: {what} is {found}, at most {max}")]
    Limit {
        /// The agent.
        agent: AgentName,
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: usize,
        /// The cap.
        max: usize,
    },
}

impl AgentBuilder {
    /// The instructions (the system prompt).
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = text.into();
        self
    }

    /// A tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Tools that are shared.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// A source of tools that come and go: those of its tools that `takes` says yes to. A tool of the agent's own keeps its
    /// name; a source's tool of the same name is left out.
    #[must_use]
    pub fn tool_source(
        mut self,
        source: Arc<dyn ToolSource>,
        takes: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Source { source, takes: Box::new(takes) });
        self
    }

    /// A further model that a request may name.
    #[must_use]
    pub fn also_model(mut self, model: Arc<dyn Model>) -> Self {
        self.models.push(model);
        self
    }

    /// A layer of policy. Several combine to the strictest.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.layers.push(policy);
        self
    }

    /// Who may use which tool at all.
    #[must_use]
    pub fn permission(mut self, permission: impl Permission) -> Self {
        self.permission = Some(Arc::new(permission));
        self
    }

    /// Sees everything, changes nothing.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Decides in the program itself. Its answers are ordinary decisions.
    #[must_use]
    pub fn approval_handler(mut self, handler: impl ApprovalHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// How long a request waits; then the call is answered `expired`, unless [`Self::on_timeout`] says otherwise.
    #[must_use]
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        let agent = &mut self.settings.approval.agent;
        agent.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// What happens to a request at its deadline. By default it expires.
    #[must_use]
    pub fn on_timeout(mut self, what: AtDeadline) -> Self {
        self.settings.approval.agent.at_deadline = Some(what);
        self
    }

    /// How all requests of this agent wait: the time, the end, reminders, who is to decide, who is told when nobody does.
    #[must_use]
    pub fn approval_terms(mut self, rule: TermsRule) -> Self {
        self.settings.approval.agent = rule;
        self
    }

    /// How requests for these tools wait, where that is said more precisely. Of several the first that is for a tool holds.
    #[must_use]
    pub fn approval_terms_of(mut self, terms: ToolTerms) -> Self {
        self.settings.approval.tools.push(terms);
        self
    }

    /// What a layer of policy says of how requests wait: it can only tighten what the agent says.
    #[must_use]
    pub fn approval_terms_at_most(mut self, terms: ToolTerms) -> Self {
        self.settings.approval.layers.push(terms);
        self
    }

    /// A preset that may be named by [`AtDeadline::Preset`].
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// How the calls of one reply are started.
    #[must_use]
    pub fn execution(mut self, execution: Execution) -> Self {
        self.settings.execution = execution;
        self
    }

    /// What an unknown tool or broken arguments do.
    #[must_use]
    pub fn on_invalid_call(mut self, what: OnInvalidCall) -> Self {
        self.settings.on_invalid_call = what;
        self
    }

    /// What a run may use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Around each run, once.
    #[must_use]
    pub fn around_run(mut self, hook: impl AroundRun) -> Self {
        self.around_run.push(Arc::new(hook));
        self
    }

    /// Around each model call.
    #[must_use]
    pub fn around_round(mut self, hook: impl AroundRound) -> Self {
        self.around_round.push(Arc::new(hook));
        self
    }

    /// Values of the program that reach the tools: trusted, never the model's to write. Called each time a run is
    /// taken up, so that a run which waited for a month gets them too.
    #[must_use]
    pub fn tool_context(mut self, provider: impl Fn(&RunInfo) -> Extensions + Send + Sync + 'static) -> Self {
        self.context = Some(Box::new(provider));
        self
    }

    /// Whether models are asked to stream. On by default; the run is the same either way.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// What a new message does while a run of its conversation is open.
    #[must_use]
    pub fn on_new_message(mut self, what: OnNewMessage) -> Self {
        self.on_new_message = what;
        self
    }

    /// Checks it all.
    ///
    /// # Errors
    /// [`BadAgent`] says what and where.
    pub fn build(mut self) -> Result<Agent, BadAgent> {
        let Ok(name) = AgentName::new(&self.name) else { return Err(BadAgent::Name { name: self.name }) };
        let limits = &self.settings.limits;
        for (what, found, max) in [
            ("argument_bytes", limits.argument_bytes, holdpoint_core::arguments::ARGUMENTS_MAX_BYTES),
            ("calls_per_reply", limits.calls_per_reply, holdpoint_core::limits::CALLS_PER_REPLY_MAX),
            ("result_bytes", limits.result_bytes, holdpoint_core::limits::RESULT_MAX_BYTES),
        ] {
            if found > max {
                return Err(BadAgent::Limit { agent: name, what, found, max });
            }
        }
        if let Some(handler) = &self.handler {
            self.settings.approval.handler = handler.at_most();
        }
        let known = |name: &str| self.presets.iter().filter(|preset| preset.name() == name).count();
        if let Some(missing) = self.settings.approval.presets().find(|preset| known(preset) == 0) {
            return Err(BadAgent::NoPreset { agent: name, preset: missing.to_owned() });
        }
        if let Some(twice) = self.presets.iter().find(|preset| known(preset.name()) > 1) {
            return Err(BadAgent::PresetTwice { agent: name, preset: twice.name().to_owned() });
        }
        let tools = Shelf::new(self.tools, self.sources)
            .map_err(|source| BadAgent::Tools { agent: name.clone(), source })?;
        Ok(Agent {
            name,
            instructions: self.instructions.into(),
            model: self.model,
            models: self.models,
            tools,
            policy: PolicyStack::new(self.layers),
            settings: self.settings,
            permission: self.permission,
            handler: self.handler,
            listeners: self.listeners,
            around_run: self.around_run,
            around_round: self.around_round,
            context: self.context,
            stream: self.stream,
            on_new_message: self.on_new_message,
            presets: self.presets,
        })
    }
}
