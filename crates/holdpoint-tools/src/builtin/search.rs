//! `Search`: lines that match a regular expression.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::glob::Glob;
use super::text::{count, looks_binary, shown};
use super::walk::{DEPTH_MAX, Missed, walk};
use super::workdir::{Workdir, check, failed, not_a_file, open_regular};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Searches the files of the working directory, line by line, for a regular expression \
    (without look-around and back-references). Each result is `path:line: text`. Binary files are skipped. The \
    result says in square brackets when something was left out.";

/// How many matching lines are returned when nobody says, and at most.
const DEFAULT_MATCHES: usize = 200;
const MATCHES_MAX: usize = 1_000;
/// A matching line is cut at this many bytes.
const LINE_MAX_BYTES: usize = 400;
/// A longer line is searched in pieces of this size, so that memory stays bounded.
const PIECE_MAX_BYTES: u64 = 1024 * 1024;
/// A larger file is searched up to here, in bytes.
const FILE_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// All files of a call together, in bytes.
const TOTAL_MAX_BYTES: u64 = 512 * 1024 * 1024;
/// The most files a call opens.
const FILES_MAX: u64 = 50_000;
/// The longest expression, in bytes, and the most memory it takes when compiled.
const PATTERN_MAX_BYTES: usize = 4 * 1024;
const COMPILED_MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The regular expression.
    pattern: String,
    /// The directory or file to search, relative to the working directory; all of it when absent.
    path: Option<String>,
    /// Only files whose name (`*.rs`) or whole path (`src/**/*.rs`) matches.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// How many matching lines to return; 200 when absent, at most 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

pub fn search(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let path = check(arguments.path.as_deref().unwrap_or("."))?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose().map_err(|why| bad("glob", &why))?;
    let mut search = Search {
        regex: compile(&arguments.pattern, arguments.ignore_case)?,
        limit: arguments.limit.unwrap_or(DEFAULT_MATCHES).clamp(1, MATCHES_MAX),
        cancel,
        lines: Vec::new(),
        files: 0,
        bytes: 0,
        binary: 0,
        stopped: None,
    };
    let mut missed = Missed::default();
    let metadata = workdir.dir().metadata(path).map_err(|error| failed("search", path, &error))?;
    if metadata.is_dir() {
        let dir = workdir.dir().open_dir(path).map_err(|error| failed("search", path, &error))?;
        walk(&dir, path, DEPTH_MAX, cancel, &mut missed, &mut |found, missed| {
            if !found.kind.is_file() || glob.as_ref().is_some_and(|glob| !glob.matches(found.path)) {
                return ControlFlow::Continue(());
            }
            let name = found.entry.file_name();
            match open_regular(found.dir, Path::new(&name), found.path) {
                Ok((file, _)) => search.file(found.path, file, missed),
                Err(error) => {
                    missed.note(found.path, &error.message);
                    ControlFlow::Continue(())
                }
            }
        })?;
    } else if metadata.is_file() {
        let (file, _) = workdir.open_file(path)?;
        // Whether it broke off is told by `stopped`.
        let _ = search.file(path, file, &mut missed);
    } else {
        return Err(not_a_file(path, &metadata));
    }
    check_cancel(cancel)?;
    Ok(ToolOutput::text(search.report(&missed)))
}

fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, ToolError> {
    if pattern.len() > PATTERN_MAX_BYTES {
        return Err(bad("pattern", &format!("it is longer than {PATTERN_MAX_BYTES} bytes")));
    }
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(COMPILED_MAX_BYTES)
        .dfa_size_limit(COMPILED_MAX_BYTES)
        .build()
        .map_err(|error| bad("pattern", &error.to_string()))
}

fn bad(what: &str, why: &str) -> ToolError {
    ToolError::new("INVALID_ARGUMENTS", format!("the {what} is not valid: {why}")).not_executed()
}

struct Search<'a> {
    regex: Regex,
    limit: usize,
    cancel: &'a CancellationToken,
    lines: Vec<String>,
    files: u64,
    bytes: u64,
    binary: u64,
    stopped: Option<String>,
}

