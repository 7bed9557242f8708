//! `holdpoint doctor`: looks at the database of a configuration, and says of each thing that is wrong what to do about it.

use std::time::Duration;

use holdpoint_store::{Checkup, Error, Listening, ReadThrough, checkup_postgres, checkup_sqlite};

use crate::args;
use crate::config;
use crate::database::Database;
use crate::fail::{Fail, Result};
use crate::term;

/// Fewer commits a second than this are felt: each decision is one, each call two more.
const COMMITS_PER_SECOND_MIN: f64 = 50.0;
/// More than this, one after the other, no disk syncs: something says "written" too early.
const COMMITS_PER_SECOND_BELIEVED: f64 = 50_000.0;
/// How far the clocks may be apart: events carry this machine's time, deadlines go by the database's.
const CLOCK_APART_MAX_MS: u64 = 1_000;
/// The oldest PostgreSQL that is supported.
const POSTGRES_MIN: i64 = 140_000;
/// Connections that an instance may take.
const CONNECTIONS_OF_ONE: u64 = 16 + 3;
/// Some for whoever else comes; PostgreSQL keeps three of them for its superuser.
const CONNECTIONS_BESIDE: u64 = 4;
/// A transaction that is open for longer keeps the database from cleaning up behind us.
const TRANSACTION_MAX: Duration = Duration::from_secs(10 * 60);
/// A request that has waited for longer may have been forgotten.
const WAIT_LONG: Duration = Duration::from_secs(7 * 24 * 3600);

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Fine,
    /// Not wrong, but to be known.
    Note,
    Wrong,
}

#[derive(Debug)]
struct Finding {
    mark: Mark,
    name: &'static str,
    found: String,
    /// What to do about it.
    advice: Option<&'static str>,
}

/// Looks, and says what it finds. An error when something is wrong.
pub(crate) async fn doctor(args: args::Serve) -> Result<()> {
    let database = config::load_database(args.config.as_deref())?;
    let looked = match &database {
        Database::File(path) => checkup_sqlite(path),
        Database::Postgres { url, ca_file, listen_url, .. } => {
            checkup_postgres(url, listen_url.as_deref(), ca_file.as_deref()).await
        }
    };
    let checkup = looked.map_err(|error| {
        Fail::new(format!("the {} cannot be looked at: {error}", database.named()))
            .hint(what_to_do(&database, &error))
    })?;
    let findings = findings(&checkup);
    term::out(&format!("{:5}  {database}", ""));
    for finding in &findings {
        term::out(&format!("{}  {:18}  {}", words(finding.mark), finding.name, finding.found));
        if let Some(advice) = finding.advice {
            term::out(&format!("       {:18}  -> {advice}", ""));
        }
    }
    match findings.iter().filter(|finding| finding.mark == Mark::Wrong).count() {
        0 => Ok(()),
        1 => Err(Fail::new("one thing is wrong")),
        wrong => Err(Fail::new(format!("{wrong} things are wrong"))),
    }
}

/// What to do about a database that cannot even be looked at.
fn what_to_do(database: &Database, error: &Error) -> &'static str {
    match (database, error) {
        (Database::File(path), _) if !path.exists() => "`holdpoint serve` makes it at its first start",
        (Database::File(path), _) if !path.is_file() => "name a file in `database` under `[server]`",
        (Database::File(_), Error::Corrupt(_) | Error::Inconsistent(_)) => {
            "`holdpoint serve` leaves it alone. If it is not Holdpoint's, name another file in `database` under `[server]`; if it is, \
             it is damaged: put a back-up in its place (docs/operations.md)"
        }
        (Database::File(_), _) => "see that this user may read and write the file and its folder",
        (Database::Postgres { .. }, Error::Corrupt(_) | Error::Inconsistent(_)) => {
            "its tables are not what this version makes, or this user may not read them: look who else writes to this database, or \
             put a back-up in its place (docs/operations.md)"
        }
        (Database::Postgres { .. }, _) => {
            "see that it runs and takes connections from here, and that the database and the user are there"
        }
    }
}

fn words(mark: Mark) -> &'static str {
    match mark {
        Mark::Fine => "ok   ",
        Mark::Note => "note ",
        Mark::Wrong => "WRONG",
    }
}

