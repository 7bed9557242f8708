//! `Edit`: one piece of text for another.

use std::io::Read;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::replace::{Before, replace};
use super::text::{count, looks_binary, shown};
use super::workdir::{Workdir, check, failed, open_regular};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Replaces a piece of text in a file of the working directory. The old text has to \
    stand in the file exactly once, byte for byte, spaces and line breaks included; take more of what stands around \
    it to make it unique. With `all`, every occurrence is replaced.";

/// The largest file that is edited, in bytes.
const FILE_MAX_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The file, relative to the working directory.
    path: String,
    /// The text that stands there now.
    old_text: String,
    /// The text to put in its place; empty to take it out.
    new_text: String,
    /// Whether to replace every occurrence. Only one is expected when absent.
    #[serde(default)]
    all: bool,
}

pub fn edit(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let Arguments { path, old_text: old, new_text: new, all } = &arguments;
    let path = check(path)?;
    if old.is_empty() {
        return Err(refused("INVALID_ARGUMENTS", "the old text is empty; to make a file, use Write".into()));
    }
    if old == new {
        return Err(refused("INVALID_ARGUMENTS", "the old and the new text are the same".into()));
    }
    check_cancel(cancel)?;
    let (dir, name) = workdir.open_parent(path)?;
    // Refuses a link: renaming onto it would replace the link and leave the file it points to.
    Before::look(&dir, name, path)?;
    let (file, metadata) = open_regular(&dir, name.as_ref(), path)?;
    let before = Before::of(&metadata);
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed("read", path, &error))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(refused("TOO_LARGE", format!("{} is larger than {FILE_MAX_BYTES} bytes", shown(path))));
    }
    let binary = || refused("BINARY_FILE", format!("{} is a binary file", shown(path)));
    if looks_binary(&bytes) {
        return Err(binary());
    }
    let text = String::from_utf8(bytes).map_err(|_| binary())?;
    let first = find(&text, old, *all, path)?;
    let times = if *all { text.matches(old.as_str()).count() } else { 1 };
    let edited = if *all { text.replace(old.as_str(), new) } else { text.replacen(old.as_str(), new, 1) };
    if edited.len() as u64 > FILE_MAX_BYTES {
        let why = format!("{} would become larger than {FILE_MAX_BYTES} bytes", shown(path));
        return Err(refused("TOO_LARGE", why));
    }
    replace(&dir, name, path, edited.as_bytes(), &before, true, cancel)?;
    let line = 1 + text[..first].matches('\n').count();
    let places = count(times as u64, "place", "places");
    Ok(ToolOutput::text(format!("{} edited in {places}, the first in line {line}", shown(path))))
}

/// Where the old text stands, if it is clear which one is meant.
fn find(text: &str, old: &str, all: bool, path: &std::path::Path) -> Result<usize, ToolError> {
    let name = shown(path);
    let Some(first) = text.find(old) else {
        let hint = if text.contains("\r\n") && old.contains('\n') && !old.contains('\r') {
            "; its lines end in \\r\\n"
        } else {
            ""
        };
        return Err(refused("TEXT_NOT_FOUND", format!("the old text does not stand in {name}{hint}")));
    };
    // From the next character on, so that `aa` stands twice in `aaa`.
    let next = first + old.chars().next().map_or(1, char::len_utf8);
    if !all && text[next..].contains(old) {
        return Err(refused(
            "TEXT_NOT_UNIQUE",
            format!("the old text stands more than once in {name}: add what is around it, or set `all`"),
        ));
    }
    Ok(first)
}

fn refused(code: &str, why: String) -> ToolError {
    ToolError::new(code, why).not_executed()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::testing::{Place, text};
    use super::*;

    fn run(place: &Place, path: &str, old: &str, new: &str, all: bool) -> Result<String, ToolError> {
        let arguments = Arguments { path: path.into(), old_text: old.into(), new_text: new.into(), all };
        edit(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    #[test]
    fn what_stands_once_is_replaced() {
        let place = Place::new();
        place.write("a", "one\ntwo\nthree\n");
        assert_eq!(run(&place, "a", "two\n", "", false).unwrap(), "a edited in 1 place, the first in line 2");
        assert_eq!(place.content("a"), "one\nthree\n");
        assert_eq!(run(&place, "a", "e", "é", true).unwrap(), "a edited in 3 places, the first in line 1");
        assert_eq!(place.content("a"), "oné\nthréé\n");
    }

    #[test]
    fn what_is_not_clear_changes_nothing() {
        let place = Place::new();
        let content = "aaa\r\nb\r\n";
        place.write("a", content);
        fs::write(place.path("bin"), b"a\0b").unwrap();
        fs::write(place.path("latin1"), b"caf\xe9").unwrap();
        symlink("a", place.path("link")).unwrap();
        for (path, old, new, code) in [
            ("a", "x", "y", "TEXT_NOT_FOUND"),
            ("a", "aa", "y", "TEXT_NOT_UNIQUE"),
            ("a", "a", "y", "TEXT_NOT_UNIQUE"),
            ("a", "", "y", "INVALID_ARGUMENTS"),
            ("a", "b", "b", "INVALID_ARGUMENTS"),
            ("bin", "a", "y", "BINARY_FILE"),
            ("latin1", "c", "y", "BINARY_FILE"),
            ("link", "b", "y", "IS_A_SYMLINK"),
            ("missing", "b", "y", "NOT_FOUND"),
            ("../a", "b", "y", "OUTSIDE_WORKDIR"),
        ] {
            let error = run(&place, path, old, new, false).unwrap_err();
            assert_eq!(error.code, code, "{path} {old}: {error}");
            assert!(error.not_executed);
        }
        let error = run(&place, "a", "aaa\nb", "y", false).unwrap_err();
        assert!(error.message.ends_with("its lines end in \\r\\n"), "{error}");
        assert_eq!(place.content("a"), content);
    }

    #[test]
    fn a_file_that_changed_since_it_was_read_is_left_alone() {
        let place = Place::new();
        place.write("a", "old");
        let (dir, name) = place.workdir.open_parent("a".as_ref()).unwrap();
        let before = Before::look(&dir, name, "a".as_ref()).unwrap();
        place.write("a", "someone else's");
        let error =
            replace(&dir, name, "a".as_ref(), b"mine", &before, true, &CancellationToken::new()).unwrap_err();
        assert!(error.code == "CHANGED_MEANWHILE" && error.not_executed);
        assert_eq!(place.content("a"), "someone else's");
        assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1);
    }

    #[test]
    fn the_size_bound_is_met_exactly() {
        let place = Place::new();
        let most = "x".repeat(usize::try_from(FILE_MAX_BYTES).unwrap() - 1);
        place.write("fits", &format!("{most}y"));
        run(&place, "fits", "y", "z", false).unwrap();
        assert_eq!(run(&place, "fits", "z", "zz", false).unwrap_err().code, "TOO_LARGE");
        place.write("over", &format!("{most}yy"));
        assert_eq!(run(&place, "over", "yy", "z", false).unwrap_err().code, "TOO_LARGE");
    }
}
