//! Threads that write several files at once, beside threads that lock the appender, flush and close instants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, NodeId, Reason, Rng, Seq, SessionId, crc32c};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::chain::Configuration;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHAINS, CHUNK_BYTES, Outcome, Packet, ReplicaCluster};
use crate::{ChainEvent, Content, DataPlane, Layout, WriteAsk, WritePlace, WriteResult, split};

const THREADS: u64 = 4;
const WRITES: u64 = 120;
/// So that the bytes of several writes are copied at once.
const YIELDS: u32 = 8;

fn inode(thread: u64) -> InodeId {
    InodeId(200 + thread)
}

/// Writes in the first chunks of the thread's file, or of one that all threads share. Returns the file and the stamp,
/// or the fault; `None` for a `sync` write, which the thread that flushes answers later.
fn write(
    plane: &DataPlane,
    (thread, seq): (u64, u64),
    may_sync: bool,
    rng: &mut Rng,
) -> Option<Result<(InodeId, Hlc), Fault>> {
    let inode = if rng.chance(6) { inode(THREADS) } else { inode(thread) };
    let (offset, len) = (rng.below(3 * CHUNK_BYTES), rng.between(1, 3000) as usize);
    let durability = if may_sync && rng.chance(3) { Durability::Sync } else { Durability::Async };
    let outcome = begin_write(plane, (thread, seq), inode, (offset, len), durability);
    // A write that another one took along is answered by the thread of the other.
    let answer = if may_sync { take(&outcome) } else { Some(await_answer(&outcome)) };
    answer.map(|result| result.map(|written| (inode, written.stamp)))
}

fn take(outcome: &Outcome) -> Option<Result<WriteResult, Fault>> {
    outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn await_answer(outcome: &Outcome) -> Result<WriteResult, Fault> {
    loop {
        match take(outcome) {
            Some(answer) => return answer,
            None => std::thread::yield_now(),
        }
    }
}

fn begin_write(
    plane: &DataPlane,
    (thread, seq): (u64, u64),
    inode: InodeId,
    (offset, len): (u64, usize),
    durability: Durability,
) -> Outcome {
    let layout = Layout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, inode };
    let payload: Vec<u8> = (0..len).map(|at| (thread * 50 + seq + at as u64) as u8).collect();
    let place = || {
        let spread = split(offset, len, layout)?;
        Ok(WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO })
    };
    let outcome = Outcome::default();
    let to = outcome.clone();
    let ask = WriteAsk {
        session: SessionId(10 + thread),
        seq: Seq(seq),
        acked: Seq(seq),
        epoch: ChainEpoch(0),
        seen: Hlc::ZERO,
        inode,
        layout,
        known_offset: Some(offset),
        at_end: None,
        place: &place,
        recalled: &|_| Ok(()),
        content: Content::Bytes(payload[..].into(), Some(crc32c(&payload))),
        uid: 0,
        durability,
    };
    plane.write(ask, Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result)));
    outcome
}

type FileStamps = BTreeMap<InodeId, Vec<Hlc>>;

/// The stamps of the files' records up to an instant.
fn stamps(plane: &DataPlane, at: Hlc) -> FileStamps {
    let of = |thread| {
        let log = plane.device().log_of([inode(thread)]).expect("a disk that works");
        log.versions(inode(thread), Hlc::ZERO, at, usize::MAX).iter().map(|record| record.stamp).collect()
    };
    (0..=THREADS).map(|thread| (inode(thread), of(thread))).collect()
}

