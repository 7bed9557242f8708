//! What the process has used so far.

use nix::sys::resource::{Resource, Usage, UsageWho, getrlimit, getrusage, setrlimit};

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

/// Lets the process open as many files as the system allows.
pub fn raise_open_files() -> u64 {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    hard
}

/// The resident set of a process, in KiB.
pub fn rss_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// User and system time of a process and of all its children, living and gone, in seconds.
pub fn tree_cpu_s(pid: u32) -> f64 {
    // The unit of /proc on Linux, whatever the kernel's own.
    const TICKS_A_SECOND: f64 = 100.0;
    let ticks = |of: &[u64]| of.iter().sum::<u64>() as f64 / TICKS_A_SECOND;
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let used = numbers.filter_map(|one| {
        let stat = std::fs::read_to_string(format!("/proc/{one}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        // After the name: state, parent, ...; user, system, and the same of children that are gone.
        if one == pid {
            Some(ticks(&[number(11), number(12), number(13), number(14)]))
        } else if number(1) == u64::from(pid) {
            Some(ticks(&[number(11), number(12)]))
        } else {
            None
        }
    });
    used.sum()
}
