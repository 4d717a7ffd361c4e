use frieze_base::LogIndex;
use frieze_hlc::Hlc;
use frieze_namespace::{KeyVersion, VersionHistory};

use super::keys::stored_key;
use super::*;

fn change(key: &[u8], stamp: u64, value: Option<&str>) -> KeyVersion {
    KeyVersion { key: key.to_vec(), stamp: Hlc(stamp), value: value.map(|text| text.as_bytes().to_vec()) }
}

fn scan(versions: &NameVersions, prefix: &[u8], after: &[u8], at: u64) -> Vec<(Vec<u8>, String)> {
    let mut found = Vec::new();
    versions
        .scan(prefix, after, Hlc(at), &mut |key, _, value| {
            found.push((key.to_vec(), String::from_utf8_lossy(value).into_owned()));
            true
        })
        .expect("scans");
    found
}

fn both(test: impl Fn(NameVersions)) {
    test(NameVersions::new(Box::new(MemoryStore::default())));
    let directory = tempfile::tempdir().expect("a directory");
    test(NameVersions::new(Box::new(LsmStore::open(directory.path(), 32 << 20).expect("opens"))));
}

#[test]
fn a_version_is_found_at_every_instant_wherever_it_is_kept() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"E\0a", 10, Some("one"))]);
        versions.settle(LogIndex(1)).expect("settles");
        versions.add(LogIndex(2), vec![change(b"E\0a", 20, Some("two"))]);
        versions.add(LogIndex(3), vec![change(b"E\0a", 30, None)]);
        versions.settle(LogIndex(2)).expect("settles");
        let at = |t| versions.newest(b"E\0a", Hlc(t)).expect("reads").map(|(s, v)| (s.0, v));
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some((10, Some(b"one".to_vec()))));
        assert_eq!(at(29), Some((20, Some(b"two".to_vec()))));
        assert_eq!(at(30), Some((30, None)));
        assert_eq!(versions.applied(), Ok(LogIndex(2)));
        assert_eq!(versions.waiting(), 1);
    });
}

#[test]
fn a_scan_merges_ram_and_disk_in_key_order() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"Ea", 10, Some("a1")), change(b"Eb", 10, Some("b1"))]);
        versions.settle(LogIndex(1)).expect("settles");
        versions.add(LogIndex(2), vec![change(b"Ea\0", 11, Some("a0")), change(b"Eaa", 12, Some("aa"))]);
        versions.add(LogIndex(3), vec![change(b"Eb", 13, None), change(b"F", 13, Some("no"))]);
        let names = |at, after: &[u8]| scan(&versions, b"E", after, at).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
        assert_eq!(names(10, b""), [b"Ea".to_vec(), b"Eb".to_vec()]);
        assert_eq!(names(12, b""), [b"Ea".to_vec(), b"Ea\0".to_vec(), b"Eaa".to_vec(), b"Eb".to_vec()]);
        assert_eq!(names(13, b"Ea\0"), [b"Eaa".to_vec()]);
        assert_eq!(names(12, b"Ea"), [b"Ea\0".to_vec(), b"Eaa".to_vec(), b"Eb".to_vec()]);
    });
}

#[test]
fn outcomes_keep_no_history_and_go_when_acknowledged() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"R1", 10, Some("ok")), change(b"S1", 10, Some("open"))]);
        versions.add(LogIndex(2), vec![change(b"R1", 11, None)]);
        versions.settle(LogIndex(1)).expect("settles");
        let mut loaded = Vec::new();
        versions.load(&LoadPart::Last, &mut |key, stamp, _| loaded.push((key.to_vec(), stamp))).expect("loads");
        assert_eq!(loaded, [(b"R1".to_vec(), Hlc(10)), (b"S1".to_vec(), Hlc(10))]);
        versions.settle(LogIndex(2)).expect("settles");
        loaded.clear();
        versions.load(&LoadPart::Last, &mut |key, stamp, _| loaded.push((key.to_vec(), stamp))).expect("loads");
        assert_eq!(loaded, [(b"S1".to_vec(), Hlc(10))]);
    });
}

