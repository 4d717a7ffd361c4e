use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use frieze_base::Rng;
use frieze_hlc::Hlc;
use frieze_namespace::{KeyVersion, Namespace, NoReadSet, VersionHistory, inode_key};

use super::super::entry_pages::tests::{grow, loaded, with_directory};
use super::super::name_versions::NameVersions;
use super::*;

const MEMORY_BYTES: u64 = 32 << 20;

fn open(directory: &Path) -> LsmStore {
    LsmStore::open(directory, MEMORY_BYTES).expect("opens")
}

fn fill(store: &LsmStore, from: u64, count: u64, through: u64) {
    let mut batch = StoreBatch::default();
    for number in from..from + count {
        batch.put(&[b"E", &number.to_be_bytes()[..]].concat(), &[number as u8; 100]);
    }
    store.insert(&batch);
    store.seal(&StoreBatch::default(), LogIndex(through));
}

fn into_tables(store: &LsmStore, from: u64, count: u64, through: u64) {
    fill(store, from, count, through);
    store.settle(LogIndex(through)).expect("settles");
    store.persist().expect("persists");
}

fn count(store: &LsmStore) -> usize {
    let mut count = 0;
    let read = store.visit(&[], &[0xff; 320], &mut |_, _| {
        count += 1;
        Ok(())
    });
    read.expect("reads");
    count
}

#[expect(clippy::disallowed_methods, reason = "threads of the store write and merge: the test waits until they have")]
fn wait(what: &str, until: impl Fn() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn tables(directory: &Path) -> Vec<PathBuf> {
    let trees = fs::read_dir(directory).expect("lists").flatten().map(|tree| tree.path().join("tables"));
    let tables = trees.filter(|tables| tables.is_dir()).flat_map(|tables| fs::read_dir(tables).expect("lists"));
    let mut tables: Vec<PathBuf> = tables.map(|table| table.expect("lists").path()).collect();
    tables.sort();
    tables
}

#[test]
fn a_store_that_ended_has_its_tables_with_their_entry_and_nothing_of_memtables() {
    let directory = tempfile::tempdir().expect("a directory");
    for life in 0..4 {
        let store = open(directory.path());
        assert_eq!((count(&store), store.applied()), (life * 500, Ok(LogIndex(life as u64 * 10))));
        into_tables(&store, life as u64 * 500, 500, life as u64 * 10 + 10);
        // Sealed, and durable in no log.
        fill(&store, 10_000, 100, life as u64 * 10 + 11);
        // Open.
        let mut batch = StoreBatch::default();
        batch.put(b"Eopen", b"");
        store.insert(&batch);
        assert_eq!(count(&store), life * 500 + 601);
    }
}

#[test]
fn a_recovery_that_begins_again_finds_the_tables_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    into_tables(&store, 0, 10, 7);
    for _ in 0..3 {
        fill(&store, 100, 5, 8);
        let mut batch = StoreBatch::default();
        batch.put(b"Eopen", b"");
        batch.remove(&[b"E", &3_u64.to_be_bytes()[..]].concat());
        store.insert(&batch);
        assert_eq!((count(&store), store.begin()), (15, Ok(LogIndex(7))));
        assert_eq!((count(&store), store.applied()), (10, Ok(LogIndex(7))));
    }
    into_tables(&store, 100, 5, 8);
    drop(store);
    let store = open(directory.path());
    assert_eq!((count(&store), store.begin()), (15, Ok(LogIndex(8))));
}

#[test]
fn the_progress_is_no_item_of_the_history() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    into_tables(&store, 0, 3, 7);
    let view = store.view().expect("views");
    assert_eq!((count(&store), view.items(&[], &[0xff]).count()), (3, 3));
    assert_eq!(store.last_in(&[], &[0, 0]), Ok(None));
}