impl Search<'_> {
    fn file(&mut self, path: &Path, file: impl Read, missed: &mut Missed) -> ControlFlow<()> {
        if self.files == FILES_MAX {
            return self.stop(format!("the search stops after {FILES_MAX} files"));
        }
        self.files += 1;
        let mut reader = BufReader::with_capacity(64 * 1024, file.take(FILE_MAX_BYTES + 1));
        match reader.fill_buf() {
            Ok(start) if looks_binary(start) => {
                self.binary += 1;
                return ControlFlow::Continue(());
            }
            Ok(_) => {}
            Err(error) => {
                missed.note(path, &error.to_string());
                return ControlFlow::Continue(());
            }
        }
        let mut number = 0_u64;
        let mut read = 0_u64;
        let mut line = Vec::new();
        let mut begins = true;
        loop {
            line.clear();
            let length = match (&mut reader).take(PIECE_MAX_BYTES).read_until(b'\n', &mut line) {
                Ok(0) => return ControlFlow::Continue(()),
                Ok(length) => length as u64,
                Err(error) => {
                    missed.note(path, &error.to_string());
                    return ControlFlow::Continue(());
                }
            };
            read += length;
            self.bytes += length;
            number += u64::from(begins);
            begins = line.ends_with(b"\n");
            self.line(path, number, &line)?;
            if self.bytes > TOTAL_MAX_BYTES {
                return self.stop(format!("the search stops after {TOTAL_MAX_BYTES} bytes"));
            }
            if read > FILE_MAX_BYTES {
                missed.note(path, &format!("only its first {FILE_MAX_BYTES} bytes were searched"));
                return ControlFlow::Continue(());
            }
        }
    }

    fn line(&mut self, path: &Path, number: u64, line: &[u8]) -> ControlFlow<()> {
        if self.cancel.is_cancelled() {
            return ControlFlow::Break(());
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(found) = self.regex.find(line) else { return ControlFlow::Continue(()) };
        if self.lines.len() == self.limit {
            return self.stop(format!("the search stops after {}; there are more", matches(self.limit)));
        }
        self.lines.push(format!("{}:{number}: {}", shown(path), excerpt(line, found.start())));
        ControlFlow::Continue(())
    }

    fn stop(&mut self, why: String) -> ControlFlow<()> {
        self.stopped = Some(why);
        ControlFlow::Break(())
    }

    fn report(self, missed: &Missed) -> String {
        let mut lines = self.lines;
        let mut notes: Vec<_> = self.stopped.into_iter().collect();
        if self.binary > 0 {
            notes.push(format!("{} skipped", count(self.binary, "binary file", "binary files")));
        }
        if missed.deeper > 0 {
            let directories = count(missed.deeper, "directory", "directories");
            notes.push(format!("{directories} deeper than {DEPTH_MAX} levels not opened"));
        }
        notes.extend(missed.sentences());
        if lines.is_empty() {
            notes.insert(0, format!("no match in {}", count(self.files, "file", "files")));
        }
        lines.extend(notes.into_iter().map(|note| format!("[{note}]")));
        lines.join("\n")
    }
}

fn matches(number: usize) -> String {
    count(number as u64, "matching line", "matching lines")
}

