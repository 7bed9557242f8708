//! Identifiers. Ours are keys; a provider's are data and appear only as plain strings.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that is not an identifier of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId {
    /// What kind of identifier was expected.
    pub kind: &'static str,
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a valid {}", self.kind)
    }
}

impl std::error::Error for InvalidId {}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                // Only the one form we print: 36 characters, hyphenated.
                match Uuid::try_parse(text) {
                    Ok(id) if text.len() == 36 => Ok(Self(id)),
                    _ => Err(InvalidId { kind: $kind }),
                }
            }
        }
    };
}

uuid_id!(
    /// A run. Version 7, so that ids sort by the time they were made and partitions follow them.
    RunId, "run id"
);
uuid_id!(
    /// A pending request to a person. Version 4: 122 random bits, nothing in one id helps to guess another.
    RequestId, "request id"
);
uuid_id!(
    /// One process of a server, from start to end. A restarted process has another.
    InstanceId, "instance id"
);
uuid_id!(
    /// The idempotency key a tool is given: the same for every attempt of one call.
    ExecId, "execution id"
);

/// A call's own id: its run, the round (from 1) and its index in the reply (from 0).
///
/// Written `<run>.<round>.<index>`. This, and not the provider's id, is the key of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The run the call belongs to.
    pub run: RunId,
    /// The round, counted from 1.
    pub round: u32,
    /// The position in the model's reply, counted from 0.
    pub index: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.round, self.index)
    }
}

impl FromStr for CallId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let bad = InvalidId { kind: "call id" };
        let mut parts = text.split('.');
        let (Some(run), Some(round), Some(index), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad);
        };
        match (run.parse(), round.parse(), index.parse()) {
            (Ok(run), Ok(round), Ok(index)) => Ok(Self { run, round, index }),
            _ => Err(bad),
        }
    }
}

impl Serialize for CallId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CallId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The longest name of an agent, tenant, actor or conversation, in bytes.
pub const NAME_MAX_BYTES: usize = 128;

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 128 bytes of ASCII letters, digits and `_ - : @ .`, not starting with a dot: it can be
        /// shown, logged and put into a header or a path without a second thought.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the alphabet and the length.
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                let fits = !text.is_empty() && text.len() <= NAME_MAX_BYTES && !text.starts_with('.');
                let closed = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-:@.".contains(&b));
                if fits && closed { Ok(Self(text.into())) } else { Err(InvalidId { kind: $kind }) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_id!(
    /// Whose data it is. Part of every key; from authentication and nothing else.
    TenantId, "tenant id"
);
name_id!(
    /// Who is behind a request: `operator`, `handler:<name>`. From authentication and nothing else.
    ActorId, "actor id"
);
name_id!(
    /// A group of people who decide: as configuration names it.
    GroupName, "group name"
);
name_id!(
    /// A declared agent.
    AgentName, "agent name"
);
name_id!(
    /// The messages that successive runs share.
    ConversationId, "conversation id"
);
