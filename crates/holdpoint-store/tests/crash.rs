//! Processes that die, volumes that fill up. Each case starts this program again as the process that suffers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/bed.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod bed;
#[path = "crash/power.rs"]
mod power;
#[path = "conformance/walk.rs"]
#[allow(dead_code)]
mod walk;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use holdpoint_protocol::{DecisionWord, InteractionStatus, RequestId, RunId};
use holdpoint_store::{ChainCheck, DecideReply, Error, ManualClock, PageRequest, RunFilter, SqliteStore};

use bed::{Bed, ana, block_on, clock};
use holdpoint_faults::cases;
use walk::{Walk, decide, decision};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [what, path] if what == "as-writer" => return writer(Path::new(path)),
        [what, path] if what == "as-tenant-of-a-small-volume" => return small_volume(Path::new(path)),
        [what, path] if what == "as-one-who-decides" => return one_who_decides(Path::new(path)),
        _ => {}
    }
    let cases = cases![
        an_acknowledged_decision_survives_kill_9,
        a_second_process_is_refused_until_the_first_is_gone,
        a_torn_log_loses_nothing_before_the_tear,
        no_decision_counts_that_found_no_room,
        the_log_is_short_again_once_a_stuck_reader_is_gone,
        power::what_was_acknowledged_survives_the_loss_of_whatever_was_not_synced,
        #[cfg(feature = "failpoints")]
        failpoints::what_was_not_committed_did_not_happen,
    ];
    holdpoint_faults::run_cases(cases, 2);
}

fn again(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(role).arg(path).stdout(Stdio::piped());
    command
}

fn open(path: &Path) -> Bed {
    let clock: Arc<ManualClock> = clock();
    Bed::of(Arc::new(SqliteStore::open(path, clock.clone()).unwrap()), clock)
}

/// Suspends runs and decides them, and says of each decision when it is acknowledged.
fn writer(path: &Path) {
    let bed = open(path);
    block_on(async {
        for n in 0.. {
            let name = format!("{}-{n}", std::process::id());
            let walk = Walk::suspended(&bed, &ana(), &name).await;
            for (request, word) in
                walk.requests().into_iter().zip([DecisionWord::Decline, DecisionWord::Approve])
            {
                decide(&bed.store, &ana(), request, word).await;
                let mut out = std::io::stdout().lock();
                writeln!(out, "{request} {}", walk.id()).unwrap();
                out.flush().unwrap();
            }
        }
    });
}

struct Acknowledged {
    request: RequestId,
    run: RunId,
}

/// What a writer acknowledged until it was killed, without a warning, after this many lines.
fn killed_after(child: Child, lines: usize) -> Vec<Acknowledged> {
    killed_by(child, lines, |child| child.kill().unwrap())
}

fn killed_by(mut child: Child, lines: usize, kill: impl FnOnce(&mut Child)) -> Vec<Acknowledged> {
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut read = Vec::new();
    for _ in 0..lines {
        read.push(out.next().expect("the writer writes until it is killed").unwrap());
    }
    kill(&mut child);
    child.wait().unwrap();
    // What it said before it died counts, too.
    read.extend(out.map_while(Result::ok));
    acknowledged(read.iter().map(String::as_str))
}

fn acknowledged<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Acknowledged> {
    lines
        .filter_map(|line| line.trim_end().split_once(' '))
        .map(|(request, run)| Acknowledged { request: request.parse().unwrap(), run: run.parse().unwrap() })
        .collect()
}

fn check(path: &Path, acknowledged: &[Acknowledged]) {
    let whole: String = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    let bed = open(path);
    block_on(async {
        for Acknowledged { request, run } in acknowledged {
            let shown = bed.store.interaction(&ana(), *request).await.unwrap().expect("it was stored");
            assert_eq!((shown.status, shown.run_id), (InteractionStatus::Decided, *run));
        }
        every_run_is_whole(&bed).await;
        bed.store.close().await.unwrap();
    });
}

/// Events without a gap, chains that verify, a state that goes with them.
async fn every_run_is_whole(bed: &Bed) {
    let mut page = PageRequest { cursor: None, limit: 200 };
    loop {
        let runs = bed.store.runs(&ana(), &RunFilter::default(), &page).await.unwrap();
        for view in &runs.items {
            let loaded = bed.store.load(&ana(), view.run_id).await.unwrap().unwrap();
            let events = bed.store.events(&ana(), view.run_id, 0, usize::MAX).await.unwrap().unwrap();
            assert!(events.iter().map(|(seq, _)| *seq).eq(1..loaded.next_seq));
            let chain = bed.store.verify(&ana(), view.run_id).await.unwrap();
            assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
        }
        match runs.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => return,
        }
    }
}

