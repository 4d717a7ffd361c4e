use std::collections::BTreeMap;

use frieze_base::{InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use super::*;

type BlockOracle = BTreeMap<Vec<u8>, NameEntry>;

/// Names with much in common and with nothing, of every length.
fn random_name(rng: &mut Rng) -> Vec<u8> {
    let len = [0usize, 1, 2, 8, 20, 254, 255][rng.below(7) as usize];
    let mut name: Vec<u8> = (0..len).map(|_| b'a' + rng.below(2) as u8).collect();
    if rng.below(2) == 0 {
        name[..len.saturating_sub(2)].fill(b'a');
    }
    name
}

fn random_entry(rng: &mut Rng) -> NameEntry {
    let inode = [rng.below(100), 1 << 40, rng.below(1 << 40), 0][rng.below(4) as usize];
    let stamp = [u64::MAX, 0, rng.next(), 1 << 60][rng.below(4) as usize];
    let kind = FileKind::try_from(rng.below(7) as i32).unwrap();
    NameEntry::new(InodeId(inode), kind, Hlc(stamp))
}

fn names_of(block: &NameBlock) -> BlockOracle {
    let (mut all, mut cursor) = (BlockOracle::new(), block.cursor());
    let mut last: Option<Vec<u8>> = None;
    while let Some((name, entry)) = cursor.next_name() {
        assert!(last.as_ref().is_none_or(|last| last.as_slice() < name), "in order");
        last = Some(name.to_vec());
        all.insert(name.to_vec(), entry);
    }
    all
}

fn check(block: &NameBlock, oracle: &BlockOracle) {
    assert_eq!(names_of(block), *oracle);
    assert_eq!(block.count(), oracle.len());
    let (loaded, last) = NameBlock::load(block.bytes().content()).expect("its own bytes are a block");
    assert_eq!((loaded.bytes().content(), Some(&last)), (block.bytes().content(), oracle.keys().next_back()));
}

#[test]
fn a_block_is_what_was_put_into_it() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (mut block, mut oracle, mut scratch): (Option<NameBlock>, _, _) =
            (None, BlockOracle::new(), BlockScratch::default());
        for _ in 0..rng.below(200) {
            let name = random_name(&mut rng);
            let Some(some) = &mut block else {
                let entry = random_entry(&mut rng);
                block = Some(NameBlock::of_one(&name, entry, &mut scratch));
                oracle.insert(name, entry);
                continue;
            };
            assert_eq!(some.get(&name), oracle.get(&name).copied());
            let is_behind = oracle.keys().next_back().is_some_and(|last| *last < name);
            assert_eq!(some.is_behind(&name), is_behind);
            if rng.below(3) == 0 {
                let removed = some.remove(&name, &mut scratch);
                assert_eq!(removed.map(|(entry, _)| entry), oracle.remove(&name));
                if oracle.is_empty() {
                    assert_eq!(removed.map(|(_, change)| change), Some(BlockChange::Empty));
                    block = None;
                    continue;
                }
            } else {
                let entry = random_entry(&mut rng);
                let (found, change) = some.set(&name, entry, &mut scratch);
                assert_eq!(found, oracle.insert(name, entry));
                if change == BlockChange::TooLarge {
                    let (left, first, right) = some.split(&mut scratch);
                    let upper = oracle.split_off(&first);
                    check(&left, &oracle);
                    check(&right, &upper);
                    assert!(left.bytes().content().len().max(right.bytes().content().len()) < BLOCK_BYTES_MAX * 2);
                    (block, oracle) = if rng.below(2) == 0 { (Some(left), oracle) } else { (Some(right), upper) };
                }
            }
            check(block.as_ref().unwrap(), &oracle);
        }
    }
}

#[test]
fn two_blocks_join_if_they_are_small() {
    let entry = NameEntry::new(InodeId(7), FileKind::File, Hlc(9));
    let block_of = |name: &[u8]| NameBlock::of_one(name, entry, &mut BlockScratch::default());
    let (mut one, mut two) = (block_of(b"a"), block_of(b"m"));
    let mut scratch = BlockScratch::default();
    for byte in b'b'..=b'l' {
        one.set(&[byte], entry, &mut scratch);
        two.set(&[b'n', byte], entry, &mut scratch);
    }
    let joined = one.joined(&two, &mut scratch).expect("they are small");
    check(&joined, &names_of(&one).into_iter().chain(names_of(&two)).collect());
    while one.has_room_for(b"cc") {
        one.set(&[b'c', one.count() as u8], entry, &mut scratch);
    }
    assert!(one.joined(&two, &mut scratch).is_none());
}

#[test]
fn names_in_order_take_little_more_than_their_own_bytes() {
    let (mut builder, mut scratch) = (BlockBuilder::default(), Vec::new());
    let mut count = 0;
    while builder.has_room_for(&[0; 20]) {
        let stamp = Hlc::first_of_micros(1_700_000_000_000_000 + count * 50);
        builder.push(
            format!("a-name-of-20-b-{count:05}").as_bytes(),
            NameEntry::new(InodeId::file(9, count), FileKind::File, stamp),
        );
        count += 1;
    }
    let bytes = builder.finish(&mut scratch).bytes().content().len();
    assert!(bytes < count as usize * 15, "{bytes} bytes for {count} names of 20 bytes");
}

#[test]
fn any_bytes_are_a_block_or_none() {
    let seeds = [1, 5, 40].map(|count| {
        let (mut rng, mut scratch) = (Rng::new(count), BlockScratch::default());
        let mut block = NameBlock::of_one(b"name", random_entry(&mut rng), &mut BlockScratch::default());
        for _ in 0..count {
            let name = random_name(&mut rng);
            if block.has_room_for(&name) {
                block.set(&name, random_entry(&mut rng), &mut scratch);
            }
        }
        block.bytes().content().to_vec()
    });
    frieze_harness::fuzz!(frieze_harness::Inputs::from(seeds).with_buffers(64 * 1024), |bytes: &[u8]| {
        let Some((mut block, last)) = NameBlock::load(bytes) else { return };
        assert_eq!(block.bytes().content(), bytes);
        let mut oracle = names_of(&block);
        assert_eq!(oracle.keys().next_back(), Some(&last));
        let mut scratch = BlockScratch::default();
        let entry = NameEntry::new(InodeId(1), FileKind::File, Hlc(1));
        block.set(b"m", entry, &mut scratch);
        oracle.insert(b"m".to_vec(), entry);
        for name in oracle.keys().take(oracle.len() - 1) {
            assert!(block.remove(name, &mut scratch).is_some());
        }
        assert_eq!(block.count(), 1);
    });
}
