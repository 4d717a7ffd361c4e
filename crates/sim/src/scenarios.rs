//! Scenarios with names: corner cases that were once wrong, or that no seed should have to find.

mod expiry;
mod index_runs;
mod rot;

use frieze_base::Reason;
use frieze_disk::{CrashKind, Disk};
use frieze_hlc::Hlc;
use frieze_wire::txn::{Grant, Op};

use expiry::{crash_at_every_effect_of_a_forgetting, truncate_in_a_forgotten_directory};

use index_runs::{crash_at_every_effect_of_a_shelving, retry_of_a_write_that_was_shelved, rot_in_a_shelf};
use rot::{rot_in_a_footer, rot_in_the_metalog};

use crate::cache_leases::recalls_lost_and_crossed;
use crate::client::Step;
use crate::metalog::{leader_dies, leader_is_killed};
use crate::stage::{
    Stage, clone_tree, late, make_directory, make_file, read, rename, restore, set_xattr, settle, stamp_of, stat_at,
    sync_txn, truncate, txn, undo, unlink,
};
use crate::violation::{Rule, Verdict, broken};
use crate::witness::CHUNK_BYTES;
use crate::world::{RESERVE_BYTES, SEGMENT_BYTES};

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

const BOTH: [CrashKind; 2] = [CrashKind::Process, CrashKind::Power];

/// Write a new file, make it durable, rename it over the old one: after a crash anywhere, one of them is there,
/// complete.
fn crash_at_every_effect_of_a_rename(seed: u64) -> Verdict {
    for kind in BOTH {
        for effect in 1..200 {
            let mut stage = Stage::new(seed + effect, 1)?;
            let old = stage.make(0, "/f")?;
            let step = stage.write(&old, Some(0), 3000, false);
            stage.expect(0, step, None)?;
            stage.barrier()?;
            stage.witness.machine.disk.fail_after(effect);
            let whole = replace_by_rename(&mut stage)?;
            let disk = &stage.witness.machine.disk;
            if !disk.is_crashed() {
                // It was over before the device stopped.
                return if whole { Ok(()) } else { broken(Rule::Live, "a rename was not answered") };
            }
            stage.crash(kind)?;
        }
    }
    Ok(())
}

