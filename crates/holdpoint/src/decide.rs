//! Taking a decision: an edit is checked before it is stored, and what is stored counts.

use std::sync::Arc;

use holdpoint_core::arguments::{Arguments, InvalidArguments};
use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::digest::CallDigest;
use holdpoint_core::policy::Verdict;
use holdpoint_core::wording::bounded_reason;
use holdpoint_protocol::{
    ActorId, By, DecisionView, DecisionWord, Event, InteractionKind, InteractionStatus, RawJson, RequestId,
    RunId, Then,
};
use holdpoint_store::{CancelReply, Context, Decide, DecideReply, Loaded, Owner, RequestHead};

use crate::ahead::with_fact;
use crate::inner::Inner;
use crate::permission::{Permitted, permitted};
use crate::{RunInfo, Runtime};

/// A decision to be taken.
#[derive(Debug, Clone)]
pub struct Deciding {
    /// The request.
    pub request: RequestId,
    /// The word.
    pub word: DecisionWord,
    /// Who, from authentication, and how it came.
    pub by: By,
    /// The digest of what was shown; the stored one is meant when absent.
    pub digest: Option<CallDigest>,
    /// What the person wrote, at most 8 KiB.
    pub reason: Option<String>,
    /// `approve_with`: the edited argument text, whole.
    pub arguments: Option<String>,
    /// `ran`: the reported result.
    pub result: Option<RawJson>,
    /// What follows for the run.
    pub then: Then,
}

impl Deciding {
    /// A plain decision.
    pub fn new(request: RequestId, word: DecisionWord, by: By) -> Self {
        Self {
            request,
            word,
            by,
            digest: None,
            reason: None,
            arguments: None,
            result: None,
            then: Then::Continue,
        }
    }

    /// Bound to the digest of what was shown.
    #[must_use]
    pub fn digest(mut self, digest: CallDigest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// With a reason.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// A decision that is stored.
#[derive(Debug, Clone)]
pub struct Decided {
    /// What is stored.
    pub decision: Decision,
    /// The run it is about.
    pub run: Option<RunId>,
    /// Whether the same decision was stored before.
    pub repeated: bool,
}

/// A decision that was not taken. The request stands as it stood, and nothing ran.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DecideError {
    /// There is no such request for this tenant.
    #[error("there is no such request")]
    NotFound,
    /// It was decided otherwise, or closed.
    #[error("the request is closed already")]
    Conflict {
        /// How it stands.
        status: InteractionStatus,
        /// What closed it.
        winner: Option<DecisionView>,
    },
    /// The digest is not the pending one.
    #[error("what you were shown is not what is pending; read the request again and decide on that")]
    Stale {
        /// The pending one.
        digest: CallDigest,
    },
    /// The deadline has passed.
    #[error("the deadline has passed; this decision does not count")]
    Expired,
    /// It is for a person, and not for a program, a rule or a standing release.
    #[error("only a person may decide this request")]
    NotYours,
    /// The word does not decide this kind of request.
    #[error("`{}` does not decide this request; it takes: {allowed}", word.as_str())]
    WrongWord {
        /// The word.
        word: DecisionWord,
        /// What it takes.
        allowed: String,
    },
    /// Something belongs with the word, or does not.
    #[error("{0}")]
    Companion(&'static str),
    /// The reason is too long.
    #[error("{0}")]
    ReasonTooLong(#[from] holdpoint_core::wording::ReasonTooLong),
    /// The edited arguments cannot be read or do not fit. Nothing runs: neither the edited nor the original ones.
    #[error("the edited arguments were refused: {0}")]
    InvalidEdit(InvalidArguments),
    /// The edited call is one that may not run.
    #[error("the edited call was refused: {why}")]
    EditRefused {
        /// `forbidden`, `policy_denied` or `tool_unavailable`.
        code: &'static str,
        /// Why.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] holdpoint_store::Error),
}

/// A cancel that was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CancelError {
    /// There is no such run for this tenant.
    #[error("there is no such run")]
    NotFound,
    /// The run is somebody else's.
    #[error("the run is not yours to end")]
    NotYours,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] holdpoint_store::Error),
}

/// A cancel that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// Noted; the run ends.
    Noted,
    /// It was noted before.
    Repeated,
    /// The run had ended.
    Ended,
}

