//! Runs, read to be carried on: the control state, what happened since, and the conversation.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::GenericClient;
use futures_util::future::try_join_all;
use holdpoint_core::decision::Fact;
use holdpoint_core::message::Message;
use holdpoint_protocol::{ConversationId, RunId};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::read::{entries, request, run_row, snapshot};
use super::rows::{self, Done, RUN_COLUMNS};
use super::{PostgresStore, Work};
use crate::compact::{Entry, FactRef};
use crate::{Context, Loaded, Result, stored};

/// Journal entries read at a time, from the newest backwards.
const NEWEST: i64 = 16;

impl PostgresStore {
    /// One statement, and so one state of the database; what is read after it never changes.
    pub(super) async fn try_load(&self, cx: &Context, run: RunId) -> Done<Option<Loaded>> {
        let client = self.connection(Work::Own).await?;
        let tenant = cx.tenant.as_str();
        let sql = format!(
            "SELECT {RUN_COLUMNS}, newest.seqs, newest.bodies FROM run, LATERAL (\
             SELECT array_agg(seq ORDER BY seq DESC) AS seqs, array_agg(body ORDER BY seq DESC) AS bodies FROM (\
             SELECT seq, body FROM journal WHERE tenant_id = $1 AND run_id = $2 ORDER BY seq DESC LIMIT $3) AS entries\
             ) AS newest WHERE tenant_id = $1 AND run_id = $2"
        );
        let statement = client.prepare_cached(&sql).await?;
        let parameters: [&(dyn ToSql + Sync); 3] = [&tenant, &run.0, &NEWEST];
        let Some(found) = client.query_opt(&statement, &parameters).await? else { return Ok(None) };
        let row = rows::run_row(&found)?;
        let seqs: Option<Vec<i64>> = found.try_get(11)?;
        let bodies: Option<Vec<Vec<u8>>> = found.try_get(12)?;
        let mut newest = Newest::of(seqs.into_iter().flatten().zip(bodies.into_iter().flatten()));

        let step = row.step_seq.saturating_sub(1) as i64;
        while newest.oldest().is_some_and(|oldest| oldest > step)
            && newest.read_on(&client, tenant, run).await?
        {}
        let facts =
            facts(&client, tenant, run, newest.entries.iter().rev().filter(|entry| entry.0 > step)).await?;
        let open = open_round(&client, tenant, run, row.run.round(), newest).await?;
        let tools = self.tools(&client, &cx.tenant, row.tool_digest.as_deref()).await?;
        Ok(Some(Loaded {
            open,
            facts,
            tools,
            epoch: row.epoch,
            next_seq: row.next_seq,
            committed_round: row.committed_round,
            created_at: row.created_at,
            run: row.run,
        }))
    }

    pub(super) async fn try_history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Done<Vec<Arc<Message>>> {
        let mut client = self.connection(Work::Own).await?;
        let view = snapshot(&mut client).await?;
        let tenant = cx.tenant.as_str();
        let row = run_row(&view, tenant, run).await?.filter(|row| row.run.conversation() == conversation);
        let Some(row) = row else { return Ok(Vec::new()) };
        if let Some(round) = after {
            let late = messages_from(&view, tenant, run, round.saturating_add(1), Newest::default())
                .await?
                .into_iter();
            let committed = late.filter(|(round, _, _)| *round <= row.committed_round);
            return Ok(committed.map(|(_, _, message)| message).collect());
        }
        // Each run knows the one before it: collected backwards, read forwards.
        let mut chain = vec![(run, row.committed_round)];
        let mut previous = row.previous;
        let sql = "SELECT committed_round, previous FROM run WHERE tenant_id = $1 AND run_id = $2";
        let statement = view.prepare_cached(sql).await?;
        while let Some(id) = previous {
            let Some(row) = view.query_opt(&statement, &[&tenant, &id.0]).await? else { break };
            chain.push((id, rows::small(row.try_get(0)?)));
            previous = row.try_get::<_, Option<Uuid>>(1)?.map(RunId);
        }
        let mut history = Vec::new();
        for (run, committed) in chain.into_iter().rev() {
            let entries = entries(&view, tenant, run, 0, i64::MAX, |entry| entry.messages()).await?;
            let messages = entries.into_iter().flat_map(|(_, messages)| messages);
            let mut messages: Vec<_> = messages.filter(|(round, _, _)| *round <= committed).collect();
            // The answers of a round are written as they come, and read in the order of the calls.
            messages.sort_by_key(|(round, slot, _)| (*round, *slot));
            history.extend(messages.into_iter().map(|(_, _, message)| message));
        }
        Ok(history)
    }
}

