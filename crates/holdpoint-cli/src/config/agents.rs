//! The agents of a configuration.

use std::path::Path;
use std::sync::Arc;

use holdpoint::Agent;
use holdpoint_core::policy::{Policy, Preset};
use holdpoint_models::Model;
use holdpoint_tools::Tool;
use holdpoint_tools::builtin::{self, Workdir};

use crate::fail::{Fail, Result};

use super::file;
use super::guard::Protected;
use super::mcp::Servers;
use super::models::Models;
use super::read::{self, nearest};
use super::terms;

/// Agents that can run, and what was noticed on the way.
#[derive(Default)]
pub(crate) struct Built {
    pub(crate) agents: Vec<Agent>,
    pub(crate) workdirs: Vec<(String, Workdir)>,
    pub(crate) warnings: Vec<String>,
}

/// The policy of an agent that has none: what changes nothing is allowed, the rest asks.
pub(crate) fn shipped_policy() -> Result<Policy> {
    Policy::builder("shipped")
        .allow(builtin::ALLOWED_BY_DEFAULT)
        .build()
        .map_err(|error| Fail::new(format!("the shipped policy: {error}")))
}

/// Builds every agent.
pub(crate) fn build(
    file: &file::File,
    folder: &Path,
    models: &Models,
    servers: &Servers,
    protected: &mut Protected,
) -> Result<Built> {
    if file.agents.is_empty() {
        return Err(Fail::usage("the configuration has no agent").hint("add an `[[agents]]` section"));
    }
    check_layers(file)?;
    let presets = terms::presets(file)?;
    let mut built = Built::default();
    for agent in &file.agents {
        let at = At { agent, folder, models, servers, presets: &presets };
        built.agent(file, &at, protected)?;
    }
    let names: Vec<&str> = file.agents.iter().map(|agent| agent.name.as_str()).collect();
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(Fail::usage(format!("two agents are named `{}`", twice.1)).hint("rename one"));
    }
    for layer in &file.policies {
        built.warn_of_dead_rules(layer);
    }
    for preset in &presets {
        built.warn_of_dead_releases(preset);
    }
    Ok(built)
}

/// A layer that names an agent which does not exist would guard nobody.
fn check_layers(file: &file::File) -> Result<()> {
    for layer in &file.policies {
        for name in layer.agents.iter().flatten() {
            if !file.agents.iter().any(|agent| agent.name == *name) {
                let near = nearest(name, file.agents.iter().map(|agent| agent.name.as_str()));
                return Err(Fail::usage(format!("policy `{}`: there is no agent `{name}`", layer.name))
                    .hint_opt(near.map(|near| format!("did you mean `{near}`?"))));
            }
        }
    }
    Ok(())
}

/// One agent's section, and what it refers to.
struct At<'a> {
    agent: &'a file::Agent,
    folder: &'a Path,
    models: &'a Models,
    servers: &'a Servers,
    presets: &'a [Preset],
}

impl At<'_> {
    fn fail(&self, what: impl std::fmt::Display) -> Fail {
        Fail::usage(format!("agent `{}`: {what}", self.agent.name))
    }

    fn model(&self, name: &str) -> Result<Arc<dyn Model>> {
        self.models.get(name).cloned().ok_or_else(|| {
            let known = self.models.keys().map(String::as_str);
            let hint = match nearest(name, known.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
            };
            self.fail(format_args!("there is no model `{name}`")).hint(hint)
        })
    }

    fn instructions(&self, protected: &mut Protected) -> Result<String> {
        match (&self.agent.instructions, &self.agent.instructions_file) {
            (Some(_), Some(_)) => {
                Err(self.fail("it has both `instructions` and `instructions_file`").hint("keep one of them"))
            }
            (Some(text), None) => Ok(text.clone()),
            (None, Some(path)) => {
                let path = self.folder.join(path);
                let what = format!("the instructions of agent `{}`", self.agent.name);
                protected.add(what.clone(), &path);
                read::text(&path, &what)
            }
            (None, None) => Ok(String::new()),
        }
    }

    fn workdir(&self) -> Result<Option<Workdir>> {
        let Some(path) = &self.agent.workdir else { return Ok(None) };
        let path = self.folder.join(path);
        Workdir::open(&path).map(Some).map_err(|error| {
            let hint = (!path.exists()).then(|| "create it, or name another".to_owned());
            self.fail(format_args!("its workdir `{}` cannot be opened: {error}", path.display()))
                .hint_opt(hint)
        })
    }

    fn tools(&self, workdir: Option<&Workdir>) -> Result<Vec<Arc<dyn Tool>>> {
        let Some(workdir) = workdir else {
            return match &self.agent.tools {
                Some(names) if names.is_empty() => Ok(Vec::new()),
                None if !self.agent.mcp.is_empty() => Ok(Vec::new()),
                Some(_) | None => Err(self.fail("its tools need a `workdir`").hint(
                    "name the directory they work in, or write `tools = []` for an agent without tools",
                )),
            };
        };
        let all = builtin::all(workdir);
        let Some(names) = &self.agent.tools else { return Ok(all) };
        let mut tools = Vec::new();
        for name in names {
            let Some(tool) = all.iter().find(|tool| tool.definition().name == *name) else {
                let known = all.iter().map(|tool| tool.definition().name.as_str());
                let hint = match nearest(name, known.clone()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
                };
                return Err(self.fail(format_args!("there is no tool `{name}`")).hint(hint));
            };
            tools.push(Arc::clone(tool));
        }
        Ok(tools)
    }

    /// The tools its servers offer at the start.
    fn offered(&self) -> Vec<Arc<dyn Tool>> {
        let servers = self.agent.mcp.iter().filter_map(|name| self.servers.get(name));
        servers.flat_map(|server| server.snapshot().tools.clone()).collect()
    }

    fn check_limits(&self) -> Result<()> {
        let limits = &self.agent.limits;
        let zeros = [
            ("calls_per_tool", limits.calls_per_tool == 0),
            ("calls_total", limits.calls_total == 0),
            ("rounds", limits.rounds == 0),
            ("tokens", limits.tokens == Some(0)),
            ("cost_micro_dollars", limits.cost_micro_dollars == Some(0)),
            ("active_ms", limits.active_ms == Some(0)),
            ("argument_bytes", limits.argument_bytes == 0),
            ("calls_per_reply", limits.calls_per_reply == 0),
            ("result_bytes", limits.result_bytes == 0),
        ];
        match zeros.iter().find(|(_, zero)| *zero) {
            Some((key, _)) => Err(self
                .fail(format_args!("`limits.{key}` is 0, with which nothing could run"))
                .hint("leave it out for the default; an agent without tools has `tools = []`")),
            None => Ok(()),
        }
    }
}

