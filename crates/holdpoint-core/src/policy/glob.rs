//! Patterns over tool names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest pattern, in bytes. A tool name has at most 64; a pattern may have some stars beside.
pub const PATTERN_MAX_BYTES: usize = 96;

/// A pattern over whole tool names: `*` stands for any run of characters, also none, `?` for exactly one, and
/// every other character for itself. It is anchored at both ends: `read` is not `read_file`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Glob(String);

/// A pattern that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGlob {
    /// It is empty, and so matches nothing.
    #[error("an empty pattern matches no tool")]
    Empty,
    /// It is too long.
    #[error("the pattern `{pattern}` is longer than {PATTERN_MAX_BYTES} bytes")]
    TooLong {
        /// Its beginning.
        pattern: String,
    },
    /// It has a character that no tool name has.
    #[error(
        "the pattern `{}` can match no tool: names have ASCII letters, digits, `_` and `-`, not `{}`",
        pattern.escape_debug(), character.escape_debug()
    )]
    Character {
        /// The pattern.
        pattern: String,
        /// The character.
        character: char,
    },
}

impl FromStr for Glob {
    type Err = InvalidGlob;

    fn from_str(pattern: &str) -> Result<Self, InvalidGlob> {
        if pattern.is_empty() {
            return Err(InvalidGlob::Empty);
        }
        if pattern.len() > PATTERN_MAX_BYTES {
            return Err(InvalidGlob::TooLong { pattern: pattern.chars().take(32).collect() });
        }
        let names_have = |c: char| c.is_ascii_alphanumeric() || "_-*?".contains(c);
        match pattern.chars().find(|&c| !names_have(c)) {
            Some(character) => Err(InvalidGlob::Character { pattern: pattern.into(), character }),
            None => Ok(Self(pattern.into())),
        }
    }
}

impl Glob {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole name fits.
    ///
    /// All positions of the pattern that fit so far are kept as the bits of one number, so that the time is
    /// the length of the name times that of the pattern, however many stars there are.
    pub fn matches(&self, name: &str) -> bool {
        let pattern = self.0.as_bytes();
        let end = 1_u128 << pattern.len();
        let mut at = self.skip_stars(1);
        for byte in name.bytes() {
            let mut next = 0;
            for (i, &wanted) in pattern.iter().enumerate() {
                let here = at & (1 << i);
                if wanted == b'*' {
                    next |= here;
                } else if wanted == byte || wanted == b'?' {
                    next |= here << 1;
                }
            }
            at = self.skip_stars(next);
            if at == 0 {
                return false;
            }
        }
        at & end != 0
    }

    /// Adds the positions that are reached by letting a star stand for nothing.
    fn skip_stars(&self, mut at: u128) -> u128 {
        for (i, &wanted) in self.0.as_bytes().iter().enumerate() {
            if wanted == b'*' {
                at |= (at & (1 << i)) << 1;
            }
        }
        at
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Glob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
