//! A journal entry: what one transaction added to a run. Events, messages, audit records and facts, one after the other.
//!
//! One entry is one row. A step that says nothing to watchers is added to the end of the newest entry, so an entry is
//! made of parts that can be joined.

use std::sync::Arc;

use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::message::Message;
use holdpoint_protocol::{ActorId, Event, RequestId, RunId};

use super::block::{press, read_number, unpress, write_number};
use super::{corrupt, pack};
use crate::Result;
use crate::chain::{Hash, Head, Kept};

/// Parts that were pressed together: events and messages.
const PRESSED: u8 = 1;
const AUDIT: u8 = 2;
const DECIDED: u8 = 3;
const EXPIRED: u8 = 4;
const GATE_ERROR: u8 = 5;
const CANCELLED: u8 = 6;
const SET_ASIDE: u8 = 7;

const EVENT: u8 = 1;
const MESSAGE: u8 = 2;

/// What happened to a run, by reference: what closed a request is kept with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactRef {
    Decided(RequestId),
    Expired(RequestId),
    GateError(RequestId),
    SetAside(RequestId),
    Cancelled(ActorId, CancelKind),
}

impl From<&Fact> for FactRef {
    fn from(fact: &Fact) -> Self {
        match fact {
            Fact::Decided { request, .. } => Self::Decided(*request),
            Fact::Expired { request } => Self::Expired(*request),
            Fact::GateError { request } => Self::GateError(*request),
            Fact::SetAside { request } => Self::SetAside(*request),
            Fact::Cancelled { by, kind } => Self::Cancelled(by.clone(), *kind),
        }
    }
}

/// Writes an entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryBuilder {
    bytes: Vec<u8>,
}

impl EntryBuilder {
    /// Adds events and messages. This is most of the work, and needs nothing of what is stored.
    pub(crate) fn content(
        run: RunId,
        events: &[Arc<Event>],
        messages: &[(u32, u32, Arc<Message>)],
    ) -> Result<Self> {
        let mut builder = Self::default();
        if events.is_empty() && messages.is_empty() {
            return Ok(builder);
        }
        let mut parts = Vec::with_capacity(1024);
        let mut packed = Vec::with_capacity(1024);
        for event in events {
            packed.clear();
            pack::pack(run, &event.to_json(), &mut packed);
            parts.push(EVENT);
            write_bytes(&packed, &mut parts);
        }
        for (round, slot, message) in messages {
            let json = serde_json::to_string(&**message).map_err(|error| corrupt(&error.to_string()))?;
            packed.clear();
            pack::pack(run, &json, &mut packed);
            parts.push(MESSAGE);
            write_number(u64::from(*round), &mut parts);
            write_number(u64::from(*slot), &mut parts);
            write_bytes(&packed, &mut parts);
        }
        builder.bytes.push(PRESSED);
        write_bytes(&press(&parts), &mut builder.bytes);
        Ok(builder)
    }

    /// Adds a record to the chain and to the entry.
    pub(crate) fn audit(&mut self, run: RunId, head: &mut Head, at_ms: i64, text: &str) {
        let hash = head.append(at_ms, text);
        let mut packed = Vec::with_capacity(text.len());
        pack::pack(run, text, &mut packed);
        self.bytes.push(AUDIT);
        // No time before 1970: the clock that decides is a clock of servers.
        write_number(at_ms.max(0) as u64, &mut self.bytes);
        self.bytes.extend_from_slice(&hash);
        write_bytes(&packed, &mut self.bytes);
    }

    /// Adds a record whose hash only the database knows: what stands before the hash is added, what stands after it is
    /// given back.
    #[cfg(feature = "postgres")]
    pub(crate) fn audit_around_hash(&mut self, run: RunId, at_ms: i64, text: &str) -> Vec<u8> {
        let mut packed = Vec::with_capacity(text.len());
        pack::pack(run, text, &mut packed);
        self.bytes.push(AUDIT);
        write_number(at_ms.max(0) as u64, &mut self.bytes);
        let mut after = Vec::with_capacity(packed.len() + 2);
        write_bytes(&packed, &mut after);
        after
    }

