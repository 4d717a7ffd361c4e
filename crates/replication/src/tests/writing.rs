//! The path of a write on one server: what is refused, what is joined, when it is answered, and when it is shown.

use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, Reason, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHUNK_BYTES, FILE, LAYOUT, Outcome, ReplicaCluster, bytes_of, outcome};
use crate::{Content, DataPlane, PublishObserver, WriteAsk, WritePlace, WriteResult, split};

/// A write of session 9; the defaults are 100 bytes at the start of the file.
struct TestWrite {
    seq: u64,
    acked: u64,
    epoch: u64,
    offset: u64,
    len: usize,
    durability: Durability,
    /// For an append: the chain in which the file has to end.
    at_end: Option<ChainId>,
    /// The client's checksum is another one.
    is_damaged: bool,
    /// The place is refused.
    refusal: Option<Reason>,
    /// What an earlier run wrote counts for nothing.
    is_uncounted: bool,
}

impl TestWrite {
    fn of(seq: u64) -> TestWrite {
        TestWrite {
            seq,
            acked: 0,
            epoch: 0,
            offset: 0,
            len: 100,
            durability: Durability::Async,
            at_end: None,
            is_damaged: false,
            refusal: None,
            is_uncounted: false,
        }
    }

    fn sync(seq: u64) -> TestWrite {
        TestWrite { durability: Durability::Sync, ..TestWrite::of(seq) }
    }

    fn run(&self, plane: &DataPlane) -> Outcome {
        let outcome: Outcome = Arc::default();
        let to = outcome.clone();
        let payload = bytes_of(Seq(self.seq), self.len);
        let place = || match self.refusal {
            Some(reason) => Err(reason.into()),
            None => {
                let spread = split(self.offset, self.len, LAYOUT)?;
                Ok(WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO })
            }
        };
        let recalled = |earlier: WriteResult| match self.is_uncounted {
            true => Err(Fault::new(Reason::Busy, format!("{} to {}", earlier.offset, earlier.end))),
            false => Ok(()),
        };
        let ask = WriteAsk {
            session: SessionId(9),
            seq: Seq(self.seq),
            acked: Seq(self.acked),
            epoch: ChainEpoch(self.epoch),
            seen: Hlc::ZERO,
            inode: FILE,
            layout: LAYOUT,
            known_offset: self.at_end.is_none().then_some(self.offset),
            at_end: self.at_end,
            place: &place,
            recalled: &recalled,
            content: Content::Bytes(payload[..].into(), Some(crc32c(&payload) ^ u32::from(self.is_damaged))),
            uid: 0,
            durability: self.durability,
        };
        plane.write(ask, Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result)));
        outcome
    }
}

/// The outcome of a write that is answered at once.
fn now(outcome_of: &Outcome) -> Result<WriteResult, Fault> {
    outcome(outcome_of).expect("it is answered")
}

fn reason(outcome_of: &Outcome) -> Reason {
    now(outcome_of).expect_err("it is refused").reason
}

/// The first bytes of a chunk for a read of now, or at an instant.
fn shown(cluster: &ReplicaCluster, index: u32, at: Option<Hlc>) -> Vec<u8> {
    cluster.bytes(1, index, at)[..100].to_vec()
}

fn alone() -> ReplicaCluster {
    ReplicaCluster::new(1, 1)
}

#[test]
fn an_async_write_is_answered_and_shown_at_once() {
    let cluster = alone();
    let done = now(&TestWrite::of(1).run(cluster.plane(1))).unwrap();
    assert_eq!((done.offset, done.end), (0, 100));
    assert_eq!(shown(&cluster, 0, None), bytes_of(Seq(1), 100));
    assert_eq!(shown(&cluster, 0, Some(done.stamp.previous())), [0; 100], "before its stamp there was nothing");
}

