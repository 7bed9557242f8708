//! Results: what a tool returned, as the model reads it and as the run ends with it.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;

use common::*;
use holdpoint::core::message::{Message, ResultContent};
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{FinishStatus, RawJson};
use serde_json::json;

fn raw(json: &str) -> RawJson {
    serde_json::value::RawValue::from_string(json.into()).unwrap().into()
}

fn all(log: &Log, model: &Scripted) -> holdpoint::AgentBuilder {
    let direct = |name: &'static str, result: &'static str| {
        FnTool::new(definition(name, &[]), {
            let log = log.clone();
            move |_| {
                log.add(name, "");
                async move { result }
            }
        })
        .return_direct()
    };
    Agent::builder("main", model.clone())
        .tool(direct("date", "1 December"))
        .tool(direct("time", "noon"))
        .tool(read_only(log, "Read", &["path"], "contents"))
        .tool(
            FnTool::new(definition("fails", &[]), |_| async {
                Err::<String, _>(ToolError::new("NOPE", "no"))
            })
            .return_direct(),
        )
        .policy(Policy::builder("all").require_approval_for(["ask_*"]).allow(["*"]).build().unwrap())
}

on_every_store! {
    /// Text stays text, JSON stays the JSON it was, and a result is never empty.
    /// https://github.com/stefandevo/glm-acp-agent/pull/112
    fn rule_20_text_stays_text_and_json_stays_json(place) {
        let table: [(ToolOutput, ResultContent); 6] = [
            (ToolOutput::text("3.0 + 5.0 = 8.0"), ResultContent::Text("3.0 + 5.0 = 8.0".into())),
            (ToolOutput::text("{\"a\":1}"), ResultContent::Text("{\"a\":1}".into())),
            (ToolOutput::text("a\u{0}b"), ResultContent::Text("a\u{0}b".into())),
            (ToolOutput::json(raw("{\"a\": 9007199254740993,  \"b\":1.50}")), ResultContent::Json(raw("{\"a\": 9007199254740993,  \"b\":1.50}"))),
            (ToolOutput::json(raw("null")), ResultContent::Json(raw("null"))),
            (ToolOutput::text(""), ResultContent::Text("The tool returned no output.".into())),
        ];
        for (output, expected) in table {
            let model = calls_then_done(&[("c1", "make", "{}")]);
            let make = FnTool::new(definition("make", &[]), move |_| { let output = output.clone(); async move { output } });
            let agent = Agent::builder("main", model.clone()).tool(make).policy(Policy::builder("all").allow(["*"]).build().unwrap());
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            let same = |message: &Message| matches!(message, Message::Tool(tool) if format!("{:?}", tool.content) == format!("{expected:?}"));
            assert!(model.requests()[1].messages.iter().any(|m| same(m)), "{:?}", model.requests()[1].messages);
            assert!(process.history(run).iter().any(|m| same(m)), "as it was, when it is read back");
            let event = process.events(run).into_iter().find(|e| e["type"] == "tool_result").unwrap();
            let shown: serde_json::Value = serde_json::from_str(expected.to_raw_json().get()).unwrap();
            assert_eq!(event["toolResults"][0]["result"], shown);
        }
    }

    /// A tool's error is an object with code and message, flagged as an error; what is internal is not in it.
    fn rule_21_tool_errors_are_objects_and_flagged(place) {
        let model = calls_then_done(&[("c1", "fails", "{}"), ("c2", "breaks", "{}")]);
        let breaks = FnTool::new(definition("breaks", &[]), |_| async {
            if true { panic!("SELECT * FROM secrets at /home/ana/src/main.rs:7") }
            ""
        });
        let process = place.start(all(&Log::default(), &model).tool(breaks).build().unwrap());
        process.go("go");
        let answers = told(&model, 2);
        assert_eq!(answers[0].said, json!({"error": {"code": "NOPE", "message": "no"}}));
        assert!(answers[0].is_error && answers[1].is_error);
        assert_eq!(answers[1].said["error"]["code"], "TOOL_PANICKED");
        let said = answers[1].said.to_string();
        assert!(!said.contains("SELECT") && !said.contains("/home"), "{said}");
        assert_eq!(answers[1].executed, "unknown");
    }

    /// The run ends with the tools' results when every call is direct and succeeded as the model wrote it; else the batch
    /// goes back to the model. Several are all delivered, in order; streaming or not is the same.
    /// https://github.com/spring-projects/spring-ai/issues/4655
    fn rule_22_direct_results_end_the_run_only_when_every_call_is_direct_and_succeeded(place) {
        let table: [(&[&str], bool); 6] = [
            (&["date"], true), (&["date", "time"], true), (&["time", "date"], true),
            (&["date", "Read"], false), (&["date", "fails"], false), (&["date", "nope"], false),
        ];
        for (tools, direct) in table {
            for stream in [true, false] {
                let log = Log::default();
                let calls: Vec<_> = tools.iter().map(|name| (*name, *name, if *name == "Read" { r#"{"path":"a"}"# } else { "{}" })).collect();
                let model = calls_then_done(&calls);
                let process = place.start(all(&log, &model).stream(stream).build().unwrap());
                let outcome = process.go("go");
                let finish = outcome.finish().unwrap();
                assert_eq!(finish.status, FinishStatus::Success);
                assert_eq!(model.calls(), if direct { 1 } else { 2 }, "{tools:?}");
                if direct {
                    let results = finish.results.as_ref().unwrap();
                    let names: Vec<_> = results.iter().map(|result| result.name.as_str()).collect();
                    assert_eq!(names, tools);
                    let texts: Vec<_> = tools.iter().map(|name| if *name == "date" { "1 December" } else { "noon" }).collect();
                    assert_eq!(finish.text, texts.join("\n"));
                } else {
                    assert_eq!((finish.text.as_str(), finish.results.is_none()), ("done", true));
                }
                let view = process.view(outcome.run);
                assert_eq!(view.results.is_some(), direct, "and so it is read back");
                process.check(outcome.run);
            }
        }
    }

    /// Declined, expired or edited: not direct.
    fn rule_22_a_call_a_person_changed_or_stopped_is_never_direct(place) {
        for (word, arguments, direct) in [
            (DecisionWord::Approve, None, true), (DecisionWord::ApproveWith, Some("{ }"), false), (DecisionWord::Decline, None, false),
        ] {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "date", "{}"), ("c2", "ask_time", "{}")]);
            let agent = || all(&log, &model).tool(tool(&log, "ask_time", &[], "noon").return_direct()).build().unwrap();
            let first = place.start(agent());
            let run = first.go("go").run;
            let mut deciding = Deciding::new(first.request(run, "ask_time"), word, human());
            deciding.arguments = arguments.map(str::to_owned);
            drop(first);
            let process = place.start(agent());
            process.decide(deciding).unwrap();
            let outcome = process.wait(run);
            assert_eq!(outcome.finish().unwrap().results.is_some(), direct, "{word:?}");
            assert_eq!(model.calls(), if direct { 1 } else { 2 });
            process.check(run);
        }
    }
}

