//! What a run came to, for whoever waits for it without a stream.

use std::sync::Arc;

use holdpoint::protocol::{
    Finish, FinishStatus, Interaction, InteractionStatus, RunError, RunId, RunStatus, RunView,
};
use holdpoint::store::{InteractionFilter, PAGE_MAX, PageRequest};
use holdpoint::{Ended, RunState};
use http::StatusCode;
use serde::Serialize;

use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finished<'a> {
    run_id: RunId,
    conversation_id: &'a str,
    #[serde(flatten)]
    finish: &'a Finish,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting<'a> {
    status: &'static str,
    run_id: RunId,
    conversation_id: &'a str,
    interactions: Vec<Interaction>,
}

/// Waits until the run ends or needs a person, and says which. Whoever goes away meanwhile cancels nothing.
pub(super) async fn wait(app: &Arc<App>, run: RunId) -> Result<Answer, Refusal> {
    loop {
        let outcome = tokio::select! {
            biased;
            () = app.closing.cancelled() => return Err(Refusal::stopping().with("runId", run)),
            outcome = app.runtime.wait(&app.cx, run) => outcome,
        };
        let outcome = outcome.map_err(|error| Refusal::from(error).with("runId", run))?;
        let view = view(app, run).await?;
        match outcome.state {
            RunState::Ended(Ended::Finished(finish)) => return Ok(finished(&view, &finish)),
            RunState::Ended(Ended::Failed(error)) => return Err(failed(run, error)),
            RunState::Suspended { .. } => {
                let interactions = pending(app, run).await?;
                match (interactions.is_empty(), view.status) {
                    (false, _) => return Ok(waiting("suspended", &view, interactions)),
                    (true, RunStatus::Quarantined) => return Ok(waiting("quarantined", &view, interactions)),
                    // Decided between the two reads: the run goes on, and so does the wait.
                    (
                        true,
                        RunStatus::Running
                        | RunStatus::Suspended
                        | RunStatus::Cancelling
                        | RunStatus::Finished
                        | RunStatus::Failed,
                    ) => {}
                }
            }
        }
    }
}

fn finished(view: &RunView, finish: &Finish) -> Answer {
    // Every end is an answer; only a failure is none. The status says which end it was.
    let status = match finish.status {
        FinishStatus::Success
        | FinishStatus::Stopped
        | FinishStatus::LimitExceeded
        | FinishStatus::Cancelled
        | FinishStatus::Superseded => StatusCode::OK,
    };
    let body = Finished { run_id: view.run_id, conversation_id: view.conversation_id.as_str(), finish };
    Answer::json(status, &body)
}

fn waiting(status: &'static str, view: &RunView, interactions: Vec<Interaction>) -> Answer {
    let body =
        Waiting { status, run_id: view.run_id, conversation_id: view.conversation_id.as_str(), interactions };
    Answer::json(StatusCode::ACCEPTED, &body)
}

fn failed(run: RunId, error: RunError) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, "run_failed", error.message.clone())
        .with("runId", run)
        .with("error", error)
}

async fn view(app: &App, run: RunId) -> Result<RunView, Refusal> {
    app.store().run(&app.cx, run).await?.ok_or_else(|| Refusal::not_found("there is no such run"))
}

/// The open requests of a run, oldest first.
pub(crate) async fn pending(app: &App, run: RunId) -> Result<Vec<Interaction>, Refusal> {
    let filter = InteractionFilter {
        run: Some(run),
        status: Some(InteractionStatus::Pending),
        ..InteractionFilter::default()
    };
    // A reply holds fewer calls than a page rows.
    let page = PageRequest { limit: PAGE_MAX, ..PageRequest::default() };
    Ok(app.store().interactions(&app.cx, &filter, &page).await?.items)
}
