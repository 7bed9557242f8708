//! The weeks of the journal. A partition is made before its week begins, so that nothing has to be moved into it, and goes as a
//! whole once its week is over and no run of it is kept.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::rows::Done;
use crate::tidy::first_at;

/// A week, in milliseconds.
const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
/// How many weeks are prepared beside the one that is now.
const WEEKS_AHEAD: i64 = 2;
/// How long a change of the table may wait for whoever uses it, before it is left for the next time.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How many entries of runs that are gone are deleted at once, where a week cannot go as a whole.
const ENTRIES: i64 = 5_000;

/// The week of a time, counted from 1970.
fn week_of(ms: i64) -> i64 {
    ms.div_euclid(WEEK_MS)
}

fn name_of(week: i64) -> String {
    format!("journal_w{week}")
}

/// Prepares this week and those to come.
pub(super) async fn prepare(client: &mut Client, now_ms: i64) -> Done<()> {
    let week = week_of(now_ms);
    for week in week..=week + WEEKS_AHEAD {
        let name = name_of(week);
        let sql = "SELECT to_regclass($1) IS NOT NULL";
        if client.query_one(sql, &[&name]).await?.try_get(0)? {
            continue;
        }
        let (from, to) = (first_at(week * WEEK_MS), first_at((week + 1) * WEEK_MS));
        // Made beside the journal and put into it: that asks for less than a lock of the whole.
        let made = change(
            client,
            &format!(
                "CREATE TABLE {name} (LIKE journal INCLUDING ALL); \
                 ALTER TABLE journal ATTACH PARTITION {name} FOR VALUES FROM ('{from}') TO ('{to}')"
            ),
        )
        .await;
        match made {
            Ok(()) => {}
            // Another instance has just made it, or the first part reaches over that week, or the clock of an instance was so
            // far ahead that entries of it are among those that fitted nowhere.
            Err(error) if is_there(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Drops the weeks that ended before and of which nothing is kept; of the others, deletes what belongs to no run. Gives how many
/// weeks went.
pub(super) async fn drop_old(client: &mut Client, before_ms: i64) -> Done<u64> {
    let sql = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
               WHERE i.inhparent = 'journal'::regclass ORDER BY c.relname";
    let names: Vec<String> =
        client.query(sql, &[]).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let mut gone = 0;
    for name in names {
        let week: Option<i64> = name.strip_prefix("journal_w").and_then(|week| week.parse().ok());
        match week {
            Some(week) if (week + 1) * WEEK_MS > before_ms => {}
            Some(_) if !is_needed(client, &name).await? => {
                change(client, &format!("DROP TABLE {name}")).await?;
                gone += 1;
            }
            // The first part and what fitted nowhere stay, and so does a week that a kept run holds.
            Some(_) | None => delete_orphans(client, &name, before_ms).await?,
        }
    }
    Ok(gone)
}

async fn is_needed(client: &Client, name: &str) -> Done<bool> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM {name} j JOIN run r ON r.tenant_id = j.tenant_id AND r.run_id = j.run_id)"
    );
    Ok(client.query_one(&sql, &[]).await?.try_get(0)?)
}

async fn delete_orphans(client: &Client, name: &str, before_ms: i64) -> Done<()> {
    let sql = format!(
        "DELETE FROM {name} WHERE ctid = ANY (ARRAY( \
             SELECT j.ctid FROM {name} j LEFT JOIN run r ON r.tenant_id = j.tenant_id AND r.run_id = j.run_id \
             WHERE r.run_id IS NULL AND j.run_id < $1 LIMIT $2))"
    );
    let statement = client.prepare(&sql).await?;
    let before = first_at(before_ms).0;
    while client.execute(&statement, &[&before, &ENTRIES]).await? == ENTRIES.unsigned_abs() {}
    Ok(())
}

/// Changes the table, or gives up soon: whoever waits for a lock of it has everybody else wait behind.
async fn change(client: &mut Client, sql: &str) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = {}", LOCK_WAIT.as_millis())).await?;
    transaction.batch_execute(sql).await?;
    transaction.commit().await
}

fn is_there(error: &tokio_postgres::Error) -> bool {
    let there = [
        SqlState::DUPLICATE_TABLE,
        SqlState::UNIQUE_VIOLATION,
        SqlState::INVALID_OBJECT_DEFINITION,
        SqlState::CHECK_VIOLATION,
    ];
    error.code().is_some_and(|code| there.contains(code))
}
