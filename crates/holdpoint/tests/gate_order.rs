//! From proposal to execution: assemble, resolve, validate, permission, policy, ask, claim.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use async_trait::async_trait;
use common::*;
use holdpoint::core::message::Message;
use holdpoint::core::run::OnInvalidCall;
use holdpoint::models::ReplyEnd;
use holdpoint::prelude::*;
use holdpoint::protocol::RunError;
use holdpoint::{Ended, Forbidden, Permission, RunInfo, RunState};
use serde_json::json;

fn error_of(outcome: &holdpoint::RunOutcome) -> &RunError {
    match &outcome.state {
        RunState::Ended(Ended::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

on_every_store! {
    /// A reply that did not end well has no calls: its text is kept, nothing runs, nobody is asked, the next request says why.
    fn rule_06_a_reply_that_did_not_end_well_has_no_calls(place) {
        let table = [
            (ReplyEnd::Length, "malformed_stream", "cut off"),
            (ReplyEnd::Filtered, "malformed_stream", "cut off"),
            (ReplyEnd::Interrupted("reset by peer".into()), "stream_interrupted", "broke off"),
        ];
        for (end, status, note) in table {
            let log = Log::default();
            let broken = Answer::text("I will").and_call("c1", "Bash", r#"{"command":"rm"}"#).ending(end);
            let model = Scripted::sequence("script", [broken, Answer::text("done")]);
            let process = place.start(build_assistant(&log, model.clone()).build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.text(), Some("done"));
            assert!(log.names().is_empty() && process.interactions(outcome.run).is_empty());
            let messages = &model.requests()[1].messages;
            assert!(messages.iter().any(|m| matches!(m.as_ref(), Message::Assistant(reply)
                if reply.text() == "I will" && reply.incomplete.map(|s| s.as_str()) == Some(status))));
            assert!(messages.iter().any(|m| matches!(m.as_ref(), Message::Note(text) if text.contains(note))));
            let events = process.events(outcome.run);
            assert!(events.iter().any(|e| e["type"] == "message" && e["incomplete"] == status && e["text"] == "I will"));
            process.check(outcome.run);
        }
    }

    /// What a broken reply called is asked about by nobody; what the next one calls is, and alone.
    fn rule_06_the_calls_of_the_reply_after_a_broken_one_are_the_ones_asked_about(place) {
        let log = Log::default();
        let bash = |n: &'static str, command: &str| (n, "Bash", format!(r#"{{"command":"{command}"}}"#));
        let of = |calls: &[(&str, &str, String)]| {
            let calls: Vec<_> = calls.iter().map(|(id, name, text)| (*id, *name, text.as_str())).collect();
            batch(&calls)
        };
        let broken = of(&[bash("c1", "one"), bash("c2", "two")]).interrupted("reset by peer");
        let model = Scripted::sequence("script", [broken, of(&[bash("c1", "three")]), Answer::text("done")]);
        let process = place.start(build_assistant(&log, model).build().unwrap());
        let run = process.go("go").run;
        let asked = process.interactions(run);
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(field(&asked[0], "arguments"), r#"{"command":"three"}"#);
        process.approve(run, "Bash");
        assert_eq!(log.calls(), [("Bash".to_owned(), r#"{"command":"three"}"#.to_owned())]);
        process.check(run);
    }

    /// Two in a row end the run with an error; a good one between them does not.
    fn rule_06_two_broken_replies_in_a_row_end_the_run(place) {
        let log = Log::default();
        let cut = || Answer::text("I").ending(ReplyEnd::Length);
        let lost = || Answer::text("I").interrupted("gone");
        let read = || call("c1", "Read", r#"{"path":"a"}"#);
        let start = |answers: Vec<Answer>| {
            let model = Scripted::sequence("script", answers);
            place.start(build_assistant(&log, model).build().unwrap())
        };
        let process = start(vec![cut(), lost()]);
        let outcome = process.go("go");
        assert_eq!(error_of(&outcome).code, "stream_interrupted");
        assert!(error_of(&outcome).retryable);
        process.check(outcome.run);
        drop(process);
        let process = start(vec![cut(), read(), lost(), Answer::text("done")]);
        let outcome = process.go("go");
        assert_eq!(outcome.text(), Some("done"));
        process.check(outcome.run);
    }

    /// A round that is asked again after a process died is announced; the reply is asked for once more, and counts once.
    fn rule_06_a_round_that_is_asked_again_is_announced(place) {
        let log = Log::default();
        let hangs = Scripted::sequence("script", [Answer::hang()]);
        let first = place.start(build_assistant(&log, hangs).build().unwrap());
        let run = first.begin("go");
        first.rest(20);
        drop(first);
        let model = Scripted::sequence("script", [Answer::text("done").usage(3, 4)]);
        let second = place.start(build_assistant(&log, model).build().unwrap());
        let outcome = second.wait(run);
        assert_eq!(outcome.text(), Some("done"));
        assert_eq!(outcome.finish().unwrap().usage.rounds, 1);
        let kinds = second.kinds(run);
        assert_eq!(kinds, ["run_started", "round_restarted", "message", "round_committed", "finish"]);
    }

    /// An unknown tool is answered with the names that exist. https://github.com/spring-projects/spring-ai/issues/6816
    fn rule_07_an_unknown_tool_is_answered_with_the_names_that_exist(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "read", r#"{"path":"a"}"#), ("c2", "Read", r#"{"path":"a"}"#)]);
        let process = place.start(build_assistant(&log, model.clone()).build().unwrap());
        let outcome = process.go("go");
        assert!(process.interactions(outcome.run).is_empty(), "nobody is asked");
        let answer = &told(&model, 2)[0];
        assert_eq!((answer.status, answer.is_error), ("unknown_tool", true));
        assert_eq!(answer.said["known_tools"], json!(["Read", "Write", "Bash"]));
        assert!(answer.said["message"].as_str().unwrap().contains("\"read\""));
        assert_eq!(log.names(), ["Read"]);
    }

    /// Strictly read, then checked against the schema; nothing is coerced, filled in or guessed, and nobody is asked about
    /// what cannot be read. https://github.com/spring-projects/spring-ai/pull/5790 https://github.com/openai/openai-agents-python/issues/5066
    fn rule_08_arguments_are_read_strictly(place) {
        let deep = format!("{{\"to\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let big = format!("{{\"to\":\"{}\"}}", "x".repeat(256 * 1024));
        let table: [(&str, &str); 16] = [
            (r#"{"to":"ana@acme.example","to":"x@evil.example"}"#, "invalid_arguments"),
            ("[]", "invalid_arguments"), ("42", "invalid_arguments"), ("true", "invalid_arguments"),
            (r#""x""#, "invalid_arguments"), (r#"{"to":"a"}{"to":"b"}"#, "invalid_arguments"),
            (r#"{"to":"a"}]"#, "invalid_arguments"), ("{\"to\":\"a\"} //x", "invalid_arguments"),
            (r#"{"to":"a\ud83d"}"#, "invalid_arguments"), (r#"{"to":"a","sum":1e400}"#, "invalid_arguments"),
            (r#"{"to":"a","sum":"100"}"#, "invalid_arguments"), ("", "invalid_arguments"),
            ("null", "invalid_arguments"), (r#"{"to":null}"#, "invalid_arguments"),
            (&deep, "invalid_arguments"), (&big, "arguments_too_large"),
        ];
        for (arguments, status) in table {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "pay", arguments)]);
            let mut pay = definition("pay", &["to"]);
            pay.schema["properties"]["sum"] = json!({"type": "integer", "default": 1});
            let agent = Agent::builder("main", model.clone()).tool(with(&log, pay, "paid"));
            let process = place.start(agent.build().unwrap());
            let outcome = process.go("go");
            let shown: String = arguments.chars().take(60).collect();
            assert_eq!(outcome.text(), Some("done"), "{shown}");
            assert!(log.names().is_empty() && process.interactions(outcome.run).is_empty(), "{shown}");
            let answer = &told(&model, 2)[0];
            assert_eq!((answer.status, answer.executed, answer.is_error), (status, "no", true), "{shown}");
            assert!(answer.said["reason"].as_str().is_some_and(|why| !why.is_empty()), "{shown}");
            assert!(process.events(outcome.run).iter().any(|e| e["type"] == "notice" && e["code"] == status));
            process.check(outcome.run);
        }
    }

    /// Empty, blank, absent and `null` mean `{}`, which is then validated. https://github.com/spring-projects/spring-ai/issues/3280
    fn rule_08_empty_arguments_are_an_empty_object(place) {
        for arguments in ["", "  \n", "null", "{}"] {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "clock", arguments)]);
            let agent = Agent::builder("main", model).tool(tool(&log, "clock", &[], "noon"));
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            assert_eq!(field(&process.open(run)[0], "arguments"), "{}");
            process.approve(run, "clock");
            assert_eq!(log.calls(), [("clock".to_owned(), "{}".to_owned())]);
        }
    }

    /// What is shown, digested and run is one text, byte for byte. https://github.com/veryfront/veryfront-code/pull/1935
    fn rule_08_numbers_spaces_and_order_of_keys_are_kept_as_written(place) {
        let text = "{ \"b\": 9007199254740993, \"a\" : 1.50, \"s\":\"a\\u0000b\" }";
        let log = Log::default();
        let schema = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "integer"}, "s": {}}});
        let tool = with(&log, ToolDefinition::new("pay", "pays", schema), "paid");
        let process = place.start(Agent::builder("main", calls_then_done(&[("c1", "pay", text)])).tool(tool).build().unwrap());
        let run = process.go("go").run;
        assert_eq!(field(&process.open(run)[0], "arguments"), text);
        process.approve(run, "pay");
        assert_eq!(log.calls()[0].1, text);
    }

    /// Set to stop, one call that cannot be taken ends the run, and no tool of the reply runs.
    fn rule_08_on_invalid_call_stop_ends_the_run_and_asks_nobody(place) {
        for (bad, code) in [(("c2", "nope", "{}"), "unknown_tool"), (("c2", "Read", "[]"), "invalid_arguments")] {
            let log = Log::default();
            let model = calls_then_done(&[
                ("c0", "Read", r#"{"path":"a"}"#), ("c1", "Bash", r#"{"command":"ls"}"#), bad,
            ]);
            let agent = build_assistant(&log, model.clone()).on_invalid_call(OnInvalidCall::Stop);
            let process = place.start(agent.build().unwrap());
            let outcome = process.go("go");
            assert_eq!(error_of(&outcome).code, code);
            assert!(log.names().is_empty(), "no tool of the reply runs");
            assert!(process.interactions(outcome.run).is_empty(), "nobody is asked");
            let ended: Vec<_> = process.answers(outcome.run).iter().map(|a| a.status).collect();
            assert_eq!(ended, ["cancelled", "cancelled", code]);
            assert_eq!(model.calls(), 1);
            process.check(outcome.run);
        }
    }

    /// Permission stands before policy, sees trusted context, and refuses with a stable reason code.
    fn rule_09_permission_comes_from_trusted_context_and_refuses_with_a_code(place) {
        let log = Log::default();
        let model = calls_then_done(&[
            ("c1", "Read", r#"{"path":"secret"}"#), ("c2", "Read", r#"{"path":"open"}"#), ("c3", "Bash", r#"{"command":"secret"}"#),
        ]);
        let agent = build_assistant(&log, model.clone()).permission(NoSecrets);
        let process = place.start(agent.build().unwrap());
        let outcome = process.go("go");
        assert!(process.interactions(outcome.run).is_empty(), "no person can release what is forbidden");
        let ended: Vec<_> = told(&model, 2).iter().map(|a| (a.status, a.said["code"].clone())).collect();
        assert_eq!(ended[0], ("forbidden", json!("SECRET_AREA")));
        assert_eq!(ended[1].0, "succeeded");
        assert_eq!(ended[2], ("forbidden", json!("SECRET_AREA")));
        assert!(!told(&model, 2)[0].is_error);
        assert_eq!(log.calls(), [("Read".to_owned(), r#"{"path":"open"}"#.to_owned())]);
    }

    /// Allow, ask or deny; unlisted asks; deny beats ask beats allow; a layer can only tighten.
    fn rule_10_policy_allows_asks_or_denies_and_layers_only_tighten(place) {
        let outer = || Policy::builder("outer").allow(["Read", "Write"]).deny(["Bash"]).build().unwrap();
        let inner = || Policy::builder("inner").allow(["*"]).require_approval_for(["Write"]).build().unwrap();
        let table: [(Vec<Policy>, [&str; 3]); 3] = [
            (vec![], ["ask", "ask", "ask"]),
            (vec![outer()], ["allow", "allow", "deny"]),
            (vec![outer(), inner()], ["allow", "ask", "deny"]),
        ];
        for (layers, verdicts) in table {
            for (index, verdict) in verdicts.iter().enumerate() {
                let calls = [
                    ("c1", "Read", r#"{"path":"a"}"#), ("c1", "Write", r#"{"path":"a","content":""}"#),
                    ("c1", "Bash", r#"{"command":"a"}"#),
                ];
                let log = Log::default();
                let model = calls_then_done(&calls[index..=index]);
                let mut agent = Agent::builder("main", model.clone())
                    .tool(tool(&log, "Read", &["path"], "r")).tool(tool(&log, "Write", &["path", "content"], "w"))
                    .tool(tool(&log, "Bash", &["command"], "b"));
                for layer in layers.clone() {
                    agent = agent.policy(layer);
                }
                let process = place.start(agent.build().unwrap());
                let outcome = process.go("go");
                let ran = !log.names().is_empty();
                let asked = !outcome.pending().is_empty();
                let denied = !ran && !asked && told(&model, 2)[0].status == "policy_denied";
                let found = [(ran, "allow"), (asked, "ask"), (denied, "deny")];
                assert_eq!(found.iter().find(|(is, _)| *is).unwrap().1, *verdict);
                if denied {
                    assert!(told(&model, 2)[0].said["reason"].as_str().unwrap().contains("outer"), "it says which rule");
                }
            }
        }
    }

    /// The request carries the exact text, its digest, the rule that asks, and our call id as in the announced call.
    /// https://github.com/github/copilot-cli/issues/989
    fn rule_11_a_request_says_exactly_what_would_run_and_why(place) {
        let log = Log::default();
        let model = calls_then_done(&[("p1", "Bash", r#"{"command":"make build"}"#)]);
        let process = place.start(build_assistant(&log, model).build().unwrap());
        let run = process.go("go").run;
        let events = process.events(run);
        let announced = events.iter().find(|e| e["type"] == "tool_call").unwrap()["toolCalls"][0].clone();
        let request = events.iter().find(|e| e["type"] == "approval_request").unwrap();
        assert_eq!(request["callId"], announced["callId"]);
        assert_eq!(request["toolCallId"], "p1");
        assert_eq!(request["arguments"], r#"{"command":"make build"}"#);
        assert!(request["digest"].as_str().unwrap().starts_with("sha256:"));
        assert_eq!(request["reason"]["policy"], "shipped");
        assert_eq!(request["decisions"], json!(["approve", "approve_with", "decline", "feedback"]));
        let stored: serde_json::Value = serde_json::from_str(process.open(run)[0].request.get()).unwrap();
        assert_eq!(&stored, request, "the inbox shows what was announced");
    }
}

#[test]
fn rule_07_two_tools_of_one_name_are_refused_with_both_origins() {
    let log = Log::default();
    let mut theirs = definition("Read", &[]);
    theirs.origin = "mcp:files".into();
    let agent = build_assistant(&log, three_calls()).tool(with(&log, theirs, "x"));
    let said = agent.build().unwrap_err().to_string();
    assert!(said.contains("`Read`") && said.contains("program") && said.contains("mcp:files"), "{said}");
}

/// A hook around the round can offer fewer tools; what was not offered in a round cannot be called in it.
#[tokio::test]
async fn rule_07_a_call_is_resolved_against_the_tools_of_its_round() {
    struct OnlyRead;
    #[async_trait]
    impl holdpoint::AroundRound for OnlyRead {
        async fn before(
            &self,
            _run: &RunInfo,
            round: u32,
            request: &mut holdpoint::models::ModelRequest,
        ) -> Result<(), holdpoint::HookError> {
            if round == 1 {
                request.tools = request.tools.iter().filter(|tool| tool.name == "Read").cloned().collect();
            }
            Ok(())
        }
    }
    let log = Log::default();
    let bash = || call("c1", "Bash", r#"{"command":"ls"}"#);
    let model = Scripted::sequence("script", [bash(), bash(), Answer::text("done")]);
    let agent = build_assistant(&log, model.clone()).around_round(OnlyRead).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = run(&runtime).await;
    assert_eq!(told(&model, 2)[0].status, "unknown_tool");
    assert_eq!(told(&model, 2)[0].said["known_tools"], json!(["Read"]));
    assert_eq!(outcome.pending().len(), 1, "in the second round it is on offer, and asks");
}

/// A permission check that panics or never returns is not a yes; the other calls of the batch go on.
#[tokio::test(start_paused = true)]
async fn rule_09_a_permission_check_that_breaks_lets_nothing_run() {
    let log = Log::default();
    let model = calls_then_done(&[
        ("c1", "Read", r#"{"path":"panic"}"#),
        ("c2", "Read", r#"{"path":"hang"}"#),
        ("c3", "Read", r#"{"path":"fine"}"#),
    ]);
    let agent = build_assistant(&log, model.clone()).permission(Breaks).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = run(&runtime).await;
    assert_eq!(outcome.text(), Some("done"));
    let ended: Vec<_> = told(&model, 2).iter().map(|a| (a.status, a.executed)).collect();
    assert_eq!(ended, [("gate_error", "no"), ("gate_error", "no"), ("succeeded", "yes")]);
    assert_eq!(log.calls().len(), 1);
}

struct NoSecrets;

#[async_trait]
impl Permission for NoSecrets {
    async fn check(
        &self,
        run: &RunInfo,
        _tool: &ToolDefinition,
        arguments: &serde_json::Value,
    ) -> Result<(), Forbidden> {
        assert_eq!(run.actor, local().actor);
        let secret = arguments.as_object().unwrap().values().any(|value| value == "secret");
        if secret { Err(Forbidden { code: "SECRET_AREA".into() }) } else { Ok(()) }
    }
}

struct Breaks;

#[async_trait]
impl Permission for Breaks {
    async fn check(
        &self,
        _run: &RunInfo,
        _tool: &ToolDefinition,
        arguments: &serde_json::Value,
    ) -> Result<(), Forbidden> {
        match arguments["path"].as_str() {
            Some("panic") => panic!("broken check"),
            Some("hang") => std::future::pending().await,
            _ => Ok(()),
        }
    }
}
