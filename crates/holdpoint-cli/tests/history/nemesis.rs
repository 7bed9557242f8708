//! What goes wrong, one thing after the other and several at once.

use std::time::{Duration, Instant};

use holdpoint_faults::{Stop, Way};

use crate::dice::Dice;
use crate::world::{INSTANCES, World, can_shift_clocks};

/// What is to be mended, and when.
enum Mend {
    Start { seat: usize, off: i64 },
    Continue { seat: usize },
    Open { seat: usize },
    Up,
}

/// Breaks things for so long. What is broken at the end is left to be healed, but for the database.
pub fn torment(world: &World, dice: &mut Dice, last: Duration) {
    let began = Instant::now();
    let mut mends: Vec<(Instant, Mend)> = Vec::new();
    let mut next = Instant::now();
    while began.elapsed() < last {
        let now = Instant::now();
        for (_, mend) in mends.extract_if(.., |(at, _)| *at <= now) {
            do_mend(world, mend);
        }
        if now >= next {
            break_something(world, dice, &mut mends);
            next = now + Duration::from_millis(dice.between(300, 2_500));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for (_, mend) in mends {
        if matches!(mend, Mend::Up) {
            do_mend(world, mend);
        }
    }
}

fn do_mend(world: &World, mend: Mend) {
    match mend {
        Mend::Start { seat, off } => world.start(seat, off),
        Mend::Continue { seat } => signal(world, seat, "-CONT"),
        Mend::Open { seat } => world.seats[seat].proxy.open(),
        Mend::Up => world.cluster.up(),
    }
}

fn signal(world: &World, seat: usize, name: &str) {
    if let Some(serving) = &*world.seats[seat].serving.lock().unwrap() {
        serving.signal(name);
    }
}

fn break_something(world: &World, dice: &mut Dice, mends: &mut Vec<(Instant, Mend)>) {
    let seat = dice.below(INSTANCES as u64) as usize;
    let is_mended = |mends: &[(Instant, Mend)]| {
        !mends.iter().any(|(_, mend)| match mend {
            Mend::Start { seat: other, .. } | Mend::Continue { seat: other } | Mend::Open { seat: other } => {
                *other == seat
            }
            Mend::Up => false,
        })
    };
    let database_is_up = !mends.iter().any(|(_, mend)| matches!(mend, Mend::Up));
    let later =
        |dice: &mut Dice, from: u64, to: u64| Instant::now() + Duration::from_millis(dice.between(from, to));
    let kind = dice.below(100);
    if kind < 15 {
        if database_is_up {
            let how = [Stop::Fast, Stop::Immediate, Stop::Kill][dice.below(3) as usize];
            world.count(match how {
                Stop::Fast => "database stopped",
                Stop::Immediate => "database stopped at once",
                Stop::Kill => "database killed",
            });
            world.cluster.down(how);
            mends.push((later(dice, 100, 3_000), Mend::Up));
        }
        return;
    }
    if !is_mended(mends) {
        return;
    }
    let proxy = &world.seats[seat].proxy;
    match kind {
        15..45 => {
            let off = if can_shift_clocks() { [0, 0, 3_600, -3_600][dice.below(4) as usize] } else { 0 };
            world.count(if kind < 33 { "instance killed" } else { "instance stopped" });
            if off != 0 {
                world.count("clock an hour off");
            }
            let serving = world.seats[seat].serving.lock().unwrap().take();
            if let Some(mut serving) = serving {
                if kind < 33 {
                    serving.kill();
                } else {
                    serving.signal("-TERM");
                    // One that cannot say good-bye to its database takes its time; nobody waits for it here.
                    mends.push((later(dice, 0, 2_000), Mend::Start { seat, off }));
                    std::thread::spawn(move || {
                        serving.wait();
                    });
                    return;
                }
            }
            mends.push((later(dice, 0, 2_000), Mend::Start { seat, off }));
        }
        45..60 => {
            world.count("instance held still");
            signal(world, seat, "-STOP");
            mends.push((later(dice, 500, 11_000), Mend::Continue { seat }));
        }
        60..75 => {
            world.count("way to the database silent");
            proxy.swallow();
            mends.push((later(dice, 500, 12_000), Mend::Open { seat }));
        }
        75..85 => {
            world.count("way to the database one-way");
            let (up, down) =
                if dice.percent(50) { (Way::Open, Way::Swallowed) } else { (Way::Swallowed, Way::Open) };
            proxy.set(up, down);
            mends.push((later(dice, 500, 9_000), Mend::Open { seat }));
        }
        85..93 => {
            world.count("way to the database slow");
            let late = Way::Delayed(Duration::from_millis(dice.between(20, 200)));
            proxy.set(late, late);
            mends.push((later(dice, 1_000, 5_000), Mend::Open { seat }));
        }
        _ => {
            world.count("connections cut");
            proxy.cut();
        }
    }
}
