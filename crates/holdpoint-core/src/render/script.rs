//! Words that mix letters of two scripts which look alike: `pаypal` with a Cyrillic `а`.

use crate::arguments::quote;

/// Greek letters that pass for Latin ones. The others (`Δx`, `kΩ`) are ordinary in formulas and units.
const GREEK_LIKE_LATIN: &str = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυκιϲ";

#[derive(PartialEq, Eq)]
enum Letter {
    Latin,
    Cyrillic,
    Greek,
    Other,
}

fn letter(c: char) -> Letter {
    match c {
        'a'..='z' | 'A'..='Z' => Letter::Latin,
        '\u{400}'..='\u{52f}' => Letter::Cyrillic,
        c if GREEK_LIKE_LATIN.contains(c) => Letter::Greek,
        _ => Letter::Other,
    }
}

/// A warning about the first word that mixes scripts.
pub(super) fn warning(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    text.split(|c: char| !c.is_alphanumeric()).find_map(|word| {
        let has = |wanted: &Letter| word.chars().any(|c| letter(c) == *wanted);
        let other = match (has(&Letter::Latin), has(&Letter::Cyrillic), has(&Letter::Greek)) {
            (true, true, _) => "Cyrillic",
            (true, false, true) => "Greek",
            (true, false, false) | (false, _, _) => return None,
        };
        Some(format!("{} mixes Latin and {other} letters", crate::display::visible(&quote(word)).text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_two_scripts_is_named() {
        assert_eq!(
            warning("pay p\u{430}ypal now").as_deref(),
            Some("\"p\u{430}ypal\" mixes Latin and Cyrillic letters")
        );
        assert!(warning("g\u{3bf}\u{3bf}gle").is_some_and(|said| said.contains("Greek")));
        for fine in ["paypal", "Привет world", "Δx = 3 kΩ", "naïve", "日本go", "αβγ"] {
            assert_eq!(warning(fine), None, "{fine}");
        }
    }
}
