//! Anthropic Messages.

mod decode;
mod encode;

use holdpoint_core::message::AssistantMessage;

use super::{Finished, Wire, WireOptions, WireReader};
use crate::{ModelError, ModelRequest, Pieces};

/// The name of this wire.
pub const WIRE: &str = "anthropic";

/// The version of the API that is asked for.
pub const VERSION: &str = "2023-06-01";

/// How many tokens a reply may have when configuration does not say: this API insists on a number.
pub const DEFAULT_MAX_TOKENS: u32 = 8_192;

/// The Messages wire.
#[derive(Debug, Clone)]
pub struct Anthropic {
    /// What every wire is told.
    pub options: WireOptions,
}

impl Wire for Anthropic {
    fn name(&self) -> &'static str {
        WIRE
    }

    fn encode(&self, request: &ModelRequest, paused: &[AssistantMessage]) -> Result<Vec<u8>, ModelError> {
        encode::encode(self, request, paused)
    }

    fn reader(&self) -> Box<dyn WireReader> {
        Box::new(decode::Reader::new())
    }

    fn whole(&self, body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
        decode::whole(body, pieces)
    }
}
