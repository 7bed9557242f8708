//! Who hears of what is stored.

use holdpoint_protocol::{DecisionWord, RunId};
#[cfg(feature = "postgres")]
use holdpoint_store::{Bell, DecideReply, Hearing, Owner};

use crate::bed::{Bed, ana, conformance};
use crate::walk::{Walk, decide};

/// A store of one process rings nobody; one of many says how it stands with them.
async fn a_store_that_others_use_too_says_so(bed: Bed) {
    let shared = bed.store.is_shared();
    assert_eq!(bed.store.bells().is_some(), shared);
    assert_eq!(bed.store.standing().is_some(), shared);
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
    if let Some(standing) = bed.store.standing() {
        assert!(standing.lease_held && !standing.lease_left.is_zero());
        assert_eq!((standing.others, standing.rung, standing.heard), (0, 0, 0), "nobody is there to be rung");
    }
    let _: RunId = walk.id();
}

conformance!(a_store_that_others_use_too_says_so);

#[cfg(feature = "postgres")]
mod between_instances {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use holdpoint_core::run::Input;
    use holdpoint_faults::{Pooler, Proxy, Way};
    use holdpoint_store::{
        Error, Listening, Next, PostgresOptions, PostgresStore, Ring, Standing, Store, checkup_postgres,
    };
    use tokio::sync::broadcast::Receiver;

    use super::*;
    use crate::bed::{block_on, clock};
    use crate::cluster::{Database, database};
    use crate::walk::decision;

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn standing(bed: &Bed) -> Standing {
        bed.store.standing().unwrap()
    }

    async fn stands(bed: &Bed, what: &str, so: impl Fn(&Standing) -> bool) {
        until(what, async || so(&standing(bed)).then_some(())).await;
    }

    /// Two instances that know of each other and hear each other.
    async fn two_that_hear() -> (Database, Bed, Bed) {
        let database = database().await;
        let (a, b) = (instance(&database).await, instance(&database).await);
        for bed in [&a, &b] {
            stands(bed, "bells that are heard", |it| it.hearing == Hearing::Proven && it.others == 1).await;
        }
        (database, a, b)
    }

    async fn instance(database: &Database) -> Bed {
        let clock = clock();
        Bed::of(database.store(u64::MAX, clock.clone()).await, clock)
    }

    /// The next bell that is about one run.
    async fn heard(bells: &mut Receiver<Bell>) -> Ring {
        loop {
            match tokio::time::timeout(PATIENCE, bells.recv()).await.expect("no bell").unwrap() {
                Bell::Run(ring) => return ring,
                Bell::Everything => {}
            }
        }
    }

