//! A script as a YAML file.
//!
//! ```yaml
//! name: demo
//! rules:
//!   - when: { has_tool_result: true }
//!     answer: { text: done }
//!   - answer:
//!       text: I will read the notes.
//!       calls:
//!         - { id: c1, name: Read, arguments: { path: notes.txt } }
//!       usage: { input_tokens: 10, output_tokens: 5 }
//! ```

use std::time::Duration;

use serde::Deserialize;

use super::{Answer, ScriptBuilder, Scripted, When};
use crate::{ModelError, ReplyEnd};

/// The most rules a script may have.
const MAX_RULES: usize = 10_000;

/// A script that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It is not YAML of the right form; the text shows the line.
    #[error("the script cannot be read: {0}")]
    Form(String),
    /// It is, but a rule makes no sense.
    #[error("the script is wrong at {at}: {problem}")]
    Rule {
        /// Where: `rules[2].answer`.
        at: String,
        /// What.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_name")]
    name: String,
    rules: Vec<FileRule>,
}

fn default_name() -> String {
    super::WIRE.to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    #[serde(default)]
    when: When,
    answer: FileAnswer,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileAnswer {
    reasoning: Option<String>,
    text: Option<String>,
    calls: Vec<FileCall>,
    usage: FileUsage,
    end: Option<FileEnd>,
    interrupted: Option<String>,
    error: Option<FileError>,
    hang: bool,
    other_choices: u32,
    other_choices_had_calls: bool,
    delay_ms: u64,
    pace_ms: u64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileUsage {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCall {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    arguments: FileArguments,
}

/// A text is the exact argument text; a mapping is written as JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum FileArguments {
    Text(String),
    Value(serde_json::Map<String, serde_json::Value>),
}

impl Default for FileArguments {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum FileEnd {
    Complete,
    Length,
    Filtered,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retryable: bool,
    retry_after_ms: Option<u64>,
}

pub(super) fn read(text: &str) -> Result<ScriptBuilder, ScriptError> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| ScriptError::Form(error.to_string()))?;
    if file.rules.is_empty() {
        return Err(wrong("rules".into(), "a script needs at least one rule"));
    }
    if file.rules.len() > MAX_RULES {
        return Err(wrong("rules".into(), format!("more than {MAX_RULES} rules")));
    }
    let mut script = Scripted::new(file.name);
    for (n, rule) in file.rules.into_iter().enumerate() {
        if rule.when.nth == Some(0) || rule.when.round == Some(0) {
            return Err(wrong(format!("rules[{n}].when"), "`nth` and `round` count from 1"));
        }
        script = script.rule(rule.when, answer(rule.answer, &format!("rules[{n}].answer"))?);
    }
    Ok(script)
}

fn wrong(at: String, problem: impl Into<String>) -> ScriptError {
    ScriptError::Rule { at, problem: problem.into() }
}

fn answer(file: FileAnswer, at: &str) -> Result<Answer, ScriptError> {
    let says = file.text.is_some() || file.reasoning.is_some() || !file.calls.is_empty();
    let ends = [file.end.is_some(), file.interrupted.is_some(), file.error.is_some(), file.hang];
    if ends.iter().filter(|set| **set).count() > 1 {
        return Err(wrong(at.into(), "only one of `end`, `interrupted`, `error`, `hang` can be given"));
    }
    if says && (file.error.is_some() || file.hang) {
        return Err(wrong(
            at.into(),
            "`error` and `hang` say nothing: text, reasoning and calls go with `interrupted`",
        ));
    }
    if !says && ends.iter().all(|set| !set) {
        return Err(wrong(
            at.into(),
            "it says nothing: give `text`, `reasoning`, `calls`, `error` or `interrupted`",
        ));
    }
    let mut answer = match file.error {
        Some(error) => Answer::error(model_error(error, at)?),
        None if file.hang => Answer::hang(),
        None => Answer::empty(),
    };
    if let Some(reasoning) = file.reasoning {
        answer = answer.and_reasoning(reasoning);
    }
    if let Some(text) = file.text {
        answer = answer.and_text(text);
    }
    for call in file.calls {
        let arguments = match call.arguments {
            FileArguments::Text(text) => text,
            FileArguments::Value(map) => serde_json::Value::Object(map).to_string(),
        };
        answer = answer.and_call(call.id, call.name, arguments);
    }
    answer = match (file.end, file.interrupted) {
        (_, Some(why)) => answer.interrupted(why),
        (Some(FileEnd::Length), None) => answer.ending(ReplyEnd::Length),
        (Some(FileEnd::Filtered), None) => answer.ending(ReplyEnd::Filtered),
        (Some(FileEnd::Complete) | None, None) => answer,
    };
    Ok(answer
        .usage(file.usage.input_tokens, file.usage.output_tokens)
        .other_choices(file.other_choices, file.other_choices_had_calls)
        .after(Duration::from_millis(file.delay_ms))
        .pace(Duration::from_millis(file.pace_ms)))
}

fn model_error(file: FileError, at: &str) -> Result<ModelError, ScriptError> {
    let Some(code) = ModelError::CODES.iter().find(|code| **code == file.code) else {
        let known = ModelError::CODES.join("`, `");
        return Err(wrong(format!("{at}.error.code"), format!("`{}` is none of `{known}`", file.code)));
    };
    let message = if file.message.is_empty() { "as the script says".to_owned() } else { file.message };
    let retry_after = file.retry_after_ms.map(Duration::from_millis);
    Ok(ModelError { code, message, retryable: file.retryable, retry_after })
}
