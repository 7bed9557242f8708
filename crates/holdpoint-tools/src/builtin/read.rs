//! `Read`: a text file, or a range of its lines.

use std::io::{BufRead, BufReader};

use cap_std::fs::File;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::text::{count, looks_binary, shown, whole_characters};
use super::workdir::{Workdir, check, failed};
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Reads a text file of the working directory. A long file is read in ranges of lines: \
    the result says in its last line, in square brackets, when something was left out and how to go on.";

/// How many lines are read when nobody says.
const DEFAULT_LINES: usize = 2_000;
/// The most a call returns, in bytes of text.
const RESULT_MAX_BYTES: usize = 256 * 1024;
/// How far into a file a call looks for its first line, in bytes.
const SCAN_MAX_BYTES: u64 = 256 * 1024 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The file, relative to the working directory.
    path: String,
    /// The first line to read, counted from 1. The beginning when absent.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// How many lines to read; 2000 when absent.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

pub fn read(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let path = check(&arguments.path)?;
    let (file, metadata) = workdir.open_file(path)?;
    let name = shown(path);
    let size = metadata.len();
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = reader.fill_buf().map_err(|error| failed("read", path, &error))?;
    if start.is_empty() {
        return Ok(ToolOutput::text(format!("[{name} is empty]")));
    }
    let binary =
        || ToolOutput::text(format!("[{name} is a binary file of {size} bytes; its content is not shown]"));
    if looks_binary(start) {
        return Ok(binary());
    }
    let offset = arguments.offset.unwrap_or(1).max(1);
    let mut window = Window { reader, position: 0, cancel };
    let skipped = window.skip_lines(offset - 1).map_err(|stop| stop.into_error(path))?;
    if skipped < offset - 1 || window.at_end().map_err(|stop| stop.into_error(path))? {
        let lines = count(skipped, "line", "lines");
        return Ok(ToolOutput::text(format!("[{name} has {lines}: line {offset} is past its end]")));
    }
    let limit = arguments.limit.unwrap_or(DEFAULT_LINES).max(1);
    let taken = window.take_lines(limit).map_err(|stop| stop.into_error(path))?;
    let Some(text) = whole_characters(&taken.bytes) else { return Ok(binary()) };
    let mut text = text.to_owned();
    if let Some(note) = note(offset, &taken, size, window.position) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
    }
    Ok(ToolOutput::text(text))
}

/// What was left out, if anything was.
fn note(offset: u64, taken: &Taken, size: u64, position: u64) -> Option<String> {
    let next = offset + taken.lines;
    if taken.cut {
        return Some(format!(
            "[line {next} is cut at {RESULT_MAX_BYTES} bytes; about {} bytes of the file follow; offset {} skips it]",
            size.saturating_sub(position),
            next + 1,
        ));
    }
    match (offset > 1, taken.more) {
        (false, false) => None,
        (true, false) => Some(format!("[from line {offset} to the end, line {}]", next - 1)),
        (_, true) => Some(format!(
            "[lines {offset} to {} of a file of {size} bytes; {} bytes follow; go on with offset {next}]",
            next - 1,
            size.saturating_sub(position),
        )),
    }
}

/// Lines of a file, never more of them in memory than are returned.
struct Window<'a> {
    reader: BufReader<File>,
    position: u64,
    cancel: &'a CancellationToken,
}

struct Taken {
    bytes: Vec<u8>,
    /// The lines that are whole.
    lines: u64,
    /// Whether the file goes on.
    more: bool,
    /// Whether a single line was too long, and only its beginning is here.
    cut: bool,
}

enum Stop {
    Io(std::io::Error),
    Refused(ToolError),
}

impl Stop {
    fn into_error(self, path: &std::path::Path) -> ToolError {
        match self {
            Self::Io(error) => failed("read", path, &error),
            Self::Refused(error) => error,
        }
    }
}

