//! The compact form in which the durable stores keep JSON.
//!
//! A million runs may wait, so a waiting run must be small. What it keeps is mostly ids and digests written as text,
//! the same few keys, and the same arguments in a message, in an event and in a request. [`pack`] writes ids and
//! digests as bytes; [`block`] then removes repetition. Both give back exactly the text that went in.

mod block;
mod journal;
mod pack;

pub(crate) use block::{press, unpress};
pub(crate) use journal::{Entry, EntryBuilder, FactRef};

use holdpoint_protocol::RunId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Writes a value of a run compactly.
pub(crate) fn write<T: Serialize>(run: RunId, value: &T) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    write_packed(run, value, &mut packed)?;
    Ok(press(&packed))
}

/// Writes a value of a run that is overwritten soon: it is not worth pressing.
pub(crate) fn write_for_now<T: Serialize>(run: RunId, value: &T) -> Result<Vec<u8>> {
    let mut plain = block::plain();
    write_packed(run, value, &mut plain)?;
    Ok(plain)
}

fn write_packed<T: Serialize>(run: RunId, value: &T, out: &mut Vec<u8>) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))?;
    out.reserve(text.len());
    pack::pack(run, &text, out);
    Ok(())
}

/// Reads a value of a run back.
pub(crate) fn read<T: DeserializeOwned>(run: RunId, bytes: &[u8]) -> Result<T> {
    let text = unpress(bytes).and_then(|packed| pack::unpack(run, &packed));
    let read = text.and_then(|text| serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string())));
    read.map_err(|error| error.about(format_args!("run {run}")))
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt(format!("a compact value: {what}"))
}