    /// Adds a fact.
    pub(crate) fn fact(&mut self, fact: &FactRef) {
        match fact {
            FactRef::Decided(id) => self.about(DECIDED, *id),
            FactRef::Expired(id) => self.about(EXPIRED, *id),
            FactRef::GateError(id) => self.about(GATE_ERROR, *id),
            FactRef::SetAside(id) => self.about(SET_ASIDE, *id),
            FactRef::Cancelled(by, kind) => {
                self.bytes.push(CANCELLED);
                self.bytes.push(match kind {
                    CancelKind::Cancel => 0,
                    CancelKind::Supersede => 1,
                });
                write_bytes(by.as_str().as_bytes(), &mut self.bytes);
            }
        }
    }

    fn about(&mut self, tag: u8, request: RequestId) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(request.0.as_bytes());
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// An entry, as it is stored. Of its parts only those are taken apart that somebody asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    run: RunId,
    bytes: &'a [u8],
}

/// A part of an entry.
enum Part<'a> {
    Pressed(&'a [u8]),
    Audit { at_ms: i64, hash: Hash, packed: &'a [u8] },
    Fact(FactRef),
}

/// A part of what was pressed together.
enum Content<'a> {
    Event(&'a [u8]),
    Message { round: u32, slot: u32, packed: &'a [u8] },
}

impl<'a> Entry<'a> {
    /// An entry of this run.
    pub(crate) fn of(run: RunId, bytes: &'a [u8]) -> Self {
        Self { run, bytes }
    }

    /// The JSON of its events, in order.
    pub(crate) fn events(self) -> Result<Vec<String>> {
        let mut events = Vec::new();
        self.each_content(|content| {
            if let Content::Event(packed) = content {
                events.push(pack::unpack(self.run, packed)?);
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// Its messages with their rounds and slots, in order.
    pub(crate) fn messages(self) -> Result<Vec<(u32, u32, Arc<Message>)>> {
        let mut messages = Vec::new();
        self.each_content(|content| {
            if let Content::Message { round, slot, packed } = content {
                let json = pack::unpack(self.run, packed)?;
                let message = serde_json::from_str(&json).map_err(|error| corrupt(&error.to_string()))?;
                messages.push((round, slot, Arc::new(message)));
            }
            Ok(())
        })?;
        Ok(messages)
    }

    /// Its records, in order.
    pub(crate) fn audit(self) -> Result<Vec<Kept>> {
        let mut records = Vec::new();
        self.each_part(|part| {
            if let Part::Audit { at_ms, hash, packed } = part {
                records.push(Kept { at_ms, text: pack::unpack(self.run, packed)?, hash });
            }
            Ok(())
        })?;
        Ok(records)
    }

    /// What happened to the run from outside, in order.
    pub(crate) fn facts(self) -> Result<Vec<FactRef>> {
        let mut facts = Vec::new();
        self.each_part(|part| {
            if let Part::Fact(fact) = part {
                facts.push(fact);
            }
            Ok(())
        })?;
        Ok(facts)
    }

    fn each_part(self, mut each: impl FnMut(Part<'a>) -> Result<()>) -> Result<()> {
        let mut rest = self.bytes;
        while let Some((&tag, after)) = rest.split_first() {
            rest = after;
            each(match tag {
                PRESSED => Part::Pressed(read_bytes(&mut rest)?),
                AUDIT => Part::Audit {
                    at_ms: i64::try_from(read_number(&mut rest)?).map_err(|_| corrupt("a time"))?,
                    hash: read_chunk(&mut rest)?,
                    packed: read_bytes(&mut rest)?,
                },
                DECIDED => Part::Fact(FactRef::Decided(read_request(&mut rest)?)),
                EXPIRED => Part::Fact(FactRef::Expired(read_request(&mut rest)?)),
                GATE_ERROR => Part::Fact(FactRef::GateError(read_request(&mut rest)?)),
                SET_ASIDE => Part::Fact(FactRef::SetAside(read_request(&mut rest)?)),
                CANCELLED => Part::Fact(read_cancelled(&mut rest)?),
                _ => return Err(corrupt("an unknown part")),
            })?;
        }
        Ok(())
    }

    fn each_content(self, mut each: impl FnMut(Content<'_>) -> Result<()>) -> Result<()> {
        self.each_part(|part| {
            let Part::Pressed(pressed) = part else { return Ok(()) };
            let parts = unpress(pressed)?;
            let mut rest = parts.as_slice();
            while let Some((&tag, after)) = rest.split_first() {
                rest = after;
                each(match tag {
                    EVENT => Content::Event(read_bytes(&mut rest)?),
                    MESSAGE => Content::Message {
                        round: read_small(&mut rest)?,
                        slot: read_small(&mut rest)?,
                        packed: read_bytes(&mut rest)?,
                    },
                    _ => return Err(corrupt("an unknown part")),
                })?;
            }
            Ok(())
        })
    }
}

fn read_cancelled(rest: &mut &[u8]) -> Result<FactRef> {
    let kind = match read_chunk::<1>(rest)? {
        [0] => CancelKind::Cancel,
        [1] => CancelKind::Supersede,
        [_] => return Err(corrupt("an unknown cancel")),
    };
    let by = std::str::from_utf8(read_bytes(rest)?).ok().and_then(|by| ActorId::new(by).ok());
    Ok(FactRef::Cancelled(by.ok_or_else(|| corrupt("a name"))?, kind))
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn read_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = usize::try_from(read_number(rest)?).unwrap_or(usize::MAX);
    let (bytes, after) = rest.split_at_checked(len).ok_or_else(|| corrupt("cut short"))?;
    *rest = after;
    Ok(bytes)
}

fn read_chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (chunk, after) = rest.split_first_chunk::<N>().ok_or_else(|| corrupt("cut short"))?;
    *rest = after;
    Ok(*chunk)
}

fn read_request(rest: &mut &[u8]) -> Result<RequestId> {
    Ok(RequestId(uuid::Uuid::from_bytes(read_chunk(rest)?)))
}

fn read_small(rest: &mut &[u8]) -> Result<u32> {
    u32::try_from(read_number(rest)?).map_err(|_| corrupt("a number too large"))
}

#[cfg(test)]
mod tests {
    use holdpoint_protocol::{EventBody, Round};
    use proptest::prelude::*;

    use super::*;

    fn run() -> RunId {
        "01900000-0000-7000-8000-000000000001".parse().unwrap()
    }

    #[test]
    fn entries_that_are_joined_read_as_one() {
        let event = |round| {
            Arc::new(Event {
                seq: Some(1),
                run_id: run(),
                child: None,
                body: EventBody::RoundCommitted(Round { round }),
            })
        };
        let message = (3, 1, Arc::new(Message::Note("look: \"no\"".into())));
        let mut first = EntryBuilder::content(run(), &[event(1), event(2)], &[message]).unwrap();
        let mut head = Head::EMPTY;
        first.audit(run(), &mut head, 1_700_000_000_000, "{\"kind\":\"run_started\",\"what\":\"x\"}");
        let mut second = EntryBuilder::default();
        let request = RequestId(uuid::Uuid::from_u128(7));
        let facts = [
            FactRef::Decided(request),
            FactRef::Expired(request),
            FactRef::GateError(request),
            FactRef::Cancelled(ActorId::new("operator").unwrap(), CancelKind::Supersede),
        ];
        for fact in &facts {
            second.fact(fact);
        }
        let joined = [first.finish(), second.finish()].concat();

        let entry = Entry::of(run(), &joined);
        assert_eq!(entry.events().unwrap(), [event(1).to_json(), event(2).to_json()]);
        assert!(
            matches!(&entry.messages().unwrap()[..], [(3, 1, note)] if matches!(&**note, Message::Note(text) if text == "look: \"no\""))
        );
        assert_eq!(entry.facts().unwrap(), facts);
        let records = entry.audit().unwrap();
        assert_eq!(crate::chain::verify(records, &head), crate::ChainCheck::Whole { records: 1 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            let entry = Entry::of(run(), &bytes);
            let _ = (entry.events(), entry.messages(), entry.audit(), entry.facts());
        }
    }
}