/// False if the server died over it.
fn replace_by_rename(stage: &mut Stage) -> Verdict<bool> {
    if stage.ask(0, txn(make_file("/new")))?.is_none() {
        return Ok(false);
    }
    let Some(new) = stage.handle(0) else { return Ok(false) };
    let steps = [
        stage.write(&new, Some(0), 2000, false),
        stage.write(&new, None, 70_000, false),
        txn(Op::Grant(Grant { inode: new.inode, first: 1, count: 1 })),
        stage.write(&new, Some(60_000), 9000, true),
        txn(settle(&new, true)),
        Step::Sync { inode: new.inode },
        sync_txn(rename("/new", "/f")),
        txn(settle(&new, false)),
        Step::Sync { inode: 0 },
    ];
    for step in steps {
        if stage.ask(0, step)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A clone, a restore and an undo are there wholly or not at all, and a retry after the crash has the one effect.
fn crash_at_every_effect_of_an_edit(seed: u64) -> Verdict {
    for kind in BOTH {
        for edit in 0..3 {
            for effect in 1..100 {
                let mut stage = Stage::new(seed + effect, 2)?;
                let at = tree_of_two_times(&mut stage)?;
                let sent = match edit {
                    0 => clone_tree("/d", Hlc::ZERO, "/copy"),
                    1 => restore("/d", at),
                    _ => undo(at),
                };
                stage.witness.machine.disk.fail_after(effect);
                let sent = stage.send(0, sent)?;
                if !stage.witness.machine.is_dying() {
                    stage.witness.flush()?;
                }
                if !stage.witness.machine.disk.is_crashed() {
                    break;
                }
                stage.crash(kind)?;
                stage.deliver(0, late(&sent, 1_000_000))?;
                stage.deliver(0, late(&sent, 1_000_001))?;
                stage.look()?;
                let file = stage.open(1, "/d/f")?;
                stage.expect(1, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
                let step = stage.write(&file, Some(30_000), 5000, false);
                stage.expect(1, step, None)?;
                stage.expect(1, txn(truncate("/d/f", 33_000)), None)?;
                stage.look()?;
            }
        }
    }
    Ok(())
}

/// A directory with files as they were at an instant, which is returned, and otherwise since.
fn tree_of_two_times(stage: &mut Stage) -> Verdict<Hlc> {
    stage.expect(0, txn(make_directory("/d")), None)?;
    let (one, two) = (stage.make(0, "/d/f")?, stage.make(0, "/d/g")?);
    let step = stage.write(&one, Some(0), 50_000, false);
    stage.expect(0, step, None)?;
    let step = stage.write(&two, None, 100_000, false);
    let at = stamp_of(stage.ask(0, step)?);
    let step = stage.write(&one, Some(10_000), 55_000, false);
    stage.expect(0, step, None)?;
    stage.expect(0, txn(unlink("/d/g")), None)?;
    stage.expect(0, txn(rename("/d/f", "/f")), None)?;
    stage.expect(0, txn(rename("/f", "/d/f")), None)?;
    stage.make(0, "/d/h")?;
    stage.barrier()?;
    Ok(at)
}

/// A data directory that was begun and not finished is finished by the next start.
fn crash_at_every_effect_of_the_first_start(seed: u64) -> Verdict {
    for kind in BOTH {
        for effect in 1..200 {
            let mut stage = Stage::dark(seed + effect);
            stage.witness.machine.disk.fail_after(effect);
            if stage.witness.start()? {
                break;
            }
            stage.crash(kind)?;
        }
    }
    Ok(())
}

/// A recovery that is interrupted begins again, and finds the same.
fn crash_at_every_effect_of_a_recovery(seed: u64) -> Verdict {
    for kind in BOTH {
        for effect in 1..200 {
            let mut stage = Stage::new(seed + effect, 1)?;
            let file = stage.make(0, "/f")?;
            let step = stage.write(&file, Some(0), 5000, true);
            stage.expect(0, step, None)?;
            let step = stage.write(&file, Some(100), 70_000, false);
            stage.ask(0, step)?;
            stage.expect(0, txn(truncate("/f", 2000)), None)?;
            stage.witness.die(CrashKind::Power);
            stage.witness.machine.disk.fail_after(effect);
            if stage.witness.start()? {
                break;
            }
            stage.crash(kind)?;
        }
    }
    Ok(())
}

/// Writes without a sync: a prefix is left, and the server continues after it.
fn torn_tail(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 2)?;
    let files = [stage.make(0, "/f")?, stage.make(1, "/g")?];
    for round in 0..30 {
        for client in [0, 1] {
            let len = 1 + stage.rng.below(20_000) as usize;
            let step = stage.write(&files[client], Some(0), len, false);
            stage.send(client, step)?;
            stage.expect(client, txn(set_xattr("/f", vec![round; 100])), None)?;
        }
        if round % 3 == 0 {
            stage.crash(CrashKind::Power)?;
        }
    }
    Ok(())
}

/// A record that was torn, sent again to the same place and torn again does not come back with its old stamp.
fn torn_twice_in_one_place(seed: u64) -> Verdict {
    for seed in seed..seed + 40 {
        let mut stage = Stage::new(seed, 1)?;
        let file = stage.make(0, "/f")?;
        stage.barrier()?;
        let step = stage.write(&file, Some(0), 3000, false);
        let sent = stage.send(0, step)?;
        for again in 1..4 {
            stage.crash(CrashKind::Power)?;
            stage.deliver(0, late(&sent, 1_000_000 + again))?;
            stage.look()?;
        }
    }
    Ok(())
}

/// A double of an append that comes when the file has grown onto another chain is not run again.
fn doubled_append(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    let step = stage.write(&file, None, 1000, false);
    let first = stage.send(0, step)?;
    stage.take_response(0);
    for len in [CHUNK_BYTES as usize - 2000, 500] {
        let step = stage.write(&file, None, len, false);
        stage.expect(0, step, None)?;
    }
    let step = stage.write(&file, Some(0), 10, false);
    stage.expect(0, step, None)?;
    let step = stage.write(&file, None, 900, false);
    stage.expect(0, step, None)?;
    stage.deliver(0, late(&first, 1_000_000))?;
    stage.look()?;
    stage.crash(CrashKind::Process)?;
    stage.deliver(0, late(&first, 1_000_001))?;
    stage.look()
}

/// The wall clock is set back by an hour: no stamp goes back, writes wait, the past stays readable; an hour later, or
/// when the clock is corrected, everything continues.
fn clock_back_an_hour(seed: u64) -> Verdict {
    let hour_us = 3_600_000_000;
    for restarts in [false, true] {
        let mut stage = Stage::new(seed, 1)?;
        let file = stage.make(0, "/f")?;
        let step = stage.write(&file, Some(0), 1000, true);
        let stamp = stamp_of(stage.ask(0, step)?);
        stage.witness.excuses.clock = true;
        // Past the grace in which a clock may still be set.
        stage.witness.machine.time.advance_us(60_000_000);
        stage.witness.tend()?;
        stage.witness.machine.time.jump_wall_us(-hour_us);
        stage.witness.tend()?;
        let step = stage.write(&file, Some(0), 1000, false);
        stage.expect(0, step, Some(Reason::Fenced))?;
        stage.expect(0, stat_at("/f", stamp), None)?;
        stage.expect(0, read(&file, 2000), None)?;
        if restarts {
            stage.crash(CrashKind::Process)?;
        } else {
            stage.witness.machine.time.advance_us(6_000_000);
            stage.witness.tend()?;
            // Trusted by now, and an hour behind the stamps.
            let step = stage.write(&file, Some(0), 1000, false);
            stage.expect(0, step, Some(Reason::Fenced))?;
            stage.witness.machine.time.advance_us(hour_us as u64);
            stage.witness.tend()?;
        }
        let step = stage.write(&file, Some(0), 1000, true);
        stage.expect(0, step, None)?;
        stage.look()?;
    }
    Ok(())
}

/// The wall clock is set forward by an hour: writes wait until that has lasted, then continue.
fn clock_forward_an_hour(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    stage.witness.excuses.clock = true;
    stage.witness.machine.time.advance_us(60_000_000);
    stage.witness.tend()?;
    stage.witness.machine.time.jump_wall_us(3_600_000_000);
    let step = stage.write(&file, Some(0), 1000, false);
    stage.expect(0, step, Some(Reason::Fenced))?;
    stage.witness.machine.time.advance_us(6_000_000);
    stage.witness.tend()?;
    let step = stage.write(&file, Some(0), 1000, true);
    stage.expect(0, step, None)?;
    stage.look()
}

/// On a full disk writes are refused; remove, truncate, restart and `status` work; with space writes continue.
fn disk_full_then_unlink(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    stage.make(0, "/g")?;
    stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 16 })), None)?;
    stage.witness.excuses.full = true;
    let space = stage.witness.machine.disk.space().unwrap_or_default();
    let used = space.capacity_bytes - space.free_bytes;
    stage.witness.machine.disk.set_capacity(used + RESERVE_BYTES + SEGMENT_BYTES);
    let mut refused = false;
    for _ in 0..60 {
        let step = stage.write(&file, Some(0), 1 << 20, false);
        if let Some(answer) = stage.ask(0, step)? {
            refused |= answer.result.is_err_and(|fault| fault.reason == Reason::NoSpace);
        }
        stage.witness.flush()?;
    }
    if !refused {
        return broken(Rule::PromisedErrors, "60 MiB were written to a disk of less");
    }
    let step = stage.write(&file, Some(0), 100_000, false);
    stage.ask(0, step)?;
    stage.expect(0, sync_txn(unlink("/g")), None)?;
    stage.expect(0, sync_txn(truncate("/f", 10)), None)?;
    stage.expect(0, read(&file, 100), None)?;
    stage.crash(CrashKind::Power)?;
    stage.expect(0, sync_txn(make_directory("/d")), None)?;
    let free = stage.witness.machine.status().free_bytes;
    if free > SEGMENT_BYTES {
        return broken(Rule::PromisedErrors, format!("a full disk is said to have {free} bytes free"));
    }
    stage.witness.machine.disk.set_capacity(u64::MAX / 2);
    stage.witness.excuses.full = false;
    let file = stage.open(0, "/f")?;
    stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 16 })), None)?;
    let step = stage.write(&file, Some(0), 1 << 20, true);
    stage.expect(0, step, None)?;
    stage.look()
}

