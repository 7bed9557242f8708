//! People and programs that use the instances, whatever becomes of them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::http::Server;
use crate::dice::Dice;
use crate::jobs;
use crate::record::{Posted, Record};
use crate::world::World;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long everything may take to come to its end once all is well.
const END_MAX: Duration = Duration::from_secs(120);

type Answer = Option<(u16, Value)>;

fn post(server: &Server, path: &str, body: &Value, key: Option<&str>) -> Answer {
    let headers = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let (status, text) = server.send("POST", path, &body.to_string(), &headers, PATIENCE).ok()?;
    Some((status, serde_json::from_str(&text).ok()?))
}

pub fn get(server: &Server, path: &str) -> Answer {
    let (status, text) = server.send("GET", path, "", "", PATIENCE).ok()?;
    Some((status, serde_json::from_str(&text).ok()?))
}

/// Posts a decision once, and writes down what came of it.
fn try_decide(server: &Server, record: &Record, request: &Value, plan: &Plan) -> Answer {
    let id = request["requestId"].as_str().unwrap().to_owned();
    let mut body = json!({ "decision": plan.word, "digest": request["request"]["digest"] });
    match (&plan.own, plan.word) {
        (Some(text), "approve_with") => body["arguments"] = json!(text),
        (Some(text), _) => body["reason"] = json!(text),
        (None, _) => {}
    }
    let path = format!("/v1/interactions/{id}/decision");
    let answer = post(server, &path, &body, plan.key.as_deref());
    record.post(Posted {
        request: id,
        word: plan.word.to_owned(),
        own: plan.own.clone(),
        key: plan.key.clone(),
        answer: answer.clone(),
    });
    answer
}

#[derive(Clone)]
struct Plan {
    word: &'static str,
    own: Option<String>,
    key: Option<String>,
}

/// A way to decide that no other client takes.
fn plan(dice: &mut Dice, job: u64, call: usize) -> Plan {
    let nonce = dice.below(u64::MAX);
    let key = dice.percent(60).then(|| format!("key-{nonce:x}"));
    let reason = Some(format!("reason {nonce:x}"));
    let edited = jobs::command(&format!("{}-edit-{nonce:x}", jobs::mark(job, call)), 0);
    match dice.below(10) {
        0..5 => Plan { word: "approve", own: None, key },
        5..7 => Plan { word: "decline", own: reason, key },
        7 => Plan { word: "feedback", own: reason, key },
        _ if !jobs::is_of_commands(job) => Plan { word: "approve", own: None, key },
        _ => Plan { word: "approve_with", own: Some(edited.to_string()), key },
    }
}

/// Posts it until it is known what became of it, or all is over.
fn decide(world: &World, record: &Record, dice: &mut Dice, request: &Value, plan: &Plan) -> Answer {
    while !world.is_over.load(Ordering::Relaxed) {
        if let Some(server) = world.server(dice.below(100)) {
            match try_decide(&server, record, request, plan) {
                Some(answer @ (..500, _)) if answer.0 != 401 => return Some(answer),
                Some(_) | None => {}
            }
        }
        std::thread::sleep(Duration::from_millis(dice.between(20, 200)));
    }
    None
}

/// Starts one job after the other and decides what it asks.
pub fn decide_jobs(world: &World, record: &Record, mut dice: Dice) {
    while !world.is_over.load(Ordering::Relaxed) {
        let job = world.next_job.fetch_add(1, Ordering::Relaxed);
        if job >= world.jobs {
            return;
        }
        let Some(asked) = start(world, record, &mut dice, job) else { continue };
        for request in &asked {
            decide_one(world, record, &mut dice, job, request);
        }
        std::thread::sleep(Duration::from_millis(dice.between(0, 300)));
    }
}

