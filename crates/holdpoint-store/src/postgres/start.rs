//! Starts, those of a group at once. A run that goes on from another in its conversation locks the conversation.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use deadpool_postgres::Object;
use holdpoint_protocol::{Pending, RunId, TenantId, Timestamp};
use tokio_postgres::Row;

use super::PostgresStore;
use super::batch::{Begun, Moved};
use super::group::{Answer, Outcome};
use super::key::{self, Kept};
use super::lane::{Rows, column};
use super::rows::{self, Done, Head, select_request};
use super::step::{check, locking};
use crate::chain;
use crate::prepared::Prepared;
use crate::{Context, Error, IdempotencyKey, KeyUse, Started};

/// How long a count of a tenant's pending requests is believed, and how far from the bound it must be for that: more than all
/// instances together open in that time.
const COUNT_BELIEVED: Duration = Duration::from_secs(1);
const COUNT_MARGIN: u64 = 30_000;

/// A start of a group, by its number in it.
pub(super) struct Start<'a> {
    pub(super) n: i32,
    pub(super) cx: &'a Context,
    pub(super) new: &'a Prepared,
    pub(super) key: Option<&'a IdempotencyKey>,
}

/// What to ask: the conversations, locked, and - once they are - how their last runs stand; whether one of the runs is there
/// already; and the keys, last: whose conversation was opened by another start with its key finds that key.
pub(super) fn asked<'a>(starts: &[Start<'a>], wait: bool) -> [Option<Rows<'a>>; 4] {
    let used = used(starts);
    let tenants = || column(starts, |start| start.cx.tenant.as_str());
    let names = || {
        vec![
            column(starts, |start| start.n),
            tenants(),
            column(starts, |start| start.new.conversation.as_str()),
        ]
    };
    let lock = locking!(
        wait,
        "SELECT k.n FROM unnest($1::integer[], $2::text[], $3::text[]) AS k(n, tenant, name) \
         JOIN conversation c ON c.tenant_id = k.tenant AND c.name = k.name ORDER BY c.name FOR UPDATE OF c"
    );
    let conversations = "SELECT k.n, c.actor, c.last_run, r.status \
         FROM unnest($1::integer[], $2::text[], $3::text[]) AS k(n, tenant, name) \
         JOIN conversation c ON c.tenant_id = k.tenant AND c.name = k.name \
         LEFT JOIN run r ON r.tenant_id = c.tenant_id AND r.run_id = c.last_run";
    let there = "SELECT k.n FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
                 JOIN run r ON r.tenant_id = k.tenant AND r.run_id = k.id";
    let ids = vec![column(starts, |start| start.n), tenants(), column(starts, |start| start.new.run.0)];
    [
        Rows::some(lock, starts, names()),
        Rows::some(conversations, starts, names()),
        Rows::some(there, starts, ids),
        Rows::some(key::LOOK_UP, &used, key::columns(&used)),
    ]
}

fn used<'a>(starts: &[Start<'a>]) -> Vec<key::Used<'a>> {
    starts.iter().filter_map(|start| Some((start.n, start.cx, start.key?))).collect()
}

/// What was found, by the number of the member.
pub(super) struct Found {
    keys: HashMap<i32, (KeyUse, Option<i64>)>,
    locked: HashSet<i32>,
    conversations: HashMap<i32, Conversation>,
    there: HashSet<i32>,
    now: Timestamp,
}

struct Conversation {
    actor: String,
    last: RunId,
    open: bool,
}

