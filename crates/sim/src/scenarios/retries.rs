//! Requests that arrive twice, late or beside each other: each has one effect.

use frieze_base::Reason;
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::txn::{Grant, Op};

use crate::stage::{Stage, late, make_file, read, rename, settle, stat_at, truncate, txn};
use crate::violation::Verdict;
use crate::witness::CHUNK_BYTES;

/// A double of an append that comes when the file has grown onto another chain is not run again.
pub(super) fn doubled_append(seed: u64) -> Verdict {
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

/// A retry is answered word for word, also when the outcome comes from the store.
pub(super) fn retry_after_a_restart(seed: u64) -> Verdict {
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
pub(super) fn retry_of_a_truncate_after_a_rename(seed: u64) -> Verdict {
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
pub(super) fn two_sync_appends_on_their_way(seed: u64) -> Verdict {
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
pub(super) fn settle_beside_a_sync_write_on_its_way(seed: u64) -> Verdict {
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
pub(super) fn truncate_beside_a_sync_write_on_its_way(seed: u64) -> Verdict {
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
pub(super) fn group_across_chains_behind_a_sync_write(seed: u64) -> Verdict {
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

/// A session whose client is gone for too long ends, and its writes are completed.
pub(super) fn session_outlived(seed: u64) -> Verdict {
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
