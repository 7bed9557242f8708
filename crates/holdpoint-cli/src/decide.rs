//! Deciding: what is shown first, what must be typed, what is sent.

use std::io::Read;
use std::path::Path;

use holdpoint_core::arguments::ARGUMENTS_MAX_BYTES;
use holdpoint_protocol::{
    DecisionRequest, DecisionWord, Interaction, InteractionKind, InteractionStatus, RawJson, RequestId, Then,
};

use crate::access;
use crate::args::{Approve, Decline, Feedback, One, Ran, Show};
use crate::client::{Client, Decided};
use crate::edit;
use crate::fail::{Fail, Result};
use crate::request::{self, Asked};
use crate::term::{self, Keyboard, Style};
use crate::text::{json_line, line};

/// A decision of this word and nothing else.
pub(crate) fn plain(word: DecisionWord) -> DecisionRequest {
    DecisionRequest { decision: word, reason: None, arguments: None, result: None, digest: None, then: None }
}

/// `approve`.
pub(crate) async fn approve(args: Approve) -> Result<()> {
    let client = access::client(&args.at.server)?;
    let edited = args.with.as_deref().map(arguments_from).transpose()?;
    // Standard input that brought the arguments cannot bring the word too.
    let attended = term::is_attended() && args.with.as_deref() != Some(Path::new("-"));
    if !attended && args.digest.is_none() {
        return Err(Fail::usage("there is no terminal to show the request on, so its digest is needed")
            .hint(format!(
                "read the request with `holdpoint show {}`, then pass the digest it shows with --digest",
                args.id
            )));
    }
    let asked = pending(&client, args.id).await?;
    if args.digest.as_ref().is_some_and(|digest| *digest != asked.digest) {
        return Err(Fail::not_taken("the digest is not that of the pending request; nothing was decided")
            .hint(format!("read the request again with `holdpoint show {}`", args.id)));
    }
    if attended {
        show(&asked);
        if let Some(edited) = &edited {
            show_edited(&asked, edited)?;
        }
        let what = match &edited {
            Some(_) => "run what you changed it to",
            None if asked.is_set_aside() => "take the run up again",
            None if asked.is_in_doubt() => "run it again",
            None => "run exactly this",
        };
        confirm(&mut Keyboard::new(), what).await?;
    }
    let word = if edited.is_some() { DecisionWord::ApproveWith } else { DecisionWord::Approve };
    let decision =
        DecisionRequest { arguments: edited, reason: args.reason, digest: Some(asked.digest), ..plain(word) };
    send(&client, args.id, &decision).await
}

/// `edit`.
pub(crate) async fn edit(args: One) -> Result<()> {
    let client = access::client(&args.at.server)?;
    if !term::is_attended() {
        return Err(Fail::usage("there is no terminal to edit on").hint(format!(
            "write the arguments into a file, and use `holdpoint approve {} --with FILE --digest DIGEST`",
            args.id
        )));
    }
    let Some(editor) = edit::editor() else {
        return Err(Fail::usage("neither VISUAL nor EDITOR says which editor to open").hint(format!(
            "write the arguments into a file, and use `holdpoint approve {} --with FILE`",
            args.id
        )));
    };
    let asked = pending(&client, args.id).await?;
    if !asked.takes(DecisionWord::ApproveWith) {
        return Err(Fail::not_taken("there are no arguments to edit in this request"));
    }
    show(&asked);
    let edited = edited_in(&editor, &asked)?;
    show_edited(&asked, &edited)?;
    confirm(&mut Keyboard::new(), "run what you changed it to").await?;
    let decision = DecisionRequest {
        arguments: Some(edited),
        digest: Some(asked.digest),
        ..plain(DecisionWord::ApproveWith)
    };
    send(&client, args.id, &decision).await
}

/// `decline`.
pub(crate) async fn decline(args: Decline) -> Result<()> {
    let decision =
        DecisionRequest { reason: args.reason, then: then(args.stop), ..plain(DecisionWord::Decline) };
    send(&access::client(&args.at.server)?, args.id, &decision).await
}

/// `feedback`.
pub(crate) async fn feedback(args: Feedback) -> Result<()> {
    if args.text.trim().is_empty() {
        return Err(Fail::usage("--text is empty, and would tell the agent nothing")
            .hint("`holdpoint decline` refuses a call without a word"));
    }
    let decision =
        DecisionRequest { reason: Some(args.text), then: then(args.stop), ..plain(DecisionWord::Feedback) };
    send(&access::client(&args.at.server)?, args.id, &decision).await
}

/// `ran`.
pub(crate) async fn ran(args: Ran) -> Result<()> {
    let decision = DecisionRequest { result: Some(result(&args.result)?), ..plain(DecisionWord::Ran) };
    send(&access::client(&args.at.server)?, args.id, &decision).await
}

/// `leave`.
pub(crate) async fn leave(args: One) -> Result<()> {
    send(&access::client(&args.at.server)?, args.id, &plain(DecisionWord::Leave)).await
}

fn then(stop: bool) -> Option<Then> {
    stop.then_some(Then::Stop)
}

