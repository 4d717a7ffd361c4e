//! One rule per test, in few steps.

use frieze_base::{MonoTime, NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;
use frieze_wire::peer::{ChainRecord, ServerMessage};

use super::replica_cluster::{LAYOUT, ReplicaCluster, chain, chunk, outcome, three};
use crate::ChainEvent;

#[test]
fn every_member_reads_what_the_head_writes() {
    let mut cluster = three();
    let (seq, done) = cluster.write(1, 100, 5000, Durability::Async);
    assert_eq!(outcome(&done), None, "others do not have it yet");
    cluster.settle();
    let written = outcome(&done).unwrap().unwrap();
    for id in 1..=3 {
        assert_eq!(cluster.read(id, 0, None).unwrap(), chunk(&[(100, 5000, seq)]), "node {id}");
        assert_eq!(cluster.read(id, 0, Some(written.stamp)).unwrap(), chunk(&[(100, 5000, seq)]));
        assert_eq!(cluster.read(id, 0, Some(written.stamp.previous())).unwrap(), chunk(&[]));
    }
}

/// A client that receives the answer may read at the member that sent it, before that member does anything else.
#[test]
fn a_commit_is_shown_to_readers_before_a_message_about_it_leaves() {
    let mut cluster = three();
    let at = chain() as usize;
    for number in 0..3 {
        let (_, done) = cluster.write(1, number * 700, 700, Durability::Async);
        let mut acks = 0;
        loop {
            let told = {
                let queue = cluster.net.queue();
                queue.front().map(|packet| (packet.from, packet.told.clone(), packet.shown[at]))
            };
            let Some((from, told, shown)) = told else { break };
            if let ServerMessage::ChainAck(_) = told {
                acks += 1;
                assert!(matches!(shown, None | Some(Hlc::MAX)), "{told:?} of {from}, which shows {shown:?}");
            }
            cluster.deliver();
        }
        assert!(acks >= 2, "{acks}");
        assert!(outcome(&done).unwrap().is_ok());
    }
}

/// A group that becomes committed is shown in one step: a reader that needs no request to the tail reads all of it.
#[test]
fn a_reader_that_need_not_ask_the_tail_reads_what_was_committed() {
    let mut cluster = three();
    let (seq, _done) = cluster.write(1, 0, 700, Durability::Async);
    let ack = loop {
        let packet = cluster.net.queue().pop_front().expect("an acknowledgement is on its way");
        if packet.to == NodeId(2) && matches!(packet.told, ServerMessage::ChainAck(_)) {
            break packet;
        }
        cluster.net.queue().push_front(packet);
        cluster.deliver();
    };
    let (plane, chain) = (cluster.plane(2).clone(), LAYOUT.chain(0));
    std::thread::scope(|scope| {
        // While a reader is active, its cuts stay the same.
        let cuts = plane.cuts();
        assert_ne!(cuts.of(chain), Hlc::MAX);
        let hears = scope.spawn(|| plane.on_message(ack.from, ack.told.clone(), 0, (&ack.payload.bytes).into()));
        for _ in 0..100 {
            assert!(plane.has_to_query_tail([chain].into_iter()), "another reader would not ask, and not find it");
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        drop(cuts);
        assert!(hears.join().unwrap().unwrap());
    });
    assert!(!plane.has_to_query_tail([chain].into_iter()));
    assert_eq!(cluster.bytes(2, 0, None), chunk(&[(0, 700, seq)]));
}

#[test]
fn a_write_at_another_member_is_refused_with_the_name_of_the_head() {
    let mut cluster = three();
    let (_, done) = cluster.write(2, 0, 10, Durability::Async);
    let fault = outcome(&done).unwrap().unwrap_err();
    assert!(fault.reason == Reason::Elsewhere && fault.message.contains("server 1"), "{fault}");
}

/// The failed member has the record in its log, and no other member ever had it: the chain continues without it.
#[test]
fn a_retry_is_not_answered_from_what_a_server_recovered_before_it_is_a_member_again() {
    let mut cluster = three();
    let (seq, first) = cluster.write(1, 0, 100, Durability::Async);
    cluster.crash(1, CrashKind::Process);
    cluster.start(1);
    assert_eq!(outcome(&first), None);
    let done = cluster.write_again(1, seq, 0, 100, Durability::Async);
    let fault = outcome(&done).unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::Elsewhere, "{fault}");
}

#[test]
fn a_sync_write_is_answered_when_every_member_has_it_on_stable_storage() {
    let mut cluster = three();
    let (_, done) = cluster.write(1, 0, 1000, Durability::Sync);
    while cluster.deliver() {}
    for id in [1, 3, 2] {
        assert_eq!(outcome(&done), None, "node {id} has not flushed");
        cluster.flush(id);
        while cluster.deliver() {}
    }
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn a_read_of_now_that_meets_what_the_tail_may_have_committed_asks_it() {
    let mut cluster = three();
    let (seq, done) = cluster.write(1, 0, 700, Durability::Async);
    // Records pass down the chain to the tail, but no acknowledgement returns.
    cluster.without_acks = true;
    while cluster.deliver() {}
    assert_eq!(cluster.bytes(3, 0, None), chunk(&[(0, 700, seq)]), "the tail shows it");
    assert_eq!(cluster.bytes(1, 0, None), chunk(&[]), "the head does not know yet");
    assert_eq!(cluster.read(1, 0, None).unwrap(), chunk(&[(0, 700, seq)]));
    assert_eq!(cluster.read(2, 0, None).unwrap(), chunk(&[(0, 700, seq)]), "the tail answers who asks");
    // Messages after that answer are not part of it.
    cluster.cut.insert((NodeId(1), NodeId(2)));
    let _later = cluster.write(1, 300, 100, Durability::Async);
    assert_eq!(cluster.bytes(1, 0, None), chunk(&[(0, 700, seq)]));
    cluster.cut.clear();
    assert_eq!(outcome(&done), None);
    cluster.without_acks = false;
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn without_a_lease_a_member_answers_reads_of_the_past_only() {
    let mut cluster = three();
    let (seq, done) = cluster.write(1, 0, 700, Durability::Async);
    cluster.settle();
    let stamp = outcome(&done).unwrap().unwrap().stamp;
    cluster.read(2, 0, Some(stamp)).unwrap();
    for id in 1..=3 {
        cluster.plane(id).lease().renew(MonoTime(1));
        assert_eq!(cluster.read(id, 0, None).unwrap_err().reason, Reason::Unavailable);
        assert_eq!(cluster.read(id, 0, Some(stamp)).unwrap(), chunk(&[(0, 700, seq)]));
    }
    let (_, done) = cluster.write(1, 0, 10, Durability::Async);
    assert_eq!(outcome(&done).unwrap().unwrap_err().reason, Reason::Unavailable);
}

#[test]
fn a_retry_at_the_next_head_is_answered_with_the_first_run() {
    let mut cluster = three();
    let (seq, done) = cluster.write(1, 0, 700, Durability::Async);
    cluster.settle();
    let first = outcome(&done).unwrap().unwrap();
    // The head fails before its answer arrives.
    cluster.crash(1, CrashKind::Process);
    cluster.configure_all(&[2, 3]);
    cluster.settle();
    let again = cluster.write_again(2, seq, 0, 700, Durability::Async);
    assert_eq!(outcome(&again).unwrap().unwrap().stamp, first.stamp);
    // An uncommitted one waits for its record.
    let (seq, lost) = cluster.write(2, 800, 100, Durability::Sync);
    while cluster.deliver() {}
    cluster.crash(2, CrashKind::Process);
    cluster.configure_all(&[3]);
    let again = cluster.write_again(3, seq, 800, 100, Durability::Sync);
    assert_eq!((outcome(&lost), outcome(&again)), (None, None));
    cluster.settle();
    assert!(outcome(&again).unwrap().is_ok());
    assert_eq!(cluster.log(3, chain()).len(), 2);
}

#[test]
fn a_stalled_chain_makes_writers_wait_and_then_refuses_them() {
    let mut cluster = ReplicaCluster::new(2, 3);
    cluster.configure_all(&[1]);
    cluster.bring_in(chain(), 2);
    cluster.bound(1, |bounds| (bounds.flight_bytes_max, bounds.wait) = (20_000, std::time::Duration::ZERO));
    cluster.cut.insert((NodeId(1), NodeId(2)));
    let mut outcomes = Vec::new();
    for number in 0..8 {
        outcomes.push(outcome(&cluster.write(1, number * 100, 5000, Durability::Async).1));
        while cluster.deliver() {}
    }
    assert!(outcomes[..4].iter().all(Option::is_none));
    assert_eq!(outcomes[4].clone().unwrap().unwrap_err().reason, Reason::Overloaded);
    cluster.cut.clear();
    cluster.settle();
    let (_, done) = cluster.write(1, 0, 100, Durability::Async);
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn the_second_read_of_a_young_cut_needs_no_message() {
    let mut cluster = three();
    cluster.settle();
    let young = |cluster: &ReplicaCluster| Hlc::first_of_micros(cluster.nodes[2].time.wall().micros() - 50_000);
    let at = young(&cluster);
    cluster.read(3, 0, Some(at)).unwrap();
    for _ in 0..100 {
        // While a read comes at least every second.
        for _ in 0..40 {
            cluster.pass(20_000);
            while cluster.deliver() {}
        }
        let at = young(&cluster);
        assert!(cluster.plane(3).is_closed(at, Some(&[frieze_base::ChainId(chain())].into())), "{at}");
        cluster.read(3, 0, Some(at)).unwrap();
        assert!(cluster.net.queue().is_empty());
    }
}

#[test]
fn a_full_disk_fails_its_member_and_reports_it() {
    let mut cluster = three();
    cluster.nodes[2].disk.set_capacity(0);
    let mut failed = Vec::new();
    for number in 0..40 {
        let (_, _) = cluster.write(1, number % 3 * 5000, 4000, Durability::Async);
        while cluster.deliver() {}
        failed.extend(cluster.reports(3));
        if !failed.is_empty() {
            break;
        }
    }
    let full =
        |report: &ChainEvent| matches!(report, ChainEvent::Failed { fault, .. } if fault.reason == Reason::NoSpace);
    assert!(failed.iter().any(full), "{failed:?}");
    cluster.configure_all(&[1, 2]);
    cluster.settle();
    let (_, done) = cluster.write(1, 0, 100, Durability::Sync);
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn an_impossible_message_is_refused_with_its_cause() {
    let cluster = three();
    let epoch = cluster.configurations[0].epoch.0;
    let record = ChainRecord {
        chain: 0,
        epoch,
        n: 1,
        stamped_under: epoch,
        version: 1,
        stamp: u64::MAX / 2,
        inode: 77,
        index: 0,
        offset: 0,
        len: 4,
        user_time: None,
        sync: false,
        session: 1,
        seq: 1,
        acked: 0,
        part: 0,
        uid: 0,
        punch: false,
        left_bytes: 0,
        expired_index: 0,
        ahead: 0,
        crc: 0,
        src_slot: None,
        trace: None,
    };
    let refused = |record: ChainRecord, payload: &[u8], reason| {
        let crc = frieze_base::crc32c(payload);
        let fault = cluster
            .plane(2)
            .on_message(NodeId(1), ServerMessage::ChainRecord(record), crc, payload.into())
            .unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
    };
    refused(ChainRecord { chain: 9, ..record.clone() }, b"abcd", Reason::BadFrame);
    refused(record.clone(), b"abc", Reason::BadFrame);
    refused(ChainRecord { len: 0, ..record.clone() }, b"", Reason::BadFrame);
    refused(ChainRecord { offset: u32::MAX, ..record.clone() }, b"abcd", Reason::BadFrame);
    refused(ChainRecord { part: 300, ..record.clone() }, b"abcd", Reason::BadFrame);
    refused(ChainRecord { n: 0, ..record.clone() }, b"abcd", Reason::BadFrame);
    let big = vec![0; 70_000];
    refused(ChainRecord { len: 70_000, ..record.clone() }, &big, Reason::BadFrame);
    refused(record.clone(), b"abcd", Reason::Future);
    let damaged =
        cluster.plane(2).on_message(NodeId(1), ServerMessage::ChainRecord(record), 7, b"abcd"[..].into()).unwrap_err();
    assert_eq!(damaged.reason, Reason::BadFrame);
}

#[test]
fn a_barrier_waits_for_every_member() {
    let mut cluster = three();
    let (_, done) = cluster.write(1, 0, 700, Durability::Async);
    while cluster.deliver() {}
    assert!(outcome(&done).unwrap().is_ok());
    let reached: std::sync::Arc<std::sync::Mutex<Option<bool>>> = std::sync::Arc::default();
    let to = reached.clone();
    cluster.plane(1).barrier(None, Box::new(move |result| *to.lock().unwrap() = Some(result.is_ok())));
    while cluster.deliver() {}
    assert_eq!(*reached.lock().unwrap(), None);
    cluster.flush(2);
    while cluster.deliver() {}
    assert_eq!(*reached.lock().unwrap(), None, "node 3 has not flushed");
    cluster.flush(3);
    while cluster.deliver() {}
    assert_eq!(*reached.lock().unwrap(), Some(true));
}

/// Other members may have acknowledged more meanwhile. If the barrier waited, it would receive confirmation only of the
/// records that the node had when it left, once the node is back.
#[test]
fn a_barrier_is_refused_where_acknowledged_records_may_be_missing() {
    let mut cluster = three();
    let (_, done) = cluster.write(1, 0, 700, Durability::Async);
    while cluster.deliver() {}
    assert!(outcome(&done).unwrap().is_ok());
    let is_refused = |cluster: &ReplicaCluster| {
        let answer: std::sync::Arc<std::sync::Mutex<Option<Result<(), frieze_base::Fault>>>> =
            std::sync::Arc::default();
        let to = answer.clone();
        cluster.plane(3).barrier(None, Box::new(move |result| *to.lock().unwrap() = Some(result)));
        let answer = answer.lock().unwrap().take();
        answer.is_some_and(|result| result.is_err_and(|fault| fault.reason == Reason::Unavailable))
    };
    assert!(!is_refused(&cluster), "it waits for the others");
    cluster.plane(3).lease().renew(MonoTime(1));
    assert!(is_refused(&cluster), "its lease is over");
    cluster.plane(3).lease().renew(MonoTime(u64::MAX));
    assert!(!is_refused(&cluster), "it waits for the others");
    cluster.configure(0, &[1, 2], None, false);
    assert!(is_refused(&cluster), "chain 0 goes on without it");
    cluster.configure(0, &[1, 2, 3], None, true);
    assert!(is_refused(&cluster), "it is being brought up to date");
}

#[test]
fn promises_and_stamps_of_other_members_hold_across_a_restart_of_all() {
    let mut cluster = three();
    let (_, done) = cluster.write(1, 0, 100, Durability::Sync);
    cluster.settle();
    let stamp = outcome(&done).unwrap().unwrap().stamp;
    let at = Hlc::first_of_micros(cluster.nodes[0].time.wall().micros() + 400_000);
    // The head's clock is far ahead of the other clocks when it promises.
    cluster.nodes[0].time.advance_us(400_000);
    cluster.read(1, 0, Some(at.previous())).unwrap();
    for id in 1..=3 {
        cluster.crash(id, CrashKind::Power);
    }
    for id in 1..=3 {
        cluster.start(id);
        assert!(cluster.plane(id).clock.newest() >= at.previous(), "node {id} may stamp below what it knows is closed");
        assert!(cluster.plane(id).clock.newest() >= stamp);
    }
}

#[test]
fn a_configuration_that_was_taken_is_not_taken_again_after_a_restart() {
    let mut cluster = three();
    let before = cluster.configurations[chain() as usize].clone();
    cluster.crash(3, CrashKind::Power);
    cluster.start(3);
    cluster.plane(3).configure(&[(frieze_base::ChainId(chain()), before)]).unwrap();
    assert_eq!(cluster.read(3, 0, None).unwrap_err().reason, Reason::Elsewhere, "it has no part");
    let (_, done) = cluster.write(1, 0, 100, Durability::Async);
    cluster.settle();
    assert_eq!(outcome(&done), None, "it acknowledges nothing");
    cluster.configure_all(&[1, 2]);
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn a_restart_from_index_runs_keeps_the_epochs_of_records() {
    let mut cluster = three();
    for number in 0..50 {
        let _ = cluster.write(1, number * 10, 10, Durability::Async);
        while cluster.deliver() {}
    }
    cluster.settle();
    cluster.crash(2, CrashKind::Process);
    cluster.configure_all(&[1, 3]);
    for number in 0..60 {
        let _ = cluster.write(1, number * 10, 3000, Durability::Async);
        while cluster.deliver() {}
    }
    cluster.settle();
    let device = cluster.plane(1).device();
    device.close_open();
    cluster.flush(1);
    while device.write_index_runs(&|tips| cluster.plane(1).encode_dedupe(tips, &|_| true)).unwrap() {}
    assert_eq!(device.log().stats().run_records, 110, "all of it is on shelves");
    cluster.crash(1, CrashKind::Process);
    cluster.configure_all(&[3]);
    cluster.start(1);
    cluster.bring_in(chain(), 1);
    cluster.start(2);
    cluster.configure(chain(), &[3, 1], Some(2), false);
    let mut supplied = Vec::new();
    loop {
        let next = cluster.net.queue().front().map(|packet| packet.told.clone());
        println!("{:?}", next.as_ref().map(|t| format!("{t:?}").chars().take(50).collect::<String>()));
        if let Some(ServerMessage::ChainRecord(record)) = next {
            supplied.push(record.n);
        }
        if !cluster.deliver() {
            break;
        }
    }
    assert_eq!(supplied, (51..=110).collect::<Vec<u64>>(), "what it has it is not sent again");
}

#[test]
fn a_silent_successor_is_reported_and_so_is_its_return() {
    let mut cluster = three();
    cluster.configure_all(&[1, 2, 3]);
    cluster.settle();
    for (from, to) in [(1, 2), (2, 1)] {
        cluster.cut.insert((NodeId(from), NodeId(to)));
    }
    let (_, done) = cluster.write(1, 0, 100, Durability::Async);
    let silent = |cluster: &mut ReplicaCluster| -> Vec<ChainEvent> {
        let reports = cluster.reports(1).into_iter();
        reports.filter(|report| matches!(report, ChainEvent::Silent { .. })).collect()
    };
    let mut told = Vec::new();
    for _ in 0..100 {
        while cluster.deliver() {}
        cluster.pass(20_000);
        told.extend(silent(&mut cluster));
    }
    assert_eq!(told, [], "two seconds are a pause");
    for _ in 0..100 {
        while cluster.deliver() {}
        cluster.pass(20_000);
        told.extend(silent(&mut cluster));
    }
    let of = frieze_base::ChainId(chain());
    assert_eq!(told, [ChainEvent::Silent { chain: of, node: Some(NodeId(2)) }], "once, of the chain that waits");
    assert_eq!(cluster.reports(3), [], "it waits for nobody");
    cluster.cut.clear();
    cluster.settle();
    assert_eq!(silent(&mut cluster), [ChainEvent::Silent { chain: of, node: None }]);
    assert!(outcome(&done).unwrap().is_ok());
}
