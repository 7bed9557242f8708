//! `Idempotency-Key`: the same request again gets the same answer, and nothing happens twice.
//!
//! A start is tied to its key in the transaction that stores the run. Everything else that is posted can be done twice
//! without harm - a decision counts once, a cancel too - so there the key only keeps the answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use holdpoint::store::{IdempotencyKey, KeyUse};
use sha2::{Digest, Sha256};

use crate::IDEMPOTENCY_KEY_MAX_BYTES;
use crate::answer::Answer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::routes::Call;

/// How often a request looks whether its twin has been answered, and how long a pause it makes.
const TWIN_LOOKS: u32 = 80;
const TWIN_PAUSE: Duration = Duration::from_millis(25);

/// The key of a request, if it has one. It is good for this route and exactly this path and body.
pub(crate) fn key_of(call: &Call) -> Result<Option<IdempotencyKey>, Refusal> {
    let mut keys = call.headers.get_all("idempotency-key").iter();
    let key = match (keys.next(), keys.next()) {
        (None, _) => return Ok(None),
        (Some(key), None) => key.to_str().unwrap_or_default(),
        (Some(_), Some(_)) => "",
    };
    if key.is_empty() || key.len() > IDEMPOTENCY_KEY_MAX_BYTES {
        let detail = format!(
            "`Idempotency-Key` is one text of 1 to {IDEMPOTENCY_KEY_MAX_BYTES} visible ASCII characters"
        );
        return Err(Refusal::bad_request("bad_idempotency_key", detail));
    }
    let mut digest = Sha256::new();
    for part in [call.id.as_bytes(), &call.body] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    Ok(Some(IdempotencyKey {
        scope: format!("{} {}", call.endpoint.method(), call.endpoint.path()),
        key: key.to_owned(),
        body_digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
    }))
}

/// Does it, or gives the answer that was given before. A refusal is an answer too; a failure of ours is not, and the
/// same request may be sent again.
pub(crate) async fn once<W>(
    app: &Arc<App>,
    call: &Call,
    what: impl FnOnce(Arc<App>) -> W + Send + 'static,
) -> Result<Response, Refusal>
where
    W: Future<Output = Result<Answer, Refusal>> + Send + 'static,
{
    let key = key_of(call)?;
    let answer = app
        .whole(move |app| async move {
            let Some(key) = key else { return what(app).await };
            if let Some(answer) = answered_before(&app, &key).await? {
                return Ok(answer);
            }
            let answer = match what(Arc::clone(&app)).await {
                Ok(answer) => answer,
                Err(refusal) if refusal.status().is_client_error() => refusal.into_answer(),
                Err(refusal) => return Err(refusal),
            };
            if !answer.status().is_server_error()
                && let Err(error) = app.store().answer(&app.cx, &key, &answer.to_stored()).await
            {
                // What was done is done and stored; asked again, it says so.
                tracing::warn!(%error, "an answer could not be kept under its idempotency key");
            }
            Ok(answer)
        })
        .await?;
    Ok(answer.into_response())
}

async fn answered_before(app: &App, key: &IdempotencyKey) -> Result<Option<Answer>, Refusal> {
    for _ in 0..TWIN_LOOKS {
        match app.store().remember(&app.cx, key).await? {
            KeyUse::New | KeyUse::Run(_) => return Ok(None),
            KeyUse::Answered(stored) => return Ok(Some(Answer::from_stored(stored))),
            KeyUse::Reused => return Err(Refusal::key_reused()),
            KeyUse::Pending => tokio::time::sleep(TWIN_PAUSE).await,
        }
    }
    // Whoever had it did not come to an answer: its process died, or the store was away. It is safe to do it again.
    Ok(None)
}
