//! From fragments of calls to calls. No I/O, no JSON of any provider: the one place where it is decided which
//! fragment belongs to which call.
//!
//! What servers really send is not what their documents say: no index at all, index 0 for every call, ids only in
//! the first fragment or in each, the name in each, the arguments before the name. A reader that guesses wrong
//! merges two calls or invents one, and a person then releases something nobody proposed. So the rules are few:
//!
//! 1. An empty string is absent.
//! 2. A fragment belongs to the latest call of its index; one without an index to the latest call of its id; one
//!    without either to the latest call.
//! 3. An id or a name that differs from that call's opens a new call. So does the same name again, without an id,
//!    once the arguments are whole and more arguments come.
//! 4. Argument text is appended and never repaired. Two texts that ended up in one call are no JSON object, and are
//!    refused as such.

use holdpoint_core::arguments::{ARGUMENTS_MAX_BYTES, peel_double_encoded};
use holdpoint_core::message::ProposedCall;

/// The most calls one reply may hold here. (How many are put to anyone is the gate's lower bound.)
pub const CALLS_MAX: usize = 1_024;

/// The longest provider id or tool name that is kept, in bytes.
pub const NAME_MAX_BYTES: usize = 1_024;

/// A fragment of a call, as one stream event brings it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fragment<'a> {
    /// The provider's index, if it sent a usable one.
    pub index: Option<u64>,
    /// The provider's id.
    pub id: Option<&'a str>,
    /// The tool's name.
    pub name: Option<&'a str>,
    /// The next piece of the argument text.
    pub arguments: Option<&'a str>,
    /// It is known to open a call: an entry of a whole body, or the second of two keyless ones in one event.
    pub opens: bool,
    /// It came with the end of the stream, where some servers send the whole arguments again.
    pub closing: bool,
}

/// What a provider is known to do wrong. The default assumes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Habits {
    /// Each fragment carries the whole argument text so far, not the next piece.
    pub cumulative_arguments: bool,
    /// The closing fragment repeats the whole argument text; an exact repeat is dropped.
    pub repeats_at_close: bool,
}

/// The stream holds more than can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// More calls than [`CALLS_MAX`].
    #[error("the reply has more than {CALLS_MAX} tool calls")]
    Calls,
    /// An id or a name over [`NAME_MAX_BYTES`].
    #[error("the reply has a tool name or call id over {NAME_MAX_BYTES} bytes")]
    Name,
}

/// Where a fragment went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The call, counted from 0 in the order the calls were opened.
    pub call: usize,
    /// Whether the fragment opened it.
    pub opened: bool,
}

/// Puts the calls of one reply together.
#[derive(Debug, Default)]
pub struct Assembler {
    calls: Vec<Building>,
    kept: usize,
    habits: Habits,
}

#[derive(Debug, Default)]
struct Building {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The text went over the bound: what is kept is just long enough to be refused as too large.
    over: bool,
    scan: Scan,
}

impl Assembler {
    /// An assembler for a provider with these habits.
    pub fn new(habits: Habits) -> Self {
        Self { calls: Vec::new(), kept: 0, habits }
    }

    /// Takes a fragment. `None`: there was nothing in it, and no call it could belong to.
    pub fn take(&mut self, fragment: Fragment<'_>) -> Result<Option<Placed>, TooMuch> {
        let fragment = Fragment {
            id: present(fragment.id),
            name: present(fragment.name),
            arguments: present(fragment.arguments),
            ..fragment
        };
        let too_long = |text: Option<&str>| text.is_some_and(|text| text.len() > NAME_MAX_BYTES);
        if too_long(fragment.id) || too_long(fragment.name) {
            return Err(TooMuch::Name);
        }
        let home = if fragment.opens { None } else { self.home(&fragment) };
        let (call, opened) = match home {
            Some(call) => (call, false),
            None if fragment.id.is_none() && fragment.name.is_none() && fragment.arguments.is_none() => {
                return Ok(None);
            }
            None if self.calls.len() == CALLS_MAX => return Err(TooMuch::Calls),
            None => {
                self.calls.push(Building { index: fragment.index, ..Building::default() });
                (self.calls.len() - 1, true)
            }
        };
        let building = &mut self.calls[call];
        let before = building.bytes();
        building.add(&fragment, self.habits);
        // A cumulative text may also have become shorter.
        self.kept = self.kept + building.bytes() - before;
        Ok(Some(Placed { call, opened }))
    }

    /// The call a fragment belongs to; `None` when it opens one.
    fn home(&mut self, fragment: &Fragment<'_>) -> Option<usize> {
        let call = match (fragment.index, fragment.id) {
            (Some(index), id) => self.by_index(index, id)?,
            (None, Some(id)) => self.by_id(id, fragment.name)?,
            (None, None) => self.calls.len().checked_sub(1)?,
        };
        (!self.calls[call].is_another(fragment)).then_some(call)
    }

