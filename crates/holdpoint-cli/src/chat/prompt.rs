//! Putting one request, and reading one answer.

use holdpoint_protocol::{DecisionRequest, DecisionWord};

use crate::client::{Client, Decided};
use crate::decide::{edited_in, plain, result, show_edited};
use crate::edit;
use crate::fail::Result;
use crate::request::Asked;
use crate::term::{self, Keyboard};
use crate::text::{block, line};

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The request is closed.
    Closed,
    /// It stays open, and is not put again.
    Later,
    /// It is put again.
    Again,
}

/// The question.
pub(crate) fn question(asked: &Asked, waiting: usize) -> String {
    let more = if waiting > 1 { format!(" ({} more after this)", waiting - 1) } else { String::new() };
    let words = if asked.is_set_aside() {
        "approve (take the run up again), decline [WHY] (end it), later"
    } else if asked.is_in_doubt() {
        "approve (run it again), ran RESULT, leave, later"
    } else {
        "approve, edit, decline [WHY], feedback WHAT, later"
    };
    format!("Type one of: {words}{more} > ")
}

/// What a line means. Only a whole word decides; Enter alone does not.
pub(crate) async fn answer(
    client: &Client,
    keyboard: &mut Keyboard,
    asked: &Asked,
    typed: &str,
) -> Result<Answered> {
    let (word, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let rest = rest.trim();
    let said = (!rest.is_empty()).then(|| rest.to_owned());
    let digest = Some(asked.digest.clone());
    let decision = match (word, asked.is_in_doubt()) {
        ("approve", _) if rest.is_empty() => DecisionRequest { digest, ..plain(DecisionWord::Approve) },
        ("edit", false) if asked.takes(DecisionWord::ApproveWith) => match edited(keyboard, asked).await? {
            Some(arguments) => {
                DecisionRequest { arguments: Some(arguments), digest, ..plain(DecisionWord::ApproveWith) }
            }
            None => return Ok(Answered::Again),
        },
        ("decline", false) => DecisionRequest { reason: said, digest, ..plain(DecisionWord::Decline) },
        ("feedback", false) if said.is_some() && asked.takes(DecisionWord::Feedback) => {
            DecisionRequest { reason: said, digest, ..plain(DecisionWord::Feedback) }
        }
        ("ran", true) if said.is_some() => {
            DecisionRequest { result: Some(result(rest)?), digest, ..plain(DecisionWord::Ran) }
        }
        ("leave", true) if rest.is_empty() => DecisionRequest { digest, ..plain(DecisionWord::Leave) },
        ("later", _) if rest.is_empty() => {
            term::say(&format!(
                "it stays pending: holdpoint show {} --server {}",
                asked.request_id,
                client.url()
            ));
            return Ok(Answered::Later);
        }
        ("", _) => {
            term::say("nothing was decided");
            return Ok(Answered::Again);
        }
        _ => {
            term::say(&format!("`{}` does not decide this; nothing was decided", line(typed)));
            return Ok(Answered::Again);
        }
    };
    send(client, asked, &decision).await
}

async fn send(client: &Client, asked: &Asked, decision: &DecisionRequest) -> Result<Answered> {
    Ok(match client.decide(asked.request_id, decision).await? {
        Decided::Taken => Answered::Closed,
        Decided::Vote => {
            term::say("your vote is stored; others are needed before the call runs");
            Answered::Later
        }
        Decided::Refused(refusal) => {
            term::say(&refusal.fail().to_string());
            if refusal.is_closed() { Answered::Closed } else { Answered::Again }
        }
    })
}

/// Has the person change the arguments, in an editor or in one line, and shows what they became. Nothing is sent
/// without the word.
async fn edited(keyboard: &mut Keyboard, asked: &Asked) -> Result<Option<String>> {
    let edited = match edit::editor() {
        Some(editor) => edited_in(&editor, asked),
        None => {
            term::say(
                "Neither VISUAL nor EDITOR names an editor, so type the whole new object in one line. Now it is:",
            );
            term::say(
                block(&edit::to_type(&asked.arguments), term::width_of(&std::io::stderr()))
                    .trim_end_matches('\n'),
            );
            term::ask("new arguments (Enter to leave it) > ");
            match keyboard.line().await.map(|text| text.trim().to_owned()) {
                Some(text) if !text.is_empty() => Ok(text),
                Some(_) | None => return Ok(None),
            }
        }
    };
    match edited.and_then(|text| show_edited(asked, &text).map(|()| text)) {
        Err(fail) => {
            term::say(&fail.to_string());
            Ok(None)
        }
        Ok(text) => {
            keyboard.forget();
            term::ask("Type `approve` to run what you changed it to; anything else leaves it pending > ");
            match keyboard.line().await.as_deref().map(str::trim) {
                Some("approve") => Ok(Some(text)),
                Some(_) | None => {
                    term::say("nothing was decided");
                    Ok(None)
                }
            }
        }
    }
}
