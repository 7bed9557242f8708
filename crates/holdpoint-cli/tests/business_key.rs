//! Orders are paid once, wherever the process is killed: the record says what it knows, and where it knows nothing a person is
//! asked. The points are those of `docs/crash-points.md`.
#![cfg(feature = "failpoints")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::path::Path;

use common::process::Serving;
use common::site::{Site, script};
use common::until;
use serde_json::{Value, json};

/// An agent on a server of somebody else's, whose tool says by which argument an order is known.
fn site() -> Site {
    let site = Site::new(&script(&[("shop__pay", json!({ "order": "A-7" }))]));
    site.configure("", "tools = []\nmcp = [\"shop\"]");
    let config = std::fs::read_to_string(site.config()).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pay-server.mjs");
    let server = format!(
        "\n[mcp.shop]\ncommand = \"node\"\nargs = [{:?}]\ncwd = \"work\"\nbusiness_keys = {{ pay = \"order\" }}\n",
        program.to_str().unwrap()
    );
    site.write("holdpoint.toml", &(config + &server));
    site
}

/// The one result of a run that has ended.
fn result(serving: &Serving, run: &str) -> Value {
    serving.server.ended(run);
    let events = serving.server.events(run);
    let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results.len(), 1);
    results[0]["toolResults"][0].clone()
}

/// Starts a run in a process that dies at the point when the call was approved. Gives the run.
fn pay_and_die(site: &Site, point: &str) -> String {
    let mut command = site.serve();
    command.env("HOLDPOINT_FAIL", format!("{point}:kill"));
    let mut serving = Serving::start(command);
    assert_eq!(serving.server.chat("pay order A-7").0, 202, "{point}");
    let request = serving.server.pending().remove(0);
    let run = request["runId"].as_str().unwrap().to_owned();
    let server = serving.server.clone();
    let approving = std::thread::spawn(move || server.decide(&request, "approve", json!({})));
    drop(approving.join());
    assert!(!serving.wait().success(), "{point}: it lives");
    run
}

#[test]
fn an_order_is_paid_once_wherever_the_process_is_killed() {
    let table = [
        // Nothing was reserved, so nothing was paid: it is, now.
        ("store.begin_effect.before_commit", 0, None, "succeeded", "yes"),
        // Reserved, and nobody knows more: a person looks, and has it paid.
        ("store.begin_effect.after_commit", 0, Some("approve"), "succeeded", "yes"),
        ("before_tool", 0, Some("approve"), "succeeded", "yes"),
        // Paid, and the result was lost: the person sees that it was.
        ("after_tool", 1, Some("ran"), "succeeded", "yes"),
        ("store.end_effect.before_commit", 1, Some("ran"), "succeeded", "yes"),
        // Paid and recorded: nobody is asked, the result is there.
        ("store.end_effect.after_commit", 1, None, "succeeded", "yes"),
        ("after_record", 1, None, "succeeded", "yes"),
    ];
    for (point, paid_before, person, status, executed) in table {
        let site = site();
        let run = pay_and_die(&site, point);
        assert_eq!(site.lines("paid.txt"), paid_before, "{point}");
        let serving = Serving::start(site.serve());
        if let Some(word) = person {
            let request = until("a request", || serving.server.pending().first().cloned());
            assert_eq!(request["kind"], "in_doubt", "{point}");
            let with = if word == "ran" { json!({ "result": "paid" }) } else { json!({}) };
            let (code, answer) = serving.server.decide(&request, word, with);
            assert_eq!(code, 200, "{point}: {answer}");
        }
        let result = result(&serving, &run);
        assert_eq!((&result["status"], &result["executed"]), (&json!(status), &json!(executed)), "{point}");
        assert_eq!(site.lines("paid.txt"), 1, "{point}: paid once");

        // The same order again, in another run: known where it has a result, and refused where only a person knew.
        let (code, body) = serving.server.chat("pay order A-7");
        assert_eq!(code, 202, "{point}: {body}");
        let request = serving.server.pending().remove(0);
        let again = request["runId"].as_str().unwrap().to_owned();
        assert_eq!(serving.server.decide(&request, "approve", json!({})).0, 200);
        let result = self::result(&serving, &again);
        let code = if person == Some("ran") { "KEY_UNFINISHED" } else { "REPLAYED" };
        assert_eq!((&result["code"], &result["executed"]), (&json!(code), &json!("no")), "{point}: {result}");
        assert_eq!(site.lines("paid.txt"), 1, "{point}: paid once, whoever asks");
    }
}
