use proptest::prelude::*;

use super::*;

fn parse(raw: &str) -> Result<Arguments, InvalidArguments> {
    Arguments::parse(raw, ARGUMENTS_MAX_BYTES)
}

fn refused(raw: &str) -> InvalidArguments {
    match parse(raw) {
        Ok(arguments) => panic!("accepted: {}", arguments.text()),
        Err(invalid) => invalid,
    }
}

/// SEMANTICS 8; https://github.com/vllm-project/vllm/issues/28806
#[test]
fn absent_blank_and_null_are_the_empty_object() {
    for raw in ["", " ", "\n\t \r", "null", " null\n", "{}"] {
        let arguments = parse(raw).unwrap();
        assert_eq!(arguments.text().as_ref(), "{}", "{raw:?}");
        assert_eq!(arguments.value(), &serde_json::json!({}));
    }
}

#[test]
fn an_accepted_text_is_kept_byte_for_byte() {
    for raw in [
        r#"{"a":1}"#,
        " {\n \"a\" : 1.10 }\n",
        r#"{"b":1,"10":2,"9":3}"#,
        r#"{"s":"\u0041\/","n":9007199254740993}"#,
        "{\"s\":\"a\\u0000b\"}",
        "{\"s\":\"\u{202e}\"}",
        r#"{"s":"\ud83d\ude00"}"#,
    ] {
        assert_eq!(parse(raw).unwrap().text().as_ref(), raw);
    }
}

/// https://github.com/stefandevo/glm-acp-agent/pull/112, https://github.com/livekit/agents/pull/5409
#[test]
fn only_an_object_is_arguments() {
    for raw in ["[]", "42", "\"x\"", "true", "\"null\"", "[{}]", "-1.5"] {
        assert_eq!(refused(raw).kind, InvalidKind::NotAnObject, "{raw}");
    }
}

