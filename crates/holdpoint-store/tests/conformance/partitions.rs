//! The weeks of the journal in PostgreSQL.

use std::time::Duration;

use holdpoint_store::{Clock, ManualClock, SystemClock};
use uuid::Uuid;

use crate::bed::{Bed, ana, block_on};
use crate::cluster::{Database, database};
use crate::walk::Walk;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK_MS: i64 = 7 * 86_400_000;

/// The partitions that are weeks.
async fn weeks(database: &Database) -> Vec<i64> {
    let sql = "SELECT substr(c.relname, 10)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
               WHERE i.inhparent = 'journal'::regclass AND c.relname LIKE 'journal_w%' ORDER BY 1";
    database.client().await.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// An entry of a run that begins in the middle of a week; gives the partition it is in.
async fn entry(database: &Database, week: i64) -> (Uuid, String) {
    let ms = u128::try_from(week * WEEK_MS + WEEK_MS / 2).unwrap();
    let run = Uuid::from_u128(ms << 80 | 7);
    let sql = "INSERT INTO journal (tenant_id, run_id, seq, body) VALUES ('acme', $1, 1, '') \
               RETURNING tableoid::regclass::text";
    (run, database.client().await.query_one(sql, &[&run]).await.unwrap().get(0))
}

/// A run of that id, like the one there is.
async fn run_row(database: &Database, run: Uuid) {
    let sql = "INSERT INTO run SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', $1::text))).* FROM run r LIMIT 1";
    database.client().await.execute(sql, &[&run.to_string()]).await.unwrap();
}

async fn entries(database: &Database, run: Uuid) -> i64 {
    let sql = "SELECT count(*) FROM journal WHERE run_id = $1";
    database.client().await.query_one(sql, &[&run]).await.unwrap().get(0)
}

/// A store whose clock stands at this time, and a run in it.
async fn bed_at(database: &Database, ms: i64) -> Bed {
    let clock =
        std::sync::Arc::new(ManualClock::at(holdpoint_protocol::Timestamp::from_millisecond(ms).unwrap()));
    let bed = Bed::of(database.store(u64::MAX, clock.clone()).await, clock);
    Walk::unborn(&bed, &ana(), "kept").try_start(None).await.unwrap();
    bed
}

#[test]
fn a_week_is_prepared_before_it_begins_and_goes_when_nothing_of_it_is_kept() {
    block_on(async {
        let database = database().await;
        let now = SystemClock::new().now().as_millisecond();
        let week = now / WEEK_MS;
        let bed = bed_at(&database, now).await;
        bed.store.tidy(None, 10).await.unwrap();
        bed.store.tidy(None, 10).await.unwrap();
        // What there was when the schema was made reaches over this week and the next.
        assert_eq!(weeks(&database).await, [week + 2]);
        let (gone, place) = entry(&database, week + 2).await;
        assert_eq!(place, format!("journal_w{}", week + 2));

        // A month later: the weeks go on, and that one is over with nobody's run in it.
        bed.clock.advance_ms(u64::try_from(5 * WEEK_MS).unwrap());
        let tidied = bed.store.tidy(Some(DAY), 10).await.unwrap();
        assert_eq!(tidied.weeks, 1);
        assert_eq!(weeks(&database).await, [week + 5, week + 6, week + 7]);
        assert_eq!(entries(&database, gone).await, 0);
    });
}

#[test]
fn a_week_with_a_kept_run_stays_and_gives_up_what_belongs_to_none() {
    block_on(async {
        let database = database().await;
        let now = SystemClock::new().now().as_millisecond();
        let week = now / WEEK_MS;
        let bed = bed_at(&database, now).await;
        bed.store.tidy(None, 10).await.unwrap();
        let (kept, _) = entry(&database, week + 2).await;
        run_row(&database, kept).await;
        let orphan = Uuid::from_u128(kept.as_u128() + 1);
        let sql = "INSERT INTO journal (tenant_id, run_id, seq, body) VALUES ('acme', $1, 1, '')";
        database.client().await.execute(sql, &[&orphan]).await.unwrap();

        bed.clock.advance_ms(u64::try_from(5 * WEEK_MS).unwrap());
        assert_eq!(bed.store.tidy(Some(DAY), 10).await.unwrap().weeks, 0);
        assert!(weeks(&database).await.contains(&(week + 2)));
        assert_eq!((entries(&database, kept).await, entries(&database, orphan).await), (1, 0));
    });
}

/// The clock of one instance is years ahead: its runs are found like any other.
#[test]
fn what_fits_in_no_week_is_kept_beside_them() {
    block_on(async {
        let database = database().await;
        let now = SystemClock::new().now().as_millisecond();
        let bed = bed_at(&database, now).await;
        let (far, place) = entry(&database, now / WEEK_MS + 300).await;
        assert_eq!((place.as_str(), entries(&database, far).await), ("journal_other", 1));
        // When its week comes, it cannot have a part of its own, and nothing is lost by that.
        bed.clock.advance_ms(u64::try_from(300 * WEEK_MS).unwrap());
        bed.store.tidy(None, 10).await.unwrap();
        assert_eq!(entries(&database, far).await, 1);
    });
}

#[test]
fn instances_that_prepare_the_same_week_do_not_stand_in_each_others_way() {
    block_on(async {
        let database = database().await;
        let now = SystemClock::new().now().as_millisecond() + 10 * WEEK_MS;
        let beds = [bed_at(&database, now).await, bed_at(&database, now).await, bed_at(&database, now).await];
        let tidied = beds.iter().map(|bed| bed.store.tidy(Some(DAY), 10));
        for tidied in futures_util::future::join_all(tidied).await {
            tidied.unwrap();
        }
        let week = now / WEEK_MS;
        assert_eq!(weeks(&database).await, [week, week + 1, week + 2]);
    });
}
