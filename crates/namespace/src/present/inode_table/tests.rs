use std::collections::BTreeMap;

use frieze_base::Rng;
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use super::*;

fn inode(layouts: &mut InodeTable, rng: &mut Rng) -> Inode {
    let born = Hlc::first_of_micros(1_700_000_000_000_000 + rng.below(1 << 20));
    let chain_count = rng.below(3) as u32;
    let kind = if rng.below(5) == 0 { FileKind::Directory } else { FileKind::File };
    Inode {
        from: born,
        born,
        ctime: born,
        mtime_ns: born.unix_ns(),
        mtime_stamp: born,
        atime_ns: born.unix_ns(),
        size: rng.below(1000),
        size_as_of: born,
        named: [born, Hlc::ZERO][rng.below(2) as usize],
        parent: InodeId(1 + rng.below(2)),
        layout: layouts.share(FileLayout { chunk_bytes: 4096, chain_count, plugin: String::new(), regime: 0 }),
        links: 1,
        uid: rng.below(3) as u32,
        gid: 0,
        mode: 0o644,
        kind: kind as u8,
        extra: None,
    }
}

fn check(table: &InodeTable, oracle: &BTreeMap<u64, Inode>) {
    let all: BTreeMap<u64, Inode> = table.iter().map(|(id, inode)| (id.0, inode.into_owned())).collect();
    assert_eq!(all, *oracle);
    assert!(table.iter().map(|(id, _)| row_of(id)).is_sorted());
    let around = oracle.keys().flat_map(|id| [id - 1, *id, id + 1]);
    for id in around.filter(|id| InodeId(*id).is_valid()) {
        assert_eq!(table.get(InodeId(id)).as_deref(), oracle.get(&id));
        assert_eq!(table.contains(InodeId(id)), oracle.contains_key(&id));
    }
}

#[test]
fn a_table_is_what_was_put_into_it() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        let mut rng = Rng::new(seed);
        let (mut table, mut oracle) = (InodeTable::default(), BTreeMap::new());
        // Numbers beside each other, and far apart.
        let number = |rng: &mut Rng| match rng.below(4) {
            0 => 1 + rng.below(70),
            1 => 4090 + rng.below(20),
            2 => InodeId::file(4095, InodeId::COUNT_MAX - rng.below(3)).0,
            _ => InodeId::directory(1 + rng.below(3)).0,
        };
        for _ in 0..400 {
            let id = number(&mut rng);
            match rng.below(6) {
                0 | 1 => {
                    let inode = inode(&mut table, &mut rng);
                    oracle.insert(id, inode.clone());
                    match rng.below(2) {
                        0 => table.insert(InodeId(id), inode),
                        _ => table.insert_packed(InodeId(id), inode),
                    }
                }
                2 => assert_eq!(table.remove(InodeId(id)), oracle.remove(&id)),
                3 => {
                    let found = table.get_mut(InodeId(id));
                    assert_eq!(found.as_deref(), oracle.get(&id));
                    if let (Some(one), Some(two)) = (found, oracle.get_mut(&id)) {
                        (one.size, two.size) = (id, id);
                        let rdev = rng.below(2) as u32;
                        (one.extra_mut().rdev, two.extra_mut().rdev) = (rdev, rdev);
                    }
                }
                4 => {
                    if let Some(inode) = oracle.get_mut(&id) {
                        inode.trim();
                    }
                    assert_eq!(table.trimmed(InodeId(id)).as_deref(), oracle.get(&id));
                    table.pack(InodeId(id));
                }
                _ => table.pack(InodeId(id)),
            }
            let is_plain = |inode: &Inode| inode.extra.is_none() && !inode.is_directory();
            assert!(oracle.get(&id).is_none_or(is_plain) || table.unpacked(InodeId(id)) == oracle.get(&id));
        }
        check(&table, &oracle);
        let ids: Vec<u64> = oracle.keys().copied().collect();
        for id in ids {
            assert_eq!(table.remove(InodeId(id)), oracle.remove(&id));
        }
        assert!(table.leaves.is_empty(), "memory is given back with the last inode");
        assert!(table.get(InodeId(1)).is_none());
    }
}

#[test]
fn packed_or_not_is_no_difference() {
    let (mut one, mut two, mut rng) = (InodeTable::default(), InodeTable::default(), Rng::new(3));
    for id in 1..300 {
        let inode = inode(&mut one, &mut rng);
        one.insert(InodeId(id), inode.clone());
        two.insert_packed(InodeId(id), inode);
    }
    assert_eq!(one, two);
    one.pack(InodeId(7));
    assert_eq!(one, two);
    two.get_mut(InodeId(9)).unwrap().size += 1;
    assert_ne!(one, two);
    two.pack(InodeId(9));
    assert_ne!(one, two);
}

#[test]
fn a_table_takes_over_another_with_other_numbers_of_layouts() {
    let (mut one, mut two, mut rng) = (InodeTable::default(), InodeTable::default(), Rng::new(5));
    let mut oracle = BTreeMap::new();
    one.share(FileLayout { chunk_bytes: 1, chain_count: 9, plugin: "other".to_owned(), regime: 0 });
    for id in 1..5000 {
        let table = if id < 2530 { &mut one } else { &mut two };
        let inode = inode(table, &mut rng);
        oracle.insert(id, inode.clone());
        table.insert_packed(InodeId(id), inode);
    }
    for (id, inode) in one.take(&two) {
        assert!(inode.is_directory());
        one.insert(id, inode);
    }
    drop(two);
    check(&one, &oracle);
    for id in 1..5000 {
        one.remove(InodeId(id));
    }
    assert!(one.layouts.numbered().is_empty(), "layouts are counted");
}

#[test]
fn looking_at_an_inode_allocates_nothing() {
    let (mut table, mut rng) = (InodeTable::default(), Rng::new(6));
    for id in 1..2000 {
        let inode = inode(&mut table, &mut rng);
        table.insert_packed(InodeId(id), inode);
    }
    let peak = frieze_harness::peak_bytes(|| {
        let size: u64 = (1..2000).filter_map(|id| table.get(InodeId(id))).map(|inode| inode.size).sum();
        assert!(size > 0);
    });
    assert_eq!(peak, 0);
}
