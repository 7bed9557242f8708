//! How requests wait, as a configuration says it, and the presets that may decide when nobody does.

use holdpoint::AgentBuilder;
use holdpoint_core::policy::Preset;
use holdpoint_core::terms::{ApprovalTerms, AtDeadline, TermsRule, ToolTerms};
use holdpoint_protocol::{ActorId, GroupName};

use crate::fail::{Fail, Result};

use super::file::{self, OnTimeout};
use super::read::nearest;
use super::time::Span;

/// What presets of a file are written by: the file speaks for whoever may write it, and for no person.
const AUTHOR: &str = "configuration";

/// Reads the presets of a file.
pub(super) fn presets(file: &file::File) -> Result<Vec<Preset>> {
    let author = ActorId::new(AUTHOR).map_err(|error| Fail::new(error.to_string()))?;
    let mut presets: Vec<Preset> = Vec::new();
    for preset in &file.presets {
        let read = Preset::new(&preset.name, author.clone(), preset.releases.clone());
        let read = read.map_err(|error| Fail::usage(error.to_string()))?;
        if presets.iter().any(|known| known.name() == read.name()) {
            return Err(Fail::usage(format!("two presets are named `{}`", read.name())).hint("rename one"));
        }
        presets.push(read);
    }
    Ok(presets)
}

/// One place where it is said how requests wait.
struct Said<'a> {
    /// Whose section it is, for messages.
    whose: String,
    /// What the time is called there.
    timeout_key: &'static str,
    timeout: Option<Span>,
    on_timeout: Option<OnTimeout>,
    preset: Option<&'a str>,
    remind_every: Option<Span>,
    approvers: Option<&'a [GroupName]>,
    escalate_to: Option<&'a [GroupName]>,
}

impl<'a> Said<'a> {
    fn of_agent(agent: &'a file::Agent) -> Self {
        Self {
            whose: format!("agent `{}`", agent.name),
            timeout_key: "approval_timeout",
            timeout: agent.approval_timeout,
            on_timeout: agent.on_timeout,
            preset: agent.preset.as_deref(),
            remind_every: agent.remind_every,
            approvers: agent.approvers.as_deref(),
            escalate_to: agent.escalate_to.as_deref(),
        }
    }

    fn of(whose: &str, terms: &'a file::Approvals) -> Self {
        let tools: Vec<&str> = terms.tools.iter().map(|glob| glob.as_str()).collect();
        Self {
            whose: format!("{whose}, `approvals` for `{}`", tools.join("`, `")),
            timeout_key: "timeout",
            timeout: terms.timeout,
            on_timeout: terms.on_timeout,
            preset: terms.preset.as_deref(),
            remind_every: terms.remind_every,
            approvers: terms.approvers.as_deref(),
            escalate_to: terms.escalate_to.as_deref(),
        }
    }

    fn fail(&self, what: impl std::fmt::Display) -> Fail {
        Fail::usage(format!("{}: {what}", self.whose))
    }

    fn rule(&self, presets: &[Preset]) -> Result<TermsRule> {
        let at_deadline = match (self.on_timeout, self.preset) {
            (Some(OnTimeout::Deny), None) => Some(AtDeadline::Deny),
            (Some(OnTimeout::Wait), None) => Some(AtDeadline::Wait),
            (None, None) => None,
            (Some(OnTimeout::Policy), Some(name)) => {
                if !presets.iter().any(|preset| preset.name() == name) {
                    let near = nearest(name, presets.iter().map(Preset::name));
                    return Err(self.fail(format_args!("there is no preset `{name}`")).hint(match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "write it as `[[presets]]`".to_owned(),
                    }));
                }
                Some(AtDeadline::Preset(name.to_owned()))
            }
            (Some(OnTimeout::Policy), None) => {
                return Err(self
                    .fail("`on_timeout = \"policy\"` does not say which preset decides")
                    .hint("name one of `[[presets]]` with `preset`"));
            }
            (Some(OnTimeout::Deny | OnTimeout::Wait) | None, Some(_)) => {
                return Err(self
                    .fail("`preset` goes with `on_timeout = \"policy\"`")
                    .hint("leave `preset` out, or write `on_timeout = \"policy\"` beside it"));
            }
        };
        for (key, groups) in [("approvers", self.approvers), ("escalate_to", self.escalate_to)] {
            if groups.is_some_and(<[GroupName]>::is_empty) {
                return Err(self
                    .fail(format_args!("`{key}` names nobody"))
                    .hint("leave it out, or name a group"));
            }
        }
        let ms = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        Ok(TermsRule {
            timeout_ms: self.timeout.map(ms),
            at_deadline,
            remind_every_ms: self.remind_every.map(ms),
            approvers: self.approvers.map(<[GroupName]>::to_vec),
            escalate_to: self.escalate_to.map(<[GroupName]>::to_vec),
        })
    }
}

