//! W4: many runs wait. They cost rows; a fresh process lists what is pending and takes one up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use holdpoint::local;
use holdpoint::protocol::{InteractionStatus, RunId, TenantId};
use holdpoint::store::{Context, InteractionFilter, PageRequest};
use holdpoint_bench_harness::{Arguments, Deviations, Expect, Line, Timing, usage};

use crate::agent::Log;
use crate::database;
use crate::runs::Ours;

/// Runs of one tenant: two requests each, below the bound of pending requests a tenant may have.
const RUNS_PER_TENANT: usize = 40_000;
/// Rows of a page when all is listed: the most that are given.
const PAGE: usize = holdpoint::store::PAGE_MAX;
/// Rows of a page that a person looks at.
const INBOX_PAGE: usize = 50;
/// How often one page, and the scan for deadlines that have passed, are measured.
const LOOKS: usize = 200;

fn context(run: usize) -> Context {
    let tenant = TenantId::new(&format!("tenant-{}", run / RUNS_PER_TENANT)).expect("a valid name");
    Context { tenant, ..local() }
}

/// W4A.
pub async fn suspend_many(arguments: &Arguments) {
    let path = arguments.path.as_str();
    database::remove(path).await;
    let ours = Arc::new(Ours::new(Log::new(Expect::Gated), Some(database::open(path).await)));
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("store", database::kind(path));
    line.number("rss_start_mb", usage::peak_rss_mb());
    let (next, total) = (Arc::new(AtomicUsize::new(0)), arguments.n);
    let timing = Timing::start();
    let lanes = (0..arguments.conc).map(|_| {
        let (ours, next) = (Arc::clone(&ours), Arc::clone(&next));
        tokio::spawn(async move {
            let mut found = Deviations::default();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= total {
                    return found;
                }
                let run = ours.suspend(&context(n), &mut found).await;
                ours.log.take(run);
            }
        })
    });
    let mut found = Deviations::default();
    for lane in lanes.collect::<Vec<_>>() {
        found.merge(lane.await.expect("no lane panicked"));
    }
    let (wall_s, cpu_s, n) = (timing.wall_s(), timing.cpu_s(), total as f64);
    Arc::into_inner(ours).expect("all lanes ended").close().await;
    line.set("conc", arguments.conc);
    line.set("n", total);
    line.number("wall_s", wall_s);
    line.number("cpu_s", cpu_s);
    line.number("suspends_per_s", n / wall_s);
    line.number("cpu_ms_per_suspend", 1e3 * cpu_s / n);
    line.set("bytes_per_pending", database::bytes(path).await / total as u64);
    line.print(&found);
}

/// W4B, in a process of its own.
pub async fn list_and_resume(arguments: &Arguments, started: Instant) {
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("store", database::kind(&arguments.path));
    let before = usage::peak_rss_mb();
    let ours = Ours::new(Log::new(Expect::Gated), Some(database::open(&arguments.path).await));
    line.number("startup_import_s", started.elapsed().as_secs_f64());
    line.number("ready_more_mb", usage::peak_rss_mb() - before);
    look(&ours, arguments.n, &mut line).await;
    line.number("looked_more_mb", usage::peak_rss_mb() - before);

    let mut found = Deviations::default();
    let timing = Timing::start();
    let mut listed = Listed { calls: 0, wanted: arguments.n, chosen: None, page_ms: Vec::new() };
    for first in (0..arguments.n).step_by(RUNS_PER_TENANT) {
        list(&ours, &context(first), &mut listed).await;
    }
    line.number("list_s", timing.wall_s());
    line.number("list_cpu_s", timing.cpu_s());
    line.set("pending_calls_listed", listed.calls);
    line.latency("page", listed.page_ms);
    if listed.calls != 2 * arguments.n {
        found.note("pending_count", listed.calls.to_string());
    }
    let Some((cx, run)) = listed.chosen else {
        found.note("resume", "nothing is pending");
        return line.print(&found);
    };
    resume(&ours, &cx, run, &mut line, &mut found).await;
    ours.close().await;
    line.print(&found);
}

/// What a fresh process does first: one page of an inbox, of one tenant after the other, and what is due.
async fn look(ours: &Ours, runs: usize, line: &mut Line) {
    let store = ours.runtime.store();
    let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    let (mut pages, mut scans) = (Vec::with_capacity(LOOKS), Vec::with_capacity(LOOKS));
    for n in 0..LOOKS {
        let cx = context(n * RUNS_PER_TENANT % runs);
        let from = Instant::now();
        let page = PageRequest { cursor: None, limit: INBOX_PAGE };
        let page = store.interactions(&cx, &filter, &page).await.expect("a page");
        pages.push(from.elapsed().as_secs_f64() * 1e3);
        assert!(!page.items.is_empty(), "{} has nothing pending", cx.tenant);
        let from = Instant::now();
        assert!(store.expire_due(500).await.expect("a scan").is_empty(), "nothing is due");
        scans.push(from.elapsed().as_secs_f64() * 1e3);
    }
    line.latency("inbox_page_of_50", pages);
    line.latency("due_scan", scans);
}

struct Listed {
    calls: usize,
    /// The place of the call whose run is resumed: the middle one.
    wanted: usize,
    chosen: Option<(Context, RunId)>,
    page_ms: Vec<f64>,
}

async fn list(ours: &Ours, cx: &Context, listed: &mut Listed) {
    let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    let mut cursor = None;
    loop {
        let from = Instant::now();
        let request = PageRequest { cursor, limit: PAGE };
        let page = ours.runtime.store().interactions(cx, &filter, &request).await.expect("a page");
        listed.page_ms.push(from.elapsed().as_secs_f64() * 1e3);
        for item in page.items {
            // What a person is shown, name and arguments, is read along with it.
            assert!(item.request.get().contains("\"arguments\""), "a request without its arguments");
            if listed.calls == listed.wanted {
                listed.chosen = Some((cx.clone(), item.run_id));
            }
            listed.calls += 1;
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return,
        }
    }
}

async fn resume(ours: &Ours, cx: &Context, run: RunId, line: &mut Line, found: &mut Deviations) {
    let from = Instant::now();
    let mut wrong = Deviations::default();
    let to_tool = ours.decide(cx, run, &mut wrong).await;
    line.number("resume_one_ms", from.elapsed().as_secs_f64() * 1e3);
    line.number("resume_to_tool_ms", to_tool.unwrap_or(-1.0));
    // Read ran in the process before: that it did not run again is the one difference from a whole run.
    if wrong.counts() != serde_json::json!({"read_count": 1}) {
        found.note("resume", wrong.samples().to_string());
    }
}
