//! Several instances on one store: who owns which run, whose lease holds, who stands still, and the bells between them.
//!
//! The store in memory knows of one process. What many of them need beside it is kept here, and by the same rules as in
//! PostgreSQL: what others go by is the row of the lease and the clock of the database; an instance trusts its lease for less
//! than it lasts; a run of an instance whose lease has run out is taken at the next epoch; and the epoch is what refuses a
//! write of the one before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint::protocol::{InstanceId, RunId};
use holdpoint::store::{
    BELLS_MAX, Bell, Clock, Error, Hearing, MemoryStore, Noted, Owner, Result, Ring, Standing, Store,
};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

/// How long an instance is taken to live after it renewed its lease.
const LEASE: Duration = Duration::from_secs(6);
/// For how long it trusts it.
const TRUSTED: Duration = Duration::from_secs(5);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(2);

/// What all instances share, over all lives.
pub struct Cluster {
    /// The database.
    pub stored: Arc<MemoryStore>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// How long a bell takes; where none comes through, what others store is looked for.
    pub bell_ms: Option<u64>,
    owners: Mutex<BTreeMap<RunId, InstanceId>>,
    leases: Mutex<BTreeMap<InstanceId, i64>>,
    /// Of each run the highest epoch at which its driver has written, and whose that is.
    epochs: Mutex<BTreeMap<RunId, (u64, InstanceId)>>,
    wrong: Mutex<Vec<String>>,
}

/// One instance, for as long as it lives.
pub struct Instance {
    /// Made new at every start.
    pub id: InstanceId,
    cluster: Arc<Cluster>,
    /// Whether there are others: else nothing here but its death matters.
    many: bool,
    stands_until: Mutex<Option<Instant>>,
    dead: AtomicBool,
    /// How many of them live, and what is rung when none does.
    living: Arc<(AtomicUsize, Notify)>,
    trusted_until: Mutex<Instant>,
    term: AtomicU64,
    bells: broadcast::Sender<Bell>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Around this database.
    pub fn new(stored: Arc<MemoryStore>, clock: Arc<dyn Clock>, bell_ms: Option<u64>) -> Self {
        Self {
            stored,
            clock,
            bell_ms,
            owners: Mutex::default(),
            leases: Mutex::default(),
            epochs: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// What was accepted that must not be.
    pub fn wrong(&self) -> Vec<String> {
        lock(&self.wrong).clone()
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    fn lives(&self, instance: InstanceId) -> bool {
        lock(&self.leases).get(&instance).is_some_and(|expires_at| *expires_at > self.now())
    }

    /// The only process there is has died: all its runs are left behind, and found at once.
    pub fn process_died(&self) {
        self.stored.process_died();
        lock(&self.owners).clear();
    }

    /// What instances left behind whose lease has run out has no owner any more.
    fn bury(&self) {
        let mut owners = lock(&self.owners);
        owners.retain(|run, owner| {
            let lives = self.lives(*owner);
            if !lives {
                self.stored.owner_died(*run);
            }
            lives
        });
    }
}

impl Instance {
    /// A new instance of this cluster, one of as many as `living` says.
    pub fn new(
        cluster: &Arc<Cluster>,
        many: bool,
        n: u128,
        living: &Arc<(AtomicUsize, Notify)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: InstanceId(uuid::Uuid::from_u128(n)),
            cluster: Arc::clone(cluster),
            many,
            stands_until: Mutex::default(),
            dead: AtomicBool::new(false),
            living: Arc::clone(living),
            trusted_until: Mutex::new(Instant::now()),
            term: AtomicU64::new(0),
            bells: broadcast::channel(BELLS_MAX).0,
        })
    }

    /// Renews the lease until it dies.
    pub async fn keep_lease(self: Arc<Self>) {
        if !self.many {
            return;
        }
        loop {
            self.renew().await;
            tokio::time::sleep(RENEW).await;
        }
    }

    /// Takes the lease, or renews it.
    pub async fn renew(&self) {
        self.awake().await;
        let asked = Instant::now();
        let expires_at = self.cluster.now() + i64::try_from(LEASE.as_millis()).unwrap_or(0);
        lock(&self.cluster.leases).insert(self.id, expires_at);
        let mut trusted = lock(&self.trusted_until);
        if *trusted < asked {
            // In between, others may have been at its runs.
            self.term.fetch_add(1, Ordering::Relaxed);
        }
        *trusted = asked + TRUSTED;
    }

    /// It stands still from now on, and does not know it.
    pub fn stand_still(&self, ms: u64) {
        *lock(&self.stands_until) = Some(Instant::now() + Duration::from_millis(ms));
    }

    /// It is gone, with everything it had in hand.
    pub fn die(&self) {
        if !self.dead.swap(true, Ordering::Relaxed) && self.living.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.living.1.notify_one();
        }
    }

