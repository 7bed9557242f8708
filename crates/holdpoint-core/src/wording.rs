//! What a model reads for a call that did not run, or that ended oddly. The one place that says it.
//!
//! It is a JSON object, since some providers refuse a bare sentence as a tool's result. It says whether the
//! call ran, that a refusal is no failure of the system (a model that takes it for one tries again), and
//! that neither a refusal nor silence is to be worked around. What a person wrote is quoted as data, in
//! `reason`, and is never mixed into our own sentences. A person's or a policy's no is not flagged as an error:
//! models that are told of errors retry.

mod body;

use holdpoint_protocol::{By, Executed, Reason, Status, Timestamp, Via};

use crate::arguments::{InvalidArguments, quote};
use crate::message::{ResultContent, ToolMessage};
use body::Body;

/// The longest reason a person can give, in bytes.
pub const REASON_MAX_BYTES: usize = 8 * 1024;

/// What a tool that returned nothing is said to have returned: a result is never empty.
pub const NO_OUTPUT: &str = "The tool returned no output.";

const NOT_EXECUTED: &str = "It was not executed.";
const NO_FAILURE: &str = "This is not a system failure.";
const NO_DETOUR: &str = "Do not seek the same effect another way, with other arguments or with another tool.";
const SAY_SO: &str = "Tell the user what was not done.";
const MAY_HAVE: &str =
    "It may have taken effect. Do not repeat it; tell the user that its outcome is not known.";

/// How a call ended, with what there is to say about it.
#[derive(Debug, Clone, Copy)]
pub enum Ending<'a> {
    /// The tool ran as the model wrote it.
    Succeeded {
        /// What it returned.
        result: &'a ResultContent,
    },
    /// The tool ran with arguments that a person edited.
    ExecutedWithChanges {
        /// The exact text it ran with.
        arguments: &'a str,
        /// What it returned.
        result: &'a ResultContent,
    },
    /// A person looked after a call in doubt and says that it ran.
    ReportedRan {
        /// The result they report, as JSON text.
        result: &'a str,
    },
    /// It was done before under its business key: nothing was executed now.
    Replayed {
        /// What was recorded then.
        result: &'a ResultContent,
        /// When.
        recorded_at: Timestamp,
        /// The arguments, where a person had edited them.
        arguments: Option<&'a str>,
    },
    /// The call was declined.
    Declined {
        /// What the person wrote.
        reason: Option<&'a str>,
        /// Who and how.
        by: &'a By,
    },
    /// The call was declined, with a word on what to do instead.
    Feedback {
        /// What the person wrote.
        reason: &'a str,
        /// Who and how.
        by: &'a By,
    },
    /// The very same call was declined in this run too often to ask once more.
    DeclinedBefore {
        /// Who declined it last.
        by: &'a By,
        /// When.
        at: Timestamp,
    },
    /// Nobody decided in time.
    Expired,
    /// A policy denies the call.
    PolicyDenied {
        /// Which rule of which policy.
        reason: &'a Reason,
    },
    /// The caller may not use the tool.
    Forbidden {
        /// The stable reason code.
        code: &'a str,
    },
    /// The run was cancelled.
    Cancelled {
        /// `no` when the call had not started.
        executed: Executed,
    },
    /// A newer message or request took its place.
    Superseded,
    /// A limit was reached.
    Limit {
        /// Which one, to stand in a sentence: `40 calls of search_web in a run`.
        what: &'a str,
    },
    /// The arguments cannot be read or do not fit.
    InvalidArguments(&'a InvalidArguments),
    /// No such tool was offered.
    UnknownTool {
        /// The name as the model wrote it.
        name: &'a str,
        /// The names that were offered.
        known: &'a [&'a str],
    },
    /// The gate itself failed.
    GateError,
    /// The tool ran and reported an error.
    ToolFailed {
        /// The tool's own code.
        code: &'a str,
        /// The tool's own message, free of anything internal.
        message: &'a str,
        /// Whether it took effect all the same.
        executed: Executed,
        /// The arguments it ran with, where a person had edited them.
        arguments: Option<&'a str>,
    },
    /// The tool did not return in its time.
    TimedOut {
        /// `no` for a tool that changes nothing or proves that it did not.
        executed: Executed,
    },
    /// Nobody knows whether it ran.
    OutcomeUnknown,
}

/// What is kept of an ending and told to the model.
#[derive(Debug, Clone)]
pub struct Told {
    /// How it ended.
    pub status: Status,
    /// The stable reason code.
    pub code: String,
    /// Whether it took effect.
    pub executed: Executed,
    /// What the model reads. Never empty.
    pub content: ResultContent,
    /// Whether it is an error the model may react to by trying again.
    pub is_error: bool,
}

