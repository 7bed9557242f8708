//! The database ends, comes back, or is slow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdpoint_faults::{Cluster, Disk, Stop};
use serde_json::{Value, json};

use crate::bed::{
    asked, assert_whole, bash, bash_in, body, decide, interaction, leave_what_is_in_doubt, path, serve, start,
};
use crate::common::http::Server;
use crate::common::site::Site;
use crate::common::{process::Serving, until};

/// How long a decision may take to go through once the database answers again.
const BACK_MAX: Duration = Duration::from_secs(5);

/// What clients did, and what they were told.
#[derive(Default)]
struct Record {
    acknowledged: Mutex<Vec<(Value, &'static str)>>,
    refused: AtomicUsize,
    stop: AtomicBool,
}

/// A client that starts runs and decides them, again and again, whatever comes.
fn client(server: Server, record: Arc<Record>, number: usize) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut runs = Vec::new();
        for n in 0.. {
            if record.stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("start-{number}-{n}");
            let started = loop {
                match server.try_post("/chat", &json!({ "query": "go" }), Some(&key)) {
                    Ok((202, answer)) => break Some(answer),
                    // The same key gets the same run, if there is one.
                    Ok(_) | Err(_) if !record.stop.load(Ordering::Relaxed) => {
                        record.refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    Ok(_) | Err(_) => break None,
                }
            };
            let Some(started) = started else { break };
            let run = started["runId"].as_str().unwrap().to_owned();
            runs.push(run);
            let request = started["interactions"][0].clone();
            let word = if n % 4 == 3 { "decline" } else { "approve" };
            while !record.stop.load(Ordering::Relaxed) {
                match server.try_post(&path(&request), &body(&request, word), None) {
                    Ok((200, _)) => {
                        record.acknowledged.lock().unwrap().push((request.clone(), word));
                        break;
                    }
                    Ok((503, _)) | Err(_) => {
                        record.refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    Ok((status, answer)) => panic!("{status}: {answer}"),
                }
            }
        }
        runs
    })
}

/// In order, at once, and by `kill -9`, while two instances start runs, decide and run commands.
pub fn slow_a_database_that_ends_in_any_way_under_load_costs_no_decision_and_doubles_no_command() {
    let cluster = Arc::new(Cluster::start(Disk::Quick));
    let site = bash_in(&cluster, "echo ran-$PPID-$$ >> log.txt");
    let (a, b) = (serve(&site), serve(&site));
    let record = Arc::new(Record::default());
    let clients: Vec<_> = (0..4)
        .map(|n| client(if n % 2 == 0 { &a } else { &b }.server.clone(), Arc::clone(&record), n))
        .collect();
    for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        std::thread::sleep(Duration::from_secs(1));
        cluster.down(how);
        std::thread::sleep(Duration::from_secs(1));
        cluster.up();
        let back = Instant::now();
        let before = record.acknowledged.lock().unwrap().len();
        until("a decision after it was back", || {
            (record.acknowledged.lock().unwrap().len() > before).then_some(())
        });
        let took = back.elapsed();
        println!("{how:?}: the next decision {took:?} after the database was back");
        // Twice the bound: other cases run beside this one.
        assert!(took < BACK_MAX * 2, "{how:?}: {took:?}");
    }
    record.stop.store(true, Ordering::Relaxed);
    let runs: Vec<String> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let mut approved = 0;
    for (request, word) in record.acknowledged.lock().unwrap().iter() {
        let now = interaction(&b.server, request);
        assert_eq!(
            (&now["status"], &now["decision"]["decision"]),
            (&json!("decided"), &json!(word)),
            "{now}"
        );
        approved += usize::from(*word == "approve");
    }
    for run in &runs {
        until("the end", || {
            leave_what_is_in_doubt(&b.server, run);
            for request in b.server.pending().iter().filter(|request| request["runId"] == *run) {
                // Those whose last answer was lost.
                if request["kind"] == "approval" {
                    let _ = b.server.try_post(&path(request), &body(request, "decline"), None);
                }
            }
            (b.server.run(run)["status"] == "finished").then_some(())
        });
        assert_whole(&b.server, run);
    }
    let executions = site.lines("log.txt");
    let doubts: usize = count_of(&site, "SELECT count(*) FROM request WHERE kind = 2");
    println!(
        "{} runs, {approved} approved and acknowledged, {executions} commands, {doubts} in doubt, {} refused meanwhile",
        runs.len(),
        record.refused.load(Ordering::Relaxed)
    );
    assert!(record.refused.load(Ordering::Relaxed) > 0, "it was away");
    // A decision whose answer was lost may have been an approve; nothing was approved that was not asked for.
    let decided = count_of(&site, "SELECT count(*) FROM execution WHERE attempt = 1");
    let again = count_of(&site, "SELECT count(*) FROM execution WHERE attempt > 1");
    assert_eq!(again, 0, "no command was started twice");
    assert!(
        executions <= decided && executions + doubts >= decided,
        "{executions} of {decided}, {doubts} in doubt"
    );
    let unreleased = count_of(
        &site,
        "SELECT count(*) FROM execution e WHERE NOT EXISTS (SELECT 1 FROM request q WHERE q.tenant_id = e.tenant_id \
         AND q.request_id = e.request_id AND q.status = 1)",
    );
    assert_eq!(unreleased, 0, "nothing ran without a decision");
}

