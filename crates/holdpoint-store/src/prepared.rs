//! A step in the form the durable stores write it.

use std::sync::Arc;

use holdpoint_core::run::{Closed, LedgerLine, Opened};
use holdpoint_protocol::{Event, RunId, RunStatus};

use crate::compact::{self, EntryBuilder};
use crate::{Context, IdempotencyKey, Next, Result, StartRun, Step, ToolSet, Writes, chain};

/// A step, made ready before the database is asked for anything: the JSON is written and pressed.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) run: RunId,
    pub(crate) conversation: String,
    pub(crate) status: RunStatus,
    pub(crate) snapshot: Vec<u8>,
    pub(crate) content: EntryBuilder,
    pub(crate) audit: Vec<String>,
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) opened: Vec<Opened>,
    pub(crate) closed: Vec<Closed>,
    pub(crate) executions: Vec<LedgerLine>,
    pub(crate) committed_round: Option<u32>,
    pub(crate) tools: Option<ToolSet>,
    pub(crate) next: Next,
}

impl Prepared {
    fn new(run: &holdpoint_core::run::Run, writes: &Writes, next: Next, first_seq: u64) -> Result<Self> {
        crate::writes::check(run, writes, first_seq)?;
        Ok(Self {
            run: run.id(),
            conversation: run.conversation().as_str().to_owned(),
            status: crate::writes::status_of(run, next),
            snapshot: match next {
                // The next step overwrites it.
                Next::Keep => compact::write_for_now(run.id(), run)?,
                Next::Suspend | Next::Later(_) | Next::End => compact::write(run.id(), run)?,
            },
            content: EntryBuilder::content(run.id(), &writes.events, &writes.messages)?,
            audit: writes.audit.iter().map(chain::text_of).collect::<Result<_>>()?,
            events: writes.events.clone(),
            opened: writes.opened.clone(),
            closed: writes.closed.clone(),
            executions: writes.executions.clone(),
            committed_round: writes.committed_round,
            tools: writes.tools.clone(),
            next,
        })
    }

    pub(crate) fn start(cx: &Context, start: StartRun) -> Result<(Self, Option<IdempotencyKey>)> {
        crate::writes::check_start(cx, &start.run)?;
        Ok((Self::new(&start.run, &start.writes, start.next, 1)?, start.key))
    }

    pub(crate) fn step(step: &Step<'_>) -> Result<(Self, u64, u64)> {
        let prepared = Self::new(&step.run, &step.writes, step.next, step.expected_seq)?;
        Ok((prepared, step.epoch, step.expected_seq))
    }
}