impl Runtime {
    /// Takes a decision. When this returns it is durable, and the run is carried on.
    ///
    /// # Errors
    /// [`DecideError`]: the request stands as it stood.
    pub async fn decide(&self, cx: &Context, deciding: Deciding) -> Result<Decided, DecideError> {
        self.inner.decide(cx, deciding).await
    }

    /// Cancels a run: what waits is closed, what runs is told to stop, every call is answered.
    ///
    /// # Errors
    /// [`CancelError`].
    pub async fn cancel(&self, cx: &Context, run: RunId) -> Result<Cancelled, CancelError> {
        self.cancel_as(cx, run, CancelKind::Cancel).await
    }

    pub(crate) async fn cancel_as(
        &self,
        cx: &Context,
        run: RunId,
        kind: CancelKind,
    ) -> Result<Cancelled, CancelError> {
        let rt = &self.inner;
        match rt.store.cancel(cx, run, kind).await? {
            CancelReply::Noted(noted) => {
                rt.handling.cancel(run);
                rt.noted_by_run(noted).await;
                Ok(Cancelled::Noted)
            }
            CancelReply::Repeated => Ok(Cancelled::Repeated),
            CancelReply::Ended => Ok(Cancelled::Ended),
            CancelReply::NotFound => Err(CancelError::NotFound),
        }
    }
}

impl Inner {
    pub(crate) async fn decide(
        self: &Arc<Self>,
        cx: &Context,
        deciding: Deciding,
    ) -> Result<Decided, DecideError> {
        companions(&deciding)?;
        if let Some(reason) = &deciding.reason {
            bounded_reason(reason)?;
        }
        let asked = self.store.request(cx, deciding.request).await?.ok_or(DecideError::NotFound)?;
        let mut redefined = None;
        if asked.status == InteractionStatus::Pending {
            fits(asked.kind, deciding.word)?;
            if asked.loaded.is_none() && deciding.arguments.is_some() {
                // An edit that cannot be read against its run is no decision.
                self.store.load(cx, asked.run).await?;
                return Err(DecideError::NotFound);
            }
        }
        // Of what a newer version has written: who can read it looks before it runs anything.
        if let Some(run) = &asked.loaded {
            let approves = matches!(deciding.word, DecisionWord::Approve | DecisionWord::ApproveWith);
            // What a doubt releases is checked when it starts, like everything else, and asked about as what it is then.
            if approves && asked.kind == InteractionKind::Approval {
                redefined = self.redefined(deciding.request, &asked, run);
            }
            if let (Some(arguments), None) = (&deciding.arguments, &redefined) {
                self.check_edit(run, deciding.request, arguments).await?;
            }
        }
        let step = self.step_ahead(&deciding, &asked);
        let ahead = step.as_ref().map(|step| (step.epoch, step.writes.events.clone())).unwrap_or_default();
        let says_no = matches!(deciding.word, DecisionWord::Decline | DecisionWord::Feedback);
        let decide = Decide {
            request: deciding.request,
            word: deciding.word,
            by: deciding.by,
            digest: deciding.digest,
            reason: deciding.reason,
            arguments: deciding.arguments,
            result: deciding.result,
            then: deciding.then,
            redefined: redefined.is_some(),
            step,
        };
        let turn = self.turns.at(asked.run).await;
        let again = says_no.then(|| decide.clone());
        let mut reply = self.store.decide(cx, decide).await?;
        // Where the run is being worked on, its next start sees to it.
        if let (Some(actor), DecideReply::Stale { .. }) = (redefined, &reply)
            && let Some(taken) = self.store.take(cx, asked.run).await?
        {
            self.resume_at(Context { actor, ..cx.clone() }, taken);
        }
        // A no that comes late is no decision any more, and still nothing is released after it: the request expires here and
        // now, and is not put to a preset.
        if let (Some(again), DecideReply::Expired) = (again, &reply) {
            if let Some(noted) = self.store.close_due(cx, deciding.request, None).await? {
                drop(turn);
                self.noted_by_run(noted).await;
                return Err(DecideError::Expired);
            }
            // The preset was asked in this moment, or time closed it: whoever said no is told which.
            reply = self.store.decide(cx, again).await?;
        }
        self.follow(reply, deciding.request, asked.loaded.map(|run| *run), (ahead.0, &ahead.1))
    }

