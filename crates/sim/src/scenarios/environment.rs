//! Clocks that jump, a disk that is full or fails, logs that grow over many segments.

use frieze_base::Reason;
use frieze_disk::{CrashKind, Disk};
use frieze_wire::txn::{Grant, Op};

use super::common::BOTH;
use crate::client::Step;
use crate::stage::{Stage, make_directory, read, set_xattr, stamp_of, stat_at, sync_txn, truncate, txn, unlink};
use crate::violation::{Rule, Verdict, broken};
use crate::world::{RESERVE_BYTES, SEGMENT_BYTES};

/// The wall clock is set back by an hour: no stamp goes back, writes wait, the past stays readable; an hour later, or
/// when the clock is corrected, everything continues.
pub(super) fn clock_back_an_hour(seed: u64) -> Verdict {
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
pub(super) fn clock_forward_an_hour(seed: u64) -> Verdict {
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
pub(super) fn disk_full_then_unlink(seed: u64) -> Verdict {
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

/// The requests that wait for a failing sync receive its fault; nothing is changed until a restart, and nothing that
/// was reported as durable is lost.
pub(super) fn failed_sync(seed: u64) -> Verdict {
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

/// An append over more chunks than one grant covers.
pub(super) fn large_append(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let file = stage.make(0, "/f")?;
    for len in [3 << 20, 4 << 20] {
        let step = stage.write(&file, None, len, false);
        stage.expect(0, step, None)?;
    }
    stage.look()
}

/// Segments fill, are sealed and read by their footers, also after a loss of power in the middle.
pub(super) fn segments_roll(seed: u64) -> Verdict {
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
pub(super) fn metalog_rolls(seed: u64) -> Verdict {
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
