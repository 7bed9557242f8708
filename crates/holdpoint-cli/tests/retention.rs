//! What is kept for how long, on the real process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use common::process::Serving;
use common::site::{Site, script};
use common::until;
use serde_json::json;

fn runs(serving: &Serving) -> Vec<String> {
    let runs = serving.server.get("/v1/runs");
    let ids = runs["items"].as_array().unwrap().iter();
    ids.map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
}

/// Looked for a few seconds after the start; what waits is older than it has to be kept, and stays.
#[test]
fn what_ended_goes_when_its_time_is_over_and_what_waits_stays() {
    let site = Site::new(&script(&[("Bash", json!({ "command": "true" }))]));
    site.configure("retention = \"1s\"", "");
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.chat("go").0, 202);
    let waiting = serving.server.pending().remove(0);
    let waits = waiting["runId"].as_str().unwrap().to_owned();
    assert_eq!(serving.server.chat("go").0, 202);
    let ending =
        serving.server.pending().into_iter().find(|request| request["runId"] != waits.as_str()).unwrap();
    assert_eq!(serving.server.decide(&ending, "approve", json!({})).0, 200);
    serving.server.ended(ending["runId"].as_str().unwrap());

    until("the run that ended is gone", || (runs(&serving) == [waits.clone()]).then_some(()));
    assert_eq!(serving.server.decide(&waiting, "approve", json!({})).0, 200);
    assert_eq!(serving.server.ended(&waits)["text"], "done");
}