/// An inode that was lost leaves nothing to the next one: neither its number nor its bytes nor its capability.
fn inode_lost_with_the_power(seed: u64) -> Verdict {
    for seed in seed..seed + 40 {
        let mut stage = Stage::new(seed, 2)?;
        let lost = stage.make(0, "/secret")?;
        let step = stage.write(&lost, Some(0), 5000, false);
        stage.send(0, step)?;
        stage.crash(CrashKind::Power)?;
        let other = stage.make(1, "/other")?;
        let step = stage.write(&other, Some(4000), 10, false);
        stage.expect(1, step, None)?;
        stage.ask(0, read(&lost, 6000))?;
        let step = stage.write(&lost, Some(0), 10, false);
        stage.ask(0, step)?;
        stage.look()?;
    }
    Ok(())
}

/// A write whose grant is lost is lost too: no bytes without length and time.
fn grant_lost_with_the_power(seed: u64) -> Verdict {
    for seed in seed..seed + 60 {
        let mut stage = Stage::new(seed, 1)?;
        let file = stage.make(0, "/f")?;
        stage.expect(0, txn(settle(&file, false)), None)?;
        stage.barrier()?;
        stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 2 })), None)?;
        let step = stage.write(&file, Some(60_000), 10_000, false);
        stage.send(0, step)?;
        stage.crash(CrashKind::Power)?;
        stage.expect(0, txn(truncate("/f", 100_000)), None)?;
        stage.look()?;
        stage.crash(CrashKind::Process)?;
    }
    Ok(())
}

