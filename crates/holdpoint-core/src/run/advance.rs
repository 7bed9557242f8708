//! What is next: start what may start, suspend when only people can go on, commit the round when all is answered.

use holdpoint_protocol::{EventBody, Executed, InteractionKind, Resumed, Suspended};

use super::state::{CallState, Ending as RunEnding, Execution};
use super::step::Stepper;
use super::{Effect, Stage};
use crate::wording::Ending;

impl Stepper<'_> {
    pub(super) fn advance(&mut self) {
        if self.run.stage != Stage::Answering {
            return;
        }
        if self.run.ending.is_some() {
            self.wind_down();
        }
        if self.run.set_aside.is_some() {
            return;
        }
        if self.run.calls.iter().all(|call| call.is_settled()) {
            self.resume();
            self.commit_round();
            return;
        }
        let startable = self.startable();
        if !startable.is_empty() {
            self.resume();
            self.effects.extend(startable.into_iter().map(|index| Effect::Check { index }));
        } else if !self.anything_runs() {
            self.suspend();
        }
    }

    /// The calls whose turn it is.
    fn startable(&self) -> Vec<u32> {
        let calls = (0u32..).zip(&self.run.calls);
        let cleared = |state: &CallState| matches!(state, CallState::Cleared { .. });
        let in_order = || {
            (0u32..)
                .zip(&self.run.calls)
                .find(|(_, call)| !call.is_settled())
                .filter(|(_, call)| cleared(&call.state))
                .map(|(index, _)| index)
                .into_iter()
                .collect()
        };
        match self.settings.execution {
            Execution::Sequential => in_order(),
            Execution::Parallel => {
                calls.filter(|(_, call)| cleared(&call.state)).map(|(index, _)| index).collect()
            }
            Execution::Hold => {
                let undecided = self.run.calls.iter().any(|call| match call.state {
                    CallState::Waiting { kind, .. } => kind != InteractionKind::InDoubt,
                    CallState::Proposed
                    | CallState::Cleared { .. }
                    | CallState::Executing { .. }
                    | CallState::Probing { .. }
                    | CallState::Settled { .. } => false,
                });
                if undecided { Vec::new() } else { in_order() }
            }
        }
    }

    fn anything_runs(&self) -> bool {
        self.run
            .calls
            .iter()
            .any(|call| matches!(call.state, CallState::Executing { .. } | CallState::Probing { .. }))
    }

    fn suspend(&mut self) {
        if !self.run.suspended {
            self.run.suspended = true;
            let interactions = self.run.pending();
            self.event(EventBody::Suspended(Suspended { interactions }));
        }
    }

    pub(super) fn resume(&mut self) {
        if self.run.suspended {
            self.run.suspended = false;
            self.event(EventBody::Resumed(Resumed { by: self.cause.into() }));
        }
    }

    /// The run is on its way to an end: nothing more starts, what waits is closed, what runs is let finish.
    fn wind_down(&mut self) {
        let superseding = matches!(self.run.ending, Some(RunEnding::Supersede { .. }));
        self.withdraw_set_aside();
        for index in 0..self.run.calls.len() as u32 {
            match self.call(index).state {
                // A doubt is never superseded: somebody has to say what became of the call.
                CallState::Waiting { kind: InteractionKind::InDoubt, .. } if superseding => {}
                CallState::Waiting { .. } => self.withdraw(index),
                CallState::Proposed | CallState::Cleared { .. } => {
                    let ending = if superseding {
                        Ending::Superseded
                    } else {
                        Ending::Cancelled { executed: Executed::No }
                    };
                    self.settle_as(index, &ending);
                }
                CallState::Executing { .. } | CallState::Probing { .. } | CallState::Settled { .. } => {}
            }
        }
    }
}
