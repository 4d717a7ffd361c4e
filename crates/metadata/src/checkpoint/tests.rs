//! Checkpoints on simulated disks that crash, fill up and rot.

use frieze_base::{InodeId, Rng, Seq, SessionId};
use frieze_disk::{CrashKind, SimDisk};
use frieze_namespace::Namespace;
use frieze_wire::txn::{Link, MakeKind, Op, Remove, Rename, SetAttr, SetXattr, Settle};

use super::format::{FOOTER_BYTES, HEADER_BYTES};
use super::*;
use crate::Metadata;
use crate::tests::fixture::{LoneMachine, make, open_session, run, target};

/// A lone server, and what random transactions need.
pub(super) struct Churn {
    pub(super) metadata: Metadata,
    pub(super) session: SessionId,
    pub(super) seq: u64,
    rng: Rng,
    /// Files that are open for writing.
    open: Vec<u64>,
}

impl Churn {
    pub(super) fn begin(metadata: Metadata, seed: u64) -> Churn {
        let session = open_session(&metadata, 0, false);
        Churn { metadata, session, seq: 0, rng: Rng::new(seed), open: Vec::new() }
    }

    fn path(&mut self) -> String {
        match self.rng.below(3) {
            0 => format!("/d{}", self.rng.below(4)),
            1 => format!("/f{}", self.rng.below(12)),
            _ => format!("/d{}/f{}", self.rng.below(4), self.rng.below(30)),
        }
    }

    /// One random transaction; that it is refused changes nothing.
    pub(super) fn step(&mut self) {
        let (path, other) = (self.path(), self.path());
        let op = match self.rng.below(12) {
            0 => make(&path, MakeKind::Directory(true)),
            1..=3 => make(&path, MakeKind::File(false)),
            4 => make(&path, MakeKind::File(true)),
            5 => Op::Remove(Remove { target: target(&path), directory: self.rng.chance(2) }),
            6 => Op::Rename(Rename { from: target(&path), to: target(&other), flags: self.rng.below(3) as u32 }),
            7 => Op::Link(Link { file: target(&path), name: target(&other) }),
            8 => Op::SetAttr(SetAttr {
                target: target(&path),
                mode: Some(0o600 + self.rng.below(64) as u32),
                ..SetAttr::default()
            }),
            9 => {
                Op::SetXattr(SetXattr { target: target(&path), name: b"user.a".to_vec(), value: vec![7; 9], flags: 0 })
            }
            10 if !self.open.is_empty() => {
                // Nothing was written: the version with the grant is written again in its place.
                let at = self.rng.below(self.open.len() as u64) as usize;
                Op::Settle(Settle { inode: self.open.swap_remove(at), ..Settle::default() })
            }
            _ => make(&path, MakeKind::Symlink(other.into_bytes())),
        };
        let opens = matches!(&op, Op::Make(make) if make.kind == Some(MakeKind::File(true)));
        self.seq += 1;
        if let Ok(outcome) = run(&self.metadata, self.session, Seq(self.seq), op)
            && opens
        {
            self.open.push(outcome.id);
        }
    }

    pub(super) fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }
}

/// Everything of the log is durable, and in tables as far as memtables are closed.
pub(super) fn flush(metadata: &Metadata) {
    let mark = metadata.mark();
    metadata.sync(mark).expect("it is flushed");
    metadata.settle_versions(mark.index).expect("the store has it");
}

pub(super) fn checkpoint(metadata: &Metadata) -> Result<bool, Fault> {
    let mut flushes = 0;
    metadata.checkpoint(&mut || {
        flush(metadata);
        flushes += 1;
        flushes < 3
    })
}

/// A server with a checkpoint, and as many transactions behind it.
pub(super) fn with_one_checkpoint(machine: &LoneMachine, seed: u64, steps: u64) -> Churn {
    let mut churn = Churn::begin(machine.serve(), seed);
    churn.steps(steps);
    assert_eq!(checkpoint(&churn.metadata), Ok(true));
    churn.steps(steps);
    flush(&churn.metadata);
    churn
}

