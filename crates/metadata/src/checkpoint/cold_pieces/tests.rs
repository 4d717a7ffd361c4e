//! Names that leave memory, on simulated disks that fail and rot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use frieze_base::Seq;
use frieze_disk::{CrashKind, Disk, SimDisk};
use frieze_wire::txn::{Caller, MakeKind, Op, Outcome, Remove, Transaction};

use super::super::tests::{
    Churn, bytes_of, check_start, checkpoint, die, flush, names, rewrite, take_namespace, taken, with_one_checkpoint,
};
use super::*;
use crate::Metadata;
use crate::checkpoint::reader::CheckpointReader;
use crate::tests::fixture::{LoneMachine, make, run, target};

/// Makes files `/d/file-…` of these numbers.
fn make_files(churn: &mut Churn, files: std::ops::Range<u32>) {
    for file in files {
        churn.seq += 1;
        let op = Some(make(&format!("/many/file-{file:08}"), MakeKind::File(false)));
        let (session, seq) = (churn.session.0, churn.seq);
        let made = Transaction { session, seq, acked: seq - 1, caller: Caller::root(), must_see: 0, op };
        let outcome = churn.metadata.execute(made, None).and_then(Outcome::into_result);
        outcome.expect("it is made");
    }
}

/// A server with so many files, all of them in a checkpoint.
fn with_files(machine: &LoneMachine, files: u32) -> Churn {
    let mut churn = Churn::begin(machine.serve(), 1);
    churn.seq += 1;
    let directory = make("/many", MakeKind::Directory(true));
    run(&churn.metadata, churn.session, Seq(churn.seq), directory).expect("it is made");
    make_files(&mut churn, 0..files);
    assert_eq!(checkpoint(&churn.metadata), Ok(true));
    churn
}

fn evict_all(metadata: &Metadata) {
    metadata.evict_names(0);
    let (memory, _) = metadata.names_memory();
    assert!(memory.cold_bytes > 0 && memory.bytes < 20_000, "{memory:?}");
}

/// What the panic says that ends the server.
fn lost<T>(of: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(of)).err().expect("the server ends");
    payload.downcast::<LostNames>().expect("for its names").words
}

#[test]
fn a_server_that_evicts_has_the_present_and_the_checkpoints_of_one_that_does_not() {
    for seed in 0..20 {
        let machines = [LoneMachine::new(seed), LoneMachine::new(seed)];
        let [mut hot, mut cold] = [0, 1].map(|at: usize| Churn::begin(machines[at].serve(), seed));
        for round in 0..4 {
            [&mut hot, &mut cold].into_iter().for_each(|churn| churn.steps(60));
            assert_eq!((checkpoint(&hot.metadata), checkpoint(&cold.metadata)), (Ok(true), Ok(true)));
            let newest = machines.each_ref().map(|machine| {
                let name = names(&machine.disk).pop().expect("there is one");
                bytes_of(&machine.disk, &name)
            });
            assert!(newest[0] == newest[1], "seed {seed}: the checkpoint {round} of cold names is another");
            cold.metadata.evict_names(0);
            assert!(cold.metadata.names_memory().0.bytes == 0, "all of it is in the checkpoint");
            [&mut hot, &mut cold].into_iter().for_each(|churn| churn.steps(30));
            cold.metadata.evict_names(0);
            assert!(cold.metadata.names_memory().0.loads > 0);
        }
        [&hot, &cold].into_iter().for_each(|churn| flush(&churn.metadata));
        let live = take_namespace(&hot.metadata);
        assert!(live == take_namespace(&cold.metadata), "seed {seed}");
        drop((hot, cold));
        check_start(&machines[1], Some(&live));
    }
}

#[test]
fn a_piece_that_is_damaged_or_cannot_be_read_ends_the_server_and_the_next_start_reads_the_store() {
    for damage in 0..3 {
        let machine = LoneMachine::new(damage);
        let churn = with_files(&machine, 2000);
        let live = taken(&churn.metadata);
        flush(&churn.metadata);
        evict_all(&churn.metadata);
        let name = names(&machine.disk).remove(0);
        let header = *CheckpointReader::open(&machine.disk, &name).expect("it is whole").header();
        let begin = offsets(&header).names;
        let middle = begin + header.names.bytes / 2;
        match damage {
            0 => machine.disk.flip_bit(&name, middle, 3).expect("it is there"),
            1 => machine.disk.wear_out(&name, begin..begin + header.names.bytes).expect("it is there"),
            _ => machine.disk.flip_bit(&name, begin + 1, 0).expect("it is there"),
        }
        let words = match damage {
            // A transaction, half executed. The next start executes it, and refuses it.
            2 => {
                let remove = Op::Remove(Remove { target: target("/many/none"), directory: false });
                lost(|| run(&churn.metadata, churn.session, Seq(churn.seq + 1), remove))
            }
            _ => lost(|| churn.metadata.state.read().present().name_pieces(&mut |_| true)),
        };
        let what = if damage == 1 { "cannot read checkpoint-0" } else { "checksum of the piece is wrong" };
        assert!(words.contains(&name) && words.contains("offset") && words.contains(what), "{words}");
        die(&machine, churn, CrashKind::Process);
        let (again, notes) = machine.open().expect("it starts");
        assert!(notes.len() == 1 && notes[0].contains(&name), "{notes:?}");
        assert!(taken(&again) == live);
        assert_eq!(names(&machine.disk).is_empty(), damage != 1, "a damaged one is removed");
    }
}

