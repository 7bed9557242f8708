//! The directory the tools are confined to.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::text::shown;
use crate::ToolError;

/// The longest path a tool takes, in bytes: what the kernel takes.
const PATH_MAX_BYTES: usize = 4096;
/// How many dangling symbolic links are followed to see where a path would lead: what the kernel follows.
const LINKS_MAX: usize = 40;

/// A directory, held open: paths are resolved from this handle and cannot leave it.
///
/// Cheap to clone. Moving or replacing the directory by name does not move the tools: the handle stays.
#[derive(Clone)]
pub struct Workdir {
    inner: Arc<Inner>,
}

struct Inner {
    dir: Dir,
    path: PathBuf,
}

impl fmt::Debug for Workdir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workdir").field(&self.inner.path).finish()
    }
}

impl Workdir {
    /// Opens a directory that exists.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        Ok(Self { inner: Arc::new(Inner { dir, path }) })
    }

    /// Where it was when it was opened, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether a path, which need not exist yet, lies in this directory: what must be kept from the tools
    /// (a database, configuration, policy) must not. An error means that it cannot be told.
    pub fn contains(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        Ok(resolve(&std::path::absolute(path)?, LINKS_MAX)?.starts_with(&self.inner.path))
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.inner.dir
    }

    /// Opens a regular file for reading, and never blocks on anything else.
    pub(super) fn open_file(&self, path: &Path) -> Result<(File, Metadata), ToolError> {
        open_regular(self.dir(), path, path)
    }

    /// Opens the directory a file is in, and says the file's own name. What follows is done with that handle,
    /// so that it does not matter what becomes of the path meanwhile.
    pub(super) fn open_parent<'a>(&self, path: &'a Path) -> Result<(Dir, &'a OsStr), ToolError> {
        let (parent, name) = split(path)?;
        let dir = self.dir().open_dir(parent).map_err(|error| failed("open", path, &error))?;
        Ok((dir, name))
    }

    /// The same, and makes the directories that are missing. Says whether any was.
    pub(super) fn make_parent<'a>(&self, path: &'a Path) -> Result<(Dir, &'a OsStr, bool), ToolError> {
        let (parent, name) = split(path)?;
        match self.dir().open_dir(parent) {
            Ok(dir) => Ok((dir, name, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self
                .dir()
                .create_dir_all(parent)
                .and_then(|()| self.dir().open_dir(parent))
                .map(|dir| (dir, name, true))
                .map_err(|error| failed("make the directory of", path, &error)),
            Err(error) => Err(failed("open", path, &error)),
        }
    }
}

/// Checks the form of a path. Where it leads is seen when it is opened.
pub(super) fn check(path: &str) -> Result<&Path, ToolError> {
    let refuse = |code: &str, why: &str| Err(ToolError::new(code, why).not_executed());
    if path.is_empty() {
        return refuse("INVALID_PATH", "the path is empty; `.` is the working directory");
    }
    if path.len() > PATH_MAX_BYTES {
        return refuse("INVALID_PATH", &format!("the path is longer than {PATH_MAX_BYTES} bytes"));
    }
    if path.contains('\0') {
        return refuse("INVALID_PATH", "the path holds a NUL character");
    }
    let path = Path::new(path);
    if path.is_absolute() {
        return refuse(
            "ABSOLUTE_PATH",
            &format!("{} is absolute: paths are relative to the working directory", shown(path)),
        );
    }
    Ok(path)
}

pub(super) fn open_regular(dir: &Dir, name: &Path, path: &Path) -> Result<(File, Metadata), ToolError> {
    let mut options = OpenOptions::new();
    // Without NONBLOCK, opening a FIFO waits for a writer, for ever; NOCTTY keeps a terminal from becoming ours.
    options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    let file = dir.open_with(name, &options).map_err(|error| failed("open", path, &error))?;
    let metadata = file.metadata().map_err(|error| failed("open", path, &error))?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(not_a_file(path, &metadata)) }
}

pub(super) fn not_a_file(path: &Path, metadata: &Metadata) -> ToolError {
    let path = shown(path);
    if metadata.is_dir() {
        ToolError::new("IS_A_DIRECTORY", format!("{path} is a directory")).not_executed()
    } else if metadata.is_symlink() {
        let why = format!("{path} is a symbolic link; name the file it points to");
        ToolError::new("IS_A_SYMLINK", why).not_executed()
    } else {
        let why = format!("{path} is not a regular file (a FIFO, a socket or a device)");
        ToolError::new("NOT_A_FILE", why).not_executed()
    }
}