/// Starts a job, with one key until it is there. Gives what it asks.
fn start(world: &World, record: &Record, dice: &mut Dice, job: u64) -> Option<Vec<Value>> {
    let key = format!("start-{job}");
    let body = json!({ "query": jobs::message(job) });
    let mut run = None;
    while !world.is_over.load(Ordering::Relaxed) {
        let Some(server) = world.server(dice.below(100)) else { continue };
        match post(&server, "/chat", &body, Some(&key)) {
            Some((200 | 202, answer)) => {
                let id = answer["runId"].as_str().unwrap().to_owned();
                record.started(job, &id);
                // The same start once more, now and then: it is to name the same run.
                if run.is_none() && dice.percent(20) {
                    run = Some(id);
                    continue;
                }
                run = Some(id);
                break;
            }
            Some((status @ 400..500, answer)) if status != 401 => panic!("job {job}: {status}: {answer}"),
            Some(_) => drop(record.refused.fetch_add(1, Ordering::Relaxed)),
            None => drop(record.unknown.fetch_add(1, Ordering::Relaxed)),
        }
        std::thread::sleep(Duration::from_millis(dice.between(20, 200)));
    }
    let run = run?;
    // What it asks is read where it is stored: an answer to a start may be older.
    while !world.is_over.load(Ordering::Relaxed) {
        let Some(server) = world.server(dice.below(100)) else { continue };
        if let Some((200, view)) = get(&server, &format!("/v1/runs/{run}")) {
            let pending: Vec<_> = view["pending"].as_array().into_iter().flatten().cloned().collect();
            let whole = pending.iter().map(|pending| {
                let id = pending["requestId"].as_str().unwrap();
                get(&server, &format!("/v1/interactions/{id}")).filter(|answer| answer.0 == 200)
            });
            if let Some(whole) = whole.collect::<Option<Vec<_>>>()
                && (!whole.is_empty() || ["finished", "failed"].iter().any(|end| view["status"] == *end))
            {
                let asked: Vec<_> = whole.into_iter().map(|(_, request)| request).collect();
                return Some(asked);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

fn decide_one(world: &World, record: &Record, dice: &mut Dice, job: u64, request: &Value) {
    let call = request["request"]["toolCallId"].as_str().unwrap_or_default().trim_start_matches('c').parse();
    let call = call.unwrap_or(0);
    if request["kind"] != "approval" {
        return;
    }
    match dice.below(10) {
        // Nobody decides: its deadline does.
        0 => {}
        // Two at once, each in its own way.
        1..5 => {
            let plans = [plan(dice, job, call), plan(dice, job, call)];
            std::thread::scope(|scope| {
                for plan in &plans {
                    let mut own = Dice::new(dice.below(u64::MAX), 0);
                    scope.spawn(move || decide(world, record, &mut own, request, plan));
                }
            });
        }
        // One, and then the same again and another one, late.
        5..7 => {
            let first = plan(dice, job, call);
            decide(world, record, dice, request, &first);
            decide(world, record, dice, request, &first);
            let late = plan(dice, job, call);
            decide(world, record, dice, request, &late);
        }
        // One on a digest that was never shown.
        7 => {
            let mut other = request.clone();
            other["request"]["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
            let stale = plan(dice, job, call);
            decide(world, record, dice, &other, &Plan { word: "approve", own: None, key: None });
            decide(world, record, dice, request, &stale);
        }
        _ => {
            let one = plan(dice, job, call);
            decide(world, record, dice, request, &one);
        }
    }
}

/// Says of every call in doubt what is to be done: mostly to leave it, now and then to run it again.
pub fn settle_doubts(world: &World, record: &Record, mut dice: Dice) {
    while !world.is_over.load(Ordering::Relaxed) {
        if let Some(server) = world.server(dice.below(100)) {
            settle_those_there(&server, record, &mut dice, false);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn settle_those_there(server: &Server, record: &Record, dice: &mut Dice, all: bool) {
    let Some((200, page)) = get(server, "/v1/interactions?status=pending&limit=200") else { return };
    for request in page["items"].as_array().into_iter().flatten() {
        let plan = |word| Plan { word, own: None, key: None };
        if request["kind"] == "in_doubt" {
            let word = if dice.percent(30) { "approve" } else { "leave" };
            try_decide(server, record, request, &plan(word));
        } else if all {
            try_decide(server, record, request, &plan("decline"));
        }
    }
}

/// All is well: every run comes to its end.
pub fn bring_to_an_end(world: &World, record: &Record) {
    let began = Instant::now();
    let mut dice = Dice::new(0, 400);
    let server = world.server(0).unwrap();
    loop {
        settle_those_there(&server, record, &mut dice, true);
        let open = runs(&server)
            .into_iter()
            .filter(|run| !matches!(run["status"].as_str(), Some("finished" | "failed")));
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return;
        }
        assert!(began.elapsed() < END_MAX, "{} runs do not end, as {}", open.len(), open[0]);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// All runs there are.
pub fn runs(server: &Server) -> Vec<Value> {
    let (mut runs, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = get(server, &format!("/v1/runs?limit=200{cursor}")).expect("all is well");
        assert_eq!(status, 200, "{page}");
        runs.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return runs,
        }
    }
}