/// A retry is answered word for word, also when the outcome comes from the store.
fn retry_after_a_restart(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let made = stage.send(0, txn(make_file("/f")))?;
    stage.take_response(0);
    stage.barrier()?;
    stage.witness.stop()?;
    stage.crash(CrashKind::Process)?;
    stage.deliver(0, late(&made, 1_000_000))?;
    stage.look()
}

/// A truncate that ran is remembered, though its path leads to another file by now.
fn retry_of_a_truncate_after_a_rename(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 2)?;
    let file = stage.make(1, "/f")?;
    let step = stage.write(&file, Some(0), 5000, false);
    stage.expect(1, step, None)?;
    let cut = stage.send(0, txn(truncate("/f", 100)))?;
    stage.take_response(0);
    stage.expect(1, txn(rename("/f", "/g")), None)?;
    stage.deliver(0, late(&cut, 1_000_000))?;
    stage.make(1, "/f")?;
    stage.deliver(0, late(&cut, 1_000_001))?;
    stage.look()
}

/// An append goes behind one that is still on its way to the disk.
fn two_sync_appends_on_their_way(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 2)?;
    let first = stage.make(0, "/f")?;
    let second = stage.open(1, "/f")?;
    let step = stage.write(&first, None, 1000, true);
    stage.send(0, step)?;
    let step = stage.write(&second, None, 70_000, true);
    stage.send(1, step)?;
    stage.expect(1, read(&second, 100_000), None)?;
    stage.witness.flush()?;
    stage.look()
}

