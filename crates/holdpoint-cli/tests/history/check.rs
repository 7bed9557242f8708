//! Whether what was answered, what ran and what is stored go together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::clients::{get, runs};
use crate::common::http::Server;
use crate::record::{Posted, Record};
use crate::world::World;
use crate::{orders, terms};

/// What cannot be, in words. Nothing, if all can.
pub fn check(world: &World, record: &Record) -> Vec<String> {
    let server = world.server(1).unwrap();
    let mut wrong = Vec::new();
    let runs = runs(&server);
    let stored = interactions(&server);
    check_starts(record, &runs, &mut wrong);
    check_decisions(record, &stored, &mut wrong);
    let logs = check_logs(&server, record, &runs, &mut wrong);
    check_executions(world, record, &stored, &logs, &mut wrong);
    let timed = terms::check(world, &stored, &logs, &mut wrong);
    let paid = orders::check(world, &stored, &logs, &mut wrong);
    check_rows(world, &mut wrong);
    let posted = record.posted.lock().unwrap();
    let count = |is: fn(&Posted) -> bool| posted.iter().filter(|posted| is(posted)).count();
    println!(
        "{} runs; {} decisions posted: {} taken or repeated, {} refused as decided, {} as stale, {} as late; \
         {} answers never came, {} said not now; {} commands ran, {} in doubt; {} events seen on {} streams; {paid}; {timed}",
        runs.len(),
        posted.len(),
        count(|posted| matches!(posted.answer, Some((200, _)))),
        count(|posted| is_code(posted, "already_decided")),
        count(|posted| is_code(posted, "stale_request")),
        count(|posted| is_code(posted, "expired")),
        record.unknown.load(Ordering::Relaxed),
        record.refused.load(Ordering::Relaxed),
        world.site.lines("log.txt"),
        stored.values().filter(|request| request["kind"] == "in_doubt").count(),
        record.seen.lock().unwrap().len(),
        record.streams.load(Ordering::Relaxed),
    );
    wrong
}

fn is_code(posted: &Posted, code: &str) -> bool {
    matches!(&posted.answer, Some((_, body)) if body["code"] == code)
}

