//! A look at a database from outside, while instances use it.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::dial::Dialer;
use super::pooler;
use super::rows::{self, Done, RUN_COLUMNS, select_request};
use super::schema::MIGRATIONS;
use crate::checkup::{COMMITS, MEASURE_MAX, READ_MAX, age};
use crate::{Checkup, Clock, CommitFigures, Error, ReadThrough, Result, StoredFigures, SystemClock};

/// The version of the schema since which requests can stay open beyond a deadline.
const TERMS_SINCE: u32 = 5;

/// The settings that are looked at.
const SETTINGS: &str = "synchronous_commit fsync full_page_writes data_checksums max_connections \
                        synchronous_standby_names transaction_read_only idle_in_transaction_session_timeout";

/// Looks at a PostgreSQL database. Commits are measured with records in the log that mean nothing to anybody.
///
/// # Errors
/// When it cannot be reached, or does not let this user look.
pub async fn checkup_postgres(
    url: &str,
    listen_url: Option<&str>,
    ca_file: Option<&std::path::Path>,
) -> Result<Checkup> {
    let dialer = Dialer::new(url, ca_file)?;
    let line = dialer.dial().await?;
    let found = look(&line.client).await?;
    let direct = match listen_url {
        Some(url) => Dialer::new(url, ca_file)?,
        None => dialer.clone(),
    };
    Ok(Checkup {
        pooled: Some(pooler::is_pooled(&dialer).await?),
        listening: Some(pooler::listening(&direct, &dialer).await),
        ..found
    })
}

async fn look(client: &Client) -> Done<Checkup> {
    let engine = client
        .query_typed_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint",
            &[],
        )
        .await?;
    let known = MIGRATIONS.len() as u32;
    let schema = schema(client).await?;
    let stored = match schema {
        Some(version) if (1..=known).contains(&version) => Some(figures(client, version).await?),
        Some(_) | None => None,
    };
    let names: Vec<&str> = SETTINGS.split(' ').filter(|name| !name.is_empty()).collect();
    let rows = client
        .query("SELECT name, setting FROM pg_settings WHERE name = ANY ($1) ORDER BY name", &[&names])
        .await?;
    let settings = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Done<Vec<_>>>()?;
    let sql = "SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::bigint FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let oldest: Option<i64> = client.query_typed_one(sql, &[]).await?.try_get(0)?;
    Ok(Checkup {
        engine: format!("PostgreSQL {}", engine.try_get::<_, String>(0)?),
        engine_number: Some(engine.try_get(1)?),
        schema,
        schema_known: known,
        clock_ahead_ms: Some(clock_ahead(client).await?),
        pooled: None,
        listening: None,
        commits: measure(client).await?,
        settings,
        oldest_transaction: oldest.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        stored,
        read: match schema {
            Some(version) if version == known => Some(read_through(client).await?),
            Some(_) | None => None,
        },
    })
}

async fn schema(client: &Client) -> Done<Option<u32>> {
    let there = client.query_typed_one("SELECT to_regclass('holdpoint_schema') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_typed_opt("SELECT version FROM holdpoint_schema", &[]).await?;
    let version = row.map(|row| row.try_get::<_, i32>(0)).transpose()?;
    Ok(version.and_then(|version| u32::try_from(version).ok()).filter(|version| *version > 0))
}

async fn figures(client: &Client, version: u32) -> Done<StoredFigures> {
    let sql = "SELECT (SELECT count(*) FROM request WHERE status = 0), (SELECT min(opened_at) FROM request WHERE status = 0), \
               (SELECT count(*) FROM run WHERE status = 5), (SELECT count(*) FROM instance WHERE expires_at > now.ms), now.ms \
               FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS ms) now";
    let row = client.query_typed_one(sql, &[]).await?;
    let now: i64 = row.try_get(4)?;
    let count = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
    // An older schema knows of none.
    let overdue: i64 = match version {
        ..TERMS_SINCE => 0,
        TERMS_SINCE.. => {
            let sql = "SELECT count(*) FROM request WHERE status = 0 AND wait_until IS NOT NULL AND wait_until <= $1";
            client.query_typed_one(sql, &[(&now, Type::INT8)]).await?.try_get(0)?
        }
    };
    Ok(StoredFigures {
        pending: count(0)?,
        oldest_pending: row.try_get::<_, Option<i64>>(1)?.map(|at| age(now, at)),
        overdue: overdue.unsigned_abs(),
        quarantined: count(2)?,
        instances: Some(count(3)?),
    })
}

/// A page at a time, each by its place: nothing is held open meanwhile.
async fn read_through(client: &Client) -> Done<ReadThrough> {
    let mut found = ReadThrough::default();
    let began = Instant::now();
    let requests = select_request!(
        "status = 0 AND (tenant_id, request_id) > ($1, $2) ORDER BY tenant_id, request_id LIMIT 500"
    );
    let mut after = (String::new(), Uuid::nil());
    loop {
        let place = [(&after.0 as &(dyn ToSql + Sync), Type::TEXT), (&after.1, Type::UUID)];
        let rows = client.query_typed(requests, &place).await?;
        let Some(last) = rows.last().filter(|_| began.elapsed() < READ_MAX) else { break };
        after = (last.try_get(0)?, last.try_get(3)?);
        rows.iter().for_each(|row| found.saw(rows::request(row).map_err(Error::from)));
    }
    let runs = format!(
        "SELECT {RUN_COLUMNS}, tenant_id FROM run WHERE (tenant_id, run_id) > ($1, $2) ORDER BY tenant_id, run_id LIMIT 500"
    );
    let mut after = (String::new(), Uuid::nil());
    loop {
        let place = [(&after.0 as &(dyn ToSql + Sync), Type::TEXT), (&after.1, Type::UUID)];
        let rows = client.query_typed(&runs, &place).await?;
        let Some(last) = rows.last().filter(|_| began.elapsed() < READ_MAX) else { break };
        after = (last.try_get(11)?, last.try_get(0)?);
        rows.iter().for_each(|row| found.saw(rows::run_row(row).map(drop).map_err(Error::from)));
    }
    found.all = began.elapsed() < READ_MAX;
    Ok(found)
}

/// The time on the way is taken to be the same in both directions; the quickest of a few answers tells most.
async fn clock_ahead(client: &Client) -> Done<i64> {
    let clock = SystemClock::new();
    let mut best: Option<(Duration, i64)> = None;
    for _ in 0..5 {
        let (asked, began) = (clock.now().as_millisecond(), Instant::now());
        let row = client
            .query_typed_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])
            .await?;
        let took = began.elapsed();
        let half = i64::try_from(took.as_millis() / 2).unwrap_or(0);
        let ahead = row.try_get::<_, i64>(0)? - asked - half;
        if best.is_none_or(|(quickest, _)| took < quickest) {
            best = Some((took, ahead));
        }
    }
    Ok(best.map_or(0, |(_, ahead)| ahead))
}

async fn measure(client: &Client) -> Done<CommitFigures> {
    let statement = "SELECT pg_logical_emit_message(true, 'holdpoint checkup', '')";
    let (began, mut took) = (Instant::now(), Vec::new());
    while took.len() < COMMITS as usize && began.elapsed() < MEASURE_MAX {
        let one = Instant::now();
        client.query_typed(statement, &[]).await?;
        took.push(one.elapsed());
    }
    Ok(CommitFigures::of(took))
}