/// A file that is settled while a `sync` write of another session is on its way to the disk keeps that write.
fn settle_beside_a_sync_write_on_its_way(seed: u64) -> Verdict {
    for keep_grant in [false, true] {
        let mut stage = Stage::new(seed, 2)?;
        let one = stage.make(0, "/f")?;
        let two = stage.open(1, "/f")?;
        for client in [0, 1] {
            stage.expect(client, txn(Op::Grant(Grant { inode: one.inode, first: 0, count: 4 })), None)?;
        }
        let step = stage.write(&two, Some(CHUNK_BYTES), 5000, true);
        stage.send(1, step)?;
        let step = stage.write(&one, Some(0), 100, false);
        stage.send(0, step)?;
        stage.expect(0, txn(settle(&one, keep_grant)), None)?;
        stage.expect(0, read(&one, 100_000), None)?;
        stage.witness.flush()?;
        stage.look()?;
        stage.crash(CrashKind::Power)?;
    }
    Ok(())
}

/// A truncate hides a write that was on its way to the disk before it, also from the file grown again.
fn truncate_beside_a_sync_write_on_its_way(seed: u64) -> Verdict {
    for len in [0, 100, 50_000] {
        let mut stage = Stage::new(seed, 2)?;
        let one = stage.make(0, "/f")?;
        let two = stage.open(1, "/f")?;
        stage.expect(1, txn(Op::Grant(Grant { inode: one.inode, first: 0, count: 4 })), None)?;
        let step = stage.write(&two, Some(10), 60_000, true);
        stage.send(1, step)?;
        stage.expect(0, txn(truncate("/f", len)), None)?;
        stage.witness.flush()?;
        stage.look()?;
        stage.expect(0, txn(truncate("/f", 70_000)), None)?;
        stage.expect(0, read(&one, 100_000), None)?;
        stage.look()?;
    }
    Ok(())
}

/// A write over two chunks is visible wholly or not at all, though one of its chains waits for the disk.
fn group_across_chains_behind_a_sync_write(seed: u64) -> Verdict {
    for chunk in 0..4 {
        let mut stage = Stage::new(seed, 2)?;
        let one = stage.make(0, "/f")?;
        let two = stage.make(1, "/g")?;
        for (client, inode) in [(0, one.inode), (1, two.inode)] {
            stage.expect(client, txn(Op::Grant(Grant { inode, first: 0, count: 8 })), None)?;
        }
        let step = stage.write(&two, Some(chunk * CHUNK_BYTES), 5000, true);
        stage.send(1, step)?;
        let step = stage.write(&one, Some(CHUNK_BYTES - 100), 200, false);
        stage.send(0, step)?;
        let later = stage.open(1, "/f")?;
        stage.expect(1, read(&later, 100_000), None)?;
        stage.witness.flush()?;
        stage.look()?;
    }
    Ok(())
}

/// An append over more chunks than one grant covers.
fn large_append(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    for len in [3 << 20, 4 << 20] {
        let step = stage.write(&file, None, len, false);
        stage.expect(0, step, None)?;
    }
    stage.look()
}

/// Segments fill, are sealed and read by their footers, also after a loss of power in the middle.
fn segments_roll(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 16 })), None)?;
    for round in 0..24 {
        let step = stage.write(&file, Some(round * 1000), 900_000, false);
        stage.expect(0, step, None)?;
        if round % 4 == 0 {
            stage.witness.flush()?;
        }
        if round % 9 == 8 {
            stage.crash(if round % 2 == 0 { CrashKind::Process } else { CrashKind::Power })?;
        }
    }
    stage.witness.stop()?;
    stage.crash(CrashKind::Power)
}

