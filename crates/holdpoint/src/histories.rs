//! Conversations as this process last saw them, so that a run taken up again reads only what is new of its own.
//!
//! It is a memory and no state: what is in it can be read from the store as well, and is dropped when there is too much of
//! it. Committed rounds never change, so what it holds is right, if perhaps not all there is.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_core::message::{AssistantItem, Message, ResultContent, UserPart};
use holdpoint_protocol::{ConversationId, RunId, TenantId};

/// Bytes of messages that are remembered, about; the longest unused go first.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// What a conversation and a message take beside their text, about.
const CONVERSATION_BYTES: usize = 256;
const MESSAGE_BYTES: usize = 160;

/// The committed rounds of a conversation, up to a round of one of its runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The messages, in order.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The round of the run up to which they go.
    pub(crate) round: u32,
    bytes: usize,
}

impl Known {
    pub(crate) fn extend(&mut self, messages: impl IntoIterator<Item = Arc<Message>>) {
        for message in messages {
            self.bytes += MESSAGE_BYTES + bytes_of(&message);
            self.messages.push(message);
        }
    }
}

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    conversations: HashMap<Key, Entry>,
    /// By the time of their last use, which is counted and not measured.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

type Key = (TenantId, ConversationId);

#[derive(Debug)]
struct Entry {
    used: u64,
    run: RunId,
    /// Whether the run ended with the round up to which it is known.
    whole: bool,
    known: Known,
}

impl Histories {
    /// Remembers what is known as a run leaves the hands of this process.
    pub(crate) fn put(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        run: RunId,
        known: Known,
        ended: bool,
    ) {
        let key = (tenant.clone(), conversation.clone());
        let mut kept = self.lock();
        kept.remove(&key);
        kept.uses += 1;
        let used = kept.uses;
        kept.bytes += CONVERSATION_BYTES + known.bytes;
        kept.by_use.insert(used, key.clone());
        kept.conversations.insert(key, Entry { used, run, whole: ended, known });
        while kept.bytes > BYTES_MAX {
            let Some((_, oldest)) = kept.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            kept.remove(&oldest);
        }
    }

    /// What is known of the conversation of a run that is taken up.
    pub(crate) fn take(&self, tenant: &TenantId, conversation: &ConversationId, run: RunId) -> Option<Known> {
        self.take_if(tenant, conversation, |entry| entry.run == run)
    }

    /// What is known of the conversation that a new run continues, when all of the run before it is.
    pub(crate) fn take_whole(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        previous: RunId,
    ) -> Option<Known> {
        let known = self.take_if(tenant, conversation, |entry| entry.run == previous && entry.whole)?;
        Some(Known { round: 0, ..known })
    }

    fn take_if(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        fits: impl FnOnce(&Entry) -> bool,
    ) -> Option<Known> {
        let key = (tenant.clone(), conversation.clone());
        let mut kept = self.lock();
        if fits(kept.conversations.get(&key)?) { kept.remove(&key) } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, key: &Key) -> Option<Known> {
        let entry = self.conversations.remove(key)?;
        self.by_use.remove(&entry.used);
        self.bytes -= CONVERSATION_BYTES + entry.known.bytes;
        Some(entry.known)
    }
}

fn bytes_of(message: &Message) -> usize {
    match message {
        Message::User(user) => user
            .parts
            .iter()
            .map(|part| match part {
                UserPart::Text(text) => text.len(),
                UserPart::Image { data, .. } => data.len(),
            })
            .sum(),
        Message::Assistant(reply) => reply.items.iter().map(bytes_of_item).sum(),
        Message::Tool(result) => match &result.content {
            ResultContent::Text(text) => text.len(),
            ResultContent::Json(raw) => raw.get().len(),
            ResultContent::Parts(_) => result.content.to_raw_json().get().len(),
        },
        Message::Note(text) => text.len(),
    }
}

fn bytes_of_item(item: &AssistantItem) -> usize {
    match item {
        AssistantItem::Text(text) => text.len(),
        AssistantItem::Reasoning { text, signature, native } => {
            text.len()
                + signature.as_ref().map_or(0, String::len)
                + native.as_ref().map_or(0, |raw| raw.get().len())
        }
        AssistantItem::Call(call) => MESSAGE_BYTES + call.arguments.len(),
        AssistantItem::Opaque(raw) => raw.get().len(),
    }
}

#[cfg(test)]
mod tests {
    use holdpoint_core::message::UserMessage;

    use super::*;

    fn tenant() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    fn conversation(n: usize) -> ConversationId {
        ConversationId::new(&format!("c{n}")).unwrap()
    }

    fn run() -> RunId {
        RunId(uuid::Uuid::now_v7())
    }

    fn known(text: &str, round: u32) -> Known {
        let mut known = Known { round, ..Known::default() };
        known.extend([Arc::new(Message::User(UserMessage::text(text)))]);
        known
    }

    #[test]
    fn what_is_known_is_of_one_run_and_is_taken_once() {
        let histories = Histories::default();
        let (mine, other) = (run(), run());
        histories.put(&tenant(), &conversation(1), mine, known("hello", 3), false);
        assert!(histories.take(&tenant(), &conversation(1), other).is_none());
        assert!(histories.take(&TenantId::new("other").unwrap(), &conversation(1), mine).is_none());
        assert!(histories.take_whole(&tenant(), &conversation(1), mine).is_none(), "it has not ended");
        let taken = histories.take(&tenant(), &conversation(1), mine).unwrap();
        assert_eq!((taken.messages.len(), taken.round), (1, 3));
        assert!(histories.take(&tenant(), &conversation(1), mine).is_none());
        assert_eq!(histories.lock().bytes, 0);
    }

    #[test]
    fn a_run_that_ended_is_where_the_next_begins() {
        let histories = Histories::default();
        let first = run();
        histories.put(&tenant(), &conversation(1), first, known("hello", 3), true);
        assert!(histories.take_whole(&tenant(), &conversation(1), run()).is_none());
        let taken = histories.take_whole(&tenant(), &conversation(1), first).unwrap();
        assert_eq!((taken.messages.len(), taken.round), (1, 0), "of the next run nothing is known yet");
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let histories = Histories::default();
        let id = run();
        let third = "x".repeat(BYTES_MAX / 3);
        for n in 0..4 {
            histories.put(&tenant(), &conversation(n), id, known(&third, 1), false);
        }
        let is_kept = |n| histories.take(&tenant(), &conversation(n), id).is_some();
        assert_eq!([0, 1, 2, 3].map(is_kept), [false, false, true, true]);
    }
}
