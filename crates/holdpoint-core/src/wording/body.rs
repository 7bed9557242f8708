//! The JSON object a model reads, field by field and in that order.

use holdpoint_protocol::{Executed, RawJson};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{MAY_HAVE, NO_OUTPUT};
use crate::message::{ResultContent, ResultPart};

/// The object. Fields that are not set are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Body<'a> {
    pub status: &'static str,
    pub code: String,
    pub executed: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_tools: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
}

impl Body<'_> {
    pub(super) fn content(&self) -> ResultContent {
        content(self, || self.message.clone().unwrap_or_else(|| self.status.to_owned()))
    }
}

/// Texts and numbers always serialise; the sentence is what would be said if they did not.
fn content(object: &impl Serialize, otherwise: impl FnOnce() -> String) -> ResultContent {
    serde_json::value::to_raw_value(object)
        .map_or_else(|_| ResultContent::Text(otherwise()), ResultContent::Json)
}

/// A JSON text as it stands, or as a JSON string when it is none.
pub(super) fn raw_or_text(text: &str) -> RawJson {
    RawValue::from_string(text.to_owned())
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Whether a part says nothing.
pub(super) fn is_empty(part: &ResultPart) -> bool {
    match part {
        ResultPart::Text(text) => text.is_empty(),
        ResultPart::Image { .. } => false,
    }
}

/// What came of a call, beside the arguments that ran where they are other ones than the model's. Images cannot stand inside a
/// JSON text: they follow it.
pub(super) fn with_result(body: Body<'_>, arguments: Option<&str>, result: &ResultContent) -> ResultContent {
    let arguments = arguments.map(raw_or_text);
    match result {
        ResultContent::Text(text) => {
            let result = serde_json::value::to_raw_value(text).ok();
            Body { arguments, result, ..body }.content()
        }
        ResultContent::Json(json) => Body { arguments, result: Some(json.clone()), ..body }.content(),
        ResultContent::Parts(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(text_of).collect();
            let result = serde_json::value::to_raw_value(&texts).ok();
            let object = Body { arguments, result, ..body }.content();
            let head = match object {
                ResultContent::Json(json) => ResultPart::Text(json.get().to_owned()),
                ResultContent::Text(text) => ResultPart::Text(text),
                ResultContent::Parts(_) => ResultPart::Text(NO_OUTPUT.to_owned()),
            };
            let images = parts.iter().filter(|part| text_of(part).is_none()).cloned();
            ResultContent::Parts(std::iter::once(head).chain(images).collect())
        }
    }
}

fn text_of(part: &ResultPart) -> Option<&str> {
    match part {
        ResultPart::Text(text) => Some(text),
        ResultPart::Image { .. } => None,
    }
}

/// A tool's own error, in the shape every tool error has.
pub(super) fn tool_error(
    code: &str,
    message: &str,
    executed: Executed,
    arguments: Option<&str>,
) -> ResultContent {
    #[derive(Serialize)]
    struct Inner<'a> {
        code: &'a str,
        message: &'a str,
    }
    #[derive(Serialize)]
    struct Outer<'a> {
        error: Inner<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        executed: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<RawJson>,
    }
    let message = if message.is_empty() { "The tool failed and gave no message." } else { message };
    let unknown = executed == Executed::Unknown;
    let object = Outer {
        error: Inner { code, message },
        executed: unknown.then_some(executed.as_str()),
        message: unknown.then_some(MAY_HAVE),
        arguments: arguments.map(raw_or_text),
    };
    content(&object, || message.to_owned())
}
