//! What a simulation goes through: made from a seed, printed when it fails, and made smaller until nothing can be left out.

use std::collections::BTreeMap;

use holdpoint::core::run::Execution;
use holdpoint::core::terms::AtDeadline;

use crate::rng::Rng;

/// The tools of the simulated agent, by effect class and by what policy says of them.
pub const TOOLS: [&str; 9] = [
    "free_read",
    "free_once",
    "ask_read",
    "ask_idempotent",
    "ask_once",
    "ask_probe",
    "deny_once",
    "free_keyed",
    "ask_keyed",
];

/// Everything that is not the system itself.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// How the calls of a reply are started.
    pub execution: Execution,
    /// The calls the model makes, round by round; then it answers.
    pub rounds: Vec<Vec<Call>>,
    /// How long the model takes to answer, in milliseconds.
    pub thinks_ms: u64,
    /// What people do with the requests, in the order in which they open. Requests beyond are declined late.
    pub people: Vec<Person>,
    /// What the store does at its n-th write.
    pub faults: BTreeMap<u64, Fault>,
    /// When the process - all instances of it - is killed, in milliseconds of its life.
    pub kills: Vec<u64>,
    /// How many instances there are.
    pub instances: usize,
    /// Which of them stand still, and when. Only where there are several.
    pub stills: Vec<Still>,
    /// How long a bell takes from one to another, in milliseconds; none where they are deaf.
    pub bell_ms: Option<u64>,
    /// When the run is cancelled, in milliseconds from its start.
    pub cancel_at: Option<u64>,
    /// How long requests wait.
    pub timeout_ms: Option<u64>,
    /// What happens then.
    pub at_deadline: AtDeadline,
    /// Whether people are reminded again and again, and further groups told.
    pub reminds: bool,
}

/// What the preset of a simulation releases, by tool and argument: one call of each of these.
pub const RELEASED: [(&str, &str); 3] =
    [("ask_once", "0.0"), ("ask_idempotent", "0.1"), ("deny_once", "0.0")];

/// A call the model makes, and how its tool behaves.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which of [`TOOLS`].
    pub tool: usize,
    /// The provider's id: may be empty, may repeat.
    pub id: String,
    /// Arguments that cannot be read.
    pub broken: bool,
    /// How long the tool takes.
    pub takes_ms: u64,
    /// How it ends.
    pub ends: Ends,
}

/// An instance stands still: for shorter or longer than its lease lasts, or for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Still {
    /// Which.
    pub instance: usize,
    /// From when, in milliseconds of a life.
    pub at_ms: u64,
    /// For how long; where there is no end to it, it is dead.
    pub for_ms: Option<u64>,
}

/// How a tool ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// With a result.
    Well,
    /// With an error.
    Error,
    /// With a panic.
    Panic,
    /// Not in its time.
    Hangs,
}

/// What a person does with a request.
#[derive(Debug, Clone, Copy)]
pub struct Person {
    /// How long it takes them.
    pub after_ms: u64,
    /// What they say.
    pub says: Says,
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Approve.
    Approve,
    /// Approve, twice at once.
    ApproveTwice,
    /// Approve and decline at once.
    ApproveAndDecline,
    /// Approve something else than what is pending.
    ApproveStale,
    /// Approve with other arguments.
    Edit,
    /// Approve with arguments that cannot be read, then decline.
    EditBadly,
    /// Decline.
    Decline,
    /// Decline and stop.
    Stop,
    /// Feedback.
    Feedback,
    /// Nothing.
    Nothing,
}

