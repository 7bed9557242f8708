//! Reading JSON so that nothing has to be guessed: no key twice, nothing after the end, bounded depth.
//!
//! The grammar is serde_json's. What is added on the way through: keys are compared as they read (`"a"` and
//! `"\u0061"` are one key), and depth is counted here, below the parser's own limit, so that the
//! refusal has a name. The recursion never goes deeper than the bound, whatever the text.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{InvalidArguments, InvalidKind, quote};
use crate::walk::pointer;

/// What was found on the way, beside what serde can carry.
#[derive(Default)]
struct Findings {
    fault: RefCell<Option<(InvalidKind, String)>>,
    /// The steps from the fault outwards.
    path: RefCell<Vec<String>>,
}

/// Reads one JSON value.
pub(super) fn parse(text: &str, max_depth: usize) -> Result<Value, InvalidArguments> {
    let findings = Findings::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Strict { findings: &findings, depth_left: max_depth };
    seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value)).map_err(
        |error| {
            let path = findings.path.into_inner();
            match findings.fault.into_inner() {
                Some((kind, message)) => {
                    InvalidArguments { kind, at: pointer(path.iter().rev().map(String::as_str)), message }
                }
                None => malformed(&error),
            }
        },
    )
}

fn malformed(error: &serde_json::Error) -> InvalidArguments {
    let whole = error.to_string();
    let message = whole.split(" at line ").next().unwrap_or(&whole);
    // The one syntax error that is about a value and not about the grammar.
    let kind = if message == "number out of range" { InvalidKind::Number } else { InvalidKind::Malformed };
    InvalidArguments {
        kind,
        at: format!("line {} column {}", error.line(), error.column()),
        message: format!("the arguments are not one JSON object: {message}"),
    }
}

#[derive(Clone, Copy)]
struct Strict<'f> {
    findings: &'f Findings,
    depth_left: usize,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(self.refuse(InvalidKind::TooDeep, "the arguments are nested too deep".into())),
        }
    }

    fn refuse<E: serde::de::Error>(self, kind: InvalidKind, message: String) -> E {
        *self.findings.fault.borrow_mut() = Some((kind, message));
        E::custom("refused")
    }

    /// Notes the step on the way out of a fault; nothing is noted while all is well.
    fn at<T, E>(self, step: impl FnOnce() -> String, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() && self.findings.fault.borrow().is_some() {
            self.findings.path.borrow_mut().push(step());
        }
        result
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = self.at(|| items.len().to_string(), access.next_element_seed(inner))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut entries = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if entries.contains_key(&key) {
                let message = format!("the key {} appears twice", quote(&key));
                return self.at(|| key, Err(self.refuse(InvalidKind::DuplicateKey, message)));
            }
            let value = self.at(|| key.clone(), access.next_value_seed(inner))?;
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }
}
