//! What may be released in nobody's presence once a deadline has passed: a list of tools by their exact names, each
//! with conditions on its arguments.
//!
//! A preset says yes to what it names and nothing to everything else: it has no patterns, no "all the rest", and no
//! way to say no, since what it does not name expires anyway. A condition that cannot be judged - the argument is not
//! there, or is of another kind - is not met. It is asked when the deadline passes, of the arguments as they were
//! shown, and what it releases goes through the same gate again before it starts: a preset lets go of a prompt, never
//! of a check.

use std::collections::BTreeMap;
use std::fmt;

use holdpoint_protocol::{ActorId, RuleUsed};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::digest::Fields;

/// The longest name of a preset, in bytes: it stands in an actor's name, after `preset:`.
pub const PRESET_NAME_MAX_BYTES: usize = 64;

/// A named preset.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    name: String,
    written_by: ActorId,
    actor: ActorId,
    releases: Vec<Release>,
}

/// One tool that a preset releases.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The tool, by its exact name.
    pub tool: String,
    /// Conditions by the name of the argument, all of which must be met. Without any, every call of the tool is released.
    #[serde(default)]
    pub when: BTreeMap<String, Condition>,
}

/// A condition on one argument. Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Condition {
    /// It is exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Scalar>,
    /// It is exactly one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Scalar>>,
    /// It is a number, and at least this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<i64>,
    /// It is a number, and at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<i64>,
}

/// A value that a condition compares with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Scalar {
    /// A text, compared byte for byte.
    Text(String),
    /// A whole number.
    Number(i64),
    /// True or false.
    Bool(bool),
}

impl TryFrom<Value> for Scalar {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Bool(yes) => Ok(Self::Bool(yes)),
            Value::Number(number) => number.as_i64().map(Self::Number).ok_or(SCALARS),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(SCALARS),
        }
    }
}

const SCALARS: &str = "a condition compares with a text, a whole number, true or false";

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Text(text) => text.into(),
            Scalar::Number(number) => number.into(),
            Scalar::Bool(yes) => yes.into(),
        }
    }
}

impl Scalar {
    fn is(&self, found: &Value) -> bool {
        match (self, found) {
            (Self::Text(text), Value::String(found)) => text == found,
            (Self::Number(number), Value::Number(found)) => found.as_i64() == Some(*number),
            (Self::Bool(yes), Value::Bool(found)) => yes == found,
            (Self::Text(_) | Self::Number(_) | Self::Bool(_), _) => false,
        }
    }
}

impl Condition {
    /// It is exactly this.
    pub fn equals(value: Scalar) -> Self {
        Self { equals: Some(value), ..Self::default() }
    }

    /// It is exactly one of these texts.
    pub fn one_of<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        let texts = texts.into_iter().map(|text| Scalar::Text(text.into())).collect();
        Self { one_of: Some(texts), ..Self::default() }
    }

    /// It is a number, and at most this.
    pub fn at_most(most: i64) -> Self {
        Self { at_most: Some(most), ..Self::default() }
    }

    fn says_nothing(&self) -> bool {
        let Self { equals, one_of, at_least, at_most } = self;
        equals.is_none() && one_of.is_none() && at_least.is_none() && at_most.is_none()
    }

    fn is_met(&self, found: &Value) -> bool {
        self.equals.as_ref().is_none_or(|value| value.is(found))
            && self.one_of.as_ref().is_none_or(|values| values.iter().any(|value| value.is(found)))
            && self.at_least.is_none_or(|least| compared(found, least).is_some_and(std::cmp::Ordering::is_ge))
            && self.at_most.is_none_or(|most| compared(found, most).is_some_and(std::cmp::Ordering::is_le))
    }
}

/// How a number stands to a bound. Whole numbers are compared as what they are; a fraction as the double it survived as.
fn compared(found: &Value, bound: i64) -> Option<std::cmp::Ordering> {
    let Value::Number(number) = found else { return None };
    if let Some(whole) = number.as_i64() {
        return Some(whole.cmp(&bound));
    }
    if number.is_u64() {
        return Some(std::cmp::Ordering::Greater);
    }
    // A double next to a whole number of more than 53 bits would be compared with its neighbour.
    let exact = bound.unsigned_abs() < (1 << 53);
    number.as_f64().filter(|_| exact).and_then(|found| found.partial_cmp(&(bound as f64)))
}

