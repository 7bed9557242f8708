//! The one JSON line a measurement prints.

use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::{Deviations, usage};

/// Four digits after the point: enough for microseconds in milliseconds.
pub fn round(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

/// The value below which a share `q` of the sorted samples lies.
pub fn percentile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Wall and CPU time since it was started.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    cpu: f64,
    wall: Instant,
}

impl Timing {
    /// Starts both clocks.
    pub fn start() -> Self {
        Self { cpu: usage::cpu_s(), wall: Instant::now() }
    }

    /// Wall seconds so far.
    pub fn wall_s(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// CPU seconds so far.
    pub fn cpu_s(&self) -> f64 {
        usage::cpu_s() - self.cpu
    }
}

/// The line as it grows.
#[derive(Debug)]
pub struct Line(Map<String, Value>);

impl Line {
    /// A line of this peer and workload.
    pub fn new(peer: &str, workload: &str) -> Self {
        let mut line = Self(Map::new());
        line.set("peer", peer);
        line.set("w", workload);
        line
    }

    /// Sets one key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }

    /// Sets one number, rounded.
    pub fn number(&mut self, key: &str, value: f64) {
        self.set(key, round(value));
    }

    /// The keys of a measured loop.
    pub fn measured(&mut self, runs: u64, wall_s: f64, cpu_s: f64) {
        self.set("runs", runs);
        self.number("wall_s", wall_s);
        self.number("cpu_s", cpu_s);
        self.number("runs_per_s", runs as f64 / wall_s);
        self.number("cpu_ms_per_run", 1e3 * cpu_s / runs.max(1) as f64);
    }

    /// The 50th and 99th percentile of milliseconds.
    pub fn latency(&mut self, name: &str, mut ms: Vec<f64>) {
        if ms.is_empty() {
            return;
        }
        ms.sort_by(f64::total_cmp);
        self.number(&format!("{name}_ms_p50"), percentile(&ms, 0.5));
        self.number(&format!("{name}_ms_p99"), percentile(&ms, 0.99));
    }

    /// Adds memory and deviations, and prints the line.
    pub fn print(mut self, deviations: &Deviations) {
        self.number("peak_rss_mb", usage::peak_rss_mb());
        self.set("deviations", deviations.counts());
        if !deviations.is_empty() {
            self.set("deviation_samples", deviations.samples());
        }
        println!("{}", json!(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let ms: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&ms, 0.5), percentile(&ms, 0.99), percentile(&ms, 1.0)), (51.0, 100.0, 100.0));
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
