//! Text of others on a terminal: nothing in it moves the cursor, hides, reorders, or passes for a line of ours.
//!
//! What a server renders of a request is safe already. It is checked here once more, because the terminal is ours and
//! the server may be anybody's: a character that hides is written as its number, whatever it was that sent it.

use holdpoint_core::display::{hides, visible};

/// What stands before each line of somebody else's text, so that no wrapped line can pass for one of ours.
const GUTTER: &str = "  │ ";

/// First strong isolate and pop directional isolate: between them a text cannot reorder what stands around it.
const FSI: char = '\u{2068}';
const PDI: char = '\u{2069}';

/// The narrowest width that is wrapped to; a narrower terminal wraps by itself.
const WIDTH_MIN: usize = 24;

/// A text that was made visible already (a server's rendering): whatever still hides is escaped, the rest is as it is.
pub(crate) fn safe(shown: &str) -> String {
    let mut out = String::with_capacity(shown.len());
    for c in shown.chars() {
        if hides(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// A raw text in one visible line.
pub(crate) fn line(raw: &str) -> String {
    visible(raw).text
}

/// A text that was made visible already, on lines of its own behind a gutter. `width` is the terminal's, if it is one.
pub(crate) fn block(shown: &str, width: Option<usize>) -> String {
    let room = width.map(|width| width.max(WIDTH_MIN) - GUTTER.chars().count() - 1);
    let mut out = String::new();
    for line in shown.split('\n') {
        for piece in wrap(&safe(line), room) {
            out.push_str(GUTTER);
            match width {
                Some(_) => out.extend([FSI].into_iter().chain(piece.chars()).chain([PDI])),
                None => out.push_str(piece),
            }
            out.push('\n');
        }
    }
    out
}

/// Cuts a visible text into lines: after each `\n` that stands for a line break, and where the room ends, never inside
/// of an escape or a counted run.
fn wrap(text: &str, room: Option<usize>) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut start, mut at, mut used) = (0, 0, 0);
    while at < text.len() {
        let token = token(&text[at..]);
        let columns = columns(token);
        if room.is_some_and(|room| used > 0 && used + columns > room) {
            lines.push(&text[start..at]);
            (start, used) = (at, 0);
        }
        at += token.len();
        used += columns;
        if token == "\\n" {
            lines.push(&text[start..at]);
            (start, used) = (at, 0);
        }
    }
    if start < text.len() || lines.is_empty() {
        lines.push(&text[start..]);
    }
    lines
}

/// What must stay together: an escape, a counted run, or one character.
fn token(text: &str) -> &str {
    let to = |end: char| text.find(end).map_or(text.len(), |at| at + end.len_utf8());
    let mut chars = text.chars();
    let length = match (chars.next(), chars.next()) {
        (Some('\\'), Some('u')) if text.starts_with("\\u{") => to('}'),
        (Some('\\'), Some('\\' | 'n' | 'r' | 't' | '"')) => 2,
        (Some('⟨'), _) => to('⟩'),
        (Some(c), _) => c.len_utf8(),
        (None, _) => 0,
    };
    &text[..length]
}

/// At most how many columns it takes: a character of three bytes and more may be a wide one.
fn columns(token: &str) -> usize {
    token.chars().map(|c| if c.len_utf8() >= 3 { 2 } else { 1 }).sum()
}

/// A line of JSON in which nothing hides: what a terminal would act on, or nobody would see, stands as its escape. It is
/// the same JSON.
pub(crate) fn json_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        if c >= '\u{7f}' && holdpoint_core::display::hides(c) {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_sends_control_characters_moves_nothing() {
        assert_eq!(
            safe("a\r\u{1b}[2Kb\u{202e}c\u{2069}\u{7}"),
            "a\\u{d}\\u{1b}[2Kb\\u{202e}c\\u{2069}\\u{7}"
        );
        assert_eq!(safe("plain ⟨4000 spaces⟩ \\n é"), "plain ⟨4000 spaces⟩ \\n é");
    }

    #[test]
    fn every_line_of_a_block_stands_behind_the_gutter_and_in_isolation() {
        let shown = block(&format!("{}\nerror: none", "x".repeat(100)), Some(40));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines.len(), 4);
        for line in &lines {
            assert!(line.starts_with("  │ \u{2068}") && line.ends_with('\u{2069}'), "{line:?}");
            assert!(line.chars().count() <= 40 + 2);
        }
    }

    #[test]
    fn a_visible_line_break_ends_the_line_and_a_backslash_and_an_n_do_not() {
        // The second text is a backslash and an `n` of the original, which `visible` writes with two backslashes.
        assert_eq!(wrap(&line("a\nb"), None), ["a\\n", "b"]);
        assert_eq!(wrap(&line("a\\nb"), None), ["a\\\\nb"]);
        assert_eq!(wrap(&line("a\\\\nb"), None), ["a\\\\\\\\nb"]);
        assert_eq!(wrap(&line("\\\na"), None), ["\\\\\\n", "a"]);
    }

    #[test]
    fn nothing_is_lost_and_no_escape_is_torn_whatever_the_width() {
        let shown = line(&format!("ab\u{202e}{}cd\u{200b}\\{}ef", " ".repeat(400), "語".repeat(9)));
        for room in 1..60 {
            let lines = wrap(&shown, Some(room));
            assert_eq!(lines.concat(), shown);
            for whole in ["\\u{202e}", "⟨400 spaces⟩", "\\u{200b}"] {
                assert!(lines.iter().any(|line| line.contains(whole)), "{room}: {lines:?}");
            }
        }
    }

    #[test]
    fn an_empty_text_is_an_empty_line() {
        assert_eq!(block("", None), "  │ \n");
    }

    #[test]
    fn nothing_hides_in_a_line_of_json_and_it_is_the_same_json() {
        let json = "{\"a\":\"x\u{202e}y\u{9b}\u{7f}\u{e0069}ä 語\"}";
        let line = json_line(json);
        assert_eq!(line, "{\"a\":\"x\\u202ey\\u009b\\u007f\\udb40\\udc69ä 語\"}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&line), read(json));
    }
}
