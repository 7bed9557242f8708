//! What all stores do alike: judge a decision, and write down a fact.

use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::digest::CallDigest;
use holdpoint_core::run::{AuditRecord, ClosedBy, Opened};
use holdpoint_core::terms::{Due, Terms};
use holdpoint_protocol::{
    ActorId, By, CallId, DecisionEvent, DecisionView, DecisionWord, Event, EventBody, InteractionKind,
    InteractionStatus, Notice, Reminder, RequestId, RuleUsed, RunId, Then, Timestamp, Via,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cursor::hex;
use crate::{Decide, DecideReply, Loaded, Next, RequestHead, RuleRelease, Step};

/// A request as every store keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) call: CallId,
    pub(crate) kind: InteractionKind,
    pub(crate) digest: CallDigest,
    /// How long it waits, and what happens then.
    pub(crate) terms: Terms,
    /// When the next reminder is due.
    pub(crate) remind_at: Option<Timestamp>,
    /// How many there were.
    pub(crate) reminders: u32,
    /// When further groups were told.
    pub(crate) escalated_at: Option<Timestamp>,
    /// The number of the event that announced it.
    pub(crate) seq: u64,
    pub(crate) opened_at: Timestamp,
    pub(crate) status: InteractionStatus,
    /// What closed it. Absent while it is open.
    pub(crate) closure: Option<Closure>,
}

/// What closed a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Closure {
    /// A decision.
    Decided(Box<Decision>),
    /// Anything else.
    Otherwise(DecisionView),
}

impl Closure {
    pub(crate) fn view(&self) -> DecisionView {
        match self {
            Self::Decided(decision) => DecisionView {
                decision: decision.word.as_str().to_owned(),
                by: decision.by.clone(),
                rule: decision.rule.clone().map(Box::new),
                reason: decision.reason.clone(),
                at: decision.at,
            },
            Self::Otherwise(view) => view.clone(),
        }
    }
}

