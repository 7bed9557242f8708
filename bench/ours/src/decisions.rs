//! Decisions at 16 clients on PostgreSQL: the store's, beside the bare statement, and beside the same statement that rings
//! other instances from inside of its transaction - each over runs of its own, in the same minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use holdpoint::local;
use holdpoint::prelude::*;
use holdpoint::protocol::{RequestId, RunId};
use holdpoint::store::{Decide, DecideReply, Store};
use holdpoint_bench_harness::{Arguments, Deviations, Expect, Line};

use crate::agent::Log;
use crate::database;
use crate::runs::Ours;

/// Who decide at a time.
const CLIENTS: usize = 16;
/// Turns each gets.
const TURNS: usize = 6;
/// Bytes of the event and the record that a decision leaves in the journal.
const JOURNAL_BYTES: usize = 300;

/// What a decision cannot do with less of: the compare-and-set, the run's numbers, the event, in one statement.
const BARE: &str = "WITH closed AS (UPDATE request SET status = 1, closure = $4 \
    WHERE tenant_id = $1 AND request_id = $3 AND status = 0 RETURNING run_id), \
    moved AS (UPDATE run SET open_requests = run.open_requests - 1, next_seq = run.next_seq + 1, owner = $5, \
    epoch = run.epoch + 1, status = 0 WHERE run.tenant_id = $1 AND run.run_id = $2 \
    AND EXISTS (SELECT 1 FROM closed) RETURNING next_seq - 1 AS seq), \
    kept AS (INSERT INTO journal (tenant_id, run_id, seq, body) SELECT $1, $2, seq, $4 FROM moved) \
    SELECT seq FROM moved";

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let path = arguments.path.as_str();
    assert!(database::is_postgres(path), "DECIDE is about PostgreSQL: give its URL with --path");
    database::remove(path).await;
    let ours = Arc::new(Ours::new(Log::new(Expect::Gated), Some(database::open(path).await)));
    let mut found = Deviations::default();
    let each = (arguments.n / 3).next_multiple_of(TURNS);
    let waiting = suspend(&ours, 3 * each, &mut found).await;
    // Without a runtime: it would carry on what is decided here.
    Arc::into_inner(ours).expect("all lanes ended").close().await;
    let store = database::open(path).await;
    let notify = BARE.replace("SELECT seq FROM moved", "SELECT seq, pg_notify('bench', $2::text) FROM moved");
    let (bare, notify) = (clients(path, BARE).await, clients(path, &notify).await);
    // In turns, so that a busy moment of the machine is everybody's. The first turn opens connections and is not counted.
    let mut seconds = [0.0; 3];
    for (turn, part) in waiting.chunks(waiting.len() / TURNS).enumerate() {
        let (first, rest) = part.split_at(part.len() / 3);
        let (second, third) = rest.split_at(rest.len() / 2);
        let took = [
            ours_s(&store, first, &mut found).await / first.len() as f64,
            statements_s(&bare, second, &mut found).await / second.len() as f64,
            statements_s(&notify, third, &mut found).await / third.len() as f64,
        ];
        if turn > 0 {
            seconds.iter_mut().zip(took).for_each(|(sum, took)| *sum += took);
        }
    }
    let [mine, bare, notified] = seconds.map(|sum| (TURNS - 1) as f64 / sum);
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("clients", CLIENTS);
    line.set("decisions", each);
    line.number("decisions_per_s", mine);
    line.number("bare_per_s", bare);
    line.number("notify_in_transaction_per_s", notified);
    line.number("of_bare", mine / bare);
    line.number("times_notify", mine / notified);
    line.print(&found);
    database::remove(path).await;
}

async fn suspend(ours: &Arc<Ours>, n: usize, found: &mut Deviations) -> Vec<(RunId, RequestId)> {
    let next = Arc::new(AtomicUsize::new(0));
    let lanes: Vec<_> = (0..64)
        .map(|_| {
            let (ours, next) = (Arc::clone(ours), Arc::clone(&next));
            tokio::spawn(async move {
                let (mut waiting, mut found) = (Vec::new(), Deviations::default());
                while next.fetch_add(1, Ordering::Relaxed) < n {
                    let run = ours.suspend(&local(), &mut found).await;
                    let view =
                        ours.runtime.store().run(&local(), run).await.expect("a store").expect("a run");
                    waiting.push((run, view.pending[0].request_id));
                }
                (waiting, found)
            })
        })
        .collect();
    let mut waiting = Vec::with_capacity(n);
    for lane in lanes {
        let (more, wrong) = lane.await.expect("no lane panicked");
        waiting.extend(more);
        found.merge(wrong);
    }
    waiting
}

/// How long the store takes for these decisions, in seconds.
async fn ours_s(store: &Arc<dyn Store>, waiting: &[(RunId, RequestId)], found: &mut Deviations) -> f64 {
    let waiting: Arc<[_]> = waiting.into();
    let next = Arc::new(AtomicUsize::new(0));
    let from = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (store, next, waiting) = (Arc::clone(store), Arc::clone(&next), Arc::clone(&waiting));
            tokio::spawn(async move {
                let mut refused = 0;
                while let Some((_, request)) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let decide = Decide {
                        request: *request,
                        word: DecisionWord::Decline,
                        by: By { actor: Some(local().actor), via: Via::Human },
                        digest: None,
                        reason: None,
                        arguments: None,
                        result: None,
                        then: holdpoint::protocol::Then::Continue,
                        redefined: false,
                        step: None,
                    };
                    let reply = store.decide(&local(), decide).await.expect("a store");
                    refused += u64::from(!matches!(reply, DecideReply::Taken { .. }));
                }
                refused
            })
        })
        .collect();
    for client in clients {
        if client.await.expect("no client panicked") > 0 {
            found.note("decision", "the store did not take it");
        }
    }
    from.elapsed().as_secs_f64()
}

/// A client, and its statement.
type Prepared = (tokio_postgres::Client, tokio_postgres::Statement);

async fn clients(url: &str, sql: &str) -> Vec<Arc<Prepared>> {
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let client = database::client(url).await;
        let statement = client.prepare(sql).await.expect("a statement");
        clients.push(Arc::new((client, statement)));
    }
    clients
}

/// How long the statement takes for these, each client on a connection of its own, in seconds.
async fn statements_s(
    clients: &[Arc<Prepared>],
    waiting: &[(RunId, RequestId)],
    found: &mut Deviations,
) -> f64 {
    let waiting: Arc<[_]> = waiting.into();
    let next = Arc::new(AtomicUsize::new(0));
    let from = Instant::now();
    let clients: Vec<_> = clients
        .iter()
        .map(|prepared| {
            let (next, waiting, prepared) = (Arc::clone(&next), Arc::clone(&waiting), Arc::clone(prepared));
            tokio::spawn(async move {
                let (body, owner) = (vec![7_u8; JOURNAL_BYTES], uuid::Uuid::nil());
                let mut refused = 0;
                while let Some((run, request)) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tenant = local().tenant;
                    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                        [&tenant.as_str(), &run.0, &request.0, &body, &owner];
                    let rows = prepared.0.query(&prepared.1, &parameters).await.expect("a row");
                    refused += u64::from(rows.len() != 1);
                }
                refused
            })
        })
        .collect();
    for client in clients {
        if client.await.expect("no client panicked") > 0 {
            found.note("statement", "it changed nothing");
        }
    }
    from.elapsed().as_secs_f64()
}
