//! File name patterns, as a regular expression of linear time.

use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};

/// The longest pattern, in bytes.
const PATTERN_MAX_BYTES: usize = 1024;
/// The most memory a compiled pattern takes, in bytes.
const COMPILED_MAX_BYTES: usize = 1024 * 1024;

/// A pattern such as `*.rs`, `src/**/*.{ts,tsx}` or `[a-c]?.txt`.
pub struct Glob {
    regex: Regex,
    /// A pattern without `/` is about the name, wherever the file lies.
    name_only: bool,
}

impl Glob {
    pub fn new(pattern: &str) -> Result<Self, String> {
        if pattern.len() > PATTERN_MAX_BYTES {
            return Err(format!("the pattern is longer than {PATTERN_MAX_BYTES} bytes"));
        }
        let regex = RegexBuilder::new(&translate(pattern)?)
            .size_limit(COMPILED_MAX_BYTES)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { regex, name_only: !pattern.contains('/') })
    }

    pub fn matches(&self, path: &Path) -> bool {
        let subject = if self.name_only { path.file_name().unwrap_or_default() } else { path.as_os_str() };
        self.regex.is_match(subject.as_encoded_bytes())
    }
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut regex = String::from("(?s)^(?:");
    let mut rest = pattern.strip_prefix("./").unwrap_or(pattern);
    let mut braces = 0_u32;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**/") {
            regex.push_str("(?:.*/)?");
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("**") {
            regex.push_str(".*");
            rest = after;
            continue;
        }
        if character == '[' {
            let (class, after) = class(rest)?;
            regex.push_str(&class);
            rest = after;
            continue;
        }
        rest = &rest[character.len_utf8()..];
        match character {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '{' => {
                braces += 1;
                regex.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                regex.push(')');
            }
            ',' if braces > 0 => regex.push('|'),
            '\\' => {
                let next = rest.chars().next().ok_or("the pattern ends in `\\`")?;
                rest = &rest[next.len_utf8()..];
                regex.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            }
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    if braces > 0 {
        return Err("a `{` is not closed".into());
    }
    regex.push_str(")$");
    Ok(regex)
}

/// `[abc]`, `[a-z]`, `[!x]`: the class as a regular expression, and what follows it.
fn class(pattern: &str) -> Result<(String, &str), String> {
    let inside = &pattern[1..];
    let negated = inside.starts_with(['!', '^']);
    let inside = if negated { &inside[1..] } else { inside };
    // A `]` that stands first is one of the characters.
    let first = inside.chars().next().map_or(0, char::len_utf8);
    let end = inside.get(first..).and_then(|more| more.find(']')).ok_or("a `[` is not closed")? + first;
    let mut class = String::from(if negated { "[^/" } else { "[" });
    for character in inside[..end].chars() {
        // A hyphen keeps its meaning; all else stands for itself.
        if !(character == '-' || character.is_alphanumeric()) {
            class.push('\\');
        }
        class.push(character);
    }
    class.push(']');
    Ok((class, &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_a_shell_would() {
        for (pattern, path, matches) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "src/deep/main.rs", true),
            ("*.rs", "main.rs.bak", false),
            ("src/*.rs", "src/main.rs", true),
            ("src/*.rs", "src/deep/main.rs", false),
            ("src/**/*.rs", "src/main.rs", true),
            ("src/**/*.rs", "src/a/b/main.rs", true),
            ("**/test/**", "a/test/b", true),
            ("./src/*", "src/x", true),
            ("*.{ts,tsx}", "a.tsx", true),
            ("*.{ts,tsx}", "a.js", false),
            ("[a-c]?.txt", "b1.txt", true),
            ("[!a-c]*", "a1", false),
            ("[]x]", "]", true),
            ("[.^]", "^", true),
            ("a+b(c).txt", "a+b(c).txt", true),
            (r"\*.txt", "*.txt", true),
            (r"\*.txt", "a.txt", false),
            ("*", "with\nbreak", true),
            ("a,b}", "a,b}", true),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().matches(Path::new(path)), matches, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_broken_pattern_says_what_is_wrong() {
        for pattern in ["[abc", "{a,b", "a\\", "[", "[]", "[z-a]"] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
        assert!(Glob::new(&"a".repeat(PATTERN_MAX_BYTES)).is_ok());
        assert!(Glob::new(&"a".repeat(PATTERN_MAX_BYTES + 1)).is_err());
    }
}
