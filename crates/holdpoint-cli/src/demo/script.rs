//! The model of the demo: a script that answers by what came of its calls.

use holdpoint_core::message::{Message, ToolMessage};
use holdpoint_models::scripted::Answer;
use holdpoint_models::{ModelRequest, Scripted};
use holdpoint_protocol::Status;

/// What is asked for when nobody says.
pub(crate) const QUERY: &str = "Tidy up this folder and write me a report of what the trip cost.";

/// What the demo's agent is told, whatever its model.
pub(crate) const INSTRUCTIONS: &str = "You tidy folders. Look before you act: list the folder, read what matters. \
    Then write report.md and delete what is not needed. Say what you did and what you left alone.";

/// The report. The amounts are those of `expenses.csv`; a test adds them up.
pub(crate) const REPORT: &str = "# The trip to Bern\n\n\
    | what | EUR |\n|---|---:|\n| Train to Bern | 48.20 |\n| Hotel | 129.00 |\n| Lunch, two people | 37.50 |\n\
    | Taxi | 22.00 |\n| Refund train | -12.20 |\n| **together** | **224.50** |\n\n\
    To Maria until Friday (from the notes). The signed contract stays.\n";

/// What is to be deleted: the script is wrong about one of them, and the notes say which.
pub(crate) const DELETE: [&str; 5] = [
    "Invoice 2026-11 (1).txt",
    "todo.txt.bak",
    "~tmp4711.tmp",
    "offer_\u{202e}fdp.exe",
    "contract_signed.txt",
];

/// The command that nobody should let pass.
pub(crate) const COMMAND: &str = "rm -rf archive";

/// The model.
pub(crate) fn model() -> Scripted {
    Scripted::computed("demo-script", |request, _| answer(request))
}

fn answer(request: &ModelRequest) -> Answer {
    let turn = Turn::of(request);
    if turn.is_later {
        return Answer::text(
            "I am a script and know this one job. With `holdpoint demo --model …` a real model sits here.",
        );
    }
    match turn.replies {
        0 => Answer::text("I look at what is there first.").and_call("list", "List", r#"{"depth":3}"#),
        1 => Answer::text("The notes and the expenses matter most.")
            .and_call("notes", "Read", r#"{"path":"notes FINAL v2.md"}"#)
            .and_call("expenses", "Read", r#"{"path":"expenses.csv"}"#),
        2 => Answer::text(
            "Three things are left to do: the report, five files to delete, and the old archive.",
        )
        .and_call("report", "Write", arguments(&[("path", "report.md".into()), ("content", REPORT.into())]))
        .and_call("delete", "Delete", arguments(&[("paths", DELETE.as_slice().into())]))
        .and_call("archive", "Bash", arguments(&[("command", COMMAND.into())])),
        _ => turn.revised().unwrap_or_else(|| Answer::text(turn.summary())),
    }
    .usage(400, 60)
}

/// A JSON object in the order it is written here.
fn arguments(entries: &[(&str, serde_json::Value)]) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}:{value}", serde_json::Value::from(*key))).collect();
    format!("{{{}}}", entries.join(","))
}

/// The conversation since the last message of the user.
struct Turn<'a> {
    replies: usize,
    results: Vec<&'a ToolMessage>,
    /// The user has written before.
    is_later: bool,
}

impl<'a> Turn<'a> {
    fn of(request: &'a ModelRequest) -> Self {
        let mut turn = Self { replies: 0, results: Vec::new(), is_later: false };
        let mut users = 0;
        for message in &request.messages {
            match message.as_ref() {
                Message::User(_) => users += 1,
                Message::Assistant(_) => turn.replies += 1,
                Message::Tool(result) => turn.results.push(result),
                Message::Note(_) => {}
            }
        }
        turn.is_later = users > 1;
        turn
    }

    /// The last result of this tool.
    fn result(&self, tool: &str) -> Option<&'a ToolMessage> {
        self.results.iter().rev().find(|result| result.name == tool).copied()
    }

    /// Told what to do instead, the script does at least something about it: once, with a shorter report.
    fn revised(&self) -> Option<Answer> {
        let wrote = self.results.iter().filter(|result| result.name == "Write").count();
        let told = self.result("Write").is_some_and(|result| result.status == Status::Feedback);
        let report = "The trip to Bern cost 224.50 EUR. To Maria until Friday.\n";
        (told && wrote == 1).then(|| {
            Answer::text("Understood. A script cannot follow every wish; here is a short report instead.")
                .and_call(
                    "report-2",
                    "Write",
                    arguments(&[("path", "report.md".into()), ("content", report.into())]),
                )
        })
    }

    /// What came of it, said by what the results say and nothing else.
    fn summary(&self) -> String {
        let said = [
            ("Write", "report.md is written", "There is no report.md"),
            ("Delete", "What you let me delete is deleted", "I deleted nothing"),
            ("Bash", "The archive is gone", "The archive is as it was"),
        ]
        .map(|(tool, done, not_done)| match self.result(tool).map(|result| result.status) {
            Some(Status::Succeeded) => format!("{done}."),
            Some(Status::ExecutedWithChanges) => format!("{done}, as you changed it."),
            Some(Status::Declined) => format!("{not_done}: you declined."),
            Some(other) => format!("{not_done} ({}).", other.as_str()),
            None => format!("{not_done}."),
        });
        said.join(" ")
    }
}
