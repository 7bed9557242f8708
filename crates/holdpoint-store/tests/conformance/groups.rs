//! Steps and starts that share a transaction in PostgreSQL: each stands or falls as if it were alone.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::decision::CancelKind;
use holdpoint_protocol::{Event, EventBody, RequestId, RunId};
use holdpoint_store::{
    ChainCheck, Committed, Error, IdempotencyKey, Next, PostgresOptions, PostgresStore, Result, Started,
    Step, Store,
};

use crate::bed::{Bed, ana, block_on, clock};
use crate::cluster::{Database, database};
use crate::together::{CONNECTIONS, Together, commit, held, small_step, until};
use crate::walk::Walk;

/// How long what others hold may keep them: they have nothing to wait for.
const SOON: Duration = Duration::from_secs(8);

struct Place {
    database: Database,
    store: Arc<PostgresStore>,
    bed: Bed,
}

async fn place() -> Place {
    let (database, clock) = (database().await, clock());
    let options = PostgresOptions {
        connections: CONNECTIONS,
        clock: Some(clock.clone()),
        ..PostgresOptions::default()
    };
    let store = PostgresStore::connect(&database.url, options).await.unwrap();
    let bed = Bed::of(Arc::clone(&store) as Arc<dyn Store>, clock);
    Place { database, store, bed }
}

impl Place {
    /// A run that asks its model, and the step with its reply: two requests open.
    async fn proposed(&self, name: &str) -> (Walk, Step<'static>) {
        let mut walk = Walk::started(&self.bed, &ana(), name).await;
        let changes = walk.proposed().await;
        let step = walk.made(changes, Next::Suspend);
        (walk, step)
    }

    async fn several(&self, many: usize) -> (Vec<RunId>, Vec<Step<'static>>) {
        let (mut runs, mut steps) = (Vec::new(), Vec::new());
        for n in 0..many {
            let (walk, step) = self.proposed(&format!("job-{n}")).await;
            runs.push(walk.id());
            steps.push(step);
        }
        (runs, steps)
    }

