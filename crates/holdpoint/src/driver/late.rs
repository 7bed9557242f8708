//! Results of tools whose run was taken over while they ran. They do not count - whoever has the run has asked a person what became
//! of the call by now - and they are kept with that question: nobody knows more about it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::run::{Input, ToolEnd};
use holdpoint_protocol::{CallId, InteractionKind, InteractionStatus, RawJson, RequestId, RunId};
use holdpoint_store::{Context, InteractionFilter, PAGE_MAX, PageRequest, Result};
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc};

use super::{CANCEL_GRACE, Inbox};
use crate::inner::Inner;

/// How often is looked whether the question is asked yet, and for how long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_MAX: u32 = 60;
/// Runs whose late results are held at a time; those of others are let go.
const HELD_MAX: usize = 64;
static HELD: Semaphore = Semaphore::const_new(HELD_MAX);

/// How an execution ended that does not count.
struct Late {
    call: CallId,
    attempt: u32,
    result: RawJson,
}

/// What is read of an in-doubt question.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    call_id: CallId,
    attempt: u32,
}

/// Keeps what `inputs` bring and what the tools that still run send to `inbox`, which have been told to stop.
pub(super) async fn keep(
    rt: Arc<Inner>,
    cx: Context,
    run: RunId,
    round: u32,
    inputs: Vec<Input>,
    running: HashSet<u32>,
    inbox: mpsc::Receiver<Inbox>,
) {
    let Ok(_held) = HELD.try_acquire() else {
        return tracing::warn!(%run, "too many late results are held; those of this run are let go");
    };
    let late = gather(inputs, running, inbox).await;
    let mut late: Vec<Late> = late
        .into_iter()
        .filter_map(|(index, attempt, end)| evidence(run, round, index, attempt, end))
        .collect();
    for _ in 0..LOOKS_MAX {
        match keep_those(&rt, &cx, run, &mut late).await {
            Ok(()) if late.is_empty() => return,
            Ok(()) => {}
            Err(error) => tracing::debug!(%run, %error, "a late result is not kept yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = rt.shutdown.cancelled() => return,
        }
    }
    tracing::warn!(%run, "a late result was let go: nobody asked what became of its call");
}

async fn gather(
    inputs: Vec<Input>,
    mut running: HashSet<u32>,
    mut inbox: mpsc::Receiver<Inbox>,
) -> Vec<(u32, u32, ToolEnd)> {
    let until = tokio::time::Instant::now() + CANCEL_GRACE;
    let mut ends: Vec<_> = inputs.into_iter().filter_map(end_of).collect();
    while !running.is_empty() {
        let Ok(Some(message)) = tokio::time::timeout_at(until, inbox.recv()).await else { break };
        let Inbox::Input(input) = message else { continue };
        if let Some(end) = end_of(input) {
            running.remove(&end.0);
            ends.push(end);
        }
    }
    ends
}

fn end_of(input: Input) -> Option<(u32, u32, ToolEnd)> {
    match input {
        Input::Finished { index, attempt, end } => Some((index, attempt, end)),
        Input::Start { .. }
        | Input::Invoke { .. }
        | Input::Replied { .. }
        | Input::ModelFailed { .. }
        | Input::Ruled(_)
        | Input::Changed { .. }
        | Input::Facts(_)
        | Input::Checked { .. }
        | Input::Progress { .. }
        | Input::Probed { .. }
        | Input::Recovered { .. }
        | Input::Unavailable { .. }
        | Input::GraceOver => None,
    }
}

/// What it tells a person: a result, or how else it ended.
fn evidence(run: RunId, round: u32, index: u32, attempt: u32, end: ToolEnd) -> Option<Late> {
    let (code, message, not_executed) = match end {
        ToolEnd::Output(content) | ToolEnd::Replayed { content, .. } => {
            let call = CallId { run, round, index };
            return Some(Late { call, attempt, result: content.to_raw_json() });
        }
        ToolEnd::Error { code, message, not_executed } => (code, message, not_executed),
        ToolEnd::Lost { code, message } => (code, message, false),
        ToolEnd::TimedOut => ("timed_out".into(), "it did not end in its time".into(), false),
        ToolEnd::Panicked => ("panicked".into(), "it broke down".into(), false),
        ToolEnd::Cancelled => {
            let why =
                "it was told to stop when its run was taken over, and did; what it had done by then stays";
            ("cancelled".into(), why.into(), false)
        }
    };
    let said =
        serde_json::json!({ "error": { "code": code, "message": message }, "notExecuted": not_executed });
    let result = serde_json::value::to_raw_value(&said).ok()?;
    Some(Late { call: CallId { run, round, index }, attempt, result })
}

/// Keeps those whose question is asked, and leaves the others.
async fn keep_those(rt: &Inner, cx: &Context, run: RunId, late: &mut Vec<Late>) -> Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    let filter = InteractionFilter {
        status: Some(InteractionStatus::Pending),
        run: Some(run),
        kind: Some(InteractionKind::InDoubt),
        group: None,
    };
    let page = PageRequest { limit: PAGE_MAX, ..PageRequest::default() };
    for interaction in rt.store.interactions(cx, &filter, &page).await?.items {
        let Ok(asked) = serde_json::from_str::<Asked>(interaction.request.get()) else { continue };
        let is_it = |late: &Late| late.call == asked.call_id && late.attempt == asked.attempt;
        if let Some(at) = late.iter().position(is_it) {
            keep_one(rt, cx, interaction.request_id, &late[at]).await?;
            late.remove(at);
        }
    }
    Ok(())
}

async fn keep_one(rt: &Inner, cx: &Context, request: RequestId, late: &Late) -> Result<()> {
    if rt.store.keep_late(cx, request, &late.result).await? {
        tracing::warn!(call = %late.call, %request, "a result came too late to count; it is kept with the question");
        rt.hub.desks().heard_of(&[request]);
    }
    Ok(())
}
