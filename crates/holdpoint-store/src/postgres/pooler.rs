//! Whether something stands between this process and the database that changes what a connection is. A pooler that shares its
//! connections between transactions takes a LISTEN and never delivers; an old one also loses - or worse, mixes up - the
//! statements that were prepared on a connection. Both are found by trying, and not by asking for names and versions.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::dial::{ANSWER_MAX, Dialer, answered};
use super::rows::Done;
use crate::{Error, Listening, Result};

/// How long a bell may take to come back.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// How many connections of the pooler are held at most, to be given another one.
const HELD_MAX: usize = 4;

/// Listens at one place, rings at another, and says how long it took to be heard. `None`: it was not.
pub(super) async fn heard(listen: &Dialer, ring: &Dialer) -> Done<Option<Duration>> {
    let mut line = listen.dial().await?;
    let channel = format!("holdpoint_trial_{}", uuid::Uuid::new_v4().simple());
    answered(line.client.batch_execute(&format!("LISTEN \"{channel}\"")), ANSWER_MAX).await?;
    let other = ring.dial().await?.client;
    let rung = Instant::now();
    answered(other.query_typed("SELECT pg_notify($1, '')", &[(&channel, Type::TEXT)]), ANSWER_MAX).await?;
    let came = tokio::time::timeout(HEARD_WITHIN, line.notices.recv()).await;
    let took = rung.elapsed();
    // Through a pooler, somebody else gets the connection that listens.
    let _ = answered(line.client.batch_execute(&format!("UNLISTEN \"{channel}\"")), ANSWER_MAX).await;
    Ok(matches!(came, Ok(Some(_))).then_some(took))
}

/// Whether a pooler shares its connections between transactions.
pub(super) async fn is_pooled(dialer: &Dialer) -> Done<bool> {
    Ok(heard(dialer, dialer).await?.is_none())
}

/// How an instance that listens here would hear what is rung there.
pub(super) async fn listening(listen: &Dialer, ring: &Dialer) -> Listening {
    let heard_there = match heard(listen, ring).await {
        Ok(Some(took)) => return Listening::Heard(took),
        Ok(None) => is_pooled(listen).await,
        Err(fault) => Err(fault),
    };
    match heard_there {
        Ok(true) => Listening::Lost,
        Ok(false) => Listening::Elsewhere,
        Err(fault) => Listening::Deaf(Error::from(fault).to_string()),
    }
}

/// Refuses a way to the database on which a prepared statement may be gone, or another one.
pub(super) async fn keeps_statements(dialer: &Dialer) -> Result<()> {
    if !is_pooled(dialer).await? {
        return Ok(());
    }
    if loses_statements(dialer).await? {
        return Err(Error::Unavailable(
            "a pooler stands before the database that shares its connections between transactions and loses prepared statements; \
             let it keep them (PgBouncer 1.21 or later with `max_prepared_statements`), have it keep a connection for each \
             client, or connect directly"
                .into(),
        ));
    }
    tracing::info!(
        "a pooler stands before the database that shares its connections between transactions; it keeps prepared statements"
    );
    Ok(())
}

/// Prepares a statement, has the pooler give the connection it was prepared on to others, and tries it on the next.
async fn loses_statements(dialer: &Dialer) -> Done<bool> {
    let client = dialer.dial().await?.client;
    let statement = answered(client.prepare("SELECT pg_backend_pid()"), ANSWER_MAX).await?;
    let mut held = Vec::new();
    let mut first: Option<i32> = None;
    while held.len() < HELD_MAX {
        match tokio::time::timeout(HEARD_WITHIN, client.query_one(&statement, &[])).await {
            Ok(Ok(row)) => {
                let now = row.try_get(0)?;
                if *first.get_or_insert(now) != now {
                    return Ok(false);
                }
            }
            Ok(Err(error)) if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => return Ok(true),
            Ok(Err(error)) => return Err(error.into()),
            // There is no other connection. What others leave on this one is met by everybody.
            Err(_elapsed) => return Ok(true),
        }
        let holder = dialer.dial().await?;
        answered(holder.client.batch_execute("BEGIN; SELECT 1"), ANSWER_MAX).await?;
        held.push(holder);
    }
    Ok(false)
}
