//! Many instances on one PostgreSQL database.

use std::sync::Arc;

use holdpoint_core::decision::CancelKind;
use holdpoint_core::terms::{AtDeadline, TermsRule};
use holdpoint_protocol::{DecisionWord, InteractionStatus, RunStatus};
use holdpoint_store::{
    ChainCheck, Committed, DecideReply, Error, Next, Owner, PageRequest, PostgresOptions, PostgresStore,
    RunFilter, Store,
};

use crate::bed::{Bed, ana, block_on, clock, cx};
use crate::cluster::{Database, database};
use crate::walk::{Walk, decide, decision, expiring, waiting};

/// Longer than a lease lasts.
const LEASE_OVER_MS: u64 = 6_001;

/// Two instances with one clock.
async fn two() -> (Database, Bed, Bed) {
    let (database, clock) = (database().await, clock());
    let a = database.store(u64::MAX, clock.clone()).await;
    let b = database.store(u64::MAX, clock.clone()).await;
    (database, Bed::of(a, clock.clone()), Bed::of(b, clock))
}

#[test]
fn a_run_suspended_on_one_instance_goes_on_where_it_is_decided() {
    block_on(async {
        let (_database, a, b) = two().await;
        let walk = Walk::suspended(&a, &ana(), "job").await;
        let requests = walk.requests();
        let reply = b.store.decide(&ana(), decision(requests[0], DecisionWord::Decline, "bo")).await.unwrap();
        let DecideReply::Taken { noted, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(noted.owner, Owner::Taken);
        // The next one, wherever it comes, is for the owner.
        let reply = a.store.decide(&ana(), decision(requests[1], DecisionWord::Approve, "bo")).await.unwrap();
        let DecideReply::Taken { noted, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(noted.owner, Owner::Elsewhere(b.store.instance()));
        assert!(a.store.take(&ana(), walk.id()).await.unwrap().is_none());
        let (mut walk, changes) = Walk::resumed(&b.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::Keep).await;
        walk.executed(2, "build ok", Next::Keep).await;
        walk.answered().await;
        let view = a.store.run(&ana(), walk.id()).await.unwrap().unwrap();
        assert_eq!(view.status, RunStatus::Finished);
    });
}

/// Opposite decisions at the same instant on two instances (<https://github.com/mcheemaa/mistri/pull/46> had both win).
#[test]
fn of_opposite_decisions_on_two_instances_one_counts() {
    block_on(async {
        let (_database, a, b) = two().await;
        for round in 0..40 {
            let walk = Walk::suspended(&a, &ana(), &format!("job-{round}")).await;
            let request = walk.requests()[0];
            let tries: Vec<_> = (0..8)
                .map(|n| {
                    let store = Arc::clone(if n % 2 == 0 { &a.store } else { &b.store });
                    let word = if n % 2 == 0 { DecisionWord::Approve } else { DecisionWord::Decline };
                    tokio::spawn(async move {
                        store.decide(&ana(), decision(request, word, &format!("actor-{n}"))).await.unwrap()
                    })
                })
                .collect();
            let mut taken = 0;
            for tried in tries {
                match tried.await.unwrap() {
                    DecideReply::Taken { noted, .. } => {
                        assert_eq!(noted.owner, Owner::Taken);
                        taken += 1;
                    }
                    DecideReply::Conflict { status: InteractionStatus::Decided, winner: Some(_) } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(taken, 1, "round {round}");
        }
    });
}

#[test]
fn people_are_reminded_once_however_many_sweep() {
    block_on(async {
        let (_database, a, b) = two().await;
        let settings = waiting(TermsRule {
            timeout_ms: Some(200),
            at_deadline: Some(AtDeadline::Wait),
            ..TermsRule::default()
        });
        for n in 0..20 {
            Walk::suspended_with(&a, &ana(), &format!("job-{n}"), settings.clone()).await;
        }
        for _ in 0..2 {
            a.clock.advance_ms(100);
            let sweeps: Vec<_> = [&a, &b, &a, &b]
                .map(|bed| {
                    let store = Arc::clone(&bed.store);
                    tokio::spawn(async move {
                        let mut told = Vec::new();
                        loop {
                            let noted = store.remind_due(3).await.unwrap();
                            let next = store.next_deadline().await.unwrap();
                            let now = store.now().await.unwrap();
                            if noted.is_empty() && next.is_none_or(|next| next > now) {
                                return told;
                            }
                            told.extend(noted.into_iter().map(|noted| (noted.run, noted.event.seq)));
                        }
                    })
                })
                .into_iter()
                .collect();
            let mut all = Vec::new();
            for sweep in sweeps {
                all.extend(sweep.await.unwrap());
            }
            assert_eq!(all.len(), 40);
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 40, "each is numbered on its own");
        }
        let page = PageRequest { cursor: None, limit: 100 };
        let shown = b.store.interactions(&ana(), &Default::default(), &page).await.unwrap();
        assert!(shown.items.iter().all(|item| item.reminders == 2), "{shown:?}");
    });
}

#[test]
fn what_is_due_expires_once_however_many_sweep() {
    block_on(async {
        let (_database, a, b) = two().await;
        let settings = expiring(100);
        for n in 0..20 {
            Walk::suspended_with(&a, &ana(), &format!("job-{n}"), settings.clone()).await;
        }
        a.clock.advance_ms(100);
        let sweeps: Vec<_> = [&a, &b, &a, &b]
            .map(|bed| {
                let store = Arc::clone(&bed.store);
                tokio::spawn(async move {
                    let mut expired = Vec::new();
                    loop {
                        let noted = store.expire_due(3).await.unwrap();
                        if noted.is_empty() && store.next_deadline().await.unwrap().is_none() {
                            return expired;
                        }
                        expired.extend(noted.into_iter().map(|noted| (noted.run, noted.event.seq)));
                    }
                })
            })
            .into_iter()
            .collect();
        let mut all = Vec::new();
        for sweep in sweeps {
            all.extend(sweep.await.unwrap());
        }
        assert_eq!(all.len(), 40);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 40);
    });
}

#[test]
fn runs_of_an_instance_that_is_gone_are_taken_over_and_it_writes_no_more() {
    block_on(async {
        let (_database, a, b) = two().await;
        let mut working = Walk::started(&a, &ana(), "working").await;
        Walk::suspended(&a, &ana(), "asleep").await;
        assert!(b.store.recover(10).await.unwrap().is_empty(), "its lease has not run out");
        a.clock.advance_ms(LEASE_OVER_MS);
        let taken = b.store.recover(10).await.unwrap();
        assert_eq!(
            taken.iter().map(|taken| (taken.run, taken.crashed)).collect::<Vec<_>>(),
            [(working.id(), true)]
        );
        // It lives after all: what it writes is refused.
        let changes = working.proposed().await;
        let step = working.made(changes, Next::Keep);
        assert_eq!(a.store.commit(&ana(), &step).await.unwrap(), Committed::Fenced);
        assert!(a.store.recover(10).await.unwrap().is_empty());
    });
}

#[test]
fn an_instance_that_stops_leaves_its_runs_to_the_others_at_once() {
    block_on(async {
        let (_database, a, b) = two().await;
        let working = Walk::started(&a, &ana(), "working").await;
        a.store.close().await.unwrap();
        let taken = b.store.recover(10).await.unwrap();
        assert_eq!(taken.iter().map(|taken| taken.run).collect::<Vec<_>>(), [working.id()]);
    });
}

/// As it was before there were requests for operators; and all instances find it at the same time.
#[test]
fn a_run_that_was_set_aside_without_a_request_gets_one() {
    block_on(async {
        let (database, a, b) = two().await;
        let run = Walk::started(&a, &ana(), "old").await.id();
        let sql = "UPDATE run SET status = 5, owner = NULL, claims = 5, epoch = epoch + 1";
        database.client().await.execute(sql, &[]).await.unwrap();
        let (one, two) = tokio::join!(a.store.set_aside(10), b.store.set_aside(10));
        let noted: Vec<_> = one.unwrap().into_iter().chain(two.unwrap()).collect();
        assert_eq!((noted.len(), noted[0].run), (1, run));
        assert!(a.store.set_aside(10).await.unwrap().is_empty());
        decide(&b.store, &ana(), noted[0].event.body.opens().unwrap(), DecisionWord::Approve).await;
        let view = a.store.run(&ana(), run).await.unwrap().unwrap();
        assert_eq!(view.status, RunStatus::Running);
        let chain = a.store.verify(&ana(), run).await.unwrap();
        assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
    });
}

/// The model is asked once more, or a tool started once more; or something new has happened.
async fn step(store: &Arc<PostgresStore>, run: holdpoint_protocol::RunId, progress: bool) {
    let loaded = store.load(&ana(), run).await.unwrap().unwrap();
    let mut walk = Walk::of(&(Arc::clone(store) as Arc<dyn Store>), &ana(), loaded);
    walk.run.add_active_ms(1);
    let step = walk.made(holdpoint_core::run::Changes::default(), Next::Keep);
    let step = holdpoint_store::Step { progress, ..step };
    assert!(matches!(store.commit(&ana(), &step).await.unwrap(), Committed::Done { .. }));
}

/// What is in hand when an instance ends is not all to blame for it.
#[test]
fn runs_that_were_there_when_instances_ended_are_taken_up_one_at_a_time() {
    block_on(async {
        let (database, clock) = (database().await, clock());
        let first = Bed::of(database.store(u64::MAX, clock.clone()).await, clock.clone());
        let runs =
            [Walk::started(&first, &ana(), "a").await.id(), Walk::started(&first, &ana(), "b").await.id()];
        first.store.close().await.unwrap();
        for _ in 0..holdpoint_store::CLAIMS_ALONE_FROM {
            let store = database.store(u64::MAX, clock.clone()).await;
            assert_eq!(store.recover(10).await.unwrap().len(), 2);
            for run in runs {
                step(&store, run, false).await;
            }
            store.close().await.unwrap();
        }
        let store = database.store(u64::MAX, clock.clone()).await;
        let first = store.recover(10).await.unwrap();
        assert_eq!((first.len(), store.recover(10).await.unwrap().len()), (1, 0), "alone");
        // It gets on: it was not the one.
        step(&store, first[0].run, true).await;
        let second = store.recover(10).await.unwrap();
        assert_eq!(second.len(), 1);
        assert_ne!(second[0].run, first[0].run);
    });
}

/// Everything at once on the same few runs: whatever was answered, what is stored is whole.
#[test]
fn under_any_mix_of_writers_every_log_is_whole() {
    block_on(async {
        let (_database, a, b) = two().await;
        let settings = expiring(50);
        let mut runs = Vec::new();
        let mut requests = Vec::new();
        for n in 0..6 {
            let walk = Walk::suspended_with(&a, &ana(), &format!("job-{n}"), settings.clone()).await;
            runs.push(walk.id());
            requests.extend(walk.requests());
        }
        let tasks: Vec<_> = (0..16usize)
            .map(|n| {
                let store = Arc::clone(if n % 2 == 0 { &a.store } else { &b.store });
                let (runs, requests, clock) = (runs.clone(), requests.clone(), Arc::clone(&a.clock));
                tokio::spawn(async move {
                    for round in 0..12 {
                        let request = requests[(n * 5 + round) % requests.len()];
                        let run = runs[(n * 3 + round) % runs.len()];
                        match (n + round) % 5 {
                            0 | 1 => {
                                let word =
                                    if n % 3 == 0 { DecisionWord::Approve } else { DecisionWord::Decline };
                                store
                                    .decide(&ana(), decision(request, word, &format!("actor-{n}")))
                                    .await
                                    .unwrap();
                            }
                            2 => drop(store.cancel(&ana(), run, CancelKind::Cancel).await.unwrap()),
                            3 => {
                                clock.advance_ms(7);
                                store.expire_due(5).await.unwrap();
                            }
                            _ => {
                                let (walk, changes) = Walk::resumed(&store, &ana(), run).await;
                                let next = match walk.run.standing() {
                                    holdpoint_core::run::Standing::Finished
                                    | holdpoint_core::run::Standing::Failed => Next::End,
                                    holdpoint_core::run::Standing::Suspended
                                    | holdpoint_core::run::Standing::SetAside => Next::Suspend,
                                    holdpoint_core::run::Standing::Working
                                    | holdpoint_core::run::Standing::Cancelling => Next::Later(0),
                                };
                                let step = walk.made(changes, next);
                                store.commit(&ana(), &step).await.unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for run in runs {
            let loaded = b.store.load(&ana(), run).await.unwrap().unwrap();
            let events = b.store.events(&ana(), run, 0, 10_000).await.unwrap().unwrap();
            assert!(events.iter().map(|(seq, _)| *seq).eq(1..loaded.next_seq));
            let chain = b.store.verify(&ana(), run).await.unwrap();
            assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
        }
    });
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    block_on(async {
        let database = database().await;
        database.store(u64::MAX, clock()).await.close().await.unwrap();
        let client = database.client().await;
        client.batch_execute("UPDATE holdpoint_schema SET version = 99").await.unwrap();
        let refused = PostgresStore::connect(&database.url, PostgresOptions::default()).await;
        assert!(matches!(refused, Err(Error::Newer { found: 99, known: 1..99, .. })), "{refused:?}");
    });
}

/// As it was before requests could wait under terms: what was open keeps its deadline.
#[test]
fn a_database_from_before_terms_is_brought_up_to_date() {
    block_on(async {
        let (database, clock) = (database().await, clock());
        let bed = Bed::of(database.store(u64::MAX, clock.clone()).await, clock.clone());
        let walk = Walk::suspended_with(&bed, &ana(), "job", expiring(1_000)).await;
        bed.store.close().await.unwrap();
        let older = format!("{}; UPDATE holdpoint_schema SET version = 4", crate::terms::BEFORE_TERMS);
        database.client().await.batch_execute(&older).await.unwrap();
        let bed = Bed::of(database.store(u64::MAX, clock.clone()).await, clock);
        crate::terms::an_open_request_kept_its_deadline(bed, walk.requests()[0]).await;
    });
}

#[test]
fn a_run_of_a_newer_version_is_left_alone_and_the_others_go_on() {
    block_on(async {
        let (database, a, _b) = two().await;
        let newer = Walk::suspended(&a, &ana(), "newer").await;
        let other = Walk::suspended(&a, &ana(), "other").await;
        let client = database.client().await;
        let sql = format!("UPDATE run SET snapshot_version = 99 WHERE run_id = '{}'", newer.id());
        client.batch_execute(&sql).await.unwrap();
        let refused = a.store.load(&ana(), newer.id()).await.unwrap_err();
        assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused:?}");
        let page = a.store.runs(&ana(), &RunFilter::default(), &PageRequest::default()).await.unwrap();
        assert_eq!(page.items.iter().map(|view| view.run_id).collect::<Vec<_>>(), [other.id()]);
        other.decided_to_the_end().await;
    });
}

#[test]
fn a_chain_that_somebody_changed_is_found_broken() {
    let changes = [
        ("the head's hash", "UPDATE run SET audit_hash = decode(repeat('00', 32), 'hex')"),
        ("the head's count", "UPDATE run SET audit_records = audit_records - 1"),
        ("the last entry gone", "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)"),
        ("the first entry gone", "DELETE FROM journal WHERE seq = (SELECT min(seq) FROM journal)"),
    ];
    block_on(async {
        for (what, sql) in changes {
            let (database, a, _b) = two().await;
            let walk = Walk::suspended(&a, &ana(), "job").await;
            decide(&a.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
            let whole = a.store.verify(&ana(), walk.id()).await.unwrap();
            assert!(matches!(whole, Some(ChainCheck::Whole { .. })));
            database.client().await.batch_execute(sql).await.unwrap();
            let found = a.store.verify(&ana(), walk.id()).await.unwrap();
            assert!(matches!(found, Some(ChainCheck::Broken { .. })), "{what}: {found:?}");
        }
    });
}

#[test]
fn connections_that_break_are_replaced() {
    block_on(async {
        let (database, a, _b) = two().await;
        let walk = Walk::suspended(&a, &ana(), "job").await;
        let client = database.client().await;
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        client.batch_execute(kill).await.unwrap();
        // What was asked of a dead connection failed, and is known to have failed or not; then it goes on.
        let mut answers = Vec::new();
        for _ in 0..20 {
            let reply =
                a.store.decide(&ana(), decision(walk.requests()[0], DecisionWord::Approve, "ana")).await;
            match reply {
                Ok(DecideReply::Taken { .. } | DecideReply::Repeated { .. }) => {
                    assert_eq!(
                        a.store.interaction(&ana(), walk.requests()[0]).await.unwrap().unwrap().status,
                        InteractionStatus::Decided
                    );
                    return;
                }
                Err(Error::Unavailable(why) | Error::CommitUnknown(why)) => answers.push(why),
                other => panic!("{other:?}"),
            }
        }
        panic!("{answers:?}");
    });
}

#[test]
fn tenants_share_nothing_but_the_database() {
    block_on(async {
        let (_database, a, b) = two().await;
        let walk = Walk::suspended(&a, &ana(), "job").await;
        let other = cx("other", "ana");
        assert!(b.store.load(&other, walk.id()).await.unwrap().is_none());
        assert!(b.store.interaction(&other, walk.requests()[0]).await.unwrap().is_none());
        let page = b.store.interactions(&other, &Default::default(), &PageRequest::default()).await.unwrap();
        assert!(page.items.is_empty());
    });
}

#[cfg(feature = "postgres-tls")]
#[test]
fn an_encrypted_connection_is_verified() {
    block_on(async {
        let database = database().await;
        let believing = PostgresOptions { ca_file: Some(database.certificate.clone()), ..Default::default() };
        let store = PostgresStore::connect(&database.encrypted, believing).await.unwrap();
        store.now().await.unwrap();
        let encrypted: i64 = database
            .client()
            .await
            .query_one(
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE ssl AND datname = current_database()",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        assert!(encrypted > 0);
        // Nobody the machine believes has vouched for it.
        let refused = PostgresStore::connect(&database.encrypted, PostgresOptions::default()).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    });
}
