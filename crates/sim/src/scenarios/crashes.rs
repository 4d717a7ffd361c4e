//! Crashes at every effect of an operation: afterwards the operation happened wholly, or not at all.

use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::txn::{Grant, Op};

use super::common::{BOTH, tree_of_two_times};
use crate::client::Step;
use crate::stage::{
    Stage, clone_tree, late, make_file, read, rename, restore, set_xattr, settle, sync_txn, truncate, txn, undo,
};
use crate::violation::{Rule, Verdict, broken};

/// Write a new file, make it durable, rename it over the old one: after a crash anywhere, one of them is there,
/// complete.
pub(super) fn crash_at_every_effect_of_a_rename(seed: u64) -> Verdict {
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
pub(super) fn crash_at_every_effect_of_an_edit(seed: u64) -> Verdict {
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

/// A data directory that was begun and not finished is finished by the next start.
pub(super) fn crash_at_every_effect_of_the_first_start(seed: u64) -> Verdict {
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
pub(super) fn crash_at_every_effect_of_a_recovery(seed: u64) -> Verdict {
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
pub(super) fn torn_tail(seed: u64) -> Verdict {
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
pub(super) fn torn_twice_in_one_place(seed: u64) -> Verdict {
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

/// An inode that was lost leaves nothing to the next one: neither its number nor its bytes nor its capability.
pub(super) fn inode_lost_with_the_power(seed: u64) -> Verdict {
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
pub(super) fn grant_lost_with_the_power(seed: u64) -> Verdict {
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
