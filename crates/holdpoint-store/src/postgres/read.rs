//! Reads. Each is one snapshot where it needs more than one statement.

use std::sync::Arc;

use deadpool_postgres::{GenericClient, Transaction};
use holdpoint_protocol::{
    Event, EventBody, Interaction, InteractionStatus, Page, Pending, RequestId, RunId, RunStatus, RunView,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};
use uuid::Uuid;

use super::error::Fault;
use super::rows::{self, Done, RUN_COLUMNS, RunRow, due, select_request};
use super::shown::{numbered, show};
use super::{PostgresStore, Work};
use crate::chain::{self, Kept};
use crate::clock::from_ms;
use crate::codes::{self, REQUEST_STATUSES};
use crate::compact::Entry;
use crate::facts::Request;
use crate::places::{AgePlace, RunPlace};
use crate::{
    AuditRow, ChainCheck, Context, Error, InteractionFilter, NumberedEvents, PageRequest, RequestHead,
    Result, RunFilter, Stats, stored, views,
};

/// Rows a page looks at. A page that finds less than was asked for among them is short, and says where the next begins.
const LOOKED_AT_MAX: i64 = 2_000;
/// Journal entries read at a time.
const ENTRIES: i64 = 256;

impl PostgresStore {
    pub(super) async fn try_events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Done<Option<NumberedEvents>> {
        let client = self.connection(Work::New).await?;
        let tenant = cx.tenant.as_str();
        let sql = "SELECT 1 FROM run WHERE tenant_id = $1 AND run_id = $2";
        let statement = client.prepare_cached(sql).await?;
        if client.query_opt(&statement, &[&tenant, &run.0]).await?.is_none() {
            return Ok(None);
        }
        let mut events: NumberedEvents = Vec::new();
        let mut from = after;
        loop {
            let found = entries(&client, tenant, run, from, ENTRIES, |entry| entry.events()).await?;
            let more = found.len() as i64 == ENTRIES;
            for (last, entry) in found {
                let first = last + 1 - entry.len() as u64;
                let numbered = (first..).zip(entry).filter(|(seq, _)| *seq > after);
                events.extend(numbered.map(|(seq, json)| (seq, Arc::from(json))));
                from = last;
            }
            if !more || events.len() >= limit {
                events.truncate(limit);
                return Ok(Some(events));
            }
        }
    }

    pub(super) async fn try_request(&self, cx: &Context, id: RequestId) -> Done<Option<RequestHead>> {
        let client = self.connection(Work::New).await?;
        let Some(request) = request(&client, cx.tenant.as_str(), id).await? else { return Ok(None) };
        drop(client);
        // Not in one state of the database: whoever decides compares the run's number anyway.
        let loaded = match request.is_open() {
            true => self.try_load(cx, request.run).await,
            false => Ok(None),
        };
        let loaded = match loaded {
            Err(Fault::Refused(error)) => stored::unless_newer(Err(error))?,
            loaded => loaded?,
        };
        Ok(Some(request.head(loaded)))
    }

    pub(super) async fn try_interaction(&self, cx: &Context, id: RequestId) -> Done<Option<Interaction>> {
        let mut client = self.connection(Work::New).await?;
        let view = snapshot(&mut client).await?;
        match request(&view, cx.tenant.as_str(), id).await? {
            Some(request) => show(&view, cx.tenant.as_str(), &[request]).await?.pop().transpose(),
            None => Ok(None),
        }
    }

