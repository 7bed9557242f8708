//! Spans of time in configuration: a number and its unit, `30s`, `15m`, `24h`, `7d`.

use std::fmt;
use std::time::Duration;

use holdpoint_core::limits::{TIME_MAX, TIME_MIN};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A span of time within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => return Err(format!("{text:?} is not a time; {HOW}")),
        };
        let time = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
        match time.map(Duration::from_secs) {
            Some(time) if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(Self(time)),
            Some(_) | None => {
                Err(format!("{text:?} is out of bounds: a time is at least 1s and at most 3650d; {FOREVER}"))
            }
        }
    }
}

const HOW: &str = "write a whole number and its unit, such as \"30s\", \"15m\", \"24h\" or \"7d\"";
const FOREVER: &str = "a key that is left out has its default";

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, such as \"30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        Span::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Span, E> {
        Err(E::custom(format!("{number} has no unit; {HOW}")))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Span, E> {
        Err(E::custom(format!("{number} has no unit; {HOW}")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Span, E> {
        Err(E::custom(format!("{number:?} has no unit; {HOW}")))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Debug)]
    struct One {
        t: Span,
    }

    #[test]
    fn a_time_is_a_whole_number_and_its_unit_within_bounds() {
        for (text, seconds) in [
            ("1s", 1),
            ("30s", 30),
            ("15m", 900),
            ("24h", 86_400),
            ("7d", 604_800),
            ("3650d", 315_360_000),
            ("315360000s", 315_360_000),
        ] {
            let read: One = toml::from_str(&format!("t = {text:?}")).unwrap();
            assert_eq!(read.t.0.as_secs(), seconds, "{text}");
        }
    }

    #[test]
    fn a_time_that_could_mean_anything_else_is_refused_with_what_to_write() {
        for text in [
            "0",
            "-5",
            "1e308",
            "nan",
            "inf",
            "30",
            "9223372036854775807",
            "0.0001",
            "\"30\"",
            "\"0s\"",
            "\"-5s\"",
            "\"0.5s\"",
            "\"1e9s\"",
            "\"+5s\"",
            "\" 5s\"",
            "\"5 s\"",
            "\"5S\"",
            "\"3651d\"",
            "\"315360001s\"",
            "\"18446744073709551615s\"",
            "\"18446744073709551616s\"",
            "\"18446744073709551615d\"",
            "\"s\"",
            "\"\"",
            "\"forever\"",
        ] {
            let error = toml::from_str::<One>(&format!("t = {text}")).unwrap_err().to_string();
            let says = ["such as \"30s\"", "at least 1s and at most 3650d"];
            assert!(says.iter().any(|says| error.contains(says)), "{text}: {error}");
            assert!(error.contains("line 1, column 5"), "{text}: {error}");
        }
    }
}
