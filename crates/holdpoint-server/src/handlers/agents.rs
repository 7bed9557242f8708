//! What there is to be asked, and what policy would say.

use std::sync::Arc;

use holdpoint::core::policy::{Ruling, Verdict};
use holdpoint::core::tool::EffectClass;
use holdpoint::protocol::{AgentName, Reason};
use holdpoint::{Agent, StartError};
use serde::Serialize;

use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;
use crate::strict_json::{Fields, text_of};

#[derive(Serialize)]
struct Agents<'a> {
    items: Vec<AgentView<'a>>,
}

#[derive(Serialize)]
struct AgentView<'a> {
    name: &'a AgentName,
    models: Vec<&'a str>,
    tools: Vec<ToolView<'a>>,
}

#[derive(Serialize)]
struct ToolView<'a> {
    name: &'a str,
    description: &'a str,
    effect: EffectClass,
    verdict: Verdict,
    reason: Reason,
    schema: &'a serde_json::Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained<'a> {
    agent: &'a AgentName,
    tool: &'a str,
    /// Whether the agent has such a tool at all: policy speaks of names.
    tool_exists: bool,
    verdict: Verdict,
    reason: Reason,
    layers: Vec<Ruling>,
}

/// Which agent and tool is asked about.
pub(super) struct Asked {
    agent: Option<AgentName>,
    tool: String,
}

/// `GET /v1/agents`.
pub(super) fn list(app: &App, call: &Call) -> Result<Answer, Refusal> {
    call.query.only(&[])?;
    let agents = app.runtime.agents();
    let items = agents.iter().map(|agent| view(agent)).collect();
    Ok(Answer::ok(&Agents { items }))
}

fn view(agent: &Agent) -> AgentView<'_> {
    let tools = agent.tools().definitions().iter().map(|tool| {
        let ruling = agent.policy().rule(&tool.name);
        ToolView {
            name: &tool.name,
            description: &tool.description,
            effect: tool.effect,
            verdict: ruling.verdict,
            reason: ruling.reason,
            schema: &tool.schema,
        }
    });
    AgentView { name: agent.name(), models: agent.model_names().collect(), tools: tools.collect() }
}

/// Reads `POST /v1/policy/explain`.
pub(super) fn read_explain(call: &Call) -> Result<Asked, Refusal> {
    let mut fields = Fields::read(&call.body)?;
    let agent = match fields.take("agent") {
        None => None,
        Some(raw) => {
            let name = text_of("agent", raw)?;
            Some(
                AgentName::new(&name)
                    .map_err(|_| Refusal::bad_request("bad_name", "no agent is named so"))?,
            )
        }
    };
    let tool = fields.text("tool")?;
    fields.finish("tool, agent")?;
    let tool =
        tool.ok_or_else(|| Refusal::bad_request("no_tool", "`tool` says which tool; it is missing"))?;
    Ok(Asked { agent, tool })
}

/// What policy says of a tool, layer by layer.
pub(super) async fn explain(app: Arc<App>, asked: Asked) -> Result<Answer, Refusal> {
    let Some(agent) = app.runtime.agent(asked.agent.as_ref()) else {
        let known = app.runtime.agents().iter().map(|agent| agent.name().to_string()).collect::<Vec<_>>();
        let error = StartError::UnknownAgent {
            agent: asked.agent.unwrap_or_else(|| app.runtime.agents()[0].name().clone()),
            known: known.join(", "),
        };
        return Err(error.into());
    };
    let ruling = agent.policy().rule(&asked.tool);
    Ok(Answer::ok(&Explained {
        agent: agent.name(),
        tool: &asked.tool,
        tool_exists: agent.tools().names().contains(&asked.tool),
        verdict: ruling.verdict,
        reason: ruling.reason,
        layers: agent.policy().explain(&asked.tool),
    }))
}