#[test]
fn readers_of_every_kind_find_whole_batches_while_tables_are_written_and_merged() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = LsmStore::open(directory.path(), TABLE_BYTES_MIN).expect("opens");
    let is_over = AtomicBool::new(false);
    let check_pair = |items: &[StoreItem]| {
        assert!(items.is_empty() || items.len() == 2 && items[0].1 == items[1].1, "a batch is whole: {items:?}");
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let now: Vec<_> = store.items(b"A", b"B").map(|item| item.expect("reads")).collect();
                    check_pair(&now);
                    let view = store.view().expect("views");
                    let read = || view.items(b"A", b"B").map(|item| item.expect("reads")).collect::<Vec<_>>();
                    let first = read();
                    check_pair(&first);
                    assert_eq!(first, read(), "a view stays what it was");
                }
            });
        }
        let mut batch = StoreBatch::default();
        for round in 0..600_u64 {
            batch.clear();
            batch.put(b"A", &round.to_be_bytes());
            batch.put(b"B", &round.to_be_bytes());
            batch.put(&[b"E", &round.to_be_bytes()[..]].concat(), &[round as u8; 1000]);
            store.insert(&batch);
            if round % 7 == 6 {
                store.seal(&StoreBatch::default(), LogIndex(round));
                store.settle(LogIndex(round)).expect("settles");
            }
        }
        store.persist().expect("persists");
        is_over.store(true, Ordering::Release);
    });
    wait("the store merges no tables", || store.tree().young_runs() < 4);
    assert_eq!(store.last_in(b"A", b"A"), Ok(Some((b"A".to_vec(), 599_u64.to_be_bytes().to_vec()))));
    assert_eq!(count(&store), 602);
}

#[test]
fn a_store_of_little_memory_merges_into_tables_of_little_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = LsmStore::open(directory.path(), TABLE_BYTES_MIN).expect("opens");
    let mut rng = Rng::new(20_261_124);
    for index in 1..=30 {
        let mut batch = StoreBatch::default();
        for _ in 0..1000 {
            let mut value = vec![0; 1000];
            rng.fill(&mut value);
            batch.put(&rng.next().to_be_bytes(), &value);
        }
        store.insert(&batch);
        store.seal(&StoreBatch::default(), LogIndex(index));
        store.settle(LogIndex(index)).expect("settles");
        store.persist().expect("persists");
    }
    wait("the store merges no tables", || store.tree().young_runs() < 4 && store.tree().merged_tables() > 0);
    let sizes: Vec<u64> =
        tables(directory.path()).iter().map(|table| fs::metadata(table).map_or(0, |meta| meta.len())).collect();
    assert!(sizes.iter().sum::<u64>() > 4 * TABLE_BYTES_MIN, "{sizes:?}");
    assert!(sizes.iter().all(|bytes| *bytes < 2 * TABLE_BYTES_MIN), "{sizes:?}");
}

#[test]
fn changes_find_no_room_while_tables_cannot_be_written_and_go_on_when_they_can() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = LsmStore::open(directory.path(), 3 << 20).expect("opens");
    let folder = store.tree().path().join("tables");
    into_tables(&store, 0, 10, 1);
    // In place of a full disk: no file can be made there, also by root.
    let aside = directory.path().join("aside");
    fs::rename(&folder, &aside).expect("renames");
    fs::write(&folder, b"in the way").expect("writes");
    let mut through = 1;
    let refused = loop {
        if let Err(fault) = store.check_room() {
            break fault;
        }
        through += 1;
        fill(&store, through * 1000, 1000, through);
        let _failed = store.settle(LogIndex(through));
        assert!(through < 100, "memtables grow without bound");
    };
    assert!(refused.message.contains("no room for changes"), "{refused}");
    let bytes = store.work.sealed_bytes();
    assert!(bytes <= MEMTABLES_MAX * MEMTABLE_BYTES_MIN + (1 << 20), "{bytes} bytes wait");
    assert_eq!(store.applied(), Ok(LogIndex(1)));
    fs::remove_file(&folder).expect("removes");
    fs::rename(&aside, &folder).expect("renames");
    wait("the store does not go on", || store.settle(LogIndex(through)) == Ok(LogIndex(through)));
    assert_eq!(store.check_room(), Ok(()));
    drop(store);
    let store = LsmStore::open(directory.path(), 3 << 20).expect("opens");
    assert_eq!((store.applied(), count(&store)), (Ok(LogIndex(through)), 10 + (through as usize - 1) * 1000));
}