impl Window<'_> {
    /// Skips lines, and says how many there were.
    fn skip_lines(&mut self, lines: u64) -> Result<u64, Stop> {
        let mut skipped = 0;
        let mut open_line = false;
        while skipped < lines {
            check_cancel(self.cancel).map_err(Stop::Refused)?;
            if self.position > SCAN_MAX_BYTES {
                let why = format!("that line lies more than {SCAN_MAX_BYTES} bytes into the file");
                return Err(Stop::Refused(ToolError::new("TOO_LARGE", why).not_executed()));
            }
            let buffer = self.reader.fill_buf().map_err(Stop::Io)?;
            if buffer.is_empty() {
                return Ok(skipped + u64::from(open_line));
            }
            let end = memchr::memchr(b'\n', buffer);
            skipped += u64::from(end.is_some());
            open_line = end.is_none();
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(used);
            self.position += used as u64;
        }
        Ok(skipped)
    }

    fn at_end(&mut self) -> Result<bool, Stop> {
        Ok(self.reader.fill_buf().map_err(Stop::Io)?.is_empty())
    }

    fn take_lines(&mut self, limit: usize) -> Result<Taken, Stop> {
        let mut taken = Taken { bytes: Vec::new(), lines: 0, more: false, cut: false };
        let mut whole = 0;
        while taken.lines < limit as u64 {
            let buffer = self.reader.fill_buf().map_err(Stop::Io)?;
            if buffer.is_empty() {
                // The last line may end with the file instead of with a line break.
                taken.lines += u64::from(taken.bytes.len() > whole);
                return Ok(taken);
            }
            let end = memchr::memchr(b'\n', buffer);
            let piece = end.map_or(buffer.len(), |end| end + 1);
            if taken.bytes.len() + piece > RESULT_MAX_BYTES {
                taken.more = true;
                taken.cut = whole == 0;
                if taken.cut {
                    let room = RESULT_MAX_BYTES - taken.bytes.len();
                    taken.bytes.extend_from_slice(&buffer[..room]);
                    self.position += room as u64;
                } else {
                    self.position -= (taken.bytes.len() - whole) as u64;
                    taken.bytes.truncate(whole);
                }
                return Ok(taken);
            }
            taken.bytes.extend_from_slice(&buffer[..piece]);
            self.reader.consume(piece);
            self.position += piece as u64;
            if end.is_some() {
                taken.lines += 1;
                whole = taken.bytes.len();
            }
        }
        taken.more = !self.at_end()?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::super::testing::{Place, text};
    use super::*;

    fn run(
        place: &Place,
        path: &str,
        offset: Option<u64>,
        limit: Option<usize>,
    ) -> Result<String, ToolError> {
        let arguments = Arguments { path: path.into(), offset, limit };
        read(&place.workdir, arguments, &CancellationToken::new()).map(text)
    }

    #[test]
    fn a_file_is_read_as_it_is_and_a_range_says_what_is_left_out() {
        let place = Place::new();
        place.write("a.txt", "one\r\ntwo\n\nfour");
        for (offset, limit, expected) in [
            (None, None, "one\r\ntwo\n\nfour"),
            (
                Some(1),
                Some(2),
                "one\r\ntwo\n[lines 1 to 2 of a file of 14 bytes; 5 bytes follow; go on with offset 3]",
            ),
            (
                Some(2),
                Some(2),
                "two\n\n[lines 2 to 3 of a file of 14 bytes; 4 bytes follow; go on with offset 4]",
            ),
            (Some(4), None, "four\n[from line 4 to the end, line 4]"),
            (Some(5), None, "[a.txt has 4 lines: line 5 is past its end]"),
            (
                Some(u64::MAX),
                Some(usize::MAX),
                "[a.txt has 4 lines: line 18446744073709551615 is past its end]",
            ),
        ] {
            assert_eq!(run(&place, "a.txt", offset, limit).unwrap(), expected);
        }
        place.write("empty", "");
        assert_eq!(run(&place, "empty", None, None).unwrap(), "[empty is empty]");
        place.write("line", "x\n");
        assert_eq!(run(&place, "line", Some(2), None).unwrap(), "[line has 1 line: line 2 is past its end]");
    }

    #[test]
    fn a_result_never_exceeds_its_bound_and_says_so() {
        let place = Place::new();
        // Lines of 64 bytes: exactly 4096 of them fill the bound.
        let line = format!("{}\n", "x".repeat(63));
        place.write("fits", &line.repeat(4096));
        let all = run(&place, "fits", None, Some(usize::MAX)).unwrap();
        assert_eq!(all.len(), RESULT_MAX_BYTES);
        place.write("over", &line.repeat(4097));
        let some = run(&place, "over", None, Some(usize::MAX)).unwrap();
        assert!(some.ends_with(
            "[lines 1 to 4096 of a file of 262208 bytes; 64 bytes follow; go on with offset 4097]"
        ));
        let rest = run(&place, "over", Some(4097), None).unwrap();
        assert_eq!(rest, format!("{line}[from line 4097 to the end, line 4097]"));
    }

    #[test]
    fn a_single_long_line_is_cut_at_a_character_and_named() {
        let place = Place::new();
        place.write("long", &format!("x{}\nnext\n", "é".repeat(200_000)));
        let cut = run(&place, "long", None, None).unwrap();
        let (line, note) = cut.split_once('\n').unwrap();
        assert!(line.len() == RESULT_MAX_BYTES - 1 && line.ends_with('é'), "{}", line.len());
        assert!(
            note.starts_with("[line 1 is cut at 262144 bytes;") && note.ends_with("offset 2 skips it]"),
            "{note}"
        );
        assert_eq!(run(&place, "long", Some(2), None).unwrap(), "next\n[from line 2 to the end, line 2]");
    }

    #[test]
    fn a_huge_file_is_read_at_its_beginning_without_being_loaded() {
        let place = Place::new();
        place.write("huge", &"line\n".repeat(4_000));
        fs::OpenOptions::new().write(true).open(place.path("huge")).unwrap().set_len(1 << 40).unwrap();
        let start = run(&place, "huge", None, Some(1)).unwrap();
        assert!(start.starts_with("line\n[lines 1 to 1 of a file of 1099511627776 bytes"), "{start}");
        assert_eq!(run(&place, "huge", Some(1 << 30), None).unwrap_err().code, "TOO_LARGE");
    }

    #[test]
    fn binary_files_are_named_as_such() {
        let place = Place::new();
        fs::write(place.path("nul"), b"\x7fELF\0\0").unwrap();
        assert_eq!(
            run(&place, "nul", None, None).unwrap(),
            "[nul is a binary file of 6 bytes; its content is not shown]"
        );
        fs::write(place.path("latin1"), b"caf\xe9 au lait\n").unwrap();
        assert!(run(&place, "latin1", None, None).unwrap().contains("binary file of 13 bytes"));
    }

    #[test]
    fn no_path_leads_out() {
        let place = Place::new();
        fs::write(place.outside("secret"), "secret").unwrap();
        fs::create_dir(place.path("sub")).unwrap();
        symlink(place.outside("secret"), place.path("absolute")).unwrap();
        symlink("../secret", place.path("relative")).unwrap();
        symlink("..", place.path("up")).unwrap();
        symlink("/proc/self/cwd", place.path("magic")).unwrap();
        symlink("a-loop", place.path("a-loop")).unwrap();
        for (path, code) in [
            ("../secret", "OUTSIDE_WORKDIR"),
            ("sub/../../secret", "OUTSIDE_WORKDIR"),
            ("./sub/./../../secret", "OUTSIDE_WORKDIR"),
            ("absolute", "OUTSIDE_WORKDIR"),
            ("relative", "OUTSIDE_WORKDIR"),
            ("up/secret", "OUTSIDE_WORKDIR"),
            ("magic/secret", "OUTSIDE_WORKDIR"),
            ("/etc/passwd", "ABSOLUTE_PATH"),
            ("a-loop", "IO_ERROR"),
            ("missing", "NOT_FOUND"),
            ("sub", "IS_A_DIRECTORY"),
            (".", "IS_A_DIRECTORY"),
        ] {
            let error = run(&place, path, None, None).unwrap_err();
            assert_eq!(error.code, code, "{path}: {error}");
            assert!(!error.message.contains(place.root.path().to_str().unwrap()), "a host path in {error}");
        }
    }

    #[test]
    fn links_and_dots_that_stay_inside_are_followed() {
        let place = Place::new();
        fs::create_dir_all(place.path("sub/deep")).unwrap();
        place.write("a.txt", "inside");
        symlink("../../a.txt", place.path("sub/deep/link")).unwrap();
        for path in ["sub/deep/link", "sub/deep/../../a.txt", "./a.txt", "sub//../a.txt"] {
            assert_eq!(run(&place, path, None, None).unwrap(), "inside", "{path}");
        }
    }

    #[test]
    fn a_fifo_or_a_device_does_not_hold_the_call() {
        let place = Place::new();
        assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
        let error = run(&place, "fifo", None, None).unwrap_err();
        assert_eq!(error.code, "NOT_A_FILE");
        let _listener = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
        assert!(run(&place, "socket", None, None).is_err());
    }

    #[test]
    fn a_cancelled_read_stops() {
        let place = Place::new();
        place.write("a", "one\ntwo\n");
        let cancel = CancellationToken::new();
        cancel.cancel();
        let arguments = Arguments { path: "a".into(), offset: Some(2), limit: None };
        assert_eq!(read(&place.workdir, arguments, &cancel).unwrap_err().code, "CANCELLED");
    }
}
