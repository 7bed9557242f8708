//! What time does to open requests while processes come and go.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{asked, decide, events, start};
use crate::common::http::Server;
use crate::common::process::Serving;
use crate::common::site::{Database, Site};
use crate::common::until;

/// How long a request waits: long enough for three starts before half of it is over, on a machine with other work.
const TIMEOUT: Duration = Duration::from_secs(16);

const SCRIPT: &str = "rules:
  - when: {has_tool_result: true}
    answer: {text: done}
  - answer: {calls: [
      {id: c0, name: Bash, arguments: {command: echo ran >> log.txt}},
      {id: c1, name: Delete, arguments: {paths: [kept.txt]}},
      {id: c2, name: Write, arguments: {path: notes.txt, content: noted}}]}
";

const TERMS: &str = "approval_timeout = \"16s\"
on_timeout = \"wait\"
escalate_to = [\"leads\"]

[[agents.approvals]]
tools = [\"Delete\"]
on_timeout = \"deny\"
escalate_to = [\"leads\"]

[[agents.approvals]]
tools = [\"Write\"]
on_timeout = \"policy\"
preset = \"notes\"

[[presets]]
name = \"notes\"
releases = [{ tool = \"Write\", when = { path = { one_of = [\"notes.txt\"] } } }]
";

/// Starts one that dies by itself at a failpoint.
fn die_at(site: &Site, point: &str) {
    let mut command = site.serve();
    command.env("HOLDPOINT_FAIL", format!("{point}:kill"));
    if let Ok(mut serving) = Serving::try_start(command) {
        serving.wait();
    }
    site.dead_are_known_to_be();
}

fn wait_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// A request that reminds, one that expires and one that a preset releases wait through `kill -9`: at any time, around the commit of
/// a reminder, and while two instances look at the same clock. Each thing happens once.
pub fn reminders_and_deadlines_come_once_through_the_death_of_every_process() {
    for database in [Database::File, Database::postgres()] {
        let is_shared = matches!(database, Database::Postgres { .. });
        let site = Site::on(database, SCRIPT);
        site.configure("", TERMS);
        site.write("work/kept.txt", "kept");
        let instances = || -> Vec<Serving> {
            (0..if is_shared { 2 } else { 1 }).map(|_| Serving::start(site.serve())).collect()
        };
        let kill = |instances: Vec<Serving>| {
            instances.into_iter().for_each(Serving::kill);
            site.dead_are_known_to_be();
        };
        let serving = instances();
        let asked_from = Instant::now();
        let run = start(&serving[0].server);
        let asked_by = Instant::now();
        kill(serving);

        // Half of the time is over, and nobody was there.
        wait_until(asked_by + TIMEOUT / 2);
        die_at(&site, "store.remind.before_commit");
        die_at(&site, "store.remind.after_commit");
        let serving = instances();
        let reminded = |server: &Server| {
            let stages: Vec<_> = reminders(server, &run).iter().map(|event| event["stage"].clone()).collect();
            (stages.len() >= 3).then_some(())
        };
        until("the reminders", || reminded(&serving[0].server));
        // Late, where the machine was: then the one at the deadline stands for both, and the next may have expired unreminded.
        let in_time = asked_from.elapsed() < TIMEOUT;
        kill(serving);

        // The deadline passes while nobody is there.
        wait_until(asked_by + TIMEOUT);
        let serving = instances();
        let server = &serving[0].server;
        until("the last reminder", || {
            reminders(server, &run).iter().any(|event| event["stage"] == "deadline").then_some(())
        });
        let waiting = asked(server, &run, "approval");
        assert_eq!(waiting["request"]["toolName"], "Bash", "{waiting}");
        until("the others to be closed", || (server.pending().len() == 1).then_some(()));
        decide(server, &waiting, "approve");
        assert_eq!(server.ended(&run)["text"], "done");

        let events = events(server, &run);
        let mut told: Vec<_> = reminders_in(&events)
            .iter()
            .map(|event| format!("{} {}", event["stage"].as_str().unwrap(), event["escalatedTo"]))
            .collect();
        told.sort();
        if in_time {
            let leads = "[\"leads\"]";
            assert_eq!(
                told,
                [
                    format!("deadline {leads}"),
                    format!("half_time {leads}"),
                    format!("half_time {leads}"),
                    "half_time null".into()
                ]
            );
        } else {
            println!("too slow to see the half of the time: {told:?}");
            assert!(told.len() <= 4 && told[0].starts_with("deadline"), "{told:?}");
        }
        let mut closed: Vec<_> = events
            .iter()
            .filter(|event| event["type"] == "decision")
            .map(|event| {
                format!("{} {}", event["decision"].as_str().unwrap(), event["by"]["via"].as_str().unwrap())
            })
            .collect();
        closed.sort();
        assert_eq!(closed, ["approve human", "approve preset", "expired timeout"], "{events:?}");
        assert_eq!(site.lines("log.txt"), 1);
        assert_eq!(site.log("notes.txt"), ["noted"]);
        assert_eq!(site.log("kept.txt"), ["kept"], "what expired did not run");
        assert_eq!(server.get(&format!("/v1/audit/verify?run={run}"))["items"][0]["whole"], true);
    }
}

/// Those of a run that has not ended: its stream up to where it waits.
fn reminders(server: &Server, run: &str) -> Vec<Value> {
    let path = format!("/v1/runs/{run}/events?until=suspended");
    let (_, stream) = server.send("GET", &path, "", "", crate::common::PATIENCE).unwrap();
    let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    reminders_in(&data.map(|json| serde_json::from_str(json.trim()).unwrap()).collect::<Vec<_>>())
}

fn reminders_in(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == "reminder").cloned().collect()
}