pub(super) fn names(disk: &SimDisk) -> Vec<String> {
    let all = disk.list().expect("it works");
    all.into_iter().filter(|name| name.starts_with(PREFIX)).collect()
}

pub(super) fn bytes_of(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it works") as usize];
    assert_eq!(file.read_at(0, &mut bytes), Ok(bytes.len()));
    bytes
}

/// Puts these bytes in the place of a file.
pub(super) fn rewrite(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let _replaced = disk.remove(name);
    let file = disk.create(name, bytes.len() as u64).expect("there is room");
    file.write_at(0, &[bytes]).expect("it works");
}

/// Names and inodes of a server, without sessions and outcomes.
pub(super) fn taken(metadata: &Metadata) -> Namespace {
    let mut taken = Namespace::new();
    let namespace = metadata.state.read();
    let present = namespace.present();
    let (mut inodes, mut names) = (PackedInodes::default(), PackedNames::default());
    assert!(present.inode_pieces(&mut |piece| inodes.load(piece).is_ok()));
    assert!(present.name_pieces(&mut |piece| names.load(piece).is_ok()));
    taken.take_present(inodes, names);
    taken
}

/// The namespace of a server that ends.
pub(super) fn take_namespace(metadata: &Metadata) -> Namespace {
    std::mem::take(&mut *metadata.state.namespace.write())
}

/// What a start finds with the checkpoints that are there is what it finds with the store alone, and what `live` had.
/// Returns the index of the checkpoint that was read, and the notes.
pub(super) fn check_start(machine: &LoneMachine, live: Option<&Namespace>) -> (LogIndex, Vec<String>) {
    let (again, notes) = machine.open().expect("it starts");
    let index = again.checkpoint_status().index;
    let by_checkpoint = take_namespace(&again);
    if let Some(live) = live {
        assert!(by_checkpoint == *live, "a start from the checkpoint of entry {index} finds another state");
    }
    drop(again);
    let saved: Vec<_> = names(&machine.disk).into_iter().map(|name| (bytes_of(&machine.disk, &name), name)).collect();
    saved.iter().for_each(|(_, name)| machine.disk.remove(name).expect("it is there"));
    let (alone, _) = machine.open().expect("it starts");
    assert_eq!(alone.checkpoint_status().index, LogIndex(0));
    let alone = take_namespace(&alone);
    assert!(alone == by_checkpoint, "starts from the checkpoint of entry {index} and from the store differ");
    assert_eq!((alone.counts(), alone.numbers()), (by_checkpoint.counts(), by_checkpoint.numbers()));
    saved.iter().for_each(|(bytes, name)| rewrite(&machine.disk, name, bytes));
    (index, notes)
}

/// Ends the process, or the power.
pub(super) fn die(machine: &LoneMachine, churn: Churn, kind: CrashKind) {
    drop(churn);
    machine.crash(kind);
}

#[test]
fn a_start_from_a_checkpoint_is_a_start_from_the_store_and_the_live_present() {
    for seed in 0..40 {
        let machine = LoneMachine::new(seed);
        machine.store.set_memtable_bytes_max(1 << (8 + seed % 8));
        let mut churn = Churn::begin(machine.serve(), seed);
        for _ in 0..3 {
            let steps = churn.rng.between(1, 120);
            churn.steps(steps);
            if churn.rng.chance(3) {
                flush(&churn.metadata);
            }
            assert_eq!(checkpoint(&churn.metadata), Ok(true));
            let taken_at = churn.metadata.checkpoint_status().index;
            // Some of it is in tables at the start, some in the log alone.
            for _ in 0..churn.rng.below(4) {
                churn.steps(40);
                flush(&churn.metadata);
            }
            let Churn { metadata, session, seq, rng, open } = churn;
            let live = take_namespace(&metadata);
            drop(metadata);
            let (index, notes) = check_start(&machine, Some(&live));
            assert_eq!((index, notes), (taken_at, Vec::new()));
            let metadata = machine.serve();
            churn = Churn { metadata, session, seq, rng, open };
        }
    }
}