/// A wrapper around a tool keeps what the tool says of itself.
#[tokio::test]
async fn rule_23_a_wrapped_tool_keeps_its_metadata() {
    struct Wrapped(Arc<dyn Tool>);
    #[async_trait::async_trait]
    impl Tool for Wrapped {
        fn definition(&self) -> &ToolDefinition {
            self.0.definition()
        }
        async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
            self.0.call(invocation).await
        }
    }
    let log = Log::default();
    let mut inner = definition("date", &[]);
    inner.effect = EffectClass::Idempotent;
    inner.return_direct = true;
    inner.origin = "mcp:calendar".into();
    let shared: Arc<dyn Tool> = Arc::new(with(&log, inner.clone(), "today"));
    for tool in [Arc::new(shared.clone()) as Arc<dyn Tool>, Arc::new(Wrapped(shared))] {
        let model = calls_then_done(&[("c1", "date", "{}")]);
        let agent = Agent::builder("main", model.clone())
            .tools([tool])
            .policy(Policy::builder("all").allow(["*"]).build().unwrap())
            .build()
            .unwrap();
        assert_eq!(agent.tools().definitions()[0], inner);
        let runtime = Runtime::builder().agent(agent).build().unwrap();
        assert_eq!(run(&runtime).await.text(), Some("today"), "still direct");
    }
}

/// One call without a model: the same gate, store, stream and record, and the result as the end.
#[tokio::test]
async fn an_invoked_call_goes_through_the_same_gate() {
    let log = Log::default();
    let model = Scripted::sequence("script", []);
    let agent = build_assistant(&log, model.clone()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let invoke = async |name: &str, arguments: &str| {
        let started = runtime.invoke(&local(), None, name, arguments, None).await.unwrap();
        within(runtime.wait(&local(), started.run)).await.unwrap()
    };
    let read = invoke("Read", r#"{"path":"a"}"#).await;
    assert_eq!(
        (read.text(), read.finish().unwrap().status),
        (Some("contents of notes.txt"), FinishStatus::Success)
    );
    assert_eq!(log.names(), ["Read"]);

    let write = invoke("Write", r#"{"path":"a","content":"b"}"#).await;
    assert_eq!((write.pending().len(), log.names().len()), (1, 1), "it asks, and waits");
    decide(&runtime, write.pending()[0].request_id, DecisionWord::Approve).await.unwrap();
    let write = within(runtime.wait(&local(), write.run)).await.unwrap();
    assert_eq!(write.text(), Some("written"));
    let kinds: Vec<_> = kinds(&events(&runtime, write.run).await).into_iter().map(str::to_owned).collect();
    assert_eq!(
        kinds,
        [
            "run_started",
            "tool_call",
            "approval_request",
            "suspended",
            "decision",
            "resumed",
            "tool_started",
            "tool_result",
            "round_committed",
            "finish"
        ]
    );

    for (name, arguments, status) in [("nope", "{}", "unknown_tool"), ("Read", "[]", "invalid_arguments")] {
        let refused = invoke(name, arguments).await;
        let finish = refused.finish().unwrap();
        assert_eq!(finish.status, FinishStatus::Stopped);
        assert_eq!(finish.results.as_ref().unwrap()[0].status.as_str(), status);
    }
    assert_eq!(model.calls(), 0);
}
