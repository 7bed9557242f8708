//! Asking a preset, once a deadline has passed: afresh, of the arguments that were shown, and bound by everything that
//! binds a person's approve.

use std::sync::Arc;

use holdpoint_core::arguments::Arguments;
use holdpoint_core::policy::{Preset, Verdict};
use holdpoint_core::terms::AtDeadline;
use holdpoint_protocol::ApprovalRequest;
use holdpoint_store::{Loaded, Noted, PresetDue, Result, RuleRelease};

use crate::RunInfo;
use crate::agent::Agent;
use crate::inner::Inner;
use crate::permission::{Permitted, permitted};

impl Inner {
    /// Closes a request whose deadline has passed: as the preset it names says, or as expired.
    ///
    /// # Errors
    /// When the store cannot be asked; the request is as it was.
    pub(crate) async fn ask_preset(self: &Arc<Self>, due: &PresetDue) -> Result<Option<Noted>> {
        let release = match self.shown(due).await? {
            Some((loaded, request)) => match self.released(due, &loaded, &request).await {
                Ok(preset) => {
                    tracing::info!(request = %due.request, %preset, "released by a preset after its deadline");
                    Some(preset)
                }
                Err(why) => {
                    tracing::info!(request = %due.request, preset = due.preset, why, "not released by the preset; it expires");
                    None
                }
            },
            None => None,
        };
        let release =
            release.map(|preset| RuleRelease { actor: preset.actor().clone(), rule: preset.used() });
        self.store.close_due(&due.cx, due.request, release).await
    }

    /// The run, and the request as it was shown.
    async fn shown(&self, due: &PresetDue) -> Result<Option<(Loaded, ApprovalRequest)>> {
        let Some(loaded) = self.store.load(&due.cx, due.run).await? else { return Ok(None) };
        let Some(interaction) = self.store.interaction(&due.cx, due.request).await? else { return Ok(None) };
        Ok(serde_json::from_str(interaction.request.get()).ok().map(|request| (loaded, request)))
    }

    /// The preset, where it releases the request and nothing stands against that. What does is a reason in words.
    async fn released(
        &self,
        due: &PresetDue,
        loaded: &Loaded,
        request: &ApprovalRequest,
    ) -> std::result::Result<&Preset, &'static str> {
        let agent: &Agent = self.agents.get(loaded.run.agent()).ok_or("the agent is not loaded here")?;
        let index = loaded.run.call_of(due.request).ok_or("the call does not wait for it")?;
        let tools = agent.tools.now();
        let entry = tools.get(&request.tool_name).ok_or("the tool is not loaded here")?;
        if loaded.run.definition(index) != Some(entry.digest) {
            return Err("the tool is defined otherwise now");
        }
        // The stricter of then and now: what was allowed when it was asked may be allowed no more.
        let now = agent.settings.approval.of_approval(&entry.definition).at_deadline;
        if now != Some(AtDeadline::Preset(due.preset.clone())) {
            return Err("the configuration does not ask it any more");
        }
        let preset = agent.preset(&due.preset).ok_or("there is no such preset any more")?;
        let arguments = Arguments::parse(&request.arguments, agent.settings.limits.argument_bytes)
            .map_err(|_| "the arguments cannot be read")?;
        if !preset.releases(&request.tool_name, &arguments) {
            return Err("it does not name this call");
        }
        if agent.policy.rule(&request.tool_name).verdict == Verdict::Deny {
            return Err("policy denies the tool");
        }
        if let Some(permission) = &agent.permission {
            let info = RunInfo::of(&loaded.run);
            match permitted(permission.as_ref(), &info, &entry.definition, arguments.value()).await {
                Permitted::Yes => {}
                Permitted::No(_) => return Err("the caller may not use the tool"),
                Permitted::Failed(_) => return Err("the permission check failed"),
            }
        }
        Ok(preset)
    }
}
