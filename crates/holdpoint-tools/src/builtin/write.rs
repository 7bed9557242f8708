//! `Write`: a whole file, made or replaced.

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::replace::{Before, replace};
use super::text::{count, shown};
use super::workdir::{Workdir, check};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Writes a file of the working directory, replacing all of its content, and makes it \
    and the directories above it where they are missing. To change a part of a file, use Edit.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The file, relative to the working directory.
    path: String,
    /// The whole content of the file.
    content: String,
}

pub fn write(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let path = check(&arguments.path)?;
    check_cancel(cancel)?;
    let (dir, name, made) = workdir.make_parent(path)?;
    let before = Before::look(&dir, name, path)?;
    let content = arguments.content.as_bytes();
    replace(&dir, name, path, content, &before, false, cancel)?;
    let bytes = count(content.len() as u64, "byte", "bytes");
    let did = if before.existed() { "replaced" } else { "made" };
    let where_to = if made { " in a new directory" } else { "" };
    Ok(ToolOutput::text(format!("{} {did}{where_to} ({bytes})", shown(path))))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::fs::RenameFlags;

    use super::super::testing::{Place, text};
    use super::*;

    fn run(place: &Place, path: &str, content: &str) -> Result<String, ToolError> {
        let arguments = Arguments { path: path.into(), content: content.into() };
        write(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    #[test]
    fn a_file_is_made_or_replaced_and_the_result_says_which() {
        let place = Place::new();
        assert_eq!(run(&place, "a.txt", "é").unwrap(), "a.txt made (2 bytes)");
        assert_eq!(run(&place, "a.txt", "").unwrap(), "a.txt replaced (0 bytes)");
        assert_eq!(run(&place, "new/deep/b", "x").unwrap(), "new/deep/b made in a new directory (1 byte)");
        assert_eq!(place.content("new/deep/b"), "x");
        let left: Vec<_> =
            fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "a temporary file was left: {left:?}");
    }

    #[test]
    fn the_mode_stays_and_set_user_id_goes() {
        let place = Place::new();
        for (old, new) in [(0o755, 0o755), (0o600, 0o600), (0o4777, 0o777), (0o444, 0o444)] {
            place.write("script", "old");
            fs::set_permissions(place.path("script"), fs::Permissions::from_mode(old)).unwrap();
            run(&place, "script", "new").unwrap();
            assert_eq!(fs::metadata(place.path("script")).unwrap().mode() & 0o7777, new, "{old:o}");
            fs::remove_file(place.path("script")).unwrap();
        }
    }

    #[test]
    fn a_hard_link_to_a_file_outside_is_replaced_and_not_written_through() {
        let place = Place::new();
        fs::write(place.outside("secret"), "secret").unwrap();
        fs::hard_link(place.outside("secret"), place.path("link")).unwrap();
        run(&place, "link", "changed").unwrap();
        assert_eq!(fs::read_to_string(place.outside("secret")).unwrap(), "secret");
        assert_eq!(place.content("link"), "changed");
    }

    #[test]
    fn nothing_outside_is_written() {
        let place = Place::new();
        fs::write(place.outside("secret"), "secret").unwrap();
        fs::create_dir(place.path("sub")).unwrap();
        symlink("../secret", place.path("link")).unwrap();
        symlink("../new", place.path("dangling")).unwrap();
        symlink("..", place.path("up")).unwrap();
        symlink(place.outside(""), place.path("absolute")).unwrap();
        assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
        for (path, code) in [
            ("../secret", "OUTSIDE_WORKDIR"),
            ("up/secret", "OUTSIDE_WORKDIR"),
            ("up/new/deep", "OUTSIDE_WORKDIR"),
            ("absolute/secret", "OUTSIDE_WORKDIR"),
            ("sub/../../secret", "OUTSIDE_WORKDIR"),
            ("../new/deep/file", "OUTSIDE_WORKDIR"),
            ("link", "IS_A_SYMLINK"),
            ("dangling", "IS_A_SYMLINK"),
            ("/tmp/holdpoint-test", "ABSOLUTE_PATH"),
            ("sub", "IS_A_DIRECTORY"),
            ("sub/", "IS_A_DIRECTORY"),
            ("fifo", "NOT_A_FILE"),
            ("fifo/x", "NOT_A_DIRECTORY"),
            (&"n".repeat(300), "IO_ERROR"),
        ] {
            let error = run(&place, path, "gotcha").unwrap_err();
            assert_eq!(error.code, code, "{path}: {error}");
            assert!(error.not_executed, "{path}");
        }
        assert_eq!(fs::read_to_string(place.outside("secret")).unwrap(), "secret");
        let outside: Vec<_> =
            fs::read_dir(place.outside("")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(outside.len(), 2, "{outside:?}");
    }

    #[test]
    fn hard_names_are_only_names() {
        let place = Place::new();
        for name in ["-rf", "a\nb", "$(id)", "a b'c\"", "..hidden", "nul\u{202e}", "*"] {
            run(&place, name, "x").unwrap();
            assert_eq!(place.content(name), "x");
        }
    }

    /// A directory that is exchanged for a link to the outside, over and over, while files are written through it.
    #[test]
    fn a_directory_swapped_for_a_link_during_the_call_never_lets_a_write_out() {
        let place = Place::new();
        let outside = place.outside("outside");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(place.path("door")).unwrap();
        symlink("../outside", place.path("other")).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let work = fs::File::open(place.path("")).unwrap();
                while !done.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(&work, "door", &work, "other", RenameFlags::EXCHANGE).unwrap();
                    thread::yield_now();
                }
            });
            let (mut written, mut refused) = (0, 0);
            for round in 0.. {
                match run(&place, "door/file", "x") {
                    Ok(_) => written += 1,
                    Err(error) => {
                        assert_eq!(error.code, "OUTSIDE_WORKDIR", "{error}");
                        refused += 1;
                    }
                }
                // Until both have been seen often enough for the race to have been run.
                if (written >= 200 && refused >= 200) || round == 50_000 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(written > 0 && refused > 0, "there was no race: {written} written, {refused} refused");
        });
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "a file came out");
    }

    #[test]
    fn a_cancelled_write_changes_nothing() {
        let place = Place::new();
        place.write("a", "old");
        let cancel = CancellationToken::new();
        cancel.cancel();
        let arguments = Arguments { path: "a".into(), content: "new".into() };
        let error = write(&place.workdir, arguments, &cancel).unwrap_err();
        assert!(error.code == "CANCELLED" && error.not_executed);
        assert_eq!(place.content("a"), "old");
    }
}
