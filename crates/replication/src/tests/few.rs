//! One rule per test, in few steps.

use frieze_base::{MonoTime, NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;
use frieze_wire::peer::{ChainRecord, ServerMessage};

use super::world::{CHUNK_BYTES, FILE, LAYOUT, World, bytes_of, outcome};
use crate::ChainEvent;

/// A world of three members, in this order.
fn three() -> World {
    three_of(1)
}

fn three_of(seed: u64) -> World {
    let mut world = World::new(3, seed);
    world.configure_all(&[1]);
    for chain in 0..2 {
        world.bring_in(chain, 2);
        world.bring_in(chain, 3);
    }
    world
}

/// Two nodes, the first of which alone holds a hundred records of 5,000 bytes of one chain, on stable storage.
fn with_a_hundred() -> World {
    let mut world = World::new(2, 6);
    world.configure_all(&[1]);
    for number in 0..100 {
        let (_, done) = world.write(1, number % 3 * 5000, 5000, Durability::Async);
        assert!(outcome(&done).unwrap().is_ok());
    }
    world.flush(1);
    world
}

/// The chain of chunk 0.
fn chain() -> u32 {
    LAYOUT.chain(0).0
}

/// Chunk 0 with these writes, each of offset, length and number.
fn chunk(writes: &[(u64, usize, frieze_base::Seq)]) -> Vec<u8> {
    let mut bytes = vec![0; CHUNK_BYTES as usize];
    for (offset, len, seq) in writes {
        bytes[*offset as usize..*offset as usize + len].copy_from_slice(&bytes_of(*seq, *len));
    }
    bytes
}

#[test]
fn every_member_reads_what_the_head_writes() {
    let mut world = three();
    let (seq, done) = world.write(1, 100, 5000, Durability::Async);
    assert_eq!(outcome(&done), None, "others do not have it yet");
    world.settle();
    let written = outcome(&done).unwrap().unwrap();
    for id in 1..=3 {
        assert_eq!(world.read(id, 0, None).unwrap(), chunk(&[(100, 5000, seq)]), "node {id}");
        assert_eq!(world.read(id, 0, Some(written.stamp)).unwrap(), chunk(&[(100, 5000, seq)]));
        assert_eq!(world.read(id, 0, Some(written.stamp.previous())).unwrap(), chunk(&[]));
    }
}

/// A client that receives the answer may read at the member that sent it, before that member does anything else.
#[test]
fn a_commit_is_shown_to_readers_before_a_message_about_it_leaves() {
    let mut world = three();
    let at = chain() as usize;
    for number in 0..3 {
        let (_, done) = world.write(1, number * 700, 700, Durability::Async);
        let mut acks = 0;
        loop {
            let told = {
                let queue = world.net.queue();
                queue.front().map(|packet| (packet.from, packet.told.clone(), packet.shown[at]))
            };
            let Some((from, told, shown)) = told else { break };
            if let ServerMessage::ChainAck(_) = told {
                acks += 1;
                assert!(matches!(shown, None | Some(Hlc::MAX)), "{told:?} of {from}, which shows {shown:?}");
            }
            world.deliver();
        }
        assert!(acks >= 2, "{acks}");
        assert!(outcome(&done).unwrap().is_ok());
    }
}

/// A group that becomes committed is shown in one step: a reader that needs no request to the tail reads all of it.
#[test]
fn a_reader_that_need_not_ask_the_tail_reads_what_was_committed() {
    let mut world = three();
    let (seq, _done) = world.write(1, 0, 700, Durability::Async);
    let ack = loop {
        let packet = world.net.queue().pop_front().expect("an acknowledgement is on its way");
        if packet.to == NodeId(2) && matches!(packet.told, ServerMessage::ChainAck(_)) {
            break packet;
        }
        world.net.queue().push_front(packet);
        world.deliver();
    };
    let (plane, chain) = (world.plane(2).clone(), LAYOUT.chain(0));
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
    assert_eq!(world.bytes(2, 0, None), chunk(&[(0, 700, seq)]));
}

#[test]
fn a_write_at_another_member_is_refused_with_the_name_of_the_head() {
    let mut world = three();
    let (_, done) = world.write(2, 0, 10, Durability::Async);
    let fault = outcome(&done).unwrap().unwrap_err();
    assert!(fault.reason == Reason::Elsewhere && fault.message.contains("server 1"), "{fault}");
}

/// The failed member has the record in its log, and no other member ever had it: the chain continues without it.
#[test]
fn a_retry_is_not_answered_from_what_a_server_recovered_before_it_is_a_member_again() {
    let mut world = three();
    let (seq, first) = world.write(1, 0, 100, Durability::Async);
    world.crash(1, CrashKind::Process);
    world.start(1);
    assert_eq!(outcome(&first), None);
    let done = world.write_again(1, seq, 0, 100, Durability::Async);
    let fault = outcome(&done).unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::Elsewhere, "{fault}");
}