/// What the store does with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails; nothing is written.
    Fails,
    /// It is written, and the answer is lost.
    AnswerLost,
    /// The process dies before it is written.
    DiesBefore,
    /// The process dies after it is written, before anybody knows.
    DiesAfter,
    /// It takes this many milliseconds.
    Slow(u64),
    /// It is on its way while its instance stands still for this many milliseconds, where there are several: it may come when
    /// another instance has taken the run, and that is when only the epoch stands against it.
    ComesLate(u64),
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rounds = (0..rng.below(3) + 1).map(|_| calls(&mut rng)).collect();
        let people = (0..rng.below(12)).map(|_| person(&mut rng)).collect();
        let mut faults = BTreeMap::new();
        for _ in 0..rng.below(6) {
            let (n, fault) = (rng.below(40) + 1, fault(&mut rng));
            faults.insert(n, fault);
            // The first write of whoever takes the run is late as well: until it comes, nothing but the epoch is new.
            if matches!(fault, Fault::ComesLate(_)) && rng.chance(60) {
                faults.insert(n + 1, Fault::ComesLate(8_000));
            }
        }
        let kills = (0..rng.below(3)).map(|_| rng.below(3_000) + 1).collect();
        let instances = *rng.pick(&[1, 1, 2, 2, 3]);
        let still = |rng: &mut Rng| Still {
            instance: usize::try_from(rng.below(instances as u64)).unwrap_or(0),
            at_ms: *rng.pick(&[1, 60, 200, 500, 1_500, 4_000, 8_000]) + rng.below(60),
            for_ms: *rng.pick(&[Some(900), Some(4_500), Some(6_500), Some(8_000), Some(13_000), None]),
        };
        let most = if instances > 1 { 5 } else { 1 };
        let stills = (0..rng.below(most)).map(|_| still(&mut rng)).collect();
        let bell_ms = *rng.pick(&[Some(0), Some(5), Some(700), None]);
        Self {
            execution: *rng.pick(&[Execution::Sequential, Execution::Parallel, Execution::Hold]),
            rounds,
            people,
            faults,
            kills,
            instances,
            stills,
            bell_ms,
            cancel_at: rng.chance(15).then(|| rng.below(3_000)),
            timeout_ms: rng.chance(50).then(|| rng.below(2_000) + 1),
            at_deadline: match rng.below(3) {
                0 => AtDeadline::Deny,
                1 => AtDeadline::Wait,
                _ => AtDeadline::Preset("sim".into()),
            },
            reminds: rng.chance(50),
            thinks_ms: *rng.pick(&[0, 0, 0, 300, 2_500]),
        }
    }

    /// Every scenario that is this one with one thing left out.
    pub fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for round in 0..self.rounds.len() {
            let mut less = self.clone();
            less.rounds.remove(round);
            all.push(less);
            for call in 0..self.rounds[round].len() {
                if self.rounds[round].len() > 1 {
                    let mut less = self.clone();
                    less.rounds[round].remove(call);
                    all.push(less);
                }
            }
        }
        for n in self.faults.keys() {
            let mut less = self.clone();
            less.faults.remove(n);
            all.push(less);
        }
        for kill in 0..self.kills.len() {
            let mut less = self.clone();
            less.kills.remove(kill);
            all.push(less);
        }
        for still in 0..self.stills.len() {
            let mut less = self.clone();
            less.stills.remove(still);
            all.push(less);
        }
        if self.instances > 1 && self.stills.is_empty() {
            all.push(Self { instances: self.instances - 1, ..self.clone() });
        }
        if !self.people.is_empty() {
            let mut less = self.clone();
            less.people.pop();
            all.push(less);
        }
        if self.cancel_at.is_some() {
            all.push(Self { cancel_at: None, ..self.clone() });
        }
        if self.timeout_ms.is_some() {
            all.push(Self { timeout_ms: None, ..self.clone() });
        }
        if self.at_deadline != AtDeadline::Deny {
            all.push(Self { at_deadline: AtDeadline::Deny, ..self.clone() });
        }
        if self.reminds {
            all.push(Self { reminds: false, ..self.clone() });
        }
        if self.thinks_ms > 0 {
            all.push(Self { thinks_ms: 0, ..self.clone() });
        }
        if self.execution != Execution::Sequential {
            all.push(Self { execution: Execution::Sequential, ..self.clone() });
        }
        all
    }
}

fn calls(rng: &mut Rng) -> Vec<Call> {
    (0..rng.below(4) + 1)
        .map(|_| Call {
            tool: usize::try_from(rng.below(TOOLS.len() as u64)).unwrap_or(0),
            id: rng.pick(&["c1", "c2", "c3", "", "c1"]).to_string(),
            broken: rng.chance(5),
            takes_ms: *rng.pick(&[0, 1, 50, 400]),
            ends: *rng.pick(&[
                Ends::Well,
                Ends::Well,
                Ends::Well,
                Ends::Well,
                Ends::Error,
                Ends::Panic,
                Ends::Hangs,
            ]),
        })
        .collect()
}

fn person(rng: &mut Rng) -> Person {
    Person {
        after_ms: *rng.pick(&[0, 1, 30, 300, 1_500]),
        says: *rng.pick(&[
            Says::Approve,
            Says::Approve,
            Says::Approve,
            Says::ApproveTwice,
            Says::ApproveAndDecline,
            Says::ApproveStale,
            Says::Edit,
            Says::EditBadly,
            Says::Decline,
            Says::Stop,
            Says::Feedback,
            Says::Nothing,
        ]),
    }
}

fn fault(rng: &mut Rng) -> Fault {
    *rng.pick(&[
        Fault::Fails,
        Fault::AnswerLost,
        Fault::DiesBefore,
        Fault::DiesAfter,
        Fault::Slow(200),
        Fault::ComesLate(6_600),
        Fault::ComesLate(8_000),
    ])
}
