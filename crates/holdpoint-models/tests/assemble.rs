#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.
//! Which fragment belongs to which call: tables of what servers really send.

use holdpoint_core::arguments::ARGUMENTS_MAX_BYTES;
use holdpoint_models::assemble::{Assembler, CALLS_MAX, Fragment, Habits, NAME_MAX_BYTES, TooMuch};

type Row<'a> = (Option<u64>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn fragment<'a>((index, id, name, arguments): Row<'a>) -> Fragment<'a> {
    Fragment { index, id, name, arguments, ..Fragment::default() }
}

fn read(habits: Habits, rows: &[Row<'_>]) -> Vec<(String, String, String)> {
    let mut assembler = Assembler::new(habits);
    for row in rows {
        assembler.take(fragment(*row)).unwrap();
    }
    assembler.finish().into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
}

const NONE: Option<&str> = None;

#[test]
fn every_fragment_finds_its_call() {
    let (lund, umea) = (r#"{"q":"Lund"}"#, r#"{"q":"Umeå"}"#);
    type Case<'a> = (&'a str, Vec<Row<'a>>, Vec<(&'a str, &'a str, &'a str)>);
    let cases: Vec<Case<'_>> = vec![
        (
            // https://github.com/openai/openai-python/issues/2806
            "no index, one call in pieces",
            vec![
                (None, Some("gm-7"), Some("move_stock"), Some(r#"{"sku":"P-11","#)),
                (None, NONE, NONE, Some(r#""qty":4}"#)),
            ],
            vec![("gm-7", "move_stock", r#"{"sku":"P-11","qty":4}"#)],
        ),
        (
            // https://github.com/jin-bo/agentao/pull/117
            "no index, a call in each fragment",
            vec![
                (None, Some("a1"), Some("get_city"), Some(lund)),
                (None, Some("a2"), Some("get_zone"), Some(umea)),
            ],
            vec![("a1", "get_city", lund), ("a2", "get_zone", umea)],
        ),
        (
            // https://github.com/huggingface/smolagents/pull/1958
            "index 0 for all, ids differ",
            vec![
                (Some(0), Some("o1"), Some("get_city"), Some(lund)),
                (Some(0), Some("o2"), Some("get_city"), Some(umea)),
            ],
            vec![("o1", "get_city", lund), ("o2", "get_city", umea)],
        ),
        (
            "index 0 for all, interleaved by id",
            vec![
                (Some(0), Some("a"), Some("f"), Some("{\"a\"")),
                (Some(0), Some("b"), Some("g"), Some("{\"b\"")),
                (Some(0), Some("a"), NONE, Some(":1}")),
                (Some(0), Some("b"), NONE, Some(":2}")),
            ],
            vec![("a", "f", r#"{"a":1}"#), ("b", "g", r#"{"b":2}"#)],
        ),
        (
            // https://github.com/huggingface/smolagents/pull/1958
            "same index, no ids, same name: whole arguments followed by new ones",
            vec![
                (Some(0), NONE, Some("get_city"), Some(lund)),
                (Some(0), NONE, Some("get_city"), Some(umea)),
            ],
            vec![("", "get_city", lund), ("", "get_city", umea)],
        ),
        (
            "the same, with equal arguments: still two requests",
            vec![
                (Some(0), NONE, Some("get_city"), Some(lund)),
                (Some(0), NONE, Some("get_city"), Some(lund)),
            ],
            vec![("", "get_city", lund), ("", "get_city", lund)],
        ),
        (
            "two interleaved calls, by index",
            vec![
                (Some(0), Some("a"), Some("f"), Some("{\"x\"")),
                (Some(1), Some("b"), Some("g"), Some("{\"y\"")),
                (Some(1), NONE, NONE, Some(":2}")),
                (Some(0), NONE, NONE, Some(":1}")),
            ],
            vec![("a", "f", r#"{"x":1}"#), ("b", "g", r#"{"y":2}"#)],
        ),
        (
            "the same id for two indexes",
            vec![(Some(0), Some("a"), Some("f"), Some("{}")), (Some(1), Some("a"), Some("f"), Some("{ }"))],
            vec![("a", "f", "{}"), ("a", "f", "{ }")],
        ),
        (
            "indexes that start at 3 and jump",
            vec![
                (Some(3), Some("a"), Some("f"), Some("{}")),
                (Some(5_000_000), Some("b"), Some("g"), Some("{}")),
            ],
            vec![("a", "f", "{}"), ("b", "g", "{}")],
        ),
        (
            // https://github.com/openai/codex/issues/7579
            "empty id and name on a continuation",
            vec![
                (Some(0), Some("q9"), Some("pay"), Some("")),
                (Some(0), Some(""), Some(""), Some(r#"{"sum":3}"#)),
            ],
            vec![("q9", "pay", r#"{"sum":3}"#)],
        ),
        (
            // https://github.com/vercel/ai/pull/15879
            "arguments before the name",
            vec![
                (Some(0), Some("s1"), Some(""), Some(r#"{"sku":"#)),
                (Some(0), NONE, Some("move_stock"), Some(r#""P-1"}"#)),
            ],
            vec![("s1", "move_stock", r#"{"sku":"P-1"}"#)],
        ),
        (
            // https://github.com/NousResearch/hermes-agent/issues/11984
            "the whole name in every fragment",
            vec![
                (Some(0), Some("h"), Some("move_stock"), Some("{\"a\"")),
                (Some(0), NONE, Some("move_stock"), Some(":")),
                (Some(0), NONE, Some("move_stock"), Some("1}")),
                (Some(0), NONE, Some("move_stock"), NONE),
            ],
            vec![("h", "move_stock", r#"{"a":1}"#)],
        ),
        (
            "the id in every fragment",
            vec![
                (Some(0), Some("f1"), Some("f"), Some("{")),
                (Some(0), Some("f1"), NONE, Some("\"a\"")),
                (Some(0), Some("f1"), NONE, Some(":1")),
                (Some(0), Some("f1"), NONE, Some("}")),
            ],
            vec![("f1", "f", r#"{"a":1}"#)],
        ),
        (
            "id and name in every fragment, no index",
            vec![
                (None, Some("f1"), Some("f"), Some("{")),
                (None, Some("f1"), Some("f"), Some("\"a\":1")),
                (None, Some("f1"), Some("f"), Some("}")),
            ],
            vec![("f1", "f", r#"{"a":1}"#)],
        ),
        (
            // https://github.com/vllm-project/vllm/issues/51697
            "the final flush repeats the arguments: no object any more, and so never run",
            vec![
                (Some(0), Some("v"), Some("f"), Some(r#"{"a":1}"#)),
                (Some(0), Some("v"), Some("f"), Some(r#"{"a":1}"#)),
            ],
            vec![("v", "f", r#"{"a":1}{"a":1}"#)],
        ),
        (
            // https://github.com/NousResearch/hermes-agent/pull/35718
            "cumulative arguments without knowing that they are: no object either",
            vec![
                (Some(0), Some("c"), Some("f"), Some("{\"q\":")),
                (Some(0), NONE, NONE, Some("{\"q\":\"x\"")),
                (Some(0), NONE, NONE, Some("{\"q\":\"x\"}")),
            ],
            vec![("c", "f", "{\"q\":{\"q\":\"x\"{\"q\":\"x\"}")],
        ),
        (
            "the id comes after the name",
            vec![(None, NONE, Some("f"), NONE), (None, Some("z"), NONE, Some("{}"))],
            vec![("z", "f", "{}")],
        ),
        (
            "another name without ids or indexes",
            vec![(None, NONE, Some("f"), NONE), (None, NONE, Some("g"), Some("{}"))],
            vec![("", "f", ""), ("", "g", "{}")],
        ),
        (
            "the index comes only after the id",
            vec![(None, Some("a"), Some("f"), Some("{")), (Some(2), Some("a"), NONE, Some("}"))],
            vec![("a", "f", "{}")],
        ),
        (
            "nothing in it opens nothing",
            vec![(Some(0), Some(""), Some(""), Some("")), (None, NONE, NONE, NONE)],
            vec![],
        ),
        (
            "arguments without any call are not lost",
            vec![(None, NONE, NONE, Some("{}"))],
            vec![("", "", "{}")],
        ),
        (
            // https://github.com/livekit/agents/pull/5411
            "encoded twice, an object inside",
            vec![(Some(0), Some("d"), Some("f"), Some(r#""{\"order\":\"A7\"}""#))],
            vec![("d", "f", r#"{"order":"A7"}"#)],
        ),
        (
            "encoded twice, no object inside: stays, and is refused",
            vec![(Some(0), Some("d"), Some("f"), Some(r#""hello""#))],
            vec![("d", "f", r#""hello""#)],
        ),
    ];
    for (title, rows, expected) in cases {
        let calls = read(Habits::default(), &rows);
        let calls: Vec<_> =
            calls.iter().map(|(id, name, args)| (id.as_str(), name.as_str(), args.as_str())).collect();
        assert_eq!(calls, expected, "{title}");
    }
}

#[test]
fn known_habits_are_undone() {
    let cumulative = Habits { cumulative_arguments: true, ..Habits::default() };
    let rows = [
        (Some(0), Some("c"), Some("f"), Some("{\"q\":")),
        (Some(0), NONE, NONE, Some("{\"q\":\"x\"")),
        (Some(0), NONE, NONE, Some("{\"q\":\"x\"}")),
    ];
    assert_eq!(read(cumulative, &rows), [("c".into(), "f".into(), "{\"q\":\"x\"}".into())]);

    let repeats = Habits { repeats_at_close: true, ..Habits::default() };
    for (last, expected) in [("{\"a\":1}", "{\"a\":1}"), ("{\"a\":2}", "{\"a\":1}{\"a\":2}")] {
        let mut assembler = Assembler::new(repeats);
        assembler.take(fragment((Some(0), Some("v"), Some("f"), Some("{\"a\":1}")))).unwrap();
        let closing = Fragment { closing: true, ..fragment((Some(0), NONE, Some("f"), Some(last))) };
        assembler.take(closing).unwrap();
        assert_eq!(assembler.finish()[0].arguments, expected);
    }
}

#[test]
fn an_entry_of_a_whole_body_is_always_a_call_of_its_own() {
    let mut assembler = Assembler::default();
    for _ in 0..2 {
        assembler.take(Fragment { opens: true, ..fragment((None, Some("a"), Some("f"), NONE)) }).unwrap();
    }
    assert_eq!(assembler.len(), 2);
}

#[test]
fn whether_a_call_is_whole_is_told_by_its_text() {
    for (arguments, whole) in [
        ("", false),
        ("{", false),
        (r#"{"a":"}"#, false),
        (r#"{"a":"}\""}"#, true),
        (r#"{"a":[1,{"b":2}]} "#, true),
        (r#"{"a":1}{"#, false),
        (r#""{}""#, true),
        ("12", false),
    ] {
        let mut assembler = Assembler::default();
        // In two pieces, asked in between: the answer must not depend on when it is asked.
        let (one, two) = arguments.split_at(arguments.len() / 2);
        assembler.take(fragment((Some(0), Some("a"), Some("f"), Some(one)))).unwrap();
        assembler.all_whole();
        assembler.take(fragment((Some(0), NONE, NONE, Some(two)))).unwrap();
        assert_eq!(assembler.all_whole(), whole, "{arguments}");
    }
    let mut nameless = Assembler::default();
    nameless.take(fragment((Some(0), Some("a"), NONE, Some("{}")))).unwrap();
    assert!(!nameless.all_whole());
}

#[test]
fn a_second_text_of_the_same_call_must_be_the_same_text() {
    let mut assembler = Assembler::default();
    let call = assembler.take(fragment((Some(0), Some("a"), Some("f"), NONE))).unwrap().unwrap().call;
    assert!(assembler.confirm(call, "{\"a\":1}"), "nothing came in pieces: the whole text counts");
    assert!(assembler.confirm(call, "{\"a\":1}"));
    assert!(!assembler.confirm(call, "{\"a\": 1}"));
    assert!(!assembler.confirm(7, "{}"), "no such call");
}

#[test]
fn arguments_are_kept_just_long_enough_to_be_refused_as_too_large() {
    let bound = ARGUMENTS_MAX_BYTES;
    for (bytes, kept) in
        [(bound - 1, bound - 1), (bound, bound), (bound + 1, bound + 1), (bound + 9_999, bound + 1)]
    {
        let text = "x".repeat(bytes);
        let rows: Vec<Row<'_>> = text
            .as_bytes()
            .chunks(1_000)
            .map(|piece| (Some(0), Some("a"), NONE, Some(std::str::from_utf8(piece).unwrap())))
            .collect();
        assert_eq!(read(Habits::default(), &rows)[0].2.len(), kept);
    }
    // A character that straddles the bound is not cut in two.
    let wide = "å".repeat(bound);
    assert_eq!(read(Habits::default(), &[(Some(0), Some("a"), NONE, Some(&wide))])[0].2.len(), bound + 2);
}

#[test]
fn calls_names_and_ids_are_bounded() {
    let mut assembler = Assembler::default();
    for n in 0..CALLS_MAX as u64 {
        assembler.take(fragment((Some(n), NONE, Some("f"), NONE))).unwrap();
    }
    assert_eq!(assembler.take(fragment((Some(u64::MAX), NONE, Some("f"), NONE))), Err(TooMuch::Calls));
    assembler.take(fragment((Some(0), NONE, NONE, Some("{}")))).unwrap();

    let long = "n".repeat(NAME_MAX_BYTES);
    assert!(Assembler::default().take(fragment((None, Some(&long), Some(&long), NONE))).is_ok());
    let longer = "n".repeat(NAME_MAX_BYTES + 1);
    for row in [(None, Some(longer.as_str()), NONE, NONE), (None, NONE, Some(longer.as_str()), NONE)] {
        assert_eq!(Assembler::default().take(fragment(row)), Err(TooMuch::Name));
    }
}