#[test]
fn a_sync_write_is_answered_and_shown_when_a_flush_covers_it() {
    let cluster = alone();
    let before = cluster.plane(1).device().log().end();
    let done = TestWrite::sync(1).run(cluster.plane(1));
    cluster.plane(1).on_persisted(before);
    assert_eq!(outcome(&done), None, "the flush ended before its record");
    assert_eq!(shown(&cluster, 0, None), [0; 100]);
    cluster.flush(1);
    assert!(now(&done).is_ok());
    assert_eq!(shown(&cluster, 0, None), bytes_of(Seq(1), 100));
}

#[test]
fn an_async_write_behind_a_sync_write_of_its_chain_waits_with_it() {
    let cluster = alone();
    let first = TestWrite::sync(1).run(cluster.plane(1));
    let second = TestWrite::of(2).run(cluster.plane(1));
    assert_eq!((outcome(&first), outcome(&second)), (None, None), "what is committed is a prefix");
    cluster.flush(1);
    assert!(now(&first).unwrap().stamp < now(&second).unwrap().stamp);
}

#[test]
fn a_write_over_chunks_has_one_stamp_and_is_shown_as_one() {
    let cluster = alone();
    let across = TestWrite { offset: CHUNK_BYTES - 50, ..TestWrite::of(2) };
    // One of its chains waits for the disk.
    let first = TestWrite::sync(1).run(cluster.plane(1));
    let done = across.run(cluster.plane(1));
    assert_eq!(outcome(&done), None, "if one part waits for the disk, all do");
    assert_eq!(shown(&cluster, 1, None), [0; 100]);
    cluster.flush(1);
    assert!(now(&first).is_ok());
    let done = now(&done).unwrap();
    assert_eq!((done.offset, done.end), (CHUNK_BYTES - 50, CHUNK_BYTES + 50));
    let stamps: Vec<Hlc> = (0..2).map(|chain| cluster.log(1, chain).last().unwrap().1).collect();
    assert_eq!(stamps, [done.stamp; 2]);
    assert_eq!(shown(&cluster, 1, None)[..50], bytes_of(Seq(2), 100)[50..]);
}

#[test]
fn a_damaged_payload_leaves_no_record_and_its_number_free() {
    let cluster = alone();
    for offset in [0, CHUNK_BYTES - 50] {
        let damaged = TestWrite { offset, is_damaged: true, ..TestWrite::of(1) };
        assert_eq!(reason(&damaged.run(cluster.plane(1))), Reason::BadFrame);
    }
    assert!((0..2).all(|chain| cluster.log(1, chain).is_empty()));
    assert!(now(&TestWrite::of(1).run(cluster.plane(1))).is_ok(), "sent again, undamaged");
}

#[test]
fn a_duplicate_of_a_write_in_flight_waits_for_the_same_answer() {
    let cluster = alone();
    let mut all: Vec<Outcome> = (0..16).map(|_| TestWrite::sync(1).run(cluster.plane(1))).collect();
    assert!(all.iter().all(|done| outcome(done).is_none()));
    assert_eq!(reason(&TestWrite::sync(1).run(cluster.plane(1))), Reason::Overloaded, "they are bounded");
    cluster.flush(1);
    all.push(TestWrite::sync(1).run(cluster.plane(1)));
    let first = now(&all[0]).unwrap();
    assert!(all.iter().all(|done| now(done).unwrap().stamp == first.stamp));
    assert_eq!(cluster.log(1, LAYOUT.chain(0).0).len(), 1);
}

/// A loss of power took the grant under which the first run wrote: the record is there, and no length counts it.
#[test]
fn a_retry_whose_record_counts_for_nothing_is_refused() {
    for durability in [Durability::Async, Durability::Sync] {
        let cluster = alone();
        let first = TestWrite { offset: 40, durability, ..TestWrite::of(1) };
        let written = first.run(cluster.plane(1));
        cluster.flush(1);
        assert!(now(&written).is_ok());
        let again = TestWrite { is_uncounted: true, offset: 40, durability, ..TestWrite::of(1) }.run(cluster.plane(1));
        let fault = now(&again).unwrap_err();
        assert_eq!((fault.reason, fault.message.as_str()), (Reason::Busy, "40 to 140"), "where the first run wrote");
        let other = TestWrite { offset: 40, durability, ..TestWrite::of(2) }.run(cluster.plane(1));
        cluster.flush(1);
        assert!(now(&other).unwrap().stamp > now(&written).unwrap().stamp, "it runs under another number");
    }
}

