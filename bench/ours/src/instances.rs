//! Growth in instances: the W3 of 1, 2 and 4 processes on one PostgreSQL database, 64 runs at a time in all.

use std::process::{Command, Stdio};

use holdpoint_bench_harness::{Arguments, Deviations, Line, round};
use serde_json::{Value, json};

use crate::database;

/// Runs at a time, over all instances.
const AT_A_TIME: usize = 64;

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let path = arguments.path.as_str();
    assert!(database::is_postgres(path), "INSTANCES is about PostgreSQL: give its URL with --path");
    let mut found = Deviations::default();
    let mut points = Vec::new();
    for instances in [1, 2, 4] {
        database::remove(path).await;
        // Made before the instances start, so that none of them waits for another to make the tables.
        database::open(path).await.close().await.expect("a store");
        let before = database::server_cpu_s();
        let lines = together(arguments, instances);
        let server_cpu_s = database::server_cpu_s() - before;
        let sum = |key: &str| lines.iter().map(|line| line[key].as_f64().unwrap_or(0.0)).sum::<f64>();
        for line in &lines {
            if line["deviations"].as_object().is_none_or(|found| !found.is_empty()) {
                found.note("instance", line["deviation_samples"].to_string());
            }
        }
        let runs = sum("runs").max(1.0);
        points.push(json!([
            instances,
            round(sum("runs_per_s")),
            round(1e3 * sum("cpu_s") / runs),
            round(1e3 * server_cpu_s / runs)
        ]));
    }
    database::remove(path).await;
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("conc", AT_A_TIME);
    line.set("instances_runs_per_s_cpu_ms_server_cpu_ms", points);
    line.print(&found);
}

/// The lines of so many instances that worked at the same time.
fn together(arguments: &Arguments, instances: usize) -> Vec<Value> {
    let this = std::env::current_exe().expect("this program");
    let (conc, secs) = ((AT_A_TIME / instances).to_string(), arguments.secs.to_string());
    let children: Vec<_> = (0..instances)
        .map(|_| {
            Command::new(&this)
                .args(["W3", "--keep", "yes", "--conc", &conc, "--secs", &secs, "--path", &arguments.path])
                .stdout(Stdio::piped())
                .spawn()
                .expect("an instance")
        })
        .collect();
    let line = |child: std::process::Child| {
        let output = child.wait_with_output().expect("its output");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    };
    children.into_iter().map(line).collect()
}
