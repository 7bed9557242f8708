//! The way through a directory tree, handle by handle, in the order of the names.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, DirEntry, FileType};
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::text::{count, shown};
use crate::ToolError;

/// The deepest a walk goes. Each level holds a file handle.
pub const DEPTH_MAX: usize = 64;
/// The most entries of one directory that are looked at.
pub const DIRECTORY_MAX_ENTRIES: usize = 50_000;
/// How many unreadable or overfull places are named; the others are counted.
const NAMED_MAX: usize = 5;

/// One entry of a directory. Symbolic links are entries and are not followed.
pub struct Found<'a> {
    pub path: &'a Path,
    pub kind: FileType,
    pub entry: &'a DirEntry,
    /// The directory it is in.
    pub dir: &'a Dir,
}

/// What a walk could not see.
#[derive(Debug, Default)]
pub struct Missed {
    places: Vec<String>,
    more: u64,
    /// Directories at the depth bound that were not opened.
    pub deeper: u64,
}

impl Missed {
    pub fn note(&mut self, path: &Path, why: &str) {
        if self.places.len() < NAMED_MAX {
            self.places.push(format!("{}: {why}", shown(path)));
        } else {
            self.more += 1;
        }
    }

    /// The sentences to put at the end of a result.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = self.places.clone();
        if self.more > 0 {
            sentences.push(format!("{} could not be read", count(self.more, "other place", "other places")));
        }
        sentences
    }
}

/// Looks at one entry, and says whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(Found<'_>, &mut Missed) -> ControlFlow<()>;

/// Visits everything below a directory, down to a depth (1: its own entries), until the visitor breaks.
pub fn walk(
    dir: &Dir,
    path: &Path,
    depth: usize,
    cancel: &CancellationToken,
    missed: &mut Missed,
    visit: Visit<'_>,
) -> Result<(), ToolError> {
    // Whether it broke off is the visitor's to know.
    descend(dir, path, depth, cancel, missed, visit).map(|_| ())
}

fn descend(
    dir: &Dir,
    path: &Path,
    depth: usize,
    cancel: &CancellationToken,
    missed: &mut Missed,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>, ToolError> {
    let entries = match sorted(dir, path, missed) {
        Ok(entries) => entries,
        Err(error) => {
            missed.note(path, &error.to_string());
            return Ok(ControlFlow::Continue(()));
        }
    };
    for (name, entry) in entries {
        check_cancel(cancel)?;
        let path = join(path, &name);
        // A file system that does not say what an entry is, and an entry that is gone by now.
        let Ok(kind) = entry.file_type().and_then(|kind| known(kind, &entry)) else { continue };
        if visit(Found { path: &path, kind, entry: &entry, dir }, missed).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if !kind.is_dir() {
            continue;
        }
        if depth <= 1 {
            missed.deeper += 1;
            continue;
        }
        match entry.open_dir() {
            Ok(dir) => {
                if descend(&dir, &path, depth - 1, cancel, missed, visit)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Err(error) => missed.note(&path, &error.to_string()),
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn known(kind: FileType, entry: &DirEntry) -> io::Result<FileType> {
    if kind.is_dir() || kind.is_file() || kind.is_symlink() {
        Ok(kind)
    } else {
        Ok(entry.metadata()?.file_type())
    }
}

fn sorted(dir: &Dir, path: &Path, missed: &mut Missed) -> io::Result<Vec<(OsString, DirEntry)>> {
    let mut entries = Vec::new();
    for entry in dir.entries()? {
        if entries.len() == DIRECTORY_MAX_ENTRIES {
            missed.note(path, &format!("only {DIRECTORY_MAX_ENTRIES} of its entries were looked at"));
            break;
        }
        let entry = entry?;
        entries.push((entry.file_name(), entry));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

/// Paths are shown as they can be given back: relative to the working directory, without `./`.
fn join(path: &Path, name: &OsString) -> PathBuf {
    if path == Path::new(".") { PathBuf::from(name) } else { path.join(name) }
}