    fn follow(
        self: &Arc<Self>,
        reply: DecideReply,
        request: RequestId,
        loaded: Option<Loaded>,
        (ahead_at, ahead): (u64, &[Arc<Event>]),
    ) -> Result<Decided, DecideError> {
        match reply {
            DecideReply::Taken { decision, noted } => {
                holdpoint_store::failpoint("after_decide");
                let run = noted.run;
                if let Owner::Elsewhere(instance) = noted.owner {
                    tracing::debug!(%run, %instance, "decided; another instance carries the run on");
                }
                // What is decided was open before, and then its run was loaded with it, where this version can read it.
                let agent = loaded.as_ref().map_or(&self.default_agent, |run| run.run.agent()).clone();
                // Nobody has a run either that was set aside meanwhile: the step was made of another epoch then.
                let was_stored = noted.owner == Owner::Nobody && noted.epoch == ahead_at;
                let ahead = if was_stored { ahead } else { &[] };
                let fact = Fact::Decided { request, decision: Box::new(decision.clone()) };
                let loaded = loaded.and_then(|loaded| with_fact(loaded, fact, &noted));
                self.noted(noted, &agent, loaded);
                ahead.iter().for_each(|event| self.hub.publish_aside(run, &agent, event));
                Ok(Decided { decision, run: Some(run), repeated: false })
            }
            DecideReply::Repeated { decision } => Ok(Decided { decision, run: None, repeated: true }),
            DecideReply::Conflict { status, winner } => Err(DecideError::Conflict { status, winner }),
            DecideReply::Stale { digest } => Err(DecideError::Stale { digest }),
            DecideReply::Expired => Err(DecideError::Expired),
            DecideReply::NotYours => Err(DecideError::NotYours),
            DecideReply::NotFound => Err(DecideError::NotFound),
        }
    }

    /// A tool may have been defined otherwise since the request was made: it comes from a source that changed, or an
    /// earlier process made the request. Then what was shown is not what would run: this decision is about something that is no
    /// longer there, and the request is to be asked anew, in the name of the run's actor, who is returned.
    fn redefined(&self, request: RequestId, asked: &RequestHead, loaded: &Loaded) -> Option<ActorId> {
        let agent = self.agents.get(loaded.run.agent())?;
        if !agent.tools.can_change() && asked.opened_at > self.started {
            return None;
        }
        let index = loaded.run.call_of(request)?;
        let tools = agent.tools.now();
        let now = loaded.run.tool_of(index).and_then(|name| tools.get(name)).map(|entry| entry.digest);
        let is_another = now.is_some() && now != loaded.run.definition(index);
        is_another.then(|| loaded.run.actor().clone())
    }

