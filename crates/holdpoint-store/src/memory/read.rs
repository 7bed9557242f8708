//! Reads.

use std::ops::Bound;
use std::sync::Arc;

use holdpoint_core::message::Message;
use holdpoint_protocol::{
    ConversationId, EventBody, Interaction, Page, RequestId, RunId, RunStatus, RunView, Timestamp,
};

use super::state::{RunRow, State};
use super::write::chain;
use crate::clock::from_ms;
use crate::facts::Request;
use crate::places::{AgePlace, RunPlace};
use crate::{
    AuditRow, ChainCheck, Context, InteractionFilter, Known, Loaded, NumberedEvents, PageRequest,
    RequestHead, Result, RunFilter, Stats, Taken, views,
};

impl State {
    fn row(&self, cx: &Context, run: RunId) -> Option<&RunRow> {
        self.runs.get(&run).filter(|row| *row.run.tenant() == cx.tenant)
    }

    pub(super) fn load(&self, cx: &Context, run: RunId) -> Option<Loaded> {
        let row = self.row(cx, run)?;
        let round = row.run.round();
        let mut open: Vec<_> = messages_from(row, round)
            .filter(|(at, _, _)| *at == round)
            .map(|(_, slot, message)| (*slot, Arc::clone(message)))
            .collect();
        open.sort_unstable_by_key(|(slot, _)| *slot);
        Some(Loaded {
            run: row.run.clone(),
            epoch: row.epoch,
            next_seq: row.next_seq(),
            committed_round: row.committed_round,
            open,
            facts: row.facts.clone(),
            tools: Arc::clone(&row.tools),
            created_at: row.created_at,
        })
    }

    pub(super) fn owned(&self, limit: usize) -> Vec<Taken> {
        let owned = self.runs.values().filter(|row| row.owned);
        owned.take(limit).map(|row| Taken { cx: row.cx(), run: row.run.id(), crashed: false }).collect()
    }

    pub(super) fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Vec<Arc<Message>> {
        let Some(known) = self.conversations.get(&(cx.tenant.clone(), conversation.clone())) else {
            return Vec::new();
        };
        let Some(last) = known.runs.iter().position(|id| *id == run) else { return Vec::new() };
        // What is known already are the runs before this one, and its rounds up to the one that is given.
        let (first, from) = after.map_or((0, 0), |round| (last, round.saturating_add(1)));
        let mut history = Vec::new();
        for row in known.runs.iter().take(last + 1).skip(first).filter_map(|id| self.runs.get(id)) {
            let late = messages_from(row, from);
            let mut messages: Vec<_> = late.filter(|(round, _, _)| *round <= row.committed_round).collect();
            // The answers of a round are written as they come, and read in the order of the calls.
            messages.sort_by_key(|(round, slot, _)| (*round, *slot));
            history.extend(messages.into_iter().map(|(_, _, message)| Arc::clone(message)));
        }
        history
    }

    pub(super) fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Option<NumberedEvents> {
        let row = self.row(cx, run)?;
        let from = usize::try_from(after).unwrap_or(usize::MAX);
        let numbered = (after.saturating_add(1)..).zip(row.events.iter().skip(from).take(limit));
        Some(numbered.map(|(seq, event)| (seq, Arc::from(event.to_json()))).collect())
    }

    pub(super) fn request(&self, cx: &Context, request: RequestId) -> Option<RequestHead> {
        let request = self.requests.get(&request)?;
        self.row(cx, request.run())?;
        Some(request.head(self.load(cx, request.run()).filter(|_| request.is_open())))
    }

    pub(super) fn moved(&self, known: &[Known]) -> Vec<RunId> {
        let moved = |known: &&Known| {
            let row = self.runs.get(&known.run).filter(|row| *row.run.tenant() == known.tenant);
            row.is_some_and(|row| row.next_seq() > known.last + 1)
        };
        known.iter().filter(moved).map(|known| known.run).collect()
    }

    pub(super) fn newest_pending(&self, cx: &Context, limit: usize) -> Vec<(Timestamp, RequestId)> {
        let open = self.by_age.values().rev().filter_map(|id| self.requests.get(id));
        let open = open.filter(|request| request.is_open() && self.row(cx, request.run()).is_some());
        open.take(limit).map(|request| (request.opened_at, request.id)).collect()
    }

