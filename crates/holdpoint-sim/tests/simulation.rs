//! Thousands of seeds a run. `HOLDPOINT_SIM_SEEDS=20000` lives through more, `HOLDPOINT_SIM_SEED=1234` through one.

use holdpoint_sim::{Scenario, shrink, simulate};

/// Seeds a test run goes through.
const SEEDS: u64 = 1_500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_goes_wrong_the_invariants_hold_and_every_run_comes_to_an_end() {
    if number("HOLDPOINT_SIM_SEED").is_some() {
        let _ = tracing_subscriber::fmt().with_env_filter("holdpoint=debug").with_test_writer().try_init();
    }
    let seeds = match number("HOLDPOINT_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDPOINT_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let (mut lives, mut executions, mut writes) = (0, 0, 0);
    let (mut reminders, mut by_rule, mut expired) = (0, 0, 0);
    for seed in seeds.clone() {
        let scenario = Scenario::of(seed);
        let outcome = simulate(&scenario);
        lives += outcome.lives;
        executions += outcome.executions;
        writes += outcome.writes;
        let count = |what: &str| outcome.events.iter().filter(|event| event.contains(what)).count();
        reminders += count(r#""type":"reminder""#);
        by_rule += count(r#""via":"preset""#);
        expired += count(r#""decision":"expired""#);
        if !outcome.wrong.is_empty() {
            let smallest = shrink(&scenario);
            let again = simulate(&smallest);
            panic!(
                "seed {seed} (HOLDPOINT_SIM_SEED={seed} lives through it again)\nwrong: {:#?}\nsmallest scenario that goes wrong: {smallest:#?}\nwrong there: {:#?}\nits events:\n{}",
                outcome.wrong,
                again.wrong,
                again.events.join("\n")
            );
        }
    }
    println!("{} seeds: {lives} lives, {writes} writes, {executions} executions", seeds.end - seeds.start);
    println!("{reminders} reminders, {expired} expiries, {by_rule} releases by a rule");
    // What never happens is not tested.
    let many = seeds.end - seeds.start >= 500;
    assert!(!many || (reminders > 0 && by_rule > 0 && expired > 0), "a timeout that never came to pass");
}

#[test]
fn the_same_seed_is_the_same_story() {
    for seed in [1, 7, 42] {
        let (one, two) = (simulate(&Scenario::of(seed)), simulate(&Scenario::of(seed)));
        assert_eq!(
            (one.lives, one.writes, one.executions, one.events.len()),
            (two.lives, two.writes, two.executions, two.events.len())
        );
    }
}
