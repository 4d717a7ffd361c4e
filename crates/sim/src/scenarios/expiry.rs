//! Expiry of history, and concurrent operations.

use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::txn::{DeleteSnapshot, Grant, MakeSnapshot, Op, Remove, SetAttr, Target};

use super::common::{BOTH, tree_of_two_times};
use crate::stage::{Stage, clone_tree, forget, late, make_directory, read, target, txn, unlink};
use crate::violation::{Rule, Verdict, broken};

/// An expiry is in force wholly or not at all, and stays once answered; the retained history reads as before wherever
/// the disk stopped, in a horizon, a footer or a hole; the next process of the server gives back the rest.
pub(super) fn crash_at_every_effect_of_a_forgetting(seed: u64) -> Verdict {
    for kind in BOTH {
        for effect in 1..100 {
            let mut stage = Stage::new(seed + effect, 2)?;
            let at = tree_of_two_times(&mut stage)?;
            stage.expect(0, txn(make_snapshot("kept", at)), None)?;
            let file = stage.open(0, "/d/f")?;
            stage.expect(0, txn(Op::Grant(Grant { inode: file.inode, first: 0, count: 4 })), None)?;
            for round in 0..4 {
                let step = stage.write(&file, Some(round * 20_000), 90_000, false);
                stage.expect(0, step, None)?;
            }
            stage.expect(0, clone_tree("/d/f", stage.witness.newest_stamp(), "/clone"), None)?;
            let step = stage.write(&file, Some(0), 70_000, false);
            stage.expect(0, step, None)?;
            let before = stage.witness.newest_stamp();
            let step = stage.write(&file, Some(50_000), 10_000, false);
            stage.expect(0, step, None)?;
            stage.barrier()?;
            stage.look()?;
            stage.witness.machine.disk.fail_after(effect);
            let sent = stage.send(0, forget("/d", before))?;
            if !stage.witness.machine.is_dying() {
                stage.witness.tend()?;
            }
            if !stage.witness.machine.disk.is_crashed() {
                if stage.witness.machine.status().forgotten_bytes < 150_000 {
                    return broken(Rule::Live, "a forgetting of 180 KB gave back less than 150");
                }
                break;
            }
            stage.crash(kind)?;
            stage.witness.tend()?;
            stage.look()?;
            stage.deliver(0, late(&sent, 1_000_000))?;
            stage.look()?;
            stage.expect(1, txn(delete_snapshot("kept")), None)?;
            stage.witness.tend()?;
            stage.look()?;
            stage.crash(kind)?;
            stage.witness.tend()?;
            stage.look()?;
        }
    }
    Ok(())
}

fn make_snapshot(name: &str, at: Hlc) -> Op {
    Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: at.0, count_max: 0 })
}

fn delete_snapshot(name: &str) -> Op {
    Op::DeleteSnapshot(DeleteSnapshot { name: name.to_owned() })
}

/// A client with a file open whose directory was removed and has expired continues to write to and truncate the file.
pub(super) fn truncate_in_a_forgotten_directory(seed: u64) -> Verdict {
    let mut stage = Stage::new(seed, 1)?;
    stage.expect(0, txn(make_directory("/d")), None)?;
    let file = stage.make(0, "/d/f")?;
    let step = stage.write(&file, Some(0), 5000, false);
    stage.expect(0, step, None)?;
    stage.expect(0, txn(unlink("/d/f")), None)?;
    stage.expect(0, txn(Op::Remove(Remove { target: target("/d"), directory: true })), None)?;
    let before = stage.witness.newest_stamp();
    stage.expect(0, forget("/", before), None)?;
    let by_number = Target { base: file.inode, path: Vec::new(), follow: false };
    let cut = SetAttr { target: by_number, size: Some(2000), by_handle: true, ..SetAttr::default() };
    stage.expect(0, txn(Op::SetAttr(cut)), None)?;
    let step = stage.write(&file, None, 5000, false);
    stage.expect(0, step, None)?;
    stage.expect(0, read(&file, 10_000), None)?;
    stage.look()?;
    stage.crash(CrashKind::Process)
}
