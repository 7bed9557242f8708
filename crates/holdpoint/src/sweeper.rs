//! What happens by itself: deadlines pass, and runs that nobody carries on are taken up.

use std::time::Duration;

use holdpoint_protocol::TenantId;
use holdpoint_store::{Context, Owner};
use tokio::time::Instant;

use crate::Runtime;
use crate::hand::Hand;

/// Requests expired, and runs looked at, in one go.
const BATCH: usize = 500;
/// The longest time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// The same when there were as many runs to take up as there was room for: perhaps there are more.
const EVERY_FULL: Duration = Duration::from_millis(100);
/// The same where other instances leave runs behind: one that stops is not waited for.
const EVERY_SHARED: Duration = Duration::from_millis(400);

/// The first pause before a deadline that has come is looked at again; it doubles while one stays that is not dealt with.
const OVERDUE_PAUSE: Duration = Duration::from_millis(20);

/// Looks at deadlines and at runs without an owner until the runtime stops.
pub(crate) async fn sweep(runtime: Runtime, tenants: Vec<TenantId>) {
    // What ran out while nothing was running is closed before anything is carried on.
    deadlines(&runtime).await;
    let mut hand = Hand::default();
    let mut full = take_up(&runtime, &mut hand).await;
    for tenant in tenants {
        let cx = Context { tenant, actor: crate::runtime::local().actor };
        runtime.ask_handlers_again(&cx).await;
    }
    let rt = &runtime.inner;
    rt.handling.looked();
    let mut overdue = OVERDUE_PAUSE;
    loop {
        tokio::select! {
            () = tokio::time::sleep(until_deadline(&runtime, &mut overdue).await.min(longest(full))) => {}
            () = rt.deadlines.notified() => continue,
            () = rt.shutdown.cancelled() => return,
        }
        if runtime.is_stopping() || rt.store.term().is_none() {
            continue;
        }
        deadlines(&runtime).await;
        full = take_up(&runtime, &mut hand).await;
        if !full {
            adopt(&runtime, &mut hand).await;
        }
    }
}

fn longest(full: bool) -> Duration {
    if full { EVERY_FULL } else { EVERY }
}

/// Runs that this instance owns and nobody here drives: the answer of the statement that took them was lost. Between a
/// taking and its driver there is a moment, so only one that was seen so before is taken up.
///
/// One that cannot be read looks the same, and is tried less and less often.
async fn adopt(runtime: &Runtime, hand: &mut Hand) {
    let rt = &runtime.inner;
    // As many more than are driven here: else those could be all that is looked at.
    let Ok(owned) = rt.store.owned(rt.drivers.len() + BATCH).await else { return };
    let undriven: Vec<_> = owned.into_iter().filter(|taken| !rt.drivers.has(taken.run)).collect();
    let before = std::mem::replace(&mut hand.undriven, undriven.iter().map(|taken| taken.run).collect());
    hand.again_only_undriven();
    let now = Instant::now();
    let mut room = hand.room(now, |run| rt.drivers.has(run));
    for taken in undriven {
        if room > 0 && before.contains(&taken.run) && hand.tries(taken.run, now) {
            tracing::warn!(run = %taken.run, "taking up a run that was taken without an answer");
            room -= 1;
            hand.take(taken.run, now);
            rt.carry_on(taken.cx, taken.run, Owner::Taken);
        }
    }
}

/// How long until the next deadline or reminder, at most until the next look.
async fn until_deadline(runtime: &Runtime, overdue: &mut Duration) -> Duration {
    let store = &runtime.inner.store;
    let every = if store.is_shared() { EVERY_SHARED } else { EVERY };
    let (Ok(Some(deadline)), Ok(now)) = (store.next_deadline().await, store.now().await) else {
        return every;
    };
    let ms = deadline.as_millisecond().saturating_sub(now.as_millisecond());
    match u64::try_from(ms) {
        Ok(ms) if ms > 0 => {
            *overdue = OVERDUE_PAUSE;
            Duration::from_millis(ms).min(every)
        }
        // It came this moment, or it could not be dealt with here: then trying all the time does not help.
        Ok(_) | Err(_) => {
            let pause = *overdue;
            *overdue = (pause * 2).min(every);
            pause
        }
    }
}

/// What time does to open requests: they expire, a rule is asked about them, people are reminded of them.
async fn deadlines(runtime: &Runtime) {
    expire(runtime).await;
    ask_presets(runtime).await;
    remind(runtime).await;
}

async fn expire(runtime: &Runtime) {
    let rt = &runtime.inner;
    loop {
        let noted = match rt.store.expire_due(BATCH).await {
            Ok(noted) => noted,
            Err(error) => {
                return tracing::warn!(%error, "deadlines could not be looked at; nothing is approved by that");
            }
        };
        let all = noted.len() < BATCH;
        for noted in noted {
            rt.noted_by_run(noted).await;
        }
        if all {
            return;
        }
    }
}

async fn ask_presets(runtime: &Runtime) {
    let rt = &runtime.inner;
    loop {
        let due = match rt.store.presets_due(BATCH).await {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "presets could not be asked; nothing is released"),
        };
        let all = due.len() < BATCH;
        let mut closed = 0;
        for due in due {
            // One that cannot be looked at now stays as it is: nobody can decide it, and nothing runs.
            match rt.ask_preset(&due).await {
                Ok(Some(noted)) => {
                    closed += 1;
                    rt.noted_by_run(noted).await;
                }
                Ok(None) => closed += 1,
                Err(error) => {
                    let request = due.request;
                    tracing::warn!(%request, %error, "a preset could not be asked; nothing is released");
                    if error.passes() {
                        return;
                    }
                }
            }
        }
        if all || closed == 0 {
            return;
        }
    }
}

async fn remind(runtime: &Runtime) {
    let rt = &runtime.inner;
    loop {
        let noted = match rt.store.remind_due(BATCH).await {
            Ok(noted) => noted,
            Err(error) => return tracing::warn!(%error, "nobody could be reminded of what is open"),
        };
        let all = noted.len() < BATCH;
        for noted in noted {
            tracing::info!(run = %noted.run, request = ?noted.event.body.request(), "reminding of an open request");
            rt.noted_by_run(noted).await;
        }
        if all {
            return;
        }
    }
}

/// Takes up as many as there is room for. True when there may be more.
async fn take_up(runtime: &Runtime, hand: &mut Hand) -> bool {
    let rt = &runtime.inner;
    let now = Instant::now();
    let room = hand.room(now, |run| rt.drivers.has(run));
    if room == 0 {
        return false;
    }
    let taken = match rt.store.recover(room).await {
        Ok(taken) => taken,
        Err(error) => {
            tracing::warn!(%error, "runs could not be taken up; they stay as they are");
            return false;
        }
    };
    let full = taken.len() >= room;
    for taken in taken {
        tracing::info!(run = %taken.run, crashed = taken.crashed, "taking a run up");
        hand.take(taken.run, now);
        rt.carry_on(taken.cx, taken.run, Owner::Taken);
    }
    full
}
