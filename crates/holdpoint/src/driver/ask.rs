//! Asking the model, on a task of its own.

use std::sync::Arc;

use futures_util::FutureExt;
use holdpoint_core::message::is_whole;
use holdpoint_core::run::{Input, Replied, ReplyEnd};
use holdpoint_models::{ModelRequest, Pieces, Reply};
use holdpoint_protocol::{Event, EventBody, Piece, RunId};
use tokio_util::sync::CancellationToken;

use super::{Driver, Inbox};
use crate::RunInfo;
use crate::agent::Agent;
use crate::inner::Inner;
use crate::toolset::Toolset;

impl Driver {
    pub(super) fn ask_model(&mut self, round: u32) {
        let cancel = CancellationToken::new();
        self.asking = Some(cancel.clone());
        self.offer(self.agent.tools.now());
        self.offered = None;
        let request = ModelRequest {
            instructions: Arc::clone(&self.agent.instructions),
            messages: self.told(),
            tools: Arc::clone(self.tools.definitions()),
            stream: self.agent.stream,
            cancel: cancel.clone(),
        };
        let (model, agent, info, tx) =
            (Arc::clone(&self.model), Arc::clone(&self.agent), self.info.clone(), self.seat.tx.clone());
        let mut pieces =
            Live { rt: Arc::clone(&self.rt), agent: Arc::clone(&self.agent), run: self.run.id() };
        let rt = Arc::clone(&self.rt);
        self.rt.tasks.spawn(async move {
            let asked = std::panic::AssertUnwindSafe(async {
                rt.until_it_may_begin().await;
                ask(&agent, &info, round, request, &tx, async |request| {
                    let reply = model.reply(&request, &mut pieces).await?;
                    let cost = model.cost_micro_dollars(reply.usage);
                    Ok((reply, cost))
                })
                .await
            });
            let input = tokio::select! {
                asked = asked.catch_unwind() => asked.unwrap_or_else(|_| Input::ModelFailed {
                    round,
                    code: "model_panicked".into(),
                    message: "the model adapter or a hook around the round broke down".into(),
                    retryable: false,
                }),
                () = cancel.cancelled() => return,
            };
            let _ = tx.send(Inbox::Input(input)).await;
        });
    }

    /// These are the tools of the round. When they are others than before, that is stored with the round's reply.
    fn offer(&mut self, tools: Arc<Toolset>) {
        if tools.stored().digest != self.tools.stored().digest {
            self.new_tools = Some(tools.stored().clone());
        }
        self.tools = tools;
    }
}

async fn ask(
    agent: &Agent,
    info: &RunInfo,
    round: u32,
    mut request: ModelRequest,
    tx: &tokio::sync::mpsc::Sender<Inbox>,
    reply: impl AsyncFnOnce(ModelRequest) -> Result<(Reply, Option<u64>), holdpoint_models::ModelError>,
) -> Input {
    if round == 1 {
        for hook in &agent.around_run {
            if let Err(error) = hook.before(info).await {
                return failed(round, "hook", error.message, false);
            }
        }
    }
    for hook in &agent.around_round {
        if let Err(error) = hook.before(info, round, &mut request).await {
            return failed(round, "hook", error.message, false);
        }
    }
    if !agent.around_round.is_empty() {
        if !is_whole(request.messages.iter().map(AsRef::as_ref)) {
            let what =
                "a hook around the round left a call without its answer; cut a history between its rounds";
            return failed(round, "hook", what.into(), false);
        }
        let names = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let _ = tx.send(Inbox::Offered(names)).await;
    }
    match reply(request).await {
        Ok((reply, cost)) => {
            for hook in &agent.around_round {
                hook.after(info, round, &reply).await;
            }
            Input::Replied { round, reply: replied(reply, cost) }
        }
        Err(error) => failed(round, error.code, error.message, error.retryable),
    }
}

fn failed(round: u32, code: &str, message: String, retryable: bool) -> Input {
    Input::ModelFailed { round, code: code.to_owned(), message, retryable }
}

fn replied(reply: Reply, cost_micro_dollars: Option<u64>) -> Replied {
    Replied {
        message: reply.message,
        end: match reply.end {
            holdpoint_models::ReplyEnd::Complete => ReplyEnd::Complete,
            holdpoint_models::ReplyEnd::Length => ReplyEnd::Malformed("it was cut off at the length limit"),
            holdpoint_models::ReplyEnd::Filtered => ReplyEnd::Malformed("it was cut off by a content filter"),
            holdpoint_models::ReplyEnd::Interrupted(why) => ReplyEnd::Interrupted(why),
        },
        input_tokens: reply.usage.input_tokens,
        output_tokens: reply.usage.output_tokens,
        cost_micro_dollars,
        other_choices: (reply.other_choices, reply.other_choices_had_calls),
    }
}

/// Pieces of a reply, shown while it is made. They are not stored: the round's message takes their place.
struct Live {
    rt: Arc<Inner>,
    agent: Arc<Agent>,
    run: RunId,
}

impl Live {
    fn show(&self, body: EventBody) {
        let event = Arc::new(Event { seq: None, run_id: self.run, child: None, body });
        self.rt.hub.show(self.run, self.agent.name(), &event);
    }
}

impl Pieces for Live {
    fn text(&mut self, piece: &str) {
        self.show(EventBody::Token(Piece { data: piece.to_owned() }));
    }

    fn reasoning(&mut self, piece: &str) {
        self.show(EventBody::Reasoning(Piece { data: piece.to_owned() }));
    }
}
