use std::collections::BTreeMap;

use frieze_base::{InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use super::*;

type Oracle = BTreeMap<Vec<u8>, NameEntry>;

fn entry(number: u64) -> NameEntry {
    NameEntry::new(InodeId::file(0, number), FileKind::File, Hlc::first_of_micros(1_700_000_000_000_000 + number * 77))
}

fn check(directory: &DirectoryNames, oracle: &Oracle) {
    let mut cursor = directory.cursor();
    for (name, entry) in oracle {
        assert_eq!(cursor.next_name(), Some((name.as_slice(), *entry)));
    }
    assert!(cursor.next_name().is_none());
    assert_eq!(directory.count(), oracle.len());
    let mut builder = DirectoryBuilder::default();
    assert!(oracle.iter().all(|(name, entry)| builder.push(name, *entry)));
    assert_eq!(builder.finish().as_ref(), Some(directory));
    let mut builder = DirectoryBuilder::default();
    for block in directory.blocks() {
        let (block, last) = NameBlock::load(block.bytes().content()).expect("its own bytes are a block");
        assert!(builder.push_block_of(block, last));
    }
    assert_eq!(builder.finish().as_ref(), Some(directory));
}

fn check_pages(directory: &DirectoryNames, oracle: &Oracle, after: &[u8]) {
    let mut cursor = directory.cursor_after(after);
    let bounds = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
    for (name, entry) in oracle.range::<[u8], _>(bounds).take(3) {
        assert_eq!(cursor.next_name(), Some((name.as_slice(), *entry)));
    }
}

/// Sets all names in an order, then takes them out in another, with all questions on the way.
fn check_orders(mut names: Vec<Vec<u8>>, seed: u64, is_random: bool) {
    let (mut rng, mut scratch) = (Rng::new(seed), BlockScratch::default());
    let shuffle = |names: &mut Vec<Vec<u8>>, rng: &mut Rng| {
        (1..names.len()).rev().for_each(|at| names.swap(at, rng.below(at as u64 + 1) as usize));
    };
    if is_random {
        shuffle(&mut names, &mut rng);
    }
    let mut directory = DirectoryNames::of_one(&names[0], entry(0), &mut scratch);
    let mut oracle = Oracle::from([(names[0].clone(), entry(0))]);
    for (number, name) in (1..).zip(&names[1..]) {
        assert_eq!(directory.set(name, entry(number), &mut scratch), oracle.insert(name.clone(), entry(number)));
        assert_eq!(directory.get(name), Some(entry(number)));
        if number % 500 == 0 {
            check(&directory, &oracle);
        }
    }
    check(&directory, &oracle);
    for name in &names {
        assert_eq!(directory.get(name), oracle.get(name).copied());
        check_pages(&directory, &oracle, name);
        check_pages(&directory, &oracle, &[name.as_slice(), b"!"].concat());
        check_pages(&directory, &oracle, &name[..name.len() / 2]);
    }
    let snapshot = (directory.clone(), oracle.clone());
    shuffle(&mut names, &mut rng);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(directory.remove(&[name.as_slice(), b"!"].concat(), &mut scratch), None);
        if oracle.len() == 1 {
            break;
        }
        let removed = oracle.remove(name);
        assert_eq!(directory.remove(name, &mut scratch), removed);
        assert_eq!(directory.get(name), None);
        if at % 500 == 0 {
            check(&directory, &oracle);
        }
    }
    check(&directory, &oracle);
    assert!(matches!(directory.names, NameTree::Block(_)), "one name is one block");
    check(&snapshot.0, &snapshot.1);
}

#[test]
fn ten_thousand_names_in_order_and_at_random() {
    let count = if cfg!(miri) { 100 } else { 10_000 };
    let ascending = || (0..count).map(|number| format!("file-{number:08}").into_bytes());
    check_orders(ascending().collect(), 1, false);
    check_orders(ascending().rev().collect(), 2, false);
    check_orders(ascending().collect(), 3, true);
    // Several programs that write each its own names in order.
    let interleaved = (0..count).map(|number| format!("{}-{:06}", number % 7, number / 7).into_bytes());
    check_orders(interleaved.collect(), 4, false);
}

#[test]
fn names_of_every_length_and_prefixes_of_each_other() {
    let names = (1..=255).flat_map(|len| [vec![b'a'; len], [vec![b'a'; len - 1], vec![b'b']].concat()]);
    let names: std::collections::BTreeSet<Vec<u8>> = names.collect();
    check_orders(names.iter().cloned().collect(), 5, false);
    check_orders(names.into_iter().collect(), 6, true);
    let long = (0..500u32).map(|number| [vec![b'x'; 251], number.to_be_bytes().to_vec()].concat());
    check_orders(long.clone().collect(), 7, false);
    check_orders(long.collect(), 8, true);
}

#[test]
fn blocks_are_four_fifths_full_after_names_in_order() {
    let mut scratch = BlockScratch::default();
    let name = |number: u64| format!("a-name-of-20-b-{number:05}").into_bytes();
    let mut directory = DirectoryNames::of_one(&name(0), entry(0), &mut scratch);
    (1..20_000).for_each(|number| assert_eq!(directory.set(&name(number), entry(number), &mut scratch), None));
    let full =
        directory.blocks().map(|block| block.bytes().content().len()).sum::<usize>() / directory.blocks().count();
    assert!(full * 5 >= super::super::name_block::BLOCK_BYTES_MAX * 4, "{full} bytes a block");
}

