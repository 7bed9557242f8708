//! The world outside: a clock, a model, tools that leave a trace of every execution.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdpoint::core::message::Message;
use holdpoint::core::policy::{Condition, Policy, Preset, Release};
use holdpoint::core::terms::TermsRule;
use holdpoint::core::tool::{EffectClass, ToolDefinition};
use holdpoint::models::ModelRequest;
use holdpoint::models::scripted::{Answer, Scripted};
use holdpoint::protocol::{ActorId, CallId, ExecId, GroupName, Timestamp};
use holdpoint::store::Clock;
use holdpoint::tools::{Invocation, Probe, Tool, ToolContext, ToolError, ToolOutput};
use holdpoint::{Agent, AgentBuilder};
use serde_json::json;

use crate::cluster::Instance;
use crate::scenario::{Ends, RELEASED, Scenario, TOOLS};

/// One execution of a tool's body, as the world saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The call.
    pub call: CallId,
    /// The attempt.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// The argument text it ran with.
    pub arguments: String,
    /// The idempotency key.
    pub exec: ExecId,
    /// The business key, where the tool has one.
    pub key: Option<String>,
    /// Whether its effect was complete.
    pub done: bool,
}

/// What the world knows.
#[derive(Debug, Default)]
pub struct World {
    executions: Mutex<Vec<Execution>>,
    wrong: Mutex<Vec<String>>,
}

impl World {
    /// The executions, in order.
    pub fn executions(&self) -> Vec<Execution> {
        lock(&self.executions).clone()
    }

    /// What was seen that must not be.
    pub fn wrong(&self) -> Vec<String> {
        lock(&self.wrong).clone()
    }

