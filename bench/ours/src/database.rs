//! The databases of the durable workloads: a SQLite file, or a PostgreSQL database by its URL.

use std::sync::Arc;

use holdpoint::store::{PostgresOptions, PostgresStore, SqliteStore, Store, SystemClock};
use holdpoint_bench_harness::usage;
use tokio_postgres::{Client, NoTls};

/// Connections of a store under load: more than runs at a time gain nothing.
const CONNECTIONS: usize = 16;

/// Whether this is the URL of a PostgreSQL database.
pub fn is_postgres(path: &str) -> bool {
    path.starts_with("postgres")
}

/// What kind of store this names, as the lines print it.
pub fn kind(path: &str) -> &'static str {
    if is_postgres(path) { "postgres" } else { "sqlite" }
}

/// The store as it comes: a file is written ahead with `synchronous=FULL`, a database commits as it is set to.
pub async fn open(path: &str) -> Arc<dyn Store> {
    if is_postgres(path) {
        let options = PostgresOptions { connections: CONNECTIONS, ..PostgresOptions::default() };
        return PostgresStore::connect(path, options).await.expect("a store");
    }
    Arc::new(SqliteStore::open(path, Arc::new(SystemClock::new())).expect("a store"))
}

/// Removes what an earlier measurement left.
pub async fn remove(path: &str) {
    if is_postgres(path) {
        let client = client(path).await;
        let sql = "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CHECKPOINT";
        client.batch_execute(sql).await.expect("an empty database");
    } else {
        usage::remove_database(path);
    }
}

/// A connection of our own, beside the store's.
pub async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Bytes of everything that is stored.
pub async fn bytes(path: &str) -> u64 {
    if !is_postgres(path) {
        return usage::file_bytes(path);
    }
    let sql = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables";
    let bytes: i64 = client(path).await.query_one(sql, &[]).await.expect("a size").get(0);
    bytes.unsigned_abs()
}

/// CPU seconds that the database's server has used, of all its processes. A file has no server.
pub fn server_cpu_s() -> f64 {
    let pid = std::env::var("BENCH_PG_PID").ok().and_then(|pid| pid.parse().ok());
    pid.map_or(0.0, usage::tree_cpu_s)
}
