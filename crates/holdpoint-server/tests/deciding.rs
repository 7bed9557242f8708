//! Deciding over HTTP: what was shown is what is decided, once, by an explicit word - on both routes.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use common::*;
use holdpoint::prelude::*;
use serde_json::{Value, json};

const LENIENT: &str = "/chat/approval";

fn strict(request: &Value) -> String {
    format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap())
}

/// What a row expects of `/chat/approval`.
enum Says {
    /// 200, `accepted: true`, with this decision.
    Accepted(&'static str),
    /// 200, `accepted: false`, with this code.
    NotAccepted(&'static str),
    /// This status and code.
    Refused(u16, &'static str),
}
use Says::{Accepted, NotAccepted, Refused};

/// A body (`ID` and `DIGEST` stand for those of the request), and what both routes say to it.
type Row = (&'static str, Says, Says, &'static str);

/// PROTOCOL 3, row by row. The request is pending before each, and `after` is how it stands then.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    // body, /chat/approval, /v1/.../decision, how the request stands after either
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST"}"#, Accepted("approve"), Accepted("approve"), "decided"),
    (r#"{"requestId":"ID","decision":"appr\u006fve","digest":"DIGEST"}"#, Accepted("approve"), Accepted("approve"), "decided"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":{"sum":7},"digest":"DIGEST"}"#, Accepted("approve_with"), Accepted("approve_with"), "decided"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":"{\"sum\":7}","digest":"DIGEST"}"#, Accepted("approve_with"), Accepted("approve_with"), "decided"),
    (r#"{"requestId":"ID","decision":"decline"}"#, Accepted("decline"), Accepted("decline"), "decided"),
    (r#"{"requestId":"ID","decision":"decline","reason":"no","then":"stop"}"#, Accepted("decline"), Accepted("decline"), "decided"),
    (r#"{"requestId":"ID","decision":"feedback","reason":"use the other account"}"#, Accepted("feedback"), Accepted("feedback"), "decided"),
    // Not what is pending.
    (r#"{"requestId":"ID","decision":"approve","digest":"D1"}"#, NotAccepted("stale_request"), Refused(409, "stale_request"), "pending"),
    (r#"{"requestId":"ID","decision":"decline","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"}"#, NotAccepted("stale_request"), Refused(409, "stale_request"), "pending"),
    // `approve` goes with nothing else, known or unknown.
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","arguments":{"sum":1}}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","answers":{}}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","result":1}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","then":"stop"}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","args":{"sum":1}}"#, Refused(400, "unknown_field"), Refused(400, "unknown_field"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST","bypassApproval":true}"#, Refused(400, "unknown_field"), Refused(400, "unknown_field"), "pending"),
    // A key twice, outside and inside.
    (r#"{"requestId":"ID","decision":"decline","decision":"approve","digest":"DIGEST"}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":{"sum":1,"sum":2},"digest":"DIGEST"}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":"{\"sum\":1,\"sum\":2}","digest":"DIGEST"}"#, Refused(422, "invalid_arguments"), Refused(422, "invalid_arguments"), "pending"),
    // Anything but an explicit approve. Another string declines on one route, and is refused on the other.
    (r#"{"requestId":"ID","decision":"Approve"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"APPROVE"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":" approve"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"approved"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"yes"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"аpprove"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"approve\u0000"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":""}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"deny"}"#, Accepted("decline"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"modify","arguments":{"sum":7}}"#, Accepted("approve_with"), Refused(422, "wrong_decision"), ""),
    (r#"{"requestId":"ID","decision":"approve_and_modify","arguments":{"sum":7}}"#, Accepted("approve_with"), Refused(422, "wrong_decision"), ""),
    // What is no string decides nothing anywhere.
    (r#"{"requestId":"ID","decision":true}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":1}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":null}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":[]}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":["approve"]}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":{}}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID"}"#, Refused(400, "no_decision"), Refused(400, "no_decision"), "pending"),
    (r#"{"requestId":"ID","decision":"approve","digest":"DIGEST"}{}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"["approve"]"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    ("", Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    // A missing companion.
    (r#"{"requestId":"ID","decision":"approve_with","digest":"DIGEST"}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"feedback"}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"feedback","reason":"  "}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"ran"}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    (r#"{"requestId":"ID","decision":"answer"}"#, Refused(400, "wrong_companion"), Refused(400, "wrong_companion"), "pending"),
    // A companion of the wrong type.
    (r#"{"requestId":"ID","decision":"decline","reason":1}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":"decline","reason":null}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":"decline","then":"halt"}"#, Refused(400, "bad_then"), Refused(400, "bad_then"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":[],"digest":"DIGEST"}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":null,"digest":"DIGEST"}"#, Refused(400, "bad_json"), Refused(400, "bad_json"), "pending"),
    // An edit that does not fit. Neither the edited nor the original call runs.
    (r#"{"requestId":"ID","decision":"approve_with","arguments":{"sum":"lots"},"digest":"DIGEST"}"#, Refused(422, "invalid_arguments"), Refused(422, "invalid_arguments"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":{"sum":100000},"digest":"DIGEST"}"#, Refused(422, "invalid_arguments"), Refused(422, "invalid_arguments"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":"{\"sum\":7","digest":"DIGEST"}"#, Refused(422, "invalid_arguments"), Refused(422, "invalid_arguments"), "pending"),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":"[]","digest":"DIGEST"}"#, Refused(422, "invalid_arguments"), Refused(422, "invalid_arguments"), "pending"),
    // A word of another kind of request.
    (r#"{"requestId":"ID","decision":"ran","result":"ok"}"#, Refused(422, "wrong_decision"), Refused(422, "wrong_decision"), "pending"),
    (r#"{"requestId":"ID","decision":"leave"}"#, Refused(422, "wrong_decision"), Refused(422, "wrong_decision"), "pending"),
    (r#"{"requestId":"ID","decision":"answer","answers":{"q":{}}}"#, Refused(422, "wrong_decision"), Refused(422, "wrong_decision"), "pending"),
    // Without a digest the stored one is meant on one route; the other asks for it.
    (r#"{"requestId":"ID","decision":"approve"}"#, Accepted("approve"), Refused(400, "digest_required"), ""),
    (r#"{"requestId":"ID","decision":"approve_with","arguments":{"sum":7}}"#, Accepted("approve_with"), Refused(400, "digest_required"), ""),
    // Two names for two fields, on one route.
    (r#"{"request_id":"ID","action":"approve"}"#, Accepted("approve"), Refused(400, "no_decision"), ""),
    (r#"{"request_id":"ID","requestId":"ID","decision":"approve"}"#, Refused(400, "bad_json"), Refused(400, "unknown_field"), "pending"),
    (r#"{"requestId":"ID","action":"decline","decision":"approve"}"#, Refused(400, "bad_json"), Refused(400, "unknown_field"), "pending"),
];

#[tokio::test]
async fn every_row_of_the_table_of_decisions_holds_on_both_routes() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    for (body, lenient, strictly, after) in TABLE {
        for (is_strict, says) in [(false, lenient), (true, strictly)] {
            let what = format!("{body} strict={is_strict}");
            let request = server.suspended().await;
            let ran = log.calls().len();
            let sent = body
                .replace("ID", request["requestId"].as_str().unwrap())
                .replace("DIGEST", request["digest"].as_str().unwrap());
            let path = if is_strict { strict(&request) } else { LENIENT.to_owned() };
            let reply = server.post(&path, &sent).await;
            let stands = server.status_of(&request).await;
            match says {
                Accepted(word) => {
                    assert_eq!(reply.status, 200, "{what}: {reply:?}");
                    let said = reply.json();
                    assert_eq!(
                        (&said["accepted"], said["decision"].as_str()),
                        (&json!(true), Some(*word)),
                        "{what}"
                    );
                    assert_eq!(said["by"], json!({"actor": "operator", "via": "human"}));
                    assert_eq!(stands, "decided", "{what}");
                    let run = server.ended(&run_of(&request)).await;
                    let expected = match *word {
                        "approve" => vec![r#"{"sum":5}"#],
                        "approve_with" => vec![r#"{"sum":7}"#],
                        _ => vec![],
                    };
                    let calls = log.calls();
                    let executed: Vec<_> =
                        calls[ran..].iter().map(|(_, arguments)| arguments.as_str()).collect();
                    assert_eq!(executed, expected, "{what}: {run}");
                    continue;
                }
                NotAccepted(code) => {
                    assert_eq!(reply.status, 200, "{what}: {reply:?}");
                    assert_eq!(
                        (&reply.json()["accepted"], &reply.json()["code"]),
                        (&json!(false), &json!(code)),
                        "{what}"
                    );
                }
                Refused(status, code) => {
                    assert_eq!((reply.status, reply.code().as_str()), (*status, *code), "{what}: {reply:?}");
                }
            }
            assert_eq!(stands, if after.is_empty() { "pending" } else { after }, "{what}");
            assert_eq!(log.calls().len(), ran, "{what}: nothing ran");
            server.post(&format!("/v1/runs/{}/cancel", run_of(&request)), "{}").await;
        }
    }
}

#[tokio::test]
async fn what_is_closed_stays_as_it_was_closed() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let (id, digest) = (&request["requestId"], &request["digest"]);
    let lenient = |word: &str| json!({"requestId": id, "decision": word}).to_string();

    assert_eq!(server.approve(&request).await.json().get("repeated"), None);
    let again = server.approve(&request).await;
    assert_eq!((again.status, &again.json()["repeated"]), (200, &json!(true)));
    let again = server.post(LENIENT, &lenient("approve")).await.json();
    assert_eq!((&again["accepted"], &again["repeated"]), (&json!(true), &json!(true)));

    let otherwise = server.decide(&request, &json!({"decision": "decline"})).await;
    assert_eq!((otherwise.status, otherwise.code().as_str()), (409, "already_decided"));
    assert_eq!(otherwise.json()["decision"], "approve");
    assert_eq!(otherwise.json()["by"]["actor"], "operator");
    let otherwise = server.post(LENIENT, &lenient("decline")).await;
    assert_eq!(otherwise.status, 200);
    let said = otherwise.json();
    assert_eq!(
        (&said["accepted"], &said["decision"], &said["by"]["via"]),
        (&json!(false), &json!("approve"), &json!("human"))
    );

    let edited = json!({"decision": "approve_with", "arguments": {"sum": 6}, "digest": digest});
    assert_eq!(server.decide(&request, &edited).await.status, 409);
    server.ended(&run_of(&request)).await;
    assert_eq!(server.approve(&request).await.status, 200, "the same answer for ever");
    assert_eq!(log.calls().len(), 1);
}

#[tokio::test]
async fn an_unknown_request_is_not_there_on_either_route() {
    let server = serve(assistant(&Log::default(), one_call("pay", "{}"))).await;
    for id in
        ["0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11", "nonsense", "..", "%2e%2e%2f", "a%00b", &"1".repeat(300)]
    {
        let path = format!("/v1/interactions/{id}/decision");
        let reply = server.post(&path, r#"{"decision":"decline"}"#).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{id}");
    }
    for id in ["0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11", "nonsense", "..", ""] {
        let said = server.post(LENIENT, &json!({"requestId": id, "decision": "decline"}).to_string()).await;
        assert_eq!(said.status, 200, "{id}");
        assert_eq!(
            (&said.json()["accepted"], &said.json()["code"]),
            (&json!(false), &json!("not_found")),
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_late_decision_is_refused_and_nothing_runs() {
    let log = Log::default();
    let agent = assistant(&log, one_call("pay", r#"{"sum":5}"#))
        .approval_timeout(std::time::Duration::from_millis(30));
    let server = serve(agent).await;
    let request = server.suspended().await;
    server.ended(&run_of(&request)).await;
    let late = server.approve(&request).await;
    assert_eq!((late.status, late.code().as_str()), (410, "expired"));
    let late = json!({"requestId": request["requestId"], "decision": "approve"}).to_string();
    let late = server.post(LENIENT, &late).await;
    assert_eq!(
        (late.status, &late.json()["accepted"], &late.json()["code"]),
        (200, &json!(false), &json!("expired"))
    );
    assert!(log.calls().is_empty());
}

#[tokio::test]
async fn an_approve_of_a_cancelled_run_executes_nothing() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let cancel = format!("/v1/runs/{}/cancel", run_of(&request));
    assert_eq!(server.post(&cancel, "").await.status, 202);
    let reply = server.approve(&request).await;
    let run = server.ended(&run_of(&request)).await;
    // The cancel was durable first, whether or not the run has closed the request yet.
    assert_eq!((reply.status, reply.code().as_str()), (409, "already_decided"), "{reply:?}");
    assert_eq!(reply.json()["decision"], "cancelled");
    assert_eq!(server.status_of(&request).await, "cancelled");
    assert_eq!(run["finish"], "cancelled");
    assert!(log.calls().is_empty());
    assert_eq!(server.post(&cancel, "{}").await.json()["status"], "ended");
    assert_eq!(server.post("/v1/runs/0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11/cancel", "{}").await.status, 404);
}

/// Two calls of one tool, whatever ids the model gave them.
#[tokio::test]
async fn a_decision_reaches_one_call_whatever_the_models_ids_are() {
    for ids in [["c1", "c2"], ["c1", "c1"], ["", ""]] {
        let log = Log::default();
        let model = Scripted::new("script")
            .rule(When::any().has_tool_result(true), Answer::text("done"))
            .rule(
                When::any(),
                Answer::call(ids[0], "pay", r#"{"sum":1}"#).and_call(ids[1], "pay", r#"{"sum":2}"#),
            )
            .build();
        let server = serve(assistant(&log, model)).await;
        let reply = server.post("/chat", r#"{"query":"go"}"#).await.json();
        let requests: Vec<_> =
            reply["interactions"].as_array().unwrap().iter().map(|one| one["request"].clone()).collect();
        assert_eq!(requests.len(), 2);
        assert_ne!(requests[0]["requestId"], requests[1]["requestId"]);
        assert_eq!(server.approve(&requests[0]).await.status, 200);
        assert_eq!(server.status_of(&requests[1]).await, "pending");
        // The digest of one is not that of the other, though tool and ids may be the same.
        let mixed = json!({"decision": "approve", "digest": requests[0]["digest"]});
        assert_eq!(server.decide(&requests[1], &mixed).await.status, 409);
        assert_eq!(server.decide(&requests[1], &json!({"decision": "decline"})).await.status, 200);
        server.ended(&run_of(&requests[0])).await;
        assert_eq!(log.calls(), [("pay".to_owned(), r#"{"sum":1}"#.to_owned())], "{ids:?}");
    }
}

#[tokio::test]
async fn a_double_click_with_one_key_gets_one_answer_twice() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let body = json!({"decision": "approve", "digest": request["digest"]}).to_string();
    let click = || server.request("POST", &strict(&request)).header("Idempotency-Key", "click-1").json(&body);
    let (one, two) = tokio::join!(click().send(), async {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        click().send().await
    });
    assert_eq!((one.status, two.status), (200, 200));
    assert_eq!(one.body, two.body);
    assert_eq!(click().send().await.body, one.body);

    let other = server.request("POST", &strict(&request)).header("Idempotency-Key", "click-1");
    let other = other.json(r#"{"decision":"decline"}"#).send().await;
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_key_reused"));
    let elsewhere = "/v1/interactions/0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11/decision";
    let elsewhere =
        server.request("POST", elsewhere).header("Idempotency-Key", "click-1").json(&body).send().await;
    assert_eq!(elsewhere.status, 422, "the same key for another request");
    for bad in ["", &"k".repeat(256)] {
        let bad =
            server.request("POST", &strict(&request)).header("Idempotency-Key", bad).json(&body).send().await;
        assert_eq!((bad.status, bad.code().as_str()), (400, "bad_idempotency_key"));
    }
    let longest = "k".repeat(255);
    let longest = server.request("POST", &strict(&request)).header("Idempotency-Key", &longest).json(&body);
    assert_eq!(longest.send().await.status, 200);

    server.ended(&run_of(&request)).await;
    assert_eq!(log.calls().len(), 1);
    let events = server.events(&format!("/v1/runs/{}/events", run_of(&request))).await.rest().await;
    assert_eq!(events.iter().filter(|frame| frame.kind() == "decision").count(), 1);
    let record = server.get(&format!("/v1/audit?run={}", run_of(&request))).await.body;
    assert_eq!(record.matches("approve via=human").count(), 1, "{record}");
}

/// A refusal that came of the request's state is an answer like any other; one that came of the body is not kept.
#[tokio::test]
async fn a_refusal_is_kept_under_its_key_and_a_body_that_cannot_be_read_is_not() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let send = |body: String| {
        server.request("POST", &strict(&request)).header("Idempotency-Key", "k").json(&body).send()
    };
    assert_eq!(send(r#"{"decision":"approve"}"#.into()).await.status, 400);
    let stale = json!({"decision": "approve", "digest": "D1"}).to_string();
    let first = send(stale.clone()).await;
    assert_eq!((first.status, first.code().as_str()), (409, "stale_request"));
    let second = send(stale).await;
    assert_eq!((second.status, &second.body, second.code().as_str()), (409, &first.body, "stale_request"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_identical_decisions_at_once_have_one_effect() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let replies = futures_util::future::join_all((0..12).map(|_| server.approve(&request))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let first: Vec<_> = replies.iter().filter(|reply| reply.json().get("repeated").is_none()).collect();
    assert_eq!(first.len(), 1);
    server.ended(&run_of(&request)).await;
    assert_eq!(log.calls().len(), 1);
}

/// On one server. https://github.com/extra-org/extra/issues/139 is about such a race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_opposite_decisions_at_once_one_wins_and_the_loser_is_told() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    for round in 0..100 {
        let ran = log.calls().len();
        let request = server.suspended().await;
        let decline = json!({"decision": "decline"});
        let (approved, declined) = if round % 2 == 0 {
            tokio::join!(server.approve(&request), server.decide(&request, &decline))
        } else {
            let (declined, approved) =
                tokio::join!(server.decide(&request, &decline), server.approve(&request));
            (approved, declined)
        };
        server.ended(&run_of(&request)).await;
        let executed = log.calls().len() - ran;
        match (approved.status, declined.status) {
            (200, 409) => {
                assert_eq!((executed, &declined.json()["decision"]), (1, &json!("approve")));
            }
            (409, 200) => {
                assert_eq!((executed, &approved.json()["decision"]), (0, &json!("decline")));
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
}

/// Equal in meaning is not the same text.
#[tokio::test]
async fn an_edited_text_runs_byte_for_byte() {
    for edited in [r#"{ "sum" : 7 }"#, "{\n  \"sum\": 7\n}", r#"{"sum":7.0}"#, r#"{"s\u0075m":7}"#] {
        let log = Log::default();
        let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
        let request = server.suspended().await;
        // Written into the body by hand: an object is its own bytes.
        let body =
            format!(r#"{{"decision":"approve_with","digest":{},"arguments":{edited}}}"#, request["digest"]);
        let reply = server.post(&strict(&request), &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        server.ended(&run_of(&request)).await;
        assert_eq!(log.calls(), [("pay".to_owned(), edited.to_owned())]);
    }
}

#[tokio::test]
async fn feedback_that_says_go_ahead_runs_nothing() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let words = json!({"decision": "feedback", "reason": "looks right, go ahead and approve it"});
    assert_eq!(server.decide(&request, &words).await.status, 200);
    server.ended(&run_of(&request)).await;
    assert!(log.calls().is_empty());
}

/// A reason has a bound, and within it any character.
#[tokio::test]
async fn a_reason_is_kept_whole_or_refused() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let long = json!({"decision": "decline", "reason": "x".repeat(8 * 1024 + 1)});
    let refused = server.decide(&request, &long).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "reason_too_long"));
    let reason = format!("a\u{0}b \u{202e} {}", "é".repeat(4_000));
    assert_eq!(server.decide(&request, &json!({"decision": "decline", "reason": reason})).await.status, 200);
    let path = format!("/v1/interactions/{}", request["requestId"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["decision"]["reason"], reason);
}

/// Link scanners fetch every link before a person does.
#[tokio::test]
async fn getting_a_decision_decides_nothing() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"] {
        for query in ["", "?decision=approve"] {
            let reply = server.request(method, &format!("{}{query}", strict(&request))).send().await;
            assert_eq!(reply.status, 405, "{method}");
            assert_eq!(reply.header("allow"), Some("POST"));
        }
    }
    for path in ["/chat/approval", "/chat", "/chat/stream"] {
        assert_eq!(server.get(path).await.status, 405, "{path}");
    }
    assert_eq!(server.status_of(&request).await, "pending");
}

struct UpTo(u64);

#[async_trait::async_trait]
impl holdpoint::Permission for UpTo {
    async fn check(
        &self,
        _run: &holdpoint::RunInfo,
        _tool: &ToolDefinition,
        arguments: &Value,
    ) -> Result<(), holdpoint::Forbidden> {
        if arguments["sum"].as_u64().is_some_and(|sum| sum <= self.0) {
            Ok(())
        } else {
            Err(holdpoint::Forbidden { code: "OVER_LIMIT".into() })
        }
    }
}

/// An edit goes through the caller's permission as what it has become.
#[tokio::test]
async fn an_edit_to_what_the_caller_may_not_do_is_refused_and_the_request_stays() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":50}"#)).permission(UpTo(500))).await;
    let request = server.suspended().await;
    let edit = |sum: u64| json!({"decision": "approve_with", "digest": request["digest"], "arguments": {"sum": sum}});
    let refused = server.decide(&request, &edit(501)).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "forbidden"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("OVER_LIMIT"));
    let lenient = json!({"requestId": request["requestId"], "decision": "modify", "arguments": {"sum": 501}});
    let refused = server.post(LENIENT, &lenient.to_string()).await;
    assert_eq!((refused.status, &refused.json()["accepted"]), (422, &json!(false)));
    assert_eq!(server.status_of(&request).await, "pending");
    assert!(log.calls().is_empty());
    assert_eq!(server.decide(&request, &edit(500)).await.status, 200);
    server.ended(&run_of(&request)).await;
    assert_eq!(log.calls(), [("pay".to_owned(), r#"{"sum":500}"#.to_owned())]);
}
