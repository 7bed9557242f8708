//! Ringing the other instances. What is to be rung is gathered and sent a few milliseconds later, all of it in one statement on
//! a connection that does nothing else, after - and never in - the transactions it is about: a transaction that notifies
//! holds a lock of the whole database until it is on the disk, and one a few milliseconds is what a database bears.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_protocol::{InstanceId, RequestId, RunId};
use tokio::sync::{Notify, broadcast, watch};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::dial::{ANSWER_MAX, Dialer, answered, said};
use super::lease::Lease;
use super::rows::Done;
use crate::{BELLS_MAX, Bell, Hearing, Ring};

/// How long bells are gathered before they are sent together.
const GATHER: Duration = Duration::from_millis(5);
/// Runs that are rung for in one go. Beyond that everybody is told to look at everything.
const RUNS_MAX: usize = 512;
/// Requests that are named in one bell: a payload holds 8,000 bytes, this many take half of it. Beyond that, everything.
const REQUESTS_MAX: usize = 100;
/// The first and the longest pause before a connection is made again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Where all instances listen.
pub(super) const CHANNEL: &str = "holdpoint";
/// Everything.
const EVERYTHING: &str = "*";

/// What there is to ring, what is heard, and whether anything is.
pub(super) struct Bells {
    /// In what this instance rings, so that it passes over its own.
    tag: String,
    own_channel: String,
    lease: Arc<Lease>,
    to_ring: Mutex<ToRing>,
    ready: Notify,
    heard: broadcast::Sender<Bell>,
    hearing: AtomicU8,
    heard_count: AtomicU64,
    rung_count: AtomicU64,
    /// The last trial bell that was sent, and the last that came back.
    sent: watch::Sender<u64>,
    came: watch::Sender<u64>,
}

#[derive(Default)]
struct ToRing {
    runs: HashMap<RunId, (u64, Vec<RequestId>)>,
    everything: bool,
    trial: Option<u64>,
}

impl Bells {
    pub(super) fn new(instance: InstanceId, lease: Arc<Lease>) -> Self {
        let name = instance.0.simple().to_string();
        Self {
            // The end of it is random; its beginning is the time.
            tag: name.chars().skip(24).collect(),
            own_channel: format!("{CHANNEL}_{name}"),
            lease,
            to_ring: Mutex::default(),
            ready: Notify::new(),
            heard: broadcast::channel(BELLS_MAX).0,
            hearing: AtomicU8::new(0),
            heard_count: AtomicU64::new(0),
            rung_count: AtomicU64::new(0),
            sent: watch::Sender::new(0),
            came: watch::Sender::new(0),
        }
    }

