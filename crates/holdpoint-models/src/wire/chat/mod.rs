//! OpenAI Chat Completions, and everything that says it is compatible with it.
//!
//! Those servers differ in what they accept and in what they send. What is known of one is a [`Profile`]; for an
//! unknown one the strict profile holds, which assumes nothing and sends the least.

mod decode;
mod encode;

use holdpoint_core::message::AssistantMessage;

pub use super::history::IdRule;
use super::{Finished, Wire, WireOptions, WireReader};
use crate::assemble::Habits;
use crate::{ModelError, ModelRequest, Pieces};

/// The name of this wire.
pub const WIRE: &str = "openai-chat";

/// What a server of this kind accepts and sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The ids it accepts in history.
    pub ids: IdRule,
    /// Reasoning goes back in the field it came in, also when it is empty. Some insist, others refuse it.
    pub echo_reasoning: bool,
    /// `max_completion_tokens` in place of `max_tokens`.
    pub max_completion_tokens: bool,
    /// It knows `stream_options.include_usage`.
    pub stream_usage: bool,
    /// Its tool results must be JSON objects.
    pub object_results: bool,
    /// What stands for no text beside calls: `null`, or an empty string.
    pub null_content: bool,
    /// What it is known to do wrong in streams.
    pub habits: Habits,
}

impl Profile {
    /// For a server nobody knows.
    pub const STRICT: Self = Self {
        ids: IdRule::Visible40,
        echo_reasoning: false,
        max_completion_tokens: false,
        stream_usage: true,
        object_results: false,
        null_content: false,
        habits: Habits { cumulative_arguments: false, repeats_at_close: false },
    };

    /// OpenAI's own, and Azure's.
    pub const OPENAI: Self = Self { max_completion_tokens: true, null_content: true, ..Self::STRICT };

    /// Mistral: ids of nine characters, and no `stream_options`.
    pub const MISTRAL: Self = Self { ids: IdRule::Nine, stream_usage: false, ..Self::STRICT };

    /// Gemini's endpoint of this kind: results must be objects.
    pub const GEMINI: Self = Self { object_results: true, ..Self::STRICT };

    /// DeepSeek and Moonshot (Kimi): reasoning must go back beside calls.
    pub const ECHOING: Self = Self { echo_reasoning: true, ..Self::STRICT };

    /// vLLM: its last chunk can repeat the whole arguments.
    pub const VLLM: Self =
        Self { habits: Habits { cumulative_arguments: false, repeats_at_close: true }, ..Self::STRICT };

    /// Every profile by its name in configuration.
    pub const NAMED: [(&'static str, Self); 7] = [
        ("strict", Self::STRICT),
        ("openai", Self::OPENAI),
        ("mistral", Self::MISTRAL),
        ("gemini", Self::GEMINI),
        ("deepseek", Self::ECHOING),
        ("kimi", Self::ECHOING),
        ("vllm", Self::VLLM),
    ];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(own, _)| *own == name).map(|(_, profile)| *profile)
    }

    /// The profile of the server at this host; the strict one when nobody knows it.
    pub fn of_host(host: &str) -> Self {
        let of =
            |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|sub| sub.ends_with('.'));
        match host {
            _ if of("openai.com") || of("azure.com") => Self::OPENAI,
            _ if of("mistral.ai") => Self::MISTRAL,
            _ if of("googleapis.com") => Self::GEMINI,
            _ if of("deepseek.com") || of("moonshot.ai") || of("moonshot.cn") => Self::ECHOING,
            _ => Self::STRICT,
        }
    }
}

/// The Chat Completions wire.
#[derive(Debug, Clone)]
pub struct Chat {
    /// What every wire is told.
    pub options: WireOptions,
    /// What is known of the server.
    pub profile: Profile,
    /// The server's host. Many servers speak this wire; what one of them made goes back to that one alone.
    pub origin: String,
}

impl Wire for Chat {
    fn name(&self) -> &'static str {
        WIRE
    }

    fn encode(&self, request: &ModelRequest, paused: &[AssistantMessage]) -> Result<Vec<u8>, ModelError> {
        // This wire has no pause.
        debug_assert!(paused.is_empty());
        encode::encode(self, request)
    }

    fn reader(&self) -> Box<dyn WireReader> {
        Box::new(decode::Reader::new(self.profile.habits, &self.origin))
    }

    fn whole(&self, body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
        decode::whole(body, &self.origin, pieces)
    }
}
