//! Bit rot beside the records: in footers, and in the log of metadata.

use frieze_base::Reason;
use frieze_disk::{CrashKind, Disk};
use frieze_wire::txn::{Grant, Op};

use crate::stage::{Stage, make_directory, txn};
use crate::violation::{Rule, Verdict, broken};

/// The names of files that begin so, and their lengths.
fn files(stage: &Stage, prefix: &str) -> Vec<(String, u64)> {
    let disk = &stage.witness.machine.disk;
    let names = disk.list().unwrap_or_default().into_iter().filter(|name| name.starts_with(prefix));
    names.map(|name| (name.clone(), disk.open(&name).and_then(|file| file.len()).unwrap_or(0))).collect()
}

fn byte_at(disk: &dyn Disk, name: &str, offset: u64) -> Option<u8> {
    let mut byte = [0];
    let read = disk.open(name).and_then(|file| file.read_at(offset, &mut byte));
    read.is_ok().then_some(byte[0])
}

/// Some writes in a segment that is full then, with its footer on stable storage.
fn a_full_segment(stage: &mut Stage) -> Verdict {
    let file = stage.open(0, "/f")?;
    stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
    for round in 0..9u64 {
        let step = stage.write(&file, Some(round * 7000), 10_000, round % 4 == 0);
        stage.expect(0, step, None)?;
    }
    stage.witness.machine.close_segment();
    stage.barrier()?;
    let step = stage.write(&file, Some(0), 100, false);
    stage.expect(0, step, None)?;
    stage.barrier()
}

/// Any bit of any footer rots, under a running server or a stopped one: its records are read in another way, every byte
/// as before, and the server continues.
pub(super) fn rot_in_a_footer(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    stage.make(0, "/f")?;
    let mut met = 0;
    for round in 0..40u64 {
        a_full_segment(&mut stage)?;
        let kind = if round % 2 == 0 { CrashKind::Process } else { CrashKind::Power };
        let runs = stage.rng.chance(2);
        if !runs {
            stage.witness.die(kind);
        }
        let segments = files(&stage, "seg-");
        let (name, len) = &segments[stage.rng.below(segments.len() as u64) as usize];
        // The entries of ten records, and the trailer.
        let (offset, bit) = (len - 1 - stage.rng.below(128 + 10 * 25), stage.rng.below(8) as u8);
        if stage.witness.machine.disk.flip_bit(name, offset, bit).is_err() {
            return broken(Rule::Restarts, "there is no segment to damage");
        }
        if runs {
            stage.look()?;
            stage.witness.tend()?;
            stage.look()?;
            stage.witness.die(kind);
        }
        stage.restart()?;
        met += usize::from(stage.witness.machine.notes().iter().any(|note| note.contains("read instead")));
        stage.witness.tend()?;
        stage.look()?;
    }
    if met == 0 { broken(Rule::Restarts, "no start has met a damaged footer") } else { Ok(()) }
}

/// Any bit of the log of metadata rots: the server refuses to start with a reason, or has lost nothing.
pub(super) fn rot_in_the_metalog(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let mut refused = 0;
    for round in 0..30u64 {
        stage.expect(0, txn(make_directory(&format!("/d{round}"))), None)?;
        stage.barrier()?;
        stage.witness.die(CrashKind::Process);
        let logs = files(&stage, "raft-");
        let name = logs[stage.rng.below(logs.len() as u64) as usize].0.clone();
        let (offset, bit) = (stage.rng.below(8000), stage.rng.below(8) as u8);
        let disk = stage.witness.machine.disk.clone();
        if disk.flip_bit(&name, offset, bit).is_err() {
            return broken(Rule::Restarts, "there is no log to damage");
        }
        let rotten = byte_at(&disk, &name, offset);
        match stage.witness.machine.start() {
            Err(fault) if matches!(fault.reason, Reason::Corrupt | Reason::WrongVersion) => refused += 1,
            Err(fault) => return broken(Rule::PromisedErrors, format!("rot in {name} at {offset}: {fault}")),
            // Entries that the store of names has already are not read again.
            Ok(()) => {}
        }
        stage.witness.die(CrashKind::Process);
        // A start writes behind the end of the log: what lies there now is no rot.
        if byte_at(&disk, &name, offset) == rotten {
            let set_right = disk.flip_bit(&name, offset, bit);
            drop(set_right);
        }
        stage.restart()?;
    }
    if refused == 0 { broken(Rule::Restarts, "no rot was refused") } else { Ok(()) }
}

/// Damage to records under a footer costs what was damaged, with a report, and nothing else.
pub(super) fn rot_in_what_was_vouched_for(seed: u64) -> Verdict {
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
