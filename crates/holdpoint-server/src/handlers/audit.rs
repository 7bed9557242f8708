//! The record: read, and checked.

use holdpoint::protocol::{Page, RunId};
use holdpoint::store::{AuditRow, ChainCheck, PAGE_MAX, RunFilter};
use serde::Serialize;

use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Records {
    items: Vec<AuditRow>,
    /// The `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    run_id: RunId,
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_at: Option<u64>,
}

/// `GET /v1/audit?run=…`.
pub(super) async fn list(app: &App, call: &Call) -> Result<Answer, Refusal> {
    call.query.only(&["run", "after", "limit"])?;
    let Some(run) = call.query.parsed::<RunId>("run")? else {
        let detail = "`run` says whose chain; every run has one of its own";
        return Err(Refusal::bad_request("no_run", detail));
    };
    let after = call.query.parsed::<u64>("after")?.unwrap_or(0);
    let limit = call.query.page()?.limit;
    if app.store().run(&app.cx, run).await?.is_none() {
        return Err(Refusal::not_found("there is no such run"));
    }
    // One more than asked for tells whether there is a next page.
    let mut items = app.store().audit(&app.cx, run, after, limit + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next_after = if more { items.last().map(|row| row.n) } else { None };
    Ok(Answer::ok(&Records { items, next_after }))
}

/// `GET /v1/audit/verify`: one run, or all of them page by page.
pub(super) async fn verify(app: &App, call: &Call) -> Result<Answer, Refusal> {
    call.query.only(&["run", "cursor", "limit"])?;
    if let Some(run) = call.query.parsed::<RunId>("run")? {
        let checked = check(app, run).await?.ok_or_else(|| Refusal::not_found("there is no such run"))?;
        return Ok(Answer::ok(&Page { items: vec![checked], next_cursor: None }));
    }
    let mut page = call.query.page()?;
    page.limit = page.limit.min(PAGE_MAX / 4);
    // One that cannot be read must not pass for one that is whole.
    let all = RunFilter { status: None, whole: true };
    let runs = app.store().runs(&app.cx, &all, &page).await?;
    let mut items = Vec::with_capacity(runs.items.len());
    for run in &runs.items {
        items.extend(check(app, run.run_id).await?);
    }
    Ok(Answer::ok(&Page { items, next_cursor: runs.next_cursor }))
}

async fn check(app: &App, run: RunId) -> Result<Option<Checked>, Refusal> {
    let check = app.store().verify(&app.cx, run).await?;
    Ok(check.map(|check| match check {
        ChainCheck::Whole { records } => {
            Checked { run_id: run, whole: true, records: Some(records), broken_at: None }
        }
        ChainCheck::Broken { n } => Checked { run_id: run, whole: false, records: None, broken_at: Some(n) },
    }))
}
