use std::collections::BTreeMap;

use frieze_base::{InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use super::*;
use crate::inode::{FileLayout, Inode};
use crate::model::NameEntry;
use crate::present::{ColdFile, MemoryPieces, PackedInodes, PackedNames, PresentSnapshot};

/// A present that is changed at random, and what is to be in it.
struct RandomPresent {
    namespace: Namespace,
    inodes: BTreeMap<u64, u64>,
    names: BTreeMap<(u64, Vec<u8>), u64>,
}

const FILES: u64 = 4000;

fn stamp(number: u64) -> Hlc {
    Hlc::first_of_micros(1_700_000_000_000_000 + number * 77)
}

fn inode(number: u64, size: u64) -> Inode {
    let born = stamp(number);
    Inode {
        from: born,
        born,
        ctime: born,
        mtime_ns: born.unix_ns(),
        mtime_stamp: born,
        atime_ns: born.unix_ns(),
        size,
        size_as_of: born,
        named: born,
        parent: InodeId::directory(1),
        layout: Arc::new(FileLayout { chunk_bytes: 4096, chain_count: 8, plugin: String::new(), regime: 0 }),
        links: 1,
        uid: 0,
        gid: 0,
        mode: 0o644,
        kind: FileKind::File as u8,
        extra: None,
    }
}

fn entry(number: u64) -> NameEntry {
    NameEntry::new(InodeId::file(0, number), FileKind::File, stamp(number))
}

impl RandomPresent {
    fn new(files: u64) -> RandomPresent {
        let mut present =
            RandomPresent { namespace: Namespace::new(), inodes: BTreeMap::new(), names: BTreeMap::new() };
        (1..=files).for_each(|number| present.add(number, number));
        present
    }

    fn add(&mut self, number: u64, size: u64) {
        let RandomPresent { namespace, inodes, names } = self;
        namespace.inodes.insert(InodeId::file(0, number), inode(number, size));
        namespace.inodes.pack(InodeId::file(0, number));
        inodes.insert(number, size);
        // A large directory, some of middle size, and many small ones.
        let directory = [1, 2 + number % 5, 10 + number % 3000][number as usize % 3];
        let name = format!("name-{:06}", number * 7919 % 1_000_003).into_bytes();
        namespace.directories.set(InodeId::directory(directory), &name, entry(number));
        names.insert((directory, name), number);
    }

    fn change(&mut self, rng: &mut Rng) {
        let number = rng.between(1, FILES * 2);
        match rng.below(3) {
            0 => self.add(number, rng.below(1 << 40)),
            1 if self.inodes.remove(&number).is_some() => drop(self.namespace.inodes.remove(InodeId::file(0, number))),
            _ => {
                let from = (rng.below(3012), Vec::new());
                let Some((directory, name)) = self.names.range(from..).next().map(|(key, _)| key.clone()) else {
                    return;
                };
                self.names.remove(&(directory, name.clone()));
                assert!(self.namespace.directories.remove(InodeId::directory(directory), &name).is_some());
            }
        }
    }

    /// The present gets its places in a checkpoint of `snapshot`.
    fn publish(&mut self, snapshot: PresentSnapshot) {
        let (pieces, offsets) = MemoryPieces::of(&snapshot);
        let file = ColdFile::new(Box::new(pieces), self.namespace.piece_loads());
        let mut relocation = snapshot.relocate(file, offsets);
        while self.namespace.relocate(&mut relocation) {}
    }

    fn evict(&mut self, bytes_max: u64) -> NamesMemory {
        self.namespace.begin_eviction();
        while self.namespace.evict(bytes_max) {}
        self.namespace.names_memory()
    }

    fn check_some(&self, rng: &mut Rng) {
        for _ in 0..20 {
            let number = rng.between(1, FILES * 2);
            let found = self.namespace.inodes.get(InodeId::file(0, number)).map(|inode| inode.size);
            assert_eq!(found, self.inodes.get(&number).copied(), "inode {number}");
            let from = (rng.below(3012), Vec::new());
            if let Some(((directory, name), number)) = self.names.range(from..).next() {
                let names = self.namespace.directories.get(InodeId::directory(*directory)).expect("it has a name");
                assert_eq!(names.get(name), Some(entry(*number)), "{name:?} of directory {directory}");
            }
        }
    }

    fn check_all(&self) {
        let mut inodes = self.namespace.inodes.iter().map(|(id, inode)| (id.count(), inode.size));
        assert!(self.inodes.iter().all(|(number, size)| inodes.next() == Some((*number, *size))));
        assert!(inodes.next().is_none());
        let mut names = self.names.iter();
        for (directory, held) in self.namespace.directories.iter() {
            let mut cursor = held.cursor();
            while let Some((name, found)) = cursor.next_name() {
                let ((of, expected), number) = names.next().expect("a name less");
                assert_eq!((directory.count(), name, found), (*of, expected.as_slice(), entry(*number)));
            }
        }
        assert!(names.next().is_none());
    }

    /// Memory of all pages and blocks, and of the cold ones, by a walk.
    fn counted(&self) -> (i64, i64) {
        let snapshot = self.namespace.present();
        let pages =
            snapshot.inodes.iter().flat_map(|(leaf, inodes)| inodes.packed(*leaf)).map(|(_, page)| page.bytes());
        let names = self.namespace.directories.iter().flat_map(|(_, names)| names.blocks());
        let blocks = names.map(|block| block.bytes());
        pages.chain(blocks).fold((0, 0), |(hot, cold), bytes| match bytes.is_cold() {
            true => (hot, cold + bytes.memory_bytes()),
            false => (hot + bytes.memory_bytes(), cold),
        })
    }

    fn check_counts(&self) {
        let NamesMemory { bytes, cold_bytes, .. } = self.namespace.names_memory();
        assert_eq!((bytes as i64, cold_bytes as i64), self.counted());
    }
}

fn pieces(snapshot: &PresentSnapshot) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut push = |piece: &[u8]| {
        all.push(piece.to_vec());
        true
    };
    assert!(snapshot.inode_pieces(&mut push) && snapshot.name_pieces(&mut push));
    all
}