#[test]
fn a_damaged_file_is_named_whether_it_is_torn_or_rotten() {
    let made = tempfile::tempdir().expect("a directory");
    let store = open(made.path());
    into_tables(&store, 0, 5000, 1);
    store.rest();
    drop(store);
    let tree = made.path().join("versions-1");
    let table = tables(made.path()).remove(0);
    let list = fs::read_dir(&tree).expect("lists").flatten().map(|file| file.path());
    let list = list.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('v')));
    let list: Vec<PathBuf> = list.collect();
    assert_eq!(list.len(), 1, "a start finds one list of tables");
    let mut rng = Rng::new(7);
    for path in [&table, &list[0], &tree.join("current"), &made.path().join("store")] {
        let whole = fs::read(path).expect("reads");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        for cut in [true, false].into_iter().cycle().take(40) {
            let mut bytes = whole.clone();
            let at = rng.below(whole.len() as u64) as usize;
            match cut {
                true => bytes.truncate(at),
                false => bytes[at] ^= 1 << rng.below(8),
            }
            fs::write(path, &bytes).expect("writes");
            let read = LsmStore::open(made.path(), MEMORY_BYTES).and_then(|store| {
                let mut found = 0;
                store.visit(&[], &[0xff; 320], &mut |_, value| {
                    found += usize::from(value.len() == 100);
                    Ok(())
                })?;
                Ok(found)
            });
            match read {
                // A byte between the parts of a table, which is not read.
                Ok(found) => assert!(found == 5000 && !cut, "{name}: {found} items are left at {at}"),
                Err(fault) => {
                    assert_eq!(fault.reason, frieze_base::Reason::Corrupt, "{name}: {fault}");
                    let says = fault.message.contains(&format!("/{name}"))
                        && ["damaged", "is missing, which"].iter().any(|words| fault.message.contains(words));
                    assert!(says, "{name} at {at}: {fault}");
                }
            }
            assert!(table.exists(), "a start with a damaged file removes no table");
            fs::write(path, &whole).expect("writes");
        }
    }
    assert_eq!(count(&open(made.path())), 5000);
}

#[test]
fn files_of_tables_that_were_not_finished_are_removed_at_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    into_tables(&open(directory.path()), 0, 100, 1);
    let whole = tables(directory.path());
    fs::write(whole[0].with_file_name("77"), b"half a table").expect("writes");
    let other = directory.path().join("versions-9");
    fs::create_dir_all(other.join("tables")).expect("makes");
    fs::write(other.join("tables/3"), b"of a state that was received in part").expect("writes");
    let store = open(directory.path());
    assert_eq!((count(&store), tables(directory.path())), (100, whole));
    assert!(!other.exists());
}

#[test]
fn a_state_that_was_received_in_part_is_gone_after_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let item = |number: u8| (vec![b'E', number, 0, 0], vec![number; 4]);
    into_tables(&open(directory.path()), 0, 1, 3);
    for _ in 0..3 {
        let store = open(directory.path());
        store.begin_snapshot().expect("begins");
        store.put_snapshot((0..50).map(item).collect()).expect("puts");
        assert!(directory.path().join("versions-2").exists());
        // It is killed: the directory is left.
        std::mem::forget(store.other.lock().take());
    }
    let store = open(directory.path());
    assert_eq!((count(&store), store.name()), (1, Ok(None)));
    assert!(!directory.path().join("versions-2").exists());
    store.begin_snapshot().expect("begins");
    assert_eq!(store.received_snapshot().expect("views").items(&[], &[0xff]).count(), 0);
}

#[test]
fn a_received_state_counts_from_the_write_of_the_manifest_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let item = |number: u8| (vec![b'E', number, 0, 0], vec![number; 4]);
    let store = open(directory.path());
    into_tables(&store, 0, 1, 3);
    let old_manifest = fs::read(directory.path().join("store")).expect("reads");
    store.begin_snapshot().expect("begins");
    store.put_snapshot((0..50).map(item).collect()).expect("puts");
    let reader = store.view().expect("views");
    store.install_snapshot(LogIndex(9), b"name").expect("takes");
    let new_manifest = fs::read(directory.path().join("store")).expect("reads");
    assert!(directory.path().join("versions-1").exists(), "a reader has it");
    let copy = |manifest: &[u8]| {
        let copy = tempfile::tempdir().expect("a directory");
        copy_tree(directory.path(), copy.path());
        fs::write(copy.path().join("store"), manifest).expect("writes");
        let store = open(copy.path());
        let found = (count(&store), store.applied(), store.name());
        let trees = fs::read_dir(copy.path()).expect("lists").count() - 1;
        assert_eq!(trees, 1, "the other is removed");
        found
    };
    assert_eq!(copy(&old_manifest), (1, Ok(LogIndex(3)), Ok(None)), "a crash before it");
    assert_eq!(copy(&new_manifest), (50, Ok(LogIndex(9)), Ok(Some(b"name".to_vec()))), "and after it");
    drop(reader);
    assert!(!directory.path().join("versions-1").exists(), "it goes with its last reader");
    into_tables(&store, 0, 10, 10);
    drop(store);
    let store = open(directory.path());
    assert_eq!((count(&store), store.name()), (60, Ok(Some(b"name".to_vec()))));
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("makes");
    for file in fs::read_dir(from).expect("lists").flatten() {
        let to = to.join(file.file_name());
        match file.path().is_dir() {
            true => copy_tree(&file.path(), &to),
            false => drop(fs::copy(file.path(), to).expect("copies")),
        }
    }
}

