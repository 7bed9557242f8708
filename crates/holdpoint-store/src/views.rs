//! What is shown of runs and requests: made alike by all stores.

use holdpoint_core::run::{Run, Stage};
use holdpoint_protocol::{EventBody, Interaction, Pending, RawJson, RunStatus, RunView, Timestamp};

use crate::facts::{Closure, Request};
use crate::{Error, PAGE_MAX, Result};

/// The rows a page may hold.
pub(crate) fn page_limit(asked: usize) -> usize {
    asked.clamp(1, PAGE_MAX)
}

/// An interaction, with the event that announced it.
pub(crate) fn interaction(run: &Run, request: &Request, event_json: &str) -> Result<Interaction> {
    Ok(Interaction {
        request_id: request.id,
        run_id: request.run,
        agent: run.agent().clone(),
        conversation_id: run.conversation().clone(),
        kind: request.kind,
        status: request.status,
        request: raw(event_json)?,
        seq: request.seq,
        created_at: request.opened_at,
        deadline: request.terms.deadline,
        on_timeout: request.terms.on_timeout(request.kind),
        approvers: request.terms.approvers(request.escalated_at.is_some()),
        escalated_at: request.escalated_at,
        reminders: request.reminders,
        next_reminder: request.remind_at.filter(|_| request.is_open()),
        decision: request.closure.as_ref().map(Closure::view),
    })
}

/// The event that announced a question, with what came too late to answer it.
#[cfg(feature = "postgres")]
pub(crate) fn with_late_result(event_json: &str, result: &str) -> String {
    let fields = event_json.trim_end().strip_suffix('}').unwrap_or(event_json);
    format!("{fields},\"lateResult\":{result}}}")
}

/// A run, with the event that ended it where it has ended.
pub(crate) fn run(
    run: &Run,
    status: RunStatus,
    created_at: Timestamp,
    pending: Vec<Pending>,
    last: Option<&EventBody>,
) -> Result<RunView> {
    let mut view = RunView {
        run_id: run.id(),
        agent: run.agent().clone(),
        conversation_id: run.conversation().clone(),
        actor: run.actor().clone(),
        status,
        finish: None,
        text: None,
        results: None,
        error: None,
        pending,
        usage: Some(run.usage()),
        created_at,
    };
    if let Stage::Finished(finish) = run.stage() {
        view.finish = Some(finish);
    }
    if let Some(EventBody::Finish(finish)) = last {
        view.text = Some(finish.text.clone());
        let results = finish.results.as_ref().map(serde_json::value::to_raw_value).transpose();
        view.results = results.map_err(|error| Error::Corrupt(error.to_string()))?;
    } else if let Some(EventBody::Error(error)) = last {
        view.error = Some(error.clone());
    }
    Ok(view)
}

/// JSON as it was written.
pub(crate) fn raw(json: &str) -> Result<RawJson> {
    serde_json::value::RawValue::from_string(json.to_owned())
        .map_err(|error| Error::Corrupt(format!("a stored event: {error}")))
}
