//! Pages, and figures.

use holdpoint_protocol::{
    ActorId, Interaction, InteractionStatus, Page, RequestId, RunView, TenantId, Timestamp,
};
use rusqlite::params;

use super::read::{RUN_COLUMNS, run_row};
use super::readers::Reader;
use super::rows::{self, select_request};
use crate::chain::ms;
use crate::clock::from_ms;
use crate::codes::{self, REQUEST_STATUSES};
use crate::facts::Request;
use crate::places::{AgePlace, RunPlace};
use crate::version::snapshot_version;
use crate::{
    Context, Error, InteractionFilter, PageRequest, PresetDue, Result, RunFilter, Stats, Taken, stored, views,
};

/// Rows a page looks at. A page that finds less than was asked for among them is short, and says where the next begins.
const LOOKED_AT_MAX: usize = 10_000;

impl Reader {
    pub(super) fn interactions(
        &self,
        name: &TenantId,
        tenant: i64,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        let limit = views::page_limit(page.limit);
        let from = page.cursor.as_deref().map(|cursor| AgePlace::read(name, cursor)).transpose()?;
        let (mut found, looked_to) = match filter.run {
            Some(_) => (self.requests_of_run(tenant, filter, from)?, None),
            None => self.requests_by_age(tenant, filter, from, limit + 1)?,
        };
        found.sort_unstable_by_key(AgePlace::of);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(AgePlace::of) } else { looked_to };
        let mut items = Vec::with_capacity(found.len());
        for request in &found {
            items.extend(stored::readable(self.show(tenant, request))?);
        }
        Ok(Page { items, next_cursor: next.map(|place| place.write(name)) })
    }

    pub(super) fn show(&self, tenant: i64, request: &Request) -> Result<Interaction> {
        let run = self.row(tenant, request.run)?;
        let run = run.ok_or_else(|| Error::Corrupt(format!("request {} has no run", request.id)))?;
        let event = self.event(tenant, request.run, request.seq)?;
        views::interaction(&run.run, request, &event)
    }

    /// A run has few requests: all of them are read.
    fn requests_of_run(
        &self,
        tenant: i64,
        filter: &InteractionFilter,
        from: Option<AgePlace>,
    ) -> Result<Vec<Request>> {
        let Some(run) = filter.run else { return Ok(Vec::new()) };
        let mut statement = self.connection.prepare_cached(select_request!("tenant = ?1 AND run = ?2"))?;
        let mut rows = statement.query(params![tenant, run.0.as_bytes()])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(request) = stored::readable(rows::request(row).map_err(Error::from))? else { continue };
            if filter.takes(&request) && from.is_none_or(|from| AgePlace::of(&request) > from) {
                found.push(request);
            }
        }
        Ok(found)
    }

    /// The oldest after a place, of each status that is asked for, and how far was looked where that was not to the end.
    fn requests_by_age(
        &self,
        tenant: i64,
        filter: &InteractionFilter,
        from: Option<AgePlace>,
        enough: usize,
    ) -> Result<(Vec<Request>, Option<AgePlace>)> {
        let mut found = Vec::new();
        let mut looked_to: Option<AgePlace> = None;
        for status in
            REQUEST_STATUSES.into_iter().filter(|status| filter.status.is_none_or(|asked| asked == *status))
        {
            let stopped = self.requests_of_status(tenant, status, filter, from, enough, &mut found)?;
            looked_to = match (looked_to, stopped) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if let Some(end) = looked_to {
            // What lies beyond the place where one status stopped is for the next page.
            found.retain(|request| AgePlace::of(request) <= end);
        }
        Ok((found, looked_to))
    }

    fn requests_of_status(
        &self,
        tenant: i64,
        status: InteractionStatus,
        filter: &InteractionFilter,
        from: Option<AgePlace>,
        enough: usize,
        found: &mut Vec<Request>,
    ) -> Result<Option<AgePlace>> {
        let sql = select_request!(
            "tenant = ?1 AND status = ?2 AND (opened_at, run, seq) > (?3, ?4, ?5) ORDER BY opened_at, run, seq"
        );
        let (at, run, seq) = match from {
            Some(place) => (place.opened_at_ms, *place.run.0.as_bytes(), place.seq as i64),
            None => (i64::MIN, [0; 16], 0),
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![tenant, codes::request_status::code(status), at, run, seq])?;
        let mut fits = 0;
        for looked_at in 1.. {
            let Some(row) = rows.next()? else { return Ok(None) };
            let place = rows::age_place(row)?;
            let request = stored::readable(rows::request(row).map_err(Error::from))?;
            if let Some(request) = request.filter(|request| filter.takes(request)) {
                found.push(request);
                fits += 1;
            }
            if fits == enough || looked_at == LOOKED_AT_MAX {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    pub(super) fn runs(
        &self,
        name: &TenantId,
        tenant: i64,
        filter: &RunFilter,
        page: &PageRequest,
    ) -> Result<Page<RunView>> {
        let limit = views::page_limit(page.limit);
        let before = page.cursor.as_deref().map(|cursor| RunPlace::read(name, cursor)).transpose()?;
        let before = before.map_or([0xff; 17].to_vec(), |place| place.run.0.as_bytes().to_vec());
        let sql = format!("SELECT {RUN_COLUMNS} FROM run WHERE tenant = ?1 AND id < ?2 ORDER BY id DESC");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![tenant, before])?;
        let mut items = Vec::new();
        let mut last = None;
        let mut looked_at = 0;
        while let Some(row) = rows.next()? {
            if items.len() == limit || looked_at == LOOKED_AT_MAX {
                let next_cursor = last.map(|run| RunPlace { run }.write(name));
                return Ok(Page { items, next_cursor });
            }
            looked_at += 1;
            last = Some(rows::run_id(row, 0)?);
            let status = codes::run_status::read(row.get(1)?)?;
            if filter.status.is_none_or(|asked| asked == status) {
                let read = run_row(row).and_then(|row| self.view(tenant, &row));
                items.extend(stored::listed(filter, read)?);
            }
        }
        Ok(Page { items, next_cursor: None })
    }

    pub(super) fn stats(&self, incarnation: i64, now: Timestamp) -> Result<Stats> {
        let count = |sql: &str, params: &[&dyn rusqlite::ToSql]| -> Result<u64> {
            let count: i64 = self.connection.prepare_cached(sql)?.query_row(params, |row| row.get(0))?;
            Ok(count as u64)
        };
        let mut stats = Stats {
            running: count("SELECT count(*) FROM run WHERE owner = ?1", &[&incarnation])?,
            quarantined: count("SELECT count(*) FROM run WHERE status = 5", &[])?,
            overdue: count(OVERDUE, &[&ms(now)])?,
            ..Stats::default()
        };
        let mut statement = self.connection.prepare_cached("SELECT id FROM tenant")?;
        let tenants: Vec<i64> =
            statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for tenant in tenants {
            stats.pending +=
                count("SELECT count(*) FROM request WHERE tenant = ?1 AND status = 0", &[&tenant])?;
            let sql = "SELECT min(opened_at) FROM request WHERE tenant = ?1 AND status = 0";
            let oldest: Option<i64> =
                self.connection.prepare_cached(sql)?.query_row([tenant], |row| row.get(0))?;
            let oldest: Option<Timestamp> = oldest.map(from_ms);
            stats.oldest_pending = [stats.oldest_pending, oldest].into_iter().flatten().min();
        }
        Ok(stats)
    }

    pub(super) fn owned(&self, incarnation: i64, limit: usize) -> Result<Vec<Taken>> {
        let sql = "SELECT run.id, tenant.name, run.actor FROM run JOIN tenant ON tenant.id = run.tenant \
                   WHERE run.owner = ?1 LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![incarnation, limit])?;
        let mut owned = Vec::new();
        while let Some(row) = rows.next()? {
            let (tenant, actor): (String, String) = (row.get(1)?, row.get(2)?);
            let (Ok(tenant), Ok(actor)) = (TenantId::new(&tenant), ActorId::new(&actor)) else {
                return Err(Error::Corrupt("a name".into()));
            };
            owned.push(Taken { cx: Context { tenant, actor }, run: rows::run_id(row, 0)?, crashed: false });
        }
        Ok(owned)
    }

    pub(super) fn next_deadline(&self) -> Result<Option<Timestamp>> {
        // One look at the first entry of an index each.
        let deadline = "SELECT min(deadline) FROM request WHERE status = 0 AND deadline IS NOT NULL";
        let reminder = "SELECT min(escalate_at) FROM request WHERE status = 0 AND escalate_at IS NOT NULL";
        let mut next = None;
        for sql in [deadline, reminder] {
            let at: Option<i64> = self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
            next = [next, at].into_iter().flatten().min();
        }
        Ok(next.map(from_ms))
    }

    /// Only read: several may look at the same ones, and the first who closes one closes it.
    pub(super) fn presets_due(&self, limit: usize, now: Timestamp) -> Result<Vec<PresetDue>> {
        let sql = "SELECT q.run, q.id, q.terms, tenant.name, run.actor FROM request q \
                   JOIN tenant ON tenant.id = q.tenant JOIN run ON run.tenant = q.tenant AND run.id = q.run \
                   WHERE q.status = 0 AND q.deadline IS NOT NULL AND q.deadline <= ?1 AND q.on_timeout = 2 \
                   AND run.snapshot_version <= ?3 \
                   ORDER BY q.deadline LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![
            ms(now),
            i64::try_from(limit).unwrap_or(i64::MAX),
            snapshot_version()
        ])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            let run = rows::run_id(row, 0)?;
            let request = RequestId(uuid::Uuid::from_bytes(row.get(1)?));
            let terms: Option<Vec<u8>> = row.get(2)?;
            let (tenant, actor): (String, String) = (row.get(3)?, row.get(4)?);
            due.extend(stored::readable(stored::preset_due(
                run,
                request,
                terms.as_deref(),
                &tenant,
                &actor,
            ))?);
        }
        Ok(due)
    }
}

/// How many requests stay open beyond their deadline.
pub(super) const OVERDUE: &str =
    "SELECT count(*) FROM request WHERE status = 0 AND wait_until IS NOT NULL AND wait_until <= ?1";
