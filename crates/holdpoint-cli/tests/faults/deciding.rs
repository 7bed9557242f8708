//! Decisions: many at once, late, repeated, on what has changed, and acknowledged a moment before the end.

use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bed::{asked, assert_whole, bash, body, events, interaction, path, serve, start};
use crate::common::site::{Database, Site, script};
use crate::common::until;

/// Sixteen clients on two instances, each time with sixteen different wishes: one is taken, and everybody else is told which.
pub fn slow_of_sixteen_that_decide_at_once_one_counts_a_thousand_times() {
    const CLIENTS: usize = 16;
    const CALLS: usize = 20;
    const RUNS: usize = 50;
    let calls: Vec<_> =
        (0..CALLS).map(|call| ("Bash", json!({ "command": format!("echo {call} >> log.txt") }))).collect();
    let site = Site::on(Database::postgres(), &script(&calls));
    let (a, b) = (serve(&site), serve(&site));
    let together = Arc::new(Barrier::new(CLIENTS + 1));
    let (tell, hear) = mpsc::channel();
    let clients: Vec<mpsc::Sender<Value>> = (0..CLIENTS)
        .map(|client| {
            let (order, orders) = mpsc::channel::<Value>();
            let server = if client % 2 == 0 { a.server.clone() } else { b.server.clone() };
            let (together, tell) = (Arc::clone(&together), tell.clone());
            std::thread::spawn(move || {
                for request in orders {
                    let word = if client % 3 == 0 { "approve" } else { "decline" };
                    let mut body = body(&request, word);
                    if word == "decline" {
                        // No two decisions are the same one.
                        body["reason"] = json!(format!("client {client}"));
                    }
                    together.wait();
                    tell.send((client, server.post(&path(&request), &body))).unwrap();
                }
            });
            order
        })
        .collect();
    let (mut approved, mut rounds) = (0, 0);
    for _ in 0..RUNS {
        let run = start(&a.server);
        let requests: Vec<_> = a.server.pending();
        assert_eq!(requests.len(), CALLS);
        for request in requests {
            clients.iter().for_each(|client| client.send(request.clone()).unwrap());
            together.wait();
            let answers: Vec<_> = (0..CLIENTS).map(|_| hear.recv().unwrap()).collect();
            let winners: Vec<_> = answers
                .iter()
                .filter(|(_, (status, answer))| *status == 200 && answer["repeated"].is_null())
                .collect();
            assert_eq!(winners.len(), 1, "{answers:?}");
            let (winner, (_, won)) = winners[0];
            for (client, (status, answer)) in &answers {
                match *status {
                    // The same approve by the same operator is the same decision.
                    200 => assert!(client == winner || answer["repeated"] == true, "{answer}"),
                    409 => {
                        assert_eq!(answer["code"], "already_decided", "{answer}");
                        assert_eq!(answer["decision"], won["decision"], "{answer}");
                    }
                    _ => panic!("{status}: {answer}"),
                }
            }
            approved += usize::from(won["decision"] == "approve");
            rounds += 1;
        }
        assert_eq!(b.server.ended(&run)["text"], "done");
    }
    assert_eq!(site.lines("log.txt"), approved, "as often as an approve counted");
    println!("{rounds} rounds of {CLIENTS}, {approved} approved");
}

