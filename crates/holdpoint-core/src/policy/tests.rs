use proptest::prelude::*;

use super::*;

fn policy(name: &str, allow: &[&str], ask: &[&str], deny: &[&str]) -> Policy {
    Policy::builder(name)
        .allow(allow.iter().copied())
        .require_approval_for(ask.iter().copied())
        .deny(deny.iter().copied())
        .build()
        .unwrap()
}

fn ruled(stack: &PolicyStack, tool: &str) -> (Verdict, String) {
    let ruling = stack.rule(tool);
    (ruling.verdict, format!("{}: {}", ruling.reason.policy, ruling.reason.rule))
}

#[test]
fn a_pattern_matches_whole_names_and_nothing_else() {
    for (pattern, matching, other) in [
        ("*", vec!["a", "read_file", ""], vec![]),
        ("read_*", vec!["read_", "read_file"], vec!["read", "xread_file", "Read_file", "read-file"]),
        ("*_file", vec!["read_file", "_file"], vec!["read_files", "file"]),
        ("read", vec!["read"], vec!["read_file", "readread", "", "rea"]),
        ("a?c", vec!["abc", "a-c"], vec!["ac", "abbc"]),
        ("a*b*c", vec!["abc", "axxbyyc", "abcbc"], vec!["ab", "acb", "abcd"]),
        ("**a**", vec!["a", "xax"], vec!["", "x"]),
        ("*?", vec!["a", "ab"], vec![""]),
    ] {
        let glob: Glob = pattern.parse().unwrap();
        matching.iter().for_each(|name| assert!(glob.matches(name), "{pattern} {name}"));
        other.iter().for_each(|name| assert!(!glob.matches(name), "{pattern} {name}"));
    }
}

/// https://github.com/BerriAI/litellm/issues/30732
#[test]
fn variants_of_a_name_are_not_the_name() {
    let stack = PolicyStack::new([policy("p", &["delete_file"], &[], &[])]);
    assert_eq!(stack.rule("delete_file").verdict, Verdict::Allow);
    for variant in ["Delete_File", " delete_file", "delete_file\n", "delete_file\u{200b}", "delete_file\0"] {
        assert_eq!(ruled(&stack, variant), (Verdict::Ask, "p: unlisted".into()), "{variant:?}");
    }
}

#[test]
fn a_pattern_that_no_tool_can_have_is_refused_when_it_is_loaded() {
    for bad in
        ["", "read file", "db.drop", "files/read", "rm_[ab]", "{a,b}", "!x", "re\\*d", "r\u{435}ad", "a\n"]
    {
        assert!(bad.parse::<Glob>().is_err(), "{bad:?}");
        assert!(serde_json::from_value::<Glob>(serde_json::json!(bad)).is_err());
    }
    assert!("x".repeat(PATTERN_MAX_BYTES).parse::<Glob>().is_ok());
    assert!("x".repeat(PATTERN_MAX_BYTES + 1).parse::<Glob>().is_err());
    let error = "db.drop".parse::<Glob>().unwrap_err().to_string();
    insta::assert_snapshot!(error, @"the pattern `db.drop` can match no tool: names have ASCII letters, digits, `_` and `-`, not `.`");
}

#[test]
fn deny_is_stronger_than_ask_and_ask_than_allow_and_unlisted_asks() {
    let stack = PolicyStack::new([policy("ops", &["*_file", "rm_tree"], &["write_*"], &["rm_*"])]);
    for (tool, verdict, rule) in [
        ("read_file", Verdict::Allow, "ops: allow = \"*_file\""),
        ("write_file", Verdict::Ask, "ops: require_approval_for = \"write_*\""),
        ("rm_file", Verdict::Deny, "ops: deny = \"rm_*\""),
        ("rm_tree", Verdict::Deny, "ops: deny = \"rm_*\""),
        ("send_mail", Verdict::Ask, "ops: unlisted"),
    ] {
        assert_eq!(ruled(&stack, tool), (verdict, rule.into()), "{tool}");
    }
}

#[test]
fn without_a_policy_everything_asks() {
    assert_eq!(ruled(&PolicyStack::default(), "read_file"), (Verdict::Ask, "default: unlisted".into()));
    assert!(PolicyStack::default().explain("x").is_empty());
}

