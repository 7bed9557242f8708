//! The arguments of a call: one text, read once and strictly.
//!
//! The text that is accepted here is the text that is shown, digested, decided on, stored and executed.
//! Nothing in it is coerced, repaired or filled in. What a lenient reader would have to guess about - a key
//! that stands there twice, a number that does not survive, bytes after the end - is refused, because two
//! readers would guess differently, and a person would then approve something else than what runs.

mod number;
mod strict;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use holdpoint_protocol::Status;
use serde_json::Value;

use crate::walk;

/// The longest argument text, in bytes.
pub const ARGUMENTS_MAX_BYTES: usize = 256 * 1024;

/// The deepest nesting of objects and arrays; the outermost object is depth 1.
pub const ARGUMENTS_MAX_DEPTH: usize = 64;

/// The longest name or piece of the model's text that is quoted in a message, in characters.
const QUOTED_MAX_CHARS: usize = 64;

/// Arguments that were read: one JSON object.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    text: Arc<str>,
    value: Value,
}

impl Arguments {
    /// Reads an argument text as the model, or a person who edits it, wrote it.
    ///
    /// Absent, blank and `null` mean `{}`. Anything else must be exactly one JSON object; it is kept
    /// byte for byte.
    pub fn parse(raw: &str, max_bytes: usize) -> Result<Self, InvalidArguments> {
        if raw.len() > max_bytes {
            return Err(InvalidArguments::too_large(raw.len(), max_bytes));
        }
        let bare = raw.trim_matches([' ', '\t', '\n', '\r']);
        if bare.is_empty() || bare == "null" {
            return Ok(Self { text: "{}".into(), value: Value::Object(serde_json::Map::new()) });
        }
        let value = strict::parse(raw, ARGUMENTS_MAX_DEPTH)?;
        if !value.is_object() {
            return Err(InvalidArguments::not_an_object(&value));
        }
        if let Some(lossy) = number::first_lossy(raw) {
            return Err(InvalidArguments {
                kind: InvalidKind::Number,
                at: walk::pointer_to(raw, lossy.offset),
                message: format!("the number {} {}", quote(lossy.literal), lossy.why),
            });
        }
        Ok(Self { text: raw.into(), value })
    }

    /// The exact text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// What the text says. For looking at, never for writing back: numbers and key order are in the text alone.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// Why arguments were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidArguments {
    /// What is wrong with them.
    pub kind: InvalidKind,
    /// Where: a JSON pointer (empty for the whole), or line and column where the text is no JSON.
    pub at: String,
    /// Why, in a sentence for the model.
    pub message: String,
}

/// What can be wrong with arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InvalidKind {
    /// The text is over the size bound.
    TooLarge {
        /// How long it is, in bytes.
        bytes: usize,
        /// How long it may be, in bytes.
        max: usize,
    },
    /// It is not one JSON value.
    Malformed,
    /// It is JSON, but no object.
    NotAnObject,
    /// A key stands in one object twice.
    DuplicateKey,
    /// It is nested too deep.
    TooDeep,
    /// A number in it would not survive being read.
    Number,
    /// It does not fit the tool's schema.
    Schema,
}

impl InvalidArguments {
    fn too_large(bytes: usize, max: usize) -> Self {
        Self {
            kind: InvalidKind::TooLarge { bytes, max },
            at: String::new(),
            message: format!("the arguments are {bytes} bytes long; at most {max} are allowed"),
        }
    }

    pub(crate) fn not_an_object(value: &Value) -> Self {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        Self {
            kind: InvalidKind::NotAnObject,
            at: String::new(),
            message: format!("the arguments must be one JSON object; this is {found}"),
        }
    }

    /// How a call with such arguments ends.
    pub fn status(&self) -> Status {
        match self.kind {
            InvalidKind::TooLarge { .. } => Status::ArgumentsTooLarge,
            InvalidKind::Malformed
            | InvalidKind::NotAnObject
            | InvalidKind::DuplicateKey
            | InvalidKind::TooDeep
            | InvalidKind::Number
            | InvalidKind::Schema => Status::InvalidArguments,
        }
    }
}

impl fmt::Display for InvalidArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{} (at {})", self.message, self.at)
        }
    }
}

/// The argument text of a call as it may stand in the history that goes to a provider.
///
/// A strict provider refuses a whole conversation for one call whose arguments are no JSON object. So a text
/// that cannot be read is replaced there by an object that says so; the text itself stays in the record.
pub fn history_form(raw: &str) -> Cow<'_, str> {
    match Arguments::parse(raw, ARGUMENTS_MAX_BYTES) {
        Ok(arguments) if arguments.text.as_ref() == raw => Cow::Borrowed(raw),
        Ok(arguments) => Cow::Owned(arguments.text.to_string()),
        Err(invalid) => {
            Cow::Owned(serde_json::json!({ "invalid_arguments": invalid.to_string() }).to_string())
        }
    }
}

/// The object inside a JSON string, for models that encode their arguments twice.
///
/// Peels exactly once, and only if the inner text is itself an acceptable object: `"\"hello\""` stays what it
/// is and is then refused as no object. A provider adapter that knows the quirk calls this before anything is
/// shown or digested.
pub fn peel_double_encoded(raw: &str) -> Option<String> {
    if !raw.trim_start().starts_with('"') {
        return None;
    }
    let inner: String = serde_json::from_str(raw).ok()?;
    let is_object = inner.trim_start().starts_with('{');
    (is_object && Arguments::parse(&inner, ARGUMENTS_MAX_BYTES).is_ok()).then_some(inner)
}

/// A piece of the model's text, bounded and quoted as JSON, to stand in a message. A message may be cut; what
/// a person approves never is.
pub(crate) fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    Value::String(short).to_string()
}

#[cfg(test)]
mod tests;