impl Told {
    /// The message that answers a call.
    pub fn message(self, index: u32, id: impl Into<String>, name: impl Into<String>) -> ToolMessage {
        ToolMessage {
            index,
            id: id.into(),
            name: name.into(),
            status: self.status,
            code: self.code,
            executed: self.executed,
            content: self.content,
            is_error: self.is_error,
        }
    }
}

impl Ending<'_> {
    /// The word for it.
    pub fn status(&self) -> Status {
        match self {
            Self::Succeeded { .. } | Self::ReportedRan { .. } | Self::Replayed { .. } => Status::Succeeded,
            Self::ExecutedWithChanges { .. } => Status::ExecutedWithChanges,
            Self::Declined { .. } | Self::DeclinedBefore { .. } => Status::Declined,
            Self::Feedback { .. } => Status::Feedback,
            Self::Expired => Status::Expired,
            Self::PolicyDenied { .. } => Status::PolicyDenied,
            Self::Forbidden { .. } => Status::Forbidden,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::Superseded => Status::Superseded,
            Self::Limit { .. } => Status::Limit,
            Self::InvalidArguments(invalid) => invalid.status(),
            Self::UnknownTool { .. } => Status::UnknownTool,
            Self::GateError => Status::GateError,
            Self::ToolFailed { .. } => Status::Failed,
            Self::TimedOut { .. } => Status::TimedOut,
            Self::OutcomeUnknown => Status::OutcomeUnknown,
        }
    }

    /// Whether it took effect.
    pub fn executed(&self) -> Executed {
        match self {
            Self::Succeeded { .. } | Self::ExecutedWithChanges { .. } | Self::ReportedRan { .. } => {
                Executed::Yes
            }
            Self::Cancelled { executed }
            | Self::TimedOut { executed }
            | Self::ToolFailed { executed, .. } => *executed,
            Self::OutcomeUnknown => Executed::Unknown,
            Self::Replayed { .. }
            | Self::Declined { .. }
            | Self::Feedback { .. }
            | Self::DeclinedBefore { .. }
            | Self::Expired
            | Self::PolicyDenied { .. }
            | Self::Forbidden { .. }
            | Self::Superseded
            | Self::Limit { .. }
            | Self::InvalidArguments(_)
            | Self::UnknownTool { .. }
            | Self::GateError => Executed::No,
        }
    }

    /// How a call ended of which an earlier attempt may have taken effect: that it did not cannot be said any more.
    pub fn after_a_doubt(self) -> Self {
        match self {
            Self::ToolFailed { code, message, executed: Executed::No, arguments } => {
                Self::ToolFailed { code, message, executed: Executed::Unknown, arguments }
            }
            // What was recorded under its business key is its outcome.
            Self::Replayed { .. } => self,
            _ if self.executed() == Executed::No => Self::OutcomeUnknown,
            _ => self,
        }
    }

    /// The stable reason code: the caller's or the tool's own where there is one, else the status in capitals.
    fn code(&self) -> String {
        let given = |code: &str, otherwise: &str| {
            if code.is_empty() { otherwise.to_owned() } else { code.to_owned() }
        };
        match self {
            Self::Forbidden { code } => given(code, "FORBIDDEN"),
            Self::ToolFailed { code, .. } => given(code, "TOOL_ERROR"),
            Self::DeclinedBefore { .. } => "DECLINED_BEFORE".to_owned(),
            Self::ReportedRan { .. } => "REPORTED_RAN".to_owned(),
            Self::Replayed { .. } => "REPLAYED".to_owned(),
            Self::Succeeded { .. }
            | Self::ExecutedWithChanges { .. }
            | Self::Declined { .. }
            | Self::Feedback { .. }
            | Self::Expired
            | Self::PolicyDenied { .. }
            | Self::Cancelled { .. }
            | Self::Superseded
            | Self::Limit { .. }
            | Self::InvalidArguments(_)
            | Self::UnknownTool { .. }
            | Self::GateError
            | Self::TimedOut { .. }
            | Self::OutcomeUnknown => self.status().as_str().to_ascii_uppercase(),
        }
    }

    /// Only what the model itself, or the tool, got wrong, and what is safe to try again.
    fn is_error(&self) -> bool {
        match self {
            Self::InvalidArguments(_) | Self::UnknownTool { .. } | Self::ToolFailed { .. } => true,
            Self::TimedOut { executed } => *executed == Executed::No,
            Self::Succeeded { .. }
            | Self::ExecutedWithChanges { .. }
            | Self::ReportedRan { .. }
            | Self::Replayed { .. }
            | Self::Declined { .. }
            | Self::Feedback { .. }
            | Self::DeclinedBefore { .. }
            | Self::Expired
            | Self::PolicyDenied { .. }
            | Self::Forbidden { .. }
            | Self::Cancelled { .. }
            | Self::Superseded
            | Self::Limit { .. }
            | Self::GateError
            | Self::OutcomeUnknown => false,
        }
    }

    /// Puts it into words.
    pub fn told(&self) -> Told {
        Told {
            status: self.status(),
            code: self.code(),
            executed: self.executed(),
            content: self.content(),
            is_error: self.is_error(),
        }
    }

    fn content(&self) -> ResultContent {
        match self {
            Self::Succeeded { result } => never_empty(result),
            Self::ExecutedWithChanges { arguments, result } => {
                body::with_result(self.body(), Some(arguments), &never_empty(result))
            }
            Self::Replayed { result, recorded_at, arguments } => {
                let body = Body { recorded_at: Some(recorded_at.to_string()), ..self.body() };
                body::with_result(body, *arguments, &never_empty(result))
            }
            Self::ReportedRan { result } => {
                Body { result: Some(body::raw_or_text(result)), ..self.body() }.content()
            }
            Self::Declined { reason, .. } => Body { reason: reason.map(Into::into), ..self.body() }.content(),
            Self::Feedback { reason, .. } => Body { reason: Some((*reason).into()), ..self.body() }.content(),
            Self::DeclinedBefore { at, .. } => {
                Body { declined_at: Some(at.to_string()), ..self.body() }.content()
            }
            Self::PolicyDenied { reason } => {
                Body { reason: Some(format!("{}: {}", reason.policy, reason.rule)), ..self.body() }.content()
            }
            Self::InvalidArguments(invalid) => Body {
                at: (!invalid.at.is_empty()).then(|| invalid.at.clone()),
                reason: Some(invalid.message.clone()),
                ..self.body()
            }
            .content(),
            Self::UnknownTool { known, .. } => Body { known_tools: Some(known), ..self.body() }.content(),
            Self::ToolFailed { message, executed, arguments, .. } => {
                body::tool_error(&self.code(), message, *executed, *arguments)
            }
            Self::Expired
            | Self::Forbidden { .. }
            | Self::Cancelled { .. }
            | Self::Superseded
            | Self::Limit { .. }
            | Self::GateError
            | Self::TimedOut { .. }
            | Self::OutcomeUnknown => self.body().content(),
        }
    }

    fn body(&self) -> Body<'_> {
        Body {
            status: self.status().as_str(),
            code: self.code(),
            executed: self.executed().as_str(),
            message: self.sentence(),
            ..Body::default()
        }
    }

    fn sentence(&self) -> Option<String> {
        Some(match self {
            Self::Succeeded { .. } | Self::ExecutedWithChanges { .. } | Self::ToolFailed { .. } => {
                return None;
            }
            Self::ReportedRan { .. } => {
                "This call broke off while it ran. A person looked after it and reports that \
                 it ran, with the result in `result`. Do not repeat it."
                    .to_owned()
            }
            Self::Replayed { .. } => {
                "The same request was carried out before, by an earlier call with the same key. Nothing was executed now; \
                 `result` is what was recorded then, at `recorded_at`. Do not repeat it."
                    .to_owned()
            }
            Self::Declined { reason, by } => {
                let quoted = if reason.is_some() { " What was written about it is in `reason`." } else { "" };
                format!(
                    "{} this call. {NOT_EXECUTED} {NO_FAILURE}{quoted} {NO_DETOUR} {SAY_SO}",
                    decliner(by)
                )
            }
            Self::Feedback { by, .. } => format!(
                "{} this call as it is and wrote in `reason` what should be different. {NOT_EXECUTED} {NO_FAILURE} \
                 Revise it as the reason says; a revised call is put up for approval anew. {NO_DETOUR}",
                decliner(by)
            ),
            Self::DeclinedBefore { by, .. } => format!(
                "{} this very call before, at `declined_at`, and it is not asked about again. {NOT_EXECUTED} \
                 {NO_FAILURE} {NO_DETOUR} {SAY_SO}",
                decliner(by)
            ),
            Self::Expired => format!(
                "Nobody decided about this call in time. {NOT_EXECUTED} {NO_FAILURE} Silence is not consent. \
                 {NO_DETOUR} {SAY_SO}"
            ),
            Self::PolicyDenied { .. } => {
                format!("A policy does not allow this call. {NOT_EXECUTED} {NO_FAILURE} {NO_DETOUR} {SAY_SO}")
            }
            Self::Forbidden { .. } => format!(
                "The caller of this run may not use this tool here. {NOT_EXECUTED} {NO_FAILURE} {NO_DETOUR} {SAY_SO}"
            ),
            Self::Cancelled { executed } => match executed {
                Executed::No => {
                    format!("The run was cancelled before this call started. {NOT_EXECUTED} {NO_FAILURE}")
                }
                Executed::Yes => {
                    "The run was cancelled while this call ran. It took effect. Do not repeat it.".to_owned()
                }
                Executed::Unknown => format!("The run was cancelled while this call ran. {MAY_HAVE}"),
            },
            Self::Superseded => {
                format!(
                    "Something newer took the place of this call. {NOT_EXECUTED} {NO_FAILURE} Go by what is newer."
                )
            }
            Self::Limit { what } => format!(
                "A limit of this run is reached: {what}. {NOT_EXECUTED} {NO_FAILURE} Nobody was asked. Make no further \
                 calls; finish with what there is, and tell the user what was not done."
            ),
            Self::InvalidArguments(invalid) => {
                let remedy = match invalid.status() == Status::ArgumentsTooLarge {
                    true => "Send less at once.",
                    false => {
                        "Send it again with arguments that are one JSON object and fit the schema of the tool."
                    }
                };
                format!(
                    "The arguments of this call were refused; where and why is in `at` and `reason`. {NOT_EXECUTED} \
                     Nobody was asked. {remedy}"
                )
            }
            Self::UnknownTool { name, .. } => format!(
                "There is no tool named {}. {NOT_EXECUTED} Nobody was asked. The tools that exist are in `known_tools`.",
                quote(name)
            ),
            Self::GateError => format!(
                "This call was not let through, because the gate itself failed; nobody declined it. \
                 {NOT_EXECUTED} {NO_DETOUR} {SAY_SO}"
            ),
            Self::TimedOut { executed } => match executed {
                Executed::No => "The tool did not return in its time. It had no effect.".to_owned(),
                Executed::Yes => {
                    "The tool did not return in its time. It took effect. Do not repeat it.".to_owned()
                }
                Executed::Unknown => format!("The tool did not return in its time. {MAY_HAVE}"),
            },
            Self::OutcomeUnknown => format!("This call was started and its outcome was lost. {MAY_HAVE}"),
        })
    }
}