fn findings(checkup: &Checkup) -> Vec<Finding> {
    let mut all = vec![engine(checkup), schema(checkup), commits(checkup)];
    if let Some(ahead) = checkup.clock_ahead_ms {
        let fine = ahead.unsigned_abs() <= CLOCK_APART_MAX_MS;
        let advice =
            "set both clocks by NTP: deadlines go by the database's clock, events carry this machine's";
        all.push(judge(
            "clock",
            format!("the database's is {ahead} ms ahead of this machine's"),
            fine,
            advice,
        ));
    }
    all.extend(settings(checkup));
    all.extend(pooler(checkup));
    all.extend(checkup.listening.as_ref().map(listening));
    if let Some(oldest) = checkup.oldest_transaction {
        let advice = "find it in pg_stat_activity and end it, and set idle_in_transaction_session_timeout: nothing is cleaned up meanwhile";
        all.push(judge("oldest transaction", span(oldest), oldest <= TRANSACTION_MAX, advice));
    }
    all.extend(stored(checkup));
    all.extend(checkup.read.as_ref().map(read_through));
    all
}

fn read_through(read: &ReadThrough) -> Finding {
    let part = if read.all { "" } else { ", and there was no time for the rest" };
    if read.unreadable == 0 {
        return judge("readable", format!("{} requests and runs{part}", read.looked_at), true, "");
    }
    let first: Vec<String> = read.first.iter().map(|why| crate::text::line(why)).collect();
    let found =
        format!("{} of {} cannot be read{part}: {}", read.unreadable, read.looked_at, first.join("; "));
    judge(
        "readable",
        found,
        false,
        "nothing of them runs meanwhile, and the others go on: if the disk or somebody else changed them, put a back-up in place of the \
         database (docs/operations.md); if nobody did, please report it with the server's log",
    )
}

fn judge(name: &'static str, found: String, fine: bool, advice: &'static str) -> Finding {
    let mark = if fine { Mark::Fine } else { Mark::Wrong };
    Finding { mark, name, found, advice: (!fine).then_some(advice) }
}

fn note(name: &'static str, found: String, fine: bool, advice: &'static str) -> Finding {
    let mark = if fine { Mark::Fine } else { Mark::Note };
    Finding { mark, name, found, advice: (!fine).then_some(advice) }
}

fn engine(checkup: &Checkup) -> Finding {
    let fine = checkup.engine_number.is_none_or(|number| number >= POSTGRES_MIN);
    judge(
        "database",
        checkup.engine.clone(),
        fine,
        "upgrade it: PostgreSQL 14 is the oldest that is supported",
    )
}

fn schema(checkup: &Checkup) -> Finding {
    let known = checkup.schema_known;
    match checkup.schema {
        None => note("schema", "none yet".into(), false, "`holdpoint serve` makes it at its first start"),
        Some(found) if found > known => {
            let found = format!("version {found}; this program knows up to {known}");
            judge("schema", found, false, "start the newer version of holdpoint; this one leaves it alone")
        }
        Some(found) if found < known => {
            let found = format!("version {found}; this program brings it to {known}");
            note(
                "schema",
                found,
                false,
                "back it up before the new version is started: older ones cannot read it after that",
            )
        }
        Some(found) => judge("schema", format!("version {found}"), true, ""),
    }
}

fn commits(checkup: &Checkup) -> Finding {
    let figures = &checkup.commits;
    let ms = figures.median.as_secs_f64() * 1000.0;
    let found =
        format!("{:.0} a second, one takes {ms:.2} ms ({} measured)", figures.per_second, figures.count);
    if figures.per_second > COMMITS_PER_SECOND_BELIEVED {
        let advice = "nothing syncs that fast: a disk or a setting says \"written\" before it is, and a power failure loses decisions";
        return judge("commits", found, false, advice);
    }
    let fine = figures.per_second >= COMMITS_PER_SECOND_MIN;
    judge(
        "commits",
        found,
        fine,
        "each decision waits for one: use a faster disk, or one with a protected write cache",
    )
}

