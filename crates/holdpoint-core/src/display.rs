//! Text as a person may be shown it: every character that hides, reorders or pushes away made visible.
//!
//! The shown form is one line, and it says everything: nothing is cut or left out, and two different texts
//! are never shown the same. Reading it back goes by these rules:
//!
//! | shown | stands for |
//! |---|---|
//! | `\n` `\r` `\t` | that character |
//! | `\u{202e}` | the character of that number: controls, bidi marks, what has no width, odd spaces, private use |
//! | `⟨4000 spaces⟩` | a run that would push the rest out of view; also newlines, tabs, or `⟨40 × \u{200b}⟩` |
//! | `\\` | a backslash, where it could be taken for the beginning of one of the above |
//! | anything else | itself |

use std::fmt::Write as _;

use unicode_general_category::{GeneralCategory, get_general_category};

/// From how many of one blank or hidden character on a run is counted instead of shown.
pub const RUN_MIN: usize = 16;

/// How many combining marks one letter may carry; more of them paint over the lines around.
const MARKS_MAX: usize = 3;

/// The bracket that opens a counted run. In a text it is escaped, so that no text can fake a count.
const OPEN: char = '⟨';
const CLOSE: char = '⟩';

/// A text in its visible form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// What to show. It contains no control character, nothing invisible and nothing that reorders.
    pub text: String,
    /// How many invisible or reordering characters the original has. Newlines and tabs are not among them.
    pub invisible: usize,
    /// How many runs were counted instead of shown.
    pub runs: usize,
    /// How long the original is, in characters.
    pub chars: usize,
}

/// The visible form of a text.
pub fn visible(text: &str) -> Shown {
    show(text, false)
}

/// The visible form of a text in double quotes; a quote in it is written `\"`.
pub fn visible_quoted(text: &str) -> Shown {
    show(text, true)
}

/// Whether a character cannot be shown as it is: one cannot see it, or it changes where others are seen.
pub fn hides(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    match get_general_category(c) {
        GeneralCategory::Control
        | GeneralCategory::Format
        | GeneralCategory::LineSeparator
        | GeneralCategory::ParagraphSeparator
        | GeneralCategory::SpaceSeparator
        | GeneralCategory::PrivateUse
        | GeneralCategory::Surrogate
        | GeneralCategory::Unassigned => true,
        // Letters, marks and symbols that are defined to show nothing.
        _ => matches!(c,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'),
    }
}

fn is_mark(c: char) -> bool {
    !c.is_ascii()
        && matches!(get_general_category(c), GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

fn show(text: &str, quoted: bool) -> Shown {
    let mut shown = Shown { text: String::with_capacity(text.len() + 2), ..Shown::default() };
    if quoted {
        shown.text.push('"');
    }
    let mut rest = text.chars();
    let mut marks = MARKS_MAX;
    while let Some(c) = rest.next() {
        let hidden = hides(c);
        let again = if hidden || c == ' ' { rest.clone().take_while(|&next| next == c).count() } else { 0 };
        if again + 1 >= RUN_MIN {
            shown.run(c, again + 1, hidden);
            rest.nth(again - 1);
            continue;
        }
        // A mark without a letter of its own would join ours.
        marks = if is_mark(c) { marks + 1 } else { 0 };
        let next = rest.clone().next();
        match c {
            '\\' if begins_an_escape(rest.as_str(), next, quoted) => shown.text.push_str("\\\\"),
            '"' if quoted => shown.text.push_str("\\\""),
            OPEN => escape(c, &mut shown.text),
            _ if hidden || marks > MARKS_MAX => escape(c, &mut shown.text),
            _ => shown.text.push(c),
        }
        shown.chars += 1;
        shown.invisible += usize::from(counts(c, hidden));
    }
    if quoted {
        shown.text.push('"');
    }
    shown
}

/// Whether a character is one of those a reader is warned of by number.
fn counts(c: char, hidden: bool) -> bool {
    hidden && c != '\n' && c != '\t'
}

/// Whether a backslash before this text would be read together with it.
fn begins_an_escape(rest: &str, next: Option<char>, quoted: bool) -> bool {
    match next {
        None => quoted,
        Some('\\' | 'n' | 'r' | 't' | OPEN) => true,
        Some('u') => rest.starts_with("u{"),
        Some('"') => quoted,
        Some(c) => hides(c),
    }
}

fn escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Writing into a string does not fail.
        _ => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
    }
}

impl Shown {
    fn run(&mut self, c: char, count: usize, hidden: bool) {
        let _ = write!(self.text, "{OPEN}{count} ");
        match c {
            ' ' => self.text.push_str("spaces"),
            '\n' => self.text.push_str("newlines"),
            '\t' => self.text.push_str("tabs"),
            '\r' => self.text.push_str("carriage returns"),
            _ => {
                self.text.push_str("× ");
                escape(c, &mut self.text);
            }
        }
        self.text.push(CLOSE);
        self.runs += 1;
        self.chars += count;
        self.invisible += if counts(c, hidden) { count } else { 0 };
    }
}

#[cfg(test)]
mod tests;
