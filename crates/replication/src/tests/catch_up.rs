//! Members that receive the records they lack: what they get, at which rate, and what they discard.

use frieze_base::{NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;
use frieze_wire::peer::ServerMessage;

use super::replica_cluster::{CHUNK_BYTES, FILE, ReplicaCluster, chain, chunk, outcome, three, three_of};
use crate::ChainEvent;

/// Two nodes, the first of which alone holds a hundred records of 5,000 bytes of one chain, on stable storage.
fn with_a_hundred() -> ReplicaCluster {
    let mut cluster = ReplicaCluster::new(2, 6);
    cluster.configure_all(&[1]);
    for number in 0..100 {
        let (_, done) = cluster.write(1, number % 3 * 5000, 5000, Durability::Async);
        assert!(outcome(&done).unwrap().is_ok());
    }
    cluster.flush(1);
    cluster
}

#[test]
fn a_new_member_serves_when_it_has_all_records_on_stable_storage() {
    let mut cluster = ReplicaCluster::new(2, 6);
    let (_, done) = cluster.write(1, 0, 3000, Durability::Sync);
    cluster.flush(1);
    assert!(outcome(&done).unwrap().is_ok());
    cluster.configure_all(&[1]);
    cluster.configure(chain(), &[1], Some(2), false);
    while cluster.deliver() {}
    assert!(cluster.reports(1).iter().any(|report| matches!(report, ChainEvent::CaughtUp { .. })));
    cluster.configure(chain(), &[1, 2], None, true);
    while cluster.deliver() {}
    assert_eq!(cluster.reports(2), [], "it has not flushed");
    cluster.flush(2);
    while cluster.deliver() {}
    assert!(cluster.reports(2).iter().any(|report| matches!(report, ChainEvent::Ready { .. })));
}

#[test]
fn a_discard_holds_whatever_the_power_takes_after_it() {
    (1..=12).for_each(discard_and_lose_power);
}

fn discard_and_lose_power(seed: u64) {
    let mut cluster = three_of(seed);
    let (_, done) = cluster.write(1, 0, 3000, Durability::Sync);
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
    for to in [2, 3] {
        cluster.cut.insert((NodeId(1), NodeId(to)));
    }
    for number in 0..20 {
        let _nobody_hears = cluster.write(1, number * 100, 1000, Durability::Async);
    }
    // In the page cache only.
    cluster.crash(1, CrashKind::Process);
    cluster.cut.clear();
    cluster.configure_all(&[2, 3]);
    for number in 0..20 {
        let _ = cluster.write(2, number * 50, 40, Durability::Async);
        while cluster.deliver() {}
    }
    cluster.start(1);
    assert_eq!(cluster.log(1, chain()).len(), 21);
    cluster.configure(chain(), &[2, 3], Some(1), false);
    while cluster.log(1, chain()).len() == 21 {
        assert!(cluster.deliver());
    }
    cluster.crash(1, CrashKind::Power);
    cluster.configure(chain(), &[2, 3], None, false);
    cluster.start(1);
    cluster.bring_in(chain(), 1);
    assert_eq!(cluster.log(1, chain()), cluster.log(3, chain()));
    cluster.flush(1);
    cluster.crash(1, CrashKind::Power);
    cluster.start(1);
    assert_eq!(cluster.log(1, chain()), cluster.log(3, chain()));
}

#[test]
fn a_returning_member_discards_what_the_chain_lacks_and_receives_the_rest() {
    let mut cluster = three();
    let (kept, done) = cluster.write(1, 0, 3000, Durability::Async);
    cluster.settle();
    assert!(outcome(&done).unwrap().is_ok());
    // Durable records of a head whose messages reach no member any more.
    for to in [2, 3] {
        cluster.cut.insert((NodeId(1), NodeId(to)));
    }
    let mut lost = Vec::new();
    for number in 0..30 {
        lost.push(cluster.write(1, number * 100, 90, Durability::Sync).1);
    }
    cluster.flush(1);
    cluster.crash(1, CrashKind::Power);
    cluster.cut.clear();
    cluster.configure_all(&[2, 3]);
    let mut written = vec![(0, 3000, kept)];
    for number in 0..40 {
        let (offset, len) = (number * 131, 120);
        let (seq, done) = cluster.write(2, offset, len, Durability::Async);
        cluster.settle();
        assert!(outcome(&done).unwrap().is_ok());
        written.push((offset, len, seq));
    }
    cluster.start(1);
    let before = cluster.log(1, chain());
    assert_eq!(before.len(), 31, "what it had written is in its log");
    cluster.bring_in(chain(), 1);
    assert_eq!(cluster.log(1, chain()), cluster.log(3, chain()));
    assert!(lost.iter().all(|done| outcome(done).is_none()));
    assert_eq!(cluster.read(1, 0, None).unwrap(), chunk(&written));
    // The same after another restart.
    let log = cluster.log(1, chain());
    cluster.flush(1);
    cluster.crash(1, CrashKind::Power);
    cluster.start(1);
    assert_eq!(cluster.log(1, chain()), log);
}

#[test]
fn a_new_member_receives_all_history_byte_for_byte() {
    let mut cluster = ReplicaCluster::new(2, 5);
    let mut instants: Vec<Hlc> = Vec::new();
    // While it is the only member, with groups over chunk boundaries.
    for number in 0..60u64 {
        let (offset, len) = (number * 997 % (3 * CHUNK_BYTES), 100 + (number * 371 % 5000) as usize);
        let (_, done) = cluster.write(1, offset, len, Durability::Async);
        instants.push(outcome(&done).unwrap().unwrap().stamp);
        cluster.pass(1000);
        if number % 10 == 9 {
            cluster.flush(1);
        }
    }
    while cluster.plane(1).device().write_index_runs(&|tips| cluster.plane(1).encode_dedupe(tips, &|_| true)).unwrap() {
    }
    assert!(cluster.plane(1).device().log().stats().index_runs > 0, "some of it is on shelves");
    cluster.flush(1);
    cluster.crash(1, CrashKind::Power);
    cluster.start(1);
    cluster.configure_all(&[1]);
    cluster.bring_in(0, 2);
    cluster.bring_in(1, 2);
    for chain in 0..2 {
        assert_eq!(cluster.log(1, chain), cluster.log(2, chain));
    }
    for at in instants {
        for index in 0..4 {
            assert_eq!(cluster.read(2, index, Some(at)).unwrap(), cluster.read(1, index, Some(at)).unwrap());
        }
    }
    cluster.flush(2);
    cluster.crash(2, CrashKind::Power);
    cluster.start(2);
    assert_eq!(cluster.log(1, 1), cluster.log(2, 1), "the parts of groups come back one by one");
}

#[test]
fn catch_up_stays_within_its_rate_and_the_new_member_knows_how_much_it_lacks() {
    let mut cluster = with_a_hundred();
    let chain = chain();
    cluster.plane(1).limit_catch_up(100_000);
    cluster.pass(1_000_000);
    cluster.configure(chain, &[1], Some(2), false);
    let (mut given, mut lacked) = (Vec::new(), Vec::new());
    while given.last() != Some(&100) {
        while cluster.deliver() {}
        given.push(cluster.log(2, chain).len());
        lacked.push(cluster.plane(2).lag_bytes(frieze_base::ChainId(chain)));
        assert!(given.len() < 1000, "it is given all in the end: {given:?}");
        cluster.pass(20_000);
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
    assert!(cluster.plane(1).catch_up_bytes() > 500_000);
    // Without a limit they arrive at once.
    let mut cluster = with_a_hundred();
    cluster.configure(chain, &[1], Some(2), false);
    while cluster.deliver() {}
    assert_eq!(cluster.log(2, chain).len(), 100);
}

#[test]
fn an_expired_record_is_a_hole_at_the_new_member() {
    let mut cluster = ReplicaCluster::new(2, 9);
    let mut stamps = Vec::new();
    for number in 0..40u64 {
        let (_, done) = cluster.write(1, 0, 4000 + number as usize, Durability::Async);
        stamps.push(outcome(&done).unwrap().unwrap().stamp);
    }
    cluster.flush(1);
    // Only what is visible from the last stamp but one on is kept; the bytes of the other records are given back.
    let kept = stamps[38];
    let device = cluster.plane(1).device();
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
    cluster.configure_all(&[1]);
    cluster.bring_in(chain(), 2);
    assert_eq!(cluster.log(1, chain()), cluster.log(2, chain()));
    for at in [kept, stamps[39]] {
        assert_eq!(cluster.read(2, 0, Some(at)).unwrap(), cluster.read(1, 0, Some(at)).unwrap());
    }
}

#[test]
fn a_damaged_record_is_not_sent_and_is_reported() {
    let mut cluster = ReplicaCluster::new(2, 4);
    let (_, done) = cluster.write(1, 0, 4000, Durability::Async);
    assert!(outcome(&done).unwrap().is_ok());
    cluster.flush(1);
    let records = cluster.plane(1).device().records_of(frieze_base::ChainId(chain()), 0, 10).unwrap();
    let stored = records[0].stored.unwrap();
    let name = format!("seg-{:016x}", stored.segment.0);
    cluster.nodes[0].disk.flip_bit(&name, stored.data_offset + 1000, 3).unwrap();
    cluster.configure_all(&[1]);
    cluster.configure(chain(), &[1], Some(2), false);
    cluster.settle();
    let corrupt = Reason::Corrupt;
    let damaged =
        |report: &ChainEvent| matches!(report, ChainEvent::Damaged { n: 1, fault, .. } if fault.reason == corrupt);
    assert!(cluster.reports(1).iter().any(damaged));
    assert!(cluster.log(2, chain()).is_empty());
}

/// A repeat after a pause sends everything in flight once more: not while it arrives, however slowly.
#[test]
fn records_in_flight_to_a_member_that_lacks_them_are_not_sent_twice() {
    let mut cluster = with_a_hundred();
    cluster.configure(chain(), &[1], Some(2), false);
    let mut steps = 0;
    // One message per fiftieth of a second, over 4 s, and messages without payload first, as on connections.
    while cluster.log(2, chain()).len() < 100 {
        let mut queue = cluster.net.queue();
        if let Some(at) = queue.iter().position(|packet| !matches!(packet.told, ServerMessage::ChainRecord(_))) {
            let first = queue.remove(at).unwrap();
            queue.push_front(first);
        }
        drop(queue);
        cluster.deliver();
        cluster.pass(20_000);
        steps += 1;
        assert!(steps < 1000, "it is given all in the end");
    }
    let supplied = cluster.plane(1).catch_up_bytes();
    assert!((500_000..520_000).contains(&supplied), "100 records of 5,000 bytes took {supplied}");
}

/// Drops what is in flight to the member that lacks it, and waits until it has everything, while `goes_on` happens.
fn lose_a_supply(mut goes_on: impl FnMut(&mut ReplicaCluster)) {
    let mut cluster = with_a_hundred();
    cluster.configure(chain(), &[1], Some(2), false);
    while cluster.log(2, chain()).len() < 50 {
        cluster.deliver();
    }
    cluster.net.queue().clear();
    let mut steps = 0;
    while cluster.log(2, chain()).len() < 100 {
        goes_on(&mut cluster);
        while cluster.deliver() {}
        cluster.pass(20_000);
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
    lose_a_supply(|cluster| {
        cluster.write(1, 0, 100, Durability::Async);
    });
}
