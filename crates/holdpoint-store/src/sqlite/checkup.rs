//! A look at a file from outside, while a server may have it open.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::lists::OVERDUE;
use super::open::{self, VERSION};
use super::read::{self, RUN_COLUMNS};
use super::rows::{self, select_request};
use crate::checkup::{COMMITS, MEASURE_MAX, READ_MAX, age};
use crate::{Checkup, Clock, CommitFigures, Error, ReadThrough, Result, StoredFigures, SystemClock};

/// The largest file whose pages are all looked at: a few seconds' work.
const CHECKED_WHOLE_BYTES: i64 = 1024 * 1024 * 1024;

/// The version of the schema since which requests can stay open beyond a deadline.
const TERMS_SINCE: u32 = 4;

/// Looks at a SQLite database. Commits are measured in a file of their own beside it.
///
/// # Errors
/// When there is no such file, or it is no database of ours.
pub fn checkup_sqlite(path: &Path) -> Result<Checkup> {
    if !path.exists() {
        return Err(Error::Unavailable(format!("there is no file `{}` yet", path.display())));
    }
    let connection = open::reader(path)?;
    let version = open::schema(&connection)?;
    let stored = (1..=VERSION).contains(&version).then(|| figures(&connection, version)).transpose()?;
    let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    Ok(Checkup {
        engine: format!("SQLite {}", rusqlite::version()),
        engine_number: None,
        schema: (version > 0).then_some(version),
        schema_known: VERSION,
        commits: measure(path)?,
        clock_ahead_ms: None,
        pooled: None,
        listening: None,
        settings: vec![("journal_mode".into(), journal)],
        oldest_transaction: None,
        stored,
        read: (version == VERSION).then(|| read_through(&connection)).transpose()?,
    })
}

fn figures(connection: &Connection, version: u32) -> Result<StoredFigures> {
    let now = SystemClock::new().now().as_millisecond();
    let (pending, oldest): (u64, Option<i64>) =
        connection.query_row("SELECT count(*), min(opened_at) FROM request WHERE status = 0", [], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        })?;
    // An older schema knows of none.
    let overdue: i64 = match version {
        ..TERMS_SINCE => 0,
        TERMS_SINCE.. => connection.query_row(OVERDUE, [now], |row| row.get(0))?,
    };
    let quarantined: i64 =
        connection.query_row("SELECT count(*) FROM run WHERE status = 5", [], |row| row.get(0))?;
    Ok(StoredFigures {
        pending,
        oldest_pending: oldest.map(|at| age(now, at)),
        overdue: overdue.unsigned_abs(),
        quarantined: quarantined.unsigned_abs(),
        instances: None,
    })
}

/// First what SQLite says of the file's pages, where that does not take long; then the rows.
fn read_through(connection: &Connection) -> Result<ReadThrough> {
    let mut found = ReadThrough { all: true, ..ReadThrough::default() };
    let began = Instant::now();
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    if pages.saturating_mul(size) <= CHECKED_WHOLE_BYTES {
        let said: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        if said != "ok" {
            found.saw::<()>(Err(Error::Corrupt(format!("the file: {said}"))));
        }
    }
    let requests = select_request!("status = 0");
    let runs = format!("SELECT {RUN_COLUMNS} FROM run ORDER BY id DESC");
    let mut statement = connection.prepare(requests)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()?.filter(|_| began.elapsed() < READ_MAX) {
        found.saw(rows::request(row).map_err(Error::from));
    }
    let mut statement = connection.prepare(&runs)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()?.filter(|_| began.elapsed() < READ_MAX) {
        found.saw(read::run_row(row));
    }
    found.all = began.elapsed() < READ_MAX;
    Ok(found)
}

fn measure(path: &Path) -> Result<CommitFigures> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = folder.join(format!(".holdpoint-checkup-{}", uuid::Uuid::new_v4().simple()));
    let took = commits(&scratch);
    for ending in ["", "-wal", "-shm"] {
        let mut name = scratch.clone().into_os_string();
        name.push(ending);
        // What is not there needs no removing.
        let _ = std::fs::remove_file(name);
    }
    Ok(CommitFigures::of(took?))
}

fn commits(scratch: &Path) -> Result<Vec<Duration>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags(scratch, flags)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE t (n INTEGER)")?;
    let (began, mut took) = (Instant::now(), Vec::new());
    while took.len() < COMMITS as usize && began.elapsed() < MEASURE_MAX {
        let one = Instant::now();
        connection.execute("INSERT INTO t VALUES (1)", [])?;
        took.push(one.elapsed());
    }
    Ok(took)
}