/// The process is killed while the client still reads the answer.
pub fn slow_every_decision_that_was_acknowledged_is_there_after_a_kill() {
    const ROUNDS: usize = 200;
    // Each process decides several and is killed at the last of them: a start costs more than a decision.
    const EACH: usize = 5;
    for database in [Database::File, Database::postgres()] {
        // A command in the same instant would be in doubt; what is looked at here is the decision alone.
        let calls: Vec<_> = (0..EACH).map(|_| ("Bash", json!({ "command": "true" }))).collect();
        let site = Site::on(database, &script(&calls));
        let mut acknowledged: Vec<(Value, &str)> = Vec::new();
        for round in 0..ROUNDS / EACH / 2 {
            let serving = serve(&site);
            start(&serving.server);
            let requests: Vec<_> = serving
                .server
                .pending()
                .into_iter()
                .filter(|request| request["kind"] == "approval")
                .collect();
            for (at, request) in requests.iter().enumerate() {
                let word = if (round + at) % 2 == 0 { "approve" } else { "decline" };
                let (status, answer) = serving.server.post(&path(request), &body(request, word));
                assert_eq!(status, 200, "{answer}");
                acknowledged.push((request.clone(), word));
            }
            serving.kill();
            site.dead_are_known_to_be();
        }
        let serving = serve(&site);
        for (request, word) in &acknowledged {
            let now = interaction(&serving.server, request);
            assert_eq!(
                (&now["status"], &now["decision"]["decision"]),
                (&json!("decided"), &json!(word)),
                "{now}"
            );
        }
        assert_eq!(acknowledged.len(), ROUNDS / 2);
    }
}