impl Request {
    /// A request that opens now.
    pub(crate) fn opened(opened: &Opened, seq: u64, now: Timestamp) -> Self {
        Self {
            id: opened.request,
            call: opened.call,
            kind: opened.kind,
            digest: opened.digest,
            remind_at: opened.terms.first_reminder(),
            terms: opened.terms.clone(),
            reminders: 0,
            escalated_at: None,
            seq,
            opened_at: now,
            status: InteractionStatus::Pending,
            closure: None,
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.call.run
    }

    pub(crate) fn is_open(&self) -> bool {
        self.status == InteractionStatus::Pending
    }

    /// The reminder that is due now, if one is. What is late is over, and reminds nobody.
    pub(crate) fn reminder_due(&self, now: Timestamp) -> Option<Due> {
        let planned = self.remind_at.filter(|at| *at <= now && self.is_open() && !self.is_late(now))?;
        Some(self.terms.due(planned, now))
    }

    /// What somebody must know of it to decide it.
    pub(crate) fn head(&self, loaded: Option<Loaded>) -> RequestHead {
        RequestHead {
            run: self.run(),
            kind: self.kind,
            status: self.status,
            opened_at: self.opened_at,
            loaded: loaded.map(Box::new),
        }
    }

    fn is_late(&self, now: Timestamp) -> bool {
        self.terms.expires_at().is_some_and(|deadline| deadline <= now)
    }
}

/// That a run is to be ended from outside, as it is kept with the run.
#[derive(Debug, Clone)]
pub(crate) struct CancelNote {
    pub(crate) kind: CancelKind,
    pub(crate) by: ActorId,
    pub(crate) at: Timestamp,
}

impl CancelNote {
    /// How a request stands whose run is to be ended, although nobody has closed it yet. A doubt is never superseded.
    fn ends(&self, kind: InteractionKind) -> Option<(InteractionStatus, DecisionView)> {
        let (status, word, via) = match (self.kind, kind) {
            (CancelKind::Cancel, _) => (InteractionStatus::Cancelled, "cancelled", Via::Cancel),
            (CancelKind::Supersede, InteractionKind::Approval | InteractionKind::Question) => {
                (InteractionStatus::Superseded, "superseded", Via::Superseded)
            }
            (CancelKind::Supersede, InteractionKind::InDoubt) => return None,
        };
        let by = By { actor: Some(self.by.clone()), via };
        Some((status, DecisionView { decision: word.to_owned(), by, rule: None, reason: None, at: self.at }))
    }
}

/// What is to become of a decision.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a short-lived answer
pub(crate) enum Judgement {
    /// It counts: it is to be stored.
    Take(Box<Decision>),
    /// It does not. Where somebody should later see that it was tried, there is a record of it.
    Refuse(DecideReply, Option<AuditRecord>),
}

/// Judges a decision on a request of the same tenant. What it says holds only in the transaction that read the request.
pub(crate) fn judge(
    request: &Request,
    cancel: Option<&CancelNote>,
    decide: &Decide,
    now: Timestamp,
) -> Judgement {
    let fits = decide.digest.is_none_or(|digest| digest == request.digest);
    let late = || {
        let record = tried("late_decision", request, decide);
        Judgement::Refuse(DecideReply::Expired, Some(record))
    };
    let conflict = || {
        let winner = request.closure.as_ref().map(Closure::view);
        Judgement::Refuse(DecideReply::Conflict { status: request.status, winner }, None)
    };
    if let (true, Some((status, winner))) =
        (request.is_open(), cancel.and_then(|note| note.ends(request.kind)))
    {
        return Judgement::Refuse(DecideReply::Conflict { status, winner: Some(winner) }, None);
    }
    match (request.status, &request.closure) {
        (InteractionStatus::Pending, _) if request.is_late(now) => late(),
        (InteractionStatus::Pending, _) if !fits || decide.redefined => {
            let record = tried("stale_decision", request, decide);
            Judgement::Refuse(DecideReply::Stale { digest: request.digest }, Some(record))
        }
        (InteractionStatus::Pending, _) => Judgement::Take(Box::new(decision(request, decide, now))),
        (InteractionStatus::Expired, _) => late(),
        (InteractionStatus::Decided, Some(Closure::Decided(stored))) if fits && is_same(stored, decide) => {
            Judgement::Refuse(DecideReply::Repeated { decision: (**stored).clone() }, None)
        }
        (
            InteractionStatus::Decided | InteractionStatus::Cancelled | InteractionStatus::Superseded,
            Some(Closure::Decided(_) | Closure::Otherwise(_)) | None,
        ) => conflict(),
    }
}

/// Whether the step that comes with a decision follows from it: the run is still as it was when the step was made, and
/// nobody has it in hand.
pub(crate) fn follows(decide: &Decide, is_free: bool, epoch: u64, next_seq: u64) -> bool {
    let follows = |step: &Step<'_>| {
        step.next == Next::Suspend && step.epoch == epoch && step.expected_seq == next_seq + 1
    };
    is_free && decide.step.as_deref().is_some_and(follows)
}

fn decision(request: &Request, decide: &Decide, now: Timestamp) -> Decision {
    Decision {
        word: decide.word,
        by: decide.by.clone(),
        rule: None,
        digest: request.digest,
        reason: decide.reason.clone(),
        arguments: decide.arguments.clone(),
        result: decide.result.clone(),
        then: decide.then,
        at: now,
    }
}

/// How a request whose deadline has passed is closed, when a preset was asked about it. `None` when it is not due. What it
/// says holds only in the transaction that read the request.
pub(crate) fn close_due(
    request: &Request,
    cancel: Option<&CancelNote>,
    release: Option<RuleRelease>,
    now: Timestamp,
) -> Option<Closing> {
    if !request.is_open() || !request.is_late(now) {
        return None;
    }
    let ends = cancel.is_some_and(|note| note.ends(request.kind).is_some());
    let fits = |release: &RuleRelease| {
        request.kind == InteractionKind::Approval
            && !ends
            && request.terms.preset() == Some(release.rule.name.as_str())
    };
    Some(match release.filter(fits) {
        None => Closing::Expired,
        Some(release) => Closing::Decided(Box::new(Decision {
            word: DecisionWord::Approve,
            by: By { actor: Some(release.actor), via: Via::Preset },
            rule: Some(release.rule),
            digest: request.digest,
            reason: None,
            arguments: None,
            result: None,
            then: Then::Continue,
            at: now,
        })),
    })
}