    pub(super) fn own_channel(&self) -> &str {
        &self.own_channel
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Bell> {
        self.heard.subscribe()
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (self.heard_count.load(Ordering::Relaxed), self.rung_count.load(Ordering::Relaxed))
    }

    pub(super) fn hearing(&self) -> Hearing {
        match self.hearing.load(Ordering::Relaxed) {
            1 => Hearing::Proven,
            2 => Hearing::PollOnly,
            _ => Hearing::Deaf,
        }
    }

    /// Whoever went by what it was before looks again, and from then on as often as it must.
    pub(super) fn set_hearing(&self, hearing: Hearing) {
        let code = match hearing {
            Hearing::Deaf => 0,
            Hearing::Proven => 1,
            Hearing::PollOnly => 2,
        };
        if self.hearing.swap(code, Ordering::Relaxed) != code {
            self.tell(Bell::Everything);
        }
    }

    /// Others may have taken this instance for gone, and not rung it.
    pub(super) fn missed(&self) {
        if self.hearing() == Hearing::Proven {
            self.set_hearing(Hearing::Deaf);
        }
        self.tell(Bell::Everything);
    }

    pub(super) fn until_known(&self) -> Duration {
        self.lease.until_known()
    }

    /// Something of a run is durable: its events after this number are new. Where nobody else is there, nobody is rung.
    pub(super) fn ring(&self, run: RunId, after: u64, requests: impl IntoIterator<Item = RequestId>) {
        if self.lease.others() == 0 {
            return;
        }
        let mut to_ring = self.lock();
        if to_ring.everything {
            return;
        }
        let place = to_ring.runs.entry(run).or_insert((after, Vec::new()));
        place.0 = place.0.min(after);
        place.1.extend(requests);
        if place.1.len() > REQUESTS_MAX || to_ring.runs.len() > RUNS_MAX {
            to_ring.all();
        }
        drop(to_ring);
        self.ready.notify_one();
    }

    /// Sends itself a bell, and waits for it.
    pub(super) async fn trial(&self, within: Duration) -> Trial {
        let number = *self.came.borrow() + 1;
        let number = number.max(*self.sent.borrow() + 1);
        self.lock().trial = Some(number);
        self.ready.notify_one();
        let (mut sent, mut came) = (self.sent.subscribe(), self.came.subscribe());
        let back = came.wait_for(|came| *came >= number);
        match tokio::time::timeout(within, back).await {
            Ok(_) => Trial::Heard,
            Err(_elapsed) if *sent.borrow_and_update() >= number => Trial::Lost,
            Err(_elapsed) => Trial::NotSent,
        }
    }

    /// A notification came.
    pub(super) fn came(&self, payload: &str) {
        if let Some(number) = payload.strip_prefix('?').and_then(|number| number.parse().ok()) {
            self.came.send_replace(number);
            return;
        }
        let Some((tag, what)) = payload.split_once(' ') else { return };
        if tag == self.tag {
            return;
        }
        self.heard_count.fetch_add(1, Ordering::Relaxed);
        // What a newer version rings and this one cannot read means at least that there is something to look at.
        self.tell(read(what).map_or(Bell::Everything, Bell::Run));
    }

    fn tell(&self, bell: Bell) {
        // Nobody listening is no error.
        let _ = self.heard.send(bell);
    }

    fn take(&self) -> ToRing {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, ToRing> {
        self.to_ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// It came back.
    Heard,
    /// It was sent, and did not come back.
    Lost,
    /// It could not be sent.
    NotSent,
}

impl ToRing {
    fn all(&mut self) {
        self.runs = HashMap::new();
        self.everything = true;
    }

    fn is_empty(&self) -> bool {
        self.runs.is_empty() && !self.everything && self.trial.is_none()
    }
}

fn write(tag: &str, run: RunId, after: u64, requests: &[RequestId]) -> String {
    let mut text = format!("{tag} {} {after}", run.0.simple());
    for request in requests {
        text.push(' ');
        text.push_str(request.0.simple().encode_lower(&mut uuid::Uuid::encode_buffer()));
    }
    text
}

fn read(text: &str) -> Option<Ring> {
    let mut words = text.split(' ');
    let run = RunId(words.next()?.parse().ok()?);
    let after = words.next()?.parse().ok()?;
    let requests = words.map(|word| word.parse().ok().map(RequestId)).collect::<Option<Vec<_>>>()?;
    Some(Ring { run, after, requests })
}

/// Sends what there is to ring, until it is stopped. What could not be sent is rung as everything, once it can.
pub(super) async fn send(bells: Arc<Bells>, dialer: Dialer) {
    let mut client: Option<Client> = None;
    let mut pause = RETRY_FIRST;
    loop {
        if bells.lock().is_empty() {
            bells.ready.notified().await;
            continue;
        }
        let what = bells.take();
        match send_once(&bells, &dialer, &mut client, &what).await {
            Ok(()) => {
                pause = RETRY_FIRST;
                tokio::time::sleep(GATHER).await;
            }
            Err(fault) => {
                tracing::debug!(
                    error = said(fault),
                    "the other instances could not be rung; they look by themselves"
                );
                client = None;
                {
                    let mut to_ring = bells.lock();
                    if what.everything || !what.runs.is_empty() {
                        to_ring.all();
                    }
                    to_ring.trial = to_ring.trial.or(what.trial);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }
}

async fn send_once(bells: &Bells, dialer: &Dialer, client: &mut Option<Client>, what: &ToRing) -> Done<()> {
    let connected = match client.take().filter(|client| !client.is_closed()) {
        Some(client) => client,
        None => dialer.dial().await?.client,
    };
    let mut payloads: Vec<String> =
        what.runs.iter().map(|(run, (after, requests))| write(&bells.tag, *run, *after, requests)).collect();
    if what.everything {
        payloads.push(format!("{} {EVERYTHING}", bells.tag));
    }
    let mut channels = vec![CHANNEL; payloads.len()];
    if let Some(trial) = what.trial {
        channels.push(&bells.own_channel);
        payloads.push(format!("?{trial}"));
    }
    let sql = "SELECT pg_notify(channel, payload) FROM unnest($1, $2) AS bells (channel, payload)";
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&channels, Type::TEXT_ARRAY), (&payloads, Type::TEXT_ARRAY)];
    answered(connected.query_typed(sql, &parameters), ANSWER_MAX).await?;
    bells.rung_count.fetch_add(what.runs.len() as u64 + u64::from(what.everything), Ordering::Relaxed);
    if let Some(trial) = what.trial {
        bells.sent.send_replace(trial);
    }
    *client = Some(connected);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_read_as_it_was_rung_and_fits_into_a_notification() {
        let run = RunId(uuid::Uuid::now_v7());
        let requests: Vec<_> = (0..REQUESTS_MAX).map(|_| RequestId(uuid::Uuid::now_v7())).collect();
        let text = write("0123abcd", run, u64::MAX, &requests);
        assert!(text.len() < 8_000, "{}", text.len());
        let (tag, what) = text.split_once(' ').unwrap();
        assert_eq!(tag, "0123abcd");
        assert_eq!(read(what), Some(Ring { run, after: u64::MAX, requests }));
    }

    #[test]
    fn what_cannot_be_read_is_no_bell_of_a_run() {
        for text in ["", "*", "x", "00000000000000000000000000000000", "00000000000000000000000000000000 x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    fn bells(others: bool) -> Bells {
        let instance = InstanceId(uuid::Uuid::now_v7());
        let lease = Arc::new(Lease::new(instance, None));
        lease.pretend_others(u64::from(others));
        Bells::new(instance, lease)
    }

    #[test]
    fn bells_of_one_run_become_one_and_too_many_become_one_for_everything() {
        let bells = bells(true);
        let (run, first, second) =
            (RunId(uuid::Uuid::now_v7()), RequestId(uuid::Uuid::now_v7()), RequestId(uuid::Uuid::now_v7()));
        bells.ring(run, 7, [first]);
        bells.ring(run, 5, []);
        bells.ring(run, 9, [second]);
        let taken = bells.take();
        assert_eq!(taken.runs.get(&run), Some(&(5, vec![first, second])));
        for _ in 0..=RUNS_MAX {
            bells.ring(RunId(uuid::Uuid::now_v7()), 0, []);
        }
        let taken = bells.take();
        assert!(taken.everything && taken.runs.is_empty());
        bells.ring(run, 0, (0..=REQUESTS_MAX).map(|_| RequestId(uuid::Uuid::now_v7())));
        assert!(bells.take().everything);
    }

    #[test]
    fn where_nobody_else_is_nobody_is_rung() {
        let bells = bells(false);
        bells.ring(RunId(uuid::Uuid::now_v7()), 0, []);
        assert!(bells.take().is_empty());
    }

    #[test]
    fn an_instance_passes_over_its_own_bells() {
        let bells = bells(true);
        let mut heard = bells.listen();
        let run = RunId(uuid::Uuid::now_v7());
        bells.came(&write(&bells.tag, run, 1, &[]));
        bells.came(&write("ffffffff", run, 1, &[]));
        bells.came("ffffffff *");
        bells.came("ffffffff of a newer version");
        assert_eq!(heard.try_recv().unwrap(), Bell::Run(Ring { run, after: 1, requests: vec![] }));
        assert_eq!(heard.try_recv().unwrap(), Bell::Everything);
        assert_eq!(heard.try_recv().unwrap(), Bell::Everything);
        assert!(heard.try_recv().is_err());
    }
}
