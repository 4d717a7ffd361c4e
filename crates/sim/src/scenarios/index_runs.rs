//! The index on disk under crashes, retries and bit rot.

use frieze_disk::{CrashKind, Disk};
use frieze_wire::txn::{Grant, Op};

use super::common::BOTH;
use crate::client::Step;
use crate::exchange::Handle;
use crate::stage::{Stage, late, txn};
use crate::violation::{Rule, Verdict, broken};

/// Three files that are written to in turn.
fn three_files(stage: &mut Stage) -> Verdict<Vec<Handle>> {
    let mut files = Vec::new();
    for path in ["/a", "/b", "/c"] {
        let file = stage.make(0, path)?;
        stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
        files.push(file);
    }
    Ok(files)
}

/// Some writes to each file, in a segment that is full then, with its footer on stable storage.
fn a_full_segment(stage: &mut Stage, files: &[Handle]) -> Verdict {
    for round in 0..9u64 {
        let step = stage.write(&files[round as usize % 3], Some(round * 7000), 10_000, round % 4 == 0);
        stage.expect(0, step, None)?;
    }
    stage.witness.machine.close_segment();
    stage.barrier()?;
    let step = stage.write(&files[0], Some(0), 100, false);
    stage.expect(0, step, None)?;
    stage.barrier()
}

fn shelves(stage: &Stage) -> Vec<String> {
    let names = stage.witness.machine.disk.list().unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with("shelf-")).collect()
}

/// Four segments get index runs, and the runs are merged: wherever the disk stopped, everything reads as before, and
/// the next process of the server continues.
pub(super) fn crash_at_every_effect_of_a_shelving(seed: u64) -> Verdict {
    for kind in BOTH {
        for effect in 1..100 {
            let mut stage = Stage::new(seed + effect, 1)?;
            let files = three_files(&mut stage)?;
            for _ in 0..3 {
                a_full_segment(&mut stage, &files)?;
                stage.witness.tend()?;
            }
            if shelves(&stage).len() != 3 {
                return broken(Rule::Live, format!("three segments are shelved as {:?}", shelves(&stage)));
            }
            stage.look()?;
            a_full_segment(&mut stage, &files)?;
            stage.witness.machine.disk.fail_after(effect);
            stage.witness.tend()?;
            let over = !stage.witness.machine.disk.is_crashed();
            if over && shelves(&stage).len() != 1 {
                return broken(Rule::Live, format!("four shelves became {:?}", shelves(&stage)));
            }
            stage.crash(kind)?;
            let files: Vec<Handle> =
                ["/a", "/b", "/c"].iter().map(|path| stage.open(0, path)).collect::<Result<_, _>>()?;
            for file in &files {
                stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
            }
            a_full_segment(&mut stage, &files)?;
            stage.witness.tend()?;
            stage.look()?;
            stage.crash(kind)?;
            if over {
                break;
            }
        }
    }
    Ok(())
}

/// The answer to a write was lost, its record has been shelved since, and the server has started anew: the retry is
/// answered with the first run.
pub(super) fn retry_of_a_write_that_was_shelved(seed: u64) -> Verdict {
    for kind in BOTH {
        let mut stage = Stage::new(seed, 2)?;
        let files = three_files(&mut stage)?;
        let other = stage.make(1, "/other")?;
        let step = stage.write(&files[0], Some(3000), 5000, true);
        let sent = stage.send(0, step)?;
        stage.expect(1, Step::Sync { inode: 0 }, None)?;
        // Another client writes over it: run a second time it would show.
        let step = stage.write(&other, Some(0), 1000, true);
        stage.expect(1, step, None)?;
        stage.witness.machine.close_segment();
        stage.expect(1, Step::Sync { inode: 0 }, None)?;
        let step = stage.write(&other, Some(0), 1000, true);
        stage.expect(1, step, None)?;
        stage.expect(1, Step::Sync { inode: 0 }, None)?;
        stage.witness.tend()?;
        if shelves(&stage).is_empty() {
            return broken(Rule::Live, "nothing was shelved");
        }
        stage.crash(kind)?;
        stage.deliver(0, late(&sent, 1_000_000))?;
        stage.look()?;
        stage.crash(CrashKind::Process)?;
    }
    Ok(())
}

/// Any bit of a shelf rots: it is made anew from the footers, and nothing reads otherwise.
pub(super) fn rot_in_a_shelf(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    let files = three_files(&mut stage)?;
    for _ in 0..2 {
        a_full_segment(&mut stage, &files)?;
        stage.witness.tend()?;
    }
    for round in 0..60 {
        stage.witness.die(if round % 2 == 0 { CrashKind::Process } else { CrashKind::Power });
        let names = shelves(&stage);
        let disk = &stage.witness.machine.disk;
        let name = &names[stage.rng.below(names.len() as u64) as usize];
        let len = disk.open(name).and_then(|file| file.len()).unwrap_or(1);
        let (offset, bit) = (stage.rng.below(len), stage.rng.below(8) as u8);
        if disk.flip_bit(name, offset, bit).is_err() {
            return broken(Rule::Restarts, "there is no shelf to damage");
        }
        stage.restart()?;
        stage.witness.tend()?;
        stage.look()?;
        if round % 10 == 9 {
            let files = [stage.open(0, "/a")?, stage.open(0, "/b")?, stage.open(0, "/c")?];
            for file in &files {
                stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
            }
            a_full_segment(&mut stage, &files)?;
        }
    }
    Ok(())
}