    /// Comes when the instance does something: not while it stands still, and never when it is dead.
    pub async fn awake(&self) {
        loop {
            if self.dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let until = *lock(&self.stands_until);
            match until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                Some(_) | None => return,
            }
        }
    }

    /// The term of the lease, where it is trusted.
    pub fn term(&self) -> Option<u64> {
        if !self.many {
            return Some(0);
        }
        (Instant::now() < *lock(&self.trusted_until)).then(|| self.term.load(Ordering::Relaxed))
    }

    /// Nothing begins here without the lease.
    pub fn held(&self) -> Result<()> {
        match self.term() {
            Some(_) => Ok(()),
            None => Err(Error::Unavailable("the lease is not known to hold".into())),
        }
    }

    /// Whether there are others.
    pub fn is_shared(&self) -> bool {
        self.many
    }

    /// How it stands with the others.
    pub fn standing(&self) -> Option<Standing> {
        self.many.then(|| Standing {
            hearing: if self.cluster.bell_ms.is_some() { Hearing::Proven } else { Hearing::Deaf },
            heard: 0,
            rung: 0,
            lease_held: self.term().is_some(),
            lease_left: lock(&self.trusted_until).saturating_duration_since(Instant::now()),
            lease_lapses: 0,
            others: 1,
            waiting: 0,
            refused: 0,
        })
    }

    /// What is rung here.
    pub fn bells(&self) -> Option<broadcast::Receiver<Bell>> {
        self.many.then(|| self.bells.subscribe())
    }

    /// Others stored something of a run: this instance hears of it some time later.
    pub fn rung(self: &Arc<Self>, run: RunId) {
        let Some(ms) = self.cluster.bell_ms else { return };
        let me = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            me.awake().await;
            // Nobody may listen yet: a bell may be lost.
            let _ = me.bells.send(Bell::Run(Ring { run, after: 0, requests: Vec::new() }));
        });
    }

    /// What dead instances left behind may be taken now.
    pub fn bury(&self) {
        if self.many {
            self.cluster.bury();
        }
    }

    /// It owns this run from now on.
    pub fn owns(&self, run: RunId) {
        lock(&self.cluster.owners).insert(run, self.id);
    }

    /// A step of it was accepted at this epoch. An epoch is one instance's, and nobody writes at one that is over.
    pub fn wrote(&self, run: RunId, epoch: u64) {
        let mut epochs = lock(&self.cluster.epochs);
        let (last, by) = *epochs.entry(run).or_insert((epoch, self.id));
        if epoch < last || (epoch == last && by != self.id) {
            let what = format!("fencing: {} wrote at epoch {epoch}, after {by} had at {last}", self.id);
            lock(&self.cluster.wrong).push(what);
        }
        if epoch > last {
            epochs.insert(run, (epoch, self.id));
        }
    }

    /// It took a run at this epoch, which is a new one.
    pub fn took(&self, run: RunId, epoch: u64) {
        self.owns(run);
        self.wrote(run, epoch);
    }

    /// Whether a run is its own.
    pub fn has(&self, run: RunId) -> bool {
        lock(&self.cluster.owners).get(&run) == Some(&self.id)
    }

    /// It does not own this run any more - if nobody does.
    pub async fn lets_go(&self, run: RunId) {
        let owned = self.cluster.stored.owned(usize::MAX).await.unwrap_or_default();
        if !owned.iter().any(|taken| taken.run == run) {
            lock(&self.cluster.owners).remove(&run);
        }
    }

    /// Who carries a run on after a fact, as this instance sees it.
    pub fn sees(&self, mut noted: Noted) -> Noted {
        match noted.owner {
            Owner::Taken => self.owns(noted.run),
            Owner::Here => {
                if let Some(owner) = lock(&self.cluster.owners).get(&noted.run)
                    && *owner != self.id
                {
                    noted.owner = Owner::Elsewhere(*owner);
                }
            }
            Owner::Elsewhere(_) | Owner::Nobody | Owner::Newer => {}
        }
        noted
    }
}
