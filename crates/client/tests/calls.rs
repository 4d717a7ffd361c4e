//! Calls: numbered, repeated under the same number, bounded in time and in connections.

mod fake_server;

use std::thread;
use std::time::Duration;

use fake_server::{FakeAnswer, FakeStore};
use frieze_base::{ErrorKind, Reason, Seq};
use frieze_client::{
    Caller, Client, CreateMode, Error, Fs, Hlc, Key, OpenFlags, Options, RenameMode, Target, UserTime, ZonePolicy,
};
use frieze_net::{Listener, mono};
use frieze_wire::message::{EmptyReply, Reply, Request};
use frieze_wire::txn::Op;
use proptest::prelude::*;

fn mkdir(fs: &Fs, path: &str) -> Result<(), Error> {
    fs.mkdir(&Target::path(path), 0o755).map(|_| ())
}

fn is_mkdir(received: &fake_server::ReceivedRequest) -> bool {
    matches!(received.op(), Some(Op::Make(_)))
}

#[test]
fn a_change_whose_answer_is_lost_is_sent_again_under_the_same_number_and_runs_once() {
    for act in [
        FakeAnswer::RunThenClose,
        FakeAnswer::RunThenHalf,
        FakeAnswer::Bytes(
            b"garbage, eighty bytes of it and more, as a server of something else would send it".to_vec(),
        ),
    ] {
        let store = FakeStore::new();
        let server = store.serve();
        let client = server.connect();
        mkdir(&client.fs(), "/first").unwrap();
        store.plan_for(2, act.clone(), is_mkdir);
        mkdir(&client.fs(), "/lost").unwrap();
        let seqs: Vec<(u64, Seq)> =
            store.received(is_mkdir).iter().map(|received| (received.header.session.0, received.header.seq)).collect();
        assert_eq!(seqs.len(), 4, "{act:?}");
        assert_eq!(seqs[1], seqs[2]);
        assert_eq!(seqs[2], seqs[3]);
        assert_ne!(seqs[0], seqs[1]);
        assert!(store.with(|state| state.runs.values().all(|&runs| runs == 1)));
        mkdir(&client.fs(), "/last").unwrap();
    }
}

#[test]
fn a_refusal_is_final_unless_it_is_transient() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/first").unwrap();
    for (reason, attempts) in [
        (Reason::Exists, 1),
        (Reason::NoSpace, 1),
        (Reason::Fenced, 1),
        (Reason::Unavailable, 4),
        (Reason::Overloaded, 4),
    ] {
        let before = store.received(is_mkdir).len();
        store.plan_for(3, FakeAnswer::Refuse(reason), is_mkdir);
        let outcome = mkdir(&client.fs(), &format!("/{reason:?}"));
        assert_eq!(store.received(is_mkdir).len() - before, attempts, "{reason:?}");
        assert_eq!(outcome.map_err(|error| error.reason()), if attempts == 1 { Err(reason) } else { Ok(()) });
    }
    assert_eq!(store.with(|state| state.connections), 1, "a refusal costs no connection");
}

#[test]
fn a_refused_connection_is_retried() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    store.plan_for(2, FakeAnswer::RefuseConnection(Reason::Overloaded), |received| {
        matches!(received.request, Request::Status(_))
    });
    assert_eq!(client.status().unwrap().health, "healthy");
}

#[test]
fn a_server_that_does_not_answer_is_unavailable_and_named() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { timeout: Duration::from_millis(300), ..server.options() }).unwrap();
    store.plan(|_| FakeAnswer::RunThenHang);
    let began = mono();
    let error = client.status().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&server.addr.to_string()), "{error}");
    assert!(mono().since_ns(began) < 10_000_000_000);
}

#[test]
fn an_unreachable_address_fails_at_once() {
    let addr = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap().addr().clone();
    let began = mono();
    let error = Client::connect(Options { server: addr.clone(), ..Options::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot reach frieze server at {addr}: connection refused; start one with `frieze serve --dir DIR` or name \
             another with --server"
        )
    );
    assert_eq!(error.reason(), Reason::Unavailable);
    assert!(mono().since_ns(began) < 5_000_000_000, "without waiting for its time to be over");
}

