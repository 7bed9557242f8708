//! How names and texts of files are shown.

use std::path::Path;

/// How much of a file is looked at to tell text from binary, in bytes.
pub const SNIFF_BYTES: usize = 8 * 1024;

/// A path as it is shown: as it is where that is plain, else quoted, with everything escaped that could make
/// it look like something else - a line break, a control or bidi character, bytes that are no text.
pub fn shown(path: &Path) -> String {
    let quoted = format!("{path:?}");
    match path.to_str() {
        Some(plain) if quoted.get(1..quoted.len() - 1) == Some(plain) && plain.trim() == plain => {
            plain.to_owned()
        }
        Some(_) | None => quoted,
    }
}

/// Whether these first bytes of a file are those of a binary file.
pub fn looks_binary(start: &[u8]) -> bool {
    start.iter().take(SNIFF_BYTES).any(|&byte| byte == 0)
}

/// The text, without a character that the end cuts in two. `None` if it is not UTF-8.
pub fn whole_characters(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// `1 line`, `2 lines`.
pub fn count(number: u64, singular: &str, plural: &str) -> String {
    if number == 1 { format!("1 {singular}") } else { format!("{number} {plural}") }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_name_that_could_pass_for_another_is_quoted() {
        for (name, looks) in [
            ("src/main.rs", "src/main.rs"),
            ("with space.txt", "with space.txt"),
            ("naïve.txt", "naïve.txt"),
            ("it's", "it's"),
            ("two\nlines", r#""two\nlines""#),
            ("bidi\u{202e}txt.exe", r#""bidi\u{202e}txt.exe""#),
            ("zero\u{200b}width", r#""zero\u{200b}width""#),
            ("\u{1b}[31mred", r#""\u{1b}[31mred""#),
            (" edge", r#"" edge""#),
            (r#"a"b"#, r#""a\"b""#),
            ("", ""),
        ] {
            assert_eq!(shown(Path::new(name)), looks);
        }
        assert_eq!(shown(Path::new(OsStr::from_bytes(b"caf\xe9"))), r#""caf\xE9""#);
    }

    #[test]
    fn only_a_character_cut_by_the_end_is_left_out() {
        let text = "né".as_bytes();
        assert_eq!(whole_characters(text), Some("né"));
        assert_eq!(whole_characters(&text[..2]), Some("n"));
        assert_eq!(whole_characters(b"n\xe9t"), None);
    }
}