/// All requests there are, by id.
fn interactions(server: &Server) -> BTreeMap<String, Value> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let (status, page) =
            get(server, &format!("/v1/interactions?limit=200{cursor}")).expect("all is well");
        assert_eq!(status, 200, "{page}");
        for item in page["items"].as_array().unwrap() {
            all.insert(item["requestId"].as_str().unwrap().to_owned(), item.clone());
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// A start with its key made one run, and every run is the start of somebody.
fn check_starts(record: &Record, runs: &[Value], wrong: &mut Vec<String>) {
    let stored: BTreeSet<&str> = runs.iter().map(|run| run["runId"].as_str().unwrap()).collect();
    for (job, named) in record.starts.lock().unwrap().iter() {
        if named.len() != 1 {
            wrong.push(format!("the start of job {job} was answered with different runs: {named:?}"));
        }
        for run in named.iter().filter(|run| !stored.contains(run.as_str())) {
            wrong.push(format!("job {job}: run {run} was acknowledged and is not there"));
        }
    }
}

/// Decisions are a compare-and-set: what was acknowledged is what is stored, and whoever was refused was told so.
fn check_decisions(record: &Record, stored: &BTreeMap<String, Value>, wrong: &mut Vec<String>) {
    let mut replays: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for posted in record.posted.lock().unwrap().iter() {
        let Some((status, body)) = &posted.answer else { continue };
        let Some(request) = stored.get(&posted.request) else {
            wrong.push(format!("request {} is gone: {posted:?}", posted.request));
            continue;
        };
        let decision = &request["decision"];
        let same = |field: &str| body[field] == decision[field];
        let is_true = match *status {
            200 => {
                request["status"] == "decided"
                    && decision["decision"] == posted.word.as_str()
                    && same("decision")
                    && same("at")
            }
            409 if body["code"] == "already_decided" => {
                // Named where there is one; a request that expired or was overtaken has none.
                body["decision"].is_null() || (same("decision") && same("at"))
            }
            409 => body["code"] == "stale_request",
            // Too late to count, and early enough to be heard: after a yes the preset may still say yes too, after a no nobody.
            410 => {
                request["status"] == "expired"
                    || posted.word.starts_with("approve") && decision["by"]["via"] == "preset"
            }
            401 | 500.. => true,
            _ => false,
        };
        if !is_true {
            wrong.push(format!("{posted:?}\n  but what is stored is {} {decision}", request["status"]));
        }
        if let (Some(key), ..500) = (&posted.key, *status) {
            let mut said = body.clone();
            // An answer that was lost with its process is made again, and says that it is one.
            said.as_object_mut().map(|fields| fields.remove("repeated"));
            replays.entry(key.clone()).or_default().insert(said.to_string());
        }
    }
    for (key, answers) in replays.iter().filter(|(_, answers)| answers.len() > 1) {
        wrong.push(format!("one key, different answers: {key}: {answers:?}"));
    }
}

/// The log of each run: numbers without a gap, each call answered once, one end, a record that is whole; and what streams showed
/// meanwhile is what is there.
fn check_logs(
    server: &Server,
    record: &Record,
    runs: &[Value],
    wrong: &mut Vec<String>,
) -> BTreeMap<String, Vec<Value>> {
    let mut logs = BTreeMap::new();
    for run in runs {
        let id = run["runId"].as_str().unwrap();
        let path = format!("/v1/runs/{id}/events");
        let (_, text) = server.send("GET", &path, "", "", crate::common::PATIENCE).expect("all is well");
        let numbers: Vec<u64> =
            text.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
        let events: Vec<Value> = text
            .split("\n\n")
            .filter(|frame| frame.lines().any(|line| line.starts_with("id:")))
            .filter_map(|frame| frame.lines().find_map(|line| line.strip_prefix("data:")))
            .map(|json| serde_json::from_str(json.trim()).unwrap())
            .collect();
        if !numbers.iter().copied().eq(1..=events.len() as u64) {
            wrong.push(format!("run {id}: numbers {numbers:?}"));
        }
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        if count("finish") + count("error") != 1
            || !matches!(events.last().map(|e| &e["type"]), Some(last) if last == "finish" || last == "error")
        {
            wrong.push(format!("run {id} does not end once: {events:?}"));
        }
        let calls: Vec<&Value> = all_of(&events, "toolCalls");
        let results: Vec<&Value> = all_of(&events, "toolResults");
        let answered: BTreeSet<_> = results.iter().map(|result| result["callId"].as_str()).collect();
        if calls.len() != results.len() || answered.len() != results.len() {
            wrong.push(format!("run {id}: {} calls, {} answers", calls.len(), results.len()));
        }
        match get(server, &format!("/v1/audit/verify?run={id}")) {
            Some((200, checked)) if checked["items"][0]["whole"] == true => {}
            other => wrong.push(format!("run {id}: its record is not whole: {other:?}")),
        }
        for (number, event) in numbers.iter().zip(&events) {
            let seen = record.seen.lock().unwrap().get(&(id.to_owned(), *number)).cloned();
            if seen.as_ref().is_some_and(|seen| seen != event) {
                wrong.push(format!("run {id}, {number}: a stream showed {seen:?}, stored is {event}"));
            }
        }
        let shown = record.seen.lock().unwrap();
        let beyond = shown.range((id.to_owned(), events.len() as u64 + 1)..=(id.to_owned(), u64::MAX)).next();
        if let Some(beyond) = beyond {
            wrong.push(format!("run {id}: a stream showed what is not stored: {beyond:?}"));
        }
        logs.insert(id.to_owned(), events);
    }
    logs
}

pub fn all_of<'a>(events: &'a [Value], field: &str) -> Vec<&'a Value> {
    events.iter().filter_map(|event| event[field].as_array()).flatten().collect()
}