    #[test]
    fn what_one_instance_stores_the_others_hear_with_its_requests_and_it_does_not_hear_itself() {
        block_on(async {
            let (_database, a, b) = two_that_hear().await;
            let mut at_a = a.store.bells().unwrap();
            let mut at_b = b.store.bells().unwrap();
            let walk = Walk::suspended(&a, &ana(), "job").await;
            let mut requests = Vec::new();
            while requests.len() < 2 {
                let ring = heard(&mut at_b).await;
                assert_eq!(ring.run, walk.id());
                requests.extend(ring.requests);
            }
            requests.sort();
            let mut opened = walk.requests().to_vec();
            opened.sort();
            assert_eq!(requests, opened);
            // The owner is at work, and a decision is taken elsewhere.
            let (mut walk, changes) = {
                decide(&a.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
                Walk::resumed(&a.store, &ana(), walk.id()).await
            };
            walk.stored(changes, Next::Keep).await;
            let request = walk.requests()[0];
            let began = Instant::now();
            let reply = b.store.decide(&ana(), decision(request, DecisionWord::Approve, "bo")).await.unwrap();
            let DecideReply::Taken { noted, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(noted.owner, Owner::Elsewhere(a.store.instance()));
            let ring = heard(&mut at_a).await;
            println!("decided at one, heard at its owner after {:?}", began.elapsed());
            assert_eq!((ring.run, ring.after + 1), (walk.id(), noted.event.seq.unwrap()));
            assert_eq!(ring.requests, [request]);
            assert!(at_a.try_recv().is_err(), "it heard what it had stored itself");
        });
    }

    #[test]
    fn a_listener_whose_connection_is_ended_listens_again_and_has_everything_looked_at() {
        block_on(async {
            let (database, a, b) = two_that_hear().await;
            let mut bells = a.store.bells().unwrap();
            let client = database.client().await;
            let listening = "SELECT array_agg(pid) FROM pg_stat_activity \
                             WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle' \
                             HAVING count(*) = 2";
            let before: Vec<i32> = client.query_one(listening, &[]).await.unwrap().get(0);
            client.query("SELECT pg_terminate_backend(unnest($1::int[]))", &[&before]).await.unwrap();
            // What a store says of itself may still be what was before: the database is asked who listens now.
            until("two that listen anew", async || {
                let row = client.query_opt(listening, &[]).await.unwrap()?;
                let now: Vec<i32> = row.get(0);
                now.iter().all(|pid| !before.contains(pid)).then_some(())
            })
            .await;
            for bed in [&a, &b] {
                stands(bed, "a bell that is heard again", |it| it.hearing == Hearing::Proven).await;
            }
            let told = tokio::time::timeout(PATIENCE, bells.recv()).await.unwrap().unwrap();
            assert_eq!(told, Bell::Everything, "what was rung meanwhile was missed");
            let walk = Walk::suspended(&b, &ana(), "job").await;
            assert_eq!(heard(&mut bells).await.run, walk.id());
        });
    }

    #[test]
    fn connections_that_are_all_ended_cost_neither_the_lease_nor_a_bell_for_long() {
        block_on(async {
            let (database, a, b) = two_that_hear().await;
            let client = database.client().await;
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            client.batch_execute(end).await.unwrap();
            for bed in [&a, &b] {
                stands(bed, "bells again", |it| it.hearing == Hearing::Proven && it.lease_held).await;
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            for bed in [&a, &b] {
                assert_eq!((standing(bed).lease_lapses, standing(bed).others), (0, 1));
            }
        });
    }

    /// A run in the hands of this instance, whose first gated call is approved and not started.
    async fn approved(bed: &Bed, name: &str) -> Walk {
        let walk = Walk::suspended(bed, &ana(), name).await;
        decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
        let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::Keep).await;
        walk
    }

    /// Whoever cannot renew its lease begins nothing, though everything else of it works.
    #[test]
    fn an_instance_whose_renewals_hang_begins_nothing_and_stores_what_ends() {
        block_on(async {
            let database = database().await;
            let (a, b) = (instance(&database).await, instance(&database).await);
            let waiting = Walk::suspended(&b, &ana(), "waiting").await;
            let (mut working, mut ready) = (approved(&a, "working").await, approved(&a, "ready").await);
            let started = working.checked(1).await;
            working.stored(started, Next::Keep).await;
            // Somebody holds the row of its lease.
            let mut client = database.client().await;
            let held = client.transaction().await.unwrap();
            let lock = "SELECT 1 FROM instance WHERE instance_id = $1 FOR UPDATE";
            held.query(lock, &[&a.store.instance().0]).await.unwrap();
            let began = Instant::now();
            stands(&a, "the end of the trust in the lease", |it| !it.lease_held).await;
            println!("not trusted any more after {:?}", began.elapsed());
            assert!(began.elapsed() < Duration::from_secs(6), "before others may take its runs over");
            let refused = |result: Result<(), Error>| {
                assert!(
                    matches!(&result, Err(Error::Unavailable(why)) if why.contains("lease")),
                    "{result:?}"
                );
            };
            refused(a.store.recover(10).await.map(drop));
            refused(a.store.take(&ana(), waiting.id()).await.map(drop));
            let approve = decision(waiting.requests()[0], DecisionWord::Approve, "bo");
            refused(a.store.decide(&ana(), approve.clone()).await.map(drop));
            let mut unborn = Walk::unborn(&a, &ana(), "new");
            refused(unborn.try_start(None).await.map(drop));
            let start = ready.checked(1).await;
            refused(a.store.commit(&ana(), &ready.made(start, Next::Keep)).await.map(drop));
            // What a tool brought that ran by then is stored: the run is still its own.
            let finished = working.finished(1, "written").await;
            working.stored(finished, Next::Keep).await;
            assert!(a.store.load(&ana(), working.id()).await.unwrap().is_some());
            // Another one is not kept by it, and takes the decision.
            assert!(matches!(b.store.decide(&ana(), approve).await.unwrap(), DecideReply::Taken { .. }));
            held.rollback().await.unwrap();
            stands(&a, "the lease", |it| it.lease_held).await;
            assert_eq!(standing(&a).lease_lapses, 1);
            a.store.recover(10).await.unwrap();
        });
    }

    /// What comes after a run was taken over is not its outcome, and the one who is asked sees it.
    #[test]
    fn a_late_result_is_kept_with_the_open_question_once_and_with_no_other_request() {
        block_on(async {
            let database = database().await;
            let (a, b) = (instance(&database).await, instance(&database).await);
            let raw = |text: &str| serde_json::value::RawValue::from_string(text.into()).unwrap();
            let mut running = approved(&a, "job").await;
            let started = running.checked(1).await;
            running.stored(started, Next::Keep).await;
            let approval = running.requests()[0];
            assert!(!a.store.keep_late(&ana(), approval, &raw("1")).await.unwrap(), "that is an approval");
            a.store.close().await.unwrap();
            let taken = b.store.recover(10).await.unwrap();
            assert_eq!(taken.len(), 1);
            let loaded = b.store.load(&ana(), running.id()).await.unwrap().unwrap();
            let facts = loaded.facts.clone();
            let mut walk = Walk::of(&b.store, &ana(), loaded);
            let changes = walk.step(vec![Input::Recovered { facts }]).await;
            walk.stored(changes, Next::Suspend).await;
            let filter = holdpoint_store::InteractionFilter {
                kind: Some(holdpoint_protocol::InteractionKind::InDoubt),
                ..Default::default()
            };
            let page = b.store.interactions(&ana(), &filter, &Default::default()).await.unwrap();
            let doubt = page.items[0].request_id;
            assert!(!page.items[0].request.get().contains("lateResult"));
            let other = crate::bed::cx("other", "ana");
            assert!(!b.store.keep_late(&other, doubt, &raw("1")).await.unwrap());
            assert!(b.store.keep_late(&ana(), doubt, &raw(r#"{"sent": 3}"#)).await.unwrap());
            assert!(!b.store.keep_late(&ana(), doubt, &raw("2")).await.unwrap(), "the first one stays");
            let shown = b.store.interaction(&ana(), doubt).await.unwrap().unwrap();
            let shown: serde_json::Value = serde_json::from_str(shown.request.get()).unwrap();
            assert_eq!(shown["lateResult"], serde_json::json!({"sent": 3}));
            assert_eq!(shown["type"], "in_doubt_request");
        });
    }

    /// Each commit takes half a second: that is slow, and no reason to take an instance for gone.
    #[test]
    fn where_each_commit_takes_half_a_second_leases_are_renewed_in_time() {
        block_on(async {
            let database = database().await;
            let (a, b) = (instance(&database).await, instance(&database).await);
            let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'; \
                        CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON instance DEFERRABLE INITIALLY DEFERRED \
                        FOR EACH ROW EXECUTE FUNCTION slow(); \
                        CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON run DEFERRABLE INITIALLY DEFERRED \
                        FOR EACH ROW EXECUTE FUNCTION slow()";
            database.client().await.batch_execute(slow).await.unwrap();
            // More of them at once than there are connections: the renewals do not stand in their line.
            let work: Vec<_> = (0..40)
                .map(|n| {
                    let bed = Bed::of(Arc::clone(&a.store), Arc::clone(&a.clock));
                    tokio::spawn(async move {
                        Walk::started(&bed, &ana(), &format!("job-{n}")).await;
                    })
                })
                .collect();
            let began = Instant::now();
            let mut least = Duration::MAX;
            while began.elapsed() < Duration::from_secs(7) {
                least = least.min(standing(&a).lease_left).min(standing(&b).lease_left);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            println!("at the least, {least:?} of the lease were left");
            assert_eq!((standing(&a).lease_lapses, standing(&b).lease_lapses), (0, 0));
            for work in work {
                work.await.unwrap();
            }
        });
    }

    #[test]
    fn what_finds_the_line_for_a_connection_full_is_refused_at_once_and_what_carries_a_run_on_is_not() {
        block_on(async {
            let database = database().await;
            let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
            let store = PostgresStore::connect(&database.url, options).await.unwrap();
            let bed = Bed::of(store.clone(), clock());
            let mut walk = Walk::started(&bed, &ana(), "job").await;
            let changes = walk.proposed().await;
            let step = walk.made(changes, Next::Keep);
            let mut client = database.client().await;
            let lock = client.transaction().await.unwrap();
            lock.batch_execute("LOCK TABLE run IN ACCESS EXCLUSIVE MODE").await.unwrap();
            let reads: Vec<_> = (0..300)
                .map(|_| {
                    let store = store.clone();
                    let run = walk.id();
                    tokio::spawn(async move { store.run(&ana(), run).await })
                })
                .collect();
            until("a full line", async || (store.standing().unwrap().refused >= 43).then_some(())).await;
            let began = Instant::now();
            let refused = store.run(&ana(), walk.id()).await;
            assert!(matches!(&refused, Err(Error::Busy(why)) if why.contains("wait")), "{refused:?}");
            assert!(began.elapsed() < Duration::from_secs(1), "it waited");
            // A step of a run stands in the line where the others are turned away.
            let stepping = tokio::spawn({
                let store = store.clone();
                async move { store.commit(&ana(), &step).await }
            });
            tokio::time::sleep(Duration::from_millis(200)).await;
            lock.rollback().await.unwrap();
            stepping.await.unwrap().unwrap();
            let mut answered = 0;
            for read in reads {
                answered += usize::from(read.await.unwrap().is_ok());
            }
            assert_eq!(answered, 257, "one at work, and as many as the line holds");
        });
    }

    /// The listener's connection is open at this end only: nothing ends it, and nothing comes.
    #[test]
    fn a_listener_that_hears_nothing_any_more_notices_by_itself() {
        // It has threads of its own, which cannot be started from within others.
        let proxy = Proxy::to(holdpoint_faults::shared().address());
        block_on(async {
            let database = database().await;
            let through = holdpoint_faults::shared().url_through(proxy.address(), &database.name);
            let options = PostgresOptions { listen_url: Some(through), ..Default::default() };
            let store = PostgresStore::connect(&database.url, options).await.unwrap();
            let bed = Bed::of(store, clock());
            stands(&bed, "bells that are heard", |it| it.hearing == Hearing::Proven).await;
            let links = proxy.links();
            let listens: Vec<_> = links.iter().filter(|link| link.has_said("LISTEN holdpoint;")).collect();
            assert_eq!(listens.len(), 1);
            listens[0].set(Way::Swallowed, Way::Swallowed);
            let began = Instant::now();
            stands(&bed, "being deaf", |it| it.hearing == Hearing::Deaf).await;
            println!("deaf, and known to be after {:?}", began.elapsed());
            assert!(
                began.elapsed() < Duration::from_secs(5 + 3 + 4),
                "a trial every 5 s, which may take 3 s"
            );
            stands(&bed, "bells that are heard again", |it| it.hearing == Hearing::Proven).await;
            assert_eq!(standing(&bed).lease_lapses, 0, "the lease has a connection of its own");
        });
    }

    /// LISTEN through a pooler in transaction mode is accepted, and nothing is ever delivered.
    #[test]
    fn behind_a_pooler_nothing_is_heard_which_is_found_out_and_the_lease_is_kept() {
        block_on(async {
            let (database, pooler) = (database().await, Pooler::before(&holdpoint_faults::shared()));
            let through = holdpoint_faults::shared().url_through(pooler.address(), &database.name);
            let options = PostgresOptions { listen_url: Some(through.clone()), ..Default::default() };
            let store = PostgresStore::connect(&database.url, options).await.unwrap();
            let bed = Bed::of(store, clock());
            stands(&bed, "giving it up", |it| it.hearing == Hearing::PollOnly).await;
            tokio::time::sleep(Duration::from_secs(7)).await;
            assert!(standing(&bed).lease_held);
            assert_eq!(standing(&bed).lease_lapses, 0);
            let found = checkup_postgres(&database.url, Some(&through), None).await.unwrap();
            assert_eq!((found.pooled, found.listening), (Some(false), Some(Listening::Lost)));
            let found = checkup_postgres(&database.url, None, None).await.unwrap();
            assert!(matches!(found.listening, Some(Listening::Heard(_))), "{:?}", found.listening);
            let other = crate::cluster::database().await;
            let found = checkup_postgres(&database.url, Some(&other.url), None).await.unwrap();
            assert_eq!(found.listening, Some(Listening::Elsewhere));
        });
    }

    /// Two instances behind one: each would run the statements that the other prepared.
    #[test]
    fn a_pooler_that_loses_prepared_statements_is_refused() {
        block_on(async {
            let (database, pooler) = (database().await, Pooler::before(&holdpoint_faults::shared()));
            let through = holdpoint_faults::shared().url_through(pooler.address(), &database.name);
            let refused = PostgresStore::connect(&through, PostgresOptions::default()).await;
            let says = |why: &str| why.contains("loses prepared statements");
            assert!(matches!(&refused, Err(Error::Unavailable(why)) if says(why)), "{refused:?}");
            let found = checkup_postgres(&through, Some(&database.url), None).await.unwrap();
            assert!(matches!(found.listening, Some(Listening::Heard(_))), "{:?}", found.listening);
            assert_eq!(found.pooled, Some(true));
        });
    }

    #[test]
    fn a_url_to_listen_at_that_leads_to_another_database_is_refused() {
        block_on(async {
            let (database, other) = (database().await, database().await);
            drop(other.store(u64::MAX, clock()).await);
            let elsewhere =
                |url: &str| PostgresOptions { listen_url: Some(url.into()), ..Default::default() };
            let refused = PostgresStore::connect(&database.url, elsewhere(&other.url)).await;
            assert!(
                matches!(&refused, Err(Error::Unavailable(why)) if why.contains("another database")),
                "{refused:?}"
            );
            PostgresStore::connect(&database.url, elsewhere(&database.url)).await.unwrap();
        });
    }
}
