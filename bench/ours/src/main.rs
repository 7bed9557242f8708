//! Holdpoint doing the benchmark's work: `holdpoint-bench WORKLOAD --secs S --n N --path FILE --conc C`.

mod agent;
mod database;
mod decisions;
mod growth;
mod instances;
mod owner;
mod probe;
mod runs;
mod serve;
mod streams;
mod takeover;
mod timed;
mod waiting;

use std::time::Instant;

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
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match arguments.workload {
            Workload::W1 | Workload::W2 | Workload::W3 => timed::measure(&arguments).await,
            Workload::W4A => waiting::suspend_many(&arguments).await,
            Workload::W4B => waiting::list_and_resume(&arguments, started).await,
            Workload::W5 => streams::measure(&arguments).await,
            Workload::Serve => serve::serve(&arguments).await,
            Workload::Decide => decisions::measure(&arguments).await,
            Workload::Owner => owner::measure(&arguments).await,
            Workload::Takeover => takeover::measure(&arguments).await,
            Workload::Victim => takeover::victim(&arguments).await,
            Workload::Instances => instances::measure(&arguments).await,
            Workload::Growth => growth::measure(&arguments).await,
        }
    });
    // What was measured is printed; taking a hundred thousand runs apart in memory is nobody's work.
    std::process::exit(0);
}
