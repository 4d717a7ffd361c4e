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

/// Both stores, with all in a memtable and with all in tables.
fn both(test: impl Fn(NameVersions)) {
    test(NameVersions::open(Box::<MemoryStore>::default()).expect("opens"));
    // Each entry is a memtable.
    let memory = MemoryStore::default();
    memory.set_memtable_bytes_max(1);
    test(NameVersions::open(Box::new(memory)).expect("opens"));
    let directory = tempfile::tempdir().expect("a directory");
    test(NameVersions::open(Box::new(LsmStore::open(directory.path(), 32 << 20).expect("opens"))).expect("opens"));
}

/// All that was added comes into tables.
fn into_tables(versions: &NameVersions, through: u64) {
    versions.settle(LogIndex(through)).expect("settles");
    versions.persist().expect("persists");
    assert_eq!(versions.applied(), Ok(LogIndex(through)));
}

/// The store of a process that ended, to which another comes.
fn begin_again(store: Box<dyn VersionStore>) -> NameVersions {
    NameVersions::open(store).expect("opens")
}

fn add_items(store: &dyn VersionStore, items: &[StoreItem], removals: &[&[u8]]) {
    let mut batch = StoreBatch::default();
    items.iter().for_each(|(key, value)| batch.put(key, value));
    removals.iter().for_each(|key| batch.remove(key));
    store.insert(&batch);
}

fn put_into_tables(store: &dyn VersionStore, items: &[StoreItem], removals: &[&[u8]], through: u64) {
    add_items(store, items, removals);
    store.seal(&StoreBatch::default(), LogIndex(through));
    store.settle(LogIndex(through)).expect("settles");
    store.persist().expect("persists");
}

#[test]
fn a_version_is_found_at_every_instant_wherever_it_is_kept() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"E\0a", 10, Some("one"))]);
        into_tables(&versions, 1);
        versions.add(LogIndex(2), vec![change(b"E\0a", 20, Some("two"))]);
        versions.add(LogIndex(3), vec![change(b"E\0a", 30, None)]);
        assert_eq!((versions.applied(), versions.unsettled()), (Ok(LogIndex(1)), 2));
        let at = |t| versions.newest(b"E\0a", Hlc(t)).expect("reads").map(|(s, v)| (s.0, v));
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some((10, Some(b"one".to_vec()))));
        assert_eq!(at(29), Some((20, Some(b"two".to_vec()))));
        assert_eq!(at(30), Some((30, None)));
        into_tables(&versions, 3);
        assert_eq!((at(29), at(30)), (Some((20, Some(b"two".to_vec()))), Some((30, None))));
        assert_eq!(versions.unsettled(), 0);
    });
}

#[test]
fn a_scan_merges_ram_and_disk_in_key_order() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"Ea", 10, Some("a1")), change(b"Eb", 10, Some("b1"))]);
        into_tables(&versions, 1);
        versions.add(LogIndex(2), vec![change(b"Ea\0", 11, Some("a0")), change(b"Eaa", 12, Some("aa"))]);
        versions.add(LogIndex(3), vec![change(b"Eb", 13, None), change(b"F", 13, Some("no"))]);
        let names = |at, after: &[u8]| scan(&versions, b"E", after, at).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
        assert_eq!(names(10, b""), [b"Ea".to_vec(), b"Eb".to_vec()]);
        assert_eq!(names(12, b""), [b"Ea".to_vec(), b"Ea\0".to_vec(), b"Eaa".to_vec(), b"Eb".to_vec()]);
        assert_eq!(names(13, b"Ea\0"), [b"Eaa".to_vec()]);
        assert_eq!(names(12, b"Ea"), [b"Ea\0".to_vec(), b"Eaa".to_vec(), b"Eb".to_vec()]);
    });
}

fn last_part(versions: &NameVersions) -> Vec<(Vec<u8>, Hlc)> {
    let mut loaded = Vec::new();
    versions.load(&LoadPart::Last, &mut |key, stamp, _| loaded.push((key.to_vec(), stamp))).expect("loads");
    loaded
}

#[test]
fn an_outcome_that_is_acknowledged_before_its_memtable_is_sealed_is_never_stored() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"R1", 10, Some("ok")), change(b"R2", 10, Some("ok"))]);
        versions.add(LogIndex(2), vec![change(b"R1", 11, None), change(b"S1", 11, Some("open"))]);
        into_tables(&versions, 2);
        assert_eq!(last_part(&versions), [(b"R2".to_vec(), Hlc(10)), (b"S1".to_vec(), Hlc(11))]);
    });
}

