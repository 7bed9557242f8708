//! Figures in the text format of Prometheus. A dozen counters need no library.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdpoint::Runtime;
use holdpoint::store::{Hearing, Standing, Stats};
use http::{Method, StatusCode};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS_S: [f64; 8] = [0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// What is counted since the server started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    routes: Mutex<BTreeMap<(&'static str, &'static str, u16), Latency>>,
    decisions: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    unauthenticated: AtomicU64,
    streams_open: AtomicI64,
    streams_cut: AtomicU64,
}

#[derive(Debug, Default)]
struct Latency {
    buckets: [u64; BUCKETS_S.len()],
    count: u64,
    sum_s: f64,
}

/// A stream that is open until this is dropped.
pub(crate) struct OpenStream(std::sync::Arc<crate::app::App>);

impl OpenStream {
    pub(crate) fn new(app: &std::sync::Arc<crate::app::App>) -> Self {
        app.metrics.streams_open.fetch_add(1, Ordering::Relaxed);
        Self(std::sync::Arc::clone(app))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.metrics.streams_open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn answered(&self, route: &'static str, method: &Method, status: StatusCode, took: Duration) {
        let key = (route, method_label(method), status.as_u16());
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = routes.entry(key).or_default();
        let took_s = took.as_secs_f64();
        for (bucket, bound) in latency.buckets.iter_mut().zip(BUCKETS_S) {
            *bucket += u64::from(took_s <= bound);
        }
        latency.count += 1;
        latency.sum_s += took_s;
    }

    /// A decision was posted: its word, and what came of it.
    pub(crate) fn decided(&self, word: &'static str, outcome: &'static str) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        *decisions.entry((word, outcome)).or_default() += 1;
    }

    pub(crate) fn unauthenticated(&self) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stream_cut(&self) {
        self.streams_cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn text(&self, runtime: &Runtime, stats: &Stats, oldest_pending_s: Option<f64>) -> String {
        let mut page = Page::default();
        page.requests(&self.routes.lock().unwrap_or_else(PoisonError::into_inner));
        page.head("holdpoint_decisions_total", "counter", "Decisions posted, by word and what came of them.");
        for ((word, outcome), count) in &*self.decisions.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = format!("decision=\"{word}\",outcome=\"{outcome}\"");
            page.line("holdpoint_decisions_total", &labels, count);
        }
        let troubles = runtime.listener_troubles();
        let unauthenticated = self.unauthenticated.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("holdpoint_unauthenticated_total", "Requests without the operator's token.", unauthenticated),
            (
                "holdpoint_streams_cut_total",
                "Streams closed because their reader was too slow.",
                self.streams_cut.load(Ordering::Relaxed),
            ),
            ("holdpoint_store_commits_total", "Transactions committed.", stats.commits),
            ("holdpoint_store_operations_total", "Operations in those transactions.", stats.operations),
            ("holdpoint_listener_panics_total", "Events on which a listener panicked.", troubles.panicked()),
            ("holdpoint_listener_missed_total", "Events a listener was too slow for.", troubles.missed()),
        ] {
            page.one(name, "counter", help, value);
        }
        let streams = self.streams_open.load(Ordering::Relaxed).max(0).unsigned_abs();
        let writable = u64::from(runtime.write_trouble().is_none());
        for (name, help, value) in [
            (
                "holdpoint_store_writable",
                "Whether the store can be written to, as far as is known.",
                writable,
            ),
            ("holdpoint_streams_open", "Event streams that are open.", streams),
            ("holdpoint_runs_live", "Runs in the hands of this process.", runtime.live_runs() as u64),
            ("holdpoint_runs_owned", "Runs that have an owner.", stats.running),
            ("holdpoint_runs_quarantined", "Runs set aside for an operator.", stats.quarantined),
            ("holdpoint_pending", "Requests that wait for a person.", stats.pending),
            ("holdpoint_overdue", "Of those, the ones that stay open beyond their deadline.", stats.overdue),
        ] {
            page.one(name, "gauge", help, value);
        }
        if let Some(age) = oldest_pending_s {
            page.one("holdpoint_oldest_pending_seconds", "gauge", "Age of the oldest open request.", age);
        }
        if let Some(bytes) = stats.wal_bytes {
            page.one("holdpoint_store_wal_bytes", "gauge", "Size of the write-ahead log.", bytes);
        }
        if let Some(standing) = runtime.store().standing() {
            page.standing(&standing);
        }
        page.0
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// How this instance stands with the others.
    fn standing(&mut self, standing: &Standing) {
        const HEARING: &str = "holdpoint_bells_hearing";
        self.head(HEARING, "gauge", "Whether bells of other instances are heard: 1 at how it is.");
        for hearing in [Hearing::Proven, Hearing::Deaf, Hearing::PollOnly] {
            let is = u8::from(standing.hearing == hearing);
            self.line(HEARING, &format!("state=\"{}\"", hearing.as_str()), is);
        }
        for (name, help, value) in [
            ("holdpoint_bells_heard_total", "Bells of other instances that were heard.", standing.heard),
            ("holdpoint_bells_rung_total", "Bells that were rung for other instances.", standing.rung),
            (
                "holdpoint_lease_lapses_total",
                "Times the lease could not be renewed in time.",
                standing.lease_lapses,
            ),
            (
                "holdpoint_store_refused_total",
                "Operations refused because too many waited for a connection.",
                standing.refused,
            ),
        ] {
            self.one(name, "counter", help, value);
        }
        let held = u64::from(standing.lease_held);
        for (name, help, value) in [
            ("holdpoint_lease_held", "Whether the lease is known to hold; else nothing is begun here.", held),
            ("holdpoint_instances_other", "Other instances that live.", standing.others),
            ("holdpoint_store_waiting", "Operations that wait for a connection.", standing.waiting),
        ] {
            self.one(name, "gauge", help, value);
        }
        let left = standing.lease_left.as_secs_f64();
        self.one("holdpoint_lease_seconds", "gauge", "How long the lease is known to hold.", left);
    }

    fn requests(&mut self, routes: &BTreeMap<(&'static str, &'static str, u16), Latency>) {
        const NAME: &str = "holdpoint_http_request_duration_seconds";
        self.head(NAME, "histogram", "Time to the head of the answer, by route.");
        for ((route, method, status), latency) in routes {
            let labels = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
            for (count, bound) in latency.buckets.iter().zip(BUCKETS_S) {
                self.line(&format!("{NAME}_bucket"), &format!("{labels},le=\"{bound}\""), count);
            }
            self.line(&format!("{NAME}_bucket"), &format!("{labels},le=\"+Inf\""), latency.count);
            self.line(&format!("{NAME}_sum"), &labels, latency.sum_s);
            self.line(&format!("{NAME}_count"), &labels, latency.count);
        }
    }
}

/// A client cannot make new series by inventing methods.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
