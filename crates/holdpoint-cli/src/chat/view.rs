//! The events of a run as a person reads them. Everything the agent says stands behind a mark of its own, on every
//! line, so that none of it can pass for a question of ours.

use std::collections::HashMap;

use holdpoint_core::display::hides;
use holdpoint_protocol::{Event, EventBody, FinishStatus, ToolResult, Via};

use crate::term::{self, Style};
use crate::text::{block, line};

/// Before each line of the agent's text.
const SAYS: &str = "  ┆ ";
/// Before each line of what its model thinks.
const THINKS: &str = "  ~ ";

/// How much of an argument text or a result is shown in passing. What is to be decided is shown whole.
const PASSING_MAX_CHARS: usize = 160;

/// The view, and where on the line it is.
pub(crate) struct View {
    style: Style,
    width: Option<usize>,
    /// Columns of the agent's text on the current line; `None` at the start of a line.
    column: Option<usize>,
    /// What stands before the lines of the text at hand.
    mark: &'static str,
    /// Some of this round's text was shown piece by piece.
    streamed: bool,
    names: HashMap<holdpoint_protocol::CallId, String>,
}

impl View {
    pub(crate) fn new() -> Self {
        let stdout = std::io::stdout();
        Self {
            style: Style::of(&stdout),
            width: term::width_of(&stdout),
            column: None,
            mark: SAYS,
            streamed: false,
            names: HashMap::new(),
        }
    }

    /// Something of our own, beside the run.
    pub(crate) fn note(&mut self, text: &str) {
        self.end_line();
        term::say(&self.style.dim(&format!("({text})")));
    }

    /// Goes to the start of a line.
    pub(crate) fn end_line(&mut self) {
        if self.column.take().is_some() {
            term::out("");
        }
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        term::out(text);
    }

    /// A piece of the agent's text, or of what it thinks.
    fn speak(&mut self, mark: &'static str, text: &str) {
        if self.mark != mark {
            self.end_line();
            self.mark = mark;
        }
        let room =
            self.width.map_or(usize::MAX, |width| width.saturating_sub(SAYS.chars().count() + 1).max(20));
        let mut out = String::new();
        for word in text.split_inclusive([' ', '\n']) {
            let fits = self.column.is_none_or(|column| column + columns(word.trim_end()) <= room);
            if !fits {
                self.break_line(&mut out);
            }
            for c in word.chars() {
                self.put(c, room, &mut out);
            }
        }
        term::out_piece(&out);
    }

