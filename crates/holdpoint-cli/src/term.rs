//! The terminal: whether there is one, how wide it is, what is typed.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector};
use tokio::sync::mpsc;

use crate::fail::{Fail, Result};

/// How wide a terminal is that does not say.
const WIDTH_DEFAULT: usize = 80;

/// Writes a line of data to standard output. A reader that has gone away ends the program without a word.
pub(crate) fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    if stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
        .is_err()
    {
        std::process::exit(0);
    }
}

/// Writes a piece of text to standard output at once, without a line break.
pub(crate) fn out_piece(text: &str) {
    let mut stdout = io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Says something to the person: a line on standard error. Where nobody can read it there is nothing to be done.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks for something: a piece of a line on standard error.
pub(crate) fn ask(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Whether somebody sits there: who can read what is asked, and type.
pub(crate) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The width to wrap to, if this stream is a terminal.
pub(crate) fn width_of(stream: &(impl IsTerminal + rustix::fd::AsFd)) -> Option<usize> {
    stream.is_terminal().then(|| match termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => WIDTH_DEFAULT,
    })
}

/// Emphasis. It never carries a meaning of its own: without it, every text says the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// For this stream: on where it is a terminal, `NO_COLOR` is not set, and the terminal is not a dumb one.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { on: stream.is_terminal() && !set("NO_COLOR") && !dumb }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// What is typed, line by line. A thread reads, because a line can take for ever; and it reads only when a line is
/// wanted, so that an editor can have the terminal in between.
pub(crate) struct Keyboard {
    wanted: std::sync::mpsc::Sender<()>,
    lines: mpsc::UnboundedReceiver<Option<String>>,
    is_reading: bool,
}

impl Keyboard {
    pub(crate) fn new() -> Self {
        let (wanted, wants) = std::sync::mpsc::channel::<()>();
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let stdin = io::stdin();
            while wants.recv().is_ok() {
                let mut line = String::new();
                let read = matches!(stdin.read_line(&mut line), Ok(1..));
                let line = read.then(|| line.trim_end_matches(['\n', '\r']).to_owned());
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { wanted, lines, is_reading: false }
    }

    /// The next line; `None` at the end of the input. Waiting can be given up and taken up again.
    pub(crate) async fn line(&mut self) -> Option<String> {
        if !self.is_reading {
            self.wanted.send(()).ok()?;
            self.is_reading = true;
        }
        let line = self.lines.recv().await.flatten();
        self.is_reading = false;
        line
    }

    /// Forgets what was typed before a question was put: it cannot have been meant as its answer.
    pub(crate) fn forget(&mut self) {
        let _ = termios::tcflush(io::stdin(), QueueSelector::IFlush);
        if self.lines.try_recv().is_ok() {
            self.is_reading = false;
        }
    }
}

/// Puts the terminal back as it was.
struct Restore(termios::Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads a secret without showing it.
pub(crate) fn secret(prompt: &str) -> Result<String> {
    let failed = |error: &dyn std::fmt::Display| Fail::new(format!("the terminal cannot be read: {error}"));
    let before = termios::tcgetattr(io::stdin()).map_err(|error| failed(&error))?;
    let mut quiet = before.clone();
    // Signals are read as characters, so that a Ctrl-C does not leave the terminal without an echo.
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    let restore = Restore(before);
    termios::tcsetattr(io::stdin(), OptionalActions::Flush, &quiet).map_err(|error| failed(&error))?;
    ask(prompt);
    let typed = typed(io::BufReader::with_capacity(1, io::stdin().lock()));
    drop(restore);
    say("");
    typed.map_err(|error| failed(&error))?.ok_or_else(|| Fail::new("nothing was entered"))
}

/// Reads to the end of the line; `None` when it was broken off.
fn typed(input: impl io::BufRead) -> io::Result<Option<String>> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const BACKSPACE: u8 = 8;
    const DELETE: u8 = 127;
    let mut typed = Vec::new();
    for byte in input.bytes() {
        match byte? {
            b'\n' | b'\r' => break,
            CTRL_C | CTRL_D => return Ok(None),
            BACKSPACE | DELETE => drop(typed.pop()),
            byte => typed.push(byte),
        }
    }
    Ok(String::from_utf8(typed).ok().filter(|text| !text.is_empty()))
}
