//! The network between instances and their database: cut, silent, one-way.

use std::time::{Duration, Instant};

use holdpoint_faults::Way;
use serde_json::json;

use crate::bed::{
    asked, assert_whole, bash, body, decide, events, leave_what_is_in_doubt, path, serve,
    serve_behind_a_proxy, start,
};
use crate::common::until;

/// A lease lasts six seconds; others look for what is left behind twice a second. The rest is for a machine with other work.
const TAKEOVER_MAX: Duration = Duration::from_secs(6 + 2 + 7);

/// For thirty seconds nothing passes between an instance and the database, and nobody tells it. What it had is taken over; it
/// starts no tool; and when the network is back, what it says is refused.
pub fn slow_an_instance_cut_off_from_its_database_loses_its_runs_and_starts_nothing() {
    let cluster = holdpoint_faults::shared();
    // The first command is running when the network goes, the second one would be next.
    let calls = [
        ("Bash", json!({ "command": "echo first >> log.txt; sleep 10; echo late" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ];
    let site = crate::common::site::Site::on(
        crate::common::site::Database::in_cluster(&cluster),
        &crate::common::site::script(&calls),
    );
    let (mut a, proxy) = serve_behind_a_proxy(&site, &cluster);
    let b = serve(&site);
    let run = start(&a.server);
    let pending = a.server.pending();
    let request = |call: &str| pending.iter().find(|row| row["request"]["toolCallId"] == call).unwrap();
    decide(&a.server, request("c0"), "approve");
    until("the first command", || (site.lines("log.txt") == 1).then_some(()));
    decide(&b.server, request("c1"), "approve");
    proxy.swallow();
    let cut = Instant::now();
    let doubt = asked(&b.server, &run, "in_doubt");
    println!("cut off, and taken over after {:?}", cut.elapsed());
    assert!(cut.elapsed() < TAKEOVER_MAX, "{:?}", cut.elapsed());
    // Cut off, it acknowledges nothing and starts nothing: a start and a decision there have no answer, or a refusal.
    let server = a.server.clone();
    let deaf = std::thread::spawn(move || server.try_post("/chat", &json!({ "query": "go" }), None));
    std::thread::sleep(Duration::from_secs(30).saturating_sub(cut.elapsed()));
    assert!(site.log("log.txt").iter().filter(|line| *line == "second").count() <= 1);
    proxy.open();
    match deaf.join().unwrap() {
        Ok((202, _)) => {} // It was waited for.
        Ok((503, _)) | Err(_) => {}
        Ok((status, answer)) => panic!("{status}: {answer}"),
    }
    // Time for it to write its result, if anything let it.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(asked(&a.server, &run, "in_doubt")["requestId"], doubt["requestId"], "it sees what is stored");
    decide(&a.server, &doubt, "leave");
    assert_eq!(b.server.ended(&run)["text"], "done");
    let events = events(&b.server, &run);
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results.len(), 2);
    assert!(!results.iter().any(|result| result.to_string().contains("late")), "{results:?}");
    let mut log = site.log("log.txt");
    log.sort();
    assert_eq!(log, ["first", "second"], "each ran once");
    a.signal("-TERM");
    assert!(a.wait().success());
    assert!(a.said().contains("letting go"), "it says that it was fenced");
}

/// The database does what an instance asks, and its answers come when others have taken the runs over already.
pub fn what_is_answered_after_the_lease_has_ended_starts_nothing_twice() {
    const RUNS: usize = 6;
    let cluster = holdpoint_faults::shared();
    let site = bash("echo $$ >> log.txt");
    let (a, proxy) = serve_behind_a_proxy(&site, &cluster);
    let b = serve(&site);
    let runs: Vec<String> = (0..RUNS).map(|_| start(&a.server)).collect();
    let requests = a.server.pending();
    proxy.set(Way::Open, Way::Swallowed);
    let deciding: Vec<_> = requests
        .iter()
        .map(|request| {
            let (server, request) = (a.server.clone(), request.clone());
            std::thread::spawn(move || server.try_post(&path(&request), &body(&request, "approve"), None))
        })
        .collect();
    std::thread::sleep(Duration::from_secs(9));
    proxy.open();
    deciding.into_iter().for_each(|deciding| drop(deciding.join().unwrap()));
    for (run, request) in runs.iter().zip(&requests) {
        until("the end of each run", || {
            // What was sent on a connection that was never answered may not have been decided.
            let _ = b.server.try_post(&path(request), &body(request, "approve"), None);
            leave_what_is_in_doubt(&b.server, run);
            (b.server.run(run)["status"] == "finished").then_some(())
        });
        assert_whole(&b.server, run);
    }
    let twice = site.sql("SELECT count(*) FROM execution WHERE attempt > 1");
    assert_eq!(twice, "0", "nothing was started twice");
    assert!(site.lines("log.txt") <= RUNS, "{:?}", site.log("log.txt"));
}

/// The process is well and so is its tool, but it cannot renew its lease: another takes the run, and the late result counts for
/// nothing. With a lease that can be renewed, a command that runs longer than one keeps its run.
pub fn a_lease_that_cannot_be_renewed_ends_and_the_late_result_is_refused() {
    let cluster = holdpoint_faults::shared();
    let site = bash("echo ran >> log.txt; sleep 9; echo late");
    let (a, proxy) = serve_behind_a_proxy(&site, &cluster);
    let b = serve(&site);
    let run = start(&a.server);
    decide(&a.server, &asked(&a.server, &run, "approval"), "approve");
    until("the command", || (site.lines("log.txt") == 1).then_some(()));
    proxy.refuse();
    proxy.cut();
    let doubt = asked(&b.server, &run, "in_doubt");
    proxy.open();
    std::thread::sleep(Duration::from_secs(5));
    decide(&b.server, &doubt, "leave");
    assert_whole(&b.server, &run);
    let text = events(&b.server, &run).iter().map(ToString::to_string).collect::<String>();
    assert!(!text.contains("\nlate"), "{text}");
    // The same again, undisturbed.
    let run = start(&a.server);
    decide(&a.server, &asked(&a.server, &run, "approval"), "approve");
    assert_whole(&a.server, &run);
    assert_eq!(site.lines("log.txt"), 2);
    let text = events(&b.server, &run).iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("late"), "{text}");
}

/// Every connection that an instance has goes silent in one direction: the database hears it and is not heard, nobody is told. New
/// connections work. Decisions there are refused or taken in the end, and none is taken to be taken that is not.
pub fn a_decision_reaches_an_instance_whose_connections_went_silent() {
    let cluster = holdpoint_faults::shared();
    let calls = [
        ("Bash", json!({ "command": "sleep 4; echo first >> log.txt" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ];
    let site = crate::common::site::Site::on(
        crate::common::site::Database::in_cluster(&cluster),
        &crate::common::site::script(&calls),
    );
    site.configure("", "execution = \"parallel\"");
    let (a, proxy) = serve_behind_a_proxy(&site, &cluster);
    let b = serve(&site);
    let run = start(&a.server);
    let pending = a.server.pending();
    let request = |call: &str| pending.iter().find(|row| row["request"]["toolCallId"] == call).unwrap();
    decide(&a.server, request("c0"), "approve");
    let silent = proxy.links();
    assert!(!silent.is_empty());
    silent.iter().for_each(|link| link.set(Way::Open, Way::Swallowed));
    let began = Instant::now();
    decide(&b.server, request("c1"), "approve");
    until("the second command", || site.log("log.txt").contains(&"second".to_owned()).then_some(()));
    println!("decided elsewhere, and run {:?} after the connections went silent", began.elapsed());
    silent.iter().for_each(|link| link.cut());
    until("the end, or a doubt", || {
        for doubt in b.server.pending().iter().filter(|row| row["kind"] == "in_doubt") {
            let _ = b.server.try_post(&path(doubt), &body(doubt, "leave"), None);
        }
        (b.server.run(&run)["status"] == "finished").then_some(())
    });
    let mut log = site.log("log.txt");
    log.sort();
    log.dedup();
    assert_eq!(log.len(), site.lines("log.txt"), "each ran once at most");
}

/// The database ends every connection; whatever listens on one must notice and come back.
pub fn connections_that_the_database_ends_are_made_again() {
    let site = bash("echo ran >> log.txt");
    let (a, b) = (serve(&site), serve(&site));
    let mut runs = Vec::new();
    for round in 0..3 {
        let run = start(&a.server);
        let request = asked(&b.server, &run, "approval");
        site.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid()",
        );
        // What was asked of a dead connection may be refused once; the next time it is another one.
        let server = if round % 2 == 0 { &a.server } else { &b.server };
        until("the decision", || {
            server
                .try_post(&path(&request), &body(&request, "approve"), None)
                .is_ok_and(|(status, _)| status == 200)
                .then_some(())
        });
        assert_whole(&b.server, &run);
        runs.push(run);
    }
    assert_eq!(site.lines("log.txt"), runs.len());
}
