//! What time did to requests: each thing once, none before its time, and nothing that the configuration does not say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::check::text;
use crate::jobs;
use crate::world::World;

/// Gives what there was, in words.
pub fn check(
    world: &World,
    stored: &BTreeMap<String, Value>,
    logs: &BTreeMap<String, Vec<Value>>,
    wrong: &mut Vec<String>,
) -> String {
    let released = jobs::released(world.jobs);
    let (mut expired, mut by_preset, mut reminders) = (0, 0, 0);
    for (run, events) in logs {
        let mut told = BTreeSet::new();
        for event in events {
            let Some(request) = stored.get(&text(&event["requestId"])) else { continue };
            let asked = &request["request"];
            let early = !asked["deadline"].is_null() && moment(&event["at"]) < moment(&asked["deadline"]);
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    wrong.push(format!("run {run}: {what}: {event}, of {asked}"));
                }
            };
            match (event["type"].as_str(), event["by"]["via"].as_str()) {
                (Some("reminder"), _) => {
                    reminders += 1;
                    let stage = text(&event["stage"]);
                    check(asked["onTimeout"] == "wait", "nobody is to be reminded");
                    check(early == (stage == "half_time"), "reminded at the wrong time");
                    check(told.insert((text(&event["requestId"]), stage)), "reminded twice");
                }
                (Some("decision"), Some("preset")) => {
                    by_preset += 1;
                    let named = released
                        .iter()
                        .any(|order| text(&asked["arguments"]).contains(&format!("\"{order}\"")));
                    check(named && asked["onTimeout"] == "policy" && !early, "released by a preset");
                }
                (Some("decision"), Some("timeout")) if request["kind"] == "approval" => {
                    expired += 1;
                    check(asked["onTimeout"] != "wait" && !early, "expired");
                }
                (Some("decision"), Some("human")) if request["kind"] == "approval" => {
                    check(asked["onTimeout"] == "wait" || early, "decided after its deadline");
                }
                _ => {}
            }
        }
    }
    for note in stored.values().filter(|request| request["request"]["toolName"] == "Write") {
        let arguments: Value = serde_json::from_str(&text(&note["request"]["arguments"])).unwrap_or_default();
        let path = world.site.path("work").join(text(&arguments["path"]));
        let approved = note["decision"]["decision"] == "approve";
        if note["kind"] == "approval" && path.is_file() && !approved {
            wrong.push(format!("{} was written and never approved", path.display()));
        }
    }
    format!("{expired} expired, {by_preset} released by the preset, {reminders} reminders")
}

/// A time such that texts compare as the times do: with all digits of its fraction.
fn moment(time: &Value) -> String {
    let time = text(time);
    let (seconds, fraction) =
        time.trim_end_matches('Z').split_once('.').unwrap_or((time.trim_end_matches('Z'), ""));
    format!("{seconds}.{fraction:0<9}")
}