#[test]
fn a_session_survives_a_restart_of_the_server() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/before").unwrap();
    let session = client.session().unwrap();
    let addr = server.stop();
    let restart = thread::spawn({
        let store = store.clone();
        move || store.serve_at(&addr)
    });
    mkdir(&client.fs(), "/after").unwrap();
    let _server = restart.join().unwrap();
    assert_eq!(client.session().unwrap(), session);
    assert_eq!(store.received(|received| matches!(received.op(), Some(Op::OpenSession(_)))).len(), 1);
    assert!(store.received(is_mkdir).iter().all(|received| received.header.session == session));
}

#[test]
fn calls_fail_after_their_time_if_the_server_stays_down() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { timeout: Duration::from_millis(400), ..server.options() }).unwrap();
    let addr = server.stop();
    let error = client.status().unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
    assert!(error.to_string().contains(&addr.to_string()) && error.to_string().contains("has not answered"), "{error}");
    // The client works again when the server is back.
    let _server = store.serve_at(&addr);
    client.status().unwrap();
}

#[test]
fn a_session_is_opened_once_and_only_when_it_is_needed() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    client.status().unwrap();
    client.now().unwrap();
    client.fs().entries(&Target::path("/")).unwrap();
    assert!(store.ops().is_empty(), "looking leaves no trace");
    thread::scope(|scope| {
        for i in 0..16 {
            let fs = client.fs();
            scope.spawn(move || mkdir(&fs, &format!("/{i}")).unwrap());
        }
    });
    assert_eq!(store.received(|received| matches!(received.op(), Some(Op::OpenSession(_)))).len(), 1);
    let mut seqs: Vec<u64> = store.received(is_mkdir).iter().map(|received| received.header.seq.0).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=16).collect::<Vec<_>>(), "every change has a number of its own");
}

#[test]
fn a_session_that_the_server_lost_is_replaced_but_a_change_that_may_have_run_is_not_repeated() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/a").unwrap();
    let old = client.session().unwrap();
    store.with(|state| state.sessions.clear());
    mkdir(&client.fs(), "/b").unwrap();
    assert_ne!(client.session().unwrap(), old);

    // It runs, the reply is lost, and so is the session: the outcome is unknown.
    store.with(|state| state.sessions.clear());
    let mut count = 0;
    store.plan(move |received| {
        count += usize::from(is_mkdir(received));
        if is_mkdir(received) && count == 1 { FakeAnswer::Close } else { FakeAnswer::Answer }
    });
    assert_eq!(mkdir(&client.fs(), "/c").unwrap_err().reason(), Reason::UnknownSession);
}

#[test]
fn acked_names_the_oldest_number_that_is_still_unanswered() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/1").unwrap();
    // The second hangs until its connection is broken from outside; the third and fourth are answered.
    let mut held = false;
    store.plan(move |received| {
        let hold = !held && is_mkdir(received);
        held |= hold;
        if hold { FakeAnswer::RunThenHang } else { FakeAnswer::Answer }
    });
    thread::scope(|scope| {
        let stuck = scope.spawn(|| mkdir(&client.fs(), "/2"));
        while store.received(is_mkdir).len() < 2 {
            thread::yield_now();
        }
        mkdir(&client.fs(), "/3").unwrap();
        mkdir(&client.fs(), "/4").unwrap();
        let acked: Vec<(u64, u64)> =
            store.received(is_mkdir).iter().map(|received| (received.header.seq.0, received.header.acked.0)).collect();
        assert_eq!(acked, [(1, 1), (2, 2), (3, 2), (4, 2)]);
        let addr = server.stop();
        let server = store.serve_at(&addr);
        stuck.join().unwrap().unwrap();
        mkdir(&client.fs(), "/5").unwrap();
        let last = store.received(is_mkdir).pop().unwrap();
        assert_eq!((last.header.seq, last.header.acked), (Seq(5), Seq(5)));
        drop(server);
    });
}

