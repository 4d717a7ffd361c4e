//! Faults, and their repair.

use frieze_disk::{CrashKind, Disk};

use super::repair::ServerRepair;
use super::{RESERVE_BYTES, SEGMENT_BYTES, ServerEvent, ServerWorld};
use crate::violation::Verdict;

/// A fault.
#[derive(Clone, Copy, Debug)]
enum ServerFault {
    CrashAtEffect,
    CrashInStore,
    Die,
    PowerLoss,
    ClockJump,
    Pause,
    FailedSync,
    RefusedWrites,
    RefusedReads,
    FullDisk,
    Rot,
    StopInOrder,
    SlowFlusher,
}

const FAULTS: [ServerFault; 19] = [
    ServerFault::CrashAtEffect,
    ServerFault::CrashAtEffect,
    ServerFault::CrashAtEffect,
    ServerFault::CrashAtEffect,
    ServerFault::CrashInStore,
    ServerFault::Die,
    ServerFault::PowerLoss,
    ServerFault::PowerLoss,
    ServerFault::PowerLoss,
    ServerFault::ClockJump,
    ServerFault::ClockJump,
    ServerFault::Pause,
    ServerFault::FailedSync,
    ServerFault::RefusedWrites,
    ServerFault::RefusedReads,
    ServerFault::FullDisk,
    ServerFault::Rot,
    ServerFault::StopInOrder,
    ServerFault::SlowFlusher,
];

impl ServerWorld {
    pub(super) fn inject(&mut self) -> Verdict {
        self.counts.faults += 1;
        let fault = *self.rng.choose(&FAULTS);
        self.witness.trace.line(|| format!("fault: {fault:?}"));
        self.next_crash = if self.rng.chance(2) { CrashKind::Power } else { CrashKind::Process };
        let up = self.witness.machine.is_up();
        match fault {
            ServerFault::CrashAtEffect if up => {
                let changes = self.rng.between(1, 30);
                self.witness.machine.disk.fail_after(changes);
            }
            ServerFault::CrashInStore if up => {
                let changes = self.rng.between(1, 4);
                self.witness.machine.store.fail_after(changes);
            }
            ServerFault::Die if up => self.die(CrashKind::Process),
            ServerFault::PowerLoss if up => self.die(CrashKind::Power),
            ServerFault::ClockJump => self.jump_clock(),
            ServerFault::Pause => {
                let long = self.rng.chance(3);
                let pause =
                    if long { self.rng.between(20_000_000, 90_000_000) } else { self.rng.between(1000, 3_000_000) };
                self.witness.machine.time.advance_us(pause);
                self.now_us += pause;
            }
            ServerFault::FailedSync if up => {
                let count = self.rng.between(1, 3) as u32;
                self.witness.machine.disk.fail_syncs(count);
                self.suspect_device();
            }
            ServerFault::RefusedWrites if up => {
                // Of each some part is written, and the rest not.
                let (after, count) = (self.rng.below(20) as u32, self.rng.between(1, 3) as u32);
                self.witness.machine.disk.fail_writes(after, count);
                self.suspect_device();
            }
            ServerFault::RefusedReads if up => {
                let count = self.rng.between(1, 3) as u32;
                self.witness.machine.disk.fail_reads(count);
                self.suspect_device();
            }
            ServerFault::FullDisk => {
                self.witness.excuses.full = true;
                let disk = &self.witness.machine.disk;
                if let Ok(space) = disk.space() {
                    let spare = self.rng.below(2) * SEGMENT_BYTES;
                    disk.set_capacity(space.capacity_bytes - space.free_bytes + RESERVE_BYTES + spare);
                }
                let delay = self.rng.between(200_000, 4_000_000);
                self.after(delay, ServerEvent::Heal(ServerRepair::Space));
            }
            ServerFault::Rot if up && self.rotten.is_none() => self.rot(),
            ServerFault::StopInOrder if up => {
                self.witness.stop()?;
                self.carry_answers();
                if !self.witness.machine.is_dying() {
                    self.die(CrashKind::Process);
                }
            }
            ServerFault::SlowFlusher => self.flush_delay_us = self.rng.between(50_000, 2_000_000),
            // The server is down: something happens to it that also can then.
            _ => self.jump_clock(),
        }
        Ok(())
    }

    /// The device may refuse an operation from now on. If the server does not notice that, the scheduled restart ends
    /// it.
    fn suspect_device(&mut self) {
        self.witness.excuses.device = true;
        let delay = self.rng.between(1_000_000, 5_000_000);
        self.after(delay, ServerEvent::Restart);
    }

    fn jump_clock(&mut self) {
        self.witness.excuses.clock = true;
        let (by_us, heals) = match self.rng.below(10) {
            0 => (3_600_000_000, false),
            1 => (-3_600_000_000, true),
            2..=5 => (self.rng.between(10_000, 3_000_000) as i64, false),
            _ => (-(self.rng.between(10_000, 3_000_000) as i64), false),
        };
        self.witness.trace.line(|| format!("the clock jumps by {by_us} us"));
        self.witness.machine.time.jump_wall_us(by_us);
        if heals {
            let delay = self.rng.between(1_000_000, 30_000_000);
            self.after(delay, ServerEvent::Heal(ServerRepair::Clock { by_us: -by_us }));
        }
    }

    /// Flips a bit among the records of the oldest segment.
    fn rot(&mut self) {
        let log_bytes = self.witness.machine.status().log_bytes;
        let offset = self.rng.below(log_bytes.clamp(1, SEGMENT_BYTES / 2));
        let bit = self.rng.below(8) as u8;
        if log_bytes == 0 || !self.flip(offset, bit) {
            return;
        }
        self.witness.excuses.rot = true;
        self.rotten = Some((offset, bit));
        let delay = self.rng.between(100_000, 3_000_000);
        self.after(delay, ServerEvent::Heal(ServerRepair::Rot { offset, bit }));
    }

    fn flip(&mut self, offset: u64, bit: u8) -> bool {
        let disk = &self.witness.machine.disk;
        let names = disk.list().unwrap_or_default();
        let Some(name) = names.iter().find(|name| name.starts_with("seg-")) else { return false };
        disk.flip_bit(name, offset, bit).is_ok()
    }

    pub(super) fn heal(&mut self, healing: ServerRepair) {
        match healing {
            ServerRepair::Clock { by_us } => self.witness.machine.time.jump_wall_us(by_us),
            ServerRepair::Space => {
                self.witness.machine.disk.set_capacity(u64::MAX / 2);
                self.witness.excuses.full = false;
            }
            ServerRepair::Rot { offset, bit } => self.heal_rot(Some((offset, bit))),
        }
    }

    /// Flips a bit back, as if by hand: recovery from damage is a scenario of its own.
    pub(super) fn heal_rot(&mut self, which: Option<(u64, u8)>) {
        if let Some((offset, bit)) = self.rotten.take_if(|rotten| which.is_none_or(|which| which == *rotten)) {
            self.flip(offset, bit);
            self.witness.excuses.rot = false;
        }
    }
}
