//! What concerns the SQLite file: who has it, who wrote it, what is in it, what it weighs, and what happens when there is
//! no room for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdpoint_protocol::{DecisionWord, RunStatus};
use holdpoint_store::{
    CLAIMS_WITHOUT_PROGRESS_MAX, ChainCheck, Committed, Error, ManualClock, Next, PageRequest, RunFilter,
    SqliteStore,
};

use crate::bed::{Bed, ana, block_on, clock, cx};
use crate::walk::{Walk, decide, decision, expiring};

/// A file that is opened again and again.
struct Place {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: clock() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("holdpoint.db")
    }

    fn bed(&self) -> Bed {
        let store = SqliteStore::open(self.path(), self.clock.clone()).unwrap();
        Bed::of(Arc::new(store), Arc::clone(&self.clock))
    }

    fn refused(&self) -> Error {
        SqliteStore::open(self.path(), self.clock.clone()).unwrap_err()
    }

    /// Looks into the file, or changes it behind the store's back.
    fn sql(&self, sql: &str) {
        rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        rusqlite::Connection::open(self.path()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn a_second_store_on_the_same_file_is_refused() {
    let place = Place::new();
    let first = place.bed();
    let error = place.refused();
    assert!(matches!(&error, Error::Locked { path } if path.ends_with("holdpoint.db")), "{error:?}");
    block_on(first.store.close()).unwrap();
    place.bed();
}

/// Under another name the file has another log beside it: two processes would lose each other's writes.
#[cfg(unix)]
#[test]
fn a_second_store_on_the_same_file_under_another_name_is_refused() {
    let place = Place::new();
    let _first = place.bed();
    let elsewhere = tempfile::tempdir().unwrap();
    let (hard, soft) = (elsewhere.path().join("hard.db"), elsewhere.path().join("soft.db"));
    std::fs::hard_link(place.path(), &hard).unwrap();
    std::os::unix::fs::symlink(place.path(), &soft).unwrap();
    for name in [hard, soft] {
        let clock = std::sync::Arc::new(holdpoint_store::SystemClock::new());
        let error = holdpoint_store::SqliteStore::open(&name, clock).err();
        assert!(matches!(error, Some(Error::Locked { .. })), "{}: {error:?}", name.display());
    }
}

/// Arguments and results are in it.
#[cfg(unix)]
#[test]
fn the_file_and_what_is_beside_it_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let _bed = place.bed();
    for entry in std::fs::read_dir(place.path().parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let place = Place::new();
    drop(place.bed());
    place.sql("PRAGMA user_version = 99");
    let before = std::fs::read(place.path()).unwrap();
    let error = place.refused();
    assert!(matches!(error, Error::Newer { found: 99, known: 1..99, .. }), "{error:?}");
    assert_eq!(std::fs::read(place.path()).unwrap(), before);
}

/// As it was before requests could wait under terms: what was open keeps its deadline.
#[test]
fn a_file_from_before_terms_is_brought_up_to_date() {
    let place = Place::new();
    let bed = place.bed();
    let walk = block_on(Walk::suspended_with(&bed, &ana(), "job", expiring(1_000)));
    let request = walk.requests()[0];
    drop((walk, bed));
    place.sql(&format!("{}; PRAGMA user_version = 3", crate::terms::BEFORE_TERMS));
    let bed = place.bed();
    assert_eq!(place.number("PRAGMA user_version"), 5);
    block_on(crate::terms::an_open_request_kept_its_deadline(bed, request));
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let place = Place::new();
    place.sql("CREATE TABLE theirs (x)");
    let before = std::fs::read(place.path()).unwrap();
    let error = place.refused();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(std::fs::read(place.path()).unwrap(), before);

    let text = Place::new();
    std::fs::write(text.path(), "this is no database, and long enough to be looked at as one".repeat(100))
        .unwrap();
    let error = text.refused();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

#[test]
fn a_run_of_a_newer_version_is_left_alone_and_the_others_go_on() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let newer = Walk::suspended(&bed, &ana(), "newer").await;
        let other = Walk::suspended(&bed, &ana(), "other").await;
        let id = newer.id().0.simple();
        place.sql(&format!("UPDATE run SET snapshot_version = 99 WHERE id = x'{id}'"));

        let refused = bed.store.load(&ana(), newer.id()).await.unwrap_err();
        assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused:?}");
        let page = bed.store.runs(&ana(), &RunFilter::default(), &PageRequest::default()).await.unwrap();
        assert_eq!(page.items.iter().map(|view| view.run_id).collect::<Vec<_>>(), [other.id()]);
        let inbox =
            bed.store.interactions(&ana(), &Default::default(), &PageRequest::default()).await.unwrap();
        assert_eq!(inbox.items.len(), 2);
        other.decided_to_the_end().await;
        assert_eq!(place.number(&format!("SELECT snapshot_version FROM run WHERE id = x'{id}'")), 99);
    });
}