/// SEMANTICS 10, 34: a layer can only tighten.
#[test]
fn the_strictest_layer_wins_and_every_layer_is_explained() {
    let operator = policy("operator", &["read_*", "send_*"], &[], &["rm_*"]);
    let agent = policy("agent", &["*"], &["send_mail"], &["read_secret"]);
    let stack = PolicyStack::new([operator]).with(agent);
    assert_eq!(ruled(&stack, "read_file"), (Verdict::Allow, "operator: allow = \"read_*\"".into()));
    assert_eq!(
        ruled(&stack, "send_mail"),
        (Verdict::Ask, "agent: require_approval_for = \"send_mail\"".into())
    );
    assert_eq!(ruled(&stack, "rm_x"), (Verdict::Deny, "operator: deny = \"rm_*\"".into()));
    assert_eq!(ruled(&stack, "read_secret"), (Verdict::Deny, "agent: deny = \"read_secret\"".into()));
    assert_eq!(ruled(&stack, "new_tool"), (Verdict::Ask, "operator: unlisted".into()));
    let verdicts: Vec<_> = stack.explain("rm_x").into_iter().map(|ruling| ruling.verdict).collect();
    assert_eq!(verdicts, [Verdict::Deny, Verdict::Allow]);
}

#[test]
fn the_version_changes_with_any_rule_and_only_then() {
    let base = || policy("p", &["a", "b"], &["c"], &["d"]);
    let version = PolicyStack::new([base()]).version();
    assert_eq!(PolicyStack::new([base()]).version(), version);
    for other in [
        policy("q", &["a", "b"], &["c"], &["d"]),
        policy("p", &["a"], &["b", "c"], &["d"]),
        policy("p", &["ab"], &["c"], &["d"]),
        policy("p", &["a", "b"], &["c"], &["d", "e"]),
        policy("p", &["a", "b"], &["c", "d"], &[]),
    ] {
        assert_ne!(PolicyStack::new([other.clone()]).version(), version, "{other:?}");
    }
    assert_ne!(PolicyStack::new([base(), base()]).version(), version);
    assert_ne!(PolicyStack::default().version(), version);
}

/// https://github.com/anthropics/claude-code/issues/68595
#[test]
fn a_rule_for_a_tool_that_does_not_exist_is_named() {
    let policy = policy("p", &["read_*"], &["WriteFile", "write_file"], &["rm_*"]);
    let dead = policy.rules_without_a_tool(["read_file", "write_file"].into_iter());
    assert_eq!(dead, ["deny = \"rm_*\"", "require_approval_for = \"WriteFile\""]);
}

#[test]
fn a_misspelt_key_is_refused() {
    let read = |json: serde_json::Value| serde_json::from_value::<Policy>(json);
    let good = read(serde_json::json!({"name": "p", "allow": ["read_*"], "deny": ["rm_*"]})).unwrap();
    assert_eq!(good, policy("p", &["read_*"], &[], &["rm_*"]));
    assert!(read(serde_json::json!({"require_aproval_for": ["*"]})).is_err());
    assert!(read(serde_json::json!({"deny": "rm_*"})).is_err());
}

/// The plainest matcher there is, to hold the fast one against.
fn plain(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => plain(&pattern[1..], name) || (!name.is_empty() && plain(pattern, &name[1..])),
        (Some(b'?'), Some(_)) => plain(&pattern[1..], &name[1..]),
        (Some(a), Some(b)) if a == b => plain(&pattern[1..], &name[1..]),
        (Some(_), _) | (None, Some(_)) => false,
    }
}

proptest! {
    #[test]
    fn a_pattern_matches_as_the_plain_matcher_says(pattern in "[ab*?]{1,10}", name in "[ab]{0,12}") {
        let glob: Glob = pattern.parse().unwrap();
        prop_assert_eq!(glob.matches(&name), plain(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn a_further_layer_never_loosens(
        outer in prop::collection::vec("[ab*?]{1,3}", 0..4), inner in prop::collection::vec("[ab*?]{1,3}", 0..4), name in "[ab]{1,3}",
    ) {
        let half = |patterns: &[String]| {
            let (a, b) = patterns.split_at(patterns.len() / 2);
            Policy::builder("p").allow(a.to_vec()).deny(b.to_vec()).build().unwrap()
        };
        let stack = PolicyStack::new([half(&outer)]);
        prop_assert!(stack.with(half(&inner)).rule(&name).verdict >= stack.rule(&name).verdict);
    }
}

#[test]
fn many_stars_do_not_make_matching_slow() {
    let glob: Glob = format!("{}b", "a*".repeat(47)).parse().unwrap();
    assert!(!glob.matches(&"a".repeat(1_000_000)));
}
