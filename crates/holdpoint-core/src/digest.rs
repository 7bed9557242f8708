//! The digest of a call: what a decision is bound to.
//!
//! SHA-256 over fields that are each preceded by their length (u64, big-endian), so that no byte can move from
//! one field into the next. The fields of a call are, in order: the text `holdpoint.call.v1`, tenant, run,
//! round, index, attempt, revision, qualified tool name, definition digest, argument text; numbers as decimal
//! text. The argument text goes in byte for byte: canonical forms merge distinct integers beyond 2^53, and so
//! would let one approval fit two amounts.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use holdpoint_protocol::{CallId, RequestId, RunId, TenantId, UnendedCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::tool::ToolDefinition;

const CALL_DOMAIN: &str = "holdpoint.call.v1";
const DEFINITION_DOMAIN: &str = "holdpoint.definition.v1";
const PREFIX: &str = "sha256:";
const HEX_DIGITS: usize = 64;
const DIGEST_TEXT: usize = PREFIX.len() + HEX_DIGITS;

/// A text that is not `sha256:` and 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected `sha256:` and 64 lowercase hexadecimal digits")]
pub struct InvalidDigest;

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Written `sha256:` and 64 lowercase hexadecimal digits, and read in that one form only.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The 32 bytes.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(text_of(&self.0, &mut [0; DIGEST_TEXT]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidDigest;
            fn from_str(text: &str) -> Result<Self, InvalidDigest> {
                read_hex(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(text_of(&self.0, &mut [0; DIGEST_TEXT]))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

digest!(
    /// The digest of one call: these arguments, of this tool as it was defined, at this place of this run.
    CallDigest
);
digest!(
    /// The digest of a tool's definition: its name, its description and its schema.
    DefinitionDigest
);

/// The text of a digest, written into a place of its length.
fn text_of<'a>(bytes: &[u8; 32], text: &'a mut [u8; DIGEST_TEXT]) -> &'a str {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (prefix, hex) = text.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX.as_bytes());
    for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    std::str::from_utf8(text).unwrap_or_default()
}

fn read_hex(text: &str) -> Result<[u8; 32], InvalidDigest> {
    let hex = text.strip_prefix(PREFIX).filter(|hex| hex.len() == HEX_DIGITS).ok_or(InvalidDigest)?;
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    };
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
    }
    Ok(bytes)
}

/// What the digest of a call is made of.
#[derive(Debug, Clone, Copy)]
pub struct CallDigestInput<'a> {
    /// Whose run it is.
    pub tenant: &'a TenantId,
    /// The run, the round and the index.
    pub call: CallId,
    /// Which attempt, from 1: running a call in doubt again is another thing to approve.
    pub attempt: u32,
    /// How often the request for this call was replaced, from 0.
    pub revision: u32,
    /// The qualified name of the tool.
    pub tool: &'a str,
    /// The tool as it was defined.
    pub definition: &'a DefinitionDigest,
    /// The exact argument text.
    pub arguments: &'a str,
}

impl CallDigestInput<'_> {
    /// The digest.
    pub fn digest(&self) -> CallDigest {
        let mut fields = Fields::new(CALL_DOMAIN);
        fields.text(self.tenant.as_str());
        fields.shown(self.call.run);
        fields.shown(self.call.round);
        fields.shown(self.call.index);
        fields.shown(self.attempt);
        fields.shown(self.revision);
        fields.text(self.tool);
        fields.shown(self.definition);
        fields.text(self.arguments);
        CallDigest(fields.finish())
    }
}

/// What a decision on a run that was set aside binds to: the run, this time of being set aside, and what may have run.
pub fn set_aside_digest(
    tenant: &TenantId,
    run: RunId,
    request: RequestId,
    claims: u32,
    calls: &[UnendedCall],
) -> CallDigest {
    let mut fields = Fields::new("holdpoint.set_aside.v1");
    fields.text(tenant.as_str());
    fields.shown(run);
    fields.shown(request);
    fields.shown(claims);
    for call in calls {
        fields.shown(call.call_id);
        fields.text(&call.tool_name);
        fields.shown(call.attempt);
    }
    CallDigest(fields.finish())
}

/// The digest of a tool's definition. The order of keys in its schema does not matter; any other change does.
pub fn definition_digest(tool: &ToolDefinition) -> DefinitionDigest {
    let mut schema = String::new();
    write_sorted(&tool.schema, &mut schema);
    let mut fields = Fields::new(DEFINITION_DOMAIN);
    fields.text(&tool.name);
    fields.text(&tool.description);
    fields.text(&schema);
    DefinitionDigest(fields.finish())
}

/// The digest of arguments as a value: neither white space nor the order of keys matters. For telling a repetition from another
/// request; what is decided on is the exact text.
pub fn arguments_value_digest(arguments: &Value) -> [u8; 32] {
    let mut text = String::new();
    write_sorted(arguments, &mut text);
    let mut fields = Fields::new("holdpoint.arguments.v1");
    fields.text(&text);
    fields.finish()
}

/// The digest of the tools on offer in a round, in order, with everything that is stored of them.
pub fn tool_set_digest(tools: &[ToolDefinition]) -> DefinitionDigest {
    let mut fields = Fields::new("holdpoint.tools.v1");
    for tool in tools {
        let text = serde_json::to_value(tool).map(|value| {
            let mut text = String::new();
            write_sorted(&value, &mut text);
            text
        });
        // Strings and numbers: writing them to memory has no way to fail.
        fields.text(&text.unwrap_or_default());
    }
    DefinitionDigest(fields.finish())
}

/// A digest over length-prefixed fields.
pub(crate) struct Fields {
    hash: Sha256,
    scratch: String,
}

impl Fields {
    pub(crate) fn new(domain: &str) -> Self {
        let mut fields = Self { hash: Sha256::new(), scratch: String::new() };
        fields.text(domain);
        fields
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.hash.update((text.len() as u64).to_be_bytes());
        self.hash.update(text.as_bytes());
    }

    pub(crate) fn shown(&mut self, value: impl fmt::Display) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        // Writing into a string does not fail.
        let _ = write!(scratch, "{value}");
        self.text(&scratch);
        self.scratch = scratch;
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

/// Writes a value with the keys of every object sorted, whatever map serde_json was built with.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, item)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::String(key.clone()));
                write_sorted(item, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_sorted(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

#[cfg(test)]
mod tests;