/// Public reports of approvals that were gone after a restart, and of prompts that came a second time, are why this is
/// looked at field by field.
#[test]
fn everything_is_there_after_a_restart() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let waiting = Walk::suspended(&bed, &ana(), "waiting").await;
        let decided = Walk::suspended(&bed, &ana(), "decided").await;
        decide(&bed.store, &ana(), decided.requests()[1], DecisionWord::Approve).await;
        bed.store.release(&ana(), decided.id(), 2, 0).await.unwrap();
        let ended = Walk::suspended(&bed, &ana(), "ended").await.decided_to_the_end().await;
        let all = async |bed: &Bed| {
            let mut all = Vec::new();
            for run in [waiting.id(), decided.id(), ended.id()] {
                all.push(format!("{:?}", bed.store.load(&ana(), run).await.unwrap()));
                all.push(format!("{:?}", bed.store.run(&ana(), run).await.unwrap()));
                all.push(format!("{:?}", bed.store.events(&ana(), run, 0, 1_000).await.unwrap()));
                all.push(format!("{:?}", bed.store.audit(&ana(), run, 0, 1_000).await.unwrap()));
                all.push(format!("{:?}", bed.store.verify(&ana(), run).await.unwrap()));
            }
            let page = PageRequest::default();
            all.push(format!(
                "{:?}",
                bed.store.interactions(&ana(), &Default::default(), &page).await.unwrap()
            ));
            all
        };
        let before = all(&bed).await;
        bed.store.close().await.unwrap();
        let bed = place.bed();
        assert_eq!(all(&bed).await, before);
        // Only what was decided has work; what waits is left to wait.
        let taken = bed.store.recover(10).await.unwrap();
        assert_eq!(
            taken.iter().map(|taken| (taken.run, taken.crashed)).collect::<Vec<_>>(),
            [(decided.id(), false)]
        );
        let (mut again, changes) = Walk::resumed(&bed.store, &ana(), decided.id()).await;
        again.stored(changes, Next::Suspend).await;
    });
}

#[test]
fn what_a_process_left_behind_is_taken_over_once() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let mut working = Walk::started(&bed, &ana(), "working").await;
        let waiting = Walk::suspended(&bed, &cx("other", "bo"), "waiting").await;
        decide(&bed.store, &cx("other", "bo"), waiting.requests()[0], DecisionWord::Approve).await;
        Walk::suspended(&bed, &ana(), "asleep").await;
        bed.store.close().await.unwrap();

        let bed = place.bed();
        let first = bed.store.recover(1).await.unwrap();
        let second = bed.store.recover(10).await.unwrap();
        assert!(bed.store.recover(10).await.unwrap().is_empty());
        let mut taken: Vec<_> = first.iter().chain(&second).map(|taken| (taken.run, taken.crashed)).collect();
        taken.sort();
        let mut expected = vec![(working.id(), true), (waiting.id(), true)];
        expected.sort();
        assert_eq!(taken, expected);
        // The former owner, should it still live somewhere, writes nothing.
        working.store = Arc::clone(&bed.store);
        let changes = working.proposed().await;
        let step = working.made(changes, Next::Keep);
        assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Fenced);
    });
}

#[test]
fn a_run_that_ends_every_process_is_set_aside() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let poison = Walk::started(&bed, &ana(), "poison").await;
        let well = Walk::started(&bed, &ana(), "well").await;
        bed.store.close().await.unwrap();
        for _ in 0..CLAIMS_WITHOUT_PROGRESS_MAX {
            let bed = place.bed();
            let taken = bed.store.recover(10).await.unwrap();
            assert_eq!(taken.len(), 2);
            taken_up_again(&bed, &poison).await;
            // This one gets on, the other does not.
            let loaded = bed.store.load(&ana(), well.id()).await.unwrap().unwrap();
            let mut well = Walk::of(&bed.store, &ana(), loaded);
            well.run.add_active_ms(1);
            well.stored(holdpoint_core::run::Changes::default(), Next::Keep).await;
            bed.store.close().await.unwrap();
        }
        let bed = place.bed();
        let taken = bed.store.recover(10).await.unwrap();
        assert_eq!(taken.iter().map(|taken| taken.run).collect::<Vec<_>>(), [well.id()]);
        assert_eq!(bed.store.set_aside(10).await.unwrap().len(), 1);
        let view = bed.store.run(&ana(), poison.id()).await.unwrap().unwrap();
        assert_eq!(view.status, RunStatus::Quarantined);
        assert_eq!(bed.store.stats().await.unwrap().quarantined, 1);
    });
}