    /// Notes something that must not be.
    pub fn note(&self, what: String) {
        lock(&self.wrong).push(what);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clock that follows the paused time of whichever life is being lived.
#[derive(Debug)]
pub struct SimClock {
    base_ms: AtomicU64,
    life: Mutex<Option<tokio::time::Instant>>,
}

impl SimClock {
    /// It begins at a fixed time.
    pub fn new() -> Self {
        Self { base_ms: AtomicU64::new(1_800_000_000_000), life: Mutex::new(None) }
    }

    /// A life begins.
    pub fn begin(&self) {
        *lock(&self.life) = Some(tokio::time::Instant::now());
    }

    /// A life ends; time goes on from here.
    pub fn end(&self) {
        let ms = self.ms();
        self.base_ms.store(ms, Ordering::Relaxed);
        *lock(&self.life) = None;
    }

    fn ms(&self) -> u64 {
        let lived = lock(&self.life).map_or(Duration::ZERO, |since| since.elapsed());
        self.base_ms.load(Ordering::Relaxed) + u64::try_from(lived.as_millis()).unwrap_or(0)
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(self.ms()).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// The agent of a scenario, at an instance.
pub fn agent(scenario: &Arc<Scenario>, world: &Arc<World>, at: &Arc<Instance>) -> AgentBuilder {
    let policy =
        Policy::builder("sim").allow(["free_*"]).require_approval_for(["ask_*"]).deny(["deny_*"]).build();
    let mut builder = Agent::builder("main", model(scenario, world)).execution(scenario.execution);
    if let Ok(policy) = policy {
        builder = builder.policy(policy);
    }
    builder = builder.approval_terms(terms(scenario));
    if let Some(preset) = preset() {
        builder = builder.preset(preset);
    }
    for name in TOOLS {
        builder = builder.tool(SimTool::new(name, scenario, world, at));
    }
    builder
}

/// How its requests wait.
fn terms(scenario: &Scenario) -> TermsRule {
    let leads = GroupName::new("leads").ok();
    TermsRule {
        timeout_ms: scenario.timeout_ms,
        at_deadline: Some(scenario.at_deadline.clone()),
        remind_every_ms: scenario.reminds.then_some(700),
        approvers: None,
        escalate_to: leads.filter(|_| scenario.reminds).map(|leads| vec![leads]),
    }
}

/// The preset that is asked where the scenario says so.
fn preset() -> Option<Preset> {
    let releases = RELEASED.map(|(tool, n)| Release {
        tool: tool.into(),
        when: BTreeMap::from([("n".to_owned(), Condition::one_of([n]))]),
    });
    Preset::new("sim", ActorId::new("configuration").ok()?, releases).ok()
}

/// A model that makes the scenario's calls round by round, and looks at every history it is sent.
fn model(scenario: &Arc<Scenario>, world: &Arc<World>) -> Scripted {
    let (scenario, world) = (Arc::clone(scenario), Arc::clone(world));
    Scripted::computed("sim", move |request: &ModelRequest, _| {
        if let Err(what) = well_formed(&request.messages) {
            world.note(format!("a history that no provider takes: {what}"));
        }
        let round = request
            .messages
            .iter()
            .filter(|message| matches!(message.as_ref(), Message::Assistant(_)))
            .count();
        let thinks = Duration::from_millis(scenario.thinks_ms);
        let Some(calls) = scenario.rounds.get(round) else { return Answer::text("the end").after(thinks) };
        (0..).zip(calls).fold(Answer::empty().after(thinks), |answer, (index, call)| {
            let arguments = if call.broken {
                "{\"n\":".into()
            } else if TOOLS[call.tool].ends_with("_keyed") {
                keyed(round, index)
            } else {
                arguments(round, index)
            };
            answer.and_call(call.id.clone(), TOOLS[call.tool], arguments)
        })
    })
}

/// The argument text of a call: it names its place, so that a tool knows how to behave.
pub fn arguments(round: usize, index: usize) -> String {
    json!({"n": format!("{round}.{index}")}).to_string()
}

/// The argument text of a call under a business key: few keys, so that they come again and again.
fn keyed(round: usize, index: usize) -> String {
    json!({"key": format!("order-{}", (round + index) % 2)}).to_string()
}

/// The business key in an argument text.
pub fn key_of(arguments: &str) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
    arguments.get("key")?.as_str().map(str::to_owned)
}

/// Every call answered once, in order, right after the reply that made it.
pub fn well_formed(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<u32> = Vec::new();
    for message in messages {
        match message.as_ref() {
            Message::Assistant(reply) => {
                if !open.is_empty() {
                    return Err(format!("calls {open:?} were not answered before the next reply"));
                }
                open = (0..reply.calls().count() as u32).collect();
            }
            Message::Tool(tool) => {
                if open.first() != Some(&tool.index) {
                    return Err(format!("answer {} where {:?} were open", tool.index, open));
                }
                open.remove(0);
            }
            Message::User(_) | Message::Note(_) => {
                if !open.is_empty() {
                    return Err(format!("calls {open:?} were not answered"));
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls {open:?} were not answered at the end")) }
}

struct SimTool {
    definition: ToolDefinition,
    scenario: Arc<Scenario>,
    world: Arc<World>,
    at: Arc<Instance>,
}

impl SimTool {
    fn new(name: &str, scenario: &Arc<Scenario>, world: &Arc<World>, at: &Arc<Instance>) -> Self {
        let argument = if name.ends_with("_keyed") { "key" } else { "n" };
        let schema = json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument], "additionalProperties": false});
        let mut definition = ToolDefinition::new(name, format!("the tool {name}"), schema);
        if name.ends_with("_keyed") {
            definition = definition.with_business_key(argument);
        }
        definition.timeout_ms = Some(5_000);
        definition.effect = match name.rsplit('_').next() {
            Some("read") => EffectClass::ReadOnly,
            Some("idempotent") => EffectClass::Idempotent,
            Some("probe") => EffectClass::Verifiable,
            Some(_) | None => EffectClass::AtMostOnce,
        };
        let (scenario, world, at) = (Arc::clone(scenario), Arc::clone(world), Arc::clone(at));
        Self { definition, scenario, world, at }
    }
}

#[async_trait]
impl Tool for SimTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        self.at.awake().await;
        let at = {
            let mut executions = lock(&self.world.executions);
            executions.push(Execution {
                call: invocation.call(),
                attempt: invocation.attempt(),
                tool: self.definition.name.clone(),
                arguments: invocation.arguments().to_owned(),
                exec: invocation.exec(),
                key: self.definition.business_key.as_ref().and_then(|_| key_of(invocation.arguments())),
                done: false,
            });
            executions.len() - 1
        };
        let (round, index) = (invocation.call().round as usize, invocation.call().index as usize);
        let plan = self.scenario.rounds.get(round - 1).and_then(|calls| calls.get(index)).cloned();
        let (takes, ends) = plan.map_or((0, Ends::Well), |call| (call.takes_ms, call.ends));
        tokio::time::sleep(Duration::from_millis(takes)).await;
        self.at.awake().await;
        match ends {
            Ends::Hangs => {
                invocation.cancel().cancelled().await;
                std::future::pending::<()>().await;
            }
            // Unwinds without the hook that prints it.
            Ends::Panic => std::panic::resume_unwind(Box::new("simulated")),
            Ends::Error => return Err(ToolError::new("SIMULATED", "it went wrong")),
            Ends::Well => {}
        }
        lock(&self.world.executions)[at].done = true;
        Ok(ToolOutput::text(format!("did {}", invocation.arguments())))
    }

    async fn probe(&self, exec: ExecId, _context: &ToolContext) -> Probe {
        self.at.awake().await;
        // Of what is done under a key there is a record. What that does not know, nobody does but a person who looks.
        if self.definition.business_key.is_some() {
            return Probe::Unknown;
        }
        let executions = lock(&self.world.executions);
        let of_call: Vec<_> = executions.iter().filter(|execution| execution.exec == exec).collect();
        match of_call.iter().find(|execution| execution.done) {
            Some(done) => Probe::Done(ToolOutput::text(format!("did {}", done.arguments))),
            None if of_call.is_empty() => Probe::NotDone,
            // Begun and not finished: it cannot tell.
            None => Probe::Unknown,
        }
    }
}