#[test]
fn a_key_may_not_stand_there_twice() {
    for (raw, at) in [
        (r#"{"to":"ana@acme.example","to":"x@evil.example"}"#, "/to"),
        (r#"{"a":1,"\u0061":2}"#, "/a"),
        (r#"{"x":[0,{"a/b":1,"a/b":1}]}"#, "/x/1/a~1b"),
        (r#"{"":1,"":1}"#, "/"),
    ] {
        let invalid = refused(raw);
        assert_eq!((invalid.kind, invalid.at.as_str()), (InvalidKind::DuplicateKey, at), "{raw}");
    }
    assert!(parse(r#"{"a":{"a":{"a":1}},"A":1}"#).is_ok());
}

#[test]
fn nothing_may_follow_the_object() {
    for raw in ["{\"a\":1}{\"a\":2}", "{\"a\":1}]", "{\"a\":1}\u{0}", "{\"a\":1} //x", "{\"a\":1},", "{}null"]
    {
        assert_eq!(refused(raw).kind, InvalidKind::Malformed, "{raw:?}");
    }
}

/// A model that is cut off leaves half a text; closing its braces would run something nobody wrote.
/// https://github.com/anthropics/claude-code/issues/67765
#[test]
fn broken_arguments_are_refused_and_never_become_empty() {
    for raw in [
        r#"{"path":"a","mode":"#,
        "{",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1,}",
        "\u{feff}{}",
        "nul",
        "NaN",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":Infinity}",
        "\u{a0}",
        "\u{0}",
    ] {
        assert_eq!(refused(raw).kind, InvalidKind::Malformed, "{raw:?}");
    }
    assert_eq!(refused("{\n \"a\": x}").at, "line 2 column 7");
}

/// https://github.com/serde-rs/json/issues/495
#[test]
fn lone_surrogates_are_refused_in_values_and_keys() {
    for raw in [r#"{"s":"a\ud83d"}"#, r#"{"s":"\udc00\ud83d"}"#, r#"{"\ud83d":1}"#, r#"{"s":"\ud83dx"}"#] {
        assert_eq!(refused(raw).kind, InvalidKind::Malformed, "{raw}");
    }
}

/// https://github.com/serde-rs/json/issues/703
#[test]
fn a_number_that_would_be_rounded_is_refused() {
    for ok in
        ["9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1.10"]
    {
        assert!(parse(&format!("{{\"n\":{ok}}}")).is_ok(), "{ok}");
    }
    for bad in
        ["18446744073709551616", "123456789012345678901234567890", "1e400", "-1e400", "9007199254740993.0"]
    {
        assert_eq!(refused(&format!("{{\"n\":{bad}}}")).kind, InvalidKind::Number, "{bad}");
    }
    assert_eq!(refused(r#"{"a":{"b":[1,18446744073709551616]}}"#).at, "/a/b/1");
}

/// With serde_json's `arbitrary_precision` a number is a map with a magic key, and what a model writes could
/// be taken for one. Any crate of the graph could switch it on; this test would tell.
#[test]
fn numbers_are_numbers_and_no_magic_map() {
    assert_eq!(serde_json::from_str::<Value>("1.10").unwrap().to_string(), "1.1");
    let magic = r#"{"$serde_json::private::Number":"1"}"#;
    assert_eq!(parse(magic).unwrap().value(), &serde_json::json!({"$serde_json::private::Number": "1"}));
    // And a double is read exactly, not to within a digit.
    assert_eq!(parse(r#"{"n":122.416294033786585}"#).map_err(|e| e.kind), Err(InvalidKind::Number));
    assert_eq!(parse(r#"{"n":122.41629403378658}"#).unwrap().value()["n"], 122.41629403378658_f64);
}

fn nested(open: &str, close: &str, times: usize) -> String {
    format!("{{\"a\":{}1{}}}", open.repeat(times), close.repeat(times))
}

#[test]
fn depth_is_bounded_at_the_edge_and_never_overflows_the_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        assert!(parse(&nested(open, close, ARGUMENTS_MAX_DEPTH - 1)).is_ok());
        assert_eq!(refused(&nested(open, close, ARGUMENTS_MAX_DEPTH)).kind, InvalidKind::TooDeep);
        for times in [127, 128, 100_000] {
            let kind = Arguments::parse(&nested(open, close, times), usize::MAX).unwrap_err().kind;
            assert_eq!(kind, InvalidKind::TooDeep, "{open} {times}");
        }
    }
    assert_eq!(Arguments::parse(&"[".repeat(100_000), usize::MAX).unwrap_err().kind, InvalidKind::TooDeep);
}

#[test]
fn size_is_bounded_at_the_edge_before_anything_is_read() {
    let exact = format!("{{\"a\":\"{}\"}}", "x".repeat(ARGUMENTS_MAX_BYTES - 8));
    assert_eq!(exact.len(), ARGUMENTS_MAX_BYTES);
    assert!(parse(&exact).is_ok());
    let over = format!("{exact} ");
    let invalid = refused(&over);
    assert_eq!(
        invalid.kind,
        InvalidKind::TooLarge { bytes: ARGUMENTS_MAX_BYTES + 1, max: ARGUMENTS_MAX_BYTES }
    );
    assert_eq!(invalid.status(), Status::ArgumentsTooLarge);
    assert_eq!(refused(&" ".repeat(ARGUMENTS_MAX_BYTES + 1)).status(), Status::ArgumentsTooLarge);
    assert_eq!(refused("[]").status(), Status::InvalidArguments);
}

#[test]
fn what_cannot_be_read_stands_in_the_history_as_an_object_that_says_so() {
    assert_eq!(history_form(r#"{"a": 1}"#), r#"{"a": 1}"#);
    assert_eq!(history_form(""), "{}");
    for broken in [r#"{"s":"a\ud83d"}"#, "{", "[1]", r#"{"a":1,"a":2}"#] {
        let form = history_form(broken);
        assert!(parse(&form).is_ok(), "{form}");
        assert!(form.contains("invalid_arguments") && !form.contains("ud83d"), "{form}");
    }
}

/// https://github.com/livekit/agents/pull/5411
#[test]
fn double_encoded_arguments_are_peeled_once_if_an_object_is_inside() {
    assert_eq!(peel_double_encoded(r#""{\"order\":\"A7\"}""#).as_deref(), Some(r#"{"order":"A7"}"#));
    for raw in [r#""hello""#, r#"{"a":1}"#, r#""\"{}\"""#, r#""null""#, r#""{\"a\":1,\"a\":2}""#, "\"{}"] {
        assert_eq!(peel_double_encoded(raw), None, "{raw}");
    }
}

#[test]
fn a_message_quotes_a_bounded_piece_of_what_the_model_wrote() {
    let key = "k".repeat(10_000);
    assert!(refused(&format!("{{\"{key}\":1,\"{key}\":1}}")).message.len() < 400);
}

/// JSON texts, with numbers and escapes as models write them.
fn json_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?",
    ];
    let string = any::<String>().prop_map(|s| Value::String(s).to_string());
    let leaf = prop_oneof![number, string.clone(), Just("true".into()), Just("null".into())];
    let value = leaf.prop_recursive(5, 40, 6, move |inner| {
        let key = prop_oneof![
            "[abc]{1,2}".prop_map(|k| format!("\"{k}\"")),
            any::<String>().prop_map(|s| Value::String(s).to_string())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|v| format!("[{}]", v.join(" , "))),
            prop::collection::vec((key, inner), 0..5).prop_map(object),
        ]
    });
    prop::collection::vec(("[a-z]{1,3}".prop_map(|k| format!("\"{k}\"")), value), 0..5).prop_map(object)
}

fn object(entries: Vec<(String, String)>) -> String {
    let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", entries.join(","))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(raw in any::<String>()) {
        let _ = parse(&raw);
        let _ = peel_double_encoded(&raw);
        prop_assert!(parse(&history_form(&raw)).is_ok());
    }

    #[test]
    fn almost_json_is_read_or_refused(raw in "[\\{\\}\\[\\]\",:\\\\u0-9aeE.+ -]{0,40}") {
        let _ = parse(&raw);
    }

    #[test]
    fn what_is_accepted_is_kept_and_reads_the_same_everywhere(raw in json_text()) {
        if let Ok(arguments) = parse(&raw) {
            prop_assert_eq!(arguments.text().as_ref(), raw.as_str());
            let other: Value = serde_json::from_str(&raw).unwrap();
            prop_assert_eq!(arguments.value(), &other);
            // As many entries everywhere as the text has: nothing was dropped.
            prop_assert_eq!(count(&crate::walk::walk(&raw)), count_value(&other));
        }
    }

    #[test]
    fn every_double_as_it_prints_survives(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
        let text = format!("{{\"n\":{number:?}}}");
        prop_assert_eq!(parse(&text).unwrap().value()["n"].as_f64().unwrap(), number);
    }
}

fn count(node: &crate::walk::Node<'_>) -> usize {
    use crate::walk::Node;
    match node {
        Node::Literal(_) | Node::Text(_) => 1,
        Node::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Node::Map(entries) => 1 + entries.iter().map(|(_, item)| count(item)).sum::<usize>(),
    }
}

fn count_value(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count_value).sum::<usize>(),
        Value::Object(entries) => 1 + entries.values().map(count_value).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
