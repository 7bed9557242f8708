//! Cursors: where a list goes on. Opaque to clients, and good for the list and the tenant they were made for.

use holdpoint_protocol::TenantId;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Bytes of the check that binds a cursor to its list and its tenant. It catches mix-ups; it is no secret, and none
/// is needed: every row is read under the tenant of the one who asks.
const CHECK_BYTES: usize = 8;

/// Writes a cursor.
pub(crate) fn write(list: &str, tenant: &TenantId, place: &[u8]) -> String {
    let mut bytes = place.to_vec();
    bytes.extend_from_slice(&check(list, tenant, place));
    hex(&bytes)
}

/// Reads a cursor back.
pub(crate) fn read<const N: usize>(list: &str, tenant: &TenantId, cursor: &str) -> Result<[u8; N]> {
    let bytes = unhex(cursor).ok_or(Error::BadCursor)?;
    let (place, found) = bytes.split_at_checked(N).ok_or(Error::BadCursor)?;
    let place: [u8; N] = place.try_into().map_err(|_| Error::BadCursor)?;
    if found == check(list, tenant, &place) { Ok(place) } else { Err(Error::BadCursor) }
}

fn check(list: &str, tenant: &TenantId, place: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hash = Sha256::new();
    for field in [list.as_bytes(), tenant.as_str().as_bytes(), place] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    let mut short = [0; CHECK_BYTES];
    short.copy_from_slice(&hash.finalize()[..CHECK_BYTES]);
    short
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Bytes from lower-case hex.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some((nibble(pair[0])? << 4) | nibble(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_list_and_its_tenant_only() {
        let (acme, other) = (TenantId::new("acme").unwrap(), TenantId::new("other").unwrap());
        let cursor = write("runs", &acme, &[1, 2, 3]);
        assert_eq!(read::<3>("runs", &acme, &cursor).unwrap(), [1, 2, 3]);
        let cut = &cursor[..cursor.len() - 2];
        let long = format!("{cursor}00");
        for (list, tenant, text) in [
            ("inbox", &acme, cursor.as_str()),
            ("runs", &other, &cursor),
            ("runs", &acme, cut),
            ("runs", &acme, &long),
            ("runs", &acme, ""),
            ("runs", &acme, "zz"),
            ("runs", &acme, "0"),
            ("runs", &acme, "é"),
        ] {
            assert!(matches!(read::<3>(list, tenant, text), Err(Error::BadCursor)), "{list} {tenant} {text}");
        }
    }
}
