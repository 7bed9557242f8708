//! Opening the file: the lock, the settings, the migrations.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::{Error, Result};

/// The migrations, in order. The version of a file is how many of them it has had.
const MIGRATIONS: [&str; 5] = [
    include_str!("migrations/0001_start.sql"),
    include_str!("migrations/0002_effect.sql"),
    include_str!("migrations/0003_tidy.sql"),
    include_str!("migrations/0004_terms.sql"),
    include_str!("migrations/0005_quarantine.sql"),
];

/// The newest version of the file that is known here.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Marks the file as ours: "Hold".
const APPLICATION_ID: u32 = 0x486f_6c64;

/// Versions before this one could damage a file that several connections write ahead to.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Pages of the write-ahead log after which they are copied back: 16 MiB. The log is overwritten from its start then,
/// so a commit seldom makes a file longer, which would cost the file system a journal entry of its own.
const CHECKPOINT_PAGES: u32 = 4_096;
/// What is left of a log that had to grow beyond that.
const LOG_KEPT_BYTES: u32 = 64 * 1024 * 1024;
/// Memory for pages, of the writer and of each reader.
const WRITER_CACHE_KIB: i32 = 16 * 1024;
const READER_CACHE_KIB: i32 = 4 * 1024;

/// How often a lock that another process has is looked at, and the pause between.
const LOCK_LOOKS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The lock that keeps a second process out. It is let go of with the process, however it ends.
///
/// The file beside the database says to people who has it. The database itself is locked too: under another name - a
/// hard link, a symbolic link - it has another file beside it, but it is the same one. (That lock is of another kind than
/// SQLite's own, and is held until the connections are closed: closing any handle of a file would take SQLite's from it.)
#[derive(Debug)]
pub(super) struct Lock {
    _beside: File,
    _itself: File,
}

pub(super) fn lock(path: &Path) -> Result<Lock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    Ok(Lock { _beside: lock_one(&PathBuf::from(name), path)?, _itself: lock_one(path, path)? })
}

fn lock_one(name: &Path, database: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    // Arguments and results are in it: they are its owner's alone. What SQLite puts beside it has the same mode.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file =
        options.open(name).map_err(|error| Error::Unavailable(format!("{}: {error}", name.display())))?;
    for looks in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            // A child that a killed process was about to start has its files until it becomes another program.
            Err(TryLockError::WouldBlock) if looks < LOCK_LOOKS => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { path: database.display().to_string() });
            }
            Err(TryLockError::Error(error)) => {
                return Err(Error::Unavailable(format!("{}: {error}", name.display())));
            }
        }
    }
    Ok(file)
}

/// Opens the writer's connection to a file that fits, bringing an older one up to date. One that does not fit is not
/// touched.
pub(super) fn writer(path: &Path) -> Result<Connection> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        let found = rusqlite::version();
        return Err(Error::Unavailable(format!("SQLite {found} is too old: its log can damage a file")));
    }
    if path.metadata().is_ok_and(|file| file.len() > 0) {
        check(&Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?)?;
    }
    let mut connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_KEPT_BYTES, |_| Ok(()))?;
    keep_plans(&connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    migrate(&mut connection)?;
    Ok(connection)
}

pub(super) fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    keep_plans(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// A statement is planned once, and not anew for each value that is bound to it: every one of ours has its index.
fn keep_plans(connection: &Connection) -> Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// The version of the schema, known or not; 0 where there is none yet.
pub(super) fn schema(connection: &Connection) -> Result<u32> {
    match check(connection) {
        Err(Error::Newer { found, .. }) => Ok(found),
        other => other,
    }
}

fn check(connection: &Connection) -> Result<u32> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (application, version) = (read("application_id")?, read("user_version")?);
    // Nothing is in it: it is new, or the process that made it died before it had done so.
    if version == 0 && application == 0 && is_empty(connection)? {
        return Ok(0);
    }
    if application != APPLICATION_ID {
        return Err(Error::Corrupt("the file is a database of another program".into()));
    }
    if version > VERSION {
        return Err(Error::Newer { what: "the database".into(), found: version, known: VERSION });
    }
    Ok(version)
}

fn is_empty(connection: &Connection) -> Result<bool> {
    Ok(connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))? == 0)
}

fn migrate(connection: &mut Connection) -> Result<()> {
    let empty =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))? == 0;
    let done = if empty { 0 } else { check(connection)? };
    for (version, sql) in (1..).zip(MIGRATIONS).skip(done as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Begins another life of this database: what an earlier one owned has no owner that lives.
pub(super) fn incarnation(connection: &Connection) -> Result<i64> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'incarnation' RETURNING value";
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}
