//! The one shape of schema that is checked by hand: an object of strings, some of them required.
//!
//! Most tools that are written by hand look like this, and a server holds many of them. Anything beyond
//! this shape, however little, goes to the full validator, so that there is one meaning of every keyword.

use serde_json::{Map, Value};

use super::{Fault, clip};
use crate::arguments::quote;
use crate::walk::pointer;

/// The drafts in which the keywords here mean the same.
const DRAFTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
];

/// An object of strings.
#[derive(Debug)]
pub(super) struct Plain {
    strings: Vec<String>,
    required: Vec<String>,
    /// Whether other properties are refused.
    closed: bool,
}

impl Plain {
    /// Reads a schema, if it has the one shape.
    pub(super) fn read(schema: &Value) -> Option<Self> {
        let mut plain = Self { strings: Vec::new(), required: Vec::new(), closed: false };
        let keywords = schema.as_object()?;
        if keywords.get("type")? != "object" {
            return None;
        }
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "type" => {}
                "title" | "description" => drop(value.as_str()?),
                "$schema" => drop(DRAFTS.iter().find(|draft| value == **draft)?),
                "properties" => plain.strings = strings(value.as_object()?)?,
                "required" => plain.required = names(value)?,
                "additionalProperties" => plain.closed = !value.as_bool()?,
                _ => return None,
            }
        }
        Some(plain)
    }

    /// What does not fit.
    pub(super) fn faults(&self, entries: &Map<String, Value>) -> impl Iterator<Item = Fault> {
        let missing = self.required.iter().filter(|name| !entries.contains_key(*name)).map(|name| Fault {
            at: String::new(),
            why: clip(&format!("{} is a required property", quote(name))),
        });
        let no_strings =
            self.strings.iter().filter(|name| entries.get(*name).is_some_and(|v| !v.is_string())).map(
                |name| Fault {
                    at: pointer(std::iter::once(name.as_str())),
                    why: "value is not of type \"string\"".to_owned(),
                },
            );
        let unexpected =
            entries.keys().filter(|name| self.closed && !self.strings.contains(name)).map(|name| Fault {
                at: String::new(),
                why: clip(&format!("the property {} is not allowed", quote(name))),
            });
        missing.chain(no_strings).chain(unexpected)
    }
}

/// The names of properties that are all plain strings.
fn strings(properties: &Map<String, Value>) -> Option<Vec<String>> {
    let plain = |property: &Value| {
        let keywords = property.as_object()?;
        let said = keywords.iter().all(|(keyword, value)| match keyword.as_str() {
            "type" => value == "string",
            "title" | "description" => value.is_string(),
            _ => false,
        });
        (said && keywords.contains_key("type")).then_some(())
    };
    properties.iter().map(|(name, property)| plain(property).map(|()| name.clone())).collect()
}

/// A list of names, each once: the validator refuses a schema that says one twice.
fn names(list: &Value) -> Option<Vec<String>> {
    let names: Vec<String> =
        list.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>()?;
    let repeated = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    (!repeated).then_some(names)
}
