//! Reading the JSON object of a request so that nothing has to be guessed.
//!
//! One object, nothing after it, no key twice at any depth, bounded depth, every field known. Values keep their own
//! bytes: what a person edits is stored and run as it was sent.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use holdpoint::core::arguments::ARGUMENTS_MAX_DEPTH;
use holdpoint::core::limits::{TIME_MAX, TIME_MIN};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// The deepest nesting of a body: arguments as deep as they may be, inside of the body's own object.
pub(crate) const BODY_MAX_DEPTH: usize = ARGUMENTS_MAX_DEPTH + 1;

/// The fields of an object, to be taken out one by one. What is left over was not known.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    entries: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads the body of a request.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(body).map_err(|_| bad("the body is not UTF-8"))?;
        check(text)?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let entries =
            deserializer.deserialize_map(Entries).map_err(|_| bad("the body must be one JSON object"))?;
        Ok(Self { entries })
    }

    /// Takes a field out.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let place = self.entries.iter().position(|(key, _)| key == name)?;
        Some(self.entries.swap_remove(place).1)
    }

    /// Takes a field that goes by two names; both at once are one too many.
    pub(crate) fn take_either(&mut self, name: &str, alias: &str) -> Result<Option<&'a RawValue>, Refusal> {
        match (self.take(name), self.take(alias)) {
            (Some(_), Some(_)) => Err(bad(format!("`{name}` and `{alias}` are one field; send one of them"))),
            (one, other) => Ok(one.or(other)),
        }
    }

    /// Takes a field that is a string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.take(name).map(|raw| text_of(name, raw)).transpose()
    }

    /// Takes a field that is true or false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(bad(format!("`{name}` must be true or false"))),
        }
    }

    /// Takes a field that is a time in whole milliseconds, within the bounds of a configured one.
    pub(crate) fn milliseconds(&mut self, name: &str) -> Result<Option<Duration>, Refusal> {
        let Some(raw) = self.take(name) else { return Ok(None) };
        match raw.get().parse().map(Duration::from_millis) {
            Ok(time) if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(Some(time)),
            Ok(_) | Err(_) => Err(bad(format!(
                "`{name}` must be a whole number of milliseconds, from {} (1 second) to {} (3650 days); leave it out for what is \
                 configured",
                TIME_MIN.as_millis(),
                TIME_MAX.as_millis()
            ))),
        }
    }

    /// Nothing may be left: a misspelt field would otherwise be taken for an absent one.
    pub(crate) fn finish(self, known: &str) -> Result<(), Refusal> {
        match self.entries.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                let detail = format!("unknown field {name:?}; known are: {known}");
                Err(Refusal::bad_request("unknown_field", detail))
            }
        }
    }
}

/// A field's value as a string.
pub(crate) fn text_of(name: &str, raw: &RawValue) -> Result<String, Refusal> {
    serde_json::from_str(raw.get()).map_err(|_| bad(format!("`{name}` must be a string")))
}

/// Arguments: a string is the exact text, an object is its own bytes.
pub(crate) fn arguments_of(name: &str, raw: &RawValue) -> Result<String, Refusal> {
    match raw.get().as_bytes().first() {
        Some(b'"') => text_of(name, raw),
        Some(b'{') => Ok(raw.get().to_owned()),
        _ => Err(bad(format!("`{name}` must be an object, or a string that holds its exact text"))),
    }
}

fn bad(detail: impl Into<String>) -> Refusal {
    Refusal::bad_request("bad_json", detail)
}

/// Walks through the whole text once, before anything of it is believed.
fn check(text: &str) -> Result<(), Refusal> {
    let found = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let walked = Walk { depth_left: BODY_MAX_DEPTH, found: &found }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    match (walked, found.into_inner()) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(why)) => Err(bad(why)),
        (Err(error), None) => {
            Err(bad(format!("not one JSON value: line {} column {}", error.line(), error.column())))
        }
    }
}

#[derive(Clone, Copy)]
struct Walk<'f> {
    depth_left: usize,
    found: &'f Cell<Option<&'static str>>,
}