/// An operation that failed and changed nothing.
pub(super) fn failed(doing: &str, path: &Path, error: &io::Error) -> ToolError {
    let path = shown(path);
    // How cap-std says that a path led out: this kind, and no error of the system's behind it.
    let escape = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
    if escape {
        let why = format!("{path} leads out of the working directory");
        return ToolError::new("OUTSIDE_WORKDIR", why).not_executed();
    }
    let code = match error.kind() {
        io::ErrorKind::NotFound => "NOT_FOUND",
        io::ErrorKind::PermissionDenied => "PERMISSION_DENIED",
        io::ErrorKind::AlreadyExists => "ALREADY_EXISTS",
        io::ErrorKind::NotADirectory => "NOT_A_DIRECTORY",
        io::ErrorKind::IsADirectory => "IS_A_DIRECTORY",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "DISK_FULL",
        _ => "IO_ERROR",
    };
    ToolError::new(code, format!("cannot {doing} {path}: {error}")).not_executed()
}

fn split(path: &Path) -> Result<(&Path, &OsStr), ToolError> {
    // `a/`, `a/.` and `a/..` name directories, and `file_name` would silently read the first two as `a`.
    let bytes = path.as_os_str().as_encoded_bytes();
    let names_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b".";
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !names_directory => {
            Ok((if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, name))
        }
        (Some(_) | None, Some(_) | None) => {
            Err(ToolError::new("IS_A_DIRECTORY", format!("{} names a directory", shown(path))).not_executed())
        }
    }
}

/// Where an absolute path leads, whether or not there is anything.
fn resolve(path: &Path, links: usize) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        // Something that does not exist, and `..` behind it: nobody can say where that leads.
        return Err(io::Error::new(io::ErrorKind::NotFound, "the path leads nowhere"));
    };
    let parent = resolve(parent, links)?;
    let path = parent.join(name);
    match path.read_link() {
        // A link to what is not there yet: whoever writes through it makes it.
        Ok(target) if links > 0 => resolve(&parent.join(target), links - 1),
        Ok(_) => Err(io::Error::other("too many symbolic links")),
        Err(_) => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_the_server_keeps_is_found_inside_wherever_the_path_goes_around() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("work");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        symlink(&root, outside.path().join("alias")).unwrap();
        symlink(root.join("not-yet.db"), outside.path().join("dangling")).unwrap();
        symlink("../outside.db", root.join("sub/out")).unwrap();
        let workdir = Workdir::open(&root).unwrap();
        for (path, inside) in [
            ("work", true),
            ("work/x.db", true),
            ("work/sub/deep/x.db", true),
            ("work/sub/../x.db", true),
            ("alias/x.db", true),
            ("dangling", true),
            ("work/../x.db", false),
            ("work-2/x.db", false),
            ("x.db", false),
        ] {
            assert_eq!(workdir.contains(outside.path().join(path)).unwrap(), inside, "{path}");
        }
        assert!(workdir.contains(outside.path().join("work/missing/../..")).is_err());
        assert!(Workdir::open(outside.path().join("nothing")).is_err());
    }

    #[test]
    fn a_path_is_refused_by_its_form_before_anything_is_opened() {
        for (path, code) in [
            ("", "INVALID_PATH"),
            ("a\0b", "INVALID_PATH"),
            ("/etc/passwd", "ABSOLUTE_PATH"),
            ("//etc/passwd", "ABSOLUTE_PATH"),
            (&"a/".repeat(PATH_MAX_BYTES / 2 + 1), "INVALID_PATH"),
        ] {
            assert_eq!(check(path).unwrap_err().code, code);
        }
        assert!(check(&"a".repeat(PATH_MAX_BYTES)).is_ok());
    }

    #[test]
    fn a_file_has_a_name() {
        for path in [".", "..", "a/", "a/.", "a/..", "a/../.."] {
            assert_eq!(split(Path::new(path)).unwrap_err().code, "IS_A_DIRECTORY", "{path}");
        }
        assert_eq!(split(Path::new("a")).unwrap(), (Path::new("."), OsStr::new("a")));
        assert_eq!(split(Path::new("a/../b")).unwrap(), (Path::new("a/.."), OsStr::new("b")));
    }
}
