//! A model that answers from a script: an ordered list of rules, the first that matches answers.
//!
//! ```
//! use holdpoint_models::scripted::{Answer, Scripted, When};
//!
//! let model = Scripted::new("demo")
//!     .rule(When::any().has_tool_result(true), Answer::text("done"))
//!     .rule(When::any(), Answer::call("c1", "Read", r#"{"path":"notes.txt"}"#));
//! ```
//!
//! It keeps every request it got, so that a test can say what the model saw. A request that no rule covers is an
//! error that says so: a script never makes an answer up.

mod answer;
#[cfg(feature = "yaml")]
mod file;
mod when;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

pub use answer::Answer;
#[cfg(feature = "yaml")]
pub use file::ScriptError;
pub use when::{ResultMatch, When};

use crate::{Model, ModelError, ModelRequest, Pieces, Reply};

/// The name of the scripted model's wire in [`holdpoint_core::message::AssistantMessage::wire`].
pub const WIRE: &str = "scripted";

/// A model that answers from a script. Clones share one script, one counter and one record.
#[derive(Clone)]
pub struct Scripted {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    rules: Vec<Rule>,
    calls: AtomicU64,
    /// `None`: switched off, so that a benchmark neither pays nor grows for it.
    record: Option<Mutex<Vec<Arc<ModelRequest>>>>,
}

struct Rule {
    when: When,
    answer: RuleAnswer,
}

enum RuleAnswer {
    Fixed(Answer),
    Computed(Box<Compute>),
}

type Compute = dyn Fn(&ModelRequest, u64) -> Answer + Send + Sync;

impl Scripted {
    /// A model with an empty script. Add rules with [`ScriptBuilder::rule`].
    #[allow(clippy::new_ret_no_self)] // The builder becomes the model by `build` or `into`.
    pub fn new(name: impl Into<String>) -> ScriptBuilder {
        ScriptBuilder { name: name.into(), rules: Vec::new(), record: true }
    }

    /// A model that gives these answers in turn, one a request, and then an error.
    pub fn sequence(name: impl Into<String>, answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut script = Self::new(name);
        for (n, answer) in (1..).zip(answers) {
            script = script.rule(When::any().nth(n), answer);
        }
        script.build()
    }

    /// A model whose every answer is computed from the request and its number (from 1).
    pub fn computed(
        name: impl Into<String>,
        answer: impl Fn(&ModelRequest, u64) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::new(name).computed(When::any(), answer).build()
    }

    /// Reads a script written in YAML. An error says where in the file it is and what is wrong.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self, ScriptError> {
        file::read(text).map(ScriptBuilder::build)
    }

    /// Every request so far, in order. Empty when recording is off.
    pub fn requests(&self) -> Vec<Arc<ModelRequest>> {
        match &self.shared.record {
            // A poisoned record is still a record: only pushes and clones happen under the lock.
            Some(record) => record.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            None => Vec::new(),
        }
    }

    /// How many requests there were, also when recording is off.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    fn answer(&self, request: &ModelRequest, nth: u64) -> Result<Picked<'_>, ModelError> {
        let rule = self.shared.rules.iter().find(|rule| rule.when.matches(request, nth));
        match rule.map(|rule| &rule.answer) {
            Some(RuleAnswer::Fixed(answer)) => Ok(Picked::Borrowed(answer)),
            Some(RuleAnswer::Computed(compute)) => Ok(Picked::Owned(compute(request, nth))),
            None => Err(ModelError {
                code: "provider_error",
                message: format!(
                    "the script of model `{}` has no rule for request {nth} (last user text: {:?}; {} rules)",
                    self.shared.name,
                    when::last_user_text(request).unwrap_or_default(),
                    self.shared.rules.len()
                ),
                retryable: false,
                retry_after: None,
            }),
        }
    }
}

enum Picked<'a> {
    Borrowed(&'a Answer),
    Owned(Answer),
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        let nth = self.shared.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(record) = &self.shared.record {
            record.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(request.clone()));
        }
        match self.answer(request, nth)? {
            Picked::Borrowed(answer) => answer.give(request, pieces).await,
            Picked::Owned(answer) => answer.give(request, pieces).await,
        }
    }
}

/// A script in the making.
pub struct ScriptBuilder {
    name: String,
    rules: Vec<Rule>,
    record: bool,
}

impl ScriptBuilder {
    /// Adds a rule: the first rule that matches a request answers it.
    #[must_use]
    pub fn rule(mut self, when: When, answer: Answer) -> Self {
        self.rules.push(Rule { when, answer: RuleAnswer::Fixed(answer) });
        self
    }

    /// Adds a rule whose answer is computed from the request and its number (from 1).
    #[must_use]
    pub fn computed(
        mut self,
        when: When,
        answer: impl Fn(&ModelRequest, u64) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.rules.push(Rule { when, answer: RuleAnswer::Computed(Box::new(answer)) });
        self
    }

    /// Switches the recording of requests off or on (default: on).
    #[must_use]
    pub fn record(mut self, on: bool) -> Self {
        self.record = on;
        self
    }

    /// The model.
    pub fn build(self) -> Scripted {
        Scripted {
            shared: Arc::new(Shared {
                name: self.name,
                rules: self.rules,
                calls: AtomicU64::new(0),
                record: self.record.then(|| Mutex::new(Vec::new())),
            }),
        }
    }
}

impl From<ScriptBuilder> for Scripted {
    fn from(script: ScriptBuilder) -> Self {
        script.build()
    }
}