#[test]
fn more_changes_than_a_window_has_are_read_in_several() {
    let machine = LoneMachine::new(1);
    let mut churn = with_one_checkpoint(&machine, 1, 300);
    churn.steps(300);
    flush(&churn.metadata);
    let versions = &churn.metadata.state.versions;
    let reader = |name: &str| CheckpointReader::open(&machine.disk, name).expect("it is whole");
    let name = names(&machine.disk).remove(0);
    let bring_up = |window| {
        let reader = reader(&name);
        let (inodes, names) = read(&reader, versions, 1 << 30).expect("it is whole");
        let LoadedPresent { inodes, names, changes, .. } =
            bring_up_by(inodes, names, reader.header(), versions, window).expect("it has all");
        let mut namespace = Namespace::new();
        namespace.take_present(inodes, names);
        (namespace, changes)
    };
    let (whole, changes) = bring_up(WINDOW_CHANGES);
    assert!(changes > 200, "{changes} changes");
    for window in [1, 2, 7, 100] {
        let (parts, counted) = bring_up(window);
        assert!(parts == whole && counted == changes, "{window} at once");
    }
    assert!(whole == taken(&churn.metadata));
}

#[test]
fn a_crash_at_each_change_of_the_disk_leaves_the_checkpoint_before_or_the_new_one() {
    for kind in [CrashKind::Process, CrashKind::Power] {
        let mut found = std::collections::BTreeMap::<usize, u32>::new();
        for at in 1.. {
            let machine = LoneMachine::new(at);
            let mut churn = with_one_checkpoint(&machine, at, 60);
            churn.steps(60);
            assert_eq!(checkpoint(&churn.metadata), Ok(true));
            let before = churn.metadata.checkpoint_status().index;
            churn.steps(60);
            flush(&churn.metadata);
            let live = taken(&churn.metadata);
            machine.disk.fail_after(at);
            let written = churn.metadata.checkpoint(&mut || churn.metadata.settle_versions(LogIndex(0)).is_ok());
            let is_over = !machine.disk.is_crashed();
            let newest = churn.metadata.appended();
            die(&machine, churn, kind);
            let (index, notes) = check_start(&machine, None);
            assert!(index == before || index == newest, "{index} is neither {before} nor {newest}");
            assert!(written != Ok(true) || index == newest, "what was published is there");
            assert_eq!(notes, Vec::<String>::new(), "a crash is no damage");
            let (again, _) = machine.open().expect("it starts");
            assert!(taken(&again) == live);
            assert!(!names(&machine.disk).contains(&UNFINISHED.to_owned()));
            assert_eq!(names(&machine.disk).len(), KEPT);
            *found.entry(usize::from(index == newest)).or_default() += 1;
            if is_over {
                break;
            }
        }
        assert!(found.len() == 2 && found[&0] > 6 && found[&1] > 1, "{found:?}");
    }
}

#[test]
fn a_start_that_crashes_at_each_change_of_the_disk_is_followed_by_one_that_does_not() {
    for at in 1.. {
        let machine = LoneMachine::new(at);
        let churn = with_one_checkpoint(&machine, at, 60);
        let live = taken(&churn.metadata);
        die(&machine, churn, CrashKind::Process);
        let [name] = &names(&machine.disk)[..] else { panic!("there is one") };
        let mut bytes = bytes_of(&machine.disk, name);
        bytes[HEADER_BYTES + 20] ^= 1;
        rewrite(&machine.disk, name, &bytes);
        rewrite(&machine.disk, UNFINISHED, b"half of one");
        machine.disk.fail_after(at);
        let started = machine.open().is_ok();
        let is_over = !machine.disk.is_crashed();
        machine.disk.crash(CrashKind::Power);
        machine.disk.restart();
        machine.store.lose_memory();
        let (again, _) = machine.open().expect("it starts");
        assert!(taken(&again) == live);
        assert_eq!(names(&machine.disk), Vec::<String>::new());
        if is_over {
            assert!(started);
            break;
        }
    }
}

