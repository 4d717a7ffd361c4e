use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use crate::levels::{self, ROWS};
use crate::{Condvar, Mutex, RwLock, check_may_wait, check_no_lock, run_as_other_thread};

// Two levels, the first above the second in the order.
type Outer<T> = Mutex<levels::ViewNames, T>;
type Inner<T> = Mutex<levels::ViewPages, T>;
type InnerRw<T> = RwLock<levels::ViewPages, T>;

/// The message with which `run` panics; empty if it does not.
fn message(run: impl FnOnce()) -> String {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => String::new(),
        Err(panic) => panic.downcast_ref::<String>().cloned().expect("the panic has a message"),
    }
}

#[test]
fn locks_in_their_order_are_locked_and_freed_in_any_order() {
    let (outer, inner) = (Outer::new(1), Inner::new(2));
    let first = outer.lock();
    let second = inner.lock();
    drop(first);
    drop(second);
    assert_eq!((*outer.lock(), *inner.lock()), (1, 2));
    check_no_lock();
}

#[test]
fn a_mutex_below_a_held_one_panics_and_both_places_are_named() {
    let (outer, inner) = (Outer::new(()), Inner::new(()));
    let _inner = inner.lock();
    let line = line!() - 1;
    let message = message(|| drop(outer.lock()));
    for words in ["locks ViewNames (level ", "holds ViewPages (level ", &format!("src/tests.rs:{line}:"), "order"] {
        assert!(message.contains(words), "{words:?} in {message:?}");
    }
    assert!(message.contains(&format!("src/tests.rs:{}:", line + 2)), "{message:?}");
}

#[test]
fn two_locks_of_one_level_panic() {
    let (one, other) = (Inner::new(()), Inner::new(()));
    let _one = one.lock();
    assert!(message(|| drop(other.lock())).contains("once at a time"));
}

#[test]
fn a_read_lock_is_locked_once_at_a_time() {
    let lock = InnerRw::new(7);
    let reader = lock.read();
    assert!(message(|| drop(lock.read())).contains("once at a time"));
    assert_eq!(*reader, 7, "the check comes before the lock: nothing has changed");
    drop(reader);
    assert_eq!(*lock.read(), 7);
}

#[test]
fn readers_and_writers_keep_the_order() {
    let (outer, inner) = (Outer::new(()), InnerRw::new(()));
    let reader = inner.read();
    assert!(message(|| drop(outer.lock())).contains("locks ViewNames"));
    drop(reader);
    let writer = inner.write();
    assert!(message(|| drop(outer.lock())).contains("locks ViewNames"));
    assert!(message(|| drop(inner.read())).contains("once at a time"));
    drop(writer);
    let _outer = outer.lock();
    drop(inner.write());
}

#[test]
fn an_attempt_may_come_in_any_order_and_counts_as_held() {
    let (outer, inner) = (Outer::new(()), Inner::new(()));
    let held = inner.lock();
    assert!(inner.try_lock().is_none());
    let attempt = outer.try_lock().expect("it is free");
    drop(held);
    assert!(message(|| drop(outer.lock())).contains("once at a time"));
    drop(inner.lock());
    drop(attempt);
    check_no_lock();
}

#[test]
fn a_thread_that_waits_for_a_signal_holds_nothing_else() {
    let (outer, inner, changed) = (Outer::new(()), Inner::new(false), Condvar::new());
    let held = outer.lock();
    let wait = || drop(changed.wait_timeout(inner.lock(), Duration::ZERO));
    assert!(message(wait).contains("waits for a signal under ViewPages, and holds ViewNames"));
    drop(held);
    wait();
    drop(changed.wait_timeout_while(inner.lock(), Duration::ZERO, |is_set| !*is_set));
    check_no_lock();
}

#[test]
fn a_wait_for_a_signal_from_below_is_as_the_wait_for_the_lock() {
    let (outer, inner, changed) =
        (RwLock::<levels::FlushState, _>::new(()), Mutex::<levels::Appender, _>::new(false), Condvar::new());
    let _outer = outer.read();
    drop(changed.wait_timeout(inner.lock(), Duration::ZERO));
    let below = Inner::new(());
    let guard = inner.lock();
    let _below = below.lock();
    let wait = || drop(changed.wait_timeout(guard, Duration::ZERO));
    assert!(message(wait).contains("waits for a signal under Appender, and holds ViewPages"));
}

#[test]
fn a_lock_that_no_signal_needs_is_held_in_waits_for_signals_and_not_for_other_servers() {
    let (dead, turn, published) =
        (Mutex::<levels::DeadRecords, _>::new(()), Mutex::<levels::PublishTurn, _>::new(()), Condvar::new());
    let _dead = dead.lock();
    drop(published.wait_timeout(turn.lock(), Duration::ZERO));
    assert!(message(check_may_wait).contains("waits for other servers, and holds DeadRecords"));
}