/// The metalog fills its segments and uses them again.
fn metalog_rolls(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    stage.expect(0, txn(make_directory("/d")), None)?;
    for round in 0..700u64 {
        let value = vec![round as u8; 60_000];
        stage.expect(0, txn(set_xattr("/d", value)), None)?;
        if round % 2 == 0 {
            stage.witness.flush()?;
        }
        if round % 233 == 232 {
            stage.crash(if round % 2 == 0 { CrashKind::Process } else { CrashKind::Power })?;
        }
    }
    let space = stage.witness.machine.disk.space().unwrap_or_default();
    let used = space.capacity_bytes - space.free_bytes;
    if used > 100 << 20 {
        return broken(Rule::Live, format!("42 MiB of metadata hold {} MiB of disk", used >> 20));
    }
    Ok(())
}

/// Damage to records under a footer costs what was damaged, with a report, and nothing else.
fn rot_in_what_was_vouched_for(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    for round in 0..10 {
        let step = stage.write(&file, Some(round * 5000), 5000, false);
        stage.expect(0, step, None)?;
    }
    stage.witness.stop()?;
    stage.witness.die(CrashKind::Process);
    let name = stage.witness.machine.disk.list().unwrap_or_default().into_iter().find(|name| name.starts_with("seg-"));
    for _ in 0..40 {
        // Among the payloads; the header of a record that is damaged beside its footer is mended from there.
        let offset = 1000 + stage.rng.below(45_000);
        let bit = stage.rng.below(8) as u8;
        stage.witness.excuses.rot = true;
        let flipped = name.as_ref().is_some_and(|name| stage.witness.machine.disk.flip_bit(name, offset, bit).is_ok());
        if !flipped {
            return broken(Rule::Restarts, "there is no segment to damage");
        }
        stage.restart()?;
        stage.witness.stop()?;
        stage.witness.die(CrashKind::Process);
        let name = name.as_deref().unwrap_or_default();
        stage.witness.machine.disk.flip_bit(name, offset, bit).expect("as before");
    }
    stage.witness.excuses.rot = false;
    stage.restart()
}

/// A session whose client is gone for too long ends, and its writes are completed.
fn session_outlived(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 2)?;
    let file = stage.make(0, "/f")?;
    let step = stage.write(&file, None, 70_000, false);
    stage.expect(0, step, None)?;
    stage.hang_up(0);
    stage.witness.machine.time.advance_us(61_000_000);
    stage.witness.tend()?;
    let step = stage.write(&file, Some(0), 10, false);
    stage.expect(0, step, Some(Reason::UnknownSession))?;
    stage.look()?;
    let at: Hlc = stage.witness.newest_stamp();
    stage.expect(1, stat_at("/f", at), None)?;
    stage.crash(CrashKind::Power)
}

/// The requests that wait for a failing sync receive its fault; nothing is changed until a restart, and nothing that
/// was reported as durable is lost.
fn failed_sync(seed: u64) -> Verdict {
    for kind in BOTH {
        let mut stage = Stage::new(seed, 1)?;
        let file = stage.make(0, "/f")?;
        let step = stage.write(&file, Some(0), 1000, true);
        stage.expect(0, step, None)?;
        stage.witness.excuses.device = true;
        stage.witness.machine.disk.fail_syncs(1);
        let step = stage.write(&file, Some(500), 1000, true);
        stage.expect(0, step, Some(Reason::InputOutput))?;
        stage.expect(0, Step::Sync { inode: 0 }, Some(Reason::InputOutput))?;
        stage.expect(0, txn(unlink("/f")), Some(Reason::InputOutput))?;
        stage.expect(0, read(&file, 3000), None)?;
        stage.crash(kind)?;
        let step = stage.write(&file, Some(500), 1000, true);
        stage.expect(0, step, None)?;
        stage.look()?;
    }
    Ok(())
}