/// A preset that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPreset {
    /// Its name is not one.
    #[error("preset name {name:?}: use 1 to {PRESET_NAME_MAX_BYTES} letters, digits, `_ - .`")]
    Name {
        /// The name.
        name: String,
    },
    /// A tool is not named exactly.
    #[error("preset `{preset}`: {tool:?} is not the exact name of a tool; a preset takes no patterns")]
    Tool {
        /// The preset.
        preset: String,
        /// What stands there.
        tool: String,
    },
    /// A condition under which nothing, or everything, is meant.
    #[error("preset `{preset}`: the condition on `{argument}` of `{tool}` {why}")]
    Condition {
        /// The preset.
        preset: String,
        /// The tool.
        tool: String,
        /// The argument.
        argument: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It releases nothing.
    #[error("preset `{preset}` releases nothing; leave it out, and requests expire")]
    Empty {
        /// The preset.
        preset: String,
    },
}

impl Preset {
    /// A preset as this person, or the configuration, wrote it.
    ///
    /// # Errors
    /// [`BadPreset`] says what and where.
    pub fn new(
        name: impl Into<String>,
        written_by: ActorId,
        releases: impl IntoIterator<Item = Release>,
    ) -> Result<Self, BadPreset> {
        let name = name.into();
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        let fits = !name.is_empty() && name.len() <= PRESET_NAME_MAX_BYTES && name.bytes().all(legal);
        let actor = ActorId::new(&format!("preset:{name}"));
        let (true, Ok(actor)) = (fits, actor) else { return Err(BadPreset::Name { name }) };
        let releases: Vec<Release> = releases.into_iter().collect();
        if releases.is_empty() {
            return Err(BadPreset::Empty { preset: name });
        }
        for release in &releases {
            check(&name, release)?;
        }
        Ok(Self { name, written_by, actor, releases })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who its decisions are put down to: itself, and never a person.
    pub fn actor(&self) -> &ActorId {
        &self.actor
    }

    /// The tools it names.
    pub fn tools(&self) -> impl Iterator<Item = &str> + Clone {
        self.releases.iter().map(|release| release.tool.as_str())
    }

    /// Whether it releases a call of this tool with these arguments.
    pub fn releases(&self, tool: &str, arguments: &Arguments) -> bool {
        self.releases.iter().filter(|release| release.tool == tool).any(|release| {
            release.when.iter().all(|(argument, condition)| {
                arguments.value().get(argument).is_some_and(|found| condition.is_met(found))
            })
        })
    }

    /// What is written down with a decision of it.
    pub fn used(&self) -> RuleUsed {
        RuleUsed { name: self.name.clone(), version: self.version(), written_by: self.written_by.clone() }
    }

    /// A text that is another one as soon as anything in it is.
    pub fn version(&self) -> String {
        let mut fields = Fields::new("holdpoint.preset.v1");
        fields.text(&self.name);
        fields.text(self.written_by.as_str());
        fields.shown(self.releases.len());
        for release in &self.releases {
            fields.text(&release.tool);
            fields.shown(release.when.len());
            for (argument, condition) in &release.when {
                fields.text(argument);
                // Texts and numbers under fixed names: writing them to memory has no way to fail.
                fields.text(&serde_json::to_string(condition).unwrap_or_default());
            }
        }
        fields.finish()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn check(preset: &str, release: &Release) -> Result<(), BadPreset> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if release.tool.is_empty() || !release.tool.bytes().all(legal) {
        return Err(BadPreset::Tool { preset: preset.to_owned(), tool: release.tool.clone() });
    }
    for (argument, condition) in &release.when {
        let why = if condition.says_nothing() {
            "says nothing; leave it out, or say `equals`, `one_of`, `at_least` or `at_most`"
        } else if condition.one_of.as_ref().is_some_and(Vec::is_empty) {
            "can never be met: `one_of` is empty"
        } else {
            continue;
        };
        return Err(BadPreset::Condition {
            preset: preset.to_owned(),
            tool: release.tool.clone(),
            argument: argument.clone(),
            why,
        });
    }
    Ok(())
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preset `{}`", self.name)
    }
}

#[cfg(test)]
mod tests;