fn of_tools(whose: &str, all: &[file::Approvals], presets: &[Preset]) -> Result<Vec<ToolTerms>> {
    let read = |terms: &file::Approvals| {
        if terms.tools.is_empty() {
            return Err(Fail::usage(format!("{whose}: `approvals` without `tools` are for no tool"))
                .hint("name the tools, by name or glob"));
        }
        Ok(ToolTerms { tools: terms.tools.clone(), rule: Said::of(whose, terms).rule(presets)? })
    };
    all.iter().map(read).collect()
}

/// What a file says of how the requests of an agent wait.
pub(super) fn terms(file: &file::File, agent: &file::Agent, presets: &[Preset]) -> Result<ApprovalTerms> {
    let own = Said::of_agent(agent);
    let mut layers = Vec::new();
    for layer in file.policies.iter().filter(|layer| layer.is_for(&agent.name)) {
        layers.extend(of_tools(&format!("policy `{}`", layer.name), &layer.approvals, presets)?);
    }
    for layer in &agent.policies {
        let whose = format!("policy `{}` of agent `{}`", layer.policy(&agent.name).name, agent.name);
        layers.extend(of_tools(&whose, &layer.approvals, presets)?);
    }
    let tools = of_tools(&own.whose, &agent.approvals, presets)?;
    Ok(ApprovalTerms { agent: own.rule(presets)?, tools, layers, ..ApprovalTerms::default() })
}

/// Refuses what would never come to pass: something is to happen at a deadline that there is not. (A layer may say how strict the
/// end is at least, whether there is one or not; and reminders come without a deadline, too.)
pub(super) fn check(agent: &file::Agent, terms: &ApprovalTerms, tools: &[String]) -> Result<()> {
    let own = ApprovalTerms { layers: Vec::new(), ..terms.clone() };
    for tool in tools {
        let rule = terms.of(tool);
        if rule.timeout_ms.is_some() {
            continue;
        }
        let what = match (&rule.at_deadline, &rule.escalate_to, own.of(tool).at_deadline) {
            (Some(AtDeadline::Preset(name)), _, _) => format!("preset `{name}` would never be asked"),
            (_, Some(_), _) => "`escalate_to` would never be told".to_owned(),
            (_, None, Some(_)) => "`on_timeout` would never be looked at".to_owned(),
            (_, None, None) => continue,
        };
        let own = Said::of_agent(agent);
        return Err(own
            .fail(format_args!("{what} of a call of `{tool}`: there is no deadline for it"))
            .hint(format!("set `{}`", own.timeout_key)));
    }
    Ok(())
}

/// Gives an agent what was read.
pub(super) fn given(builder: AgentBuilder, terms: ApprovalTerms, presets: &[Preset]) -> AgentBuilder {
    let mut builder = builder.approval_terms(terms.agent);
    for terms in terms.tools {
        builder = builder.approval_terms_of(terms);
    }
    for terms in terms.layers {
        builder = builder.approval_terms_at_most(terms);
    }
    presets.iter().fold(builder, |builder, preset| builder.preset(preset.clone()))
}