/// Writes down that people are reminded of a request.
pub(crate) fn remind(request: &Request, due: Due, now: Timestamp) -> (EventBody, AuditRecord) {
    let escalated = due.escalates || request.escalated_at.is_some();
    let escalated_to = if due.escalates { request.terms.escalate_to.clone() } else { Vec::new() };
    let names: Vec<&str> = escalated_to.iter().map(|group| group.as_str()).collect();
    let what = match names.is_empty() {
        true => due.stage.as_str().to_owned(),
        false => format!("{} escalated_to={}", due.stage.as_str(), names.join(",")),
    };
    let event = EventBody::Reminder(Reminder {
        request_id: request.id,
        call_id: request.call,
        stage: due.stage,
        deadline: request.terms.deadline,
        on_timeout: request.terms.on_timeout(request.kind),
        escalated_to,
        approvers: request.terms.approvers(escalated),
        at: now,
    });
    let audit = AuditRecord {
        kind: "request_reminded".to_owned(),
        actor: None,
        call: Some(request.call),
        request: Some(request.id),
        digest: Some(request.digest),
        what,
    };
    (event, audit)
}

/// The same decision again: word, arguments, answers, actor - and what follows for the run, since a stop that was not
/// stored must not be acknowledged; of a correction, its text.
fn is_same(stored: &Decision, decide: &Decide) -> bool {
    stored.word == decide.word
        && stored.then == decide.then
        && (stored.word != DecisionWord::Feedback || stored.reason == decide.reason)
        && stored.arguments == decide.arguments
        && stored.result.as_deref().map(|raw| raw.get()) == decide.result.as_deref().map(|raw| raw.get())
        && stored.by.actor == decide.by.actor
}

/// The record of a decision that did not count.
fn tried(kind: &str, request: &Request, decide: &Decide) -> AuditRecord {
    AuditRecord {
        kind: kind.to_owned(),
        actor: decide.by.actor.clone(),
        call: Some(request.call),
        request: Some(request.id),
        digest: Some(decide.digest.unwrap_or(request.digest)),
        what: what_of(decide.word, decide.by.via, None, decide.arguments.as_deref()),
    }
}

fn what_of(word: DecisionWord, via: Via, rule: Option<&RuleUsed>, arguments: Option<&str>) -> String {
    let mut what = format!("{} via={}", word.as_str(), via_word(via));
    if let Some(rule) = rule {
        let RuleUsed { name, version, written_by } = rule;
        what.push_str(&format!(" rule={name} version={version} written_by={written_by}"));
    }
    if let Some(arguments) = arguments {
        // The chain proves which text was approved without holding it.
        what.push_str(" arguments=sha256:");
        what.push_str(&hex(&Sha256::digest(arguments.as_bytes())));
    }
    what
}

fn via_word(via: Via) -> &'static str {
    match via {
        Via::Human => "human",
        Via::Handler => "handler",
        Via::Grant => "grant",
        Via::Preset => "preset",
        Via::Bypass => "bypass",
        Via::Timeout => "timeout",
        Via::Cancel => "cancel",
        Via::Superseded => "superseded",
        Via::GateError => "gate_error",
    }
}

/// How a fact closes a request.
#[derive(Debug)]
pub(crate) enum Closing {
    Decided(Box<Decision>),
    Expired,
    GateError,
}

/// A fact, ready to be stored: what the request becomes, what the log and the chain say, what the run is told.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) status: InteractionStatus,
    pub(crate) closure: Closure,
    pub(crate) event: EventBody,
    pub(crate) audit: AuditRecord,
    pub(crate) fact: Fact,
}

/// Writes down how a request is closed.
pub(crate) fn close(request: &Request, closing: Closing, now: Timestamp) -> Written {
    let otherwise = |word: &str, via: Via| DecisionView {
        decision: word.to_owned(),
        by: By { actor: None, via },
        rule: None,
        reason: None,
        at: now,
    };
    let (status, closure, fact) = match closing {
        Closing::Decided(decision) => (
            InteractionStatus::Decided,
            Closure::Decided(decision.clone()),
            Fact::Decided { request: request.id, decision },
        ),
        Closing::Expired => (
            InteractionStatus::Expired,
            Closure::Otherwise(otherwise("expired", Via::Timeout)),
            Fact::Expired { request: request.id },
        ),
        Closing::GateError => (
            InteractionStatus::Cancelled,
            Closure::Otherwise(otherwise("gate_error", Via::GateError)),
            Fact::GateError { request: request.id },
        ),
    };
    let view = closure.view();
    let (kind, arguments, what) = match &closure {
        Closure::Decided(decision) => {
            let arguments = decision.arguments.clone();
            let rule = decision.rule.as_ref();
            let what = what_of(decision.word, decision.by.via, rule, arguments.as_deref());
            ("decision", arguments, what)
        }
        Closure::Otherwise(view) => ("request_closed", None, view.decision.clone()),
    };
    let audit = AuditRecord {
        kind: kind.to_owned(),
        actor: view.by.actor.clone(),
        call: Some(request.call),
        request: Some(request.id),
        digest: Some(request.digest),
        what,
    };
    let event = EventBody::Decision(DecisionEvent {
        request_id: request.id,
        call_id: request.call,
        decision: view.decision,
        by: view.by,
        rule: view.rule.map(|rule| *rule),
        reason: view.reason,
        arguments,
        at: now,
    });
    Written { status, closure, event, audit, fact }
}

