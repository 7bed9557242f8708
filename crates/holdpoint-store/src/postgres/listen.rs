//! Hearing the other instances. Nothing that is heard is relied on before it is proven, again and again, that bells come
//! through: a connection can be open at this end only, and a pooler takes a LISTEN and never delivers.

use std::sync::Arc;
use std::time::Duration;

use super::bells::{Bells, CHANNEL, Trial};
use super::dial::{ANSWER_MAX, Dialer, answered, said};
use super::rows::Done;
use crate::{Error, Hearing};

/// How often a trial bell is sent.
const TRIAL_EVERY: Duration = Duration::from_secs(5);
/// How long one may take to come back.
const TRIAL_MAX: Duration = Duration::from_secs(3);
/// The first and the longest pause before the connection is made again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long it is left at looking where bells do not come through.
const RETRY_POLL_ONLY: Duration = Duration::from_secs(60);

/// Why a connection was given up.
enum Over {
    /// It broke, or the database is away.
    Broken(String),
    /// It was never of any use: the first bell was sent, and did not come.
    Unheard,
}

/// Listens until it is stopped.
pub(super) async fn listen(bells: Arc<Bells>, dialer: Dialer) {
    let mut pause = RETRY_FIRST;
    loop {
        let over = match listen_once(&bells, &dialer, &mut pause).await {
            Ok(over) => over,
            Err(fault) => Over::Broken(said(fault)),
        };
        match over {
            Over::Broken(why) => {
                if bells.hearing() == Hearing::Proven {
                    tracing::warn!(
                        error = why,
                        "the bells of other instances are not heard; looking every second until they are"
                    );
                }
                if bells.hearing() != Hearing::PollOnly {
                    bells.set_hearing(Hearing::Deaf);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
            Over::Unheard => {
                if bells.hearing() != Hearing::PollOnly {
                    tracing::warn!(
                        "LISTEN is accepted and nothing is delivered, as through a pooler in transaction mode: looking every second \
                         instead; give a direct URL of the same database for it (`database_listen_url_env`)"
                    );
                }
                bells.set_hearing(Hearing::PollOnly);
                tokio::time::sleep(RETRY_POLL_ONLY).await;
            }
        }
    }
}

async fn listen_once(bells: &Bells, dialer: &Dialer, pause: &mut Duration) -> Done<Over> {
    let mut line = tokio::time::timeout(ANSWER_MAX, dialer.dial())
        .await
        .map_err(|_elapsed| Error::Unavailable("the database cannot be connected to".into()))??;
    let sql = format!("LISTEN {CHANNEL}; LISTEN \"{}\"", bells.own_channel());
    answered(line.client.batch_execute(&sql), ANSWER_MAX).await?;
    // What was rung before the LISTEN was not heard: everybody who waits reads again, now that what follows is.
    bells.missed();
    let mut proven = false;
    let mut trial = Box::pin(bells.trial(TRIAL_MAX));
    let mut at_trial = true;
    let mut next = tokio::time::Instant::now();
    loop {
        tokio::select! {
            notice = line.notices.recv() => match notice {
                Some(payload) => bells.came(&payload),
                None => return Ok(Over::Broken("the connection broke".into())),
            },
            tried = &mut trial, if at_trial => {
                at_trial = false;
                match tried {
                    Trial::Heard => {
                        let unknown = bells.until_known();
                        if unknown.is_zero() && bells.hearing() != Hearing::Proven {
                            tracing::info!("the bells of other instances are heard");
                            bells.set_hearing(Hearing::Proven);
                        }
                        proven = true;
                        *pause = RETRY_FIRST;
                        // Until all others know of this one, they may not have rung it.
                        let wait = if unknown.is_zero() { TRIAL_EVERY } else { unknown.min(TRIAL_EVERY) };
                        next = tokio::time::Instant::now() + wait;
                    }
                    Trial::Lost if !proven => return Ok(Over::Unheard),
                    Trial::Lost => return Ok(Over::Broken("a trial bell did not come back".into())),
                    Trial::NotSent => return Ok(Over::Broken("a trial bell could not be sent".into())),
                }
            },
            () = tokio::time::sleep_until(next), if !at_trial => {
                trial.set(bells.trial(TRIAL_MAX));
                at_trial = true;
            }
        }
    }
}
