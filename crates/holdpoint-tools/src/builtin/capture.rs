//! The output of a command: its beginning and its end, whatever comes between.

use std::collections::VecDeque;

use super::text::count;

/// The most of an output that is kept, in bytes: half from the beginning, half from the end.
pub const OUTPUT_MAX_BYTES: usize = 256 * 1024;
const HALF: usize = OUTPUT_MAX_BYTES / 2;

/// Keeps the first and the last bytes of a stream of any length.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Capture {
    pub fn push(&mut self, bytes: &[u8]) {
        let room = HALF - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(HALF);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// The output as text, on lines of its own; empty if there was none.
    pub fn into_text(mut self) -> String {
        let text = if self.left_out == 0 {
            // One piece, so that a character across the middle stays one.
            self.head.extend(self.tail);
            String::from_utf8_lossy(&self.head).into_owned()
        } else {
            let head = String::from_utf8_lossy(&self.head);
            let tail = String::from_utf8_lossy(self.tail.make_contiguous());
            format!("{head}\n[{} left out here]\n{tail}", count(self.left_out, "byte", "bytes"))
        };
        if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pieces: &[&[u8]]) -> String {
        let mut capture = Capture::default();
        pieces.iter().for_each(|piece| capture.push(piece));
        capture.into_text()
    }

    #[test]
    fn an_output_within_the_bound_is_whole() {
        assert_eq!(kept(&[]), "");
        assert_eq!(kept(&[b"a", b"b\n"]), "ab\n");
        let most = vec![b'x'; OUTPUT_MAX_BYTES];
        assert_eq!(kept(&[&most]).len(), OUTPUT_MAX_BYTES + 1);
        let across = ["x".repeat(HALF - 1).as_bytes(), "é".as_bytes()].concat();
        assert!(kept(&[&across]).ends_with("xé\n"));
    }

    #[test]
    fn of_a_longer_one_the_middle_is_left_out_and_counted() {
        let mut bytes = vec![b'a'; HALF];
        bytes.extend(vec![b'-'; 7]);
        bytes.extend(vec![b'z'; HALF]);
        let expected = format!("{}\n[7 bytes left out here]\n{}\n", "a".repeat(HALF), "z".repeat(HALF));
        assert_eq!(kept(&[&bytes]), expected);
        let pieces: Vec<&[u8]> = bytes.chunks(1000).collect();
        assert_eq!(kept(&pieces), expected);
    }
}