    fn by_index(&self, index: u64, id: Option<&str>) -> Option<usize> {
        let latest = self.calls.iter().rposition(|call| call.index == Some(index));
        match (latest, id) {
            // One index for every call: the id tells them apart, also when they interleave.
            (Some(latest), Some(id)) if !self.calls[latest].id.is_empty() && self.calls[latest].id != id => {
                self.calls.iter().rposition(|call| call.index == Some(index) && call.id == id)
            }
            (Some(latest), _) => Some(latest),
            // The index came only after the id.
            (None, Some(id)) => self.calls.iter().rposition(|call| call.index.is_none() && call.id == id),
            (None, None) => None,
        }
    }

    fn by_id(&self, id: &str, name: Option<&str>) -> Option<usize> {
        let own = self.calls.iter().rposition(|call| call.id == id);
        // An id that comes after the name, without it, names the call that is still without one.
        own.or_else(|| {
            self.calls.len().checked_sub(1).filter(|last| name.is_none() && self.calls[*last].id.is_empty())
        })
    }

    /// Takes the whole argument text of a call, for wires that send it again at the call's end. `false` when it is
    /// not the text that came in pieces: then nobody can say what was proposed.
    pub fn confirm(&mut self, call: usize, whole: &str) -> bool {
        let Some(building) = self.calls.get_mut(call) else { return false };
        if building.arguments.is_empty() {
            building.push(whole);
            self.kept += building.arguments.len();
            return true;
        }
        // Over the bound, both are refused as too large.
        building.over || building.arguments == whole
    }

    /// Whether every call has a name and whole arguments, as far as the text itself tells.
    pub fn all_whole(&mut self) -> bool {
        self.calls.iter_mut().all(|call| !call.name.is_empty() && call.is_whole())
    }

    /// How many bytes are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept
    }

    /// How many calls were opened.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call was opened.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls, in the order they were opened. Only for a stream that ended well.
    pub fn finish(self) -> Vec<ProposedCall> {
        let call = |call: Building| ProposedCall {
            id: call.id,
            name: call.name,
            // Some servers encode the arguments twice; the object inside is then what was meant.
            arguments: peel_double_encoded(&call.arguments).unwrap_or(call.arguments),
        };
        self.calls.into_iter().map(call).collect()
    }
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

impl Building {
    /// Whether a fragment that points here belongs to another call all the same.
    fn is_another(&mut self, fragment: &Fragment<'_>) -> bool {
        if let Some(id) = fragment.id
            && !self.id.is_empty()
            && self.id != id
        {
            return true;
        }
        let Some(name) = fragment.name else { return false };
        if self.name.is_empty() {
            return false;
        }
        if self.name != name {
            return true;
        }
        // The same name again. With the same id it is the same call. Without one, whole arguments followed by new
        // ones are another call; anything else is a server that repeats the name in every fragment.
        let same_id = fragment.id.is_some_and(|id| id == self.id);
        !same_id && fragment.arguments.is_some() && !fragment.closing && self.is_whole()
    }

    fn add(&mut self, fragment: &Fragment<'_>, habits: Habits) {
        if self.index.is_none() {
            self.index = fragment.index;
        }
        if let Some(id) = fragment.id
            && self.id.is_empty()
        {
            self.id.push_str(id);
        }
        if let Some(name) = fragment.name
            && self.name.is_empty()
        {
            self.name.push_str(name);
        }
        let Some(arguments) = fragment.arguments else { return };
        if habits.repeats_at_close && fragment.closing && self.arguments == arguments {
            return;
        }
        if habits.cumulative_arguments && arguments.starts_with(self.arguments.as_str()) {
            self.arguments.clear();
            self.scan = Scan::default();
        }
        self.push(arguments);
    }

    fn push(&mut self, text: &str) {
        if self.over {
            return;
        }
        let room = ARGUMENTS_MAX_BYTES + 1 - self.arguments.len();
        if text.len() < room {
            self.arguments.push_str(text);
        } else {
            self.arguments.push_str(&text[..text.ceil_char_boundary(room)]);
            self.over = true;
        }
    }

    fn bytes(&self) -> usize {
        self.id.len() + self.name.len() + self.arguments.len()
    }

    fn is_whole(&mut self) -> bool {
        self.over || self.scan.is_whole(&self.arguments)
    }
}

/// Whether a text is one whole JSON value, told by its brackets and quotes alone. It goes on where it stopped, so
/// that asking after every fragment stays linear.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    whole: bool,
    trailing: bool,
}

impl Scan {
    fn is_whole(&mut self, text: &str) -> bool {
        for byte in &text.as_bytes()[self.at..] {
            self.step(*byte);
        }
        self.at = text.len();
        self.whole && !self.trailing
    }

    fn step(&mut self, byte: u8) {
        if self.whole {
            self.trailing |= !byte.is_ascii_whitespace();
        } else if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    self.whole = self.depth == 0;
                }
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.whole = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}
