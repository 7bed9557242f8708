//! What is shown of requests: each with its run and the event that announced it, a whole page with one query.

use deadpool_postgres::GenericClient;
use holdpoint_protocol::{Interaction, RunId};
use uuid::Uuid;

use super::rows::{self, Done, RUN_COLUMNS};
use crate::compact::Entry;
use crate::facts::Request;
use crate::{Error, Result, views};

/// The requests as they are shown, in the same order. Each can fail by itself: a newer version may have written its run.
pub(super) async fn show(
    client: &impl GenericClient,
    tenant: &str,
    requests: &[Request],
) -> Done<Vec<Done<Interaction>>> {
    let sql = format!(
        "SELECT of_run.*, announced.last, announced.body, wanted.n, late.result \
         FROM unnest($2::uuid[], $3::bigint[], $4::uuid[]) WITH ORDINALITY AS wanted(run, event, request, n) \
         JOIN LATERAL (SELECT {RUN_COLUMNS} FROM run WHERE tenant_id = $1 AND run_id = wanted.run) AS of_run ON true \
         JOIN LATERAL (SELECT seq AS last, body FROM journal WHERE tenant_id = $1 AND run_id = wanted.run \
         AND seq >= wanted.event ORDER BY seq LIMIT 1) AS announced ON true \
         LEFT JOIN late_result late ON late.tenant_id = $1 AND late.run_id = wanted.run \
         AND late.request_id = wanted.request ORDER BY wanted.n"
    );
    let statement = client.prepare_cached(&sql).await?;
    let runs: Vec<Uuid> = requests.iter().map(|request| request.run.0).collect();
    let events: Vec<i64> = requests.iter().map(|request| request.seq as i64).collect();
    let ids: Vec<Uuid> = requests.iter().map(|request| request.id.0).collect();
    let found = client.query(&statement, &[&tenant, &runs, &events, &ids]).await?;
    let mut rows = found.iter().peekable();
    let mut shown = Vec::with_capacity(requests.len());
    for (n, request) in (1_i64..).zip(requests) {
        let row = rows.next_if(|row| row.try_get::<_, i64>(13).is_ok_and(|at| at == n));
        shown.push(match row {
            Some(row) => one(row, request),
            None => Err(Error::Corrupt(format!("request {} has no run or no event", request.id)).into()),
        });
    }
    Ok(shown)
}

fn one(row: &tokio_postgres::Row, request: &Request) -> Done<Interaction> {
    let run = rows::run_row(row)?;
    let events = Entry::of(request.run, row.try_get(12)?).events()?;
    let json = numbered(request.run, row.try_get::<_, i64>(11)? as u64, events, request.seq)?;
    let json = match row.try_get::<_, Option<&str>>(14)? {
        Some(late) => views::with_late_result(&json, late),
        None => json,
    };
    Ok(views::interaction(&run.run, request, &json)?)
}

/// The event with this number, of those of an entry that ends with the event `last`.
pub(super) fn numbered(run: RunId, last: u64, events: Vec<String>, seq: u64) -> Result<String> {
    let first = last + 1 - events.len() as u64;
    let found = (first..).zip(events).find(|(at, _)| *at == seq);
    found.map(|(_, json)| json).ok_or_else(|| Error::Corrupt(format!("event {seq} of run {run} is gone")))
}