#[test]
fn a_present_that_evicts_at_random_is_what_was_put_into_it() {
    for seed in 0..6 {
        let (mut rng, mut present) = (Rng::new(seed), RandomPresent::new(FILES));
        for _ in 0..40 {
            // Of a snapshot that is older than the present when it is published.
            let snapshot = present.namespace.present();
            let before = pieces(&snapshot);
            (0..rng.below(60)).for_each(|_| present.change(&mut rng));
            assert!(pieces(&snapshot) == before, "a snapshot never changes");
            if rng.chance(2) {
                present.publish(snapshot);
            }
            present.check_counts();
            if rng.chance(2) {
                present.evict(rng.below(100_000));
            }
            present.check_some(&mut rng);
            (0..rng.below(60)).for_each(|_| present.change(&mut rng));
            present.check_counts();
        }
        present.check_all();
    }
}

#[test]
fn a_snapshot_of_a_cold_present_has_the_pieces_of_a_hot_one_and_leaves_it_cold() {
    let mut present = RandomPresent::new(FILES);
    let before = pieces(&present.namespace.present());
    present.publish(present.namespace.present());
    let cold = present.evict(0);
    assert_eq!((cold.bytes, cold.loads), (0, 0));
    assert!(pieces(&present.namespace.present()) == before);
    let (mut lengths, mut expected) = (Vec::new(), before.iter().map(Vec::len));
    present.namespace.present().inode_lengths(&mut |bytes| lengths.push(bytes));
    present.namespace.present().name_lengths(&mut |bytes| lengths.push(bytes));
    assert!(lengths.iter().all(|bytes| expected.next() == Some(*bytes)) && expected.next().is_none());
    assert_eq!(present.namespace.names_memory(), cold, "nothing came into memory");
    // The places of the next checkpoint are those of cold pieces, too.
    present.publish(present.namespace.present());
    present.check_all();
    assert!(present.namespace.names_memory().loads > 0);
}