#[test]
fn writes_of_several_files_at_once_keep_closed_instants_and_survive_a_kill() {
    for seed in 0..4 {
        let mut cluster = ReplicaCluster::new(1, seed);
        if seed % 2 == 1 {
            cluster.configure_all(&[1]);
        }
        cluster.nodes[0].disk.yield_before_writes(YIELDS);
        let plane = cluster.plane(1).clone();
        let is_done = AtomicBool::new(false);
        let acknowledged: Mutex<Vec<(InodeId, Hlc)>> = Mutex::default();
        let closed: Mutex<Vec<(Hlc, FileStamps)>> = Mutex::default();
        std::thread::scope(|scope| {
            let (plane, is_done, closed) = (&*plane, &is_done, &closed);
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let acknowledged = &acknowledged;
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed << 8 | thread);
                        for seq in 1..=WRITES {
                            let answer = write(plane, (thread, seq), true, &mut rng);
                            let answer = answer.map(|answer| answer.expect("a disk that works"));
                            acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(answer);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    let end = plane.device().flush().expect("a disk that works");
                    plane.device().write_footers(end).expect("a disk that works");
                    plane.on_persisted(end);
                }
            });
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    let appender = plane.lock_appender();
                    assert!(appender.fills.is_empty() && !plane.device().log().has_reservations());
                    let end = plane.device().log().end();
                    std::thread::yield_now();
                    assert_eq!(plane.device().log().end(), end, "every write is kept out");
                    drop(appender);
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    let at = plane.clock.now();
                    if plane.close(at).is_ok() {
                        let seen = stamps(plane, at);
                        closed.lock().unwrap_or_else(PoisonError::into_inner).push((at, seen));
                    }
                    std::thread::yield_now();
                }
            });
            for writer in writers {
                writer.join().expect("no writer panics");
            }
            is_done.store(true, Ordering::SeqCst);
        });
        for (at, seen) in closed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            assert_eq!(stamps(&plane, *at), *seen, "seed {seed}: the answer at {at} has changed");
        }
        drop(plane);
        cluster.crash(1, CrashKind::Process);
        cluster.start(1);
        let found = stamps(cluster.plane(1), Hlc::MAX);
        assert!(found.values().map(Vec::len).sum::<usize>() as u64 >= THREADS * WRITES, "all were written");
        for (inode, stamp) in acknowledged.into_inner().unwrap_or_else(PoisonError::into_inner) {
            assert!(found[&inode].contains(&stamp), "seed {seed}: the write stamped {stamp} of {inode} is lost");
        }
    }
}

#[test]
fn a_write_that_the_disk_refuses_takes_those_behind_it_along_and_none_of_them_comes_back() {
    let mut refused = 0;
    for seed in 0..6 {
        let mut cluster = ReplicaCluster::new(1, seed);
        if seed % 2 == 1 {
            cluster.configure_all(&[1]);
        }
        let plane = cluster.plane(1).clone();
        let disk = cluster.nodes[0].disk.clone();
        disk.yield_before_writes(YIELDS);
        let is_done = AtomicBool::new(false);
        let acknowledged: Mutex<Vec<(InodeId, Hlc)>> = Mutex::default();
        std::thread::scope(|scope| {
            let (plane, is_done, acknowledged) = (&*plane, &is_done, &acknowledged);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !is_done.load(Ordering::SeqCst) {
                    disk.fail_writes(rng.below(8) as u32, 1);
                    std::thread::yield_now();
                }
                disk.fail_writes(0, 0);
            });
            let write_all = |thread: u64| {
                let mut rng = Rng::new(seed << 8 | thread);
                let mut refused = 0;
                for seq in 1..=WRITES {
                    match write(plane, (thread, seq), false, &mut rng).expect("an async write is answered") {
                        Ok(written) => acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(written),
                        Err(fault) => {
                            assert_eq!(fault.reason, Reason::InputOutput, "{fault}");
                            refused += 1;
                        }
                    }
                }
                refused
            };
            let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write_all(thread))).collect();
            let counts: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::SeqCst);
            refused += counts.into_iter().map(|count| count.expect("no writer panics")).sum::<u64>();
        });
        assert!(!plane.device().log().has_reservations() && plane.lock_appender().fills.is_empty());
        let before = stamps(&plane, Hlc::MAX);
        for (inode, stamp) in acknowledged.into_inner().unwrap_or_else(PoisonError::into_inner) {
            assert!(before[&inode].contains(&stamp), "seed {seed}: the write stamped {stamp} of {inode} is lost");
        }
        drop(plane);
        cluster.crash(1, CrashKind::Process);
        cluster.start(1);
        assert_eq!(stamps(cluster.plane(1), Hlc::MAX), before, "seed {seed}: a restart shows what was shown");
    }
    assert!(refused > 0, "no write was refused");
}

/// Members of the chains, head first: each node is head of one chain, or follows in both.
const MEMBERS: [[u32; 3]; CHAINS as usize] = [[1, 2, 3], [2, 1, 3]];

fn configuration(chain: usize, epoch: u64, members: &[u32]) -> (ChainId, Configuration) {
    let members = members.iter().copied().map(NodeId).collect();
    let epoch = ChainEpoch(epoch);
    (ChainId(chain as u32), Configuration { epoch, members, syncing: None, joining: false })
}

