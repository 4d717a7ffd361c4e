//! Threads that write several files at once, beside threads that lock the appender, flush and close instants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ChainEpoch, InodeId, Rng, Seq, SessionId, crc32c};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHAINS, CHUNK_BYTES, ReplicaCluster};
use crate::{Content, DataPlane, Layout, WriteAsk, WritePlace, split};

const THREADS: u64 = 4;
const WRITES: u64 = 120;

fn inode(thread: u64) -> InodeId {
    InodeId(200 + thread)
}

/// Writes in the first chunks of the thread's file, or of one that all threads share. Returns the stamp.
fn write(plane: &DataPlane, thread: u64, seq: u64, rng: &mut Rng) -> Option<(InodeId, Hlc)> {
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
        durability: if rng.chance(3) { Durability::Sync } else { Durability::Async },
    };
    plane.write(ask, Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result)));
    let result = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A `sync` write is answered by the thread that flushes, perhaps later.
    result.map(|result| (inode, result.expect("a disk that works").stamp))
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
                            let answer = write(plane, thread, seq, &mut rng);
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