    async fn together(&self, steps: &[Step<'static>]) -> Together {
        Together::waiting(&self.database, &self.store, steps).await
    }

    async fn next_seq(&self, run: RunId) -> u64 {
        self.store.load(&ana(), run).await.unwrap().unwrap().next_seq
    }

    async fn is_whole(&self, run: RunId) {
        let next_seq = self.next_seq(run).await;
        let events = self.store.events(&ana(), run, 0, 10_000).await.unwrap().unwrap();
        assert!(events.iter().map(|(seq, _)| *seq).eq(1..next_seq));
        let chain = self.store.verify(&ana(), run).await.unwrap();
        assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
    }
}

fn is_done(done: &Result<Committed>) -> bool {
    matches!(done, Ok(Committed::Done { .. }))
}

#[test]
fn steps_that_come_together_share_a_commit() {
    block_on(async {
        let place = place().await;
        let (runs, steps) = place.several(12).await;
        let before = place.store.stats().await.unwrap();
        let done = place.together(&steps).await.done().await;
        let after = place.store.stats().await.unwrap();
        assert!(done.iter().all(is_done), "{done:?}");
        let (operations, commits) = (after.operations - before.operations, after.commits - before.commits);
        assert_eq!(operations - commits, 11, "{before:?} {after:?}");
        for (run, step) in runs.into_iter().zip(&steps) {
            assert_eq!(place.next_seq(run).await, step.expected_seq + step.writes.events.len() as u64);
            place.is_whole(run).await;
        }
        assert_eq!(after.pending, 24);
    });
}

#[test]
fn a_member_that_is_refused_does_not_concern_its_group() {
    block_on(async {
        let place = place().await;
        let (runs, mut steps) = place.several(5).await;
        let (fenced, step) = place.proposed("fenced").await;
        steps.push(Step { epoch: 2, ..step });
        let (mut older, _) = place.proposed("moved").await;
        let step = small_step(&older);
        older.next_seq += 1;
        steps.push(Step { expected_seq: older.next_seq, ..step });
        let (wrong, step) = place.proposed("wrong").await;
        steps.push(Step { next: Next::End, ..step });

        let done = place.together(&steps).await.done().await;
        assert!(done[..5].iter().all(is_done), "{done:?}");
        assert!(matches!(done[5], Ok(Committed::Fenced)), "{done:?}");
        assert!(matches!(done[6], Ok(Committed::Moved)), "{done:?}");
        assert!(matches!(done[7], Err(Error::Inconsistent(_))), "{done:?}");
        for run in runs.into_iter().chain([fenced.id(), older.id(), wrong.id()]) {
            place.is_whole(run).await;
        }
        assert_eq!(place.store.stats().await.unwrap().pending, 10);
    });
}

/// The duplicate is noticed by the database in the middle of a group.
#[test]
fn a_member_whose_statement_fails_does_not_concern_its_group() {
    block_on(async {
        let place = place().await;
        let taken = Walk::suspended(&place.bed, &ana(), "first").await.requests()[0];
        let (runs, mut steps) = place.several(6).await;
        duplicate(&mut steps[2], taken);
        let done = place.together(&steps).await.done().await;
        for (n, done) in done.iter().enumerate() {
            match n {
                2 => assert!(matches!(done, Err(Error::Inconsistent(_))), "{done:?}"),
                _ => assert!(is_done(done), "{n}: {done:?}"),
            }
        }
        for run in runs {
            place.is_whole(run).await;
        }
        assert_eq!(place.store.stats().await.unwrap().pending, 2 + 10);
    });
}

/// Gives the first request an id that is taken.
fn duplicate(step: &mut Step<'_>, id: RequestId) {
    step.writes.opened[0].request = id;
    let at = step.writes.opened[0].event;
    let mut event: Event = (*step.writes.events[at]).clone();
    let EventBody::ApprovalRequest(said) = &mut event.body else { panic!("{event:?}") };
    said.request_id = id;
    step.writes.events[at] = Arc::new(event);
}

#[test]
fn a_run_that_somebody_holds_keeps_nobody_else_waiting() {
    block_on(async {
        let place = place().await;
        let (runs, steps) = place.several(5).await;
        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        lock.query_one("SELECT 1 FROM run WHERE run_id = $1 FOR UPDATE", &[&runs[1].0]).await.unwrap();
        let tasks = place.together(&steps).await.go().await;
        let mut held = None;
        for (n, task) in tasks.into_iter().enumerate() {
            if n == 1 {
                held = Some(task);
                continue;
            }
            let done = tokio::time::timeout(SOON, task).await.expect("it waits for nobody").unwrap();
            assert!(is_done(&done), "{n}: {done:?}");
        }
        let held = held.unwrap();
        assert!(!held.is_finished(), "somebody holds its run");
        // Nor do those that come now.
        let (_, late) = place.proposed("late").await;
        let done = tokio::time::timeout(SOON, commit(&place.store, &late)).await.unwrap().unwrap();
        assert!(is_done(&done), "{done:?}");
        assert!(!held.is_finished(), "somebody holds its run");
        lock.rollback().await.unwrap();
        assert!(is_done(&held.await.unwrap()));
        place.is_whole(runs[1]).await;
    });
}

/// Closing a request that somebody is deciding waits for that, by itself; and then sees what was decided.
#[test]
fn a_request_that_somebody_holds_keeps_nobody_else_waiting() {
    block_on(async {
        let place = place().await;
        let walk = Walk::suspended(&place.bed, &ana(), "ends").await;
        let request = walk.requests()[0];
        place.store.cancel(&ana(), walk.id(), CancelKind::Cancel).await.unwrap();
        let (walk, changes) = Walk::resumed(&place.bed.store, &ana(), walk.id()).await;
        assert!(!changes.closed.is_empty());
        let ends = walk.made(changes, Next::Keep);
        let (_, mut steps) = place.several(3).await;
        steps.insert(0, ends);

        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        lock.query_one("SELECT 1 FROM request WHERE request_id = $1 FOR UPDATE", &[&request.0])
            .await
            .unwrap();
        let mut tasks = place.together(&steps).await.go().await;
        let held = tasks.remove(0);
        for task in tasks {
            let done = tokio::time::timeout(SOON, task).await.expect("it waits for nobody").unwrap();
            assert!(is_done(&done), "{done:?}");
        }
        assert!(!held.is_finished(), "somebody holds its request");
        lock.rollback().await.unwrap();
        assert!(is_done(&held.await.unwrap()));
    });
}

/// An owner waits for its first step. One that does not has the second refused, or written after it; never both in one.
#[test]
fn two_steps_of_one_run_do_not_share_a_transaction() {
    block_on(async {
        let place = place().await;
        let (_, mut steps) = place.several(2).await;
        let mut walk = Walk::started(&place.bed, &ana(), "twice").await;
        let changes = walk.proposed().await;
        steps.push(walk.made(changes, Next::Keep));
        walk.next_seq += steps[2].writes.events.len() as u64;
        let changes = walk.checked(0).await;
        steps.push(walk.made(changes, Next::Keep));
        let done = place.together(&steps).await.done().await;
        assert!(done[..3].iter().all(is_done), "{done:?}");
        if !is_done(&done[3]) {
            assert!(matches!(done[3], Ok(Committed::Moved)), "{done:?}");
            assert!(is_done(&commit(&place.store, &steps[3]).await.unwrap()));
        }
        place.is_whole(walk.id()).await;
    });
}

#[test]
fn a_caller_that_has_gone_takes_nobody_with_it() {
    block_on(async {
        let place = place().await;
        let (runs, steps) = place.several(4).await;
        let mut together = place.together(&steps).await;
        // One is dropped in the line, one while it is written.
        let in_line = together.tasks.remove(1);
        in_line.abort();
        let _ = in_line.await;
        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        lock.batch_execute("LOCK TABLE journal IN EXCLUSIVE MODE").await.unwrap();
        let mut tasks = together.go().await;
        until("it is written", async || held(&place.database.client().await).await == 1).await;
        let written = tasks.remove(0);
        written.abort();
        let _ = written.await;
        lock.rollback().await.unwrap();
        for task in tasks {
            let done = task.await.unwrap();
            assert!(is_done(&done), "{done:?}");
        }
        let after = |n: usize| steps[n].expected_seq + steps[n].writes.events.len() as u64;
        assert_eq!(place.next_seq(runs[0]).await, after(0), "what is being written is written");
        assert_eq!(place.next_seq(runs[1]).await, steps[1].expected_seq, "nobody waited for it");
        for run in runs {
            place.is_whole(run).await;
        }
    });
}

/// The connection of a group is lost while its commit is on its way: nobody knows what became of it, and all are told so.
#[test]
fn whoever_was_in_a_group_whose_commit_was_lost_is_told() {
    block_on(async {
        let place = place().await;
        let (runs, steps) = place.several(4).await;
        let together = place.together(&steps).await;
        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        // Not the table: then a connection that has not written there yet would wait before it has sent anything.
        let entry = "INSERT INTO journal (tenant_id, run_id, seq, body) VALUES ($1, $2, $3, '')";
        let seq = (steps[0].expected_seq + steps[0].writes.events.len() as u64 - 1) as i64;
        lock.execute(entry, &[&ana().tenant.as_str(), &runs[0].0, &seq]).await.unwrap();
        let tasks = together.go().await;
        end_who_waits(&place).await;
        for task in tasks {
            let told = tokio::time::timeout(SOON, task).await.expect("whoever waits is told").unwrap();
            assert!(matches!(told, Err(Error::CommitUnknown(_))), "{told:?}");
        }
        lock.rollback().await.unwrap();
        // Nothing of it was written; done again, it goes through.
        for (run, step) in runs.into_iter().zip(&steps) {
            assert_eq!(place.next_seq(run).await, step.expected_seq);
            let again = commit(&place.store, step).await.unwrap();
            assert!(is_done(&again), "{again:?}");
            place.is_whole(run).await;
        }
    });
}

/// Lost before anything was written: each is done again by itself.
#[test]
fn a_group_whose_connection_was_lost_before_it_wrote_is_done_again() {
    block_on(async {
        let place = place().await;
        let (runs, steps) = place.several(4).await;
        let together = place.together(&steps).await;
        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        lock.batch_execute("LOCK TABLE run IN EXCLUSIVE MODE").await.unwrap();
        let tasks = together.go().await;
        end_who_waits(&place).await;
        lock.rollback().await.unwrap();
        for task in tasks {
            let done = tokio::time::timeout(SOON, task).await.unwrap().unwrap();
            assert!(is_done(&done), "{done:?}");
        }
        for run in runs {
            place.is_whole(run).await;
        }
    });
}

/// Ends the connections that wait for a lock.
async fn end_who_waits(place: &Place) {
    let looking = place.database.client().await;
    until("the group waits", async || held(&looking).await == 1).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid) \
                WHERE NOT granted AND datname = current_database()) AS waiting";
    looking.batch_execute(kill).await.unwrap();
}

