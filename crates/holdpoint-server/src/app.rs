//! What all handlers share.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdpoint::Runtime;
use holdpoint::protocol::{ActorId, By, Via};
use holdpoint::store::{Context, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::host::Place;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::stream::{Openings, Wheel};
use crate::{OperatorToken, ServerConfig, ServerError};

/// Who is behind every request, until there are identities.
const OPERATOR: &str = "operator";

pub(crate) struct App {
    pub(crate) runtime: Runtime,
    pub(crate) cx: Context,
    pub(crate) token: OperatorToken,
    pub(crate) place: Place,
    pub(crate) origins: HashSet<String>,
    pub(crate) heartbeat: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) closing: CancellationToken,
    pub(crate) metrics: Metrics,
    /// When quiet streams say that they live.
    pub(crate) wheel: Arc<Wheel>,
    /// The streams that wait to be opened.
    pub(crate) openings: Openings,
    /// What goes on to its end although nobody waits for it any more.
    pub(crate) work: TaskTracker,
}

impl App {
    pub(crate) fn new(
        runtime: Runtime,
        config: &ServerConfig,
        token: OperatorToken,
        place: Place,
        closing: CancellationToken,
    ) -> Result<Self, ServerError> {
        let mut origins = place.origins();
        for origin in &config.allowed_origins {
            origins.insert(crate::host::allowed_origin(origin)?);
        }
        let mut cx = holdpoint::local();
        match ActorId::new(OPERATOR) {
            Ok(actor) => cx.actor = actor,
            Err(_) => unreachable!("`operator` is a valid name"),
        }
        Ok(Self {
            runtime,
            cx,
            token,
            place,
            origins,
            heartbeat: config.heartbeat,
            body_timeout: config.body_timeout,
            closing,
            metrics: Metrics::default(),
            wheel: Arc::default(),
            openings: Openings::default(),
            work: TaskTracker::new(),
        })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.runtime.store().as_ref()
    }

    /// The operator, deciding.
    pub(crate) fn by(&self) -> By {
        By { actor: Some(self.cx.actor.clone()), via: Via::Human }
    }

    /// Does something to its end, also when the client goes away meanwhile: a run that is stored and driven by nobody,
    /// or a decision that nobody acts on, would be stuck.
    pub(crate) async fn whole<T, W>(self: &Arc<Self>, what: impl FnOnce(Arc<Self>) -> W) -> Result<T, Refusal>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        match self.work.spawn(what(Arc::clone(self))).await {
            Ok(done) => done,
            Err(error) => Err(Refusal::internal(&error)),
        }
    }
}