#[test]
fn a_file_that_is_cut_short_ends_the_server() {
    let machine = LoneMachine::new(1);
    let churn = with_files(&machine, 500);
    let name = names(&machine.disk).remove(0);
    let bytes = bytes_of(&machine.disk, &name);
    let short = SimDisk::new(7);
    rewrite(&short, "short", &bytes[..bytes.len() / 2]);
    let pieces = CheckpointPieces::new("short".to_owned(), short.open("short").expect("it is there"));
    let words = lost(|| pieces.read(bytes.len() as u64 / 2, 700, &mut PieceWindow::default()).len());
    assert!(words.contains("cut off") && words.contains("of short"), "{words}");
    drop(churn);
}

#[test]
fn a_hundred_thousand_files_need_a_megabyte_of_memory() {
    const BOUND: u64 = 1 << 20;
    let machine = LoneMachine::new(2);
    let mut churn = with_files(&machine, 1);
    for round in 0..10 {
        make_files(&mut churn, round * 10_000 + 1..(round + 1) * 10_000 + 1);
        assert_eq!(checkpoint(&churn.metadata), Ok(true));
        churn.metadata.evict_names(BOUND);
        let (memory, _) = churn.metadata.names_memory();
        assert!(memory.bytes <= BOUND, "{memory:?}");
    }
    let (memory, _) = churn.metadata.names_memory();
    assert!(memory.bytes > BOUND / 4 && memory.bytes + memory.cold_bytes > BOUND * 3 / 2, "{memory:?}");
}

#[test]
fn a_start_with_more_names_than_memory_leaves_them_in_the_checkpoint() {
    let mut machine = LoneMachine::new(3);
    let mut churn = with_files(&machine, 3000);
    make_files(&mut churn, 3000..3200);
    churn.steps(50);
    flush(&churn.metadata);
    let live = take_namespace(&churn.metadata);
    drop(churn);
    machine.names_bytes_max = 64 << 10;
    let (again, notes) = machine.open().expect("it starts");
    let (memory, bytes_max) = again.names_memory();
    assert_eq!((bytes_max, notes), (64 << 10, Vec::new()));
    assert!(memory.bytes < 2 * bytes_max && memory.cold_bytes > 0, "{memory:?}");
    assert!(take_namespace(&again) == live);
    drop(again);
    check_start(&machine, Some(&live));
}

#[test]
fn a_checkpoint_that_fails_leaves_the_places_of_the_one_before() {
    let machine = LoneMachine::new(4);
    let mut churn = with_one_checkpoint(&machine, 4, 200);
    churn.metadata.evict_names(0);
    for writes in 0..3 {
        machine.disk.fail_writes(writes, 1);
        assert!(checkpoint(&churn.metadata).is_err(), "write {writes}");
        churn.steps(10);
        flush(&churn.metadata);
        churn.metadata.evict_names(0);
    }
    // The file of which the places are is removed, and stays open.
    for _ in 0..3 {
        assert_eq!(checkpoint(&churn.metadata), Ok(true));
        churn.metadata.evict_names(0);
        churn.steps(10);
        flush(&churn.metadata);
    }
    let live = take_namespace(&churn.metadata);
    drop(churn);
    check_start(&machine, Some(&live));
}

#[test]
fn names_that_no_checkpoint_has_make_one_due_when_they_fill_their_memory() {
    let mut machine = LoneMachine::new(5);
    machine.names_bytes_max = 64 << 10;
    let mut churn = with_files(&machine, 3000);
    churn.metadata.keep_names_to_memory();
    assert!(!churn.metadata.is_checkpoint_due());
    make_files(&mut churn, 3000..9000);
    churn.metadata.keep_names_to_memory();
    assert!(churn.metadata.is_checkpoint_due());
    assert_eq!(checkpoint(&churn.metadata), Ok(true));
    let (memory, bytes_max) = churn.metadata.names_memory();
    assert!(memory.bytes <= bytes_max && !churn.metadata.is_checkpoint_due(), "{memory:?}");
}
