//! People: they look at what is open, take their time, and say something - sometimes twice, sometimes nonsense.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint::protocol::{
    By, DecisionWord, Interaction, InteractionKind, InteractionStatus, RequestId, RunId, Then, Via,
};
use holdpoint::store::{InteractionFilter, MemoryStore, PageRequest, Store};
use holdpoint::{DecideError, Deciding, Runtime, local};

use crate::scenario::{Person, Says, Scenario};

/// How often people look.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After this time whoever is left over declines what is open, so that every run comes to an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What people did, over all lives of the process.
#[derive(Debug, Default)]
pub struct People {
    seen: Mutex<HashMap<RequestId, usize>>,
    acknowledged: Mutex<Vec<(RequestId, DecisionWord)>>,
}

impl People {
    /// The decisions that were acknowledged: they must never be lost.
    pub fn acknowledged(&self) -> Vec<(RequestId, DecisionWord)> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks and decides until the life ends.
    pub async fn live(self: Arc<Self>, doors: Arc<Doors>, scenario: Arc<Scenario>, run: RunId) {
        let began = tokio::time::Instant::now();
        let mut busy: HashMap<RequestId, tokio::task::JoinHandle<()>> = HashMap::new();
        loop {
            for interaction in open(&doors.stored, run).await {
                let id = interaction.request_id;
                let late = began.elapsed() > PATIENCE;
                if busy.get(&id).is_some_and(|task| !task.is_finished() || !late) {
                    continue;
                }
                let person = if late { None } else { self.person(&scenario, id) };
                let people = Arc::clone(&self);
                let doors = Arc::clone(&doors);
                busy.insert(id, tokio::spawn(async move { people.act(&doors, &interaction, person).await }));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Who deals with a request: the same person in every life.
    fn person(&self, scenario: &Scenario, request: RequestId) -> Option<Person> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let next = seen.len();
        let n = *seen.entry(request).or_insert(next);
        Some(scenario.people.get(n).copied().unwrap_or(Person { after_ms: 100, says: Says::Decline }))
    }

    async fn act(&self, doors: &Doors, interaction: &Interaction, person: Option<Person>) {
        let person = person.unwrap_or(Person { after_ms: 0, says: Says::Decline });
        tokio::time::sleep(Duration::from_millis(person.after_ms)).await;
        let says = match interaction.kind {
            InteractionKind::Approval => approval(interaction, person.says),
            InteractionKind::InDoubt => in_doubt(interaction, person.says),
            InteractionKind::Quarantine => set_aside(interaction, person.says),
            InteractionKind::Question => Vec::new(),
        };
        let all = says.into_iter().map(|deciding| self.say(doors, deciding));
        let mut tasks: Vec<_> = all.collect();
        // At once, as far as one thread can.
        if tasks.len() == 2 {
            let (second, first) = (tasks.pop(), tasks.pop());
            if let (Some(first), Some(second)) = (first, second) {
                tokio::join!(first, second);
            }
        } else if let Some(only) = tasks.pop() {
            only.await;
        }
    }

    async fn say(&self, doors: &Doors, deciding: Deciding) {
        let (request, word) = (deciding.request, deciding.word);
        // Somebody who gets no answer tries again, elsewhere; somebody who is told no does not.
        loop {
            let deciding = deciding.clone();
            match doors.next(async |runtime| runtime.decide(&local(), deciding).await).await {
                Some(Ok(_)) => {
                    self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push((request, word));
                    return;
                }
                Some(Err(DecideError::Store(_))) | None => {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                Some(Err(_)) => return,
            }
        }
    }
}

/// The ways in: one runtime an instance.
pub struct Doors {
    /// What all of them stand on: whoever looks, sees it.
    pub stored: Arc<MemoryStore>,
    runtimes: Vec<Runtime>,
    next: AtomicUsize,
}

impl Doors {
    /// Of these instances.
    pub fn new(stored: Arc<MemoryStore>, runtimes: Vec<Runtime>) -> Self {
        Self { stored, runtimes, next: AtomicUsize::new(0) }
    }

    /// The first of them.
    pub fn first(&self) -> &Runtime {
        &self.runtimes[0]
    }

    /// Whether there are several.
    pub fn are_many(&self) -> bool {
        self.runtimes.len() > 1
    }

    /// Does it at the next one. `None` where that one gives no answer.
    pub async fn next<T>(&self, what: impl AsyncFnOnce(&Runtime) -> T) -> Option<T> {
        let n = self.next.fetch_add(1, Ordering::Relaxed) % self.runtimes.len();
        tokio::time::timeout(ANSWER_MAX, what(&self.runtimes[n])).await.ok()
    }
}

async fn open(stored: &MemoryStore, run: RunId) -> Vec<Interaction> {
    let filter = InteractionFilter {
        run: Some(run),
        status: Some(InteractionStatus::Pending),
        ..InteractionFilter::default()
    };
    stored
        .interactions(&local(), &filter, &PageRequest::default())
        .await
        .map(|page| page.items)
        .unwrap_or_default()
}

fn deciding(interaction: &Interaction, word: DecisionWord) -> Deciding {
    let by = By { actor: Some(local().actor), via: Via::Human };
    let mut deciding = Deciding::new(interaction.request_id, word, by);
    deciding.digest = field(interaction, "digest").and_then(|digest| digest.parse().ok());
    deciding
}

fn field(interaction: &Interaction, name: &str) -> Option<String> {
    let request: serde_json::Value = serde_json::from_str(interaction.request.get()).ok()?;
    request.get(name)?.as_str().map(str::to_owned)
}

fn approval(interaction: &Interaction, says: Says) -> Vec<Deciding> {
    let of = |word| deciding(interaction, word);
    let with =
        |arguments: &str| Deciding { arguments: Some(arguments.into()), ..of(DecisionWord::ApproveWith) };
    match says {
        Says::Approve => vec![of(DecisionWord::Approve)],
        Says::ApproveTwice => vec![of(DecisionWord::Approve), of(DecisionWord::Approve)],
        Says::ApproveAndDecline => vec![of(DecisionWord::Approve), of(DecisionWord::Decline)],
        Says::ApproveStale => {
            let stale = format!("sha256:{}", "0".repeat(64)).parse().ok();
            vec![Deciding { digest: stale, ..of(DecisionWord::Approve) }, of(DecisionWord::Decline)]
        }
        Says::Edit => vec![with(r#"{"n": "edited"}"#)],
        Says::EditBadly => vec![with("{\"n\":1}"), of(DecisionWord::Decline)],
        Says::Decline => vec![of(DecisionWord::Decline)],
        Says::Stop => vec![Deciding { then: Then::Stop, ..of(DecisionWord::Decline) }],
        Says::Feedback => vec![of(DecisionWord::Feedback).reason("rather not")],
        Says::Nothing => Vec::new(),
    }
}

fn in_doubt(interaction: &Interaction, says: Says) -> Vec<Deciding> {
    let of = |word| deciding(interaction, word);
    let ran =
        || Deciding { result: serde_json::value::to_raw_value("it is there").ok(), ..of(DecisionWord::Ran) };
    match says {
        Says::Approve | Says::Edit => vec![of(DecisionWord::Approve)],
        Says::ApproveTwice => vec![of(DecisionWord::Approve), of(DecisionWord::Approve)],
        Says::ApproveAndDecline => vec![of(DecisionWord::Approve), of(DecisionWord::Leave)],
        Says::ApproveStale | Says::Feedback => vec![ran()],
        Says::EditBadly | Says::Decline | Says::Stop => vec![of(DecisionWord::Leave)],
        Says::Nothing => Vec::new(),
    }
}

fn set_aside(interaction: &Interaction, says: Says) -> Vec<Deciding> {
    let of = |word| deciding(interaction, word);
    match says {
        Says::Approve | Says::Edit | Says::Feedback => vec![of(DecisionWord::Approve)],
        Says::ApproveTwice => vec![of(DecisionWord::Approve), of(DecisionWord::Approve)],
        Says::ApproveAndDecline => vec![of(DecisionWord::Approve), of(DecisionWord::Decline)],
        Says::ApproveStale => {
            let stale = format!("sha256:{}", "0".repeat(64)).parse().ok();
            vec![Deciding { digest: stale, ..of(DecisionWord::Approve) }, of(DecisionWord::Decline)]
        }
        Says::EditBadly | Says::Decline | Says::Stop => vec![of(DecisionWord::Decline)],
        Says::Nothing => Vec::new(),
    }
}