#[test]
fn versions_come_in_order_within_their_interval() {
    both(|versions| {
        for stamp in 1..=5 {
            versions.add(LogIndex(stamp), vec![change(b"I7", stamp * 10, Some("x"))]);
        }
        versions.settle(LogIndex(3)).expect("settles");
        let mut stamps = Vec::new();
        versions
            .versions(b"I7", b"", Hlc(10), Hlc(40), &mut |_, stamp, _| {
                stamps.push(stamp.0);
                true
            })
            .expect("reads");
        assert_eq!(stamps, [20, 30, 40]);
    });
}

#[test]
fn a_store_that_lost_power_is_at_its_last_persist() {
    let store = MemoryStore::default();
    let versions = NameVersions::new(Box::new(store.clone()));
    versions.add(LogIndex(1), vec![change(b"A", 1, Some("kept"))]);
    versions.settle(LogIndex(1)).expect("settles");
    versions.persist().expect("persists");
    versions.add(LogIndex(2), vec![change(b"B", 2, Some("lost"))]);
    versions.settle(LogIndex(2)).expect("settles");
    store.lose_power();
    assert_eq!(store.applied(), Ok(LogIndex(1)));
    assert_eq!(store.last_in(&stored_key(b"B", Hlc(0)), &stored_key(b"B", Hlc::MAX)), Ok(None));
}

fn changed(versions: &NameVersions, after: u64, upto: u64) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    versions
        .changed(Hlc(after), Hlc(upto), &mut |stamp, key| {
            found.push((stamp.0, String::from_utf8_lossy(key).into_owned()));
            true
        })
        .expect("reads");
    found
}

#[test]
fn the_changes_of_an_interval_are_found_wherever_they_are_kept() {
    both(|versions| {
        let mut expect = Vec::new();
        for index in 1..=700u64 {
            let (stamp, name) = (index * 10, format!("E{index}"));
            let changes = vec![change(name.as_bytes(), stamp, Some("x")), change(b"R1", stamp, Some("outcome"))];
            versions.add(LogIndex(index), changes);
            expect.push((stamp, name));
            if index % 190 == 0 {
                versions.settle(LogIndex(index - 5)).expect("settles");
            }
        }
        for (after, upto) in [(0, 7000), (0, 10), (9, 10), (10, 10), (10, 20), (1000, 1010), (2555, 5333), (6999, 9999)]
        {
            let wanted = expect.iter().filter(|(stamp, _)| *stamp > after && *stamp <= upto);
            assert_eq!(changed(&versions, after, upto), wanted.cloned().collect::<Vec<_>>(), "({after}, {upto}]");
        }
        let read = versions.changed(Hlc(3000), Hlc(3100), &mut |_, _| true).expect("reads");
        assert!(read <= 10 + 256, "{read} entries for 10 changes");
    });
}

fn all(view: &dyn StoreView) -> Vec<StoreItem> {
    view.items(&[], &[0xff; 320]).collect::<Result<_, _>>().expect("reads")
}

/// Items of another state, in two parts.
fn others() -> [Vec<StoreItem>; 2] {
    let item = |number: u8| (vec![b'E', number, 0, 0], vec![number; 4]);
    [(0..50).map(item).collect(), (50..99).map(item).collect()]
}

#[test]
fn a_view_stays_what_it_was_and_another_state_takes_the_place_of_this_one_at_once() {
    let of = |store: Box<dyn VersionStore>| {
        store.commit(vec![(b"old".to_vec(), b"1".to_vec())], Vec::new(), LogIndex(3)).expect("commits");
        let before = store.view().expect("views");
        store.commit(vec![(b"older".to_vec(), b"2".to_vec())], vec![b"old".to_vec()], LogIndex(4)).expect("commits");
        assert_eq!(all(&*before), [(b"old".to_vec(), b"1".to_vec())]);
        // One that was broken off leaves nothing.
        store.begin_snapshot().expect("begins");
        store.put_snapshot(vec![(b"broken off".to_vec(), vec![1])]).expect("puts");
        store.begin_snapshot().expect("begins");
        for part in others() {
            store.put_snapshot(part).expect("puts");
            assert_eq!(store.last_in(&[], &[0xff]).expect("reads"), Some((b"older".to_vec(), b"2".to_vec())));
        }
        let whole = others().concat();
        assert_eq!(all(&*store.received_snapshot().expect("views")), whole);
        assert_eq!((store.name(), store.applied()), (Ok(None), Ok(LogIndex(4))));
        store.install_snapshot(LogIndex(9), b"name").expect("takes");
        assert_eq!((store.name(), store.applied()), (Ok(Some(b"name".to_vec())), Ok(LogIndex(9))));
        assert_eq!(all(&*store.view().expect("views")), whole);
        // A reader from before still reads the old one.
        assert_eq!(all(&*before), [(b"old".to_vec(), b"1".to_vec())]);
        store.commit(vec![(b"new".to_vec(), b"3".to_vec())], Vec::new(), LogIndex(10)).expect("commits");
        assert_eq!(all(&*store.view().expect("views")).len(), whole.len() + 1);
    };
    of(Box::<MemoryStore>::default());
    let directory = tempfile::tempdir().expect("a directory");
    of(Box::new(LsmStore::open(directory.path(), 32 << 20).expect("opens")));
    let store = LsmStore::open(directory.path(), 32 << 20).expect("opens again");
    assert_eq!((store.name(), store.applied()), (Ok(Some(b"name".to_vec())), Ok(LogIndex(10))));
    assert_eq!(all(&*store.view().expect("views")).len(), others().concat().len() + 1);
}

