//! Deciding: read exactly, bound to what was shown, said back in the words of the route.
//!
//! There are two routes. The strict one speaks problem+json and takes nothing for granted. `/chat/approval` is the one
//! of the system our users come from: a word it does not know declines, and what was not accepted is said in the body.

use std::sync::Arc;

use holdpoint::core::decision::Decision;
use holdpoint::core::digest::CallDigest;
use holdpoint::protocol::{By, DecisionWord, InteractionStatus, RawJson, RequestId, RunId, Then, Timestamp};
use holdpoint::{DecideError, Decided, Deciding};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;
use crate::strict_json::{Fields, arguments_of, text_of};

const STRICT_FIELDS: &str = "decision, digest, reason, arguments, answers, result, then, requestId";
const LENIENT_FIELDS: &str =
    "requestId (request_id), decision (action), digest, reason, arguments, answers, result, then";

/// A decision as it was posted.
#[derive(Debug)]
pub(super) struct Posted {
    request: RequestId,
    word: DecisionWord,
    digest: Option<CallDigest>,
    reason: Option<String>,
    arguments: Option<String>,
    result: Option<RawJson>,
    then: Then,
}

/// What was posted to `/chat/approval`: a decision, or one on a request that there cannot be.
pub(super) enum Lenient {
    Posted(Posted),
    NoSuchRequest(String),
}

/// What both routes say of a decision that is stored.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted<'a> {
    accepted: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
    request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    decision: DecisionWord,
    by: &'a By,
    at: Timestamp,
}

/// What `/chat/approval` says of one that is not.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotAccepted {
    accepted: bool,
    code: &'static str,
    request_id: String,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_status: Option<InteractionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<By>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<CallDigest>,
}

/// Reads `POST /v1/interactions/{requestId}/decision`.
pub(super) fn read_strict(call: &Call) -> Result<Posted, Refusal> {
    let request = request_id(&call.id)?;
    let mut fields = Fields::read(&call.body)?;
    if let Some(again) = fields.text("requestId")?
        && again != call.id
    {
        let detail = "the request in the body is not the one in the path";
        return Err(Refusal::bad_request("wrong_request", detail));
    }
    let word = fields.take("decision").ok_or_else(no_decision)?;
    let word = text_of("decision", word)?;
    let word = exact_word(&word).ok_or_else(|| {
        let detail =
            format!("this is not a decision: use one of the request's decisions[], exactly; not {word:.32?}");
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "wrong_decision", detail)
    })?;
    let posted = read_rest(fields, request, word, STRICT_FIELDS)?;
    let releases = matches!(word, DecisionWord::Approve | DecisionWord::ApproveWith);
    if releases && posted.digest.is_none() {
        let detail = "an approve needs `digest`: that of the request as you were shown it";
        return Err(Refusal::bad_request("digest_required", detail));
    }
    Ok(posted)
}

/// Reads `POST /chat/approval`.
pub(super) fn read_lenient(call: &Call) -> Result<Lenient, Refusal> {
    let mut fields = Fields::read(&call.body)?;
    let request = fields.take_either("requestId", "request_id")?.ok_or_else(|| {
        Refusal::bad_request("no_request", "`requestId` says which request is decided; it is missing")
    })?;
    let request = text_of("requestId", request)?;
    let word = fields.take_either("decision", "action")?.ok_or_else(no_decision)?;
    let word = lenient_word(&text_of("decision", word)?);
    match request.parse() {
        Ok(id) => read_rest(fields, id, word, LENIENT_FIELDS).map(Lenient::Posted),
        Err(_) => Ok(Lenient::NoSuchRequest(request.chars().take(64).collect())),
    }
}

fn read_rest(
    mut fields: Fields<'_>,
    request: RequestId,
    word: DecisionWord,
    known: &str,
) -> Result<Posted, Refusal> {
    let digest = fields.text("digest")?.map(|text| digest_of(&text));
    let reason = fields.text("reason")?;
    let arguments = fields.take("arguments").map(|raw| arguments_of("arguments", raw)).transpose()?;
    let result = result_of(&mut fields, word)?;
    let then = then_of(&mut fields, word)?;
    fields.finish(known)?;
    Ok(Posted { request, word, digest, reason, arguments, result, then })
}

/// `answers` goes with `answer` and `result` with `ran`, and neither with anything else.
fn result_of(fields: &mut Fields<'_>, word: DecisionWord) -> Result<Option<RawJson>, Refusal> {
    let (answers, result) = (fields.take("answers"), fields.take("result"));
    let given = match word {
        DecisionWord::Answer if result.is_none() => answers,
        DecisionWord::Ran if answers.is_none() => result,
        DecisionWord::Approve
        | DecisionWord::ApproveWith
        | DecisionWord::Decline
        | DecisionWord::Feedback
        | DecisionWord::Leave
            if answers.is_none() && result.is_none() =>
        {
            None
        }
        DecisionWord::Answer
        | DecisionWord::Ran
        | DecisionWord::Approve
        | DecisionWord::ApproveWith
        | DecisionWord::Decline
        | DecisionWord::Feedback
        | DecisionWord::Leave => {
            let detail = "`answers` goes with `answer`, `result` with `ran`; nothing was decided";
            return Err(Refusal::bad_request("wrong_companion", detail));
        }
    };
    Ok(given.map(RawValue::to_owned))
}

