//! The trait, and what goes through it.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::digest::{CallDigest, DefinitionDigest};
use holdpoint_core::message::Message;
use holdpoint_core::run::{AuditRecord, Closed, LedgerLine, Opened, Run};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{
    ActorId, By, ConversationId, DecisionView, DecisionWord, Event, InstanceId, Interaction, InteractionKind,
    InteractionStatus, Page, Pending, RawJson, RequestId, RuleUsed, RunId, RunView, TenantId, Then,
    Timestamp,
};
use tokio::sync::broadcast;

use crate::{
    AuditRow, Bell, ChainCheck, EffectRecord, InteractionFilter, PageRequest, Result, RunFilter, Standing,
    Stats, Tidy,
};

/// On whose behalf the store is asked: from authentication and nothing else. Rows of another tenant do not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Whose data it is.
    pub tenant: TenantId,
    /// Who is behind the request.
    pub actor: ActorId,
}

/// Where runs, requests, decisions, events and the audit chain are kept.
///
/// Every write is one transaction and durable when the call returns. Every implementation passes the same
/// conformance suite.
#[async_trait]
pub trait Store: EffectRecord + Tidy {
    /// This process: the owner that its steps write as.
    fn instance(&self) -> InstanceId;

    /// Whether other instances may write to it at the same time: then what this one hears of is not all there is, and it looks.
    fn is_shared(&self) -> bool {
        false
    }

    /// The term of this process's lease, if it is known to hold: then something may begin here - a run be taken, a tool or a
    /// model be called. In another term than the one before, others may have been at this process's runs in between.
    fn term(&self) -> Option<u64> {
        Some(0)
    }

    /// How this instance stands with the others; `None` where there can be none.
    fn standing(&self) -> Option<Standing> {
        None
    }

    /// What other instances ring, from here on: they do when what they stored is durable, without being asked. `None` where
    /// there can be none. Who is too slow for it has missed something, and looks at everything.
    fn bells(&self) -> Option<broadcast::Receiver<Bell>> {
        None
    }

    /// The clock that decides.
    async fn now(&self) -> Result<Timestamp>;

    /// Writes something that means nothing to anybody, as large as a usual step: whether anything can be written. For when it could
    /// not, and not to be asked all the time.
    async fn probe(&self) -> Result<()> {
        Ok(())
    }

    /// Stores a new run with its first step. The run is owned by this instance, at epoch 1.
    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started>;

    /// Stores a step.
    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed>;

    /// Reads a run without owning it.
    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>>;

    /// Becomes the owner of a run that has none, or whose owner is gone, at the next epoch. `None` when there is no such run, it
    /// has ended, or another live instance owns it.
    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>>;

    /// Takes up to `limit` runs that have work and no live owner (after a crash, or released for later). Each is
    /// owned by this instance when it is returned; `load` it.
    async fn recover(&self, limit: usize) -> Result<Vec<Taken>>;

    /// Up to `limit` runs that this instance owns. One that nobody here drives is one whose taking was never acknowledged: it is to be taken up.
    async fn owned(&self, limit: usize) -> Result<Vec<Taken>>;

    /// Gives a run back without a step: the facts since the last one stay to be applied, and any instance may take it after this many
    /// milliseconds. Nothing happens when it is not owned at this epoch.
    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()>;

    /// Decides a request: one compare-and-set, one commit. When the run has no owner, this instance takes it in the
    /// same statement, and from then on it stands as running, not as suspended - unless [`Decide::step`] is stored with it.
    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply>;

    /// Keeps what a call brought after its run was taken over with the open question what became of it: evidence, and not its
    /// outcome. False when there is no such question, or it has a late result. Where no other instance writes, nothing comes late.
    async fn keep_late(&self, _cx: &Context, _request: RequestId, _result: &RawJson) -> Result<bool> {
        Ok(false)
    }

    /// Closes open requests because the handler that should have decided them failed. Requests that are not open are passed over.
    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>>;

    /// Notes that a run is to be cancelled or superseded. Twice is once.
    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply>;

    /// Expires up to `limit` open requests whose deadline has passed (all tenants); takes the runs without an owner. One that
    /// a preset is to be asked about is left to [`Store::close_due`], one that stays open has no deadline to pass.
    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>>;

    /// Up to `limit` open requests whose deadline has passed and which a preset is to be asked about (all tenants). They
    /// are only read: whoever is asked closes them with [`Store::close_due`], and one of several who do is the first.
    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>>;

    /// Closes a request whose deadline has passed: as released by a rule, or else as expired. A release that does not fit -
    /// of another preset than the request names, of a run that is being cancelled, of a question or a doubt - is an expiry.
    /// `None` when it is not open, or its deadline has not passed.
    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>>;

    /// Reminds of up to `limit` open requests for which that is due (all tenants): each time once, whoever looks. The run is
    /// not touched otherwise: it waits as it waited.
    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>>;

    /// When the next deadline passes or the next reminder is due, all tenants.
    async fn next_deadline(&self) -> Result<Option<Timestamp>>;