#[test]
fn the_newest_stamp_travels_with_every_request() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/a").unwrap();
    let stamp = store.received(|_| true).last().map(|_| client.newest()).unwrap();
    assert!(stamp > Hlc(1000));
    client.status().unwrap();
    assert_eq!(store.received(|_| true).pop().unwrap().header.hlc, stamp);
}

#[test]
fn connections_are_bounded_and_calls_wait_their_turn() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { connections_max: 3, ..server.options() }).unwrap();
    thread::scope(|scope| {
        for i in 0..12 {
            let fs = client.fs();
            scope.spawn(move || (0..20).for_each(|j| mkdir(&fs, &format!("/{i}-{j}")).unwrap()));
        }
    });
    assert!(store.with(|state| state.connections_most) <= 3);
    assert_eq!(store.received(is_mkdir).len(), 240);
}

#[test]
fn a_call_without_a_connection_in_time_fails_as_busy() {
    let store = FakeStore::new();
    let server = store.serve();
    let options = Options { connections_max: 1, timeout: Duration::from_millis(300), ..server.options() };
    let client = Client::connect(options).unwrap();
    store.plan(|_| FakeAnswer::RunThenHang);
    let errors: Vec<Error> = thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| client.status().unwrap_err())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unavailable));
    assert!(errors.iter().any(|error| matches!(error, Error::Busy { connections_max: 1, .. })), "{errors:?}");
}

#[test]
fn a_key_proves_the_caller_and_a_wrong_one_does_not() {
    let key: Key = "laptop:000102030405060708090a0b0c0d0e0f".parse().unwrap();
    let store = FakeStore::new();
    store.with(|state| state.key = Some(key.clone()));
    let server = store.serve();
    let client = Client::connect(Options { key: Some(key), ..server.options() }).unwrap();
    assert_eq!((client.hello().uid, client.hello().may_impersonate), (1234, true));
    let wrong: Key = "laptop:ff0102030405060708090a0b0c0d0e0f".parse().unwrap();
    let error = Client::connect(Options { key: Some(wrong), ..server.options() }).unwrap_err();
    assert_eq!(error.reason(), Reason::Unproven);
    assert_eq!(server.connect().hello().uid, 65534, "without a key nobody");
}

#[test]
fn a_change_of_the_past_is_refused_without_a_request() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    let (now, a, b) = (client.fs(), Target::path("/a"), Target::path("/b"));
    let before = store.received(|_| true).len();
    for fs in [now.at(Hlc(5)), now.user_at(UserTime(5)), now.at(Hlc(5)).user_at(UserTime(5))] {
        let errors = [
            fs.mkdir(&a, 0).unwrap_err(),
            fs.unlink(&a).unwrap_err(),
            fs.rmdir(&a).unwrap_err(),
            fs.link(&a, &b).unwrap_err(),
            fs.symlink(b"x", &a).unwrap_err(),
            fs.rename(&a, &b, RenameMode::Replace).unwrap_err(),
            fs.create(&a, 0, CreateMode::Exclusive).unwrap_err(),
            fs.open(&a, OpenFlags::WRITE).unwrap_err(),
            fs.remove_xattr(&a, b"user.x").unwrap_err(),
            fs.sync_all().unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.reason() == Reason::ReadOnly), "{errors:?}");
    }
    assert_eq!(store.received(|_| true).len(), before);
}

