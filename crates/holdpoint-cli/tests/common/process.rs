//! The command as a process without a terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

use super::http::Server;
use super::{HOLDPOINT, until};

/// The command with a bare environment.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(HOLDPOINT);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null());
    command
}

/// Runs a client command against a server.
pub fn client(server: &Server, arguments: &[&str]) -> Output {
    command(arguments).args(["--server", &server.url]).env("HOLDPOINT_TOKEN", &server.token).output().unwrap()
}

/// The same, with something on standard input.
pub fn client_with_input(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .args(["--server", &server.url])
        .env("HOLDPOINT_TOKEN", &server.token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A server in a process of its own.
pub struct Serving {
    pub child: Child,
    pub server: Server,
    /// The first line.
    pub line: Value,
    pub lines: BufReader<ChildStdout>,
    /// Reads what it says to standard error, so that it never waits for somebody to.
    said: Option<JoinHandle<String>>,
    ended: bool,
}

impl Serving {
    /// Starts it and reads its first line.
    pub fn start(command: Command) -> Self {
        Self::try_start(command).unwrap_or_else(|output| panic!("it did not start: {output}"))
    }

    /// The same; where it ends before the first line, gives what it said.
    pub fn try_start(mut command: Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).into_owned()
        });
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        if first.is_empty() {
            let code = child.wait().unwrap().code();
            return Err(format!("{code:?}: {}", said.join().unwrap()));
        }
        let line: Value = serde_json::from_str(&first).unwrap();
        let field = |name: &str| line[name].as_str().unwrap().to_owned();
        let server = Server { url: field("url"), token: field("token") };
        Ok(Self { child, server, line, lines, said: Some(said), ended: false })
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let status = until("the end of the server", || self.child.try_wait().unwrap());
        self.ended = true;
        status
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// `kill -9`: nothing is flushed, no destructor runs.
    pub fn kill(mut self) {
        self.signal("-KILL");
        self.wait();
    }

    /// Everything it has said to standard error, once it has ended.
    pub fn said(&mut self) -> String {
        self.said.take().unwrap().join().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
