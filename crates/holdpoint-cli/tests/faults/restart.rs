//! A start with much that waits.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{assert_whole, decide, serve, start};
use crate::common::http::{self, Server};
use crate::common::site::{Database, Site, script};

/// So many runs that wait are copies of one.
const WAITING: u64 = 50_000;
/// What each may cost a process that starts, in bytes of memory.
const BYTES_EACH: usize = 300;
/// Rows of runs and requests that a start may read, and the seconds after it.
const ROWS_MAX: u64 = 2_000;

/// Copies the one run there is, with its request and its log.
const COPY_POSTGRES: &str = "
CREATE TEMP TABLE copy AS SELECT gen_random_uuid() AS run, gen_random_uuid() AS request, n FROM generate_series(1, {n}) n;
INSERT INTO run SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', run))).* FROM copy, run r WHERE r.status = 1;
INSERT INTO request SELECT (jsonb_populate_record(q, jsonb_build_object('run_id', run, 'request_id', request,
    'opened_at', q.opened_at - n))).* FROM copy, request q WHERE q.status = 0;
INSERT INTO journal SELECT (jsonb_populate_record(j, jsonb_build_object('run_id', run))).* FROM copy, journal j
    WHERE j.run_id = (SELECT run_id FROM run WHERE status = 1 AND run_id NOT IN (SELECT run FROM copy));
ANALYZE;";

fn copy_many(site: &Site, is_shared: bool) {
    if is_shared {
        site.sql(&COPY_POSTGRES.replace("{n}", &WAITING.to_string()));
        return;
    }
    let database = rusqlite::Connection::open(site.path("data/holdpoint.db")).unwrap();
    let columns = |table: &str| -> Vec<String> {
        let sql = format!("SELECT name FROM pragma_table_info('{table}')");
        let mut statement = database.prepare(&sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let copy = |table: &str, from: &str, other: &[(&str, &str)]| {
        let columns: Vec<String> = columns(table)
            .into_iter()
            .map(|column| {
                let found = other.iter().find(|(name, _)| *name == column);
                found.map_or(format!("original.\"{column}\""), |(_, value)| (*value).to_owned())
            })
            .collect();
        format!(
            "INSERT INTO {table} SELECT {} FROM copy, (SELECT * FROM {table} {from}) original;",
            columns.join(", ")
        )
    };
    let sql = format!(
        "CREATE TEMP TABLE copy AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {WAITING}) \
         SELECT randomblob(16) AS run, randomblob(16) AS request, n FROM n; BEGIN; {} {} {} COMMIT;",
        copy(
            "request",
            "WHERE status = 0",
            &[("run", "copy.run"), ("id", "copy.request"), ("opened_at", "original.opened_at - copy.n")]
        ),
        copy("journal", "WHERE run IN (SELECT id FROM run WHERE status = 1)", &[("run", "copy.run")]),
        copy("run", "WHERE status = 1", &[("id", "copy.run")]),
    );
    database.execute_batch(&sql).unwrap();
}

/// What a start took.
#[derive(Debug, Clone, Copy)]
struct Took {
    time: Duration,
    memory: usize,
    rows: u64,
}

fn figure(server: &Server, name: &str) -> f64 {
    let (_, page) = http::send(&server.url, Some(&server.token), "GET", "/metrics", None);
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn resident_bytes(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Starts it three times, and gives the least of what it took: the rest was the machine's.
fn restarts(site: &Site, is_shared: bool) -> Took {
    let rows = || -> u64 {
        if !is_shared {
            return 0;
        }
        // What a session has read is counted when it has ended, or a second later.
        let sql = "SELECT pg_stat_clear_snapshot(); SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) \
                   FROM pg_stat_user_tables WHERE relname IN ('run', 'request', 'journal')";
        site.sql(sql).trim().parse::<f64>().unwrap() as u64
    };
    let each = (0..3).map(|_| {
        let before = rows();
        let began = Instant::now();
        let mut serving = serve(site);
        let (status, answer) = serving.server.try_get("/readyz").unwrap();
        let time = began.elapsed();
        assert_eq!(status, 200, "{answer}");
        // A few looks at what is due.
        std::thread::sleep(Duration::from_millis(1_500));
        let memory = resident_bytes(serving.child.id());
        serving.signal("-TERM");
        serving.wait();
        std::thread::sleep(Duration::from_millis(100));
        Took { time, memory, rows: rows() - before }
    });
    each.reduce(|a, b| Took {
        time: a.time.min(b.time),
        memory: a.memory.min(b.memory),
        rows: a.rows.min(b.rows),
    })
    .unwrap()
}

/// What waits is not loaded, has no task, and is not even read: a start with fifty thousand that wait is like one with one.
pub fn a_start_with_many_that_wait_costs_what_a_start_with_one_does() {
    for database in [Database::File, Database::postgres()] {
        let is_shared = matches!(database, Database::Postgres { .. });
        let site = Site::on(database, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
        site.configure("", "approval_timeout = \"7d\"\nescalate_to = [\"leads\"]");
        let mut serving = serve(&site);
        let run = start(&serving.server);
        serving.signal("-TERM");
        serving.wait();
        let alone = restarts(&site, is_shared);
        copy_many(&site, is_shared);
        let many = restarts(&site, is_shared);
        println!("a start: {alone:?}; with {WAITING} that wait: {many:?}");
        assert!(many.rows <= ROWS_MAX, "{} rows read", many.rows);
        let more = many.memory.saturating_sub(alone.memory);
        assert!(more <= BYTES_EACH * WAITING as usize, "{more} bytes more");
        // Of the machine's other work the least of three is free, mostly; work for each that waits would be many times as much.
        assert!(
            many.time < alone.time * 4 + Duration::from_secs(1),
            "{:?}, and {:?} alone",
            many.time,
            alone.time
        );
        let serving = serve(&site);
        let server = &serving.server;
        assert_eq!(figure(server, "holdpoint_runs_live"), 0.0, "none is in hand");
        assert_eq!(figure(server, "holdpoint_pending"), (WAITING + 1) as f64);
        let page = server.get("/v1/interactions?status=pending&limit=200");
        assert_eq!(page["items"].as_array().unwrap().len(), 200);
        let request =
            server.get(&format!("/v1/runs/{run}"))["pending"][0]["requestId"].as_str().unwrap().to_owned();
        decide(server, &server.get(&format!("/v1/interactions/{request}")), "approve");
        assert_whole(server, &run);
        let other = start(server);
        decide(server, &server.get(&format!("/v1/interactions?run={other}"))["items"][0], "decline");
        assert_whole(server, &other);
        assert_eq!(site.lines("log.txt"), 1);
    }
}
