//! Repetition removed: LZ4 against a dictionary of what our values look like.

use super::corrupt;
use crate::Result;

/// The bytes are as they are.
const PLAIN: u8 = 0;
/// LZ4 against [`DICTIONARY_1`]; the length of the plain bytes comes first.
const LZ4_1: u8 = 1;

/// The longest value that is read: more than any bound lets through, less than would hurt.
const PLAIN_MAX_BYTES: usize = 256 * 1024 * 1024;

/// What values look like. Never changed, for stored values are read with it; a better one gets the next number.
const DICTIONARY_1: &[u8] = include_bytes!("dictionary_1.txt");

/// Presses bytes; those that do not get smaller stay as they are.
pub(crate) fn press(plain: &[u8]) -> Vec<u8> {
    let pressed = lz4_flex::block::compress_with_dict(plain, DICTIONARY_1);
    let mut out = Vec::with_capacity(pressed.len() + 4);
    if pressed.len() + 3 < plain.len() {
        out.push(LZ4_1);
        write_number(plain.len() as u64, &mut out);
        out.extend_from_slice(&pressed);
    } else {
        out.push(PLAIN);
        out.extend_from_slice(plain);
    }
    out
}

/// The beginning of bytes that stay as they are.
pub(super) fn plain() -> Vec<u8> {
    vec![PLAIN]
}

/// The bytes that were pressed.
pub(crate) fn unpress(bytes: &[u8]) -> Result<Vec<u8>> {
    match bytes.split_first() {
        Some((&PLAIN, plain)) => Ok(plain.to_vec()),
        Some((&LZ4_1, mut rest)) => {
            let len = usize::try_from(read_number(&mut rest)?).unwrap_or(usize::MAX);
            if len > PLAIN_MAX_BYTES {
                return Err(corrupt("too long"));
            }
            lz4_flex::block::decompress_with_dict(rest, len, DICTIONARY_1)
                .ok()
                .filter(|plain| plain.len() == len)
                .ok_or_else(|| corrupt("it cannot be unpressed"))
        }
        Some(_) | None => Err(corrupt("an unknown form")),
    }
}

/// A number, seven bits a byte, the lowest first.
pub(super) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number off the front.
pub(super) fn read_number(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or_else(|| corrupt("cut short"))?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(corrupt("a number too long"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_dictionary_is_what_stored_values_were_written_with() {
        use sha2::Digest;
        let digest = crate::cursor::hex(&sha2::Sha256::digest(DICTIONARY_1));
        assert_eq!(&digest[..16], "6554ec023b0767c2", "add another dictionary; never change this one");
    }

    #[test]
    fn a_length_that_no_value_has_is_refused_before_memory_is_taken() {
        let mut bytes = vec![LZ4_1];
        write_number(PLAIN_MAX_BYTES as u64 + 1, &mut bytes);
        assert!(unpress(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_as_they_were(bytes in any::<Vec<u8>>(), times in 1..4usize) {
            let plain = bytes.repeat(times);
            prop_assert_eq!(unpress(&press(&plain)).unwrap(), plain);
        }

        #[test]
        fn any_bytes_are_unpressed_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = unpress(&bytes);
        }

        #[test]
        fn any_number_comes_back(number in any::<u64>()) {
            let mut bytes = Vec::new();
            write_number(number, &mut bytes);
            prop_assert_eq!(read_number(&mut bytes.as_slice()).unwrap(), number);
        }
    }
}
