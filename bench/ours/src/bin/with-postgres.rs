//! Runs a command beside a PostgreSQL cluster of its own, on this disk and with every commit synced, and takes the cluster
//! down with it: `with-postgres COMMAND...`. The command finds `BENCH_PG_URL` and `BENCH_PG_PID` in its environment.

use std::process::{Command, ExitCode};

use holdpoint_faults::{Cluster, Disk};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: with-postgres COMMAND...");
        return ExitCode::from(2);
    };
    let cluster = Cluster::start(Disk::Synced);
    let name = cluster.database_name();
    for setting in ["synchronous_commit", "fsync", "server_version"] {
        eprintln!("{setting} = {}", cluster.sql(&name, &format!("SHOW {setting}")));
    }
    let folder = cluster.sql(&name, "SHOW data_directory");
    let pid = std::fs::read_to_string(format!("{folder}/postmaster.pid")).expect("the cluster's process");
    let pid = pid.lines().next().expect("the cluster's process");
    let status = Command::new(&program)
        .args(words)
        .env("BENCH_PG_URL", cluster.url(&name))
        .env("BENCH_PG_PID", pid)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