/// The newest entries of a run's journal, newest first, as far as they were read.
#[derive(Default)]
struct Newest {
    entries: Vec<(i64, Vec<u8>)>,
    whole: bool,
}

impl Newest {
    fn of(entries: impl Iterator<Item = (i64, Vec<u8>)>) -> Self {
        let entries: Vec<_> = entries.collect();
        Self { whole: (entries.len() as i64) < NEWEST, entries }
    }

    fn oldest(&self) -> Option<i64> {
        self.entries.last().map(|(seq, _)| *seq)
    }

    /// Reads further back. False when there is nothing more.
    async fn read_on(&mut self, client: &impl GenericClient, tenant: &str, run: RunId) -> Done<bool> {
        if self.whole {
            return Ok(false);
        }
        let sql = "SELECT seq, body FROM journal WHERE tenant_id = $1 AND run_id = $2 AND seq < $3 \
                   ORDER BY seq DESC LIMIT $4";
        let statement = client.prepare_cached(sql).await?;
        let before = self.oldest().unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 4] = [&tenant, &run.0, &before, &NEWEST];
        let found = client.query(&statement, &parameters).await?;
        self.whole = (found.len() as i64) < NEWEST;
        for row in &found {
            self.entries.push((row.try_get(0)?, row.try_get(1)?));
        }
        Ok(!found.is_empty())
    }
}

/// What happened to a run, as these entries say.
async fn facts<'a>(
    client: &impl GenericClient,
    tenant: &str,
    run: RunId,
    entries: impl Iterator<Item = &'a (i64, Vec<u8>)>,
) -> Done<Vec<Fact>> {
    let mut noted = Vec::new();
    for (_, body) in entries {
        noted.extend(Entry::of(run, body).facts()?);
    }
    // Each by its key, all at once: a plan for any number of them may be one that reads the whole table.
    let decided = noted.iter().filter_map(|fact| match fact {
        FactRef::Decided(id) => Some(request(client, tenant, *id)),
        FactRef::Expired(_) | FactRef::GateError(_) | FactRef::SetAside(_) | FactRef::Cancelled(..) => None,
    });
    let found = try_join_all(decided).await?.into_iter().flatten();
    let mut requests: HashMap<_, _> = found.map(|request| (request.id, request)).collect();
    Ok(noted
        .into_iter()
        .map(|fact| stored::fact(fact, |id| Ok(requests.remove(&id))))
        .collect::<Result<_>>()?)
}

/// The messages of the round in progress.
async fn open_round(
    client: &impl GenericClient,
    tenant: &str,
    run: RunId,
    round: u32,
    newest: Newest,
) -> Done<Vec<(u32, Arc<Message>)>> {
    let late = messages_from(client, tenant, run, round, newest).await?.into_iter();
    Ok(late.filter(|(at, _, _)| *at == round).map(|(_, slot, message)| (slot, message)).collect())
}

/// The messages of a run from a round on, in order. Read backwards until one of a round before it: what is older is not
/// looked at, however long the run is.
async fn messages_from(
    client: &impl GenericClient,
    tenant: &str,
    run: RunId,
    round: u32,
    mut newest: Newest,
) -> Done<Vec<(u32, u32, Arc<Message>)>> {
    let (mut late, mut looked, mut older) = (Vec::new(), 0, false);
    loop {
        for (_, body) in newest.entries.iter().skip(looked) {
            let messages = Entry::of(run, body).messages()?;
            older |= messages.iter().any(|(at, _, _)| *at < round);
            late.extend(messages.into_iter().filter(|(at, _, _)| *at >= round));
        }
        looked = newest.entries.len();
        if older || !newest.read_on(client, tenant, run).await? {
            break;
        }
    }
    // The answers of a round are written as they come, and read in the order of the calls.
    late.sort_by_key(|(round, slot, _)| (*round, *slot));
    Ok(late)
}