/// The part of a long line around the match, on one line whatever is in it.
fn excerpt(line: &[u8], start: usize) -> String {
    let from = if line.len() <= LINE_MAX_BYTES { 0 } else { start.saturating_sub(LINE_MAX_BYTES / 4) };
    let to = line.len().min(from + LINE_MAX_BYTES);
    let text = String::from_utf8_lossy(&line[from..to]);
    let text: String =
        text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    let before = if from > 0 { "[…]" } else { "" };
    let after = if to < line.len() { "[…]" } else { "" };
    format!("{before}{text}{after}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::super::testing::{Place, text};
    use super::*;

    fn arguments(pattern: &str) -> Arguments {
        Arguments { pattern: pattern.into(), path: None, glob: None, ignore_case: false, limit: None }
    }

    fn run(place: &Place, arguments: Arguments) -> Result<String, ToolError> {
        search(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    fn some_files() -> Place {
        let place = Place::new();
        fs::create_dir_all(place.path("src/deep")).unwrap();
        place.write("src/a.rs", "fn one() {}\r\n// TODO: two\n");
        place.write("src/deep/b.txt", "nothing\ntodo here");
        fs::write(place.path("bin"), b"TODO\0").unwrap();
        place
    }

    #[test]
    fn matches_are_named_by_path_and_line_and_what_was_skipped_is_said() {
        let place = some_files();
        assert_eq!(
            run(&place, arguments("TODO")).unwrap(),
            "src/a.rs:2: // TODO: two\n[1 binary file skipped]"
        );
        let both = run(&place, Arguments { ignore_case: true, ..arguments("^.*todo") }).unwrap();
        assert!(both.contains("src/deep/b.txt:2: todo here\n"), "{both}");
        let rust = Arguments { glob: Some("src/**/*.rs".into()), ..arguments(r"\}$") };
        assert_eq!(run(&place, rust).unwrap(), "src/a.rs:1: fn one() {}");
        let one = Arguments { path: Some("src/deep/b.txt".into()), ..arguments("o") };
        assert_eq!(run(&place, one).unwrap(), "src/deep/b.txt:1: nothing\nsrc/deep/b.txt:2: todo here");
        assert_eq!(
            run(&place, arguments("absent")).unwrap(),
            "[no match in 3 files]\n[1 binary file skipped]"
        );
    }

    #[test]
    fn the_bound_of_matches_is_met_exactly() {
        let place = Place::new();
        place.write("a", &"x\n".repeat(3));
        let three = run(&place, Arguments { limit: Some(3), ..arguments("x") }).unwrap();
        assert_eq!(three, "a:1: x\na:2: x\na:3: x");
        let two = run(&place, Arguments { limit: Some(2), ..arguments("x") }).unwrap();
        assert_eq!(two, "a:1: x\na:2: x\n[the search stops after 2 matching lines; there are more]");
    }

    #[test]
    fn a_pattern_made_to_explode_takes_linear_time_or_is_refused() {
        let place = Place::new();
        place.write("a", &format!("{}b", "a".repeat(100_000)));
        for pattern in ["(a+)+$", "(a|a)*c", "(a*)*c", "^(([a-z])+.)+[A-Z]([a-z])+$"] {
            let started = std::time::Instant::now();
            run(&place, arguments(pattern)).unwrap();
            assert!(started.elapsed().as_secs() < 20, "{pattern}");
        }
        for pattern in ["(", r"(a)\1", "(?=a)", "((a{1000}){1000}){1000}", &"a".repeat(PATTERN_MAX_BYTES + 1)]
        {
            assert_eq!(run(&place, arguments(pattern)).unwrap_err().code, "INVALID_ARGUMENTS");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_its_match_and_control_characters_are_not_passed_on() {
        let place = Place::new();
        place.write("a", &format!("{}needle\u{1b}[2J{}\n", "x".repeat(5_000), "y".repeat(5_000)));
        let found = run(&place, arguments("needle")).unwrap();
        assert!(
            found.starts_with("a:1: […]xxx")
                && found.contains("needle\u{fffd}[2Jyyy")
                && found.ends_with("y[…]")
        );
        assert!(found.len() < 500, "{}", found.len());
    }

    #[test]
    fn nothing_outside_is_searched_and_nothing_blocks() {
        let place = Place::new();
        fs::write(place.outside("secret"), "needle").unwrap();
        symlink("../secret", place.path("link")).unwrap();
        symlink("..", place.path("up")).unwrap();
        assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
        assert_eq!(run(&place, arguments("needle")).unwrap(), "[no match in 0 files]");
        for path in ["..", "up", "link", "../secret"] {
            let arguments = Arguments { path: Some(path.into()), ..arguments("needle") };
            assert_eq!(run(&place, arguments).unwrap_err().code, "OUTSIDE_WORKDIR", "{path}");
        }
        let fifo = Arguments { path: Some("fifo".into()), ..arguments("needle") };
        assert_eq!(run(&place, fifo).unwrap_err().code, "NOT_A_FILE");
    }

    #[test]
    fn a_huge_file_is_searched_up_to_its_bound() {
        let place = Place::new();
        place.write("huge", &"line\n".repeat(4_000));
        fs::OpenOptions::new().write(true).open(place.path("huge")).unwrap().set_len(1 << 40).unwrap();
        let found = run(&place, arguments("absent")).unwrap();
        assert_eq!(found, "[no match in 1 file]\n[huge: only its first 67108864 bytes were searched]");
    }
}
