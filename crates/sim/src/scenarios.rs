//! Scenarios with names: corner cases that were once wrong, or that no seed should have to find.

mod common;
mod crashes;
mod environment;
mod expiry;
mod index_runs;
mod retries;
mod rot;

use crate::cache_leases::recalls_lost_and_crossed;
use crate::metalog::{leader_dies, leader_is_killed};
use crate::violation::Verdict;
use crashes::*;
use environment::*;
use expiry::*;
use index_runs::*;
use retries::*;
use rot::*;

/// A scenario.
pub struct Scenario {
    /// Its name, as the command line takes it.
    pub name: &'static str,
    /// Plays it.
    pub play: fn(seed: u64) -> Verdict,
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        /// All of them.
        pub const SCENARIOS: &[Scenario] = &[$(Scenario { name: stringify!($name), play: $name }),*];
    };
}

scenarios! {
    crash_at_every_effect_of_a_rename,
    crash_at_every_effect_of_the_first_start,
    crash_at_every_effect_of_a_recovery,
    torn_tail,
    torn_twice_in_one_place,
    doubled_append,
    clock_back_an_hour,
    clock_forward_an_hour,
    disk_full_then_unlink,
    inode_lost_with_the_power,
    grant_lost_with_the_power,
    retry_after_a_restart,
    retry_of_a_truncate_after_a_rename,
    two_sync_appends_on_their_way,
    settle_beside_a_sync_write_on_its_way,
    truncate_beside_a_sync_write_on_its_way,
    group_across_chains_behind_a_sync_write,
    large_append,
    segments_roll,
    metalog_rolls,
    rot_in_what_was_vouched_for,
    session_outlived,
    failed_sync,
    recalls_lost_and_crossed,
    crash_at_every_effect_of_an_edit,
    crash_at_every_effect_of_a_forgetting,
    truncate_in_a_forgotten_directory,
    crash_at_every_effect_of_a_shelving,
    retry_of_a_write_that_was_shelved,
    rot_in_a_shelf,
    rot_in_a_footer,
    rot_in_the_metalog,
    leader_dies,
    leader_is_killed,
}