/// As it was before there were requests for operators.
#[test]
fn a_run_that_was_set_aside_without_a_request_gets_one() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let run = Walk::started(&bed, &ana(), "old").await.id();
        bed.store.close().await.unwrap();
        drop(bed);
        place.sql("UPDATE run SET status = 5, owner = NULL, claims = 5, epoch = epoch + 1");
        let bed = place.bed();
        let noted = bed.store.set_aside(10).await.unwrap();
        let request = noted[0].event.body.opens().unwrap();
        assert_eq!((noted.len(), noted[0].run), (1, run));
        assert!(bed.store.set_aside(10).await.unwrap().is_empty());
        decide(&bed.store, &ana(), request, DecisionWord::Approve).await;
        let view = bed.store.run(&ana(), run).await.unwrap().unwrap();
        assert_eq!(view.status, RunStatus::Running);
        let chain = bed.store.verify(&ana(), run).await.unwrap();
        assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
    });
}

/// What is in hand when a process ends is not all to blame for it.
#[test]
fn runs_that_were_there_when_processes_ended_are_taken_up_one_at_a_time() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let runs = [Walk::started(&bed, &ana(), "a").await, Walk::started(&bed, &ana(), "b").await];
        bed.store.close().await.unwrap();
        for _ in 0..holdpoint_store::CLAIMS_ALONE_FROM {
            let bed = place.bed();
            assert_eq!(bed.store.recover(10).await.unwrap().len(), 2);
            for run in &runs {
                taken_up_again(&bed, run).await;
            }
            bed.store.close().await.unwrap();
        }
        let bed = place.bed();
        let first = bed.store.recover(10).await.unwrap();
        assert_eq!((first.len(), bed.store.recover(10).await.unwrap().len()), (1, 0), "alone");
        // It gets on: it was not the one.
        let loaded = bed.store.load(&ana(), first[0].run).await.unwrap().unwrap();
        let mut well = Walk::of(&bed.store, &ana(), loaded);
        well.run.add_active_ms(1);
        well.stored(holdpoint_core::run::Changes::default(), Next::Keep).await;
        let second = bed.store.recover(10).await.unwrap();
        assert_eq!(second.len(), 1);
        assert_ne!(second[0].run, first[0].run);
    });
}

/// The step that asks the model once more, after which the process ends again.
async fn taken_up_again(bed: &Bed, run: &Walk) {
    let loaded = bed.store.load(&ana(), run.id()).await.unwrap().unwrap();
    let mut walk = Walk::of(&bed.store, &ana(), loaded);
    walk.run.add_active_ms(1);
    let step = walk.made(holdpoint_core::run::Changes::default(), Next::Keep);
    let step = holdpoint_store::Step { progress: false, ..step };
    assert!(matches!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { .. }));
}

#[test]
fn a_chain_that_somebody_changed_is_found_broken() {
    let changes = [
        ("the head's hash", "UPDATE run SET audit_hash = zeroblob(32)"),
        ("the head's count", "UPDATE run SET audit_records = audit_records - 1"),
        ("the last entry gone", "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)"),
        ("the first entry gone", "DELETE FROM journal WHERE seq = (SELECT min(seq) FROM journal)"),
        (
            "two entries exchanged",
            "UPDATE journal SET body = (SELECT body FROM journal AS other WHERE other.seq <> journal.seq \
             AND other.seq = (SELECT max(seq) FROM journal)) WHERE seq = (SELECT min(seq) FROM journal)",
        ),
    ];
    for (what, sql) in changes {
        let place = Place::new();
        block_on(async {
            let bed = place.bed();
            let walk = Walk::suspended(&bed, &ana(), "job").await;
            let whole = bed.store.verify(&ana(), walk.id()).await.unwrap();
            assert!(matches!(whole, Some(ChainCheck::Whole { .. })));
            place.sql(sql);
            let found = bed.store.verify(&ana(), walk.id()).await.unwrap();
            assert!(matches!(found, Some(ChainCheck::Broken { .. })), "{what}: {found:?}");
        });
    }
    // One byte of a record, wherever it stands: broken, or not readable any more; never whole.
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let walk = Walk::suspended(&bed, &ana(), "job").await;
        let length = place.number("SELECT length(body) FROM journal ORDER BY seq LIMIT 1");
        // The records come after the events and messages.
        for back in [1, 2, 20, 40] {
            let at = length - back;
            let flip = "UPDATE journal SET body = CAST(substr(body, 1, AT) AS BLOB) || x'00' || substr(body, AT + 2) \
                        WHERE seq = (SELECT min(seq) FROM journal)"
                .replace("AT + 2", &format!("{}", at + 2))
                .replace("1, AT", &format!("1, {at}"));
            let before = place.number("SELECT count(*) FROM journal");
            place.sql(&format!("CREATE TABLE kept AS SELECT * FROM journal; {}", flip_as_blob(&flip)));
            let found = bed.store.verify(&ana(), walk.id()).await;
            assert!(!matches!(found, Ok(Some(ChainCheck::Whole { .. }) | None)), "{back}: {found:?}");
            place.sql("DELETE FROM journal; INSERT INTO journal SELECT * FROM kept; DROP TABLE kept");
            assert_eq!(place.number("SELECT count(*) FROM journal"), before);
        }
        let found = bed.store.verify(&ana(), walk.id()).await.unwrap();
        assert!(matches!(found, Some(ChainCheck::Whole { .. })), "{found:?}");
    });
}

