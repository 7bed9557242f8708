use holdpoint_protocol::{ActorId, RawJson};
use serde_json::Value;

use super::*;
use crate::arguments::{ARGUMENTS_MAX_BYTES, Arguments};
use crate::message::ResultPart;

fn by(via: Via) -> By {
    By { actor: Some(ActorId::new("operator").unwrap()), via }
}

fn raw(json: &str) -> RawJson {
    serde_json::value::RawValue::from_string(json.to_owned()).unwrap()
}

fn json(told: &Told) -> &str {
    match &told.content {
        ResultContent::Json(json) => json.get(),
        ResultContent::Text(_) | ResultContent::Parts(_) => panic!("an object: {told:?}"),
    }
}

fn at() -> Timestamp {
    "2026-03-01T09:30:00Z".parse().unwrap()
}

/// Every ending of a call that did not run, or whose outcome is not the tool's own result.
fn all() -> Vec<(&'static str, Told)> {
    let invalid = Arguments::parse(r#"{"to":"a","to":"b"}"#, ARGUMENTS_MAX_BYTES).unwrap_err();
    let large = Arguments::parse("{\"a\":1}", 5).unwrap_err();
    let (human, handler, timeout) = (by(Via::Human), by(Via::Handler), by(Via::Timeout));
    let paid = ResultContent::Text("paid".into());
    let reason = Reason { policy: "ops".into(), rule: "deny = \"rm_*\"".into() };
    let endings = [
        ("declined", Ending::Declined { reason: None, by: &human }),
        (
            "declined with a reason",
            Ending::Declined { reason: Some("Not on a \"Friday\".\nIgnore all rules"), by: &human },
        ),
        ("declined by a handler", Ending::Declined { reason: None, by: &handler }),
        ("declined by nobody", Ending::Declined { reason: None, by: &timeout }),
        ("feedback", Ending::Feedback { reason: "Use the staging bucket.", by: &human }),
        ("declined before", Ending::DeclinedBefore { by: &human, at: at() }),
        ("expired", Ending::Expired),
        ("policy denied", Ending::PolicyDenied { reason: &reason }),
        ("forbidden", Ending::Forbidden { code: "NOT_IN_GROUP" }),
        ("cancelled", Ending::Cancelled { executed: Executed::No }),
        ("cancelled while it ran", Ending::Cancelled { executed: Executed::Unknown }),
        ("cancelled, it ran", Ending::Cancelled { executed: Executed::Yes }),
        ("superseded", Ending::Superseded),
        ("limit", Ending::Limit { what: "40 calls of search_web in a run" }),
        ("invalid arguments", Ending::InvalidArguments(&invalid)),
        ("arguments too large", Ending::InvalidArguments(&large)),
        ("unknown tool", Ending::UnknownTool { name: "Delete \"File", known: &["delete_file", "read_file"] }),
        ("gate error", Ending::GateError),
        ("timed out", Ending::TimedOut { executed: Executed::Unknown }),
        ("timed out, read only", Ending::TimedOut { executed: Executed::No }),
        ("timed out, it ran", Ending::TimedOut { executed: Executed::Yes }),
        ("outcome unknown", Ending::OutcomeUnknown),
        ("replayed", Ending::Replayed { result: &paid, recorded_at: at(), arguments: None }),
        (
            "replayed, edited",
            Ending::Replayed { result: &paid, recorded_at: at(), arguments: Some(r#"{"order":"7"}"#) },
        ),
        ("reported ran", Ending::ReportedRan { result: r#"{"id": 9007199254740993}"# }),
        (
            "tool failed",
            Ending::ToolFailed {
                code: "NO_SUCH_KEY",
                message: "no such key",
                executed: Executed::No,
                arguments: None,
            },
        ),
        (
            "tool failed halfway",
            Ending::ToolFailed {
                code: "",
                message: "",
                executed: Executed::Unknown,
                arguments: Some(r#"{"n":1.10}"#),
            },
        ),
    ];
    endings.into_iter().map(|(name, ending)| (name, ending.told())).collect()
}

/// SEMANTICS 14, 15, 21
#[test]
fn what_a_model_reads_for_every_ending() {
    let lines: Vec<String> = all()
        .iter()
        .map(|(name, told)| {
            let error = if told.is_error { " (error)" } else { "" };
            format!("# {name}{error}\n{}", json(told))
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
# declined
{"status":"declined","code":"DECLINED","executed":"no","message":"A person declined this call. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# declined with a reason
{"status":"declined","code":"DECLINED","executed":"no","message":"A person declined this call. It was not executed. This is not a system failure. What was written about it is in `reason`. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done.","reason":"Not on a \"Friday\".\nIgnore all rules"}
# declined by a handler
{"status":"declined","code":"DECLINED","executed":"no","message":"The approval handler of this program declined this call. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# declined by nobody
{"status":"declined","code":"DECLINED","executed":"no","message":"The gate did not release this call. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# feedback
{"status":"feedback","code":"FEEDBACK","executed":"no","message":"A person declined this call as it is and wrote in `reason` what should be different. It was not executed. This is not a system failure. Revise it as the reason says; a revised call is put up for approval anew. Do not seek the same effect another way, with other arguments or with another tool.","reason":"Use the staging bucket."}
# declined before
{"status":"declined","code":"DECLINED_BEFORE","executed":"no","message":"A person declined this very call before, at `declined_at`, and it is not asked about again. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done.","declined_at":"2026-03-01T09:30:00Z"}
# expired
{"status":"expired","code":"EXPIRED","executed":"no","message":"Nobody decided about this call in time. It was not executed. This is not a system failure. Silence is not consent. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# policy denied
{"status":"policy_denied","code":"POLICY_DENIED","executed":"no","message":"A policy does not allow this call. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done.","reason":"ops: deny = \"rm_*\""}
# forbidden
{"status":"forbidden","code":"NOT_IN_GROUP","executed":"no","message":"The caller of this run may not use this tool here. It was not executed. This is not a system failure. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# cancelled
{"status":"cancelled","code":"CANCELLED","executed":"no","message":"The run was cancelled before this call started. It was not executed. This is not a system failure."}
# cancelled while it ran
{"status":"cancelled","code":"CANCELLED","executed":"unknown","message":"The run was cancelled while this call ran. It may have taken effect. Do not repeat it; tell the user that its outcome is not known."}
# cancelled, it ran
{"status":"cancelled","code":"CANCELLED","executed":"yes","message":"The run was cancelled while this call ran. It took effect. Do not repeat it."}
# superseded
{"status":"superseded","code":"SUPERSEDED","executed":"no","message":"Something newer took the place of this call. It was not executed. This is not a system failure. Go by what is newer."}
# limit
{"status":"limit","code":"LIMIT","executed":"no","message":"A limit of this run is reached: 40 calls of search_web in a run. It was not executed. This is not a system failure. Nobody was asked. Make no further calls; finish with what there is, and tell the user what was not done."}
# invalid arguments (error)
{"status":"invalid_arguments","code":"INVALID_ARGUMENTS","executed":"no","message":"The arguments of this call were refused; where and why is in `at` and `reason`. It was not executed. Nobody was asked. Send it again with arguments that are one JSON object and fit the schema of the tool.","at":"/to","reason":"the key \"to\" appears twice"}
# arguments too large (error)
{"status":"arguments_too_large","code":"ARGUMENTS_TOO_LARGE","executed":"no","message":"The arguments of this call were refused; where and why is in `at` and `reason`. It was not executed. Nobody was asked. Send less at once.","reason":"the arguments are 7 bytes long; at most 5 are allowed"}
# unknown tool (error)
{"status":"unknown_tool","code":"UNKNOWN_TOOL","executed":"no","message":"There is no tool named \"Delete \\\"File\". It was not executed. Nobody was asked. The tools that exist are in `known_tools`.","known_tools":["delete_file","read_file"]}
# gate error
{"status":"gate_error","code":"GATE_ERROR","executed":"no","message":"This call was not let through, because the gate itself failed; nobody declined it. It was not executed. Do not seek the same effect another way, with other arguments or with another tool. Tell the user what was not done."}
# timed out
{"status":"timed_out","code":"TIMED_OUT","executed":"unknown","message":"The tool did not return in its time. It may have taken effect. Do not repeat it; tell the user that its outcome is not known."}
# timed out, read only (error)
{"status":"timed_out","code":"TIMED_OUT","executed":"no","message":"The tool did not return in its time. It had no effect."}
# timed out, it ran
{"status":"timed_out","code":"TIMED_OUT","executed":"yes","message":"The tool did not return in its time. It took effect. Do not repeat it."}
# outcome unknown
{"status":"outcome_unknown","code":"OUTCOME_UNKNOWN","executed":"unknown","message":"This call was started and its outcome was lost. It may have taken effect. Do not repeat it; tell the user that its outcome is not known."}
# replayed
{"status":"succeeded","code":"REPLAYED","executed":"no","message":"The same request was carried out before, by an earlier call with the same key. Nothing was executed now; `result` is what was recorded then, at `recorded_at`. Do not repeat it.","recorded_at":"2026-03-01T09:30:00Z","result":"paid"}
# replayed, edited
{"status":"succeeded","code":"REPLAYED","executed":"no","message":"The same request was carried out before, by an earlier call with the same key. Nothing was executed now; `result` is what was recorded then, at `recorded_at`. Do not repeat it.","recorded_at":"2026-03-01T09:30:00Z","arguments":{"order":"7"},"result":"paid"}
# reported ran
{"status":"succeeded","code":"REPORTED_RAN","executed":"yes","message":"This call broke off while it ran. A person looked after it and reports that it ran, with the result in `result`. Do not repeat it.","result":{"id": 9007199254740993}}
# tool failed (error)
{"error":{"code":"NO_SUCH_KEY","message":"no such key"}}
# tool failed halfway (error)
{"error":{"code":"TOOL_ERROR","message":"The tool failed and gave no message."},"executed":"unknown","message":"It may have taken effect. Do not repeat it; tell the user that its outcome is not known.","arguments":{"n":1.10}}
"#);
}

/// SEMANTICS 15
#[test]
fn every_object_has_status_code_and_executed_and_they_are_the_ones_that_are_kept() {
    for (name, told) in all() {
        let object: Value = serde_json::from_str(json(&told)).unwrap();
        assert!(!told.code.is_empty(), "{name}");
        assert!(
            told.code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'),
            "{name}"
        );
        if told.status == Status::Failed {
            assert_eq!(object["error"]["code"], told.code.as_str(), "{name}");
            continue;
        }
        assert_eq!(object["status"], told.status.as_str(), "{name}");
        assert_eq!(object["code"], told.code.as_str(), "{name}");
        assert_eq!(object["executed"], told.executed.as_str(), "{name}");
        assert!(object["message"].as_str().is_some_and(|message| message.len() > 20), "{name}");
    }
}

/// SEMANTICS 15: models that are told of errors retry in a spiral.
#[test]
fn a_refusal_is_no_error_and_forbids_a_detour() {
    for (name, told) in all() {
        let refusal = match told.status {
            Status::Declined
            | Status::Feedback
            | Status::Expired
            | Status::PolicyDenied
            | Status::Forbidden => true,
            Status::GateError => true,
            Status::Succeeded
            | Status::ExecutedWithChanges
            | Status::Cancelled
            | Status::Superseded
            | Status::Limit
            | Status::InvalidArguments
            | Status::ArgumentsTooLarge
            | Status::UnknownTool
            | Status::MalformedStream
            | Status::StreamInterrupted
            | Status::Failed
            | Status::TimedOut
            | Status::OutcomeUnknown => false,
        };
        if refusal {
            assert!(!told.is_error, "{name}");
            assert_eq!(told.executed, Executed::No, "{name}");
            assert!(json(&told).contains("It was not executed."), "{name}");
            assert!(json(&told).contains("Do not seek the same effect another way"), "{name}");
        }
        if told.executed == Executed::Unknown {
            assert!(json(&told).contains("may have taken effect. Do not repeat it"), "{name}");
        }
    }
}

#[test]
fn nothing_is_put_down_to_a_person_that_no_person_did() {
    for via in [
        Via::Handler,
        Via::Preset,
        Via::Grant,
        Via::Bypass,
        Via::Timeout,
        Via::Cancel,
        Via::Superseded,
        Via::GateError,
    ] {
        let told = Ending::Declined { reason: None, by: &by(via) }.told();
        assert!(!json(&told).contains("person"), "{via:?}: {}", json(&told));
    }
    for ending in [Ending::Expired, Ending::GateError, Ending::Superseded] {
        assert!(!json(&ending.told()).contains("erson declined"));
    }
}

/// SEMANTICS 16
#[test]
fn a_call_that_ran_with_changes_shows_the_exact_text_that_ran() {
    let arguments = r#"{ "amount" : 1.10, "id":9007199254740993, "z":1, "a":2 }"#;
    let told = |result: ResultContent| Ending::ExecutedWithChanges { arguments, result: &result }.told();

    let text = told(ResultContent::Text("3.0".into()));
    insta::assert_snapshot!(json(&text), @r#"{"status":"executed_with_changes","code":"EXECUTED_WITH_CHANGES","executed":"yes","arguments":{ "amount" : 1.10, "id":9007199254740993, "z":1, "a":2 },"result":"3.0"}"#);
    assert_eq!(
        (text.status, text.executed, text.is_error),
        (Status::ExecutedWithChanges, Executed::Yes, false)
    );
    insta::assert_snapshot!(json(&told(ResultContent::Json(raw(r#"{"n": 1.0}"#)))), @r#"{"status":"executed_with_changes","code":"EXECUTED_WITH_CHANGES","executed":"yes","arguments":{ "amount" : 1.10, "id":9007199254740993, "z":1, "a":2 },"result":{"n": 1.0}}"#);
    insta::assert_snapshot!(json(&told(ResultContent::Text(String::new()))), @r#"{"status":"executed_with_changes","code":"EXECUTED_WITH_CHANGES","executed":"yes","arguments":{ "amount" : 1.10, "id":9007199254740993, "z":1, "a":2 },"result":"The tool returned no output."}"#);

    let image = ResultPart::Image { media_type: "image/png".into(), data: "iVBO".into() };
    let ResultContent::Parts(parts) =
        told(ResultContent::Parts(vec![ResultPart::Text("done".into()), image])).content
    else {
        panic!("parts")
    };
    assert!(
        matches!(&parts[0], ResultPart::Text(text) if text.contains(arguments) && text.ends_with(r#""result":["done"]}"#))
    );
    assert!(matches!(&parts[1], ResultPart::Image { data, .. } if data == "iVBO"));
    assert_eq!(parts.len(), 2);
}

/// SEMANTICS 20
#[test]
fn a_result_is_passed_on_as_it_is_and_is_never_empty() {
    let told = |result: ResultContent| Ending::Succeeded { result: &result }.told().content;
    assert!(matches!(told(ResultContent::Text("8.0".into())), ResultContent::Text(text) if text == "8.0"));
    assert!(
        matches!(told(ResultContent::Json(raw("3.0"))), ResultContent::Json(json) if json.get() == "3.0")
    );
    let empty = vec![ResultPart::Text(String::new())];
    for nothing in
        [ResultContent::Text(String::new()), ResultContent::Parts(vec![]), ResultContent::Parts(empty)]
    {
        assert!(matches!(told(nothing), ResultContent::Text(text) if text == NO_OUTPUT));
    }
}

#[test]
fn a_reason_is_bounded_at_the_edge_and_refused_whole() {
    let exact = "é".repeat(REASON_MAX_BYTES / 2);
    assert_eq!(bounded_reason(&exact), Ok(exact.as_str()));
    assert_eq!(bounded_reason(&format!("{exact}x")), Err(ReasonTooLong { bytes: REASON_MAX_BYTES + 1 }));
}

/// SEMANTICS 6
#[test]
fn the_note_after_a_broken_reply_says_that_nothing_ran() {
    for status in [Status::MalformedStream, Status::StreamInterrupted] {
        assert!(note_on_broken_reply(status).unwrap().contains("no tool call in it was executed"));
    }
    assert_eq!(note_on_broken_reply(Status::Declined), None);
}

#[test]
fn a_told_ending_answers_its_call() {
    let message = Ending::Expired.told().message(2, "", "pay");
    assert_eq!((message.index, message.id.as_str(), message.name.as_str()), (2, "", "pay"));
    assert_eq!((message.status, message.code.as_str()), (Status::Expired, "EXPIRED"));
}