#[test]
fn members_that_copy_records_beside_their_own_writes_have_one_history() {
    for seed in 0..2 {
        // In half of the runs the disk of the last member refuses a record, and the member is taken out.
        let has_fault = seed % 2 == 1;
        let mut cluster = ReplicaCluster::new(3, seed);
        let planes: Vec<Arc<DataPlane>> = (1..=3).map(|id| cluster.plane(id).clone()).collect();
        for (chain, members) in MEMBERS.iter().enumerate() {
            for plane in &planes {
                plane.configure(&[configuration(chain, 3, members)]).expect("a disk that works");
            }
        }
        cluster.nodes.iter().for_each(|node| node.disk.yield_before_writes(YIELDS));
        let is_done = AtomicBool::new(false);
        let acknowledged: Mutex<Vec<(InodeId, Hlc)>> = Mutex::default();
        let closed: Mutex<Vec<(usize, Hlc, FileStamps)>> = Mutex::default();
        let net = cluster.net.clone();
        let nodes = &cluster.nodes;
        std::thread::scope(|scope| {
            let (planes, is_done, closed, acknowledged) = (&planes, &is_done, &closed, &acknowledged);
            for _ in 0..3 {
                // Messages of one link overtake each other, and their records are copied at once.
                scope.spawn(|| {
                    while !is_done.load(Ordering::SeqCst) {
                        let next = net.queue().pop_front();
                        let Some(Packet { from, to, told, payload, .. }) = next else {
                            std::thread::yield_now();
                            continue;
                        };
                        let crc = payload.crc.unwrap_or_else(|| crc32c(&payload.bytes));
                        let plane = &planes[to.0 as usize - 1];
                        if let Err(fault) = plane.on_message(from, told, crc, (&payload.bytes).into()) {
                            assert!(fault.reason != Reason::BadFrame, "{fault}");
                        }
                    }
                });
            }
            scope.spawn(move || {
                // The flusher of each node, its clock, and the control plane.
                let mut rng = Rng::new(seed);
                let mut has_member = true;
                while !is_done.load(Ordering::SeqCst) {
                    for (node, plane) in nodes.iter().zip(planes) {
                        node.time.advance_us(20_000);
                        plane.tick();
                        if let Ok(end) = plane.device().flush() {
                            plane.on_persisted(end);
                        }
                    }
                    if has_fault && has_member && rng.chance(4) {
                        nodes[2].disk.fail_writes(rng.below(20) as u32, 1);
                    }
                    let reports = std::mem::take(&mut *nodes[2].reports.lock().unwrap_or_else(PoisonError::into_inner));
                    if has_member && reports.iter().any(|report| matches!(report, ChainEvent::Failed { .. })) {
                        nodes[2].disk.fail_writes(0, 0);
                        has_member = false;
                        for (chain, members) in MEMBERS.iter().enumerate() {
                            let next = configuration(chain, 4, &members[..2]);
                            planes.iter().for_each(|plane| {
                                plane.configure(std::slice::from_ref(&next)).expect("a disk that works")
                            });
                        }
                    }
                    std::thread::yield_now();
                }
                assert!(has_member != has_fault, "seed {seed}: the disk refused a record, or was not asked to");
            });
            scope.spawn(move || {
                let mut turn = 0;
                while !is_done.load(Ordering::SeqCst) {
                    turn = (turn + 1) % 2;
                    let plane = &planes[turn];
                    let at = plane.clock.now();
                    if plane.close(at).is_ok() {
                        let found = stamps(plane, at);
                        closed.lock().unwrap_or_else(PoisonError::into_inner).push((turn, at, found));
                    }
                    std::thread::yield_now();
                }
            });
            let write_all = |thread: u64| {
                let mut rng = Rng::new(seed << 8 | thread);
                let mut open: Vec<(InodeId, Outcome)> = Vec::new();
                for seq in 1..=WRITES {
                    let inode = if rng.chance(6) { inode(THREADS) } else { inode(thread) };
                    let (chunk, len) = (rng.below(3), rng.between(1, 3000));
                    let offset = chunk * CHUNK_BYTES + rng.below(CHUNK_BYTES - len);
                    let layout = Layout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, inode };
                    let head = MEMBERS[layout.chain(chunk as u32).0 as usize][0];
                    let plane = &planes[head as usize - 1];
                    let place = (offset, len as usize);
                    open.push((inode, begin_write(plane, (thread, seq), inode, place, Durability::Async)));
                    if rng.chance(3) {
                        for (inode, outcome) in open.drain(..) {
                            let written = await_answer(&outcome).expect("a head whose disk works");
                            acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push((inode, written.stamp));
                        }
                    }
                }
                for (inode, outcome) in open {
                    let written = await_answer(&outcome).expect("a head whose disk works");
                    acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push((inode, written.stamp));
                }
            };
            let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write_all(thread))).collect();
            let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::SeqCst);
            assert!(ended.iter().all(Result::is_ok), "no writer panics");
        });
        let serving = if has_fault { &planes[..2] } else { &planes[..] };
        let first = stamps(&planes[0], Hlc::MAX);
        assert_eq!(first.values().map(Vec::len).sum::<usize>() as u64, THREADS * WRITES, "all were written, once");
        for plane in serving {
            assert_eq!(stamps(plane, Hlc::MAX), first, "seed {seed}: members have one log");
            assert!(!plane.device().log().has_reservations() && plane.lock_appender().fills.is_empty());
        }
        let acknowledged = acknowledged.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert!(acknowledged.iter().all(|(inode, stamp)| first[inode].contains(stamp)), "seed {seed}: a write is lost");
        for (node, at, found) in closed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            assert_eq!(stamps(&planes[node], at), found, "seed {seed}: the answer at {at} has changed");
        }
        drop(planes);
        for id in 1..=2 {
            cluster.crash(id, CrashKind::Process);
            cluster.start(id);
            assert_eq!(stamps(cluster.plane(id), Hlc::MAX), first, "seed {seed}: a restart shows what was shown");
        }
    }
}

