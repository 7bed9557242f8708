//! `Delete`: files, by their names.

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::text::{count, shown};
use super::workdir::{Workdir, check, failed, not_a_file};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Deletes files of the working directory, each named: no patterns, no directories. A \
    symbolic link is deleted, not what it points to. All of them are looked at before any is deleted.";

/// The most files of one call: so many that a person can still read them.
const FILES_MAX: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The files, relative to the working directory.
    #[schemars(length(min = 1, max = 100))]
    paths: Vec<String>,
}

pub fn delete(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let paths = &arguments.paths;
    if paths.is_empty() || paths.len() > FILES_MAX {
        let why = format!("1 to {FILES_MAX} files are deleted at a time, not {}", paths.len());
        return Err(ToolError::new("INVALID_ARGUMENTS", why).not_executed());
    }
    check_cancel(cancel)?;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let path = check(path)?;
        let (dir, name) = workdir.open_parent(path)?;
        let metadata = dir.symlink_metadata(name).map_err(|error| failed("delete", path, &error))?;
        if metadata.is_dir() {
            return Err(not_a_file(path, &metadata));
        }
        files.push((dir, name, path));
    }
    let mut done = Vec::new();
    for (dir, name, path) in &files {
        // `unlink` takes no directory and follows no link, whatever stands there by now.
        if let Err(error) = check_cancel(cancel)
            .and_then(|()| dir.remove_file(name).map_err(|error| failed("delete", path, &error)))
        {
            return Err(stopped(&done, error));
        }
        done.push(shown(path));
    }
    let number = count(done.len() as u64, "file", "files");
    Ok(ToolOutput::text(format!("{number} deleted: {}", done.join(", "))))
}

/// An error in the middle: what is gone is gone, and is said.
fn stopped(done: &[String], error: ToolError) -> ToolError {
    if done.is_empty() {
        return error;
    }
    ToolError::new(error.code, format!("{}; deleted before that: {}", error.message, done.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::testing::{Place, text};
    use super::*;

    fn run(place: &Place, paths: &[&str]) -> Result<String, ToolError> {
        let arguments = Arguments { paths: paths.iter().map(|path| (*path).to_owned()).collect() };
        delete(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    #[test]
    fn files_are_deleted_and_a_link_goes_without_what_it_points_to() {
        let place = Place::new();
        place.write("a", "");
        place.write("b", "");
        fs::write(place.outside("secret"), "").unwrap();
        symlink("../secret", place.path("link")).unwrap();
        assert_eq!(run(&place, &["a", "./link"]).unwrap(), "2 files deleted: a, ./link");
        assert!(!place.path("a").exists() && place.path("b").exists() && place.outside("secret").exists());
    }

    #[test]
    fn one_that_cannot_be_deleted_keeps_them_all() {
        let place = Place::new();
        place.write("a", "");
        fs::create_dir(place.path("sub")).unwrap();
        symlink("..", place.path("up")).unwrap();
        fs::write(place.outside("secret"), "").unwrap();
        for (path, code) in [
            ("missing", "NOT_FOUND"),
            ("sub", "IS_A_DIRECTORY"),
            ("*", "NOT_FOUND"),
            ("../secret", "OUTSIDE_WORKDIR"),
            ("up/secret", "OUTSIDE_WORKDIR"),
            ("/etc/passwd", "ABSOLUTE_PATH"),
            (".", "IS_A_DIRECTORY"),
        ] {
            let error = run(&place, &["a", path]).unwrap_err();
            assert_eq!(error.code, code, "{path}");
            assert!(error.not_executed && place.path("a").exists());
        }
        assert!(place.outside("secret").exists());
    }

    #[test]
    fn an_error_in_the_middle_says_what_is_gone() {
        let place = Place::new();
        place.write("a", "");
        let error = run(&place, &["a", "a"]).unwrap_err();
        assert_eq!(error.code, "NOT_FOUND");
        assert!(error.message.ends_with("deleted before that: a") && !error.not_executed, "{error}");
    }

    #[test]
    fn the_bound_is_met_exactly() {
        let place = Place::new();
        let names: Vec<String> = (0..=FILES_MAX).map(|number| format!("f{number}")).collect();
        names.iter().for_each(|name| place.write(name, ""));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(run(&place, &names).unwrap_err().code, "INVALID_ARGUMENTS");
        assert_eq!(run(&place, &[]).unwrap_err().code, "INVALID_ARGUMENTS");
        assert!(run(&place, &names[1..]).unwrap().starts_with("100 files deleted: "));
    }
}
