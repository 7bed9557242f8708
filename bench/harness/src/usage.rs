//! What the process has used so far.

use nix::sys::resource::{Usage, UsageWho, getrusage};

fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_SELF).unwrap_or_else(|error| panic!("getrusage failed: {error}"))
}

/// User and system time of all threads, in seconds.
pub fn cpu_s() -> f64 {
    let used = usage();
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    seconds(used.user_time()) + seconds(used.system_time())
}

/// The largest resident set so far, in MB (10^6 bytes would be 2 % more; peers print MiB too).
pub fn peak_rss_mb() -> f64 {
    usage().max_rss() as f64 / 1024.0
}

/// Bytes of a SQLite file with its write-ahead log.
pub fn file_bytes(path: &str) -> u64 {
    ["", "-wal"]
        .iter()
        .filter_map(|end| std::fs::metadata(format!("{path}{end}")).ok())
        .map(|m| m.len())
        .sum()
}

/// Removes a SQLite file and what belongs to it, so that a run starts from nothing.
pub fn remove_database(path: &str) {
    for end in ["", "-wal", "-shm", ".lock"] {
        let _ = std::fs::remove_file(format!("{path}{end}"));
    }
}
