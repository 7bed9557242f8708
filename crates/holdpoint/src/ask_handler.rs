//! Asking the approval handler of an agent. Its answers are ordinary decisions.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use holdpoint_protocol::{
    ActorId, ApprovalRequest, By, CallId, DecisionWord, InteractionKind, InteractionStatus, RequestId, RunId,
    Then, Via,
};
use holdpoint_store::{Context, InteractionFilter, PAGE_MAX, PageRequest};

use crate::agent::Agent;
use crate::decide::Deciding;
use crate::handler::{Answer, ApprovalBatch, ApprovalHandler, ExtensionsDebug};
use crate::inner::{Inner, tool_context};
use crate::{RunInfo, Runtime};

impl Inner {
    /// Asks the handler on a task of its own: a handler may take as long as a person.
    pub(crate) fn ask_handler(
        self: &Arc<Self>,
        agent: Arc<Agent>,
        cx: Context,
        info: RunInfo,
        mut requests: Vec<ApprovalRequest>,
    ) {
        let Some(handler) = agent.handler.clone() else { return };
        let Some((batch_id, cancel)) = self.handling.begin(info.run, &mut requests, &self.shutdown) else {
            return;
        };
        let rt = Arc::clone(self);
        self.tasks.spawn(async move {
            let run = info.run;
            let batch = ApprovalBatch {
                deadline: requests.iter().filter_map(|request| request.deadline).min(),
                context: ExtensionsDebug(tool_context(&agent, &info).extensions.clone()),
                requests: requests.clone(),
                run: info,
                cancel: cancel.clone(),
            };
            let asked = std::panic::AssertUnwindSafe(async { handler.decide(batch).await }).catch_unwind();
            let answers = tokio::select! {
                answers = asked => Some(answers),
                // Nothing is left to answer, or the process stops: then it is asked again after a start.
                () = cancel.cancelled() => None,
            };
            match answers {
                Some(Ok(Ok(answers))) => rt.take_answers(&cx, handler.as_ref(), &requests, answers).await,
                Some(Ok(Err(error))) => {
                    tracing::error!(%run, %error, "the approval handler failed; its requests are closed, nothing of them runs");
                    rt.close_batch(&cx, agent.name(), &requests).await;
                }
                Some(Err(_panic)) => {
                    tracing::error!(%run, "the approval handler panicked; its requests are closed, nothing of them runs");
                    rt.close_batch(&cx, agent.name(), &requests).await;
                }
                None => {}
            }
            rt.handling.end(run, batch_id);
            // The handler may have left something open: whoever waits for the run looks whether it waits.
            rt.waiters.look(run);
        });
    }

    async fn take_answers(
        self: &Arc<Self>,
        cx: &Context,
        handler: &dyn ApprovalHandler,
        requests: &[ApprovalRequest],
        answers: HashMap<CallId, Answer>,
    ) {
        let name = handler.name();
        let Ok(actor) = ActorId::new(&format!("handler:{name}")) else {
            tracing::error!(name, "not a name a handler can decide under; its answers are not taken");
            return;
        };
        let cx = Context { tenant: cx.tenant.clone(), actor: actor.clone() };
        for request in requests {
            let Some(answer) = answers.get(&request.call_id) else { continue };
            let by = By { actor: Some(actor.clone()), via: Via::Handler };
            let deciding = deciding(request, answer, by);
            if let Err(error) = self.decide(&cx, deciding).await {
                tracing::info!(request = %request.request_id, %error, "the handler's answer was not taken");
                let told = std::panic::AssertUnwindSafe(|| handler.not_taken(request, &error));
                if std::panic::catch_unwind(told).is_err() {
                    tracing::warn!(%name, "the approval handler panicked when it was told so");
                }
            }
        }
    }

    async fn close_batch(
        self: &Arc<Self>,
        cx: &Context,
        agent: &holdpoint_protocol::AgentName,
        requests: &[ApprovalRequest],
    ) {
        let ids: Vec<RequestId> = requests.iter().map(|request| request.request_id).collect();
        let closed = self.persist(|| self.store.fail_gate(cx, &ids)).await;
        for noted in closed.unwrap_or_default() {
            let _turn = self.turns.at(noted.run).await;
            self.noted(noted, agent, None);
        }
    }
}

fn deciding(request: &ApprovalRequest, answer: &Answer, by: By) -> Deciding {
    let (word, reason, arguments, then) = match answer {
        Answer::Approve => (DecisionWord::Approve, None, None, Then::Continue),
        Answer::ApproveWith { arguments } => {
            (DecisionWord::ApproveWith, None, Some(arguments.clone()), Then::Continue)
        }
        Answer::Decline { reason, then } => (DecisionWord::Decline, reason.clone(), None, *then),
        Answer::Feedback { text, then } => (DecisionWord::Feedback, Some(text.clone()), None, *then),
    };
    Deciding {
        request: request.request_id,
        word,
        by,
        // What the handler saw, and nothing that has taken its place since.
        digest: request.digest.parse().ok(),
        reason,
        arguments,
        result: None,
        then,
    }
}

impl Runtime {
    /// After a start: the handlers are asked again, with the same request ids, about what is still open.
    pub(crate) async fn ask_handlers_again(&self, cx: &Context) {
        let rt = &self.inner;
        if rt.agents.values().all(|agent| agent.handler.is_none()) {
            return;
        }
        let filter = InteractionFilter {
            status: Some(InteractionStatus::Pending),
            kind: Some(InteractionKind::Approval),
            ..InteractionFilter::default()
        };
        let mut page = PageRequest { cursor: None, limit: PAGE_MAX };
        let mut batches: Vec<(RunId, Arc<Agent>, Vec<ApprovalRequest>)> = Vec::new();
        while let Ok(found) = rt.store.interactions(cx, &filter, &page).await {
            for interaction in found.items {
                let Some(agent) = rt.agents.get(&interaction.agent).filter(|agent| agent.handler.is_some())
                else {
                    continue;
                };
                let Ok(request) = serde_json::from_str::<ApprovalRequest>(interaction.request.get()) else {
                    continue;
                };
                match batches.iter_mut().find(|(run, ..)| *run == interaction.run_id) {
                    Some((_, _, requests)) => requests.push(request),
                    None => batches.push((interaction.run_id, Arc::clone(agent), vec![request])),
                }
            }
            match found.next_cursor {
                Some(cursor) => page.cursor = Some(cursor),
                None => break,
            }
        }
        for (run, agent, requests) in batches {
            if let Ok(Some(loaded)) = rt.store.load(cx, run).await {
                let cx = Context { tenant: loaded.run.tenant().clone(), actor: loaded.run.actor().clone() };
                rt.ask_handler(agent, cx, RunInfo::of(&loaded.run), requests);
            }
        }
    }
}
