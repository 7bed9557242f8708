//! A real terminal: the command sits on a pty, and the test reads every byte it writes.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};

use super::{HOLDPOINT, until};

pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Up to where the output has been waited for.
    seen: usize,
    // The pty closes with it.
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    /// Starts `holdpoint` with these arguments and, beside a bare environment, these variables.
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_typed(arguments, variables, "")
    }

    /// The same, on a terminal that has taken in and shown this already.
    pub fn start_typed(arguments: &[&str], variables: &[(&str, &str)], typed: &str) -> Self {
        let size = PtySize { rows: 40, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(HOLDPOINT);
        command.args(arguments);
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("TERM", "xterm-256color");
        command.cwd(std::env::temp_dir());
        for (name, value) in variables {
            command.env(name, value);
        }
        let mut reader = pty.master.try_clone_reader().unwrap();
        let mut keys = pty.master.take_writer().unwrap();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        keys.write_all(typed.as_bytes()).unwrap();
        keys.flush().unwrap();
        until("the echo", || (bytes.lock().unwrap().len() >= typed.len()).then_some(()));
        let child = pty.slave.spawn_command(command).unwrap();
        drop(pty.slave);
        Self { child, keys, bytes, seen: 0, _master: pty.master }
    }

    /// Everything that was written so far. The terminal makes `\r\n` of each `\n`; nothing else of it is changed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Waits for this text after what was waited for before.
    pub fn wait_for(&mut self, text: &str) {
        let from = self.seen;
        let mut last = String::new();
        let found = until_or(|| {
            last = self.output();
            last.get(from..)?.find(text).map(|at| from + at + text.len())
        });
        self.seen = found.unwrap_or_else(|| panic!("no {text:?} in:\n{last}"));
    }

    /// Types a line.
    pub fn type_line(&mut self, text: &str) {
        self.keys.write_all(format!("{text}\n").as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end; gives everything that was written, and the exit code.
    pub fn end(mut self) -> (String, u32) {
        let code = until("the end of the command", || self.child.try_wait().unwrap()).exit_code();
        // What was written last may still be on its way.
        let mut before = usize::MAX;
        until("the last output", || {
            let now = self.output().len();
            std::thread::sleep(std::time::Duration::from_millis(100));
            (std::mem::replace(&mut before, now) == now).then_some(())
        });
        (self.output(), code)
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.kill();
    }
}

fn until_or<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = std::time::Instant::now();
    while began.elapsed() < super::PATIENCE {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    None
}
