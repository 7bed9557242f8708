//! Ids and digests as bytes, frequent keys as one byte.
//!
//! JSON text holds no byte below 0x20, so those are free to be marks.

use holdpoint_protocol::RunId;

use super::corrupt;
use crate::Result;

/// A byte that stood in the text and would be taken for a mark.
const LITERAL: u8 = 0x00;
/// The id of the run that the value belongs to.
const OWN_RUN: u8 = 0x01;
/// Another UUID: 16 bytes follow.
const UUID: u8 = 0x02;
/// `sha256:` and 64 hexadecimal digits: 32 bytes follow.
const DIGEST: u8 = 0x03;
/// From here on, [`WORDS`] in order.
const FIRST_WORD: u8 = 0x04;

const UUID_TEXT: usize = 36;
const DIGEST_PREFIX: &[u8] = b"sha256:";
const DIGEST_TEXT: usize = DIGEST_PREFIX.len() + 64;

/// Frequent texts, each starting with `"` or `{`, the longer before the shorter. Never changed, only added to: stored values
/// hold their places.
const WORDS: [&str; 20] = [
    "{\"kind\":\"request_opened\",\"call\":\"",
    "{\"kind\":\"execution_started\",\"call\":\"",
    "{\"kind\":\"call_settled\",\"call\":\"",
    "{\"kind\":\"",
    "\",\"actor\":\"",
    "\",\"call\":\"",
    "\",\"request\":\"",
    "\",\"digest\":\"",
    "\",\"what\":\"",
    "{\"type\":\"",
    "\",\"runId\":\"",
    "\",\"callId\":\"",
    "\"toolCallId\":\"",
    "\"requestId\":\"",
    "\",\"toolName\":\"",
    "\",\"arguments\":\"",
    "\",\"name\":\"",
    "\",\"value\":\"",
    "\"decision\":\"",
    "\",\"result\":",
];

/// Appends the packed text.
pub(super) fn pack(run: RunId, text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    // What has been looked at and is kept as it is begins at `kept`.
    let (mut kept, mut at) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let replaced = match byte {
            b'"' | b'{' => word(rest),
            b's' => digest(rest).map(|digest| {
                out.extend_from_slice(&bytes[kept..at]);
                out.push(DIGEST);
                out.extend_from_slice(&digest);
                kept = at + DIGEST_TEXT;
                (None, DIGEST_TEXT)
            }),
            0..0x20 => {
                out.extend_from_slice(&bytes[kept..at]);
                out.extend_from_slice(&[LITERAL, byte]);
                kept = at + 1;
                Some((None, 1))
            }
            _ => None,
        };
        if let Some((mark, len)) = replaced {
            if let Some(mark) = mark {
                out.extend_from_slice(&bytes[kept..at]);
                out.push(mark);
                kept = at + len;
            }
            at += len;
        } else {
            at += 1;
        }
        // An id stands at the start of a string; the run in a call's id is followed by a dot.
        if bytes[at - 1] == b'"'
            && bytes.get(at + 8) == Some(&b'-')
            && let Some(id) = uuid(&bytes[at..])
        {
            out.extend_from_slice(&bytes[kept..at]);
            if id == *run.0.as_bytes() {
                out.push(OWN_RUN);
            } else {
                out.push(UUID);
                out.extend_from_slice(&id);
            }
            at += UUID_TEXT;
            kept = at;
        }
    }
    out.extend_from_slice(&bytes[kept..]);
}

/// The text that was packed.
pub(super) fn unpack(run: RunId, bytes: &[u8]) -> Result<String> {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            LITERAL => {
                let (&literal, after) = rest.split_first().ok_or_else(cut)?;
                out.push(literal);
                rest = after;
            }
            OWN_RUN => write_uuid(run.0.as_bytes(), &mut out),
            UUID => {
                let (id, after) = rest.split_first_chunk::<16>().ok_or_else(cut)?;
                write_uuid(id, &mut out);
                rest = after;
            }
            DIGEST => {
                let (digest, after) = rest.split_first_chunk::<32>().ok_or_else(cut)?;
                out.extend_from_slice(DIGEST_PREFIX);
                write_hex(digest, &mut out);
                rest = after;
            }
            mark @ FIRST_WORD..0x20 => {
                let word =
                    WORDS.get(usize::from(mark - FIRST_WORD)).ok_or_else(|| corrupt("an unknown mark"))?;
                out.extend_from_slice(word.as_bytes());
            }
            literal => out.push(literal),
        }
    }
    String::from_utf8(out).map_err(|_| corrupt("not text"))
}

fn cut() -> crate::Error {
    corrupt("cut short")
}

