//! What a tool must not reach: if an agent could write its own policy, no policy would hold.

use std::path::{Path, PathBuf};

use holdpoint_tools::builtin::Workdir;

use crate::fail::{Fail, Result};

/// The files that decide what agents may do, and the record of it.
#[derive(Debug, Default)]
pub(crate) struct Protected {
    files: Vec<(String, PathBuf)>,
}

impl Protected {
    /// Keeps this file out of the working directories.
    pub(crate) fn add(&mut self, what: impl Into<String>, path: &Path) {
        self.files.push((what.into(), path.to_owned()));
    }

    /// Refuses a working directory that any of them lies in: by the name it was given, and by where its symbolic
    /// links lead.
    pub(crate) fn check(&self, agent: &str, workdir: &Workdir) -> Result<()> {
        for (what, path) in &self.files {
            match workdir.contains(path) {
                Ok(false) if !names_it(workdir, path) => {}
                Ok(_) => {
                    return Err(Fail::usage(format!(
                        "{what} `{}` lies in `{}`, where the tools of agent `{agent}` work",
                        path.display(),
                        workdir.path().display()
                    ))
                    .hint("move one of them: an agent must not be able to change what it may do, or the record of it"));
                }
                Err(error) => {
                    return Err(Fail::usage(format!(
                        "it cannot be told whether {what} `{}` lies in `{}`: {error}",
                        path.display(),
                        workdir.path().display()
                    )));
                }
            }
        }
        Ok(())
    }
}

/// A link that lies in the directory and leads out of it is in reach too: who may replace the link replaces the file.
fn names_it(workdir: &Workdir, path: &Path) -> bool {
    let named = path.parent().and_then(|folder| folder.canonicalize().ok());
    named.is_some_and(|folder| folder.starts_with(workdir.path()))
}