#[test]
fn a_torn_or_rotten_checkpoint_is_named_and_the_one_before_is_read() {
    let machine = LoneMachine::new(3);
    let mut churn = with_one_checkpoint(&machine, 3, 200);
    assert_eq!(checkpoint(&churn.metadata), Ok(true));
    churn.steps(50);
    flush(&churn.metadata);
    let live = taken(&churn.metadata);
    die(&machine, churn, CrashKind::Process);
    let [older, newer] = &names(&machine.disk)[..] else { panic!("two are kept") };
    let whole: Vec<Vec<u8>> = [older, newer].iter().map(|name| bytes_of(&machine.disk, name)).collect();
    let mut rng = Rng::new(7);
    for round in 0..300 {
        let damage = |bytes: &mut Vec<u8>, rng: &mut Rng| match rng.below(4) {
            0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            // What a loss of power leaves of a file of its length: zeros from some byte on, or some sectors of zeros.
            1 => {
                let at = rng.below(bytes.len() as u64 - FOOTER_BYTES as u64) as usize;
                bytes[at..].fill(0);
            }
            2 => {
                let at = rng.below(bytes.len() as u64) as usize;
                let end = bytes.len().min(at + 600);
                rng.fill(&mut bytes[at..end]);
            }
            _ => {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        };
        let mut bytes = whole.clone();
        damage(&mut bytes[1], &mut rng);
        let are_both = round % 10 == 0;
        if are_both {
            damage(&mut bytes[0], &mut rng);
        }
        rewrite(&machine.disk, older, &bytes[0]);
        rewrite(&machine.disk, newer, &bytes[1]);
        machine.store.lose_memory();
        let (again, notes) = machine.open().expect("it starts");
        assert!(taken(&again) == live, "round {round}: {notes:?}");
        assert_eq!(notes.len(), 1 + usize::from(are_both), "{notes:?}");
        assert!(notes[0].contains(newer.as_str()) && notes[0].contains("is damaged"), "{notes:?}");
        let index = again.checkpoint_status().index;
        assert_eq!(index.0 == 0, are_both, "round {round}");
        assert_eq!(names(&machine.disk).len(), usize::from(!are_both), "a damaged one is removed");
    }
}

#[test]
fn a_checkpoint_whose_pieces_are_swapped_repeated_or_left_out_is_damaged() {
    let machine = LoneMachine::new(3);
    let mut churn = Churn::begin(machine.serve(), 3);
    for number in 0..6 {
        let made = [
            make(&format!("/x{number}"), MakeKind::Directory(true)),
            make(&format!("/x{number}/y"), MakeKind::File(false)),
        ];
        for op in made {
            churn.seq += 1;
            run(&churn.metadata, churn.session, Seq(churn.seq), op).expect("it is made");
        }
    }
    assert_eq!(checkpoint(&churn.metadata), Ok(true));
    let name = names(&machine.disk).remove(0);
    let whole = bytes_of(&machine.disk, &name);
    let reader = CheckpointReader::open(&machine.disk, &name).expect("it is whole");
    let mut pieces = Vec::new();
    reader
        .names(&mut |piece, _| {
            pieces.push(piece.to_vec());
            Ok(())
        })
        .expect("it is whole");
    let begin = HEADER_BYTES + reader.header().inodes.bytes as usize;
    let heads = |piece: &[u8]| [&format::piece_head(0, piece).0[..], piece].concat();
    let section: Vec<u8> = pieces.iter().flat_map(|piece| heads(piece)).collect();
    assert!(pieces.len() > 3 && whole[begin..begin + section.len()] == section);
    // Two blocks that change places, where the order of bytes alone would not show it.
    for (one, other) in [(0, 1), (1, 2)] {
        let mut swapped = pieces.clone();
        swapped.swap(one, other);
        let mut bytes = whole.clone();
        let section: Vec<u8> = swapped.iter().flat_map(|piece| heads(piece)).collect();
        bytes[begin..begin + section.len()].copy_from_slice(&section);
        rewrite(&machine.disk, &name, &bytes);
        let reader = CheckpointReader::open(&machine.disk, &name).expect("its ends are whole");
        let found = reader.names(&mut |_, _| Ok(()));
        assert!(found.is_err_and(|fault| fault.message.contains("not in their order")));
    }
    drop(churn);
}

#[test]
fn a_full_disk_and_one_that_fails_leave_the_checkpoints_before() {
    let machine = LoneMachine::new(5);
    let mut churn = with_one_checkpoint(&machine, 5, 100);
    let before = names(&machine.disk);
    machine.disk.set_capacity(0);
    let refused = checkpoint(&churn.metadata).expect_err("there is no room");
    assert!(refused.reason == Reason::NoSpace && refused.message.contains("no room for a checkpoint"), "{refused}");
    machine.disk.set_capacity(u64::MAX / 2);
    assert_eq!((names(&machine.disk), churn.metadata.checkpoint_status().failures), (before.clone(), 1));
    for writes in 0..4 {
        machine.disk.fail_writes(writes, 1);
        let failed = checkpoint(&churn.metadata);
        assert_eq!(failed.map_err(|fault| fault.reason), Err(Reason::InputOutput), "write {writes}");
        churn.steps(5);
        flush(&churn.metadata);
    }
    machine.disk.fail_syncs(1);
    assert_eq!(checkpoint(&churn.metadata).map_err(|fault| fault.reason), Err(Reason::InputOutput));
    machine.disk.fail_syncs(0);
    assert!(!names(&machine.disk).contains(&UNFINISHED.to_owned()), "nothing is left of it");
    churn.steps(5);
    flush(&churn.metadata);
    assert_eq!(checkpoint(&churn.metadata), Ok(true), "the next one is written");
    assert_eq!(checkpoint(&churn.metadata), Ok(false), "and is of now");
    let live = taken(&churn.metadata);
    die(&machine, churn, CrashKind::Power);
    let (again, _) = machine.open().expect("it starts");
    assert!(taken(&again) == live);
}

#[test]
fn a_checkpoint_gets_no_name_before_the_tables_are_complete_up_to_it() {
    let machine = LoneMachine::new(6);
    let mut churn = with_one_checkpoint(&machine, 6, 100);
    let before = churn.metadata.checkpoint_status().index;
    churn.steps(20);
    // The log is not flushed: a loss of power may take these entries.
    let dropped = churn.metadata.checkpoint(&mut || false);
    assert_eq!(dropped.map_err(|fault| fault.reason), Err(Reason::Unavailable));
    assert_eq!(churn.metadata.checkpoint_status().index, before);
    die(&machine, churn, CrashKind::Power);
    let (index, notes) = check_start(&machine, None);
    assert_eq!((index, notes), (before, Vec::new()));
}

#[test]
fn a_checkpoint_that_is_newer_than_the_store_or_of_another_state_is_removed() {
    let machine = LoneMachine::new(8);
    let mut churn = with_one_checkpoint(&machine, 8, 50);
    churn.steps(1);
    flush(&churn.metadata);
    let name = names(&machine.disk).remove(0);
    let bytes = bytes_of(&machine.disk, &name);
    let reader = CheckpointReader::open(&machine.disk, &name).expect("it is whole");
    let header = *reader.header();
    let with = |change: &dyn Fn(&mut Header)| {
        let mut other = header;
        change(&mut other);
        let (head, mut bytes) = (other.encode(), bytes.clone());
        let end = bytes.len() - FOOTER_BYTES;
        bytes[..HEADER_BYTES].copy_from_slice(&head);
        let whole = format::Footer::decode(bytes[end..].first_chunk().expect("a footer")).expect("it is whole");
        let footer = format::Footer { index: other.index, header: frieze_base::crc32c(&head), ..whole };
        bytes[end..].copy_from_slice(&footer.encode());
        machine.disk.remove(&name).unwrap_or(());
        rewrite(&machine.disk, &file_name(other.index), &bytes);
        file_name(other.index)
    };
    let live = taken(&churn.metadata);
    die(&machine, churn, CrashKind::Process);
    let refused = |name: String, words: &str| {
        machine.store.lose_memory();
        let (again, notes) = machine.open().expect("it starts");
        assert!(notes.len() == 1 && notes[0].contains(&name) && notes[0].contains(words), "{notes:?}");
        assert!(taken(&again) == live && names(&machine.disk).is_empty());
    };
    refused(with(&|header| header.index.0 += 1000), "newer than the store");
    refused(with(&|header| header.state = state_digest(Some(b"another"))), "of another state");
    // One of another build, and what is none.
    rewrite(&machine.disk, &name, &[&b"FRZCHECK\x02"[..], &[0; 200]].concat());
    refused(name.clone(), "format of another build");
    rewrite(&machine.disk, &name, b"FRZCHECK");
    refused(name.clone(), "cut off");
    let mut moved = bytes.clone();
    moved[0] = b'X';
    rewrite(&machine.disk, &name, &moved);
    refused(name.clone(), "does not begin as one");
    rewrite(&machine.disk, &file_name(LogIndex(1)), &bytes);
    refused(file_name(LogIndex(1)), "it is the checkpoint of entry");
}

#[test]
fn checkpoints_go_when_a_state_is_received() {
    let machine = LoneMachine::new(9);
    let churn = with_one_checkpoint(&machine, 9, 50);
    let checkpoints = &churn.metadata.state.checkpoints;
    let (present, _) = churn.metadata.state.take_present().expect("it is taken");
    let view = churn.metadata.state.versions.view(present.index).expect("it has one");
    let items: Vec<_> = view.items(&[], &[0xff; 320]).collect::<Result<_, _>>().expect("it is in memory");
    let unnamed = checkpoints.write(&present, 0, &|_| true).expect("there is room").expect("it is newer");
    flush(&churn.metadata);
    let state = &churn.metadata.state;
    state.versions.begin_snapshot().expect("begins");
    state.versions.put_snapshot(items).expect("puts");
    state.install_snapshot(present.index, b"another").expect("takes");
    assert_eq!(names(&machine.disk), [UNFINISHED], "all of before are removed");
    let refused = checkpoints.publish(&unnamed, &state.versions).map_err(|fault| fault.reason);
    assert_eq!(refused, Err(Reason::Superseded), "and so is one that was being written");
    checkpoints.drop_unnamed();
    assert_eq!(names(&machine.disk), Vec::<String>::new());
    assert_eq!(state.unsaved_changes(), state.read().counts().inodes, "a new one is due as if there were none");
}

#[test]
fn a_checkpoint_is_due_after_many_changes_and_sooner_at_a_stop() {
    let machine = LoneMachine::new(10);
    let mut churn = with_one_checkpoint(&machine, 10, 50);
    let state = &churn.metadata.state;
    assert!(!state.is_checkpoint_due(false) && !state.is_checkpoint_due(true));
    let since = churn.metadata.checkpoint_status().changes_since;
    assert!(since > 10, "{since}");
    churn.steps(100);
    assert!(churn.metadata.checkpoint_status().changes_since > since);
    flush(&churn.metadata);
    let since = churn.metadata.checkpoint_status().changes_since;
    die(&machine, churn, CrashKind::Process);
    let again = machine.serve();
    let counted = again.checkpoint_status().changes_since;
    // What is written again in its place is in no index.
    assert!(counted <= since && counted + 9 > since, "a start counts what it read: {counted} of {since}");
    assert_eq!(checkpoint(&again), Ok(true));
    assert_eq!(again.checkpoint_status().changes_since, 0);
    assert_eq!(again.state.read().current(InodeId::ROOT).map(|root| root.is_directory()), Some(true));
}
