use super::*;

fn change(key: &[u8], stamp: u64, value: Option<&str>) -> Change {
    Change { key: key.to_vec(), stamp: Hlc(stamp), value: value.map(|text| text.as_bytes().to_vec()) }
}

fn scan(versions: &Versions, prefix: &[u8], after: &[u8], at: u64) -> Vec<(Vec<u8>, String)> {
    let mut found = Vec::new();
    versions
        .scan(prefix, after, Hlc(at), &mut |key, _, value| {
            found.push((key.to_vec(), String::from_utf8_lossy(value).into_owned()));
            true
        })
        .expect("scans");
    found
}

fn both(test: impl Fn(Versions)) {
    test(Versions::new(Box::new(MemoryStore::default())));
    let directory = tempfile::tempdir().expect("a directory");
    test(Versions::new(Box::new(LsmStore::open(directory.path()).expect("opens"))));
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
        versions.load(&mut |key, stamp, _| loaded.push((key.to_vec(), stamp))).expect("loads");
        assert_eq!(loaded, [(b"R1".to_vec(), Hlc(10)), (b"S1".to_vec(), Hlc(10))]);
        versions.settle(LogIndex(2)).expect("settles");
        loaded.clear();
        versions.load(&mut |key, stamp, _| loaded.push((key.to_vec(), stamp))).expect("loads");
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
            .versions(b"I7", Hlc(10), Hlc(40), &mut |_, stamp, _| {
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
    let versions = Versions::new(Box::new(store.clone()));
    versions.add(LogIndex(1), vec![change(b"A", 1, Some("kept"))]);
    versions.settle(LogIndex(1)).expect("settles");
    versions.persist().expect("persists");
    versions.add(LogIndex(2), vec![change(b"B", 2, Some("lost"))]);
    versions.settle(LogIndex(2)).expect("settles");
    store.lose_power();
    assert_eq!(store.applied(), Ok(LogIndex(1)));
    assert_eq!(store.last_in(&stored_key(b"B", Hlc(0)), &stored_key(b"B", Hlc::MAX)), Ok(None));
}