#[test]
fn a_state_that_was_received_in_part_is_gone_after_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    for _ in 0..3 {
        let store = LsmStore::open(directory.path(), 32 << 20).expect("opens");
        store.commit(vec![(b"old".to_vec(), b"1".to_vec())], Vec::new(), LogIndex(3)).expect("commits");
        store.begin_snapshot().expect("begins");
        store.put_snapshot(others().concat()).expect("puts");
        store.persist().expect("persists");
    }
    let store = LsmStore::open(directory.path(), 32 << 20).expect("opens");
    assert_eq!(all(&*store.view().expect("views")), [(b"old".to_vec(), b"1".to_vec())]);
    assert_eq!(store.name(), Ok(None));
    store.begin_snapshot().expect("begins");
    assert_eq!(all(&*store.received_snapshot().expect("views")), []);
}

/// Bytes in the journals of a store.
fn journal_bytes(directory: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(directory).expect("a directory").map(|file| file.expect("a file"));
    let journals = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "jnl"));
    let lens: Vec<u64> = journals.map(|file| file.metadata().expect("its length").len()).collect();
    assert!(!lens.is_empty(), "a store has a journal");
    lens.iter().sum()
}

#[test]
fn a_store_that_rested_leaves_no_journal_to_be_read_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let item = |n: u64| (n.to_be_bytes().to_vec(), vec![n as u8; 100]);
    let mut expected = Vec::new();
    for life in 0..4 {
        let store = LsmStore::open(directory.path(), 3 << 20).expect("opens");
        assert_eq!((all(&*store.view().expect("views")), store.applied()), (expected.clone(), Ok(LogIndex(life))));
        // More than waits in memory, and some that does.
        for part in 0..10 {
            let items: Vec<StoreItem> = (0..2000).map(|n| item(life * 100_000 + part * 2000 + n)).collect();
            expected.extend(items.clone());
            store.commit(items, Vec::new(), LogIndex(life + 1)).expect("commits");
        }
        // Of the versions of one key the newest counts, whichever life it is from.
        expected.retain(|(key, _)| *key != 7_u64.to_be_bytes());
        let again = (7_u64.to_be_bytes().to_vec(), vec![life as u8]);
        expected.push(again.clone());
        expected.sort();
        store.commit(vec![again], Vec::new(), LogIndex(life + 1)).expect("commits");
        store.persist().expect("persists");
        if life == 2 {
            // This one is killed.
            continue;
        }
        store.rest().expect("rests");
        assert_eq!(journal_bytes(directory.path()), 0);
        assert!(store.commit(vec![item(1)], Vec::new(), LogIndex(99)).is_err(), "it would be lost");
    }
}

#[test]
fn a_store_that_rests_while_a_state_is_received_throws_that_away_at_its_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    {
        let store = LsmStore::open(directory.path(), 32 << 20).expect("opens");
        store.commit(vec![(b"old".to_vec(), b"1".to_vec())], Vec::new(), LogIndex(3)).expect("commits");
        store.begin_snapshot().expect("begins");
        store.put_snapshot(others().concat()).expect("puts");
        store.persist().expect("persists");
        store.rest().expect("rests");
    }
    let store = LsmStore::open(directory.path(), 32 << 20).expect("opens");
    assert_eq!(all(&*store.view().expect("views")), [(b"old".to_vec(), b"1".to_vec())]);
    assert_eq!(store.applied(), Ok(LogIndex(3)));
}

