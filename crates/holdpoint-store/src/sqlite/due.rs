//! What time does to open requests: they expire, a rule is asked about them, people are reminded of them.

use holdpoint_protocol::{RequestId, RunId, Timestamp};
use rusqlite::params;

use super::rows::{self, select_request};
use super::txn::{Done, Txn};
use crate::chain::ms;
use crate::facts::{self, Closing, Request};
use crate::{Context, Error, Noted, Owner, RuleRelease, stored};

impl Txn<'_> {
    pub(super) fn expire_due(&mut self, limit: usize) -> Done<Vec<Noted>> {
        let now = self.now();
        let sql = select_request!(
            "status = 0 AND deadline IS NOT NULL AND deadline <= ?1 AND on_timeout <> 2 \
             ORDER BY deadline, tenant, run, seq LIMIT ?2"
        );
        let due = self.due(sql, limit, now)?;
        let mut noted = Vec::with_capacity(due.len());
        for (tenant, request) in due {
            let mut head = self.head_of(tenant, &request)?;
            noted.push(self.close_by_fact(&mut head, &request, Closing::Expired, now)?);
        }
        Ok(noted)
    }

    fn due(&self, sql: &str, limit: usize, now: Timestamp) -> Done<Vec<(i64, Request)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let read =
            self.many(sql, params![ms(now), limit], |row| Ok((row.get::<_, i64>(0)?, rows::request(row))))?;
        let mut due = Vec::with_capacity(read.len());
        for (tenant, request) in read {
            due.extend(stored::readable(request.map_err(Error::from))?.map(|request| (tenant, request)));
        }
        Ok(due)
    }

    pub(super) fn close_due(
        &mut self,
        cx: &Context,
        id: RequestId,
        release: Option<RuleRelease>,
    ) -> Done<Option<Noted>> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(None) };
        let Some(request) = self.request(tenant, id)? else { return Ok(None) };
        let mut head = self.head_of(tenant, &request)?;
        let now = self.now();
        let Some(closing) = facts::close_due(&request, head.cancel.as_ref(), release, now) else {
            return Ok(None);
        };
        self.close_by_fact(&mut head, &request, closing, now).map(Some)
    }

    pub(super) fn remind_due(&mut self, limit: usize) -> Done<Vec<Noted>> {
        let now = self.now();
        let sql = select_request!(
            "status = 0 AND escalate_at IS NOT NULL AND escalate_at <= ?1 AND (deadline IS NULL OR deadline > ?1) \
             ORDER BY escalate_at, tenant, run, seq LIMIT ?2"
        );
        let mut noted = Vec::new();
        for (tenant, request) in self.due(sql, limit, now)? {
            noted.extend(self.remind(tenant, &request, now)?);
        }
        Ok(noted)
    }

    fn remind(&mut self, tenant: i64, request: &Request, now: Timestamp) -> Done<Option<Noted>> {
        let Some(due) = request.reminder_due(now) else { return Ok(None) };
        let (event, record) = facts::remind(request, due, now);
        let escalated_at = due.escalates.then(|| ms(now));
        let sql = "UPDATE request SET escalate_at = ?4, reminders = reminders + 1, \
                   escalated_at = COALESCE(escalated_at, ?5) WHERE tenant = ?1 AND run = ?2 AND seq = ?3";
        let run: RunId = request.run();
        let next = due.next.map(ms);
        self.execute(sql, params![tenant, run.0.as_bytes(), request.seq as i64, next, escalated_at])?;
        let mut head = self.head_of(tenant, request)?;
        let event = self.append_fact(&mut head, event, &record, None, now)?;
        self.moved_on(&head)?;
        let owner = if head.owner == Some(self.caches.incarnation) { Owner::Here } else { Owner::Nobody };
        Ok(Some(Noted { cx: self.cx(&head)?, run, event, owner, epoch: head.epoch }))
    }
}
