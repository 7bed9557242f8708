use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arguments::ARGUMENTS_MAX_BYTES;

fn arguments(text: &str) -> Arguments {
    Arguments::parse(text, ARGUMENTS_MAX_BYTES).unwrap()
}

fn check(schema: &Value, text: &str) -> Result<(), String> {
    Schema::compile(schema).unwrap().check(&arguments(text)).map_err(|invalid| invalid.to_string())
}

/// https://github.com/stefandevo/glm-acp-agent/pull/112: missing content erased the file.
#[test]
fn a_missing_field_is_not_an_empty_string() {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    });
    assert_eq!(check(&schema, r#"{"path":"a"}"#), Err("\"content\" is a required property".into()));
    assert_eq!(
        check(&schema, r#"{"path":"a","content":null}"#),
        Err("value is not of type \"string\" (at /content)".into())
    );
    assert_eq!(check(&schema, r#"{"path":"a","content":""}"#), Ok(()));
    assert_eq!(
        check(&schema, ""),
        Err("\"path\" is a required property; \"content\" is a required property".into())
    );
}

#[test]
fn nothing_is_coerced_and_no_default_is_put_in() {
    let schema = json!({"type": "object", "required": ["n", "s"],
        "properties": {"n": {"type": "integer", "default": 1}, "s": {"type": "string", "minLength": 1}}});
    for bad in [
        r#"{"s":"x"}"#,
        r#"{"n":"1","s":"x"}"#,
        r#"{"n":1.5,"s":"x"}"#,
        r#"{"n":1,"s":2}"#,
        r#"{"n":1,"s":""}"#,
    ] {
        assert!(check(&schema, bad).is_err(), "{bad}");
    }
    assert_eq!(check(&schema, r#"{"n":1,"s":"x"}"#), Ok(()));
}

#[test]
fn a_fault_says_where_and_why_but_not_the_value() {
    let schema = json!({"type": "object", "properties": {
        "items": {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string", "maxLength": 3}}}}}});
    let invalid = Schema::compile(&schema)
        .unwrap()
        .check(&arguments(r#"{"items":[{"key":"a"},{"key":"hunter2-secret"}]}"#))
        .unwrap_err();
    assert_eq!(invalid.kind, InvalidKind::Schema);
    assert_eq!(invalid.at, "/items/1/key");
    assert!(invalid.message.contains("longer than 3") && !invalid.message.contains("hunter2"), "{invalid}");
}

#[test]
fn only_a_few_faults_are_named() {
    let schema = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let many: Vec<String> = (0..100).map(|n| format!("\"k{n}\":\"x\"")).collect();
    let invalid =
        Schema::compile(&schema).unwrap().check(&arguments(&format!("{{{}}}", many.join(",")))).unwrap_err();
    assert_eq!(invalid.message.matches("integer").count(), FAULTS_NAMED_MAX);
    assert!(invalid.message.ends_with("; and more"));
}

#[test]
fn a_schema_that_cannot_be_checked_is_refused_when_it_is_loaded() {
    for (schema, why) in [
        (json!(true), "not an object"),
        (json!("object"), "not an object"),
        (json!({"type": "array"}), "`type`"),
        (json!({"type": 7}), "`type`"),
        (json!({"type": "object", "properties": {"a": {"$ref": "https://schemas.example/a.json"}}}), ""),
        (json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}), ""),
        (json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a)\\1"}}}), ""),
        (json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)b"}}}), ""),
        (json!({"type": "object", "properties": {"a": {"type": "text"}}}), ""),
        (json!({"type": "object", "required": ["a", "a"]}), ""),
        (json!({"type": "object", "properties": []}), ""),
    ] {
        let error = Schema::compile(&schema).expect_err(&schema.to_string());
        assert!(error.reason.contains(why), "{schema}: {error}");
    }
}

/// A pattern that takes exponential time in a backtracking engine.
#[test]
fn a_hostile_pattern_does_not_hang() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
    assert!(check(&schema, &format!(r#"{{"a":"{}!"}}"#, "a".repeat(50_000))).is_err());
}

#[test]
fn a_tool_without_parameters_takes_the_empty_object() {
    for schema in [json!({}), json!({"type": "object"}), json!({"type": "object", "properties": {}})] {
        assert_eq!(check(&schema, "null"), Ok(()));
        assert_eq!(check(&schema, r#"{"extra":1}"#), Ok(()));
    }
    assert!(check(&json!({"type": "object", "additionalProperties": false}), r#"{"extra":1}"#).is_err());
}

#[test]
fn plain_schemas_take_the_cheap_way_and_others_do_not() {
    let is_plain = |schema: Value| matches!(Schema::compile(&schema).unwrap().checker, Checker::Plain(_));
    assert!(is_plain(json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "title": "T", "properties": {"a": {"type": "string", "description": "An a."}}, "required": ["a"],
        "additionalProperties": false})));
    for schema in [
        json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}),
        json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
        json!({"type": "object", "properties": {"a": {}}}),
        json!({"type": "object", "minProperties": 1}),
        json!({"properties": {"a": {"type": "string"}}}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
    ] {
        assert!(!is_plain(schema.clone()), "{schema}");
    }
}

#[test]
fn a_schema_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}

proptest! {
    #[test]
    fn the_cheap_way_decides_as_the_full_validator_does(
        strings in prop::collection::btree_set("[abc]", 0..3),
        required in prop::collection::btree_set("[abcd]", 0..3),
        closed in any::<Option<bool>>(),
        values in prop::collection::btree_map("[abcd]", prop_oneof![Just(json!("x")), Just(json!(1)), Just(json!(null))], 0..4),
    ) {
        let properties: serde_json::Map<_, _> = strings.into_iter().map(|name| (name, json!({"type": "string"}))).collect();
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if let Some(closed) = closed {
            schema["additionalProperties"] = json!(!closed);
        }
        let arguments = arguments(&json!(values).to_string());
        let ours = Schema::compile(&schema).unwrap();
        prop_assert!(matches!(ours.checker, Checker::Plain(_)));
        prop_assert_eq!(ours.check(&arguments).is_ok(), full(&schema).unwrap().is_valid(arguments.value()));
    }
}