#[test]
fn a_restart_reads_every_key_of_now_in_one_of_its_parts() {
    both(|versions| {
        let number = |letter: u8, n: u64| [&[letter][..], &n.to_be_bytes()].concat();
        let mut changes = Vec::new();
        for letter in b"CEFHILNRSX" {
            for n in [0, 1, 255, 256, 400, 640, 641] {
                changes.push(change(&number(*letter, n), 10, Some("old")));
                changes.push(change(&number(*letter, n), 11, Some("new")));
            }
            changes.push(change(&number(*letter, 300), 12, Some("there")));
            changes.push(change(&number(*letter, 300), 13, None));
        }
        // As they happened.
        changes.sort_by_key(|change| change.stamp);
        versions.add(LogIndex(1), changes);
        versions.settle(LogIndex(1)).expect("settles");
        let load = |part: LoadPart| {
            let mut loaded = Vec::new();
            let mut add = |key: &[u8], stamp: Hlc, value: &[u8]| {
                assert_eq!((stamp, value), (Hlc(11), &b"new"[..]));
                loaded.push(key.to_vec());
            };
            versions.load(&part, &mut add).expect("loads");
            loaded
        };
        let all = |letters: &[u8], numbers: &[u64]| -> Vec<Vec<u8>> {
            letters.iter().flat_map(|letter| numbers.iter().map(move |n| number(*letter, *n))).collect()
        };
        let (every, few, many) = (&[0, 1, 255, 256, 400, 640, 641][..], &[0, 1, 255, 256][..], &[400, 640, 641][..]);
        let between = versions.inode_between().expect("reads");
        assert_eq!(between, number(b'I', 400), "five eighths");
        assert_eq!(load(LoadPart::Apart(between.clone())), [all(b"E", every), all(b"I", many)].concat());
        assert_eq!(load(LoadPart::First(between)), [all(b"CFH", every), all(b"I", few)].concat());
        assert_eq!(
            load(LoadPart::Last),
            all(b"NRSX", every),
            "names by inode and the index of time stay where they are"
        );
        let none = vec![b'I' + 1];
        assert_eq!(load(LoadPart::Apart(none.clone())), all(b"E", every));
        assert_eq!(load(LoadPart::First(none)), all(b"CFHI", every));
    });
    both(|versions| assert_eq!(versions.inode_between(), Ok(vec![b'I' + 1]), "there is none"));
}

/// Leaves one entry and one inode.
fn leave(store: &LsmStore) {
    let newest = CurrentVersions {
        last_id: 9,
        entries: &|take| take(b"E1", Hlc(5), b"entry"),
        inodes: &|take| take(b"I1", Hlc(6), b"inode"),
    };
    store.write_clean_start_image(&newest).expect("leaves");
}

fn is_left(store: &LsmStore) -> bool {
    let Some(mut left) = store.clean_start_image().expect("looks") else { return false };
    let mut found = Vec::new();
    (left.entries)(&mut |key, stamp, value| found.push((key.to_vec(), stamp, value.to_vec()))).expect("reads");
    (left.inodes)(&mut |key, stamp, value| found.push((key.to_vec(), stamp, value.to_vec()))).expect("reads");
    assert_eq!(left.last_id, 9);
    assert_eq!(found, [(b"E1".to_vec(), Hlc(5), b"entry".to_vec()), (b"I1".to_vec(), Hlc(6), b"inode".to_vec())]);
    true
}