#[test]
fn names_that_come_behind_a_full_block_backwards_share_a_block() {
    let mut scratch = BlockScratch::default();
    let mut directory = DirectoryNames::of_one(b"z", entry(0), &mut scratch);
    (0..2000)
        .for_each(|number| assert_eq!(directory.set(format!("a{number:05}").as_bytes(), entry(1), &mut scratch), None));
    let blocks = directory.blocks().count();
    (0..200)
        .rev()
        .for_each(|number| assert_eq!(directory.set(format!("b{number:05}").as_bytes(), entry(1), &mut scratch), None));
    assert!(directory.blocks().count() <= blocks + 4, "{blocks} became {}", directory.blocks().count());
}

#[test]
fn a_directory_of_three_names_takes_about_hundred_bytes() {
    let mut scratch = BlockScratch::default();
    let mut directory = DirectoryNames::of_one(b"Cargo.toml", entry(0), &mut scratch);
    directory.set(b"README.md", entry(1), &mut scratch);
    directory.set(b"src", entry(2), &mut scratch);
    let bytes: usize = directory.blocks().map(|block| block.bytes().content().len()).sum();
    assert!(bytes <= 60, "{bytes} bytes");
}

#[test]
fn names_out_of_order_are_refused() {
    let mut builder = DirectoryBuilder::default();
    assert!(builder.push(b"b", entry(1)));
    assert!(!builder.push(b"b", entry(1)) && !builder.push(b"a", entry(1)));
    let block = NameBlock::of_one(b"a", entry(1), &mut BlockScratch::default());
    let mut builder = DirectoryBuilder::default();
    assert!(builder.push_block_of(block.clone(), b"a".to_vec()) && !builder.push_block_of(block, b"a".to_vec()));
}

#[test]
fn looking_a_name_up_allocates_nothing() {
    let mut builder = DirectoryBuilder::default();
    let names: Vec<Vec<u8>> = (0..5000).map(|number| format!("name-{number:05}").into_bytes()).collect();
    assert!(names.iter().all(|name| builder.push(name, entry(1))));
    let directory = builder.finish().unwrap();
    let peak = frieze_harness::peak_bytes(|| assert!(names.iter().all(|name| directory.get(name).is_some())));
    assert_eq!(peak, 0);
}

#[test]
fn a_directory_that_grows_and_shrinks_is_what_was_put_into_it() {
    let (mut rng, mut scratch) = (Rng::new(9), BlockScratch::default());
    let names: Vec<Vec<u8>> = (0..20_000).map(|number| format!("file-{number:08}").into_bytes()).collect();
    let mut directory = DirectoryNames::of_one(b"always", entry(0), &mut scratch);
    let mut oracle = Oracle::from([(b"always".to_vec(), entry(0))]);
    for phase in 0..8 {
        // Names are taken out in stretches, so that whole blocks and groups become empty, and some come between.
        let (steps, removed) = if phase % 2 == 0 { (20_000, 1) } else { (40_000, 9) };
        let mut at = 0;
        for step in 0..steps {
            let is_removed = rng.below(10) < removed;
            at = if is_removed && step % 500 != 0 { (at + 1) % names.len() } else { rng.below(20_000) as usize };
            let name = &names[at];
            if is_removed {
                assert_eq!(directory.remove(name, &mut scratch), oracle.remove(name));
            } else {
                assert_eq!(directory.set(name, entry(step), &mut scratch), oracle.insert(name.clone(), entry(step)));
            }
        }
        check(&directory, &oracle);
        assert!(names.iter().all(|name| directory.get(name) == oracle.get(name).copied()));
    }
}

#[test]
fn a_name_below_all_blocks_of_its_group_is_found_after_groups_join() {
    let mut scratch = BlockScratch::default();
    let names: Vec<Vec<u8>> = (0..20_000).map(|number| format!("file-{number:08}").into_bytes()).collect();
    let mut builder = DirectoryBuilder::default();
    assert!(names.iter().all(|name| builder.push(name, entry(1))));
    let mut directory = builder.finish().unwrap();
    let NameTree::Tree(groups) = &directory.names else { panic!("it is large") };
    let (low, high) = (groups[1].first.bytes().to_vec(), groups[1].blocks[1].first.bytes().to_vec());
    // The first block of the group goes, and a name of it comes back.
    for name in names.iter().filter(|name| (&low..&high).contains(name)) {
        assert!(directory.remove(name, &mut scratch).is_some());
    }
    assert_eq!(directory.set(&low, entry(2), &mut scratch), None);
    for (_, name) in names.iter().enumerate().filter(|(at, name)| at % 100 != 0 && **name != low) {
        directory.remove(name, &mut scratch);
    }
    let NameTree::Tree(groups) = &directory.names else { panic!("200 names are several blocks") };
    assert_eq!(groups.len(), 1, "they joined");
    assert_eq!(directory.get(&low), Some(entry(2)));
    let kept = names.iter().step_by(100).filter(|name| !(&low..&high).contains(name));
    assert!(kept.into_iter().all(|name| directory.get(name).is_some()));
}