    fn put(&mut self, c: char, room: usize, out: &mut String) {
        if self.column.is_some_and(|column| column >= room) {
            self.break_line(out);
        }
        let column = self.column.unwrap_or_else(|| {
            out.push_str(self.mark);
            0
        });
        match c {
            '\n' => return self.break_line(out),
            '\t' => out.push(' '),
            c if hides(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        self.column = Some(column + width(c));
    }

    fn break_line(&mut self, out: &mut String) {
        out.push('\n');
        self.column = None;
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &Event) {
        let who = event.child.as_ref().map(|child| format!("[{}] ", line(&child.path))).unwrap_or_default();
        match &event.body {
            EventBody::RunStarted(started) => {
                self.line(&self.style.dim(&format!(
                    "{who}run {} of agent {}",
                    event.run_id,
                    line(started.agent.as_str())
                )));
            }
            EventBody::Token(piece) => {
                self.streamed = true;
                self.speak(SAYS, &piece.data);
            }
            EventBody::Reasoning(piece) => self.speak(THINKS, &piece.data),
            EventBody::Message(message) => {
                if !self.streamed && !message.text.is_empty() {
                    self.speak(SAYS, &message.text);
                }
                self.end_line();
                if let Some(status) = message.incomplete {
                    self.line(&format!(
                        "{who}the reply broke off ({}): nothing of it counts",
                        status.as_str()
                    ));
                }
            }
            EventBody::ToolCall(calls) => {
                self.streamed = false;
                for call in &calls.tool_calls {
                    self.names.insert(call.call_id, call.name.clone());
                    self.quoting(&format!("{who}wants  {}", line(&call.name)), &call.arguments);
                }
            }
            EventBody::ToolStarted(started) => {
                let name = self.names.get(&started.call_id).map_or("a call", String::as_str);
                let text = self.style.dim(&format!("{who}runs   {}", line(name)));
                self.line(&text);
            }
            EventBody::ToolProgress(progress) => {
                if let Some(message) = &progress.message {
                    self.quoting(&format!("{who}says  "), message);
                }
            }
            EventBody::ToolResult(results) => {
                for result in &results.tool_results {
                    self.result(&who, result);
                }
            }
            EventBody::Decision(decision) => {
                let actor = match &decision.by.actor {
                    Some(actor) => format!(" by {}", line(actor.as_str())),
                    None => String::new(),
                };
                let how = if decision.by.via == Via::Human { "" } else { " (not by a person)" };
                self.line(&format!("{who}decided: {}{actor}{how}", line(&decision.decision)));
            }
            EventBody::Reminder(reminder) => {
                let told = crate::request::groups(&reminder.escalated_to);
                let told = told.map(|told| format!("; {told} may decide too")).unwrap_or_default();
                self.line(&format!("{who}still open: {}{told}", reminder.request_id));
            }
            EventBody::Notice(notice) => self.quoting(&format!("{who}note  "), &notice.message),
            EventBody::RoundRestarted(_) => {
                self.streamed = false;
                self.line(&format!("{who}the model is asked again; what it said of this round is void"));
            }
            EventBody::RoundCommitted(_) => self.streamed = false,
            EventBody::Resumed(resumed) if resumed.by != "decision" => {
                self.line(&self.style.dim(&format!("{who}goes on ({})", line(&resumed.by))));
            }
            EventBody::Finish(finish) if event.child.is_none() => {
                let usage = &finish.usage;
                self.line(&self.style.dim(&format!(
                    "{}: {} rounds, {} calls, {} tokens in, {} out",
                    finish_word(finish.status),
                    usage.rounds,
                    usage.tool_calls,
                    usage.input_tokens,
                    usage.output_tokens
                )));
            }
            EventBody::Error(error) => self.quoting(&format!("{who}the run failed:"), &error.message),
            EventBody::QuestionRequest(question) => {
                self.line(&format!("{who}asks a question: holdpoint show {}", question.request_id));
            }
            // Requests are put by themselves; the rest says nothing to a person who watches.
            EventBody::ApprovalRequest(_)
            | EventBody::InDoubtRequest(_)
            | EventBody::QuarantineRequest(_)
            | EventBody::Vote(_)
            | EventBody::Suspended(_)
            | EventBody::Resumed(_)
            | EventBody::Finish(_)
            | EventBody::Closing(_)
            | EventBody::Heartbeat(_) => {}
        }
    }

    fn result(&mut self, who: &str, result: &ToolResult) {
        let head = format!("{who}{:6} {}", result.status.as_str(), line(&result.name));
        match serde_json::from_str::<String>(result.result.get()) {
            Ok(text) => self.quoting(&head, &text),
            Err(_) => self.quoting(&head, result.result.get()),
        }
    }

    /// A line of ours about a text of somebody else's: beside it where it fits, else below it, behind the gutter.
    fn quoting(&mut self, head: &str, text: &str) {
        let text = passing(text);
        let fits = self.width.is_none_or(|width| columns(head) + columns(&text) < width);
        if fits {
            self.line(&format!("{head} {text}"));
        } else {
            self.line(head);
            term::out_piece(&block(&text, self.width));
        }
    }
}

fn finish_word(status: FinishStatus) -> &'static str {
    match status {
        FinishStatus::Success => "done",
        FinishStatus::Stopped => "stopped by you",
        FinishStatus::LimitExceeded => "ended by a limit",
        FinishStatus::Cancelled => "cancelled",
        FinishStatus::Superseded => "superseded by a newer message",
    }
}

/// At most how many columns it takes: a character of three bytes and more may be a wide one, or escaped.
fn width(c: char) -> usize {
    if hides(c) {
        c.escape_unicode().count()
    } else if c.len_utf8() >= 3 {
        2
    } else {
        1
    }
}

fn columns(word: &str) -> usize {
    word.chars().map(width).sum()
}

/// A text in passing: its beginning, and how much more there is.
fn passing(text: &str) -> String {
    let total = text.chars().count();
    if total <= PASSING_MAX_CHARS {
        return line(text);
    }
    let beginning: String = text.chars().take(PASSING_MAX_CHARS).collect();
    format!("{} [{} more characters]", line(&beginning), total - PASSING_MAX_CHARS)
}
