//! A lone server: many threads order transactions, and it becomes a member meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use frieze_base::{InodeId, Seq, SessionId};
use frieze_locks::{Mutex, levels};
use frieze_wire::txn::{Caller, MakeKind, Transaction};

use super::fixture::{lone, make, open_session, run};
use crate::Metadata;

const THREADS: u64 = 8;
const FILES: u64 = 300;

/// Makes files from every thread. Returns the inode numbers in the answers.
fn make_files(metadata: &Metadata, meanwhile: impl FnOnce()) -> Vec<u64> {
    let sessions: Vec<SessionId> = (0..THREADS as u32).map(|uid| open_session(metadata, uid, false)).collect();
    thread::scope(|scope| {
        let threads = (0..).zip(&sessions).map(|(number, session)| {
            scope.spawn(move || {
                let path = |seq: u64| format!("/{number}-{seq}");
                let file = |seq: u64| {
                    // `acked` stays 0, so every outcome is remembered.
                    run(metadata, *session, Seq(seq), make(&path(seq), MakeKind::File(false))).expect("it is made").id
                };
                (1..=FILES).map(file).collect::<Vec<u64>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        meanwhile();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread stays asleep")).collect()
    })
}

fn check(metadata: &Metadata, mut ids: Vec<u64>) {
    assert_eq!(metadata.state.read().entry_count(InodeId::ROOT), (THREADS * FILES) as usize);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len() as u64, THREADS * FILES, "every transaction ran once");
}

#[test]
fn every_thread_gets_the_outcome_of_its_own_transaction() {
    let metadata = lone();
    let ids = make_files(&metadata, || ());
    check(&metadata, ids);
}

/// A transaction comes while another one is run, and no further one comes: its thread is woken to run it.
#[test]
fn the_thread_that_leaves_wakes_the_next_one() {
    const ROUNDS: u64 = 3000;
    let metadata = Arc::new(lone());
    let (begin, (done, is_done)) = (Arc::new(Barrier::new(2)), mpsc::channel());
    for number in 0..2 {
        let (metadata, begin, done) = (Arc::clone(&metadata), Arc::clone(&begin), done.clone());
        let session = open_session(&metadata, number, false);
        // Not scoped: a thread that stays asleep is not waited for.
        thread::spawn(move || {
            // As a thread that settles a file.
            let writers = Mutex::<levels::Appender, ()>::default();
            let _no_writers = writers.lock();
            for round in 1..=ROUNDS {
                begin.wait();
                let op = Some(make(&format!("/{number}-{round}"), MakeKind::File(false)));
                let (session, caller) = (session.0, Caller::root());
                let make = Transaction { session, seq: round, acked: 0, caller, must_see: 0, op };
                metadata.execute_with_room(make, None).expect("it is ordered").into_result().expect("it is made");
            }
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..2 {
        is_done.recv_timeout(Duration::from_secs(60)).expect("no thread stays asleep");
    }
}

#[test]
fn transactions_that_wait_while_others_join_are_ordered_by_the_member() {
    let metadata = lone();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                if metadata.await_journal(Duration::from_millis(1)) {
                    metadata.sync(metadata.mark()).expect("the journal is flushed");
                }
            }
        });
        let bootstrap = || {
            // Some transactions are ordered by the lone server.
            while metadata.appended().0 < 100 {
                thread::park_timeout(Duration::from_micros(100));
            }
            assert_eq!(metadata.bootstrap(&|| Ok(())).map_err(|fault| fault.reason), Ok(true));
        };
        let ids = make_files(&metadata, bootstrap);
        is_over.store(true, Ordering::Release);
        check(&metadata, ids);
    });
}