/// The mark of the word that the text begins with, and how long the word is.
fn word(rest: &[u8]) -> Option<(Option<u8>, usize)> {
    // Most quotes begin none: what follows them tells.
    if !matches!(rest.get(1)?, b',' | b'"' | b't' | b'r' | b'd') {
        return None;
    }
    let begins = u32::from_ne_bytes(*rest.first_chunk()?);
    (FIRST_WORD..)
        .zip(BEGINNINGS.iter().zip(&WORDS))
        .find(|(_, (beginning, word))| **beginning == begins && rest.starts_with(word.as_bytes()))
        .map(|(mark, (_, word))| (Some(mark), word.len()))
}

/// The first four bytes of each word, to be compared at once.
const BEGINNINGS: [u32; WORDS.len()] = {
    let mut beginnings = [0; WORDS.len()];
    let mut at = 0;
    while at < WORDS.len() {
        let word = WORDS[at].as_bytes();
        beginnings[at] = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        at += 1;
    }
    beginnings
};

fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; UUID_TEXT] = text.first_chunk()?;
    let mut id = [0; 16];
    let mut digits =
        text.iter().enumerate().filter(|(at, _)| !matches!(at, 8 | 13 | 18 | 23)).map(|(_, digit)| *digit);
    if [8, 13, 18, 23].iter().any(|at| text[*at] != b'-') {
        return None;
    }
    for byte in &mut id {
        *byte = (nibble(digits.next()?)? << 4) | nibble(digits.next()?)?;
    }
    Some(id)
}

fn digest(text: &[u8]) -> Option<[u8; 32]> {
    let hex: &[u8; 64] = text.strip_prefix(DIGEST_PREFIX)?.first_chunk()?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
    }
    Some(digest)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn write_uuid(id: &[u8; 16], out: &mut Vec<u8>) {
    for (at, part) in [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]].into_iter().enumerate() {
        if at > 0 {
            out.push(b'-');
        }
        write_hex(part, out);
    }
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RUN: &str = "01900000-0000-7000-8000-000000000001";

    fn run() -> RunId {
        RUN.parse().unwrap()
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        pack(run(), text, &mut out);
        out
    }

    #[test]
    fn ids_and_digests_shrink_to_their_bytes() {
        let other = "01900000-0000-7000-8000-000000000002";
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, bytes) in [
            (format!("\"{RUN}\""), 3),
            (format!("\"{RUN}.1.0\""), 7),
            (format!("\"{other}\""), 19),
            (format!("\"{digest}\""), 35),
        ] {
            let packed = packed(&text);
            assert_eq!(packed.len(), bytes, "{text}");
            assert_eq!(unpack(run(), &packed).unwrap(), text);
        }
    }

    #[test]
    fn what_only_looks_like_an_id_or_a_digest_is_kept_as_it_is() {
        for text in [
            RUN.to_uppercase().replace('0', "A"),
            format!("\"{}\"", RUN.replace('-', "_")),
            format!("\"{}", &RUN[..35]),
            format!("\"sha256:{}\"", "0A".repeat(32)),
            format!("\"sha256:{}", "0a".repeat(31)),
            "\"sha256:".into(),
            String::new(),
        ] {
            assert_eq!(unpack(run(), &packed(&text)).unwrap(), text);
        }
    }

    #[test]
    fn broken_bytes_are_refused_and_not_guessed_at() {
        for bytes in [&[LITERAL][..], &[UUID, 1, 2], &[DIGEST, 1], &[0x1f], &[b'"', 0xff]] {
            assert!(unpack(run(), bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_words_are_what_stored_values_were_written_with() {
        use sha2::Digest;
        let digest = crate::cursor::hex(&sha2::Sha256::digest(WORDS.join("\n")));
        assert_eq!(&digest[..16], "a4cbccdb32f44d25", "add words at the end; never change one");
    }

    #[test]
    fn every_word_becomes_its_mark() {
        for (mark, word) in (FIRST_WORD..).zip(WORDS) {
            assert_eq!(packed(word), [mark], "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_was(parts in prop::collection::vec(prop_oneof![
            any::<String>(),
            Just(format!("\"{RUN}")),
            any::<u128>().prop_map(|id| format!("\"{}", uuid::Uuid::from_u128(id))),
            any::<[u8; 32]>().prop_map(|bytes| format!("sha256:{}", crate::cursor::hex(&bytes))),
            prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned),
            "[\\x00-\\x1f]{0,4}",
        ], 0..12)) {
            let text = parts.concat();
            prop_assert_eq!(unpack(run(), &packed(&text)).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = unpack(run(), &bytes);
        }
    }
}