/// Writes down that a run is to be ended from outside. The event tells watchers, and - by its number - the run's owner.
pub(crate) fn cancel(by: &ActorId, kind: CancelKind) -> (EventBody, AuditRecord, Fact) {
    let (word, said) = match kind {
        CancelKind::Cancel => ("cancel", format!("{by} asked for this run to be cancelled")),
        CancelKind::Supersede => {
            ("supersede", format!("a newer message of {by} takes the place of this run"))
        }
    };
    let event = EventBody::Notice(Notice { code: "cancel_requested".into(), message: said, call_id: None });
    let audit = AuditRecord {
        kind: "cancel_requested".into(),
        actor: Some(by.clone()),
        call: None,
        request: None,
        digest: None,
        what: word.into(),
    };
    (event, audit, Fact::Cancelled { by: by.clone(), kind })
}

/// Whether a cancel adds something to what was noted before: a cancel outranks a supersede, nothing else does.
pub(crate) fn outranks(noted: Option<&CancelNote>, kind: CancelKind) -> bool {
    match (noted.map(|note| note.kind), kind) {
        (None, _) | (Some(CancelKind::Supersede), CancelKind::Cancel) => true,
        (Some(CancelKind::Cancel), _) | (Some(CancelKind::Supersede), CancelKind::Supersede) => false,
    }
}

/// Claims without a step in between after which a run is set aside: something in it ends every process that carries it on.
pub const CLAIMS_WITHOUT_PROGRESS_MAX: u32 = 5;

/// From so many on, a process takes such a run up only when it has no other in hand: one of them ends the processes, and the
/// others are not to be set aside with it.
pub const CLAIMS_ALONE_FROM: u32 = 3;

/// Writes down that a run is set aside.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn quarantine(claims: u32) -> (EventBody, AuditRecord) {
    let message =
        format!("{claims} processes ended while they carried this run on; it is set aside for an operator");
    let event = EventBody::Notice(Notice { code: "quarantined".into(), message, call_id: None });
    let what = format!("after {claims} claims without progress");
    let audit = AuditRecord {
        kind: "quarantined".into(),
        actor: None,
        call: None,
        request: None,
        digest: None,
        what,
    };
    (event, audit)
}

/// How a request stands that the run itself closed, and what is shown of it: what the event of the same step says.
pub(crate) fn closed_by_run(
    request: RequestId,
    why: ClosedBy,
    events: &[std::sync::Arc<Event>],
    now: Timestamp,
) -> (InteractionStatus, Closure) {
    let (status, word, via) = match why {
        ClosedBy::Cancel => (InteractionStatus::Cancelled, "cancelled", Via::Cancel),
        ClosedBy::Superseded => (InteractionStatus::Superseded, "superseded", Via::Superseded),
    };
    let actor = events.iter().find_map(|event| {
        let EventBody::Decision(said) = &event.body else { return None };
        if said.request_id == request { said.by.actor.clone() } else { None }
    });
    let by = By { actor, via };
    let view = DecisionView { decision: word.to_owned(), by, rule: None, reason: None, at: now };
    (status, Closure::Otherwise(view))
}

/// Whether a decision on a request releases exactly this digest. The run machine made sure of it before; it is looked
/// at again where the claim is written, because that row is what lets the call run.
pub(crate) fn releases(request: &Request, call: CallId, digest: &CallDigest) -> bool {
    let Some(Closure::Decided(decision)) = &request.closure else { return false };
    request.call == call
        && match decision.word {
            DecisionWord::Approve => decision.digest == *digest,
            // The edited text has a digest of its own, made by the run machine from the stored decision.
            DecisionWord::ApproveWith => decision.arguments.is_some(),
            DecisionWord::Decline
            | DecisionWord::Feedback
            | DecisionWord::Answer
            | DecisionWord::Ran
            | DecisionWord::Leave => false,
        }
}