/// A decision that comes with the deadline: it is taken or the request expires, never both.
pub fn a_decision_and_its_deadline_at_the_same_moment_exclude_each_other() {
    const ROUNDS: u64 = 24;
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
        site.configure("", "approval_timeout = \"1s\"");
        let serving = serve(&site);
        let server = serving.server.clone();
        let outcomes = Arc::new(Mutex::new((0, 0)));
        let threads: Vec<_> = (0..ROUNDS)
            .map(|round| {
                let (server, outcomes) = (server.clone(), Arc::clone(&outcomes));
                // Not all at once: the deadline is to be the race, not the machine.
                std::thread::sleep(Duration::from_millis(60));
                std::thread::spawn(move || {
                    let (status, answer) = server.chat("go");
                    assert_eq!(status, 202, "{answer}");
                    let run = answer["runId"].as_str().unwrap().to_owned();
                    let request = answer["interactions"][0].clone();
                    // From some time before the deadline to just after it: a machine with other work answers later.
                    std::thread::sleep(Duration::from_millis(720 + round % 12 * 26));
                    let (status, answer) = server.post(&path(&request), &body(&request, "approve"));
                    let end = server.ended(&run);
                    let now = interaction(&server, &request);
                    let result = events(&server, &run);
                    let result = result.iter().find(|event| event["type"] == "tool_result").unwrap();
                    let code = &result["toolResults"][0]["code"];
                    match status {
                        200 => {
                            assert_eq!(
                                (&now["status"], code),
                                (&json!("decided"), &json!("SUCCEEDED")),
                                "{end}"
                            );
                            outcomes.lock().unwrap().0 += 1;
                        }
                        410 => {
                            assert_eq!(
                                (&now["status"], code),
                                (&json!("expired"), &json!("EXPIRED")),
                                "{end}"
                            );
                            outcomes.lock().unwrap().1 += 1;
                        }
                        _ => panic!("{status}: {answer}"),
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (decided, expired) = *outcomes.lock().unwrap();
        println!("{decided} decided, {expired} expired");
        assert_eq!(site.lines("log.txt"), decided, "as often as a decision was taken");
    }
}

/// The deadline passes while nobody is there to see it.
pub fn what_expired_while_no_process_ran_cannot_be_decided() {
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
        site.configure("", "approval_timeout = \"2s\"");
        let serving = serve(&site);
        let run = start(&serving.server);
        let request = asked(&serving.server, &run, "approval");
        serving.kill();
        std::thread::sleep(Duration::from_millis(2_200));
        let serving = serve(&site);
        // At once: before anything has looked at deadlines, perhaps.
        let (status, answer) = serving.server.post(&path(&request), &body(&request, "approve"));
        assert_eq!((status, &answer["code"]), (410, &json!("expired")), "{answer}");
        assert_whole(&serving.server, &run);
        assert_eq!(site.lines("log.txt"), 0);
        let audit = serving.server.get(&format!("/v1/audit?run={run}")).to_string();
        assert!(audit.contains("late") || audit.contains("expired"), "the late one is on record: {audit}");
    }
}

/// The operator changed the rules while the run waited: what was approved is checked by the rules of now.
pub fn a_policy_that_became_stricter_meanwhile_is_what_counts() {
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
        let mut serving = serve(&site);
        let run = start(&serving.server);
        let request = asked(&serving.server, &run, "approval");
        serving.signal("-TERM");
        assert!(serving.wait().success());
        site.configure("", "[[agents.policies]]\nname = \"no more commands\"\ndeny = [\"Bash\"]");
        let serving = serve(&site);
        let (status, answer) = serving.server.post(&path(&request), &body(&request, "approve"));
        // Either it is refused at the door, or it is taken and the call denied before it runs.
        assert!(matches!(status, 200 | 409), "{status}: {answer}");
        assert_whole(&serving.server, &run);
        let events = events(&serving.server, &run);
        let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
        assert_eq!(result["toolResults"][0]["executed"], "no", "{result}");
        assert_eq!(result["toolResults"][0]["status"], "policy_denied", "{result}");
        assert_eq!(site.lines("log.txt"), 0);
    }
}

/// One decision, posted twelve times with one key to two instances, and again to a third a while later; then the same key with
/// another body.
pub fn twelve_copies_of_a_decision_on_two_instances_have_one_effect() {
    let site = bash("echo ran >> log.txt");
    let (a, b) = (serve(&site), serve(&site));
    let run = start(&a.server);
    let request = asked(&a.server, &run, "approval");
    let together = Arc::new(Barrier::new(12));
    let copies: Vec<_> = (0..12)
        .map(|copy| {
            let server = if copy % 2 == 0 { a.server.clone() } else { b.server.clone() };
            let (request, together) = (request.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                server.try_post(&path(&request), &body(&request, "approve"), Some("one-key")).unwrap()
            })
        })
        .collect();
    let answers: Vec<_> = copies.into_iter().map(|copy| copy.join().unwrap()).collect();
    let (_, first) = &answers[0];
    for (status, answer) in &answers {
        assert_eq!(
            (*status, &answer["at"], &answer["decision"]),
            (200, &first["at"], &json!("approve")),
            "{answer}"
        );
    }
    assert_whole(&a.server, &run);
    a.kill();
    b.kill();
    let c = serve(&site);
    let (status, again) =
        c.server.try_post(&path(&request), &body(&request, "approve"), Some("one-key")).unwrap();
    assert_eq!((status, &again["at"]), (200, &first["at"]), "{again}");
    let (status, other) =
        c.server.try_post(&path(&request), &body(&request, "decline"), Some("one-key")).unwrap();
    assert_eq!((status, &other["code"]), (422, &json!("idempotency_key_reused")), "{other}");
    assert_eq!(site.lines("log.txt"), 1);
    let events = events(&c.server, &run);
    assert_eq!(events.iter().filter(|event| event["type"] == "decision").count(), 1);
}

/// Whoever comes while another one writes waits for a moment, and is not turned away.
pub fn sixty_four_decisions_at_once_on_a_file_all_get_their_answer() {
    let site = Site::new(&script(&[("Bash", json!({ "command": "true" }))]));
    let serving = serve(&site);
    for _ in 0..64 {
        start(&serving.server);
    }
    let requests = serving.server.get("/v1/interactions?status=pending&limit=100")["items"].clone();
    let requests = requests.as_array().unwrap();
    assert_eq!(requests.len(), 64);
    let together = Arc::new(Barrier::new(requests.len()));
    let deciding: Vec<_> = requests
        .iter()
        .map(|request| {
            let (server, request, together) =
                (serving.server.clone(), request.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                server.post(&path(&request), &body(&request, "decline"))
            })
        })
        .collect();
    for deciding in deciding {
        let (status, answer) = deciding.join().unwrap();
        assert_eq!(status, 200, "{answer}");
    }
    until("the end of all", || serving.server.pending().is_empty().then_some(()));
}
