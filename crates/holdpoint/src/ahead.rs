//! The step that follows from a decision, made ahead of it: where nothing starts by a decision and nothing ends - others of the
//! batch are still to be decided - it is stored with the decision, and nobody has to take the run up for it.

use std::borrow::Cow;

use holdpoint_core::decision::{Decision, Fact};
use holdpoint_core::run::{Changes, Cx, Input, Standing};
use holdpoint_store::{Loaded, Next, Noted, RequestHead, Step};

use crate::decide::Deciding;
use crate::driver::{open_round, writes};
use crate::ids;
use crate::inner::Inner;

impl Inner {
    /// The step of a run that waits on after this decision. `None` where it does not, and where a
    /// call that waits has another tool by now: whoever takes the run up sees to that.
    pub(crate) fn step_ahead(&self, deciding: &Deciding, asked: &RequestHead) -> Option<Box<Step<'static>>> {
        let loaded = asked.loaded.as_deref()?;
        let agent = self.agents.get(loaded.run.agent())?;
        let tools = agent.tools.now();
        // Those that wait on are still asked about what their tools are: a definition that changed is asked about anew.
        let is_as_it_was = |index| {
            let entry = loaded.run.tool_of(index).and_then(|name| tools.get(name));
            entry.is_none_or(|entry| loaded.run.definition(index) == Some(entry.digest))
        };
        if !loaded.run.pending().iter().all(|pending| is_as_it_was(pending.call_id.index)) {
            return None;
        }
        let (mut run, request, now) = (loaded.run.clone(), deciding.request, self.now());
        let decision = Decision {
            word: deciding.word,
            by: deciding.by.clone(),
            rule: None,
            digest: run.digest_of(run.call_of(request)?)?,
            reason: deciding.reason.clone(),
            arguments: deciding.arguments.clone(),
            result: deciding.result.clone(),
            then: deciding.then,
            at: now,
        };
        let mut facts = loaded.facts.clone();
        facts.push(Fact::Decided { request, decision: Box::new(decision) });
        let mut open = open_round(loaded, agent.settings.limits.argument_bytes);
        let mut cx = Cx { now, settings: &agent.settings, fresh: &mut ids::request_id };
        let mut changes = Changes::default();
        let effects = run.step(&mut open, Input::Facts(facts), &mut cx, &mut changes).ok()?;
        if !effects.is_empty() || run.standing() != Standing::Suspended {
            return None;
        }
        let expected_seq = loaded.next_seq + 1;
        Some(Box::new(Step {
            writes: writes(asked.run, expected_seq, changes),
            run: Cow::Owned(run),
            epoch: loaded.epoch,
            expected_seq,
            next: Next::Suspend,
            progress: true,
        }))
    }
}

/// A run as it stands after a fact that was stored right after what was loaded, and by which this instance took it. `None`
/// where something came in between.
pub(crate) fn with_fact(mut loaded: Loaded, fact: Fact, noted: &Noted) -> Option<Loaded> {
    if noted.event.seq != Some(loaded.next_seq) {
        return None;
    }
    loaded.facts.push(fact);
    loaded.next_seq += 1;
    loaded.epoch = noted.epoch;
    Some(loaded)
}
