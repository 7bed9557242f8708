//! A configuration on disk, for servers in processes of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::command;

pub struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// One agent with the built-in tools in `work`, on this script; the port is a free one.
    pub fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let site = Self { dir };
        site.write("script.yaml", script);
        site.configure("", "");
        site
    }

    /// With further lines under `[server]` and in the agent.
    pub fn configure(&self, server: &str, agent: &str) {
        self.write(
            "holdpoint.toml",
            &format!(
                "[server]\nlisten = \"127.0.0.1:0\"\ndatabase = \"data/holdpoint.db\"\n{server}\n\n\
                 [models.script]\nprovider = \"scripted\"\nscript = \"script.yaml\"\n\n\
                 [[agents]]\nname = \"main\"\nmodel = \"script\"\nworkdir = \"work\"\n{agent}\n"
            ),
        );
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn config(&self) -> String {
        self.path("holdpoint.toml").to_str().unwrap().to_owned()
    }

    /// The command that serves it.
    pub fn serve(&self) -> Command {
        command(&["serve", "--config", &self.config()])
    }

    /// The lines of a file that tools append to.
    pub fn lines(&self, name: &str) -> usize {
        lines(&self.path("work").join(name))
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// A script whose first reply is these calls, and whose second is `done`.
pub fn script(calls: &[(&str, serde_json::Value)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| format!("{{id: c{at}, name: {name}, arguments: {arguments}}}"))
        .collect();
    format!(
        "rules:\n  - when: {{has_tool_result: true}}\n    answer: {{text: done}}\n  - answer: {{calls: [{}]}}\n",
        calls.join(", ")
    )
}