#[test]
fn what_is_left_for_a_start_is_there_until_something_is_committed_by_whomever() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("namespace");
    let open = || LsmStore::open(&directory, 32 << 20).expect("opens");
    let put = |store: &LsmStore, key: u64, applied: u64| {
        let item = (key.to_be_bytes().to_vec(), b"value".to_vec());
        store.commit(vec![item], Vec::new(), LogIndex(applied)).expect("commits");
        store.persist().expect("persists");
    };
    let rest = |store: &LsmStore| {
        store.rest().expect("rests");
        leave(store);
    };
    let store = open();
    (0..500).for_each(|key| put(&store, key, 3));
    leave(&store);
    assert!(!is_left(&store), "it goes on");
    rest(&store);
    drop(store);
    for _ in 0..3 {
        // A start that commits nothing leaves it as it is.
        let store = open();
        assert!(is_left(&store));
        rest(&store);
    }
    let store = open();
    put(&store, 7, 3);
    assert!(!is_left(&store), "an index that was applied says nothing of what it is of");
    drop(store);
    let store = open();
    assert!(!is_left(&store));
    rest(&store);
    drop(store);
    assert!(is_left(&open()));
    {
        // An older server, which does not know of it.
        let database = fjall::Database::builder(&directory).open().expect("opens");
        let versions = database.keyspace("versions", fjall::KeyspaceCreateOptions::default).expect("opens");
        versions.insert(b"other", b"value").expect("commits");
        database.persist(fjall::PersistMode::SyncAll).expect("persists");
    }
    assert!(!is_left(&open()));
    let store = open();
    rest(&store);
    drop(store);
    let store = open();
    assert!(is_left(&store));
    store.begin_snapshot().expect("begins");
    store.put_snapshot(vec![(b"else".to_vec(), b"2".to_vec())]).expect("puts");
    store.install_snapshot(LogIndex(3), b"name").expect("takes");
    assert!(!is_left(&store), "another state is in its place");
    drop(store);
    assert!(!is_left(&open()));
}

#[test]
fn the_version_of_a_session_is_written_again_in_its_place_and_erased_whatever_is_settled_meanwhile() {
    let key = [&b"S"[..], &7u64.to_be_bytes()].concat();
    both(|versions| {
        let found = || {
            let mut found = Vec::new();
            let visit = &mut |_: &[u8], stamp: Hlc, value: Option<&[u8]>| {
                found.push((stamp.0, value.map(|value| String::from_utf8_lossy(value).into_owned())));
                true
            };
            versions.versions(b"S", b"", Hlc::ZERO, Hlc::MAX, visit).expect("reads");
            let newest = versions.newest(&key, Hlc::MAX).expect("reads");
            let newest = newest.map(|(stamp, value)| (stamp.0, value.and_then(|value| String::from_utf8(value).ok())));
            assert_eq!(newest, found.last().cloned());
            found.into_iter().filter_map(|(_, value)| value).collect::<Vec<String>>()
        };
        versions.add(LogIndex(1), vec![change(&key, 7, Some("open"))]);
        versions.add(LogIndex(2), vec![change(&key, 7, Some("ended"))]);
        assert_eq!(found(), ["ended"]);
        versions.settle(LogIndex(1)).expect("settles");
        assert_eq!(found(), ["ended"], "the store has the older one, and memory the younger");
        versions.settle(LogIndex(2)).expect("settles");
        assert_eq!(found(), ["ended"]);
        // A name that changed in the same entry is found by its time, whatever stamp comes last.
        versions.add(LogIndex(3), vec![change(b"E\0\0\0\0\0\0\0\x01a", 20, Some("x")), change(&key, 7, None)]);
        assert_eq!(changed(&versions, 19, 21).len(), 1);
        assert_eq!(found(), [""; 0]);
        let digest = versions.digest().expect("reads");
        versions.settle(LogIndex(3)).expect("settles");
        assert_eq!(found(), [""; 0]);
        assert_eq!(versions.digest(), Ok(digest), "servers that have settled it and that have not hold the same");
        assert_eq!(versions.newest(&key, Hlc::MAX), Ok(None));
        let (from, to) = (stored_key(&key, Hlc::ZERO), stored_key(&key, Hlc::MAX));
        assert_eq!(versions.into_store().items(&from, &to).count(), 0, "nothing of it is left");
    });
    // All of it settled at once.
    both(|versions| {
        versions.add(LogIndex(1), vec![change(&key, 7, Some("open")), change(b"S12345678", 8, Some("one"))]);
        versions.add(LogIndex(2), vec![change(&key, 7, Some("ended")), change(b"S12345678", 8, Some("two"))]);
        versions.add(LogIndex(3), vec![change(&key, 7, None)]);
        versions.settle(LogIndex(3)).expect("settles");
        assert_eq!(versions.newest(&key, Hlc::MAX), Ok(None));
        assert_eq!(versions.newest(b"S12345678", Hlc::MAX), Ok(Some((Hlc(8), Some(b"two".to_vec())))));
    });
}
