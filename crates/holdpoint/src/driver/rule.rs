//! Resolve, validate, permission, policy - when a call is proposed, and again when it is about to start.

use std::sync::Arc;

use holdpoint_core::arguments::Arguments;
use holdpoint_core::run::{Check, Input, Ruled, Slot};

use super::Driver;
use crate::permission::{Permitted, permitted};
use crate::toolset::Entry;

impl Driver {
    /// Rules on every call of the open round that has no answer yet, in order.
    pub(super) async fn rule(&self) -> Vec<Ruled> {
        let mut ruled = Vec::with_capacity(self.open.slots.len());
        for slot in self.open.slots.iter().filter(|slot| slot.result.is_none()) {
            ruled.push(self.rule_one(slot).await);
        }
        ruled
    }

    async fn rule_one(&self, slot: &Slot) -> Ruled {
        let offered = |name: &str| self.offered.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
        let entry = match self.tools.get(&slot.proposed.name) {
            Some(entry) if offered(&entry.definition.name) => entry,
            Some(_) | None => {
                let known = self.tools.names().iter().filter(|name| offered(name)).cloned().collect();
                return Ruled::Unknown { known };
            }
        };
        let arguments =
            match Arguments::parse(&slot.proposed.arguments, self.agent.settings.limits.argument_bytes) {
                Ok(arguments) => arguments,
                Err(why) => return Ruled::Invalid(why),
            };
        if let Err(why) = entry.schema.check(&arguments) {
            return Ruled::Invalid(why);
        }
        match self.permitted(entry, &arguments).await {
            Permitted::Yes => {}
            Permitted::No(forbidden) => return Ruled::Forbidden { code: forbidden.code },
            Permitted::Failed(what) => return Ruled::Failed { what },
        }
        Ruled::Verdict {
            ruling: self.agent.policy.rule(&entry.definition.name),
            tool: Arc::clone(&entry.definition),
            definition: entry.digest,
            arguments,
        }
    }

    /// How things stand for a call now.
    pub(super) async fn check(&self, index: u32) -> Check {
        let Some(slot) = self.open.slots.get(index as usize) else {
            return Check::Failed { what: "there is no such call".into() };
        };
        let Some(arguments) = &slot.arguments else {
            return Check::Failed { what: "the call's arguments are gone".into() };
        };
        let tools = self.agent.tools.now();
        let Some(entry) = tools.get(&slot.proposed.name) else {
            return Check::Unavailable { what: format!("the tool `{}`", slot.proposed.name) };
        };
        if self.run.definition(index) != Some(entry.digest)
            && let Err(why) = entry.schema.check(arguments)
        {
            return Check::Invalid(why);
        }
        match self.permitted(entry, arguments).await {
            Permitted::Yes => {}
            Permitted::No(forbidden) => return Check::Forbidden { code: forbidden.code },
            Permitted::Failed(what) => return Check::Failed { what },
        }
        Check::Now {
            ruling: self.agent.policy.rule(&entry.definition.name),
            tool: Arc::clone(&entry.definition),
            definition: entry.digest,
        }
    }

    /// Whether a call that waits is still what it was when it was asked about: `None` when it is.
    pub(super) fn recheck(&self, index: u32) -> Option<Input> {
        let slot = self.open.slots.get(index as usize)?;
        let tools = self.agent.tools.now();
        // A tool that is gone may come back; what became of it is looked at when the call is to start.
        let entry = tools.get(&slot.proposed.name)?;
        (self.run.definition(index) != Some(entry.digest)).then(|| Input::Changed {
            index,
            tool: Arc::clone(&entry.definition),
            definition: entry.digest,
            ruling: self.agent.policy.rule(&entry.definition.name),
            invalid: slot.arguments.as_ref().and_then(|arguments| entry.schema.check(arguments).err()),
        })
    }

    async fn permitted(&self, entry: &Entry, arguments: &Arguments) -> Permitted {
        match &self.agent.permission {
            None => Permitted::Yes,
            Some(permission) => {
                permitted(permission.as_ref(), &self.info, &entry.definition, arguments.value()).await
            }
        }
    }
}