fn then_of(fields: &mut Fields<'_>, word: DecisionWord) -> Result<Then, Refusal> {
    let then = match fields.text("then")?.as_deref() {
        None => return Ok(Then::Continue),
        Some("continue") => Then::Continue,
        Some("stop") => Then::Stop,
        Some(_) => {
            return Err(Refusal::bad_request("bad_then", "`then` is `continue` or `stop`"));
        }
    };
    if then == Then::Stop && !matches!(word, DecisionWord::Decline | DecisionWord::Feedback) {
        let detail = "`then: stop` goes with `decline` and `feedback`; nothing was decided";
        return Err(Refusal::bad_request("wrong_companion", detail));
    }
    Ok(then)
}

fn no_decision() -> Refusal {
    Refusal::bad_request("no_decision", "`decision` says what is decided; it is missing")
}

/// What is no id names no request.
fn request_id(text: &str) -> Result<RequestId, Refusal> {
    text.parse().map_err(|_| Refusal::not_found("there is no such request"))
}

/// A text that is no digest of ours stands for one that cannot be: the decision is refused as stale, on record, and not
/// taken for one without a digest.
fn digest_of(text: &str) -> CallDigest {
    let parsed = text.parse();
    parsed.unwrap_or_else(|_| {
        let hex: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        match format!("sha256:{hex}").parse() {
            Ok(digest) => digest,
            Err(_) => unreachable!("64 lower-case digits are a digest"),
        }
    })
}

fn exact_word(text: &str) -> Option<DecisionWord> {
    [
        DecisionWord::Approve,
        DecisionWord::ApproveWith,
        DecisionWord::Decline,
        DecisionWord::Feedback,
        DecisionWord::Answer,
        DecisionWord::Ran,
        DecisionWord::Leave,
    ]
    .into_iter()
    .find(|word| word.as_str() == text)
}

/// The other names of two words; and whatever else a client says, it is not an approve.
fn lenient_word(text: &str) -> DecisionWord {
    match text {
        "approve_and_modify" | "modify" => DecisionWord::ApproveWith,
        other => exact_word(other).unwrap_or(DecisionWord::Decline),
    }
}

/// Decides, and says it in the words of the strict route.
pub(super) async fn decide_strict(app: Arc<App>, posted: Posted) -> Result<Answer, Refusal> {
    let (request, word) = (posted.request, posted.word);
    let decided = decide(&app, posted).await;
    count(&app, word, &decided);
    let decided = decided?;
    Ok(accepted(request, &decided))
}

/// Decides, and says it in the words of `/chat/approval`.
pub(super) async fn decide_lenient(app: Arc<App>, lenient: Lenient) -> Result<Answer, Refusal> {
    let posted = match lenient {
        Lenient::Posted(posted) => posted,
        Lenient::NoSuchRequest(id) => return not_accepted(id, DecideError::NotFound),
    };
    let (request, word) = (posted.request, posted.word);
    let decided = decide(&app, posted).await;
    count(&app, word, &decided);
    match decided {
        Ok(decided) => Ok(accepted(request, &decided)),
        Err(error) => not_accepted(request.to_string(), error),
    }
}

async fn decide(app: &App, posted: Posted) -> Result<Decided, DecideError> {
    let deciding = Deciding {
        request: posted.request,
        word: posted.word,
        by: app.by(),
        digest: posted.digest,
        reason: posted.reason,
        arguments: posted.arguments,
        result: posted.result,
        then: posted.then,
    };
    app.runtime.decide(&app.cx, deciding).await
}

fn accepted(request: RequestId, decided: &Decided) -> Answer {
    let Decision { word, by, at, .. } = &decided.decision;
    Answer::ok(&Accepted {
        accepted: true,
        repeated: decided.repeated,
        request_id: request,
        run_id: decided.run,
        decision: *word,
        by,
        at: *at,
    })
}

/// The situations in which the request, not what was posted, is why nothing was decided. The rest is refused as on the
/// other route.
fn not_accepted(request_id: String, error: DecideError) -> Result<Answer, Refusal> {
    let detail = error.to_string();
    let plain = |code| NotAccepted {
        accepted: false,
        code,
        request_id,
        detail,
        request_status: None,
        decision: None,
        by: None,
        digest: None,
    };
    let said = match error {
        DecideError::NotFound => plain("not_found"),
        DecideError::Expired => plain("expired"),
        DecideError::NotYours => plain("not_yours"),
        DecideError::Stale { digest } => NotAccepted { digest: Some(digest), ..plain("stale_request") },
        DecideError::Conflict { status, winner } => {
            let (decision, by) = winner.map(|winner| (winner.decision, winner.by)).unzip();
            NotAccepted { request_status: Some(status), decision, by, ..plain("already_decided") }
        }
        error @ (DecideError::WrongWord { .. }
        | DecideError::Companion(_)
        | DecideError::ReasonTooLong(_)
        | DecideError::InvalidEdit(_)
        | DecideError::EditRefused { .. }
        | DecideError::Store(_)) => return Err(Refusal::from(error).with("accepted", false)),
    };
    Ok(Answer::ok(&said))
}

fn count(app: &App, word: DecisionWord, decided: &Result<Decided, DecideError>) {
    let outcome = match decided {
        Ok(decided) if decided.repeated => "repeated",
        Ok(_) => "taken",
        Err(DecideError::Conflict { .. }) => "conflict",
        Err(DecideError::Stale { .. }) => "stale",
        Err(DecideError::Expired) => "expired",
        Err(DecideError::NotYours) => "not_yours",
        Err(DecideError::NotFound) => "not_found",
        Err(DecideError::Store(_)) => "store",
        Err(
            DecideError::WrongWord { .. }
            | DecideError::Companion(_)
            | DecideError::ReasonTooLong(_)
            | DecideError::InvalidEdit(_)
            | DecideError::EditRefused { .. },
        ) => "refused",
    };
    app.metrics.decided(word.as_str(), outcome);
}