/// Joined blobs are text to SQLite until they are cast back.
fn flip_as_blob(sql: &str) -> String {
    sql.replace("SET body = ", "SET body = CAST(").replace(" WHERE", " AS BLOB) WHERE")
}

#[test]
fn operations_that_come_together_share_a_commit() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let mut requests = Vec::new();
        for n in 0..32 {
            requests.extend(Walk::suspended(&bed, &ana(), &format!("job-{n}")).await.requests());
        }
        let before = bed.store.stats().await.unwrap();
        let tries: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let store = Arc::clone(&bed.store);
                tokio::spawn(async move {
                    store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await
                })
            })
            .collect();
        for tried in tries {
            tried.await.unwrap().unwrap();
        }
        let after = bed.store.stats().await.unwrap();
        assert_eq!(after.operations - before.operations, 64);
        assert!(after.commits - before.commits < 64, "{before:?} {after:?}");
    });
}

/// The duplicate is noticed by the database in the middle of a group; the others of the group are done all the same.
#[test]
fn an_operation_that_the_database_refuses_does_not_concern_its_group() {
    let place = Place::new();
    block_on(async {
        let bed = place.bed();
        let first = Walk::suspended(&bed, &ana(), "first").await;
        let mut tries = Vec::new();
        for n in 0..16 {
            let mut walk = Walk::started(&bed, &ana(), &format!("job-{n}")).await;
            let changes = walk.proposed().await;
            let mut step = walk.made(changes, Next::Suspend);
            let bad = n % 4 == 0;
            if bad {
                duplicate(&mut step, first.requests()[0]);
            }
            tries.push((bad, step));
        }
        let tries: Vec<_> = tries
            .into_iter()
            .map(|(bad, step)| {
                let store = Arc::clone(&bed.store);
                (bad, tokio::spawn(async move { store.commit(&ana(), &step).await }))
            })
            .collect();
        for (bad, tried) in tries {
            let done = tried.await.unwrap();
            match bad {
                true => assert!(matches!(done, Err(Error::Inconsistent(_))), "{done:?}"),
                false => assert!(matches!(done, Ok(Committed::Done { .. })), "{done:?}"),
            }
        }
        assert_eq!(bed.store.stats().await.unwrap().pending, 2 + 12 * 2);
    });
}

/// Gives the first request an id that is taken.
fn duplicate(step: &mut holdpoint_store::Step<'_>, id: holdpoint_protocol::RequestId) {
    use holdpoint_protocol::{Event, EventBody};
    step.writes.opened[0].request = id;
    let at = step.writes.opened[0].event;
    let mut event: Event = (*step.writes.events[at]).clone();
    let EventBody::ApprovalRequest(said) = &mut event.body else { panic!("{event:?}") };
    said.request_id = id;
    step.writes.events[at] = Arc::new(event);
}

/// BENCH W4. Events, messages, requests, records, the control state and every index of them.
#[test]
fn a_waiting_run_weighs_at_most_3_kb() {
    const RUNS: u64 = 600;
    const MAX_BYTES: u64 = 3 * 1024;
    let place = Place::new();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    block_on(async {
        let bed = place.bed();
        bed.store.close().await.unwrap();
        let empty = size(&place.path());
        let bed = place.bed();
        for n in 0..RUNS {
            let name = format!("conversation-{}", uuid::Uuid::from_u128(u128::from(n) << 64 | 0x1234_5678));
            Walk::suspended(&bed, &ana(), &name).await;
        }
        bed.store.close().await.unwrap();
        let each = (size(&place.path()) - empty) / RUNS;
        println!("bytes a waiting run: {each}");
        assert!(each <= MAX_BYTES, "{each}");
    });
}