fn count_of(site: &Site, sql: &str) -> usize {
    site.sql(sql).parse().unwrap()
}

/// Every commit takes half a second, and holds what it has locked for as long. Leases are renewed all the same, and work gets
/// slower, not more.
pub fn with_slow_commits_no_lease_is_lost() {
    let site = bash("echo ran >> log.txt");
    let (mut a, mut b) = (serve(&site), serve(&site));
    for table in ["run", "instance"] {
        site.sql(&format!(
            "CREATE FUNCTION slowly_{table}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER slowly AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION slowly_{table}()"
        ));
    }
    let servers: Vec<Server> = (0..12).map(|n| if n % 2 == 0 { &a } else { &b }.server.clone()).collect();
    let began = Instant::now();
    let working: Vec<_> = servers
        .into_iter()
        .map(|server| {
            std::thread::spawn(move || {
                let run = start(&server);
                decide(&server, &asked(&server, &run, "approval"), "approve");
                server.ended(&run);
                run
            })
        })
        .collect();
    let runs: Vec<String> = working.into_iter().map(|run| run.join().unwrap()).collect();
    println!("{} runs with slow commits in {:?}", runs.len(), began.elapsed());
    let crashed = site.sql("SELECT count(*) FROM request WHERE kind = 2");
    assert_eq!(crashed, "0", "nobody was taken to be dead");
    assert_eq!(site.lines("log.txt"), runs.len());
    for serving in [&mut a, &mut b] {
        serving.signal("-TERM");
        serving.wait();
        let said = serving.said();
        assert!(!said.contains("fenced") && !said.contains("taking a run up run"), "{said}");
    }
}

/// Nothing is written of a run that waits when its instances end and others start: there is nothing to recover.
pub fn the_end_of_every_instance_writes_nothing_of_what_waits() {
    let site = bash("echo ran >> log.txt");
    let instances: Vec<Serving> = (0..3).map(|_| serve(&site)).collect();
    let runs: Vec<String> = instances.iter().map(|serving| start(&serving.server)).collect();
    // Every row with the transaction that wrote it last.
    let rows = || {
        ["run", "request", "journal", "execution", "conversation"].map(|table| {
            site.sql(&format!(
                "SELECT md5(string_agg(xmin::text || t::text, ',' ORDER BY t::text)) FROM {table} t"
            ))
        })
    };
    let before = rows();
    instances.into_iter().for_each(Serving::kill);
    site.dead_are_known_to_be();
    let c = serve(&site);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(rows(), before, "nothing was written");
    for run in &runs {
        decide(&c.server, &asked(&c.server, run, "approval"), "approve");
        assert_whole(&c.server, run);
    }
    assert_eq!(site.lines("log.txt"), runs.len());
}