    pub(super) async fn try_interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Done<Page<Interaction>> {
        let limit = views::page_limit(page.limit);
        let from = page.cursor.as_deref().map(|cursor| AgePlace::read(&cx.tenant, cursor)).transpose()?;
        let mut client = self.connection(Work::New).await?;
        let view = snapshot(&mut client).await?;
        let tenant = cx.tenant.as_str();
        let (mut found, looked_to) = match filter.run {
            Some(run) => (of_run(&view, tenant, run, filter, from).await?, None),
            None => by_age(&view, tenant, filter, from, limit + 1).await?,
        };
        found.sort_unstable_by_key(AgePlace::of);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(AgePlace::of) } else { looked_to };
        let mut items = Vec::with_capacity(found.len());
        for shown in show(&view, tenant, &found).await? {
            items.extend(stored::readable(shown.map_err(Error::from))?);
        }
        Ok(Page { items, next_cursor: next.map(|place| place.write(&cx.tenant)) })
    }

    pub(super) async fn try_run(&self, cx: &Context, run: RunId) -> Done<Option<RunView>> {
        let client = self.connection(Work::New).await?;
        let tenant = cx.tenant.as_str();
        let sql = format!(
            "SELECT {RUN_COLUMNS}, q.id, q.round, q.index, q.kind FROM run LEFT JOIN LATERAL (\
             SELECT seq AS at, request_id AS id, round, call AS index, kind FROM request \
             WHERE tenant_id = $1 AND run_id = $2 AND status = 0) AS q ON true \
             WHERE tenant_id = $1 AND run_id = $2 ORDER BY q.at"
        );
        let statement = client.prepare_cached(&sql).await?;
        let found = client.query(&statement, &[&tenant, &run.0]).await?;
        let Some(row) = found.first().map(rows::run_row).transpose()? else { return Ok(None) };
        let mut pending = Vec::new();
        for found in &found {
            if let Some(id) = found.try_get::<_, Option<Uuid>>(11)? {
                let (round, index) = (rows::small(found.try_get(12)?), rows::small(found.try_get(13)?));
                let kind = codes::request_kind::read(found.try_get::<_, i16>(14)?.into());
                let kind = kind.map_err(|error| error.about(format_args!("request {id}")));
                let Some(kind) = stored::readable(kind)? else { continue };
                pending.push(Pending {
                    request_id: RequestId(id),
                    call_id: stored::call(run, round, index),
                    kind,
                });
            }
        }
        // The last event of a run that has ended never changes.
        let last = last(&client, tenant, &row).await?;
        Ok(Some(views::run(&row.run, row.status, row.created_at, pending, last.as_ref())?))
    }

    pub(super) async fn try_runs(
        &self,
        cx: &Context,
        filter: &RunFilter,
        page: &PageRequest,
    ) -> Done<Page<RunView>> {
        let limit = views::page_limit(page.limit);
        let before = page.cursor.as_deref().map(|cursor| RunPlace::read(&cx.tenant, cursor)).transpose()?;
        let before = before.map_or(Uuid::max(), |place| place.run.0);
        let mut client = self.connection(Work::New).await?;
        let transaction = snapshot(&mut client).await?;
        let tenant = cx.tenant.as_str();
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM run WHERE tenant_id = $1 AND run_id < $2 ORDER BY run_id DESC LIMIT $3"
        );
        let statement = transaction.prepare_cached(&sql).await?;
        // With a filter more is looked at than is shown.
        let rows = if filter.status.is_some() { LOOKED_AT_MAX } else { limit as i64 + 1 };
        let parameters: [&(dyn ToSql + Sync); 3] = [&tenant, &before, &rows];
        let found = transaction.query(&statement, &parameters).await?;
        let whole = (found.len() as i64) < rows;
        let mut items = Vec::new();
        let mut last = None;
        for row in &found {
            if items.len() == limit {
                return Ok(Page { items, next_cursor: last.map(|run| RunPlace { run }.write(&cx.tenant)) });
            }
            last = Some(RunId(row.try_get(0)?));
            let status = codes::run_status::read(row.try_get::<_, i16>(1)?.into())?;
            if filter.status.is_none_or(|asked| asked == status) {
                let read = match rows::run_row(row) {
                    Ok(row) => view(&transaction, tenant, &row).await,
                    Err(fault) => Err(fault),
                };
                items.extend(stored::listed(filter, read.map_err(Error::from))?);
            }
        }
        let next = last.filter(|_| !whole);
        Ok(Page { items, next_cursor: next.map(|run| RunPlace { run }.write(&cx.tenant)) })
    }

    pub(super) async fn try_audit(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Done<Vec<AuditRow>> {
        let client = self.connection(Work::New).await?;
        Ok(chain::rows(run, records(&client, cx.tenant.as_str(), run).await?, after, limit))
    }

    pub(super) async fn try_verify(&self, cx: &Context, run: RunId) -> Done<Option<ChainCheck>> {
        let mut client = self.connection(Work::New).await?;
        let view = snapshot(&mut client).await?;
        let sql = "SELECT audit_records, audit_hash FROM run WHERE tenant_id = $1 AND run_id = $2";
        let statement = view.prepare_cached(sql).await?;
        let tenant = cx.tenant.as_str();
        let Some(row) = view.query_opt(&statement, &[&tenant, &run.0]).await? else { return Ok(None) };
        let head =
            chain::Head { records: row.try_get::<_, i64>(0)? as u64, hash: rows::bytes(row.try_get(1)?)? };
        Ok(Some(chain::verify(records(&view, tenant, run).await?, &head)))
    }

    pub(super) async fn try_stats(&self) -> Done<Stats> {
        let client = self.connection(Work::New).await?;
        let sql = concat!(
            "SELECT (SELECT count(*) FROM request WHERE status = 0), \
             (SELECT min(opened_at) FROM request WHERE status = 0), \
             (SELECT count(*) FROM run WHERE owner IS NOT NULL), \
             (SELECT count(*) FROM run WHERE status = 5), \
             (SELECT count(*) FROM request WHERE status = 0 AND wait_until IS NOT NULL AND wait_until <= ",
            due!("1"),
            ")"
        );
        let statement = client.prepare_cached(sql).await?;
        let row = client.query_one(&statement, &[&self.given()]).await?;
        let count = |column| row.try_get::<_, i64>(column).map(|count| count as u64);
        Ok(Stats {
            pending: count(0)?,
            oldest_pending: row.try_get::<_, Option<i64>>(1)?.map(from_ms),
            running: count(2)?,
            quarantined: count(3)?,
            overdue: count(4)?,
            ..Stats::default()
        })
    }

    pub(super) async fn try_next_deadline(&self) -> Done<Option<holdpoint_protocol::Timestamp>> {
        let client = self.connection(Work::New).await?;
        // Two indexes, of each its first entry. LEAST passes over a NULL.
        let sql = "SELECT LEAST((SELECT min(deadline) FROM request WHERE status = 0 AND deadline IS NOT NULL), \
                   (SELECT min(escalate_at) FROM request WHERE status = 0 AND escalate_at IS NOT NULL))";
        let statement = client.prepare_cached(sql).await?;
        let next: Option<i64> = client.query_one(&statement, &[]).await?.try_get(0)?;
        Ok(next.map(from_ms))
    }
}

