//! Effects recorded under a business key: what a tool did for a request of the world outside, so that a second call for the same
//! request gets the recorded result, and nothing is done twice.
//!
//! A key is reserved durably before the tool is called, and the result is stored before anybody is told of it. A reservation
//! never runs out by itself: of an execution that broke off nobody knows what it did, and only who looked can say. It belongs
//! to its execution, which all attempts of one call share: an attempt that a person or the effect class ordered finds its own.

use async_trait::async_trait;
use holdpoint_protocol::{ExecId, Timestamp};

use crate::{Context, Result};

/// An execution under a business key. The tenant comes from the context: the key of another one is another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectKey {
    /// The tool.
    pub tool: String,
    /// The key, as the arguments of the call have it.
    pub key: String,
    /// The execution.
    pub exec: ExecId,
    /// Over the arguments: the same key with others is a mistake, not a repetition.
    pub arguments: [u8; 32],
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectUse {
    /// Nothing; by [`EffectRecord::begin_effect`] it is reserved now.
    Free,
    /// This execution reserved it before: an earlier attempt, which broke off.
    Mine,
    /// Another execution reserved it and recorded no result: it is running, or broke off.
    Unfinished {
        /// The other execution.
        exec: ExecId,
        /// Since when.
        since: Timestamp,
    },
    /// It has a result.
    Recorded(RecordedEffect),
    /// It was used with other arguments.
    Reused {
        /// The execution that used it.
        exec: ExecId,
        /// When.
        since: Timestamp,
    },
}

/// A recorded result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEffect {
    /// The execution that had it.
    pub exec: ExecId,
    /// When it was recorded.
    pub at: Timestamp,
    /// The result, as it was given.
    pub result: String,
}

/// How an execution under a key ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectEnd {
    /// With this result, which the key has from now on.
    Recorded(String),
    /// It proved that it had no effect: the key is free again.
    NoEffect,
}

/// Where effects are recorded. Every write is durable when the call returns.
#[async_trait]
pub trait EffectRecord: Send + Sync + 'static {
    /// Reserves the key for the execution, or says what is known of it.
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse>;

    /// What is known of the key, without reserving it.
    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse>;

    /// Ends what the execution reserved. Nothing happens where it did not, or where a result is recorded already.
    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()>;
}

/// A key as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct EffectRow {
    pub(crate) exec: ExecId,
    pub(crate) arguments: [u8; 32],
    pub(crate) since: Timestamp,
    pub(crate) recorded: Option<(Timestamp, String)>,
}

impl EffectRow {
    /// What it is to an execution that comes with the key.
    pub(crate) fn used_by(self, key: &EffectKey) -> EffectUse {
        let Self { exec, arguments, since, recorded } = self;
        match recorded {
            _ if arguments != key.arguments && exec != key.exec => EffectUse::Reused { exec, since },
            Some((at, result)) => EffectUse::Recorded(RecordedEffect { exec, at, result }),
            None if exec == key.exec => EffectUse::Mine,
            None => EffectUse::Unfinished { exec, since },
        }
    }
}