/// Commands leave marks. None without a stored approve of exactly that text, none twice unless a person had it run again, and none
/// missing that is said to have run.
fn check_executions(
    world: &World,
    record: &Record,
    stored: &BTreeMap<String, Value>,
    logs: &BTreeMap<String, Vec<Value>>,
    wrong: &mut Vec<String>,
) {
    let mut marks: BTreeMap<String, usize> = BTreeMap::new();
    for mark in world.site.log("log.txt") {
        *marks.entry(mark).or_default() += 1;
    }
    // By call: the text that was released, how often it may have run, and what is said of it.
    let mut released: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut again: BTreeMap<(String, String), usize> = BTreeMap::new();
    for request in stored.values() {
        if request["kind"] == "in_doubt" && request["decision"]["decision"] == "approve" {
            let call = (text(&request["runId"]), text(&request["request"]["callId"]));
            *again.entry(call).or_default() += 1;
        }
    }
    let of_commands =
        |request: &Value| request["kind"] == "approval" && request["request"]["toolName"] == "Bash";
    for (id, request) in stored.iter().filter(|(_, request)| of_commands(request)) {
        let call = text(&request["request"]["callId"]);
        let word = request["decision"]["decision"].as_str().unwrap_or_default();
        let run = text(&request["runId"]);
        let more = again.get(&(run.clone(), call.clone())).copied().unwrap_or(0);
        let original = mark_in(&text(&request["request"]["arguments"]));
        let mark = match word {
            "approve" => original.clone(),
            // The one that was taken: its edit is the text that may run.
            "approve_with" => record
                .posted
                .lock()
                .unwrap()
                .iter()
                .find(|posted| {
                    posted.request == *id
                        && posted.word == "approve_with"
                        && matches!(&posted.answer, Some((200, _)))
                })
                .and_then(|posted| posted.own.as_deref().map(mark_in))
                // Its answer was lost: any of the edits that nobody was told about.
                .or_else(|| the_edit_that_ran(record, id, &marks))
                .unwrap_or_default(),
            _ => String::new(),
        };
        let results = logs.get(&run).map(|events| all_of(events, "toolResults")).unwrap_or_default();
        let result = results.into_iter().find(|result| result["callId"] == call.as_str());
        let said = result.map(|result| text(&result["status"])).unwrap_or_default();
        let ran = marks.get(&mark).copied().unwrap_or(0);
        if said == "succeeded" && ran == 0 {
            wrong.push(format!("{call} is said to have run and left no mark\n{}", record.about(id)));
        }
        if !mark.is_empty() {
            released.insert(mark, (1 + more, id.clone()));
        }
    }
    for (mark, ran) in &marks {
        match released.get(mark) {
            None => wrong.push(format!("{mark} ran {ran} times and was never approved")),
            Some((max, id)) if ran > max => {
                wrong.push(format!(
                    "{mark} ran {ran} times, at most {max} were allowed\n{}",
                    record.about(id)
                ));
            }
            Some(_) => {}
        }
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The mark that a command leaves, from the text of its arguments.
fn mark_in(arguments: &str) -> String {
    let rest = arguments.split("echo ").nth(1).unwrap_or_default();
    rest.split(' ').next().unwrap_or_default().to_owned()
}

fn the_edit_that_ran(record: &Record, request: &str, marks: &BTreeMap<String, usize>) -> Option<String> {
    let posted = record.posted.lock().unwrap();
    let edits = posted.iter().filter(|posted| {
        posted.request == request
            && posted.word == "approve_with"
            && posted.answer.as_ref().is_none_or(|answer| answer.0 >= 500)
    });
    let mut edits = edits.filter_map(|posted| posted.own.as_deref().map(mark_in));
    edits.find(|mark| marks.contains_key(mark))
}

/// The ledger: nothing started without a decision that releases it, no attempt twice, nobody owns what has ended.
fn check_rows(world: &World, wrong: &mut Vec<String>) {
    for (what, sql) in [
        (
            "started without a decision",
            "SELECT count(*) FROM execution e WHERE NOT EXISTS (SELECT 1 FROM request q WHERE q.tenant_id = e.tenant_id \
             AND q.request_id = e.request_id AND q.status = 1)",
        ),
        (
            "released by a request of another run",
            "SELECT count(*) FROM execution e JOIN request q USING (tenant_id, request_id) WHERE q.run_id <> e.run_id",
        ),
        ("owned after its end", "SELECT count(*) FROM run WHERE status IN (3, 4) AND owner IS NOT NULL"),
        (
            "open requests of an ended run",
            "SELECT count(*) FROM request q JOIN run r USING (tenant_id, run_id) WHERE q.status = 0 AND r.status IN (3, 4)",
        ),
        ("set aside", "SELECT count(*) FROM run WHERE status = 5"),
    ] {
        let count = world.site.sql(sql);
        if count != "0" {
            wrong.push(format!("{count} rows: {what}"));
        }
    }
}
