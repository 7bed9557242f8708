//! `List`: what is in a directory.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::text::{count, shown};
use super::walk::{DEPTH_MAX, Found, Missed, walk};
use super::workdir::{Workdir, check, failed};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Lists a directory of the working directory, one entry a line: directories end in \
    `/`, files say their size, symbolic links where they point. The result says in square brackets when something \
    was left out.";

/// The most entries a call returns.
const ENTRIES_MAX: usize = 1_000;
/// The deepest a call goes.
const DEPTH_LIMIT: usize = 16;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The directory, relative to the working directory; that itself when absent.
    path: Option<String>,
    /// How many levels deep: 1 (the default) is the directory's own entries, at most 16.
    #[schemars(range(min = 1, max = 16))]
    depth: Option<usize>,
}

pub fn list(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let path = check(arguments.path.as_deref().unwrap_or("."))?;
    let dir = workdir.dir().open_dir(path).map_err(|error| failed("list", path, &error))?;
    let depth = arguments.depth.unwrap_or(1).clamp(1, DEPTH_LIMIT.min(DEPTH_MAX));
    let mut missed = Missed::default();
    let mut lines = Vec::new();
    let mut full = false;
    walk(&dir, path, depth, cancel, &mut missed, &mut |found, _| {
        if lines.len() == ENTRIES_MAX {
            full = true;
            return ControlFlow::Break(());
        }
        lines.push(line(&found));
        ControlFlow::Continue(())
    })?;
    let mut notes = missed.sentences();
    if full {
        notes.push(format!(
            "the list stops after {ENTRIES_MAX} entries; there are more, list a directory below"
        ));
    } else if depth > 1 && missed.deeper > 0 {
        let directories = count(missed.deeper, "directory", "directories");
        notes.push(format!("{directories} at depth {depth} not opened"));
    }
    if lines.is_empty() && notes.is_empty() {
        notes.push(format!("{} is empty", shown(path)));
    }
    lines.extend(notes.into_iter().map(|note| format!("[{note}]")));
    Ok(ToolOutput::text(lines.join("\n")))
}

fn line(found: &Found<'_>) -> String {
    let mut line = shown(found.path);
    if found.path.to_str().is_none() {
        line.push_str(" (the name is not UTF-8: no tool but Bash can take it)");
    }
    if found.kind.is_dir() {
        line.push('/');
    } else if found.kind.is_symlink() {
        let target = found.dir.read_link_contents(found.entry.file_name());
        line.push_str(&format!(" -> {}", target.map_or_else(|_| "?".into(), |target| shown(&target))));
    } else if found.kind.is_file() {
        let size = found.entry.metadata().map(|metadata| metadata.len());
        line.push_str(
            &size.map_or_else(|_| String::new(), |size| format!(" ({})", count(size, "byte", "bytes"))),
        );
    } else {
        line.push_str(" (a FIFO, a socket or a device)");
    }
    line
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::super::testing::{Place, text};
    use super::*;

    fn run(place: &Place, path: Option<&str>, depth: Option<usize>) -> Result<String, ToolError> {
        let arguments = Arguments { path: path.map(Into::into), depth };
        list(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    #[test]
    fn entries_say_what_they_are_in_the_order_of_their_names() {
        let place = Place::new();
        place.write("b.txt", "12345");
        place.write("a", "1");
        fs::create_dir_all(place.path("sub/deep/er")).unwrap();
        place.write("sub/c", "");
        symlink("../secret", place.path("link")).unwrap();
        assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
        let top = "a (1 byte)\nb.txt (5 bytes)\nfifo (a FIFO, a socket or a device)\nlink -> ../secret\nsub/";
        assert_eq!(run(&place, None, None).unwrap(), top);
        let two = format!("{top}\nsub/c (0 bytes)\nsub/deep/\n[1 directory at depth 2 not opened]");
        assert_eq!(run(&place, Some("."), Some(2)).unwrap(), two);
        assert_eq!(run(&place, Some("sub/deep/er"), None).unwrap(), "[sub/deep/er is empty]");
        assert_eq!(run(&place, Some("./sub/"), None).unwrap(), "./sub/c (0 bytes)\n./sub/deep/");
    }

    #[test]
    fn hard_names_cannot_forge_a_line() {
        let place = Place::new();
        fs::write(place.path("a\nb (9 bytes)"), "").unwrap();
        fs::write(place.path("x\u{202e}y"), "").unwrap();
        fs::write(place.path("-rf"), "").unwrap();
        let bytes = OsStr::from_bytes(b"caf\xe9");
        fs::write(place.path("").join(bytes), "").unwrap();
        let expected = [
            "-rf (0 bytes)",
            r#""a\nb (9 bytes)" (0 bytes)"#,
            r#""caf\xE9" (the name is not UTF-8: no tool but Bash can take it) (0 bytes)"#,
            r#""x\u{202e}y" (0 bytes)"#,
        ];
        assert_eq!(run(&place, None, None).unwrap(), expected.join("\n"));
    }

    #[test]
    fn a_long_list_stops_at_its_bound_and_says_so() {
        let place = Place::new();
        for number in 0..ENTRIES_MAX {
            place.write(&format!("{number:04}"), "");
        }
        let all = run(&place, None, None).unwrap();
        assert!(!all.contains('[') && all.lines().count() == ENTRIES_MAX);
        place.write("one more", "");
        let most = run(&place, None, None).unwrap();
        assert_eq!(most.lines().count(), ENTRIES_MAX + 1);
        assert!(
            most.ends_with("[the list stops after 1000 entries; there are more, list a directory below]")
        );
    }

    #[test]
    fn nothing_outside_is_listed() {
        let place = Place::new();
        fs::write(place.outside("secret"), "").unwrap();
        symlink("..", place.path("up")).unwrap();
        symlink("/", place.path("root")).unwrap();
        for path in ["..", "up", "root", "up/..", "./../."] {
            assert_eq!(run(&place, Some(path), Some(9)).unwrap_err().code, "OUTSIDE_WORKDIR", "{path}");
        }
        assert_eq!(run(&place, Some("/"), None).unwrap_err().code, "ABSOLUTE_PATH");
        // A walk shows links and does not go through them.
        assert_eq!(run(&place, None, Some(9)).unwrap(), "root -> /\nup -> ..");
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_walked_to_its_bound() {
        let place = Place::new();
        let mut dir = cap_std::fs::Dir::reopen_dir(place.workdir.dir()).unwrap();
        for _ in 0..100 {
            let name = "d".repeat(200);
            dir.create_dir(&name).unwrap();
            dir = dir.open_dir(&name).unwrap();
        }
        let shown = run(&place, None, Some(usize::MAX)).unwrap();
        assert_eq!(shown.lines().count(), DEPTH_LIMIT + 1);
        assert!(shown.ends_with("[1 directory at depth 16 not opened]"));
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_named() {
        let place = Place::new();
        fs::create_dir(place.path("locked")).unwrap();
        fs::set_permissions(place.path("locked"), fs::Permissions::from_mode(0o0)).unwrap();
        let shown = run(&place, None, Some(3)).unwrap();
        fs::set_permissions(place.path("locked"), fs::Permissions::from_mode(0o755)).unwrap();
        // The superuser reads it all the same; then there is nothing to name.
        if rustix::process::geteuid().is_root() {
            assert_eq!(shown, "locked/");
        } else {
            assert!(shown.starts_with("locked/\n[locked: Permission denied"), "{shown}");
        }
    }
}
