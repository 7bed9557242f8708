//! What the disk and SQLite take for the same rows, with none of our code around them: the measure beside the measure.

use std::time::Instant;

use holdpoint_bench_harness::{Timing, usage};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

/// Commits in the probe of one commit.
const COMMITS: usize = 200;
/// Bytes of its row.
const ROW_BYTES: usize = 3_000;

/// The settings of the store's writer.
fn open(path: &str) -> Connection {
    usage::remove_database(path);
    let db = Connection::open(path).expect("a probe");
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).expect("a setting");
    db.pragma_update(None, "synchronous", "FULL").expect("a setting");
    db.pragma_update(None, "cache_size", -16 * 1024).expect("a setting");
    db.pragma_update_and_check(None, "wal_autocheckpoint", 4_096, |_| Ok(())).expect("a setting");
    db.set_prepared_statement_cache_capacity(64);
    db
}

/// Single commits of one 3 KB row each: the milliseconds of each, and the CPU milliseconds of one.
pub fn commits(path: &str) -> (Vec<f64>, f64) {
    let path = format!("{path}.commit");
    let db = open(&path);
    db.execute_batch("CREATE TABLE row(id INTEGER PRIMARY KEY, body BLOB)").expect("a table");
    let body = vec![7u8; ROW_BYTES];
    let one = |_| {
        let from = Instant::now();
        db.prepare_cached("INSERT INTO row(body) VALUES(?)")
            .expect("a statement")
            .execute([&body])
            .expect("a row");
        from.elapsed().as_secs_f64() * 1e3
    };
    let timing = Timing::start();
    let ms = (0..COMMITS).map(one).collect();
    let cpu_ms = timing.cpu_s() * 1e3 / COMMITS as f64;
    drop(db);
    usage::remove_database(&path);
    (ms, cpu_ms)
}

/// The same on PostgreSQL, on one connection: the milliseconds of each, and the CPU milliseconds of one, the server's included.
pub async fn postgres_commits(url: &str) -> (Vec<f64>, f64) {
    let client = crate::database::client(url).await;
    let table = "DROP TABLE IF EXISTS probe; CREATE TABLE probe (id bigserial PRIMARY KEY, body bytea)";
    client.batch_execute(table).await.expect("a table");
    let insert = client.prepare("INSERT INTO probe (body) VALUES ($1)").await.expect("a statement");
    let body = vec![7_u8; ROW_BYTES];
    let (timing, server) = (Timing::start(), crate::database::server_cpu_s());
    let mut ms = Vec::with_capacity(COMMITS);
    for _ in 0..COMMITS {
        let from = Instant::now();
        client.execute(&insert, &[&body]).await.expect("a row");
        ms.push(from.elapsed().as_secs_f64() * 1e3);
    }
    let cpu_s = timing.cpu_s() + crate::database::server_cpu_s() - server;
    client.batch_execute("DROP TABLE probe").await.expect("a table");
    (ms, cpu_s * 1e3 / COMMITS as f64)
}

struct Table {
    insert: String,
    rows: Vec<Vec<Value>>,
    is_run: bool,
}

/// Writes the rows that a measurement left behind once more, into the same tables, in as many commits, with as many
/// updates of the run's row as there were operations. One thread, nothing else: runs a second.
///
/// It is a little kinder to itself than the work was: a request is written as it ended and not opened first, and a
/// run's updates fall into the group that inserts it.
pub fn same_rows(path: &str, runs: u64, (commits, operations): (u64, u64)) -> f64 {
    let from = Connection::open(path).expect("the database");
    let again = format!("{path}.again");
    let to = open(&again);
    let tables = copy_schema(&from, &to);
    let updates = (operations / runs.max(1)).saturating_sub(1);
    let commits = commits.max(1) as usize;
    let started = Instant::now();
    for group in 0..commits {
        to.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])).expect("a transaction");
        for table in &tables {
            let count = table.rows.len();
            let mut insert = to.prepare_cached(&table.insert).expect("a statement");
            for row in &table.rows[group * count / commits..(group + 1) * count / commits] {
                insert.execute(params_from_iter(row)).expect("a row");
                if table.is_run {
                    update_run(&to, row, updates);
                }
            }
        }
        to.prepare_cached("COMMIT").and_then(|mut s| s.execute([])).expect("a commit");
    }
    let rate = runs as f64 / started.elapsed().as_secs_f64();
    drop(to);
    usage::remove_database(&again);
    rate
}

fn update_run(to: &Connection, row: &[Value], times: u64) {
    let sql = "UPDATE run SET epoch = epoch + 1, snapshot = ?3 WHERE tenant = ?1 AND id = ?2";
    let mut update = to.prepare_cached(sql).expect("a statement");
    let snapshot = row.last().expect("a run has columns");
    for _ in 0..times {
        update.execute(params![row[0], row[1], snapshot]).expect("an update");
    }
}

fn copy_schema(from: &Connection, to: &Connection) -> Vec<Table> {
    let sql = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type = 'index'";
    let mut read = from.prepare(sql).expect("a statement");
    let text = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let objects: Vec<(String, String, String)> =
        read.query_map([], text).expect("rows").collect::<Result<_, _>>().expect("rows");
    let mut tables = Vec::new();
    for (kind, name, sql) in objects {
        to.execute_batch(&sql).expect("the same schema");
        if kind == "table" {
            let mut read = from.prepare(&format!("SELECT * FROM {name}")).expect("a statement");
            let width = read.column_count();
            let row = |row: &rusqlite::Row<'_>| (0..width).map(|at| row.get(at)).collect();
            let rows = read.query_map([], row).expect("rows").collect::<Result<_, _>>().expect("rows");
            let marks = vec!["?"; width].join(",");
            tables.push(Table {
                insert: format!("INSERT INTO {name} VALUES({marks})"),
                rows,
                is_run: name == "run",
            });
        }
    }
    tables
}
