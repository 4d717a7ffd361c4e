//! Threads that write several files at once, beside threads that lock the appender, flush and close instants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ChainEpoch, Fault, InodeId, Reason, Rng, Seq, SessionId, crc32c};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHAINS, CHUNK_BYTES, ReplicaCluster};
use crate::{Content, DataPlane, Layout, WriteAsk, WritePlace, split};

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
    let layout = Layout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, inode };
    let (offset, len) = (rng.below(3 * CHUNK_BYTES), rng.between(1, 3000) as usize);
    let payload: Vec<u8> = (0..len).map(|at| (thread * 50 + seq + at as u64) as u8).collect();
    let place = || {
        let spread = split(offset, len, layout)?;
        Ok(WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO })
    };
    let outcome = Arc::new(Mutex::new(None));
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
        content: Content::Bytes(payload[..].into(), Some(crc32c(&payload))),
        uid: 0,
        durability: if may_sync && rng.chance(3) { Durability::Sync } else { Durability::Async },
    };
    plane.write(ask, Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result)));
    let take = || outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut result = take();
    while result.is_none() && !may_sync {
        // A write that another one took along is answered by the thread of the other.
        std::thread::yield_now();
        result = take();
    }
    result.map(|result| result.map(|written| (inode, written.stamp)))
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
