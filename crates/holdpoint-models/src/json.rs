//! Reading what providers send in place of the JSON their documents promise. Lenient about form, never about
//! meaning.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// What a lone surrogate in a string becomes. JSON text can hold one; a Rust string cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lone {
    /// The replacement character: for text that is shown.
    Replaced,
    /// The escape itself, `\ud83d`: for argument text, which is JSON again. A pair cut in two over two fragments is
    /// then a pair again, and a lone one is refused with the arguments.
    Escaped,
}

/// `Cow` by itself is always owned when it is deserialised.
#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

fn unquote(text: &str, lone: Lone) -> Cow<'_, str> {
    match serde_json::from_str(text) {
        Ok(Borrowed(whole)) => whole,
        // A raw value was checked when it was read: only surrogates can be wrong in it.
        Err(_) => Cow::Owned(with_lone_surrogates(text.trim_matches('"'), lone)),
    }
}

fn with_lone_surrogates(inside: &str, lone: Lone) -> String {
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let (escape, tail) = tail.split_at_checked(escape_length(tail)).unwrap_or((tail, ""));
        match (serde_json::from_str::<String>(&format!("\"{escape}\"")), lone) {
            (Ok(text), _) => out.push_str(&text),
            (Err(_), Lone::Replaced) => out.push(char::REPLACEMENT_CHARACTER),
            (Err(_), Lone::Escaped) => out.push_str(escape),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn escape_length(text: &str) -> usize {
    let unit = |at: usize| u16::from_str_radix(text.get(at..at + 6)?.strip_prefix("\\u")?, 16).ok();
    match (unit(0), unit(6)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
        (Some(_), _) => 6,
        (None, _) => 2,
    }
}

/// The string a value is; `None` when it is none (`null` included).
pub(crate) fn text<'a>(raw: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    let text = raw?.get();
    text.starts_with('"').then(|| unquote(text, Lone::Replaced))
}

/// The argument text a value is: a string's inside, or the raw slice of anything else. `null` is absent.
pub(crate) fn arguments<'a>(raw: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    match raw?.get() {
        "null" => None,
        text if text.starts_with('"') => Some(unquote(text, Lone::Escaped)),
        text => Some(Cow::Borrowed(text)),
    }
}

/// A usable index: a whole number from 0. Anything else (negative, a string, `null`) is no index.
pub(crate) fn index(raw: Option<&RawValue>) -> Option<u64> {
    let text = raw?.get();
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        // 1.0 is 1; what a float cannot say exactly is no index.
        let whole = float.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&float);
        whole.then_some(float as u64)
    })
}

/// A count of tokens, however it is written; 0 when it is none.
pub(crate) fn count(raw: Option<&RawValue>) -> u64 {
    raw.and_then(|raw| raw.get().trim_matches('"').trim().parse().ok()).unwrap_or(0)
}

/// The entries of an array; none when it is no array.
pub(crate) fn entries(raw: Option<&RawValue>) -> Vec<&RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// A value read as `T`; `None` when it has another form.
pub(crate) fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_lone_surrogate_is_replaced_in_text_and_stays_an_escape_in_arguments() {
        for (json, shown, argument) in [
            (r#""a\ud83d""#, "a\u{FFFD}", r"a\ud83d"),
            (r#""\ude00b""#, "\u{FFFD}b", r"\ude00b"),
            (r#""\ud83d\ude00 \ud83d""#, "😀 \u{FFFD}", r"😀 \ud83d"),
            (r#""\\ud83d \ud83d\n""#, "\\ud83d \u{FFFD}\n", "\\ud83d \\ud83d\n"),
            (r#""plain \u00e5""#, "plain å", "plain å"),
        ] {
            let raw = raw(json);
            assert_eq!(text(Some(&raw)).unwrap(), shown, "{json}");
            assert_eq!(arguments(Some(&raw)).unwrap(), argument, "{json}");
        }
    }

    #[test]
    fn an_index_is_a_whole_number_from_zero_or_absent() {
        for (json, expected) in [
            ("0", Some(0)),
            ("4000000000", Some(4_000_000_000)),
            ("1.0", Some(1)),
            ("1.5", None),
            ("-1", None),
            ("\"0\"", None),
            ("null", None),
            ("1e400", None),
            ("{}", None),
        ] {
            assert_eq!(index(Some(&raw(json))), expected, "{json}");
        }
    }

    #[test]
    fn a_count_is_never_fatal() {
        for (json, expected) in [
            ("7", 7),
            ("\"7\"", 7),
            ("-7", 0),
            ("null", 0),
            ("[]", 0),
            ("1.5", 0),
            ("99999999999999999999", 0),
        ] {
            assert_eq!(count(Some(&raw(json))), expected, "{json}");
        }
        assert_eq!(count(None), 0);
    }
}