/// A reported result: JSON as it is, anything else as a JSON string.
pub(crate) fn result(text: &str) -> Result<RawJson> {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let json = if is_json { Ok(text.to_owned()) } else { serde_json::to_string(text) };
    json.and_then(|json| serde_json::from_str(&json))
        .map_err(|error| Fail::usage(format!("the result cannot be written as JSON: {error}")))
}

/// The exact text of a file, or of standard input.
fn arguments_from(path: &Path) -> Result<String> {
    let cannot = |why: &dyn std::fmt::Display| {
        Fail::usage(format!("the arguments cannot be read from `{}`: {why}", path.display()))
    };
    let mut bytes = Vec::new();
    let limit = ARGUMENTS_MAX_BYTES as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| cannot(&error))?;
    if bytes.len() > ARGUMENTS_MAX_BYTES {
        return Err(cannot(&format_args!("they have more than {ARGUMENTS_MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| cannot(&"they are not UTF-8"))
}

/// The request, if it is one that can be approved now.
async fn pending(client: &Client, id: RequestId) -> Result<Asked> {
    let interaction = client.interaction(id).await?;
    if interaction.status != InteractionStatus::Pending {
        return Err(not_pending(&interaction));
    }
    let asked = Asked::read(interaction.request.get())?;
    if asked.takes(DecisionWord::Approve) {
        return Ok(asked);
    }
    Err(Fail::not_taken("this request is not one that can be approved"))
}

fn not_pending(interaction: &Interaction) -> Fail {
    let how = match request::closed(interaction) {
        Some(closed) => format!("it was closed: {closed}"),
        None => format!("it is {}", request::status(interaction.status)),
    };
    Fail::not_taken(format!("the request is not pending any more; {how}"))
        .hint("`holdpoint inbox` lists what is pending")
}

/// Shows a request on the terminal, whole.
pub(crate) fn show(asked: &Asked) {
    let stderr = std::io::stderr();
    term::say(&asked.shown(Style::of(&stderr), term::width_of(&stderr)));
}

/// Shows what the arguments were changed to, whole.
pub(crate) fn show_edited(asked: &Asked, edited: &str) -> Result<()> {
    let stderr = std::io::stderr();
    let (style, width) = (Style::of(&stderr), term::width_of(&stderr));
    term::say(&edit::shown(&asked.tool_name, &asked.arguments, edited, style, width)?);
    Ok(())
}

/// What the editor made of the arguments, if it changed anything.
pub(crate) fn edited_in(editor: &str, asked: &Asked) -> Result<String> {
    let edited = edit::in_editor(editor, &asked.arguments)?;
    let unchanged = edit::in_editor_form(&asked.arguments) == edited;
    if unchanged || edited.trim().is_empty() {
        let why = if unchanged { "nothing was changed" } else { "everything was taken out" };
        return Err(Fail::not_taken(format!("{why}; nothing was decided")));
    }
    Ok(edited)
}

/// Has the person type the whole word. Nothing is prefilled, what was typed before the question does not count, and
/// Enter alone is a no.
async fn confirm(keyboard: &mut Keyboard, what: &str) -> Result<()> {
    keyboard.forget();
    term::ask(&format!("Type `approve` to {what}; anything else leaves it pending: "));
    match keyboard.line().await.as_deref() {
        Some("approve") => Ok(()),
        Some(_) | None => Err(Fail::not_taken("nothing was decided; the request is still pending")),
    }
}

async fn send(client: &Client, id: RequestId, decision: &DecisionRequest) -> Result<()> {
    match client.decide(id, decision).await? {
        Decided::Taken => {
            term::out(&format!("{} {id}", decision.decision.as_str()));
            Ok(())
        }
        Decided::Vote => {
            term::out(&format!("{} {id}", decision.decision.as_str()));
            term::say("your vote is stored; others are needed before the call runs");
            Ok(())
        }
        Decided::Refused(refusal) => Err(refusal.fail()),
    }
}

/// `show`.
pub(crate) async fn show_one(args: Show) -> Result<()> {
    let interaction = access::client(&args.one.at.server)?.interaction(args.one.id).await?;
    if args.json {
        let json = serde_json::to_string(&interaction)
            .map_err(|error| Fail::new(format!("the request cannot be written: {error}")))?;
        term::out(&json_line(&json));
        return Ok(());
    }
    if interaction.kind == InteractionKind::Question {
        // Questions have no rendering of their own: what was asked, as it was asked.
        term::out(&line(interaction.request.get()));
        term::out(request::status(interaction.status));
        return Ok(());
    }
    let stdout = std::io::stdout();
    let asked = Asked::read(interaction.request.get())?;
    term::out(asked.shown(Style::of(&stdout), term::width_of(&stdout)).trim_end_matches('\n'));
    let how = request::closed(&interaction).map(|closed| format!(": {closed}")).unwrap_or_default();
    term::out(&format!("{}{how}", request::status(interaction.status)));
    if interaction.status == InteractionStatus::Pending {
        if let Some(so_far) = request::so_far(&interaction) {
            term::out(&so_far);
        }
        let words: Vec<_> = asked.decisions.iter().map(|word| word.as_str()).collect();
        term::say(&format!("it takes: {}", line(&words.join(", "))));
    }
    Ok(())
}
