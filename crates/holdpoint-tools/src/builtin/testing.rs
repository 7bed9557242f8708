//! What the tests of the built-in tools share.

use std::path::PathBuf;

use holdpoint_core::message::ResultContent;
use tempfile::TempDir;

use super::Workdir;
use crate::ToolOutput;

/// A working directory inside a directory that stands for the rest of the machine.
pub struct Place {
    pub root: TempDir,
    pub workdir: Workdir,
}

impl Place {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let workdir = Workdir::open(&work).unwrap();
        Self { root, workdir }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("work").join(path)
    }

    pub fn outside(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    pub fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }
}

pub fn text(output: ToolOutput) -> String {
    match output.content {
        ResultContent::Text(text) => text,
        other => panic!("not text: {other:?}"),
    }
}
