//! `docs/http.md` says what is so: its examples are of the types that the server reads and writes, and nothing is left out.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::*;
use holdpoint::protocol::Event;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/http.md");

/// The blocks of this language, each with the line before it.
fn blocks(language: &str) -> Vec<(&'static str, &'static str)> {
    let start = format!("```{language}\n");
    let mut blocks = Vec::new();
    for (at, _) in PAGE.match_indices(&start) {
        let before = PAGE[..at].trim_end().lines().next_back().unwrap();
        let text = PAGE[at + start.len()..].split_once("\n```").unwrap().0;
        blocks.push((before, text));
    }
    assert!(!blocks.is_empty(), "{language}");
    blocks
}

/// With every object closed, so that a field that is not described is found.
fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".into(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

#[tokio::test]
async fn every_example_is_what_the_description_of_the_interface_says() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let mut document = server.get("/openapi.json").await.json();
    close(&mut document["components"]["schemas"]);
    let mut seen = BTreeSet::new();
    for (before, text) in blocks("json") {
        let name = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let name = name.unwrap_or_else(|| panic!("which schema is this of?\n{text}"));
        assert!(document["components"]["schemas"][name].is_object(), "there is no schema {name}");
        let mut whole = document.clone();
        whole["allOf"] = json!([{"$ref": format!("#/components/schemas/{name}")}]);
        let validator = jsonschema::validator_for(&whole).unwrap();
        let example: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let errors: Vec<_> = validator.iter_errors(&example).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}\n{text}");
        seen.insert(name);
    }
    // What a client sends is all there.
    for name in ["ChatRequest", "InvokeRequest", "StrictDecision", "LenientDecision"] {
        assert!(seen.contains(name), "{name}");
        for field in document["components"]["schemas"][name]["properties"].as_object().unwrap().keys() {
            let other_name = ["request_id", "action"].contains(&field.as_str());
            assert!(
                other_name || PAGE.contains(&format!("`{field}`")),
                "`{field}` of {name} is not on the page"
            );
        }
    }
}

/// Read and written again, an example is the same: it has every field that must be there, and none that is not known.
#[test]
fn every_event_is_there_once_as_it_is_written() {
    let mut kinds = BTreeSet::new();
    for (_, text) in blocks("sse") {
        for frame in text.split("\n\n") {
            let (id, data) = match frame.strip_prefix("id: ").and_then(|rest| rest.split_once('\n')) {
                Some((id, data)) => (Some(id.parse().unwrap()), data),
                None => (None, frame),
            };
            let json = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame}"));
            let event = Event::from_json(id, json).unwrap_or_else(|error| panic!("{error}\n{json}"));
            let [read, written]: [Value; 2] =
                [json, &event.to_json()].map(|text| serde_json::from_str(text).unwrap());
            assert_eq!(read, written);
            assert_eq!(event.body.is_durable(), id.is_some(), "{json}");
            assert!(kinds.insert(event.body.kind()), "{json}");
        }
    }
    let source = include_str!("../../holdpoint-protocol/src/event.rs");
    let known: BTreeSet<&str> = source
        .lines()
        .filter(|line| line.contains(", durable: "))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert_eq!(kinds, known);
}

/// Status and code, wherever a refusal is made.
fn codes(folder: &Path, found: &mut BTreeSet<(u16, String)>) {
    let statuses = |name: &str| {
        Some(match name {
            "UNAUTHORIZED" => 401,
            "FORBIDDEN" => 403,
            "NOT_FOUND" => 404,
            "METHOD_NOT_ALLOWED" => 405,
            "REQUEST_TIMEOUT" => 408,
            "CONFLICT" => 409,
            "GONE" => 410,
            "PAYLOAD_TOO_LARGE" => 413,
            "UNSUPPORTED_MEDIA_TYPE" => 415,
            "MISDIRECTED_REQUEST" => 421,
            "UNPROCESSABLE_ENTITY" => 422,
            "TOO_MANY_REQUESTS" => 429,
            "INTERNAL_SERVER_ERROR" => 500,
            "BAD_GATEWAY" => 502,
            "SERVICE_UNAVAILABLE" => 503,
            "INSUFFICIENT_STORAGE" => 507,
            _ => return None,
        })
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes(&path, found);
            continue;
        }
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let word = |rest: &str| {
            let word = rest.trim_start().strip_prefix('"')?.split('"').next()?;
            word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then(|| word.to_owned())
        };
        for (start, status) in [("bad_request(", 400), ("with_incident(", 500)] {
            for (at, _) in text.match_indices(start) {
                found.extend(word(&text[at + start.len()..]).map(|code| (status, code)));
            }
        }
        for (at, _) in text.match_indices("StatusCode::") {
            let rest = &text[at + "StatusCode::".len()..];
            let Some((name, rest)) = rest.split_once(',') else { continue };
            if let (Some(status), Some(code)) = (statuses(name), word(rest)) {
                found.insert((status, code));
            }
        }
    }
}

#[test]
fn every_refusal_is_in_the_table_with_its_status() {
    let mut made = BTreeSet::new();
    codes(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut made);
    // Words of the runtime, passed on.
    let passed_on =
        ["invalid_arguments", "arguments_too_large", "forbidden", "policy_denied", "tool_unavailable"];
    made.extend(passed_on.map(|code| (422, code.to_owned())));
    let mut told = BTreeSet::new();
    for row in PAGE.split_once("| status | code |").unwrap().1.lines().skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let status: u16 = cells[1].parse().unwrap_or_else(|_| panic!("{row}"));
        told.extend(cells[2].split(", ").map(|code| (status, code.trim_matches('`').to_owned())));
        assert!(cells[3].len() > 10, "what to do about it: {row}");
    }
    assert_eq!(told, made);
}