    /// An edited call goes through the gate as what it has become. An edit that may not run is refused as a decision.
    async fn check_edit(&self, loaded: &Loaded, request: RequestId, text: &str) -> Result<(), DecideError> {
        let gone = |why: String| DecideError::EditRefused { code: "tool_unavailable", why };
        let agent = self
            .agents
            .get(loaded.run.agent())
            .ok_or_else(|| gone(format!("the agent `{}` is not loaded here", loaded.run.agent())))?;
        // The request may have been closed since it was looked at; then the store says so.
        let Some(index) = loaded.run.call_of(request) else { return Ok(()) };
        let name = loaded.run.tool_of(index).unwrap_or_default();
        let tools = agent.tools.now();
        let entry = tools.get(name).ok_or_else(|| gone(format!("the tool `{name}` is not loaded here")))?;
        let arguments =
            Arguments::parse(text, agent.settings.limits.argument_bytes).map_err(DecideError::InvalidEdit)?;
        entry.schema.check(&arguments).map_err(DecideError::InvalidEdit)?;
        if let Some(permission) = &agent.permission {
            let info = RunInfo::of(&loaded.run);
            match permitted(permission.as_ref(), &info, &entry.definition, arguments.value()).await {
                Permitted::Yes => {}
                Permitted::No(forbidden) => {
                    return Err(DecideError::EditRefused { code: "forbidden", why: forbidden.code });
                }
                Permitted::Failed(why) => return Err(DecideError::EditRefused { code: "forbidden", why }),
            }
        }
        let ruling = agent.policy.rule(name);
        match ruling.verdict {
            Verdict::Deny => Err(DecideError::EditRefused {
                code: "policy_denied",
                why: format!("{}: {}", ruling.reason.policy, ruling.reason.rule),
            }),
            Verdict::Allow | Verdict::Ask => Ok(()),
        }
    }
}

/// What belongs with a word is there, and nothing else.
fn companions(deciding: &Deciding) -> Result<(), DecideError> {
    let arguments = deciding.arguments.is_some();
    let result = deciding.result.is_some();
    match deciding.word {
        DecisionWord::ApproveWith if !arguments => {
            Err(DecideError::Companion("`approve_with` needs `arguments`: the whole edited argument text"))
        }
        DecisionWord::Feedback
            if deciding.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) =>
        {
            Err(DecideError::Companion("`feedback` needs `reason`: what to do instead"))
        }
        DecisionWord::Ran if !result => {
            Err(DecideError::Companion("`ran` needs `result`: what came of the call"))
        }
        DecisionWord::Answer if !result => Err(DecideError::Companion("`answer` needs `answers`")),
        DecisionWord::Approve
        | DecisionWord::Decline
        | DecisionWord::Feedback
        | DecisionWord::Answer
        | DecisionWord::Ran
        | DecisionWord::Leave
            if arguments =>
        {
            Err(DecideError::Companion("`arguments` goes with `approve_with` alone; nothing was decided"))
        }
        DecisionWord::Approve
        | DecisionWord::ApproveWith
        | DecisionWord::Decline
        | DecisionWord::Feedback
        | DecisionWord::Leave
            if result =>
        {
            Err(DecideError::Companion(
                "`answers` goes with `answer`, `result` with `ran`; nothing was decided",
            ))
        }
        DecisionWord::Approve
        | DecisionWord::ApproveWith
        | DecisionWord::Decline
        | DecisionWord::Feedback
        | DecisionWord::Answer
        | DecisionWord::Ran
        | DecisionWord::Leave => Ok(()),
    }
}

fn fits(kind: InteractionKind, word: DecisionWord) -> Result<(), DecideError> {
    let allowed: &[DecisionWord] = match kind {
        InteractionKind::Approval => {
            &[DecisionWord::Approve, DecisionWord::ApproveWith, DecisionWord::Decline, DecisionWord::Feedback]
        }
        InteractionKind::Question => &[DecisionWord::Answer, DecisionWord::Decline],
        InteractionKind::InDoubt => &[DecisionWord::Ran, DecisionWord::Leave, DecisionWord::Approve],
        InteractionKind::Quarantine => &[DecisionWord::Approve, DecisionWord::Decline],
    };
    if allowed.contains(&word) {
        return Ok(());
    }
    let allowed = allowed.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(", ");
    Err(DecideError::WrongWord { word, allowed })
}