#[test]
fn of_starts_with_one_name_or_one_key_that_come_together_one_is_made() {
    block_on(async {
        let place = place().await;
        let key = IdempotencyKey { scope: "chat".into(), key: "k".into(), body_digest: "d".into() };
        for ended in [false, true] {
            let (name, other) = (format!("one-{ended}"), format!("other-{ended}"));
            if ended {
                Walk::suspended(&place.bed, &ana(), &name).await.decided_to_the_end().await;
            }
            let key = IdempotencyKey { key: format!("k-{ended}"), ..key.clone() };
            let names =
                [(&name, None), (&name, None), (&name, None), (&other, Some(&key)), (&other, Some(&key))];
            let tries: Vec<_> = (0..4)
                .flat_map(|_| names)
                .map(|(name, key)| {
                    let (mut walk, key) = (Walk::unborn(&place.bed, &ana(), name), key.cloned());
                    tokio::spawn(
                        async move { (key.is_some(), walk.try_start(key).await.unwrap(), walk.id()) },
                    )
                })
                .collect();
            let (mut made, mut open, mut existing) = (Vec::new(), Vec::new(), Vec::new());
            for tried in tries {
                match tried.await.unwrap() {
                    (_, Started::Created { .. }, run) => made.push(run),
                    (false, Started::Open { run, .. }, _) => open.push(run),
                    (true, Started::Existing { run }, _) => existing.push(run),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(made.len(), 2, "{made:?}");
            assert_eq!((open.len(), existing.len()), (11, 7));
            assert!(open.iter().chain(&existing).all(|run| made.contains(run)));
        }
    });
}

/// Two instances, one conversation whose last run has ended, and its row held until both wait for it.
#[test]
fn of_starts_that_waited_for_one_conversation_one_is_made() {
    block_on(async {
        let place = place().await;
        let other = place.database.store(u64::MAX, place.bed.clock.clone()).await;
        Walk::suspended(&place.bed, &ana(), "talk").await.decided_to_the_end().await;
        let mut holder = place.database.client().await;
        let lock = holder.transaction().await.unwrap();
        lock.query_one("SELECT 1 FROM conversation FOR UPDATE", &[]).await.unwrap();
        let beds = [&place.bed, &Bed::of(other, place.bed.clock.clone())];
        let starts = beds.map(|bed| {
            let mut walk = Walk::unborn(bed, &ana(), "talk");
            tokio::spawn(async move { walk.try_start(None).await.unwrap() })
        });
        let looking = place.database.client().await;
        until("both wait", async || held(&looking).await == 2).await;
        lock.rollback().await.unwrap();
        let mut made = 0;
        for start in starts {
            match start.await.unwrap() {
                Started::Created { .. } => made += 1,
                Started::Open { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(made, 1);
    });
}