impl Walk<'_> {
    fn refuse<E: serde::de::Error>(self, why: &'static str) -> E {
        self.found.set(Some(why));
        E::custom(why)
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(self.refuse("the body is nested too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while access.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        let mut keys = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if !keys.insert(key) {
                return Err(self.refuse("a key appears twice in one object"));
            }
            access.next_value_seed(inner)?;
        }
        Ok(())
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            if entries.len() == FIELDS_MAX {
                // No body of ours has nearly as many; what is left over is refused by name anyway.
                access.next_value::<IgnoredAny>()?;
                while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(entries);
            }
            entries.push((key, access.next_value()?));
        }
        Ok(entries)
    }
}

/// Fields of a body that are looked at.
const FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(open: &str, close: &str, depth: usize) -> String {
        format!("{{\"a\":{}{}}}", open.repeat(depth), close.repeat(depth))
    }

    #[test]
    fn what_would_have_to_be_guessed_is_refused() {
        for (what, text) in [
            ("nothing", "".to_owned()),
            ("no object", "[]".into()),
            ("a string", "\"a\"".into()),
            ("null", "null".into()),
            ("trailing bytes", "{}{}".into()),
            ("a trailing NUL", "{}\0".into()),
            ("a byte order mark", "\u{feff}{}".into()),
            ("a key twice", r#"{"decision":"decline","decision":"approve"}"#.into()),
            ("a key twice, once escaped", r#"{"decision":"decline","decisio\u006e":"approve"}"#.into()),
            ("a key twice inside", r#"{"arguments":{"to":"a","to":"b"}}"#.into()),
            ("a key twice deep inside", r#"{"arguments":[{"x":[{"to":1,"to":1}]}]}"#.into()),
            ("a lone surrogate", r#"{"a":"\ud83d"}"#.into()),
            ("a number out of range", r#"{"a":1e400}"#.into()),
            ("too deep", nested("[", "]", BODY_MAX_DEPTH)),
            ("much too deep", nested("[", "]", 100_000)),
            ("much too deep, objects", format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000))),
        ] {
            let refused = Fields::read(text.as_bytes()).unwrap_err();
            assert_eq!(refused.status().as_u16(), 400, "{what}");
        }
        assert_eq!(Fields::read(b"{\"a\":\"\xff\"}").unwrap_err().status().as_u16(), 400);
    }

    #[test]
    fn a_body_as_deep_as_arguments_may_be_is_read() {
        let text = nested("[", "]", BODY_MAX_DEPTH - 1);
        assert!(Fields::read(text.as_bytes()).is_ok());
    }

    #[test]
    fn an_object_keeps_its_own_bytes_and_a_string_is_the_exact_text() {
        let body = br#"{ "arguments" : { "sum" : 4e1,"b":9007199254740993 } , "s": "{\"sum\": 4e1 }" }"#;
        let mut fields = Fields::read(body).unwrap();
        let object = fields.take("arguments").unwrap();
        assert_eq!(arguments_of("arguments", object).unwrap(), r#"{ "sum" : 4e1,"b":9007199254740993 }"#);
        let string = fields.take("s").unwrap();
        assert_eq!(arguments_of("s", string).unwrap(), "{\"sum\": 4e1 }");
        fields.finish("none").unwrap();
    }

    #[test]
    fn a_field_that_is_not_known_is_refused_by_name() {
        let mut fields = Fields::read(br#"{"decision":"approve","args":{}}"#).unwrap();
        assert_eq!(fields.text("decision").unwrap().as_deref(), Some("approve"));
        assert_eq!(fields.finish("decision").unwrap_err().code(), "unknown_field");
    }

    #[test]
    fn a_body_with_very_many_keys_is_refused_by_name() {
        let many: Vec<String> = (0..50_000).map(|n| format!("\"k{n}\":0")).collect();
        let body = format!("{{{}}}", many.join(","));
        let fields = Fields::read(body.as_bytes()).unwrap();
        assert_eq!(fields.entries.len(), FIELDS_MAX);
        assert_eq!(fields.finish("none").unwrap_err().code(), "unknown_field");
    }
}