#[test]
fn a_number_that_the_client_has_acknowledged_does_not_run_again() {
    let cluster = alone();
    assert!(now(&TestWrite::of(1).run(cluster.plane(1))).is_ok());
    assert!(now(&TestWrite { acked: 3, ..TestWrite::of(3) }.run(cluster.plane(1))).is_ok());
    for seq in [1, 2] {
        assert_eq!(reason(&TestWrite::of(seq).run(cluster.plane(1))), Reason::SequenceTooOld);
    }
    cluster.plane(1).end_session(SessionId(9));
    assert!(cluster.plane(1).sessions().is_empty(), "the session is over");
}

#[test]
fn a_write_without_a_place_leaves_its_number_free() {
    let cluster = alone();
    let refused = TestWrite { refusal: Some(Reason::NoSpace), ..TestWrite::of(1) };
    assert_eq!(reason(&refused.run(cluster.plane(1))), Reason::NoSpace);
    assert!(!cluster.plane(1).has_record(SessionId(9), Seq(1)));
    assert!(now(&TestWrite::of(1).run(cluster.plane(1))).is_ok());
}

#[test]
fn a_write_of_another_epoch_is_refused_and_leaves_no_record() {
    let cluster = alone();
    let epoch = cluster.plane(1).epoch().0;
    let other = TestWrite { epoch: epoch - 1, ..TestWrite::of(1) };
    assert_eq!(reason(&other.run(cluster.plane(1))), Reason::StaleEpoch);
    assert!(!cluster.plane(1).has_record(SessionId(9), Seq(1)));
    assert!(now(&TestWrite { epoch, ..TestWrite::of(1) }.run(cluster.plane(1))).is_ok());
}

#[test]
fn an_append_refused_for_good_never_runs_under_its_number() {
    let mut cluster = alone();
    cluster.configure_all(&[1]);
    let (here, other) = (LAYOUT.chain(0), ChainId(1 - LAYOUT.chain(0).0));
    let elsewhere = TestWrite { at_end: Some(other), ..TestWrite::of(1) };
    assert_eq!(reason(&elsewhere.run(cluster.plane(1))), Reason::Busy, "the file ends in another chain");
    let late = TestWrite { at_end: Some(here), ..TestWrite::of(1) };
    assert_eq!(reason(&late.run(cluster.plane(1))), Reason::Busy, "the client has taken another number");
    assert!(now(&TestWrite { at_end: Some(here), ..TestWrite::of(2) }.run(cluster.plane(1))).is_ok());
    assert_eq!(cluster.log(1, here.0).len(), 1);
}

#[test]
fn an_append_with_a_record_is_not_refused_for_good() {
    let mut cluster = alone();
    cluster.configure_all(&[1]);
    let here = LAYOUT.chain(0);
    let append = TestWrite { at_end: Some(here), durability: Durability::Sync, ..TestWrite::of(1) };
    let done = append.run(cluster.plane(1));
    let busy = Fault::from(Reason::Busy);
    let refused = cluster.plane(1).refuse_append(here, (SessionId(9), Seq(1)), Seq(0), busy);
    assert_eq!(refused.reason, Reason::Overloaded, "send the same number again: it has a record");
    cluster.flush(1);
    assert!(now(&done).is_ok());
}

