//! A tool's JSON Schema, compiled once and asked for every call.
//!
//! Schemas come from third parties: nothing is fetched, and patterns run on an engine without backtracking,
//! so a schema that needs one is refused when the tool is loaded and not when a call hangs in it. A check
//! changes nothing: no coercion, no defaults.

mod plain;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::arguments::{Arguments, InvalidArguments, InvalidKind};
use plain::Plain;

/// How many faults are named to the model.
pub const FAULTS_NAMED_MAX: usize = 4;

/// How long the description of one fault is, in characters.
const FAULT_MAX_CHARS: usize = 240;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    checker: Checker,
}

#[derive(Debug)]
enum Checker {
    /// What most small tools have: strings, some of them required. Compiled and checked in no time.
    Plain(Plain),
    Full(Box<Validator>),
}

/// A schema that cannot be checked against. The tool is not offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema of the tool cannot be used: {reason}")]
pub struct UnusableSchema {
    /// Why.
    pub reason: String,
}

impl Schema {
    /// Compiles the schema of a tool's arguments.
    pub fn compile(schema: &Value) -> Result<Self, UnusableSchema> {
        must_take_an_object(schema)?;
        if let Some(plain) = Plain::read(schema) {
            return Ok(Self { checker: Checker::Plain(plain) });
        }
        full(schema).map(|validator| Self { checker: Checker::Full(Box::new(validator)) })
    }

    /// Checks arguments; what is wrong with them is named, at most [`FAULTS_NAMED_MAX`] faults.
    pub fn check(&self, arguments: &Arguments) -> Result<(), InvalidArguments> {
        let value = arguments.value();
        match &self.checker {
            Checker::Plain(plain) => {
                refuse(plain.faults(value.as_object().ok_or_else(|| InvalidArguments::not_an_object(value))?))
            }
            Checker::Full(validator) if validator.is_valid(value) => Ok(()),
            Checker::Full(validator) => refuse(validator.iter_errors(value).map(|error| fault(&error))),
        }
    }
}

fn full(schema: &Value) -> Result<Validator, UnusableSchema> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|error| UnusableSchema { reason: clip(&error.to_string()) })
}

/// Arguments are an object; a schema for anything else would refuse every call.
fn must_take_an_object(schema: &Value) -> Result<(), UnusableSchema> {
    let refuse = |reason: &str| Err(UnusableSchema { reason: reason.to_owned() });
    let Value::Object(keywords) = schema else { return refuse("it is not an object") };
    match keywords.get("type") {
        None => Ok(()),
        Some(Value::String(one)) if one == "object" => Ok(()),
        Some(Value::Array(several)) if several.iter().any(|one| one == "object") => Ok(()),
        Some(_) => refuse("its `type` is not `object`"),
    }
}

/// Where a value does not fit, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    at: String,
    why: String,
}

fn fault(error: &ValidationError<'_>) -> Fault {
    // The value itself is left out: it may be long, or secret.
    Fault { at: error.instance_path().to_string(), why: clip(&error.masked().to_string()) }
}

fn clip(text: &str) -> String {
    let mut short: String = text.chars().take(FAULT_MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn refuse(mut faults: impl Iterator<Item = Fault>) -> Result<(), InvalidArguments> {
    let Some(first) = faults.next() else { return Ok(()) };
    let mut message = first.why;
    for more in faults.by_ref().take(FAULTS_NAMED_MAX - 1) {
        message.push_str("; ");
        if !more.at.is_empty() {
            message.push_str(&format!("{}: ", clip(&more.at)));
        }
        message.push_str(&more.why);
    }
    if faults.next().is_some() {
        message.push_str("; and more");
    }
    Err(InvalidArguments { kind: InvalidKind::Schema, at: clip(&first.at), message })
}

#[cfg(test)]
mod tests;