#[test]
fn a_signal_wakes_a_thread_that_holds_its_lock_again() {
    let (lock, changed) = (Inner::new(false), Condvar::new());
    let (begun, begins) = mpsc::channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock.lock();
            begun.send(()).expect("the test waits");
            let guard = changed.wait_while(guard, |is_set| !*is_set);
            let second = message(|| drop(lock.lock()));
            drop(guard);
            check_no_lock();
            second
        });
        begins.recv().expect("the thread begins");
        *lock.lock() = true;
        changed.notify_all();
        assert!(waits.join().expect("it ends").contains("once at a time"));
    });
}

#[test]
fn no_thread_misses_a_signal() {
    const TURNS: u32 = 20_000;
    let (turn, changed) = (Inner::new(0), Condvar::new());
    let play = |parity: u32| {
        for round in (parity..TURNS).step_by(2) {
            let mut turn = changed.wait_while(turn.lock(), |turn| *turn != round);
            *turn += 1;
            drop(turn);
            changed.notify_one();
        }
    };
    // A signal without a thread that waits is none for a thread that waits later.
    changed.notify_all();
    std::thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    assert_eq!(*turn.lock(), TURNS);
}

#[test]
fn a_wait_for_other_servers_with_a_lock_panics() {
    let lock = Inner::new(());
    let guard = lock.lock();
    assert!(message(check_may_wait).contains("waits for other servers, and holds ViewPages"));
    assert!(message(check_no_lock).contains("holds ViewPages"));
    drop(guard);
    check_may_wait();
    check_no_lock();
}

#[test]
fn a_thread_that_does_the_work_of_two_keeps_the_locks_of_each_apart() {
    let (outer, inner, own) = (Outer::new(()), Inner::new(()), Inner::new(()));
    let held = own.lock();
    let kept = run_as_other_thread(|| {
        drop(outer.lock());
        assert!(message(check_no_lock).is_empty());
        inner.lock()
    });
    assert!(message(|| drop(outer.lock())).contains("locks ViewNames"));
    drop(held);
    assert!(message(check_no_lock).contains("holds ViewPages"), "a lock that is kept counts");
    drop(kept);
    check_no_lock();
}

#[test]
fn a_lock_whose_holder_panicked_is_locked_as_it_was_left() {
    let (mutex, rw) = (Inner::new(1), RwLock::<levels::ViewNames, _>::new(1));
    let words = message(|| {
        let (mut rw, mut mutex) = (rw.write(), mutex.lock());
        (*mutex, *rw) = (2, 2);
        panic!("{}", "in between".to_owned());
    });
    assert_eq!(words, "in between");
    check_no_lock();
    assert_eq!((*rw.read(), *mutex.lock()), (2, 2));
    assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
    assert_eq!((mutex.into_inner(), rw.into_inner()), (2, 2));
}

#[test]
fn a_thread_that_panics_already_is_not_checked() {
    struct LocksInDrop<'a>(&'a Outer<u32>);
    impl Drop for LocksInDrop<'_> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let (outer, inner) = (Outer::new(0), Inner::new(()));
    let words = message(|| {
        let _inner = inner.lock();
        let _drops = LocksInDrop(&outer);
        panic!("{}", "the first".to_owned());
    });
    assert_eq!((words.as_str(), *outer.lock()), ("the first", 1));
}

#[test]
fn the_table_of_the_architecture_is_the_codes() {
    let mut table = String::from("| level | lock | crate | guards |\n|---|---|---|---|\n");
    for row in ROWS {
        let waits = match (row.is_held_in_waits, row.is_held_in_signals, row.is_signalled_from_below) {
            (true, ..) => "; held in waits",
            (_, true, _) => "; held in signals",
            (.., true) => "; signalled from below",
            _ => "",
        };
        table += &format!("| {} | `{}` | {} | {}{waits} |\n", row.number, row.name, row.package, row.guards);
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let document = std::fs::read_to_string(&path).expect("the architecture is there");
    let (before, rest) = document.split_once(BEGIN).expect("the table has a begin");
    let (found, after) = rest.split_once(END).expect("the table has an end");
    let expected = format!("\n\n{table}\n");
    if found != expected && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("the architecture is written");
        return;
    }
    assert!(found == expected, "the table is made from the code: UPDATE_EXPECT=1 cargo test -p frieze-locks");
}

const BEGIN: &str = "<!-- locks: made from crates/locks/src/levels.rs -->";
const END: &str = "<!-- end of locks -->";