    /// The messages of the committed rounds of a conversation, in order, up to and including those of `run`. With `after`
    /// only those of `run` that came after this round of it: what came before is known, and is not read.
    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>>;

    /// Stored events of a run after a sequence number, in order: number and JSON. `None` when there is no such run.
    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<NumberedEvents>>;

    /// What somebody must know of a request to decide it, without what it shows; and its run, as long as it is open.
    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>>;

    /// Those of these runs that have later events than the one that is known of them. A run that is not there has none.
    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>>;

    /// The newest requests that wait for a person, newest first, and when each was opened.
    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>>;

    /// One interaction.
    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>>;

    /// A page of interactions, oldest first.
    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>>;

    /// One run.
    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>>;

    /// A page of runs, newest first.
    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>>;

    /// The run that a start with this idempotency key made.
    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse>;

    /// Reserves or looks up an idempotency key of any other POST.
    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse>;

    /// Stores the answer that a key gets from now on.
    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()>;

    /// The audit chain of a run, from a place on.
    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>>;

    /// Checks the audit chain of a run against its head.
    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>>;

    /// Figures.
    async fn stats(&self) -> Result<Stats>;

    /// Gives every run of this instance back and closes the store. Nothing can be written after it.
    async fn close(&self) -> Result<()>;
}

/// Stored events: number and JSON.
pub type NumberedEvents = Vec<(u64, Arc<str>)>;

/// A run, and the number of the last event of it that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Whose it is.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// The last event.
    pub last: u64,
}

/// What a step writes.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Events with their sequence numbers, without a gap.
    pub events: Vec<Arc<Event>>,
    /// Messages by round and slot.
    pub messages: Vec<(u32, u32, Arc<Message>)>,
    /// Requests that open. `Opened::event` is the index in `events`.
    pub opened: Vec<Opened>,
    /// Requests that the run closes.
    pub closed: Vec<Closed>,
    /// Lines of the ledger.
    pub executions: Vec<LedgerLine>,
    /// Records for the audit chain.
    pub audit: Vec<AuditRecord>,
    /// The highest round that entered the history in this step.
    pub committed_round: Option<u32>,
    /// The tools on offer, when they are new or have changed; stored once by digest.
    pub tools: Option<ToolSet>,
}

/// The tools on offer in a round.
#[derive(Debug, Clone)]
pub struct ToolSet {
    /// Over all definitions, in order.
    pub digest: DefinitionDigest,
    /// The definitions.
    pub tools: Arc<[ToolDefinition]>,
}

/// A new run.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// Its control state after its first step.
    pub run: Run,
    /// What that step writes. Sequence numbers begin at 1.
    pub writes: Writes,
    /// What a second start with the same key gets.
    pub key: Option<IdempotencyKey>,
    /// How it is left.
    pub next: Next,
}

/// What came of a start.
#[derive(Debug, Clone)]
pub enum Started {
    /// It is stored.
    Created {
        /// When.
        at: Timestamp,
        /// The run before it in the conversation, whose messages it goes on from.
        previous: Option<RunId>,
    },
    /// The key made this run before.
    Existing {
        /// The run.
        run: RunId,
    },
    /// The key was used for another body.
    KeyReused,
    /// A run of the conversation is open.
    Open {
        /// The run.
        run: RunId,
        /// What it waits for.
        pending: Vec<Pending>,
    },
    /// The conversation belongs to somebody else.
    NotYours,
    /// The tenant has too many pending interactions.
    Full {
        /// How many.
        pending: u64,
    },
}

/// A step of the run's owner.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    /// The run's control state after it.
    pub run: Cow<'a, Run>,
    /// The epoch it writes at.
    pub epoch: u64,
    /// The `next_seq` it was made from: the number of its first event.
    pub expected_seq: u64,
    /// What it writes.
    pub writes: Writes,
    /// How the run is left.
    pub next: Next,
    /// Whether the run got on by it. A step that only takes up again what another process left - the model is asked once more, a
    /// tool is started once more - does not: should it end this process too, that counts against the run like the time before.
    pub progress: bool,
}

/// How a step leaves a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Owned by this instance.
    Keep,
    /// Without an owner, until a fact wakes it.
    Suspend,
    /// Without an owner; any instance may take it after this many milliseconds.
    Later(u64),
    /// Ended.
    End,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is stored.
    Done {
        /// The number the next event gets.
        next_seq: u64,
    },
    /// A fact came in between: nothing was written; load, apply it, step again.
    Moved,
    /// The run is owned at a higher epoch: nothing was written; let go of it.
    Fenced,
}

