//! Holdpoint doing the benchmark's work: `holdpoint-bench WORKLOAD --secs S --n N --path FILE --conc C`.

mod agent;
mod growth;
mod probe;
mod runs;
mod timed;
mod waiting;

use std::sync::Arc;
use std::time::Instant;

use holdpoint::store::{SqliteStore, Store, SystemClock};
use holdpoint_bench_harness::{Arguments, Workload};

fn main() {
    let started = Instant::now();
    let arguments = Arguments::parse("holdpoint-bench").unwrap_or_else(|message| {
        eprintln!("{message}");
        std::process::exit(2)
    });
    // One at a time needs no second thread; many at a time may use both cores.
    let mut runtime = match arguments.conc {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_time().build().expect("a runtime");
    runtime.block_on(async {
        match arguments.workload {
            Workload::W1 | Workload::W2 | Workload::W3 => timed::measure(&arguments).await,
            Workload::W4A => waiting::suspend_many(&arguments).await,
            Workload::W4B => waiting::list_and_resume(&arguments, started).await,
            Workload::Growth => growth::measure(&arguments).await,
        }
    });
    // What was measured is printed; taking a hundred thousand runs apart in memory is nobody's work.
    std::process::exit(0);
}

/// The store of the durable workloads, as it comes: write-ahead log, `synchronous=FULL`.
fn open(path: &str) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, Arc::new(SystemClock::new())).expect("a store"))
}