pub(super) fn found(
    starts: &[Start<'_>],
    [locked, conversations, there, keys]: [Vec<Row>; 4],
    now: Timestamp,
) -> Done<Found> {
    let used: HashMap<i32, &IdempotencyKey> = used(starts).into_iter().map(|(n, _, key)| (n, key)).collect();
    let mut known = HashMap::new();
    for row in &keys {
        let n: i32 = row.try_get(0)?;
        if let Some(key) = used.get(&n) {
            known.insert(n, key::found(row, key, now)?);
        }
    }
    let conversations = conversations.iter().map(|row| {
        let open = !matches!(row.try_get::<_, Option<i16>>(3)?, Some(3 | 4) | None);
        let conversation = Conversation { actor: row.try_get(1)?, last: RunId(row.try_get(2)?), open };
        Ok((row.try_get(0)?, conversation))
    });
    Ok(Found {
        keys: known,
        locked: locked.iter().map(|row| Ok(row.try_get(0)?)).collect::<Done<_>>()?,
        conversations: conversations.collect::<Done<_>>()?,
        there: there.iter().map(|row| Ok(row.try_get(0)?)).collect::<Done<_>>()?,
        now,
    })
}

impl PostgresStore {
    /// What becomes of a start; what it writes, if it does.
    pub(super) async fn start_of<'a>(
        &self,
        client: &Object,
        start: &Start<'a>,
        found: &mut Found,
    ) -> Done<(Outcome, Option<Moved<'a>>)> {
        let answered = |started| Ok((Outcome::Answered(Answer::Started(started)), None));
        let (cx, new) = (start.cx, start.new);
        let (known, replaces) = found.keys.remove(&start.n).unwrap_or((KeyUse::New, None));
        match known {
            KeyUse::Run(run) => return answered(Started::Existing { run }),
            KeyUse::Reused | KeyUse::Answered(_) | KeyUse::Pending => return answered(Started::KeyReused),
            KeyUse::New => {}
        }
        let mut previous = None;
        if let Some(conversation) = found.conversations.remove(&start.n) {
            if conversation.actor != cx.actor.as_str() {
                return answered(Started::NotYours);
            }
            if conversation.open {
                let pending = pending_of(client, cx.tenant.as_str(), conversation.last).await?;
                return answered(Started::Open { run: conversation.last, pending });
            }
            if !found.locked.contains(&start.n) {
                // Another start holds it, or has just made it.
                return Ok((Outcome::Held, None));
            }
            previous = Some(conversation.last);
        }
        let pending = self.pending_now(client, cx).await?;
        if pending >= self.options.pending_max {
            return answered(Started::Full { pending });
        }
        if found.there.contains(&start.n) {
            let error = Error::Inconsistent(format!("run {} was started before", new.run));
            return Ok((Outcome::Refused(error), None));
        }
        if let Err(error) = check(new, 0, start.n, &HashMap::new()) {
            return Ok((Outcome::Refused(error), None));
        }
        let head = Head {
            owner: None,
            epoch: 1,
            next_seq: 1,
            open: 0,
            committed_round: 0,
            tool_digest: None,
            chain: chain::Head::EMPTY,
            now: found.now,
        };
        let key = start.key.map(|key| Kept { cx, key, run: Some(new.run), replaces });
        let moved = Moved::new(cx, new, head, self.instance, Some(Begun { previous, key }));
        Ok((Outcome::Answered(Answer::Started(Started::Created { at: found.now, previous })), Some(moved)))
    }

    fn counted(&self, tenant: &TenantId) -> Option<u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, count) = counts.get(tenant)?;
        (at.elapsed() < COUNT_BELIEVED && count + COUNT_MARGIN < self.options.pending_max).then_some(*count)
    }

    fn count(&self, tenant: &TenantId, count: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.insert(tenant.clone(), (Instant::now(), count));
    }

    /// Open requests of a tenant. Far from the bound, what was counted a moment ago is near enough.
    async fn pending_now(&self, client: &Object, cx: &Context) -> Done<u64> {
        if let Some(counted) = self.counted(&cx.tenant) {
            return Ok(counted);
        }
        let sql = "SELECT count(*) FROM (SELECT 1 FROM request WHERE tenant_id = $1 AND status = 0 LIMIT $2) AS open";
        let statement = client.prepare_cached(sql).await?;
        let limit = i64::try_from(self.options.pending_max).unwrap_or(i64::MAX);
        let counted: i64 = client.query_one(&statement, &[&cx.tenant.as_str(), &limit]).await?.try_get(0)?;
        let counted = u64::try_from(counted).unwrap_or(0);
        self.count(&cx.tenant, counted);
        Ok(counted)
    }
}

async fn pending_of(client: &Object, tenant: &str, run: RunId) -> Done<Vec<Pending>> {
    let sql = select_request!("tenant_id = $1 AND run_id = $2 AND status = 0 ORDER BY seq");
    let statement = client.prepare_cached(sql).await?;
    let found = client.query(&statement, &[&tenant, &run.0]).await?;
    let pending = found.iter().map(|row| Ok(rows::request(row)?.pending()));
    pending.collect()
}
