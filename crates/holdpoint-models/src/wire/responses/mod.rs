//! OpenAI Responses. Nothing is stored at the provider: the whole conversation goes with each request, reasoning
//! items in their encrypted form.

mod decode;
mod encode;

use holdpoint_core::message::AssistantMessage;

use super::{Finished, Wire, WireOptions, WireReader};
use crate::{ModelError, ModelRequest, Pieces};

/// The name of this wire.
pub const WIRE: &str = "openai-responses";

/// The Responses wire.
#[derive(Debug, Clone)]
pub struct Responses {
    /// What every wire is told.
    pub options: WireOptions,
    /// Asks for the encrypted form of reasoning items. Models that do not reason refuse the question.
    pub encrypted_reasoning: bool,
}

impl Responses {
    /// Whether a model of this name reasons, as far as the name tells.
    pub fn reasons(model: &str) -> bool {
        let after = |prefix: &str| model.strip_prefix(prefix).and_then(|rest| rest.chars().next());
        after("o").is_some_and(|c| c.is_ascii_digit())
            || after("gpt-").is_some_and(|c| ('5'..='9').contains(&c))
    }
}

impl Wire for Responses {
    fn name(&self) -> &'static str {
        WIRE
    }

    fn encode(&self, request: &ModelRequest, paused: &[AssistantMessage]) -> Result<Vec<u8>, ModelError> {
        // This wire has no pause.
        debug_assert!(paused.is_empty());
        encode::encode(self, request)
    }

    fn reader(&self) -> Box<dyn WireReader> {
        Box::new(decode::Reader::new())
    }

    fn whole(&self, body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
        decode::whole(body, pieces)
    }
}
