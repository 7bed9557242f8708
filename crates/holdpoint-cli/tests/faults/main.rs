//! What can go wrong, with real processes: the network, the database, the disk, the clock, many at once. `docs/fault-tests.md`
//! says which case is about what. They wait more than they work, so more of them run at once than there are processors.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod crowd;
mod database;
mod deciding;
mod disk;
mod large;
mod network;
mod poison;
mod restart;
mod stopping;
mod terms;
mod upgrade;

use holdpoint_faults::cases;

/// So many at once, on a machine of two processors.
const AT_ONCE: usize = 6;

fn main() {
    if std::env::var_os("HOLDPOINT_WRITE_FIXTURES").is_some() {
        return upgrade::write_fixtures();
    }
    let cases = cases![
        // The longest first.
        network::slow_an_instance_cut_off_from_its_database_loses_its_runs_and_starts_nothing,
        deciding::slow_of_sixteen_that_decide_at_once_one_counts_a_thousand_times,
        deciding::slow_every_decision_that_was_acknowledged_is_there_after_a_kill,
        database::slow_a_database_that_ends_in_any_way_under_load_costs_no_decision_and_doubles_no_command,
        upgrade::slow_a_thousand_suspended_runs_go_through_an_upgrade_and_back,
        terms::reminders_and_deadlines_come_once_through_the_death_of_every_process,
        database::with_slow_commits_no_lease_is_lost,
        database::the_end_of_every_instance_writes_nothing_of_what_waits,
        network::what_is_answered_after_the_lease_has_ended_starts_nothing_twice,
        network::a_lease_that_cannot_be_renewed_ends_and_the_late_result_is_refused,
        network::a_decision_reaches_an_instance_whose_connections_went_silent,
        network::connections_that_the_database_ends_are_made_again,
        deciding::a_decision_and_its_deadline_at_the_same_moment_exclude_each_other,
        deciding::what_expired_while_no_process_ran_cannot_be_decided,
        deciding::a_policy_that_became_stricter_meanwhile_is_what_counts,
        deciding::twelve_copies_of_a_decision_on_two_instances_have_one_effect,
        deciding::sixty_four_decisions_at_once_on_a_file_all_get_their_answer,
        disk::a_full_disk_of_the_database_costs_nothing_that_was_acknowledged,
        poison::a_tool_that_ends_every_process_is_set_aside_and_the_others_go_on,
        crowd::ten_thousand_watch_one_run_and_come_back_at_once_and_the_database_is_read_once,
        restart::a_start_with_many_that_wait_costs_what_a_start_with_one_does,
        large::a_body_that_is_too_large_is_refused_and_does_nothing,
        large::arguments_that_cannot_be_are_an_error_of_the_model_and_run_nothing,
        large::large_arguments_and_nul_are_kept_whole_on_both_stores,
        stopping::fifty_that_watch_are_told_and_nothing_new_starts,
        upgrade::runs_suspended_under_the_first_schema_go_on_under_this_one,
    ];
    holdpoint_faults::run_cases(cases, AT_ONCE);
}
