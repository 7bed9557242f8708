use super::*;
use crate::arguments::ARGUMENTS_MAX_BYTES;

fn by() -> ActorId {
    ActorId::new("configuration").unwrap()
}

fn read(releases: serde_json::Value) -> Result<Preset, String> {
    let releases: Vec<Release> = serde_json::from_value(releases).map_err(|error| error.to_string())?;
    Preset::new("night", by(), releases).map_err(|error| error.to_string())
}

fn arguments(text: &str) -> Arguments {
    Arguments::parse(text, ARGUMENTS_MAX_BYTES).unwrap()
}

#[test]
fn a_preset_releases_what_it_names_exactly_and_nothing_else() {
    let preset = read(serde_json::json!([{"tool": "Write"}, {"tool": "pay"}])).unwrap();
    let any = arguments("{}");
    assert!(preset.releases("Write", &any) && preset.releases("pay", &any));
    for other in ["write", "Write ", "WriteAll", "Writ", "", "*", "Write\0", "Wr\u{200b}ite"] {
        assert!(!preset.releases(other, &any), "{other:?}");
    }
}

#[test]
fn a_condition_that_cannot_be_judged_is_not_met() {
    let when = |condition| read(serde_json::json!([{"tool": "pay", "when": {"x": condition}}])).unwrap();
    for (condition, met, not_met) in [
        (
            serde_json::json!({"equals": "a"}),
            vec![r#"{"x":"a"}"#, r#"{"x":"a","y":1}"#, r#"{"x":"\u0061"}"#],
            vec![
                "{}",
                r#"{"x":"A"}"#,
                r#"{"x":["a"]}"#,
                r#"{"x":null}"#,
                r#"{"X":"a"}"#,
                r#"{"y":{"x":"a"}}"#,
            ],
        ),
        (
            serde_json::json!({"one_of": ["a", 7, true]}),
            vec![r#"{"x":"a"}"#, r#"{"x":7}"#, r#"{"x":true}"#],
            vec![r#"{"x":"7"}"#, r#"{"x":7.0}"#, r#"{"x":"true"}"#, r#"{"x":1}"#, r#"{"x":false}"#],
        ),
        (
            serde_json::json!({"at_least": -5, "at_most": 100}),
            vec![r#"{"x":-5}"#, r#"{"x":100}"#, r#"{"x":99.5}"#, r#"{"x":1e2}"#],
            vec![
                r#"{"x":-6}"#,
                r#"{"x":101}"#,
                r#"{"x":100.5}"#,
                r#"{"x":"5"}"#,
                r#"{"x":18446744073709551615}"#,
                "{}",
                r#"{"x":[5]}"#,
            ],
        ),
        // 2^53 + 1 cannot be told from 2^53 as a double: a fraction beside it is not judged.
        (
            serde_json::json!({"at_most": 9_007_199_254_740_993_i64}),
            vec![r#"{"x":9007199254740993}"#],
            vec![r#"{"x":9007199254740994}"#, r#"{"x":1.5}"#],
        ),
    ] {
        let preset = when(condition.clone());
        for text in met {
            assert!(preset.releases("pay", &arguments(text)), "{condition} {text}");
        }
        for text in not_met {
            assert!(!preset.releases("pay", &arguments(text)), "{condition} {text}");
        }
    }
}

#[test]
fn every_condition_must_be_met_and_any_entry_of_a_tool_is_enough() {
    let preset = read(serde_json::json!([
        {"tool": "pay", "when": {"to": {"equals": "ana"}, "sum": {"at_most": 10}}},
        {"tool": "pay", "when": {"to": {"equals": "bo"}}},
    ]))
    .unwrap();
    for (text, released) in [
        (r#"{"to":"ana","sum":10}"#, true),
        (r#"{"to":"ana","sum":11}"#, false),
        (r#"{"to":"ana"}"#, false),
        (r#"{"to":"bo","sum":9000}"#, true),
        (r#"{"sum":1}"#, false),
    ] {
        assert_eq!(preset.releases("pay", &arguments(text)), released, "{text}");
    }
}

#[test]
fn what_can_hardly_be_meant_is_refused() {
    for (releases, says) in [
        (serde_json::json!([]), "releases nothing"),
        (serde_json::json!([{"tool": "*"}]), "takes no patterns"),
        (serde_json::json!([{"tool": "wr?te"}]), "takes no patterns"),
        (serde_json::json!([{"tool": ""}]), "not the exact name"),
        (serde_json::json!([{"tool": "pay", "when": {"x": {}}}]), "on `x` of `pay` says nothing"),
        (serde_json::json!([{"tool": "pay", "when": {"x": {"one_of": []}}}]), "can never be met"),
        (
            serde_json::json!([{"tool": "pay", "when": {"x": {"equals": 1.5}}}]),
            "a text, a whole number, true or false",
        ),
        (
            serde_json::json!([{"tool": "pay", "when": {"x": {"equals": ["a"]}}}]),
            "a text, a whole number, true or false",
        ),
        (serde_json::json!([{"tool": "pay", "when": {"x": {"equal": 1}}}]), "unknown field `equal`"),
        (serde_json::json!([{"tool": "pay", "unless": {}}]), "unknown field `unless`"),
    ] {
        let error = read(releases.clone()).unwrap_err();
        assert!(error.contains(says), "{releases}: {error}");
    }
    let release = || Release { tool: "pay".into(), when: BTreeMap::new() };
    for name in ["", "a b", "a:b", "ä", &"x".repeat(PRESET_NAME_MAX_BYTES + 1)] {
        assert!(Preset::new(name, by(), [release()]).is_err(), "{name:?}");
    }
    assert!(Preset::new("x".repeat(PRESET_NAME_MAX_BYTES), by(), [release()]).is_ok());
}

#[test]
fn its_decisions_are_its_own_and_name_its_version_and_who_wrote_it() {
    let base = || serde_json::json!([{"tool": "pay", "when": {"sum": {"at_most": 10}}}]);
    let preset = read(base()).unwrap();
    assert_eq!(preset.actor().as_str(), "preset:night");
    let used = preset.used();
    assert_eq!((used.name.as_str(), used.written_by.as_str()), ("night", "configuration"));
    assert_eq!(read(base()).unwrap().version(), used.version);
    for other in [
        serde_json::json!([{"tool": "pay", "when": {"sum": {"at_most": 11}}}]),
        serde_json::json!([{"tool": "pay", "when": {"sum": {"at_least": 10}}}]),
        serde_json::json!([{"tool": "pay", "when": {"Sum": {"at_most": 10}}}]),
        serde_json::json!([{"tool": "pay"}]),
        serde_json::json!([{"tool": "pay", "when": {"sum": {"at_most": 10}}}, {"tool": "Write"}]),
    ] {
        assert_ne!(read(other.clone()).unwrap().version(), used.version, "{other}");
    }
    let by_ana = Preset::new("night", ActorId::new("ana").unwrap(), preset.releases.clone()).unwrap();
    assert_ne!(by_ana.version(), used.version);
}