#[test]
fn a_change_of_a_name_reads_its_block_alone() {
    let mut present = RandomPresent::new(FILES);
    present.publish(present.namespace.present());
    present.evict(0);
    present.namespace.directories.set(InodeId::directory(1), b"name-500000-more", entry(1));
    assert_eq!(present.namespace.names_memory().loads, 1);
    present.namespace.directories.remove(InodeId::directory(1), b"name-500000-more");
    assert_eq!(present.namespace.names_memory().loads, 1);
    assert!(
        present.namespace.inodes.contains(InodeId::file(0, 77))
            && !present.namespace.inodes.contains(InodeId::file(0, FILES + 1))
    );
    assert_eq!(present.namespace.directories.count(InodeId::directory(1)), FILES as usize / 3);
    assert_eq!(present.namespace.names_memory().loads, 1, "which numbers a page has is known without it");
    assert_eq!(present.namespace.inodes.get(InodeId::file(0, 77)).map(|inode| inode.size), Some(77));
    assert_eq!(present.namespace.names_memory().loads, 2);
}

#[test]
fn a_piece_that_changed_since_the_snapshot_has_no_place_and_stays() {
    let mut present = RandomPresent::new(FILES);
    let snapshot = present.namespace.present();
    present.add(7, 1 << 30);
    present.namespace.directories.set(InodeId::directory(1), b"name-500000-more", entry(1));
    present.names.insert((1, b"name-500000-more".to_vec()), 1);
    present.publish(snapshot);
    let memory = present.evict(0);
    assert!((1..3000).contains(&memory.bytes), "a page and two blocks: {memory:?}");
    present.check_all();
}

#[test]
fn what_is_used_between_passes_stays_in_memory() {
    let mut present = RandomPresent::new(FILES);
    present.publish(present.namespace.present());
    let all = present.namespace.names_memory().bytes;
    let used = || (1..=64).chain(2000..2064);
    // Its first round takes all marks of use away, and begins the second.
    present.evict(all - 1);
    used().for_each(|number| assert!(present.namespace.inodes.get(InodeId::file(0, number)).is_some()));
    let loads = present.namespace.names_memory().loads;
    for percent in [90, 70, 50] {
        let memory = present.evict(all * percent / 100);
        assert!(memory.bytes <= all * percent / 100);
        used().for_each(|number| assert!(present.namespace.inodes.get(InodeId::file(0, number)).is_some()));
    }
    assert_eq!(present.namespace.names_memory().loads, loads, "what is used is there");
}

#[test]
fn the_bound_is_reached_and_no_more() {
    let mut present = RandomPresent::new(FILES);
    present.publish(present.namespace.present());
    let all = present.namespace.names_memory();
    assert_eq!(all.cold_bytes, 0);
    let memory = present.evict(all.bytes / 2);
    assert_eq!(memory.bytes + memory.cold_bytes, all.bytes);
    assert!(memory.bytes <= all.bytes / 2 && memory.bytes > all.bytes / 2 - (1 << 20).min(all.bytes / 3), "{memory:?}");
}

#[test]
fn a_start_beyond_the_bound_leaves_the_rest_in_the_file() {
    let present = RandomPresent::new(FILES);
    let (pieces_in_memory, offsets) = MemoryPieces::of(&present.namespace.present());
    let loads = Arc::default();
    let file = ColdFile::new(Box::new(pieces_in_memory), &loads);
    let (mut inodes, mut names) = (PackedInodes::of_file(&file, 10_000), PackedNames::of_file(&file, 10_000));
    let (mut at, snapshot) = (offsets.inodes, present.namespace.present());
    snapshot.inode_pieces(&mut |piece| {
        inodes.load_at(piece, at + offsets.head_bytes).unwrap();
        at += offsets.head_bytes + piece.len() as u64;
        true
    });
    at = offsets.names;
    snapshot.name_pieces(&mut |piece| {
        names.load_at(piece, at + offsets.head_bytes).unwrap();
        at += offsets.head_bytes + piece.len() as u64;
        true
    });
    let mut again = RandomPresent { namespace: Namespace::new(), ..RandomPresent::new(0) };
    again.namespace.take_present(inodes, names);
    let memory = again.namespace.names_memory();
    assert!(memory.bytes > 10_000 && memory.bytes < 24_000 && memory.loads == 0, "{memory:?}");
    again.check_counts();
    (again.inodes, again.names) = (present.inodes, present.names);
    again.check_all();
    again.check_counts();
}