    pub(super) fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        let Some(request) = self.requests.get(&request) else { return Ok(None) };
        let Some(row) = self.row(cx, request.run()) else { return Ok(None) };
        show(row, request).map(Some)
    }

    pub(super) fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        let limit = views::page_limit(page.limit);
        let from = match &page.cursor {
            Some(cursor) => {
                let place = AgePlace::read(&cx.tenant, cursor)?;
                Bound::Excluded((from_ms(place.opened_at_ms), place.run, place.seq))
            }
            None => Bound::Unbounded,
        };
        let mut items = Vec::new();
        let mut last = None;
        let mut more = false;
        for id in self.by_age.range((from, Bound::Unbounded)).map(|(_, id)| id) {
            let Some(request) = self.requests.get(id) else { continue };
            let Some(row) = self.row(cx, request.run()) else { continue };
            if !filter.takes(request) {
                continue;
            }
            if items.len() == limit {
                more = true;
                break;
            }
            last = Some(AgePlace::of(request));
            items.push(show(row, request)?);
        }
        let next_cursor = last.filter(|_| more).map(|place| place.write(&cx.tenant));
        Ok(Page { items, next_cursor })
    }

    pub(super) fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        self.row(cx, run).map(|row| self.view(row)).transpose()
    }

    fn view(&self, row: &RunRow) -> Result<RunView> {
        let ended = row.events.iter().rev().map(|event| &event.body);
        let last = ended.take(1).find(|body| matches!(body, EventBody::Finish(_) | EventBody::Error(_)));
        views::run(&row.run, row.status, row.created_at, self.pending_of(row), last)
    }

    pub(super) fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        let limit = views::page_limit(page.limit);
        let before = match &page.cursor {
            Some(cursor) => Some(RunPlace::read(&cx.tenant, cursor)?.run),
            None => None,
        };
        let fits = |row: &&RunRow| {
            *row.run.tenant() == cx.tenant
                && filter.status.is_none_or(|status| status == row.status)
                && before.is_none_or(|before| row.run.id() < before)
        };
        let mut rows: Vec<&RunRow> = self.runs.values().filter(fits).collect();
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.run.id()));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more).map(|row| RunPlace { run: row.run.id() });
        let items = rows.into_iter().map(|row| self.view(row)).collect::<Result<_>>()?;
        Ok(Page { items, next_cursor: last.map(|place| place.write(&cx.tenant)) })
    }

    pub(super) fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        let Some(row) = self.row(cx, run) else { return Ok(Vec::new()) };
        let (kept, _) = chain(&row.audit)?;
        Ok(crate::chain::rows(run, kept, after, limit))
    }

    pub(super) fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        let Some(row) = self.row(cx, run) else { return Ok(None) };
        let (kept, head) = chain(&row.audit)?;
        Ok(Some(crate::chain::verify(kept, &head)))
    }

    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let open = |id: &&RequestId| self.requests.get(*id).is_some_and(Request::is_open);
        let oldest = self.by_age.values().find(open).and_then(|id| self.requests.get(id));
        let oldest_pending: Option<Timestamp> = oldest.map(|request| request.opened_at);
        let overdue = |request: &&Request| {
            request.is_open() && request.terms.waits_until().is_some_and(|deadline| deadline <= now)
        };
        let standing = |status| self.runs.values().filter(|row| row.status == status).count() as u64;
        Stats {
            pending: self.pending.values().sum(),
            oldest_pending,
            overdue: self.requests.values().filter(overdue).count() as u64,
            running: self.runs.values().filter(|row| row.owned).count() as u64,
            quarantined: standing(RunStatus::Quarantined),
            commits: self.commits,
            operations: self.commits,
            wal_bytes: None,
        }
    }
}

/// The messages of a run from a round on, the newest first. Rounds are written in order: what is older comes before them.
fn messages_from(row: &RunRow, round: u32) -> impl Iterator<Item = &(u32, u32, Arc<Message>)> {
    row.messages.iter().rev().take_while(move |(at, _, _)| *at >= round)
}

fn show(row: &RunRow, request: &Request) -> Result<Interaction> {
    let event = usize::try_from(request.seq - 1).ok().and_then(|at| row.events.get(at));
    let json = event.map(|event| event.to_json()).unwrap_or_default();
    views::interaction(&row.run, request, &json)
}
