//! Punycode (RFC 3492): the letters-and-digits form of an international label, both ways.

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 128;

/// A label of a name has at most 63 bytes; a longer one is none and is not decoded.
const LABEL_MAX_BYTES: usize = 63;

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / DAMP } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > ((BASE - T_MIN) * T_MAX) / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

fn threshold(k: u32, bias: u32) -> u32 {
    k.saturating_sub(bias).clamp(T_MIN, T_MAX)
}

/// Decodes a label without its `xn--`. `None` when it is no Punycode.
pub(super) fn decode(label: &str) -> Option<String> {
    if label.len() > LABEL_MAX_BYTES || !label.is_ascii() {
        return None;
    }
    let (basic, extended) = label.rsplit_once('-').unwrap_or(("", label));
    let mut output: Vec<char> = basic.chars().collect();
    let (mut n, mut i, mut bias) = (INITIAL_N, 0_u32, INITIAL_BIAS);
    let mut digits = extended.bytes();
    while digits.len() > 0 {
        let before = i;
        let (mut weight, mut k) = (1_u32, BASE);
        loop {
            let digit = match digits.next()? {
                letter @ b'a'..=b'z' => u32::from(letter - b'a'),
                number @ b'0'..=b'9' => u32::from(number - b'0') + 26,
                _ => return None,
            };
            i = i.checked_add(digit.checked_mul(weight)?)?;
            let t = threshold(k, bias);
            if digit < t {
                break;
            }
            weight = weight.checked_mul(BASE - t)?;
            k += BASE;
        }
        let points = u32::try_from(output.len()).ok()? + 1;
        bias = adapt(i - before, points, before == 0);
        n = n.checked_add(i / points)?;
        i %= points;
        output.insert(usize::try_from(i).ok()?, char::from_u32(n)?);
        i += 1;
    }
    Some(output.into_iter().collect())
}

/// Encodes a label, without the `xn--`. `None` when it is too long to be one.
pub(super) fn encode(label: &str) -> Option<String> {
    if label.len() > LABEL_MAX_BYTES * 4 {
        return None;
    }
    let points: Vec<u32> = label.chars().map(u32::from).collect();
    let mut output: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(output.len()).ok()?;
    if basic > 0 {
        output.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (INITIAL_N, 0_u32, INITIAL_BIAS, basic);
    while (handled as usize) < points.len() {
        let next = points.iter().copied().filter(|&point| point >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for &point in &points {
            if point < n {
                delta = delta.checked_add(1)?;
            }
            if point == n {
                push_number(delta, bias, &mut output)?;
                bias = adapt(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta += 1;
        n += 1;
    }
    Some(output)
}

fn push_number(number: u32, bias: u32, output: &mut String) -> Option<()> {
    let (mut rest, mut k) = (number, BASE);
    loop {
        let t = threshold(k, bias);
        let last = rest < t;
        let digit = if last { rest } else { t + (rest - t) % (BASE - t) };
        output.push(char::from_digit_36(digit)?);
        if last {
            return Some(());
        }
        rest = (rest - t) / (BASE - t);
        k += BASE;
    }
}

trait FromDigit {
    fn from_digit_36(digit: u32) -> Option<char>;
}

impl FromDigit for char {
    /// Punycode counts letters first: 0 is `a`, 26 is `0`.
    fn from_digit_36(digit: u32) -> Option<char> {
        let byte = u8::try_from(digit).ok()?;
        Some(char::from(if byte < 26 { b'a' + byte } else { b'0' + byte - 26 }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples of RFC 3492, section 7.1, and names in use.
    #[test]
    fn known_labels_go_both_ways() {
        for (unicode, ascii) in [
            ("c\u{430}me", "cme-6cd"),
            ("m\u{fc}nchen", "mnchen-3ya"),
            ("他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"),
            ("почемужеонинеговорятпорусски", "b1abfaaepdrnnbgefbadotcwatmq2g4l"),
            ("3年b組金八先生", "3b-ww4c5e180e575a65lsy2b"),
            ("そのスピードで", "d9juau41awczczp"),
        ] {
            assert_eq!(encode(unicode).as_deref(), Some(ascii));
            assert_eq!(decode(ascii).as_deref(), Some(unicode));
        }
    }

    #[test]
    fn what_is_no_punycode_is_not_decoded() {
        for bad in ["a\u{e9}", "99999999", "a-9", "a_", &"9".repeat(64)] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_label_goes_both_ways(label in "[a-z0-9а-яα-ω一-十]{1,12}") {
            if !label.is_ascii() {
                prop_assert_eq!(decode(&encode(&label).unwrap()), Some(label));
            }
        }

        #[test]
        fn any_text_is_decoded_or_not(label in "[a-z0-9-]{0,70}") {
            let _ = decode(&label);
        }
    }
}