/// The directory at many moments of its life is a store that is complete up to an entry.
#[test]
fn a_store_that_is_killed_at_any_moment_is_complete_up_to_an_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().join("namespace");
    let store = LsmStore::open(&at, TABLE_BYTES_MIN).expect("opens");
    let versions = NameVersions::open(Box::new(store)).expect("opens");
    let change = |index: u64| KeyVersion {
        key: format!("E{:05}", index * 7919 % 5000).into_bytes(),
        stamp: Hlc(index),
        value: Some(vec![index as u8; 400]),
    };
    let outcome = |index: u64, value: Option<Vec<u8>>| KeyVersion {
        key: [&b"R"[..], &index.to_be_bytes()].concat(),
        stamp: Hlc(index),
        value,
    };
    let mut seen = std::collections::BTreeSet::new();
    for index in 1..=12_000_u64 {
        let gone = index.checked_sub(300).map(|gone| outcome(gone, None));
        let changes = [change(index), outcome(index, Some(vec![1; 40]))].into_iter().chain(gone).collect();
        versions.add(LogIndex(index), changes);
        if index % 100 == 0 {
            versions.settle(LogIndex(index)).expect("settles");
        }
        if index % 500 == 250 {
            // Files change while they are copied, as they do on a disk whose last writes are lost: what a list of
            // tables names is older than the list.
            let copy = directory.path().join(format!("copy-{index}"));
            copy_in_order(&at, &copy);
            let killed = NameVersions::open(Box::new(open(&copy))).expect("a killed store opens");
            let applied = killed.applied().expect("says").0;
            assert!(applied <= index / 100 * 100, "entry {applied} was not durable");
            let (mut found, mut outcomes) = (Vec::new(), Vec::new());
            killed
                .versions(b"E", b"", Hlc::ZERO, Hlc::MAX, &mut |_, stamp, _| {
                    found.push(stamp.0);
                    true
                })
                .expect("reads");
            found.sort_unstable();
            assert!(found.iter().copied().eq(1..=applied), "complete up to {applied}: {}", found.len());
            let mut timed = 0;
            killed
                .changed(Hlc::ZERO, Hlc::MAX, &mut |_, _| {
                    timed += 1;
                    true
                })
                .expect("reads");
            assert_eq!(timed, applied);
            killed
                .store
                .visit(b"R", b"S", &mut |key, _| {
                    outcomes.push(key.to_vec());
                    Ok(())
                })
                .expect("reads");
            assert_eq!(outcomes.len() as u64, applied.min(300), "those that are not acknowledged");
            seen.insert(applied);
            drop(killed);
            fs::remove_dir_all(copy).expect("removes");
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// The same with a directory whose changes are in pages: a start has its times, and instants before read as they did.
#[test]
fn a_store_that_is_killed_at_any_moment_has_the_times_of_directories_of_an_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().join("namespace");
    let store = LsmStore::open(&at, TABLE_BYTES_MIN).expect("opens");
    let versions = NameVersions::open(Box::new(store)).expect("opens");
    let (mut tree, id) = with_directory(5);
    let mut seen = std::collections::BTreeSet::new();
    let mut added = 0;
    for round in 1..=9000_u64 {
        grow(&mut tree, round);
        while added < tree.entries.len() {
            added += 1;
            versions.add(LogIndex(added as u64), tree.entries[added - 1].1.clone());
        }
        let index = added as u64;
        if round % 100 == 0 {
            versions.settle(LogIndex(index)).expect("settles");
        }
        if round % 500 == 250 {
            let copy = directory.path().join(format!("copy-{index}"));
            copy_in_order(&at, &copy);
            let killed = NameVersions::open(Box::new(open(&copy))).expect("a killed store opens");
            let applied = killed.applied().expect("says").0 as usize;
            let stamps_of = |entries: usize| {
                let transactions = tree.entries[..entries].iter().flat_map(|(transactions, _)| transactions);
                transactions.map(|(_, stamp)| *stamp).filter(|stamp| tree.made.contains_key(&(id, *stamp)))
            };
            let mut found = Vec::new();
            killed
                .versions_of(&inode_key(id), Hlc::ZERO, Hlc::MAX, &mut |_, stamp, value| {
                    assert!(value.is_some());
                    found.push(stamp);
                    true
                })
                .expect("reads");
            assert!(stamps_of(applied).eq(found.iter().copied()), "complete up to {applied}: {}", found.len());
            let mut namespace = loaded(&killed);
            let inode = |namespace: &Namespace, at| namespace.inode(&killed, id, at).map_err(|fault| fault.reason);
            let last = stamps_of(applied).next_back().map(|stamp| tree.made[&(id, stamp)].0.clone());
            assert_eq!(inode(&namespace, None).ok(), last, "after entry {applied}");
            for stamp in found.iter().step_by(97) {
                assert_eq!(inode(&namespace, Some(*stamp)).as_ref(), Ok(&tree.made[&(id, *stamp)].0));
            }
            for (transactions, _) in &tree.entries[applied..] {
                for (transaction, stamp) in transactions {
                    namespace.apply(transaction, *stamp, &mut Vec::new(), &NoReadSet);
                }
            }
            assert_eq!(namespace, tree.namespace, "entries after {applied} are replayed");
            seen.insert(applied);
            drop(killed);
            fs::remove_dir_all(copy).expect("removes");
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// First what names others, then what is named: a power loss keeps no list without its tables.
fn copy_in_order(from: &Path, to: &Path) {
    let tree = Path::new("versions-1");
    fs::create_dir_all(to.join(tree).join("tables")).expect("makes");
    fs::copy(from.join("store"), to.join("store")).expect("copies");
    'again: loop {
        let root = fs::read(from.join(tree).join("current")).expect("reads");
        let list = tree.join(format!("v{}", u64::from_le_bytes(*root.first_chunk().expect("a number"))));
        fs::write(to.join(tree).join("current"), &root).expect("writes");
        if fs::copy(from.join(&list), to.join(&list)).is_err() {
            // It was replaced meanwhile.
            continue;
        }
        for table in tables(from) {
            let name = table.file_name().expect("a name");
            // One that is merged away meanwhile is in a later list only.
            if fs::copy(&table, to.join(tree).join("tables").join(name)).is_err() {
                continue 'again;
            }
        }
        return;
    }
}

#[test]
fn a_key_is_found_in_the_memtable_and_in_tables_by_its_youngest_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let put = |value: Option<&[u8]>| {
        let mut batch = StoreBatch::default();
        match value {
            Some(value) => batch.put(b"Ea", value),
            None => batch.remove(b"Ea"),
        }
        batch.put(b"Eb", b"beside");
        store.insert(&batch);
    };
    let values = [Some(&b"old"[..]), Some(b"new"), None, Some(b""), Some(b"again")];
    for (index, value) in (1..).zip(values) {
        let found = || store.get(b"Ea").map(|found| found.as_deref() == value);
        put(value);
        assert_eq!(found(), Ok(true), "in the memtable");
        store.seal(&StoreBatch::default(), LogIndex(index));
        store.settle(LogIndex(index)).expect("settles");
        store.persist().expect("persists");
        assert_eq!(found(), Ok(true), "in a table");
    }
    assert_eq!((store.get(b"E"), store.get(b"Ea\0"), store.get(b"X")), (Ok(None), Ok(None), Ok(None)));
}

#[test]
fn what_an_older_build_left_beside_the_store_is_removed() {
    let parent = tempfile::tempdir().expect("a directory");
    let (directory, image) = (parent.path().join("namespace"), parent.path().join("namespace.left"));
    fs::create_dir(&image).expect("makes");
    fs::write(image.join("entries"), b"FRZNAMES").expect("writes");
    into_tables(&open(&directory), 0, 10, 3);
    assert!(!image.exists());
    assert_eq!(count(&open(&directory)), 10);
}
