//! What must hold of a step before anything of it is written.

use holdpoint_core::run::{LedgerLine, Run, Standing};
use holdpoint_protocol::{RequestId, RunId, RunStatus};

use crate::facts::Request;
use crate::{Context, Error, Next, Result, Writes};

/// Checks what can be checked without looking at what is stored. A step that fails here was put together wrongly;
/// it is refused as a whole.
pub(crate) fn check(run: &Run, writes: &Writes, first_seq: u64) -> Result<()> {
    for (seq, event) in (first_seq..).zip(&writes.events) {
        if event.seq != Some(seq) || !event.body.is_durable() {
            return Err(Error::Inconsistent(format!("event {seq} of run {} is out of place", run.id())));
        }
    }
    for (place, closed) in writes.closed.iter().enumerate() {
        if writes.closed[..place].iter().any(|before| before.request == closed.request) {
            return Err(Error::Inconsistent(format!("request {} is closed twice", closed.request)));
        }
    }
    for (place, opened) in writes.opened.iter().enumerate() {
        if writes.opened[..place].iter().any(|before| before.request == opened.request) {
            return Err(Error::Inconsistent(format!("request {} is opened twice", opened.request)));
        }
        let announced = writes.events.get(opened.event).and_then(|event| event.body.opens());
        if announced != Some(opened.request) || opened.call.run != run.id() {
            return Err(Error::Inconsistent(format!("request {} is announced by no event", opened.request)));
        }
    }
    let foreign = writes.executions.iter().any(|line| match line {
        LedgerLine::Started { call, .. } | LedgerLine::Ended { call, .. } => call.run != run.id(),
    });
    if foreign {
        return Err(Error::Inconsistent(format!("a line of the ledger is not of run {}", run.id())));
    }
    Ok(())
}

/// How a run that is not set aside stands, for the lists. A run that is left without an owner waits, whatever it waits for.
pub(crate) fn status_of(run: &Run, next: Next) -> RunStatus {
    match (run.standing(), next) {
        (Standing::Finished, _) => RunStatus::Finished,
        (Standing::Failed, _) => RunStatus::Failed,
        (Standing::Cancelling, _) => RunStatus::Cancelling,
        (Standing::Suspended, _) => RunStatus::Suspended,
        (Standing::SetAside, _) => RunStatus::Quarantined,
        (Standing::Working, Next::Suspend) => RunStatus::Suspended,
        (Standing::Working, Next::Keep | Next::Later(_) | Next::End) => RunStatus::Running,
    }
}

/// A run is started for the one who asks, and for nobody else.
pub(crate) fn check_start(cx: &Context, run: &Run) -> Result<()> {
    if *run.tenant() == cx.tenant && *run.actor() == cx.actor {
        Ok(())
    } else {
        Err(Error::Inconsistent(format!("run {} is started on behalf of somebody else", run.id())))
    }
}

/// A run ends with its last request closed: nothing of it can be decided afterwards.
pub(crate) fn check_end(run: RunId, next: Next, open: usize, closed: usize) -> Result<()> {
    if next == Next::End && open != closed {
        return Err(Error::Inconsistent(format!("run {run} would end with a request open")));
    }
    Ok(())
}

/// A run closes requests of its own that are open. Facts were applied before: none of them closed one of these.
pub(crate) fn check_closed(run: RunId, closed: RequestId, request: Option<&Request>) -> Result<()> {
    if request.is_some_and(|request| request.run == run && request.is_open()) {
        Ok(())
    } else {
        Err(Error::Inconsistent(format!("request {closed} of run {run} is not open")))
    }
}
