//! Hundreds of seeds a run. `HOLDPOINT_SIM_SEEDS=20000` lives through more, `HOLDPOINT_SIM_FROM=20000` from there on,
//! `HOLDPOINT_SIM_SEED=1234` through one.

use holdpoint_sim::{Scenario, shrink, simulate};

/// Seeds a test run goes through.
const SEEDS: u64 = 500;

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
        None => {
            let from = number("HOLDPOINT_SIM_FROM").unwrap_or(0);
            from..from + number("HOLDPOINT_SIM_SEEDS").unwrap_or(SEEDS)
        }
    };
    let (mut lives, mut executions, mut writes) = (0, 0, 0);
    let (mut reminders, mut by_rule, mut expired) = (0, 0, 0);
    let (mut many, mut doubts, mut replays, mut aside) = (0, 0, 0, 0);
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
        many += u64::from(scenario.instances > 1);
        doubts += count(r#""type":"in_doubt_request""#);
        replays += count(r#""code":"REPLAYED""#);
        aside += count(r#""type":"quarantine_request""#);
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
    println!(
        "{many} with several instances; {doubts} calls in doubt, {replays} replays, {aside} runs set aside"
    );
    // What never happens is not tested.
    let all = [reminders, by_rule, expired, doubts, replays];
    assert!(
        seeds.end - seeds.start < 500 || all.iter().all(|count| *count > 0),
        "something never came to pass"
    );
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