#[test]
fn a_sync_write_is_answered_when_every_member_has_it_on_stable_storage() {
    let mut world = three();
    let (_, done) = world.write(1, 0, 1000, Durability::Sync);
    while world.deliver() {}
    for id in [1, 3, 2] {
        assert_eq!(outcome(&done), None, "node {id} has not flushed");
        world.flush(id);
        while world.deliver() {}
    }
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn a_read_of_now_that_meets_what_the_tail_may_have_committed_asks_it() {
    let mut world = three();
    let (seq, done) = world.write(1, 0, 700, Durability::Async);
    // Records pass down the chain to the tail, but no acknowledgement returns.
    world.without_acks = true;
    while world.deliver() {}
    assert_eq!(world.bytes(3, 0, None), chunk(&[(0, 700, seq)]), "the tail shows it");
    assert_eq!(world.bytes(1, 0, None), chunk(&[]), "the head does not know yet");
    assert_eq!(world.read(1, 0, None).unwrap(), chunk(&[(0, 700, seq)]));
    assert_eq!(world.read(2, 0, None).unwrap(), chunk(&[(0, 700, seq)]), "the tail answers who asks");
    // Messages after that answer are not part of it.
    world.cut.insert((NodeId(1), NodeId(2)));
    let _later = world.write(1, 300, 100, Durability::Async);
    assert_eq!(world.bytes(1, 0, None), chunk(&[(0, 700, seq)]));
    world.cut.clear();
    assert_eq!(outcome(&done), None);
    world.without_acks = false;
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn a_new_member_serves_when_it_has_all_records_on_stable_storage() {
    let mut world = World::new(2, 6);
    let (_, done) = world.write(1, 0, 3000, Durability::Sync);
    world.flush(1);
    assert!(outcome(&done).unwrap().is_ok());
    world.configure_all(&[1]);
    world.configure(chain(), &[1], Some(2), false);
    while world.deliver() {}
    assert!(world.reports(1).iter().any(|report| matches!(report, ChainEvent::CaughtUp { .. })));
    world.configure(chain(), &[1, 2], None, true);
    while world.deliver() {}
    assert_eq!(world.reports(2), [], "it has not flushed");
    world.flush(2);
    while world.deliver() {}
    assert!(world.reports(2).iter().any(|report| matches!(report, ChainEvent::Ready { .. })));
}

#[test]
fn a_discard_holds_whatever_the_power_takes_after_it() {
    (1..=12).for_each(discard_and_lose_power);
}

fn discard_and_lose_power(seed: u64) {
    let mut world = three_of(seed);
    let (_, done) = world.write(1, 0, 3000, Durability::Sync);
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
    for to in [2, 3] {
        world.cut.insert((NodeId(1), NodeId(to)));
    }
    for number in 0..20 {
        let _nobody_hears = world.write(1, number * 100, 1000, Durability::Async);
    }
    // In the page cache only.
    world.crash(1, CrashKind::Process);
    world.cut.clear();
    world.configure_all(&[2, 3]);
    for number in 0..20 {
        let _ = world.write(2, number * 50, 40, Durability::Async);
        while world.deliver() {}
    }
    world.start(1);
    assert_eq!(world.log(1, chain()).len(), 21);
    world.configure(chain(), &[2, 3], Some(1), false);
    while world.log(1, chain()).len() == 21 {
        assert!(world.deliver());
    }
    world.crash(1, CrashKind::Power);
    world.configure(chain(), &[2, 3], None, false);
    world.start(1);
    world.bring_in(chain(), 1);
    assert_eq!(world.log(1, chain()), world.log(3, chain()));
    world.flush(1);
    world.crash(1, CrashKind::Power);
    world.start(1);
    assert_eq!(world.log(1, chain()), world.log(3, chain()));
}

#[test]
fn without_a_lease_a_member_answers_reads_of_the_past_only() {
    let mut world = three();
    let (seq, done) = world.write(1, 0, 700, Durability::Async);
    world.settle();
    let stamp = outcome(&done).unwrap().unwrap().stamp;
    world.read(2, 0, Some(stamp)).unwrap();
    for id in 1..=3 {
        world.plane(id).lease().renew(MonoTime(1));
        assert_eq!(world.read(id, 0, None).unwrap_err().reason, Reason::Unavailable);
        assert_eq!(world.read(id, 0, Some(stamp)).unwrap(), chunk(&[(0, 700, seq)]));
    }
    let (_, done) = world.write(1, 0, 10, Durability::Async);
    assert_eq!(outcome(&done).unwrap().unwrap_err().reason, Reason::Unavailable);
}

#[test]
fn a_retry_at_the_next_head_is_answered_with_the_first_run() {
    let mut world = three();
    let (seq, done) = world.write(1, 0, 700, Durability::Async);
    world.settle();
    let first = outcome(&done).unwrap().unwrap();
    // The head fails before its answer arrives.
    world.crash(1, CrashKind::Process);
    world.configure_all(&[2, 3]);
    world.settle();
    let again = world.write_again(2, seq, 0, 700, Durability::Async);
    assert_eq!(outcome(&again).unwrap().unwrap().stamp, first.stamp);
    // An uncommitted one waits for its record.
    let (seq, lost) = world.write(2, 800, 100, Durability::Sync);
    while world.deliver() {}
    world.crash(2, CrashKind::Process);
    world.configure_all(&[3]);
    let again = world.write_again(3, seq, 800, 100, Durability::Sync);
    assert_eq!((outcome(&lost), outcome(&again)), (None, None));
    world.settle();
    assert!(outcome(&again).unwrap().is_ok());
    assert_eq!(world.log(3, chain()).len(), 2);
}

#[test]
fn a_returning_member_discards_what_the_chain_lacks_and_receives_the_rest() {
    let mut world = three();
    let (kept, done) = world.write(1, 0, 3000, Durability::Async);
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
    // Durable records of a head whose messages reach no member any more.
    for to in [2, 3] {
        world.cut.insert((NodeId(1), NodeId(to)));
    }
    let mut lost = Vec::new();
    for number in 0..30 {
        lost.push(world.write(1, number * 100, 90, Durability::Sync).1);
    }
    world.flush(1);
    world.crash(1, CrashKind::Power);
    world.cut.clear();
    world.configure_all(&[2, 3]);
    let mut written = vec![(0, 3000, kept)];
    for number in 0..40 {
        let (offset, len) = (number * 131, 120);
        let (seq, done) = world.write(2, offset, len, Durability::Async);
        world.settle();
        assert!(outcome(&done).unwrap().is_ok());
        written.push((offset, len, seq));
    }
    world.start(1);
    let before = world.log(1, chain());
    assert_eq!(before.len(), 31, "what it had written is in its log");
    world.bring_in(chain(), 1);
    assert_eq!(world.log(1, chain()), world.log(3, chain()));
    assert!(lost.iter().all(|done| outcome(done).is_none()));
    assert_eq!(world.read(1, 0, None).unwrap(), chunk(&written));
    // The same after another restart.
    let log = world.log(1, chain());
    world.flush(1);
    world.crash(1, CrashKind::Power);
    world.start(1);
    assert_eq!(world.log(1, chain()), log);
}

#[test]
fn a_new_member_receives_all_history_byte_for_byte() {
    let mut world = World::new(2, 5);
    let mut instants: Vec<Hlc> = Vec::new();
    // While it is the only member, with groups over chunk boundaries.
    for number in 0..60u64 {
        let (offset, len) = (number * 997 % (3 * CHUNK_BYTES), 100 + (number * 371 % 5000) as usize);
        let (_, done) = world.write(1, offset, len, Durability::Async);
        instants.push(outcome(&done).unwrap().unwrap().stamp);
        world.pass(1000);
        if number % 10 == 9 {
            world.flush(1);
        }
    }
    while world.plane(1).device().write_index_runs(&|tips| world.plane(1).encode_dedupe(tips, &|_| true)).unwrap() {}
    assert!(world.plane(1).device().log().stats().index_runs > 0, "some of it is on shelves");
    world.flush(1);
    world.crash(1, CrashKind::Power);
    world.start(1);
    world.configure_all(&[1]);
    world.bring_in(0, 2);
    world.bring_in(1, 2);
    for chain in 0..2 {
        assert_eq!(world.log(1, chain), world.log(2, chain));
    }
    for at in instants {
        for index in 0..4 {
            assert_eq!(world.read(2, index, Some(at)).unwrap(), world.read(1, index, Some(at)).unwrap());
        }
    }
    world.flush(2);
    world.crash(2, CrashKind::Power);
    world.start(2);
    assert_eq!(world.log(1, 1), world.log(2, 1), "the parts of groups come back one by one");
}

#[test]
fn catch_up_stays_within_its_rate_and_the_new_member_knows_how_much_it_lacks() {
    let mut world = with_a_hundred();
    let chain = chain();
    world.plane(1).limit_catch_up(100_000);
    world.pass(1_000_000);
    world.configure(chain, &[1], Some(2), false);
    let (mut given, mut lacked) = (Vec::new(), Vec::new());
    while given.last() != Some(&100) {
        while world.deliver() {}
        given.push(world.log(2, chain).len());
        lacked.push(world.plane(2).lag_bytes(frieze_base::ChainId(chain)));
        assert!(given.len() < 1000, "it is given all in the end: {given:?}");
        world.pass(20_000);
    }
    // 100 records with their overhead are 513 KB: at 100 KB/s 5 s, less the first burst.
    let steps = given.len() as u64;
    assert!((230..300).contains(&steps), "it took {steps} steps of 20 ms: {given:?}");
    for (step, count) in (0..).zip(&given) {
        let allowed = (10_000 + step * 2_000) / 5_000 + 1;
        assert!(*count as u64 <= allowed, "{count} records after {step} steps: {given:?}");
    }
    let lacked: Vec<u64> = lacked.into_iter().skip_while(|bytes| *bytes == 0).collect();
    assert!(lacked[0] > 400_000 && lacked.is_sorted_by(|one, next| one >= next), "{lacked:?}");
    assert_eq!(lacked.last(), Some(&0));
    assert!(world.plane(1).catch_up_bytes() > 500_000);
    // Without a limit they arrive at once.
    let mut world = with_a_hundred();
    world.configure(chain, &[1], Some(2), false);
    while world.deliver() {}
    assert_eq!(world.log(2, chain).len(), 100);
}

#[test]
fn a_stalled_chain_makes_writers_wait_and_then_refuses_them() {
    let mut world = World::new(2, 3);
    world.configure_all(&[1]);
    world.bring_in(chain(), 2);
    world.bound(1, |bounds| (bounds.flight_bytes_max, bounds.wait) = (20_000, std::time::Duration::ZERO));
    world.cut.insert((NodeId(1), NodeId(2)));
    let mut outcomes = Vec::new();
    for number in 0..8 {
        outcomes.push(outcome(&world.write(1, number * 100, 5000, Durability::Async).1));
        while world.deliver() {}
    }
    assert!(outcomes[..4].iter().all(Option::is_none));
    assert_eq!(outcomes[4].clone().unwrap().unwrap_err().reason, Reason::Overloaded);
    world.cut.clear();
    world.settle();
    let (_, done) = world.write(1, 0, 100, Durability::Async);
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn the_second_read_of_a_young_cut_needs_no_message() {
    let mut world = three();
    world.settle();
    let young = |world: &World| Hlc::first_of_micros(world.nodes[2].time.wall().micros() - 50_000);
    let at = young(&world);
    world.read(3, 0, Some(at)).unwrap();
    for _ in 0..100 {
        // While a read comes at least every second.
        for _ in 0..40 {
            world.pass(20_000);
            while world.deliver() {}
        }
        let at = young(&world);
        assert!(world.plane(3).is_closed(at, Some(&[frieze_base::ChainId(chain())].into())), "{at}");
        world.read(3, 0, Some(at)).unwrap();
        assert!(world.net.queue().is_empty());
    }
}

#[test]
fn a_full_disk_fails_its_member_and_reports_it() {
    let mut world = three();
    world.nodes[2].disk.set_capacity(0);
    let mut failed = Vec::new();
    for number in 0..40 {
        let (_, _) = world.write(1, number % 3 * 5000, 4000, Durability::Async);
        while world.deliver() {}
        failed.extend(world.reports(3));
        if !failed.is_empty() {
            break;
        }
    }
    let full =
        |report: &ChainEvent| matches!(report, ChainEvent::Failed { fault, .. } if fault.reason == Reason::NoSpace);
    assert!(failed.iter().any(full), "{failed:?}");
    world.configure_all(&[1, 2]);
    world.settle();
    let (_, done) = world.write(1, 0, 100, Durability::Sync);
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn an_impossible_message_is_refused_with_its_cause() {
    let world = three();
    let epoch = world.configurations[0].epoch.0;
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
        ahead: 0,
        crc: 0,
    };
    let refused = |record: ChainRecord, payload: &[u8], reason| {
        let crc = frieze_base::crc32c(payload);
        let fault =
            world.plane(2).on_message(NodeId(1), ServerMessage::ChainRecord(record), crc, payload.into()).unwrap_err();
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
        world.plane(2).on_message(NodeId(1), ServerMessage::ChainRecord(record), 7, b"abcd"[..].into()).unwrap_err();
    assert_eq!(damaged.reason, Reason::BadFrame);
}

#[test]
fn a_barrier_waits_for_every_member() {
    let mut world = three();
    let (_, done) = world.write(1, 0, 700, Durability::Async);
    while world.deliver() {}
    assert!(outcome(&done).unwrap().is_ok());
    let reached: std::sync::Arc<std::sync::Mutex<Option<bool>>> = std::sync::Arc::default();
    let to = reached.clone();
    world.plane(1).barrier(None, Box::new(move |result| *to.lock().unwrap() = Some(result.is_ok())));
    while world.deliver() {}
    assert_eq!(*reached.lock().unwrap(), None);
    world.flush(2);
    while world.deliver() {}
    assert_eq!(*reached.lock().unwrap(), None, "node 3 has not flushed");
    world.flush(3);
    while world.deliver() {}
    assert_eq!(*reached.lock().unwrap(), Some(true));
}

/// Other members may have acknowledged more meanwhile. If the barrier waited, it would receive confirmation only of the
/// records that the node had when it left, once the node is back.
#[test]
fn a_barrier_is_refused_where_acknowledged_records_may_be_missing() {
    let mut world = three();
    let (_, done) = world.write(1, 0, 700, Durability::Async);
    while world.deliver() {}
    assert!(outcome(&done).unwrap().is_ok());
    let is_refused = |world: &World| {
        let answer: std::sync::Arc<std::sync::Mutex<Option<Result<(), frieze_base::Fault>>>> =
            std::sync::Arc::default();
        let to = answer.clone();
        world.plane(3).barrier(None, Box::new(move |result| *to.lock().unwrap() = Some(result)));
        let answer = answer.lock().unwrap().take();
        answer.is_some_and(|result| result.is_err_and(|fault| fault.reason == Reason::Unavailable))
    };
    assert!(!is_refused(&world), "it waits for the others");
    world.plane(3).lease().renew(MonoTime(1));
    assert!(is_refused(&world), "its lease is over");
    world.plane(3).lease().renew(MonoTime(u64::MAX));
    assert!(!is_refused(&world), "it waits for the others");
    world.configure(0, &[1, 2], None, false);
    assert!(is_refused(&world), "chain 0 goes on without it");
    world.configure(0, &[1, 2, 3], None, true);
    assert!(is_refused(&world), "it is being brought up to date");
}

#[test]
fn an_expired_record_is_a_hole_at_the_new_member() {
    let mut world = World::new(2, 9);
    let mut stamps = Vec::new();
    for number in 0..40u64 {
        let (_, done) = world.write(1, 0, 4000 + number as usize, Durability::Async);
        stamps.push(outcome(&done).unwrap().unwrap().stamp);
    }
    world.flush(1);
    // Only what is visible from the last stamp but one on is kept; the bytes of the other records are given back.
    let kept = stamps[38];
    let device = world.plane(1).device();
    let graves = {
        let log = device.log_of([FILE]).unwrap();
        let live = log.dead_records(FILE, kept, &std::collections::BTreeSet::new()).split_off(38);
        log.dead_records(FILE, kept, &live.iter().map(|grave| (grave.segment, grave.place)).collect())
    };
    assert_eq!(graves.len(), 38);
    device.mark_dead(FILE, kept, &graves, false, &[kept]).unwrap();
    let mut given_back = 0;
    for segment in graves.iter().map(|grave| grave.segment).collect::<std::collections::BTreeSet<_>>() {
        let mut spans: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
        for grave in graves.iter().filter(|grave| grave.segment == segment) {
            // The ranges are adjacent.
            match spans.last_entry().filter(|last| *last.get() == grave.start) {
                Some(mut last) => *last.get_mut() = grave.end,
                None => drop(spans.insert(grave.start, grave.end)),
            }
        }
        given_back += device.punch_dead(segment, spans.iter()).unwrap().unwrap_or(0);
    }
    assert!(given_back > 0, "something is gone");
    world.configure_all(&[1]);
    world.bring_in(chain(), 2);
    assert_eq!(world.log(1, chain()), world.log(2, chain()));
    for at in [kept, stamps[39]] {
        assert_eq!(world.read(2, 0, Some(at)).unwrap(), world.read(1, 0, Some(at)).unwrap());
    }
}

#[test]
fn a_damaged_record_is_not_sent_and_is_reported() {
    let mut world = World::new(2, 4);
    let (_, done) = world.write(1, 0, 4000, Durability::Async);
    assert!(outcome(&done).unwrap().is_ok());
    world.flush(1);
    let records = world.plane(1).device().records_of(frieze_base::ChainId(chain()), 0, 10).unwrap();
    let stored = records[0].stored.unwrap();
    let name = format!("seg-{:016x}", stored.segment.0);
    world.nodes[0].disk.flip_bit(&name, stored.data_offset + 1000, 3).unwrap();
    world.configure_all(&[1]);
    world.configure(chain(), &[1], Some(2), false);
    world.settle();
    let corrupt = Reason::Corrupt;
    let damaged =
        |report: &ChainEvent| matches!(report, ChainEvent::Damaged { n: 1, fault, .. } if fault.reason == corrupt);
    assert!(world.reports(1).iter().any(damaged));
    assert!(world.log(2, chain()).is_empty());
}

#[test]
fn promises_and_stamps_of_others_hold_across_a_restart_of_everything() {
    let mut world = three();
    let (_, done) = world.write(1, 0, 100, Durability::Sync);
    world.settle();
    let stamp = outcome(&done).unwrap().unwrap().stamp;
    let at = Hlc::first_of_micros(world.nodes[0].time.wall().micros() + 400_000);
    // The head's clock is far ahead of the other clocks when it promises.
    world.nodes[0].time.advance_us(400_000);
    world.read(1, 0, Some(at.previous())).unwrap();
    for id in 1..=3 {
        world.crash(id, CrashKind::Power);
    }
    for id in 1..=3 {
        world.start(id);
        assert!(world.plane(id).clock.newest() >= at.previous(), "node {id} may stamp below what it knows is closed");
        assert!(world.plane(id).clock.newest() >= stamp);
    }
}

#[test]
fn a_configuration_that_was_taken_is_not_taken_again_after_a_restart() {
    let mut world = three();
    let before = world.configurations[chain() as usize].clone();
    world.crash(3, CrashKind::Power);
    world.start(3);
    world.plane(3).configure(&[(frieze_base::ChainId(chain()), before)]).unwrap();
    assert_eq!(world.read(3, 0, None).unwrap_err().reason, Reason::Elsewhere, "it has no part");
    let (_, done) = world.write(1, 0, 100, Durability::Async);
    world.settle();
    assert_eq!(outcome(&done), None, "it acknowledges nothing");
    world.configure_all(&[1, 2]);
    world.settle();
    assert!(outcome(&done).unwrap().is_ok());
}

#[test]
fn a_restart_from_index_runs_keeps_the_epochs_of_records() {
    let mut world = three();
    for number in 0..50 {
        let _ = world.write(1, number * 10, 10, Durability::Async);
        while world.deliver() {}
    }
    world.settle();
    world.crash(2, CrashKind::Process);
    world.configure_all(&[1, 3]);
    for number in 0..60 {
        let _ = world.write(1, number * 10, 3000, Durability::Async);
        while world.deliver() {}
    }
    world.settle();
    let device = world.plane(1).device();
    device.close_open();
    world.flush(1);
    while device.write_index_runs(&|tips| world.plane(1).encode_dedupe(tips, &|_| true)).unwrap() {}
    assert_eq!(device.log().stats().run_records, 110, "all of it is on shelves");
    world.crash(1, CrashKind::Process);
    world.configure_all(&[3]);
    world.start(1);
    world.bring_in(chain(), 1);
    world.start(2);
    world.configure(chain(), &[3, 1], Some(2), false);
    let mut supplied = Vec::new();
    loop {
        let next = world.net.queue().front().map(|packet| packet.told.clone());
        println!("{:?}", next.as_ref().map(|t| format!("{t:?}").chars().take(50).collect::<String>()));
        if let Some(ServerMessage::ChainRecord(record)) = next {
            supplied.push(record.n);
        }
        if !world.deliver() {
            break;
        }
    }
    assert_eq!(supplied, (51..=110).collect::<Vec<u64>>(), "what it has it is not sent again");
}

/// A repeat after a pause sends everything in flight once more: not while it arrives, however slowly.
#[test]
fn records_in_flight_to_a_member_that_lacks_them_are_not_sent_twice() {
    let mut world = with_a_hundred();
    world.configure(chain(), &[1], Some(2), false);
    let mut steps = 0;
    // One message per fiftieth of a second, over 4 s, and messages without payload first, as on connections.
    while world.log(2, chain()).len() < 100 {
        let mut queue = world.net.queue();
        if let Some(at) = queue.iter().position(|packet| !matches!(packet.told, ServerMessage::ChainRecord(_))) {
            let first = queue.remove(at).unwrap();
            queue.push_front(first);
        }
        drop(queue);
        world.deliver();
        world.pass(20_000);
        steps += 1;
        assert!(steps < 1000, "it is given all in the end");
    }
    let supplied = world.plane(1).catch_up_bytes();
    assert!((500_000..520_000).contains(&supplied), "100 records of 5,000 bytes took {supplied}");
}

/// Drops what is in flight to the member that lacks it, and waits until it has everything, while `goes_on` happens.
fn lose_a_supply(mut goes_on: impl FnMut(&mut World)) {
    let mut world = with_a_hundred();
    world.configure(chain(), &[1], Some(2), false);
    while world.log(2, chain()).len() < 50 {
        world.deliver();
    }
    world.net.queue().clear();
    let mut steps = 0;
    while world.log(2, chain()).len() < 100 {
        goes_on(&mut world);
        while world.deliver() {}
        world.pass(20_000);
        steps += 1;
        assert!(steps < 100, "said again after a second");
    }
}

#[test]
fn lost_catch_up_records_are_sent_again() {
    lose_a_supply(|_| {});
}

#[test]
fn lost_catch_up_records_are_sent_again_while_the_chain_takes_writes() {
    lose_a_supply(|world| {
        world.write(1, 0, 100, Durability::Async);
    });
}

#[test]
fn a_silent_successor_is_reported_and_so_is_its_return() {
    let mut world = three();
    world.configure_all(&[1, 2, 3]);
    world.settle();
    for (from, to) in [(1, 2), (2, 1)] {
        world.cut.insert((NodeId(from), NodeId(to)));
    }
    let (_, done) = world.write(1, 0, 100, Durability::Async);
    let silent = |world: &mut World| -> Vec<ChainEvent> {
        let reports = world.reports(1).into_iter();
        reports.filter(|report| matches!(report, ChainEvent::Silent { .. })).collect()
    };
    let mut told = Vec::new();
    for _ in 0..100 {
        while world.deliver() {}
        world.pass(20_000);
        told.extend(silent(&mut world));
    }
    assert_eq!(told, [], "two seconds are a pause");
    for _ in 0..100 {
        while world.deliver() {}
        world.pass(20_000);
        told.extend(silent(&mut world));
    }
    let of = frieze_base::ChainId(chain());
    assert_eq!(told, [ChainEvent::Silent { chain: of, node: Some(NodeId(2)) }], "once, of the chain that waits");
    assert_eq!(world.reports(3), [], "it waits for nobody");
    world.cut.clear();
    world.settle();
    assert_eq!(silent(&mut world), [ChainEvent::Silent { chain: of, node: None }]);
    assert!(outcome(&done).unwrap().is_ok());
}