#[test]
fn a_failed_device_refuses_the_writes_that_wait_and_all_later_ones() {
    let cluster = alone();
    let waiting = TestWrite::sync(1).run(cluster.plane(1));
    cluster.plane(1).on_device_failed(Reason::InputOutput);
    assert_eq!(reason(&waiting), Reason::InputOutput);
    let end = cluster.plane(1).device().log().end();
    cluster.plane(1).on_persisted(end);
    assert_eq!(shown(&cluster, 0, None), [0; 100], "its record may be lost: it stays hidden");
    assert!(now(&TestWrite::of(2).run(cluster.plane(1))).is_err());
}

/// An observer that notes the bytes that a reader sees in each call.
struct Reader {
    plane: Mutex<std::sync::Weak<DataPlane>>,
    calls: Mutex<Vec<(&'static str, bool)>>,
}

impl Reader {
    fn note(&self, call: &'static str) {
        let plane = self.plane.lock().unwrap_or_else(PoisonError::into_inner).upgrade().expect("the plane is there");
        let chain = LAYOUT.chain(0);
        let at = plane.cuts().of(chain);
        let log = plane.device().log_of([FILE]).expect("a disk that works");
        let sees = log.versions(FILE, Hlc::ZERO, at, 1).len() == 1;
        drop(log);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push((call, sees));
    }
}

impl PublishObserver for Reader {
    fn publishing(&self, by: (SessionId, Seq), inode: InodeId) {
        assert_eq!((by, inode), ((SessionId(9), Seq(1)), FILE));
        self.note("publishing");
    }

    fn publishing_all(&self, writes: &mut dyn Iterator<Item = ((SessionId, Seq), InodeId)>) {
        self.note(if writes.count() == 1 { "publishing one that waited" } else { "publishing none that waited" });
    }

    fn published(&self) {
        self.note("published");
    }
}

#[test]
fn caches_are_recalled_before_bytes_are_shown_and_again_after_a_wait_for_the_disk() {
    let run = |durability| {
        let cluster = alone();
        let reader = Arc::new(Reader { plane: Mutex::default(), calls: Mutex::default() });
        *reader.plane.lock().unwrap() = Arc::downgrade(cluster.plane(1));
        cluster.plane(1).set_observer(reader.clone());
        let done = TestWrite { durability, ..TestWrite::of(1) }.run(cluster.plane(1));
        if durability == Durability::Sync {
            cluster.flush(1);
        }
        assert!(now(&done).is_ok());
        std::mem::take(&mut *reader.calls.lock().unwrap())
    };
    assert_eq!(run(Durability::Async), [("publishing", false), ("published", true)]);
    let waited = "publishing one that waited";
    assert_eq!(
        run(Durability::Sync),
        [("publishing", false), ("published", false), (waited, false), ("published", true)],
        "clients may have cached the file again while the write waited"
    );
}

#[test]
fn cuts_of_all_chains_are_taken_at_once() {
    let mut cluster = ReplicaCluster::new(2, 3);
    cluster.configure_all(&[1]);
    let chains = [LAYOUT.chain(0), LAYOUT.chain(1)];
    for chain in 0..2 {
        cluster.bring_in(chain, 2);
    }
    assert!(chains.iter().all(|chain| cluster.plane(1).cuts().of(*chain) == Hlc::MAX), "all is committed");
    let done = TestWrite { offset: CHUNK_BYTES - 50, ..TestWrite::of(1) }.run(cluster.plane(1));
    let stamp = cluster.log(1, 0).last().unwrap().1;
    let cuts: Vec<Hlc> = chains.iter().map(|chain| cluster.plane(1).cuts().of(*chain)).collect();
    assert_eq!(cuts, [stamp.previous(); 2], "both parts are hidden until the tails have them");
    assert!(cluster.plane(1).has_to_query_tail(chains.into_iter()));
    cluster.settle();
    assert_eq!(now(&done).unwrap().stamp, stamp);
    assert!(chains.iter().all(|chain| cluster.plane(1).cuts().of(*chain) == Hlc::MAX));
    assert!(!cluster.plane(1).has_to_query_tail(chains.into_iter()));
}