/// A run as it is stored.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The control state after the last step.
    pub run: Run,
    /// The epoch; after [`Store::take`] the one to write at.
    pub epoch: u64,
    /// The number the next event gets.
    pub next_seq: u64,
    /// The highest round that has entered the history; 0 before the first.
    pub committed_round: u32,
    /// The messages of the round in progress, by slot.
    pub open: Vec<(u32, Arc<Message>)>,
    /// What happened since the last step, in order.
    pub facts: Vec<Fact>,
    /// The tools on offer in the round in progress.
    pub tools: Arc<[ToolDefinition]>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A request, without what it shows.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The run that waits for it.
    pub run: RunId,
    /// What kind it is.
    pub kind: InteractionKind,
    /// How it stands.
    pub status: InteractionStatus,
    /// When it opened.
    pub opened_at: Timestamp,
    /// The run as it stands, where the request is open; none where a newer version has written it.
    pub loaded: Option<Box<Loaded>>,
}

/// A run this instance has just become the owner of.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Whose it is: the context to act in.
    pub cx: Context,
    /// The run.
    pub run: RunId,
    /// Whether an earlier owner is gone, so that what it was doing is in doubt.
    pub crashed: bool,
}

/// A decision to be taken.
#[derive(Debug, Clone)]
pub struct Decide {
    /// The request.
    pub request: RequestId,
    /// The word.
    pub word: DecisionWord,
    /// Who, and how it came.
    pub by: By,
    /// The digest of what was shown; the stored one is meant when absent.
    pub digest: Option<CallDigest>,
    /// What the person wrote.
    pub reason: Option<String>,
    /// The edited arguments.
    pub arguments: Option<String>,
    /// The reported result, or the answers.
    pub result: Option<RawJson>,
    /// What follows for the run.
    pub then: Then,
    /// Whoever takes the decision knows that what would run is not what was shown any more: it is refused as stale.
    pub redefined: bool,
    /// The run's step after this decision, where that leaves it suspended: made of the run as it is until then, with the
    /// epoch that it has and the number after the decision's event. As long as nothing else was stored of the run and nobody
    /// owns it, the two are stored as one and nobody takes it ([`Owner::Nobody`]). A store may leave it out.
    pub step: Option<Box<Step<'static>>>,
}

/// A request whose deadline has passed, and which a preset is to be asked about.
#[derive(Debug, Clone)]
pub struct PresetDue {
    /// Whose run it is: the context to act in (the run's own actor).
    pub cx: Context,
    /// The run.
    pub run: RunId,
    /// The request.
    pub request: RequestId,
    /// The preset that it names.
    pub preset: String,
}

/// A release by a rule, in nobody's presence.
#[derive(Debug, Clone)]
pub struct RuleRelease {
    /// What the decision is put down to: the rule, and never a person.
    pub actor: ActorId,
    /// The rule, as it was when it was asked.
    pub rule: RuleUsed,
}

/// What came of a decision.
#[derive(Debug, Clone)]
pub enum DecideReply {
    /// It is stored, and it is the one that counts.
    Taken {
        /// What was stored.
        decision: Decision,
        /// What was noted, to be published and acted on.
        noted: Noted,
    },
    /// The same decision by the same actor was stored before.
    Repeated {
        /// What was stored then.
        decision: Decision,
    },
    /// Another decision was stored before, or the request was closed otherwise.
    Conflict {
        /// How it stands.
        status: InteractionStatus,
        /// What closed it.
        winner: Option<DecisionView>,
    },
    /// The digest is not the pending one.
    Stale {
        /// The pending one.
        digest: CallDigest,
    },
    /// The deadline has passed.
    Expired,
    /// There is no such request for this tenant.
    NotFound,
}

/// A fact that was stored, and who is to act on it.
#[derive(Debug, Clone)]
pub struct Noted {
    /// Whose run it is: the context to act in (the run's own actor).
    pub cx: Context,
    /// The run.
    pub run: RunId,
    /// The event that was appended.
    pub event: Arc<Event>,
    /// Who carries the run on.
    pub owner: Owner,
    /// The run's epoch: where this instance owns it, the one to write at.
    pub epoch: u64,
}

/// Who carries a run on after a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It had no owner: this instance took it with the fact.
    Taken,
    /// This instance already owns it: ring its driver.
    Here,
    /// Another instance owns it: ring that one.
    Elsewhere(InstanceId),
    /// It has no owner and needs none: it waits as it waited.
    Nobody,
    /// A newer version has written it: this instance cannot read it, and leaves it to one that can.
    Newer,
}

/// What came of a cancel.
#[derive(Debug, Clone)]
pub enum CancelReply {
    /// It is noted.
    Noted(Noted),
    /// It was noted before.
    Repeated,
    /// The run has ended.
    Ended,
    /// There is no such run for this tenant.
    NotFound,
}

/// A client's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// What it is for: the route.
    pub scope: String,
    /// The key, at most 255 bytes.
    pub key: String,
    /// The digest of the body it came with.
    pub body_digest: String,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyUse {
    /// Nothing; it is reserved now (by [`Store::remember`]).
    New,
    /// The same body came before and is still being answered.
    Pending,
    /// It made this run.
    Run(RunId),
    /// It has this answer.
    Answered(StoredAnswer),
    /// It came with another body.
    Reused,
}

/// A stored HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}
