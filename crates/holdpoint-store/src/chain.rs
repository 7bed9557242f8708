//! The audit chain of a run: every record carries the hash of the one before.

use holdpoint_core::run::AuditRecord;
use holdpoint_protocol::{RunId, Timestamp};
use sha2::{Digest, Sha256};

use crate::clock::from_ms;
use crate::cursor::hex;
use crate::{AuditRow, ChainCheck, Error, Result};

/// A link of the chain.
pub(crate) type Hash = [u8; 32];

/// What the first record follows from.
pub(crate) const GENESIS: Hash = [0; 32];

/// The end of a chain: how many records it has, and the hash of the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) records: u64,
    pub(crate) hash: Hash,
}

impl Head {
    /// The chain without a record.
    pub(crate) const EMPTY: Self = Self { records: 0, hash: GENESIS };

    /// Appends a record; `text` is what is kept.
    pub(crate) fn append(&mut self, at_ms: i64, text: &str) -> Hash {
        self.records += 1;
        self.hash = link(&self.hash, self.records, at_ms, text);
        self.hash
    }
}

/// SHA-256 over the fields, each preceded by its length (u64, big-endian), so that no byte can move between them.
fn link(previous: &Hash, n: u64, at_ms: i64, text: &str) -> Hash {
    let mut hash = Sha256::new();
    for field in [previous.as_slice(), &n.to_be_bytes(), &at_ms.to_be_bytes(), text.as_bytes()] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

/// For a database that hashes: what stands before the previous hash, between it and the number, and after the number.
#[cfg(feature = "postgres")]
pub(crate) fn around(at_ms: i64, text: &str) -> [Vec<u8>; 3] {
    let length = |bytes: usize| (bytes as u64).to_be_bytes().to_vec();
    let mut rest = length(8);
    rest.extend_from_slice(&at_ms.to_be_bytes());
    rest.extend_from_slice(&length(text.len()));
    rest.extend_from_slice(text.as_bytes());
    [length(GENESIS.len()), length(8), rest]
}

/// The text of a record, as it is kept and hashed.
pub(crate) fn text_of(record: &AuditRecord) -> Result<String> {
    serde_json::to_string(record).map_err(|error| Error::Corrupt(format!("an audit record: {error}")))
}

/// A record as it was kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) at_ms: i64,
    pub(crate) text: String,
    pub(crate) hash: Hash,
}

/// Checks a whole chain against its head.
pub(crate) fn verify(records: impl IntoIterator<Item = Kept>, head: &Head) -> ChainCheck {
    let mut at = Head::EMPTY;
    for kept in records {
        if at.append(kept.at_ms, &kept.text) != kept.hash {
            return ChainCheck::Broken { n: at.records };
        }
    }
    if at == *head {
        ChainCheck::Whole { records: at.records }
    } else {
        // Records are missing at the end, or were added there: the first place where they and the head differ.
        ChainCheck::Broken { n: at.records.min(head.records) + 1 }
    }
}

/// The rows of a chain from a place on.
pub(crate) fn rows(
    run: RunId,
    records: impl IntoIterator<Item = Kept>,
    after: u64,
    limit: usize,
) -> Vec<AuditRow> {
    (1..)
        .zip(records)
        .skip_while(|(n, _)| *n <= after)
        .take(limit)
        .map(|(n, kept)| AuditRow {
            run_id: run,
            n,
            at: from_ms(kept.at_ms),
            record: kept.text,
            hash: hex(&kept.hash),
        })
        .collect()
}

/// A time in whole milliseconds.
pub(crate) fn ms(at: Timestamp) -> i64 {
    at.as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> (Vec<Kept>, Head) {
        let mut head = Head::EMPTY;
        let kept = ["a", "b", "c"]
            .into_iter()
            .zip(1..)
            .map(|(text, at_ms)| Kept { at_ms, text: text.into(), hash: head.append(at_ms, text) })
            .collect();
        (kept, head)
    }

    #[test]
    fn a_chain_that_nobody_touched_is_whole() {
        let (kept, head) = chain();
        assert_eq!(verify(kept, &head), ChainCheck::Whole { records: 3 });
        assert_eq!(verify([], &Head::EMPTY), ChainCheck::Whole { records: 0 });
    }

    #[test]
    fn whatever_is_changed_in_a_chain_is_found_where_it_was_changed() {
        type Change = fn(&mut Vec<Kept>);
        let changes: [(&str, Change, u64); 6] = [
            ("another text", |kept| kept[1].text = "B".into(), 2),
            ("another time", |kept| kept[1].at_ms = 9, 2),
            ("another hash", |kept| kept[1].hash = GENESIS, 2),
            ("one left out", |kept| drop(kept.remove(1)), 2),
            ("two exchanged", |kept| kept.swap(0, 1), 1),
            ("the last cut off", |kept| drop(kept.pop()), 3),
        ];
        for (what, change, n) in changes {
            let (mut kept, head) = chain();
            change(&mut kept);
            assert_eq!(verify(kept, &head), ChainCheck::Broken { n }, "{what}");
        }
    }

    #[test]
    fn a_record_added_at_the_end_is_found() {
        let (mut kept, head) = chain();
        let mut longer = head;
        kept.push(Kept { at_ms: 4, text: "d".into(), hash: longer.append(4, "d") });
        assert_eq!(verify(kept, &head), ChainCheck::Broken { n: 4 });
    }
}