#[test]
fn a_view_carries_its_instant_user_time_and_caller() {
    let store = FakeStore::new();
    let server = store.serve();
    let caller = Caller { uid: 7, gid: 8, groups: vec![9] };
    let fs = server.connect().fs().at(Hlc(5)).user_at(UserTime(-6)).as_caller(caller.clone());
    fs.stat(&Target::inode(frieze_base::InodeId(1))).unwrap();
    let received = store.received(|_| true).pop().unwrap();
    assert_eq!(received.caller, Some(caller));
    match received.request {
        Request::Stat(stat) => assert_eq!((stat.view.at, stat.view.user_at), (Some(5), Some(-6))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_become_exact_instants() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    let resolve = |text: &str| client.resolve(text, ZonePolicy::Refuse);
    assert_eq!(resolve("hlc-00000000000001ff").unwrap(), Hlc(0x1ff));
    assert_eq!(resolve("release").unwrap(), Hlc(500));
    assert_eq!(resolve("no-such-name").unwrap_err().reason(), Reason::NotFound);
    assert_eq!(resolve("2026-99-99T00:00:00Z").unwrap_err().reason(), Reason::InvalidInstant);
    assert!(resolve("0s-ago").unwrap() <= client.now().unwrap());
}

#[test]
fn a_listing_reads_every_page_from_one_directory() {
    let store = FakeStore::new();
    let server = store.serve();
    let entries = server.connect().fs().entries(&Target::path("/d")).unwrap();
    let inodes: Vec<u64> = entries.iter().map(|entry| entry.inode).collect();
    assert_eq!(inodes, (1..=25).collect::<Vec<_>>());
    let lists = store.received(|received| matches!(received.request, Request::List(_)));
    assert_eq!(lists.len(), 3);
    match &lists[2].request {
        Request::List(list) => assert_eq!((list.target.base, list.by_handle, &list.after[..]), (9, true, &b"20"[..])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reply_of_another_kind_is_a_protocol_error_and_ends_the_connection() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    store.plan_for(1, FakeAnswer::Instead(Box::new(Reply::Done(EmptyReply {}))), |received| {
        matches!(received.request, Request::Now(_))
    });
    let error = client.now().unwrap_err();
    assert!(error.to_string().contains("answered done to the time"), "{error}");
    client.now().unwrap();
}

#[test]
fn a_list_of_attribute_names_is_split() {
    let store = FakeStore::new();
    let server = store.serve();
    let names = server.connect().fs().list_xattr(&Target::path("/a")).unwrap();
    assert_eq!(names, [b"user.a".to_vec(), b"user.b".to_vec()]);
}

#[test]
fn closing_ends_the_session_and_every_waiting_call() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    mkdir(&client.fs(), "/a").unwrap();
    client.close().unwrap();
    assert!(store.with(|state| state.sessions.is_empty()));
    assert!(matches!(client.status(), Err(Error::Closed)));
    client.close().unwrap();
}

#[test]
fn a_client_that_is_about_to_end_stops_retrying() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { timeout: Duration::from_secs(100_000), ..server.options() }).unwrap();
    mkdir(&client.fs(), "/first").unwrap();
    server.stop();
    thread::scope(|scope| {
        let waits = scope.spawn(|| mkdir(&client.fs(), "/waits"));
        client.end_within(Duration::ZERO);
        assert!(matches!(waits.join().unwrap(), Err(Error::Unanswered { .. })));
    });
    assert!(matches!(mkdir(&client.fs(), "/begins"), Err(Error::Unanswered { .. })), "as does what begins afterwards");
}

#[test]
fn the_last_handle_ends_the_session() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    let fs = client.fs();
    mkdir(&fs, "/a").unwrap();
    drop(client);
    assert!(!store.with(|state| state.sessions.is_empty()));
    drop(fs);
    while store.with(|state| !state.sessions.is_empty()) {
        thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn arbitrary_replies_never_panic_a_client(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        greets in any::<bool>(),
    ) {
        let store = FakeStore::new();
        let server = store.serve();
        let answer = bytes.clone();
        store.plan(move |received| match received.request {
            Request::Hello(_) if greets => FakeAnswer::Answer,
            _ => FakeAnswer::Bytes(answer.clone()),
        });
        let options = Options { timeout: Duration::from_millis(30), ..server.options() };
        if let Ok(client) = Client::connect(options) {
            prop_assert!(client.status().is_err());
        }
    }
}