#[test]
fn outcomes_and_the_control_state_are_kept_in_place_and_go_when_they_are_removed() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"R1", 10, Some("ok")), change(b"C", 10, Some("first"))]);
        into_tables(&versions, 1);
        assert_eq!(last_part(&versions), [(b"R1".to_vec(), Hlc(10))]);
        // A process that begins knows that the tables have the outcome.
        let versions = begin_again(versions.into_store());
        versions.add(LogIndex(2), vec![change(b"R1", 11, None), change(b"C", 11, Some("second"))]);
        into_tables(&versions, 2);
        assert_eq!(last_part(&versions), []);
        let mut control = Vec::new();
        let part = LoadPart::First(vec![b'I' + 1]);
        versions
            .load(&part, &mut |key, stamp, value| control.push((key.to_vec(), stamp, value.to_vec())))
            .expect("loads");
        assert_eq!(control, [(b"C".to_vec(), Hlc(11), b"second".to_vec())]);
    });
}

#[test]
fn what_is_in_no_table_is_lost_with_the_process_and_nothing_else() {
    both(|versions| {
        let all =
            |index| vec![change(format!("E{index}").as_bytes(), index, Some("x")), change(b"R1", index, Some("y"))];
        versions.add(LogIndex(1), all(1));
        into_tables(&versions, 1);
        // A memtable that is sealed, and not durable in the log, and one that is open.
        versions.add(LogIndex(2), all(2));
        drop(versions.view(LogIndex(2)).expect("views"));
        versions.add(LogIndex(3), all(3));
        let versions = begin_again(versions.into_store());
        assert_eq!(versions.applied(), Ok(LogIndex(1)));
        assert_eq!(scan(&versions, b"E", b"", 9), [(b"E1".to_vec(), "x".to_owned())]);
        assert_eq!(changed(&versions, 0, 9), [(1, "E1".to_owned())]);
        assert_eq!(last_part(&versions), [(b"R1".to_vec(), Hlc(1))]);
        // The log is replayed.
        versions.add(LogIndex(2), all(2));
        versions.add(LogIndex(3), all(3));
        into_tables(&versions, 3);
        let versions = begin_again(versions.into_store());
        assert_eq!(changed(&versions, 0, 9), [(1, "E1".to_owned()), (2, "E2".to_owned()), (3, "E3".to_owned())]);
    });
}

#[test]
fn a_memtable_is_no_table_before_the_log_is_durable_up_to_its_entry() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"E1", 1, Some("x"))]);
        drop(versions.view(LogIndex(1)).expect("views"));
        versions.add(LogIndex(2), vec![change(b"E2", 2, Some("x"))]);
        assert_eq!(versions.settle(LogIndex(1)).map(|applied| applied <= LogIndex(1)), Ok(true));
        versions.persist().expect("nothing that may not be written is waited for");
        assert_eq!(versions.applied(), Ok(LogIndex(1)), "the second is not durable in the log");
        into_tables(&versions, 2);
    });
}

#[test]
fn a_version_is_written_again_under_its_old_stamp_and_the_index_of_time_names_it_once() {
    both(|versions| {
        let at = |versions: &NameVersions, t| {
            versions.newest(b"Ia", Hlc(t)).expect("reads").map(|(s, v)| (s.0, v.expect("there")))
        };
        versions.add(LogIndex(1), vec![change(b"Ia", 10, Some("first")), change(b"Ib", 10, Some("b"))]);
        versions.add(LogIndex(2), vec![change(b"Ia", 20, Some("later"))]);
        versions.add(LogIndex(3), vec![change(b"Ia", 10, Some("again"))]);
        let check = |versions: &NameVersions, young: &[u8]| {
            assert_eq!(at(versions, 19), Some((10, young.to_vec())));
            assert_eq!(at(versions, 20), Some((20, b"later".to_vec())));
            let named = [(10, "Ia".to_owned()), (10, "Ib".to_owned()), (20, "Ia".to_owned())];
            assert_eq!(changed(versions, 0, 99), named);
        };
        check(&versions, b"again");
        into_tables(&versions, 3);
        check(&versions, b"again");
        // Where the older value is in a table already, and in the process after that.
        versions.add(LogIndex(4), vec![change(b"Ia", 10, Some("once more"))]);
        check(&versions, b"once more");
        into_tables(&versions, 4);
        let versions = begin_again(versions.into_store());
        check(&versions, b"once more");
        versions.add(LogIndex(5), vec![change(b"Ia", 20, Some("later")), change(b"Ib", 10, Some("b"))]);
        check(&versions, b"once more");
    });
}

