//! Reads the lines of many measurements and prints their medians, and ours beside rig's.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;

use holdpoint_bench_harness::round;
use serde_json::Value;

/// The columns of the table: a heading and the key of the line.
const COLUMNS: [(&str, &str); 11] = [
    ("runs/s", "runs_per_s"),
    ("CPU ms/run", "cpu_ms_per_run"),
    ("server CPU", "server_cpu_ms_per_run"),
    ("decide-tool p50", "decide_to_tool_ms_p50"),
    ("p99", "decide_to_tool_ms_p99"),
    ("commit p50", "commit_3kb_ms_p50"),
    ("commits/run", "commits_per_run"),
    ("ops/commit", "operations_per_commit"),
    ("of same rows", "of_same_rows"),
    ("bytes/run", "bytes_per_run"),
    ("RSS MB", "peak_rss_mb"),
];

/// Workload and store, runs at a time, peer.
type Key = (String, u64, String);

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn cell(lines: &[Value], key: &str) -> Option<f64> {
    median(lines.iter().filter_map(|line| line.get(key)?.as_f64()).collect())
}

fn is_timed(workload: &str) -> bool {
    matches!(workload, "W1" | "W2" | "W3" | "W3 postgres")
}

/// CPU milliseconds of a run, the database's server included.
fn whole_cpu(lines: &[Value]) -> Option<f64> {
    Some(cell(lines, "cpu_ms_per_run")? + cell(lines, "server_cpu_ms_per_run").unwrap_or(0.0))
}

fn show(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(x) if x >= 100.0 => format!("{x:.0}"),
        Some(x) => format!("{}", round(x)),
    }
}

fn main() -> ExitCode {
    let mut groups: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    let mut wrong = 0u64;
    for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let Some(value) = line.ok().and_then(|line| serde_json::from_str::<Value>(&line).ok()) else {
            println!("line {number} is no measurement");
            wrong += 1;
            continue;
        };
        let text = |key: &str| value[key].as_str().unwrap_or("?").to_owned();
        let deviations = value["deviations"].as_object().is_none_or(|found| !found.is_empty());
        if deviations {
            println!("DEVIATIONS in line {number}: {} {}", value["deviations"], value["deviation_samples"]);
            wrong += 1;
        }
        // On PostgreSQL it is another measurement.
        let on = if value["store"] == "postgres" { " postgres" } else { "" };
        let key = (text("w") + on, value["conc"].as_u64().unwrap_or(1), text("peer"));
        groups.entry(key).or_default().push(value);
    }
    print_timed(&groups);
    for ((workload, conc, peer), lines) in &groups {
        if !is_timed(workload) {
            for line in lines {
                println!("{workload} x{conc} {peer}: {line}");
            }
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_timed(groups: &BTreeMap<Key, Vec<Value>>) {
    let headings = COLUMNS.map(|(heading, _)| heading).join(" | ");
    println!("| medians | n | {headings} |");
    println!("|---|---|{}", "---|".repeat(COLUMNS.len()));
    for ((workload, conc, peer), lines) in groups {
        if is_timed(workload) {
            let cells = COLUMNS.map(|(_, key)| show(cell(lines, key))).join(" | ");
            println!("| {workload} x{conc} {peer} | {} | {cells} |", lines.len());
        }
    }
    println!();
    for ((workload, conc, peer), ours) in groups {
        for other in ["rig", "langgraph"] {
            let theirs = groups.get(&(workload.clone(), *conc, other.to_owned()));
            if let (true, true, Some(theirs)) = (peer == "holdpoint", is_timed(workload), theirs) {
                let rate = cell(ours, "runs_per_s")
                    .zip(cell(theirs, "runs_per_s"))
                    .map(|(ours, theirs)| ours / theirs);
                let cpu = whole_cpu(ours).zip(whole_cpu(theirs)).map(|(ours, theirs)| ours / theirs);
                let (rate, cpu) = (show(rate), show(cpu));
                println!(
                    "{workload} x{conc}, ours to {other}: {rate} times the runs/s, {cpu} times the CPU a run"
                );
            }
        }
    }
    let rate = |conc| cell(groups.get(&("W3".into(), conc, "holdpoint".into()))?, "runs_per_s");
    if let (Some(one), Some(many)) = (rate(1), rate(64)) {
        println!("W3, ours, 64 at a time to one at a time: {} times the runs/s", show(Some(many / one)));
    }
    println!();
}
