//! Models of the `rig` library behind Holdpoint's gate: for vendors we have no wire for (Gemini, Bedrock, Ollama's own
//! protocol).
//!
//! ```text
//! let gemini = rig_core::providers::gemini::Gemini::from_env()?.with_http(http).completion("gemini-3-pro");
//! let model = holdpoint_rig::RigModel::new("gemini", gemini);
//! ```
//!
//! Rig reads the wire; what follows from it is decided as for our own wires. In particular:
//! - Every request is streamed, also when nobody watches: rig's stream hands on the argument text as the provider sent
//!   it, while its finished calls hold arguments that were parsed and, if they were broken, repaired.
//! - Calls stand only when the reply ended well. Rig lets a finished call run although the reply was cut by its length;
//!   here nothing of such a reply stands.
//! - A reply goes back to the model that made it as rig's own message, with the provider's items in it.

mod error;
mod history;
mod reading;

use std::pin::Pin;

use async_trait::async_trait;
use futures_core::Stream;
use holdpoint_models::{Model, ModelError, ModelRequest, Pieces, Reply};
use rig_core::driver::DynModel;
use rig_core::operation::Completion;

use reading::Reading;

/// The name of this wire in [`holdpoint_core::message::AssistantMessage::wire`].
pub const WIRE: &str = "rig";

/// A model of rig's.
#[derive(Debug, Clone)]
pub struct RigModel {
    name: String,
    model: DynModel<Completion>,
    max_output_tokens: Option<u64>,
}

impl RigModel {
    /// A model of rig's under a name of ours.
    pub fn new(name: impl Into<String>, model: impl Into<DynModel<Completion>>) -> Self {
        Self { name: name.into(), model: model.into(), max_output_tokens: None }
    }

    /// The most tokens of one reply.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    async fn ask(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        let mut asked = history::request(request)?;
        asked.max_tokens = self.max_output_tokens;
        let mut stream = self.model.stream(asked).map_err(|failed| error::of(&failed))?;
        let mut reading = Reading::default();
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await;
            match next {
                Some(Ok(item)) => reading.take(item, request.stream.then_some(&mut *pieces)),
                Some(Err(failed)) => return reading.broken(&failed),
                None => break,
            }
            if let Some(over) = reading.over() {
                return Ok(over);
            }
        }
        match stream.finish().await {
            Ok(response) => Ok(reading.finish(response)),
            Err(failed) => reading.broken(&failed),
        }
    }
}

#[async_trait]
impl Model for RigModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        // A cancel drops the stream, and with it the connection.
        let reply = request.cancel.run_until_cancelled(self.ask(request, pieces)).await;
        reply.unwrap_or_else(|| Err(ModelError::cancelled()))
    }
}