/// What PostgreSQL must be set to for "stored" to mean stored.
fn settings(checkup: &Checkup) -> Vec<Finding> {
    let mut all = Vec::new();
    for (name, fine, advice) in [
        ("fsync", "on", "set fsync = on: without it a crash of the machine can destroy the database"),
        (
            "full_page_writes",
            "on",
            "set full_page_writes = on: a page that was written by half cannot be repaired without it",
        ),
    ] {
        if let Some(value) = checkup.setting(name) {
            all.push(judge(name, value.into(), value == fine, advice));
        }
    }
    if let Some(value) = checkup.setting("synchronous_commit") {
        // `local` syncs here and does not wait for a standby; the others that are not `off` wait for at least that.
        let fine = ["on", "remote_apply", "remote_write", "local"].contains(&value);
        let advice =
            "set synchronous_commit = on: with `off`, decisions that were acknowledged are lost in a crash";
        all.push(judge("synchronous_commit", value.into(), fine, advice));
    }
    if let Some(value) = checkup.setting("data_checksums") {
        let advice =
            "turn them on (pg_checksums --enable, while it is stopped): a broken disk is noticed then";
        all.push(note("data_checksums", value.into(), value == "on", advice));
    }
    if let Some(value) = checkup.setting("transaction_read_only") {
        let found = if value == "on" { "read only" } else { "read and write" };
        all.push(judge(
            "access",
            found.into(),
            value != "on",
            "this is a standby or is set to be read: connect to the primary",
        ));
    }
    if let Some(value) = checkup.setting("max_connections") {
        let alive = checkup.stored.and_then(|stored| stored.instances).unwrap_or(0).max(1);
        let needed = alive * CONNECTIONS_OF_ONE + CONNECTIONS_BESIDE;
        let fine = value.parse::<u64>().is_ok_and(|max| max >= needed);
        let found = format!("{value}; {alive} instances need {needed}");
        let advice =
            "an instance takes up to 19 connections, and 4 are for others: raise it, or run fewer instances";
        all.push(judge("max_connections", found, fine, advice));
    }
    if let Some(value) = checkup.setting("idle_in_transaction_session_timeout") {
        let found = if value == "0" { "never ended".into() } else { format!("ended after {value} ms") };
        let advice = "set idle_in_transaction_session_timeout: a forgotten transaction of anybody keeps the database from cleaning up";
        all.push(note("idle transactions", found, value != "0", advice));
    }
    if let Some(value) = checkup.setting("synchronous_standby_names") {
        let found = if value.is_empty() { "none" } else { value };
        let advice = "decisions that were acknowledged can be lost when a standby takes over; name a synchronous one if that matters";
        all.push(note("synchronous standby", found.into(), !value.is_empty(), advice));
    }
    all
}

/// What stands between this machine and the database.
fn pooler(checkup: &Checkup) -> Option<Finding> {
    let (found, fine) = match checkup.pooled? {
        true => ("one that shares connections between transactions", false),
        false => ("none, or one that keeps a connection for each client", true),
    };
    let advice = "statements are not prepared ahead through it, which costs some time on each; a direct URL is quicker";
    Some(note("pooler", found.into(), fine, advice))
}

/// Whether an instance here would hear the others.
fn listening(found: &Listening) -> Finding {
    const NAME: &str = "listener";
    match found {
        Listening::Heard(took) => {
            let ms = took.as_secs_f64() * 1000.0;
            judge(NAME, format!("a bell came back after {ms:.1} ms"), true, "")
        }
        Listening::Lost => note(
            NAME,
            "poll-only: LISTEN is accepted and nothing is delivered".into(),
            false,
            "a pooler stands between: name a direct URL in the variable of `database_listen_url_env`, else a decision takes up to \
             a second to reach another instance",
        ),
        Listening::Elsewhere => judge(
            NAME,
            "the URL to listen at leads to another database".into(),
            false,
            "correct the variable of `database_listen_url_env`: instances do not start with it",
        ),
        Listening::Deaf(why) => judge(
            NAME,
            format!("deaf: {}", crate::text::line(why)),
            false,
            "see that the URL to listen at can be reached from here, and that its user may connect",
        ),
    }
}

fn stored(checkup: &Checkup) -> Vec<Finding> {
    let Some(stored) = &checkup.stored else { return Vec::new() };
    let mut all = Vec::new();
    if let Some(instances) = stored.instances {
        all.push(judge("instances", format!("{instances} alive"), true, ""));
    }
    all.push(judge("pending", format!("{} requests wait", stored.pending), true, ""));
    if let Some(oldest) = stored.oldest_pending {
        let advice =
            "`holdpoint inbox` lists it: decide it, or set `approval_timeout` so that nothing waits for ever";
        all.push(note("oldest pending", span(oldest), oldest <= WAIT_LONG, advice));
    }
    let advice = "their deadline has passed, and they stay open (`on_timeout = \"wait\"`): `holdpoint inbox` lists them; decide \
                  them, or name somebody more to ask with `escalate_to`";
    all.push(note("overdue", format!("{} requests", stored.overdue), stored.overdue == 0, advice));
    let advice = "they ended every process that carried them on: `holdpoint runs --status quarantined` lists them; cancel them, or ask why";
    all.push(judge("quarantined", format!("{} runs", stored.quarantined), stored.quarantined == 0, advice));
    all
}

fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_store::{CommitFigures, StoredFigures};

    fn healthy() -> Checkup {
        let settings = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("data_checksums", "on"),
            ("transaction_read_only", "off"),
            ("max_connections", "42"),
            ("synchronous_standby_names", "b"),
            ("idle_in_transaction_session_timeout", "60000"),
        ];
        Checkup {
            engine: "PostgreSQL 17.2".into(),
            engine_number: Some(170_002),
            schema: Some(1),
            schema_known: 1,
            commits: CommitFigures { count: 200, median: Duration::from_millis(2), per_second: 500.0 },
            clock_ahead_ms: Some(3),
            pooled: Some(false),
            listening: Some(Listening::Heard(Duration::from_millis(2))),
            settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
            oldest_transaction: Some(Duration::from_secs(1)),
            stored: Some(StoredFigures {
                pending: 2,
                oldest_pending: Some(Duration::from_secs(60)),
                overdue: 0,
                quarantined: 0,
                instances: Some(2),
            }),
            read: Some(ReadThrough { looked_at: 3, all: true, ..ReadThrough::default() }),
        }
    }

    #[test]
    fn a_healthy_database_is_found_to_be_one() {
        let findings = findings(&healthy());
        assert!(findings.iter().all(|finding| finding.mark == Mark::Fine), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.advice.is_none()));
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_with_what_to_do() {
        let set = |name: &str, value: &str| {
            let mut checkup = healthy();
            let setting = checkup.settings.iter_mut().find(|(known, _)| known == name).unwrap();
            setting.1 = value.into();
            checkup
        };
        let stored = healthy().stored.unwrap();
        for (checkup, name, mark) in [
            (set("fsync", "off"), "fsync", Mark::Wrong),
            (set("full_page_writes", "off"), "full_page_writes", Mark::Wrong),
            (set("synchronous_commit", "off"), "synchronous_commit", Mark::Wrong),
            (set("data_checksums", "off"), "data_checksums", Mark::Note),
            (set("transaction_read_only", "on"), "access", Mark::Wrong),
            (set("max_connections", "41"), "max_connections", Mark::Wrong),
            (set("idle_in_transaction_session_timeout", "0"), "idle transactions", Mark::Note),
            (
                Checkup {
                    read: Some(ReadThrough {
                        looked_at: 3,
                        all: true,
                        unreadable: 1,
                        first: vec!["run 7: not JSON".into()],
                    }),
                    ..healthy()
                },
                "readable",
                Mark::Wrong,
            ),
            (set("synchronous_standby_names", ""), "synchronous standby", Mark::Note),
            (Checkup { engine_number: Some(139_999), ..healthy() }, "database", Mark::Wrong),
            (Checkup { schema: Some(2), ..healthy() }, "schema", Mark::Wrong),
            (Checkup { schema: None, ..healthy() }, "schema", Mark::Note),
            (Checkup { schema_known: 2, ..healthy() }, "schema", Mark::Note),
            (Checkup { pooled: Some(true), ..healthy() }, "pooler", Mark::Note),
            (Checkup { listening: Some(Listening::Lost), ..healthy() }, "listener", Mark::Note),
            (Checkup { listening: Some(Listening::Elsewhere), ..healthy() }, "listener", Mark::Wrong),
            (Checkup { listening: Some(Listening::Deaf("no".into())), ..healthy() }, "listener", Mark::Wrong),
            (Checkup { clock_ahead_ms: Some(-1_001), ..healthy() }, "clock", Mark::Wrong),
            (
                Checkup { oldest_transaction: Some(Duration::from_secs(601)), ..healthy() },
                "oldest transaction",
                Mark::Wrong,
            ),
            (
                Checkup { commits: CommitFigures { per_second: 49.9, ..healthy().commits }, ..healthy() },
                "commits",
                Mark::Wrong,
            ),
            (
                Checkup { commits: CommitFigures { per_second: 50_001.0, ..healthy().commits }, ..healthy() },
                "commits",
                Mark::Wrong,
            ),
            (
                Checkup { stored: Some(StoredFigures { overdue: 1, ..stored }), ..healthy() },
                "overdue",
                Mark::Note,
            ),
            (
                Checkup { stored: Some(StoredFigures { quarantined: 1, ..stored }), ..healthy() },
                "quarantined",
                Mark::Wrong,
            ),
            (
                Checkup {
                    stored: Some(StoredFigures {
                        oldest_pending: Some(WAIT_LONG + Duration::from_secs(1)),
                        ..stored
                    }),
                    ..healthy()
                },
                "oldest pending",
                Mark::Note,
            ),
        ] {
            let findings = findings(&checkup);
            let found: Vec<_> = findings.iter().filter(|finding| finding.mark != Mark::Fine).collect();
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!((found[0].name, found[0].mark), (name, mark));
            assert!(found[0].advice.is_some_and(|advice| advice.len() > 20), "{name}");
        }
    }
}