/// Who said no. Nothing is put down to a person that no person did.
fn decliner(by: &By) -> &'static str {
    match by.via {
        Via::Human => "A person declined",
        Via::Handler => "The approval handler of this program declined",
        Via::Preset => "A preset rule declined",
        Via::Grant | Via::Bypass | Via::Timeout | Via::Cancel | Via::Superseded | Via::GateError => {
            "The gate did not release"
        }
    }
}

/// The word to the model about a reply that did not end well, for the next request.
///
/// `None` for every status that is not about a reply.
pub fn note_on_broken_reply(status: Status) -> Option<&'static str> {
    match status {
        Status::MalformedStream => Some(
            "Your last reply was cut off by its length or by a filter. Its text was kept; no tool call in it was \
             executed and nobody was asked about one. If you still want a call, make it again, shorter.",
        ),
        Status::StreamInterrupted => Some(
            "Your last reply broke off on its way. Its text was kept; no tool call in it was executed and nobody was \
             asked about one. If you still want a call, make it again.",
        ),
        Status::Succeeded
        | Status::ExecutedWithChanges
        | Status::Declined
        | Status::Feedback
        | Status::Expired
        | Status::PolicyDenied
        | Status::Forbidden
        | Status::Cancelled
        | Status::Superseded
        | Status::Limit
        | Status::InvalidArguments
        | Status::ArgumentsTooLarge
        | Status::UnknownTool
        | Status::GateError
        | Status::Failed
        | Status::TimedOut
        | Status::OutcomeUnknown => None,
    }
}

/// A result as it is, or a sentence where it is empty: some providers refuse an empty one.
pub fn never_empty(result: &ResultContent) -> ResultContent {
    let empty = match result {
        ResultContent::Text(text) => text.is_empty(),
        ResultContent::Json(_) => false,
        ResultContent::Parts(parts) => parts.iter().all(body::is_empty),
    };
    if empty { ResultContent::Text(NO_OUTPUT.to_owned()) } else { result.clone() }
}

/// A reason that is over [`REASON_MAX_BYTES`]. It is refused and not cut: half a reason is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reason is {bytes} bytes long; at most {REASON_MAX_BYTES} are allowed")]
pub struct ReasonTooLong {
    /// How long it is.
    pub bytes: usize,
}

/// Checks the length of what a person wrote.
pub fn bounded_reason(reason: &str) -> Result<&str, ReasonTooLong> {
    if reason.len() <= REASON_MAX_BYTES { Ok(reason) } else { Err(ReasonTooLong { bytes: reason.len() }) }
}

#[cfg(test)]
mod tests;