#[test]
fn a_record_behind_one_that_the_disk_refuses_is_not_appended_either() {
    let mut cluster = ReplicaCluster::new(2, 1);
    cluster.configure_all(&[1, 2]);
    // Two files whose first chunks lie on one chain.
    let chain_of = |inode| Layout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, inode }.chain(0);
    let chain = chain_of(inode(0));
    let other = (1..).map(inode).find(|other| chain_of(*other) == chain).expect("chains take turns");
    let files = [inode(0), other];
    let write = |cluster: &ReplicaCluster, seq, file, len| {
        begin_write(cluster.plane(1), (0, seq), file, (0, len), Durability::Async);
    };
    // A segment has 64 KiB: what follows these needs the next one, which is added when no place is reserved.
    for seq in 1..=4 {
        write(&cluster, seq, files[0], 12 << 10);
    }
    cluster.settle();
    let before = cluster.log(2, chain.0);
    assert_eq!(before.len(), 4);
    write(&cluster, 5, files[0], 1 << 10);
    write(&cluster, 6, files[1], 16 << 10);
    let packets: Vec<Packet> = cluster.net.queue().drain(..).collect();
    assert_eq!(packets.len(), 2, "both records, to the successor");
    let follower = cluster.plane(2).clone();
    let deliver = |packet: &Packet| {
        let crc = packet.payload.crc.unwrap_or_else(|| crc32c(&packet.payload.bytes));
        follower.on_message(packet.from, packet.told.clone(), crc, (&packet.payload.bytes).into()).expect("sound")
    };
    // The clock's bound is stored before, so that the refused write is the record's.
    follower.clock.adopt(cluster.plane(1).clock.newest()).expect("a disk that works");
    cluster.nodes[1].disk.yield_before_writes(200_000);
    cluster.nodes[1].disk.fail_writes(0, 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| deliver(&packets[0]));
        while !follower.device().log().has_reservations() {
            assert!(!first.is_finished(), "the record is appended");
            std::thread::yield_now();
        }
        deliver(&packets[1]);
        assert!(first.join().expect("no panic"));
    });
    cluster.nodes[1].disk.yield_before_writes(0);
    let failed = cluster.reports(2);
    assert!(failed.iter().any(|report| matches!(report, ChainEvent::Failed { .. })), "{failed:?}");
    assert_eq!(cluster.log(2, chain.0), before, "the log has no hole");
    drop(follower);
    cluster.crash(2, CrashKind::Process);
    cluster.start(2);
    assert_eq!(cluster.log(2, chain.0), before);
}