#[test]
fn versions_come_in_order_within_their_interval() {
    both(|versions| {
        for stamp in 1..=5 {
            versions.add(LogIndex(stamp), vec![change(b"I7", stamp * 10, Some("x"))]);
        }
        into_tables(&versions, 5);
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
                into_tables(&versions, index);
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
    let item = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let of = |store: Box<dyn VersionStore>| {
        put_into_tables(&*store, &[item(b"old", b"1")], &[], 3);
        let before = store.view().expect("views");
        put_into_tables(&*store, &[item(b"older", b"2")], &[b"old"], 4);
        assert_eq!(all(&*before), [item(b"old", b"1")]);
        // One that was broken off leaves nothing.
        store.begin_snapshot().expect("begins");
        store.put_snapshot(vec![(b"broken off".to_vec(), vec![1])]).expect("puts");
        store.begin_snapshot().expect("begins");
        for part in others() {
            store.put_snapshot(part).expect("puts");
            assert_eq!(store.last_in(&[], &[0xff]).expect("reads"), Some(item(b"older", b"2")));
        }
        let whole = others().concat();
        assert_eq!(all(&*store.received_snapshot().expect("views")), whole);
        assert_eq!((store.name(), store.applied()), (Ok(None), Ok(LogIndex(4))));
        // What lies in memtables goes with the state.
        add_items(&*store, &[item(b"in memory", b"3")], &[]);
        store.install_snapshot(LogIndex(9), b"name").expect("takes");
        assert_eq!((store.name(), store.applied()), (Ok(Some(b"name".to_vec())), Ok(LogIndex(9))));
        assert_eq!(all(&*store.view().expect("views")), whole);
        // A reader from before still reads the old one.
        assert_eq!(all(&*before), [item(b"old", b"1")]);
        put_into_tables(&*store, &[item(b"new", b"3")], &[], 10);
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
fn the_history_of_a_received_state_takes_the_place_of_all_that_waits_in_memory() {
    both(|versions| {
        versions.add(LogIndex(1), vec![change(b"Eold", 10, Some("x")), change(b"R1", 10, Some("y"))]);
        versions.begin_snapshot().expect("begins");
        let other = NameVersions::open(Box::<MemoryStore>::default()).expect("opens");
        other.add(LogIndex(7), vec![change(b"Enew", 20, Some("x")), change(b"R2", 20, Some("y"))]);
        versions.put_snapshot(all(&*other.view(LogIndex(7)).expect("views"))).expect("puts");
        versions.install_snapshot(LogIndex(7), b"name").expect("takes");
        assert_eq!(changed(&versions, 0, 99), [(20, "Enew".to_owned())]);
        assert_eq!(last_part(&versions), [(b"R2".to_vec(), Hlc(20))]);
        assert_eq!(versions.digest(), other.digest());
        // The outcome that came with it goes from it.
        versions.add(LogIndex(8), vec![change(b"R2", 21, None)]);
        into_tables(&versions, 8);
        assert_eq!(last_part(&versions), []);
    });
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
        into_tables(&versions, 1);
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

#[test]
fn the_version_of_a_session_is_written_again_in_its_place_and_erased_whatever_is_in_tables_meanwhile() {
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
        into_tables(&versions, 2);
        assert_eq!(found(), ["ended"]);
        // A name that changed in the same entry is found by its time, whatever stamp comes last.
        versions.add(LogIndex(3), vec![change(b"E\0\0\0\0\0\0\0\x01a", 20, Some("x")), change(&key, 7, None)]);
        assert_eq!(changed(&versions, 19, 21).len(), 1);
        assert_eq!(found(), [""; 0]);
        let digest = versions.digest().expect("reads");
        into_tables(&versions, 3);
        assert_eq!(found(), [""; 0]);
        assert_eq!(versions.digest(), Ok(digest), "it says nothing of memtables and tables");
        assert_eq!(versions.newest(&key, Hlc::MAX), Ok(None));
        let (from, to) = (stored_key(&key, Hlc::ZERO), stored_key(&key, Hlc::MAX));
        assert_eq!(versions.into_store().items(&from, &to).count(), 0, "nothing of it is left");
    });
    // All of it in one table.
    both(|versions| {
        versions.add(LogIndex(1), vec![change(&key, 7, Some("open")), change(b"S12345678", 8, Some("one"))]);
        versions.add(LogIndex(2), vec![change(&key, 7, Some("ended")), change(b"S12345678", 8, Some("two"))]);
        versions.add(LogIndex(3), vec![change(&key, 7, None)]);
        into_tables(&versions, 3);
        assert_eq!(versions.newest(&key, Hlc::MAX), Ok(None));
        assert_eq!(versions.newest(b"S12345678", Hlc::MAX), Ok(Some((Hlc(8), Some(b"two".to_vec())))));
    });
}