/// All that follows is read from one state of the database.
pub(super) async fn snapshot(client: &mut deadpool_postgres::Client) -> Done<Transaction<'_>> {
    let builder = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    Ok(builder.start().await?)
}

pub(super) async fn run_row(client: &impl GenericClient, tenant: &str, run: RunId) -> Done<Option<RunRow>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM run WHERE tenant_id = $1 AND run_id = $2");
    let statement = client.prepare_cached(&sql).await?;
    client.query_opt(&statement, &[&tenant, &run.0]).await?.as_ref().map(rows::run_row).transpose()
}

pub(super) async fn request(
    client: &impl GenericClient,
    tenant: &str,
    id: RequestId,
) -> Done<Option<Request>> {
    let statement = client.prepare_cached(select_request!("tenant_id = $1 AND request_id = $2")).await?;
    client.query_opt(&statement, &[&tenant, &id.0]).await?.as_ref().map(rows::request).transpose()
}

/// What is wanted of the entries of a run's journal after an event, in order, with the number of their last event.
pub(super) async fn entries<T>(
    client: &impl GenericClient,
    tenant: &str,
    run: RunId,
    after: u64,
    limit: i64,
    wanted: fn(Entry<'_>) -> Result<T>,
) -> Done<Vec<(u64, T)>> {
    let sql = "SELECT seq, body FROM journal WHERE tenant_id = $1 AND run_id = $2 AND seq > $3 ORDER BY seq LIMIT $4";
    let statement = client.prepare_cached(sql).await?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let parameters: [&(dyn ToSql + Sync); 4] = [&tenant, &run.0, &after, &limit];
    let found = client.query(&statement, &parameters).await?;
    let read = |row: &Row| -> Done<_> {
        let seq = row.try_get::<_, i64>(0)? as u64;
        let entry = wanted(Entry::of(run, row.try_get(1)?));
        Ok((seq, entry.map_err(|error| error.about(format_args!("run {run}, what ends with event {seq}")))?))
    };
    found.iter().map(read).collect()
}

/// The event with this number.
async fn event(client: &impl GenericClient, tenant: &str, run: RunId, seq: u64) -> Done<String> {
    match entries(client, tenant, run, seq.saturating_sub(1), 1, |entry| entry.events()).await?.pop() {
        Some((last, events)) => Ok(numbered(run, last, events, seq)?),
        None => Err(Error::Corrupt(format!("event {seq} of run {run} is gone")).into()),
    }
}

/// What is shown of a run.
async fn view(client: &impl GenericClient, tenant: &str, row: &RunRow) -> Done<RunView> {
    let last = last(client, tenant, row).await?;
    let mut pending = Vec::new();
    if last.is_none() {
        let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
        let mut open = of_run(client, tenant, row.run.id(), &filter, None).await?;
        open.sort_unstable_by_key(|request| request.seq);
        pending.extend(open.iter().map(Request::pending));
    }
    Ok(views::run(&row.run, row.status, row.created_at, pending, last.as_ref())?)
}

/// What a run ended with, if it has.
async fn last(client: &impl GenericClient, tenant: &str, row: &RunRow) -> Done<Option<EventBody>> {
    match row.status {
        RunStatus::Finished | RunStatus::Failed => {}
        RunStatus::Running | RunStatus::Suspended | RunStatus::Cancelling | RunStatus::Quarantined => {
            return Ok(None);
        }
    }
    let id = row.run.id();
    let json = event(client, tenant, id, row.next_seq - 1).await?;
    let event = Event::from_json(None, &json);
    let last = event.map_err(|error| Error::Corrupt(format!("the last event of run {id}: {error}")))?.body;
    Ok(Some(last).filter(|body| matches!(body, EventBody::Finish(_) | EventBody::Error(_))))
}

/// A run has few requests: all of them are read.
async fn of_run(
    client: &impl GenericClient,
    tenant: &str,
    run: RunId,
    filter: &InteractionFilter,
    from: Option<AgePlace>,
) -> Done<Vec<Request>> {
    let statement = client.prepare_cached(select_request!("tenant_id = $1 AND run_id = $2")).await?;
    let mut found = Vec::new();
    for row in client.query(&statement, &[&tenant, &run.0]).await? {
        let Some(request) = stored::readable(rows::request(&row).map_err(Error::from))? else { continue };
        if filter.takes(&request) && from.is_none_or(|from| AgePlace::of(&request) > from) {
            found.push(request);
        }
    }
    Ok(found)
}

/// The oldest after a place, of each status that is asked for, and how far was looked where that was not to the end.
async fn by_age(
    client: &impl GenericClient,
    tenant: &str,
    filter: &InteractionFilter,
    from: Option<AgePlace>,
    enough: usize,
) -> Done<(Vec<Request>, Option<AgePlace>)> {
    let sql = select_request!(
        "tenant_id = $1 AND status = $2 AND (opened_at, run_id, seq) > ($3, $4, $5) \
         ORDER BY opened_at, run_id, seq LIMIT $6"
    );
    let statement = client.prepare_cached(sql).await?;
    let (at, run, seq) = match from {
        Some(place) => (place.opened_at_ms, place.run.0, place.seq as i64),
        None => (i64::MIN, Uuid::nil(), 0),
    };
    let rows = if filter.kind.is_some() || filter.group.is_some() { LOOKED_AT_MAX } else { enough as i64 };
    let mut found: Vec<Request> = Vec::new();
    let mut looked_to: Option<AgePlace> = None;
    for status in
        REQUEST_STATUSES.into_iter().filter(|status| filter.status.is_none_or(|asked| asked == *status))
    {
        let code = codes::request_status::code(status) as i16;
        let parameters: [&(dyn ToSql + Sync); 6] = [&tenant, &code, &at, &run, &seq, &rows];
        let read = client.query(&statement, &parameters).await?;
        let mut last = None;
        for row in &read {
            last = Some(rows::age_place(row)?);
            let request = stored::readable(rows::request(row).map_err(Error::from))?;
            found.extend(request.filter(|request| filter.takes(request)));
        }
        if read.len() as i64 == rows {
            looked_to = looked_to.into_iter().chain(last).min();
        }
    }
    if let Some(end) = looked_to {
        // What lies beyond the place where one status stopped is for the next page.
        found.retain(|request| AgePlace::of(request) <= end);
    }
    Ok((found, looked_to))
}

async fn records(client: &impl GenericClient, tenant: &str, run: RunId) -> Done<Vec<Kept>> {
    let sql = "SELECT body FROM journal WHERE tenant_id = $1 AND run_id = $2 ORDER BY seq";
    let statement = client.prepare_cached(sql).await?;
    let mut kept = Vec::new();
    for row in client.query(&statement, &[&tenant, &run.0]).await? {
        kept.extend(Entry::of(run, row.try_get(0)?).audit()?);
    }
    Ok(kept)
}
