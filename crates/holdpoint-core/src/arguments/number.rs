//! Which numbers survive being read.
//!
//! A tool reads its arguments with the number types every JSON library has: 64-bit integers and doubles. A
//! literal that these cannot hold exactly would be rounded between what a person saw and what ran, so it is
//! refused. How it is written does not matter: `1.10` and `4e1` stay the text they are.

use crate::walk::string_end;

/// A double holds every decimal of this many significant digits exactly.
const DIGITS_THAT_ALWAYS_SURVIVE: usize = 15;

/// A number that does not survive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lossy<'a> {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Its characters.
    pub literal: &'a str,
    /// What happens to it.
    pub why: &'static str,
}

/// The first number of a valid JSON text that does not survive.
pub(super) fn first_lossy(text: &str) -> Option<Lossy<'_>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let start = at;
                while matches!(bytes.get(at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
                    at += 1;
                }
                let literal = &text[start..at];
                if let Some(why) = fault(literal) {
                    return Some(Lossy { offset: start, literal, why });
                }
            }
            _ => at += 1,
        }
    }
    None
}

/// What happens to a literal that does not survive.
fn fault(literal: &str) -> Option<&'static str> {
    if !literal.contains(['.', 'e', 'E']) {
        let fits = literal.parse::<i64>().is_ok() || literal.parse::<u64>().is_ok();
        return (!fits)
            .then_some("does not fit into a 64-bit integer; send it as a string if the tool takes one");
    }
    let written = Decimal::read(literal);
    if written.digits.len() <= DIGITS_THAT_ALWAYS_SURVIVE && written.point.is_some_and(|p| p.abs() < 290) {
        return None;
    }
    let kept = literal.parse::<f64>().ok().filter(|number| number.is_finite());
    let Some(kept) = kept else { return Some("is too large to be read") };
    let read_back = Decimal::read(&format!("{kept:e}"));
    (written != read_back).then_some("has more digits than can be read back; shorten it")
}

/// A decimal number without its sign: significant digits and where the point stands before them.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    /// `0.<digits> * 10^point`; `None` when the exponent is beyond all sense.
    point: Option<i64>,
}

impl Decimal {
    fn read(literal: &str) -> Self {
        let unsigned = literal.trim_start_matches('-');
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let leading_zeros = all.len() - all.trim_start_matches('0').len();
        let digits = all.trim_matches('0').to_owned();
        if digits.is_empty() {
            return Self { digits, point: Some(0) };
        }
        let exponent = exponent.parse::<i64>().ok();
        let point = i64::try_from(whole.len()).ok().zip(i64::try_from(leading_zeros).ok());
        let point = exponent.zip(point).and_then(|(e, (whole, zeros))| e.checked_add(whole - zeros));
        Self { digits, point }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_survive_and_numbers_that_do_not() {
        let survive = [
            "0",
            "-0",
            "1",
            "-1",
            "1.10",
            "4e1",
            "4E+1",
            "0.1",
            "-0.0",
            "0e999999999999999999999",
            "1e308",
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            "0.30000000000000004",
            "1.7976931348623157e308",
            "5e-324",
            "2.2250738585072014e-308",
            "0.000001",
            "123456789012345.0",
            "100000000000000000000000.0",
            "9007199254740992.0",
        ];
        for literal in survive {
            assert_eq!(fault(literal), None, "{literal}");
        }
        let lost = [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "1e400",
            "-1e400",
            "1e-400",
            "9007199254740993.0",
            "0.1234567890123456789012345678901",
            "1e99999999999999999999",
            "1.00000000000000000001",
            "2e-324",
        ];
        for literal in lost {
            assert!(fault(literal).is_some(), "{literal}");
        }
    }

    #[test]
    fn digits_in_strings_are_no_numbers() {
        assert_eq!(first_lossy(r#"{"a":"99999999999999999999999","\"1e400":"\\"}"#), None);
        let text = r#"{"a":"\\","b":[1,99999999999999999999]}"#;
        let lossy = first_lossy(text).unwrap();
        assert_eq!((lossy.literal, lossy.offset), ("99999999999999999999", 17));
    }
}