impl Built {
    fn agent(&mut self, file: &file::File, at: &At<'_>, protected: &mut Protected) -> Result<()> {
        let agent = at.agent;
        at.check_limits()?;
        let workdir = at.workdir()?;
        let tools = at.tools(workdir.as_ref())?;
        let names: Vec<String> =
            tools.iter().chain(&at.offered()).map(|tool| tool.definition().name.clone()).collect();
        let own: Vec<Policy> = agent.policies.iter().map(|layer| layer.policy(&agent.name)).collect();
        for policy in &own {
            self.warn(
                &format!("policy `{}` of agent `{}`", policy.name, agent.name),
                &policy.rules_without_a_tool(names.iter().map(String::as_str)),
            );
        }
        let own_approvals = agent.policies.iter().flat_map(|layer| &layer.approvals).chain(&agent.approvals);
        self.warn(&format!("agent `{}`", agent.name), &approvals_without_a_tool(own_approvals, &names));
        let mut layers: Vec<Policy> =
            file.policies.iter().filter(|layer| layer.is_for(&agent.name)).map(file::Layer::policy).collect();
        layers.extend(own);
        if layers.is_empty() {
            layers.push(shipped_policy()?);
        }
        let mut builder = Agent::on(&agent.name, at.model(&agent.model)?)
            .instructions(at.instructions(protected)?)
            .tools(tools)
            .execution(agent.execution)
            .on_invalid_call(agent.on_invalid_call)
            .on_new_message(agent.on_new_message)
            .limits(agent.limits.clone())
            .stream(agent.stream);
        for server in agent.mcp.iter().filter_map(|name| at.servers.get(name)) {
            builder = builder.tool_source(Arc::clone(server), |_| true);
        }
        for name in &agent.models {
            builder = builder.also_model(at.model(name)?);
        }
        for layer in layers {
            builder = builder.policy(layer);
        }
        let waits = terms::terms(file, agent, at.presets)?;
        terms::check(agent, &waits, &names)?;
        builder = terms::given(builder, waits, at.presets);
        self.agents.push(builder.build().map_err(|error| Fail::usage(error.to_string()))?);
        self.workdirs.extend(workdir.map(|workdir| (agent.name.clone(), workdir)));
        Ok(())
    }

    /// A layer for several agents is dead only where it matches a tool of none of them.
    fn warn_of_dead_rules(&mut self, layer: &file::Layer) {
        let agents = self.agents.iter().filter(|agent| layer.is_for(agent.name().as_str()));
        let names: Vec<String> = agents.flat_map(|agent| agent.tools().names().to_vec()).collect();
        let dead = layer.policy().rules_without_a_tool(names.iter().map(String::as_str));
        self.warn(&format!("policy `{}`", layer.name), &dead);
        self.warn(&format!("policy `{}`", layer.name), &approvals_without_a_tool(&layer.approvals, &names));
    }

    /// A preset is written for tools by their exact names; one that nobody has is misspelt.
    fn warn_of_dead_releases(&mut self, preset: &Preset) {
        let has = |tool: &str| {
            self.agents.iter().any(|agent| agent.tools().names().iter().any(|name| name == tool))
        };
        let dead: Vec<String> =
            preset.tools().filter(|tool| !has(tool)).map(|tool| format!("tool = \"{tool}\"")).collect();
        self.warn(&preset.to_string(), &dead);
    }

    fn warn(&mut self, whose: &str, rules: &[String]) {
        for rule in rules {
            self.warnings.push(format!(
                "{whose}: the rule {rule} can never apply: no tool has such a name (names are matched whole, case and all)"
            ));
        }
    }
}

/// The patterns of `approvals` that no tool's name fits: what they say of deadlines holds for nothing.
fn approvals_without_a_tool<'a>(
    approvals: impl IntoIterator<Item = &'a file::Approvals>,
    names: &[String],
) -> Vec<String> {
    let patterns = approvals.into_iter().flat_map(|approvals| &approvals.tools);
    let dead = patterns.filter(|pattern| !names.iter().any(|name| pattern.matches(name)));
    dead.map(|pattern| format!("approvals for `{}`", pattern.as_str())).collect()
}