/// STORE row 6, and reports of approvals acknowledged and gone (<https://github.com/transact-rs/sqlx/issues/2893>).
fn an_acknowledged_decision_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holdpoint.db");
    let mut acknowledged = Vec::new();
    for lines in [1, 2, 3, 5, 8, 13, 21, 34] {
        let child = again("as-writer", &path).spawn().unwrap();
        acknowledged.extend(killed_after(child, lines));
        check(&path, &acknowledged);
    }
    assert!(acknowledged.len() >= 87);
}

fn a_second_process_is_refused_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holdpoint.db");
    let mut child = again("as-writer", &path).spawn().unwrap();
    // Held open: it writes on.
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let refused = SqliteStore::open(&path, clock());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    open(&path);
}

/// The end of the log as a power cut could leave it: cut anywhere, or with a sector of something else.
fn a_torn_log_loses_nothing_before_the_tear() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holdpoint.db");
    let acknowledged = killed_after(again("as-writer", &path).spawn().unwrap(), 12);
    let (file, log) = (std::fs::read(&path).unwrap(), std::fs::read(beside(&path, "-wal")).unwrap());
    assert!(log.len() > 4_096 * 8, "the writer was killed with its log full");
    let torn = dir.path().join("torn.db");
    let put = |log: &[u8]| {
        std::fs::write(&torn, &file).unwrap();
        std::fs::write(beside(&torn, "-wal"), log).unwrap();
        let _ = std::fs::remove_file(beside(&torn, "-shm"));
    };
    put(&log);
    check(&torn, &acknowledged);
    for part in [1, 3, 5, 7, 9, 11, 13, 15] {
        let at = log.len() * part / 16 + part;
        put(&log[..at]);
        check(&torn, &[]);
        let mut overwritten = log.clone();
        let end = (at + 512).min(log.len());
        overwritten[at..end].fill(0x5a);
        put(&overwritten);
        check(&torn, &[]);
    }
}

/// A reader that does not let go keeps the log from being copied back. It grows meanwhile, and is short again afterwards.
fn the_log_is_short_again_once_a_stuck_reader_is_gone() {
    // What is copied back at once, and what is left of a log that had to grow.
    const SHORT: u64 = 64 * 1024 * 1024;
    const PAYLOAD: usize = 200 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holdpoint.db");
    let bed = open(&path);
    let log = || std::fs::metadata(beside(&path, "-wal")).unwrap().len();
    block_on(async {
        Walk::suspended(&bed, &ana(), "first").await;
        let stuck = rusqlite::Connection::open(&path).unwrap();
        stuck.execute_batch("BEGIN; SELECT count(*) FROM run").unwrap();
        let read: i64 = stuck.query_row("SELECT count(*) FROM run", [], |row| row.get(0)).unwrap();
        assert_eq!(read, 1);
        // Not compressible: each takes its size.
        let mut dice = 1_u64;
        let mut noise = || {
            let bytes = (0..PAYLOAD).map(|_| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (dice >> 40) as u8 % 90)
            });
            bytes.collect::<String>()
        };
        let mut write = async |n: usize| {
            let key = holdpoint_store::IdempotencyKey {
                scope: "POST /test".into(),
                key: format!("key-{n}"),
                body_digest: "00".into(),
            };
            bed.store.remember(&ana(), &key).await.unwrap();
            let answer = holdpoint_store::StoredAnswer { status: 200, body: noise() };
            bed.store.answer(&ana(), &key, &answer).await.unwrap();
        };
        let mut n = 0;
        while log() < SHORT + 8 * 1024 * 1024 {
            write(n).await;
            n += 1;
            assert!(n < 2_000, "the log does not grow beside a reader: {}", log());
        }
        assert_eq!(bed.store.stats().await.unwrap().wal_bytes, Some(log()), "and an operator sees it grow");
        drop(stuck);
        for more in 0..8 {
            write(n + more).await;
        }
        assert!(log() <= SHORT, "{} bytes of log, {n} writes", log());
        bed.store.close().await.unwrap();
    });
    check(&path, &[]);
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// STORE row 34, SQLite. The volume is a real one, small, and in a mount namespace of its own.
fn no_decision_counts_that_found_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let script = r#"mount -t tmpfs -o size=3m tmpfs "$1" && exec "$2" as-tenant-of-a-small-volume "$1""#;
    let inside = |namespaces: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", script, "sh"]).arg(dir.path()).arg(&this).output()
    };
    // As root a mount namespace is enough; anybody else needs a user namespace around it.
    let tried =
        [&["--mount"][..], &["--user", "--map-root-user", "--mount"]].map(|spaces| inside(spaces).unwrap());
    let done = tried.iter().any(|output| output.status.success());
    assert!(
        done,
        "a volume of 3 MiB could not be mounted (needs root, or user namespaces), or the case failed on it:\n{}",
        tried.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).join("\n")
    );
}

