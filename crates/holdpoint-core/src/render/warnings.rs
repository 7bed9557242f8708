//! What a reader should be warned of, and where it stands.

use std::borrow::Cow;
use std::fmt;

use super::label;

/// How many warnings of one kind are listed; the rest is counted.
pub const WARNINGS_PER_KIND_MAX: usize = 8;

/// The longest piece of a path in a warning, in characters. The name itself stands whole beside its value.
const STEP_MAX_CHARS: usize = 64;

/// Where a value stands. Written out only when there is something to say, since most values need no word and
/// a path can be long.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Argument(&'p str),
    Key(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(key) => f.write_str(&clipped(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", clipped(key)),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

fn clipped(key: &str) -> Cow<'_, str> {
    let label = label(key);
    match label.char_indices().nth(STEP_MAX_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &label[..end])),
        None => label,
    }
}

/// The warnings of one kind.
#[derive(Default)]
pub(super) struct Kind {
    listed: Vec<String>,
    count: usize,
}

impl Kind {
    pub(super) fn add(&mut self, path: &Path<'_>, text: impl fmt::Display) {
        self.count += 1;
        if self.listed.len() < WARNINGS_PER_KIND_MAX {
            self.listed.push(format!("{path}: {text}"));
        }
    }

    pub(super) fn write(self, out: &mut Vec<String>) {
        let more = self.count - self.listed.len();
        out.extend(self.listed);
        if more > 0 {
            out.push(format!("and {} more like these", thousands(more)));
        }
    }
}

/// `9,000`
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
