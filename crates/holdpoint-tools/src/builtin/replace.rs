//! A file's content replaced in one step: whoever reads it sees the old or the new, never a part.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{
    Dir, File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt,
};
use tokio_util::sync::CancellationToken;

use super::check_cancel;
use super::text::shown;
use super::workdir::{failed, not_a_file};
use crate::ToolError;

/// The rights of a new file, before the umask.
const NEW_MODE: u32 = 0o666;
/// What of an old file's mode the new one gets: rights, and no set-user-id.
const KEPT_MODE: u32 = 0o777;
/// How many names are tried for the temporary file.
const NAMES_MAX: usize = 16;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// What stood under the name before.
pub struct Before {
    identity: Option<Identity>,
    mode: Option<u32>,
}

#[derive(PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Before {
    /// Looks at a name: a regular file, or nothing.
    pub fn look(dir: &Dir, name: &OsStr, path: &Path) -> Result<Self, ToolError> {
        match dir.symlink_metadata(name) {
            Ok(metadata) if metadata.is_file() => Ok(Self::of(&metadata)),
            Ok(metadata) => Err(not_a_file(path, &metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { identity: None, mode: None }),
            Err(error) => Err(failed("write", path, &error)),
        }
    }

    pub fn of(metadata: &Metadata) -> Self {
        let identity = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Self { identity: Some(identity), mode: Some(metadata.mode() & KEPT_MODE) }
    }

    pub fn existed(&self) -> bool {
        self.identity.is_some()
    }

    /// Whether the same file stands there, untouched.
    pub fn still_stands(&self, dir: &Dir, name: &OsStr, path: &Path) -> Result<bool, ToolError> {
        Ok(Self::look(dir, name, path)?.identity == self.identity)
    }
}

/// Writes a new file beside the old one, and renames it into its place.
pub fn replace(
    dir: &Dir,
    name: &OsStr,
    path: &Path,
    content: &[u8],
    before: &Before,
    unchanged: bool,
    cancel: &CancellationToken,
) -> Result<(), ToolError> {
    let (temporary, file) = create(dir, before.mode.unwrap_or(NEW_MODE), path)?;
    let result = fill(file, content, before.mode)
        .map_err(|error| failed("write", path, &error))
        .and_then(|()| check_cancel(cancel))
        .and_then(|()| {
            if unchanged && !before.still_stands(dir, name, path)? {
                let why = format!("{} was changed by someone else meanwhile: read it again", shown(path));
                return Err(ToolError::new("CHANGED_MEANWHILE", why).not_executed());
            }
            dir.rename(&temporary, dir, name).map_err(|error| failed("replace", path, &error))
        });
    if let Err(error) = result {
        // The reason is the first error; a leftover file is only untidy.
        let _ = dir.remove_file(&temporary);
        return Err(error);
    }
    sync(dir).map_err(|error| {
        let why =
            format!("{} is written, but it cannot be told whether it survives a crash: {error}", shown(path));
        ToolError::new("NOT_SYNCED", why)
    })
}

fn create(dir: &Dir, mode: u32, path: &Path) -> Result<(String, File), ToolError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    for _ in 0..NAMES_MAX {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".holdpoint-{}-{number}.tmp", std::process::id());
        match dir.open_with(&name, &options) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("write", path, &error)),
        }
    }
    Err(ToolError::new("IO_ERROR", "no free name for a temporary file").not_executed())
}

fn fill(mut file: File, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(mode) = mode {
        // The mode given at creation was cut by the umask.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()
}

fn sync(dir: &Dir) -> io::Result<()> {
    // The handle itself only marks a place (`O_PATH`); this one can be synced.
    dir.open_with(".", OpenOptions::new().read(true))?.sync_all()
}