/// For each number of free pages from none to plenty: a decision is stored whole, or it is refused and nothing of it is
/// there; once there is room again, it goes on without repair.
fn small_volume(volume: &Path) {
    let path = volume.join("holdpoint.db");
    let ballast = volume.join("ballast");
    let (mut stored, mut refused) = (0, 0);
    for free_pages in 0..24 {
        let bed = open(&path);
        block_on(async {
            let walk = Walk::suspended(&bed, &ana(), &format!("job-{free_pages}")).await;
            let request = walk.requests()[0];
            bed.store.close().await.unwrap();
            let bed = open(&path);
            fill(&ballast, free_pages);
            let answer = bed.store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await;
            let status = bed.store.interaction(&ana(), request).await.unwrap().unwrap().status;
            match &answer {
                Ok(DecideReply::Taken { .. }) => {
                    assert_eq!(status, InteractionStatus::Decided, "{free_pages}");
                    stored += 1;
                }
                Err(Error::Full(_) | Error::Unavailable(_) | Error::CommitUnknown(_)) => {
                    assert_eq!(status, InteractionStatus::Pending, "{free_pages}: {answer:?}");
                    refused += 1;
                }
                other => panic!("{free_pages}: {other:?}"),
            }
            std::fs::remove_file(&ballast).unwrap();
            let again =
                bed.store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await.unwrap();
            match (answer.is_ok(), again) {
                (true, DecideReply::Repeated { .. }) | (false, DecideReply::Taken { .. }) => {}
                (_, other) => panic!("{free_pages}: {other:?}"),
            }
            every_run_is_whole(&bed).await;
            bed.store.close().await.unwrap();
        });
    }
    check(&path, &[]);
    assert!(stored > 0 && refused > 0, "{stored} were stored, {refused} refused");
}

/// Writes until the volume is full, then gives some pages back.
fn fill(ballast: &Path, free_pages: u64) {
    let mut file = std::fs::File::create(ballast).unwrap();
    let page = [0u8; 4_096];
    let mut pages = 0;
    while file.write_all(&page).is_ok() {
        pages += 1;
    }
    file.set_len(4_096 * (pages - free_pages.min(pages))).unwrap();
}

/// Decides the first open request there is, and says so.
fn one_who_decides(path: &Path) {
    let bed = open(path);
    block_on(async {
        let inbox =
            bed.store.interactions(&ana(), &Default::default(), &PageRequest::default()).await.unwrap();
        let open = inbox.items.iter().find(|item| item.status == InteractionStatus::Pending).unwrap();
        decide(&bed.store, &ana(), open.request_id, DecisionWord::Approve).await;
        println!("{} {}", open.request_id, open.run_id);
    });
}

#[cfg(feature = "failpoints")]
mod failpoints {
    use super::*;

    /// STORE rows 6 and 8: killed between a decision and its commit, it was not taken; killed after, it was.
    pub fn what_was_not_committed_did_not_happen() {
        for (point, status) in [
            ("store.decide.before_commit", InteractionStatus::Pending),
            ("store.decide.after_commit", InteractionStatus::Decided),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("holdpoint.db");
            let request = block_on(async {
                let bed = open(&path);
                let request = Walk::suspended(&bed, &ana(), "job").await.requests()[0];
                bed.store.close().await.unwrap();
                request
            });
            let mut command = again("as-one-who-decides", &path);
            let output = command.env("HOLDPOINT_FAIL", format!("{point}:kill")).output().unwrap();
            assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
            let bed = open(&path);
            block_on(async {
                let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
                assert_eq!(shown.status, status, "{point}");
                every_run_is_whole(&bed).await;
                // Decided and not carried on: whoever comes next finds it.
                let taken = bed.store.recover(10).await.unwrap();
                assert_eq!(taken.len(), usize::from(status == InteractionStatus::Decided), "{point}");
            });
        }
    }
}
