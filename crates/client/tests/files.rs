//! Files: grants requested ahead, large reads and writes in pieces, streams over connections that break.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fake_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fake_server::{CHUNK, FakeAnswer, FakeServer, FakeStore, ReceivedRequest, pattern};
use frieze_base::{ByteRange, Reason};
use frieze_client::{Client, CreateMode, Error, File, OpenFlags, Options, Target, WritePart};
use frieze_testkit::wait::wait_until;
use frieze_wire::message::Request;
use frieze_wire::txn::{Op, Settle};

const MIB: usize = 1 << 20;

fn create(client: &Client, path: &str) -> File {
    client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap()
}

fn begin() -> (FakeStore, FakeServer, Client, File) {
    let store = FakeStore::new();
    let server = store.serve();
    let client = server.connect();
    let file = create(&client, "/f");
    (store, server, client, file)
}

fn grants(store: &FakeStore) -> Vec<(u32, u32)> {
    store
        .ops()
        .iter()
        .filter_map(|op| if let Op::Grant(grant) = op { Some((grant.first, grant.count)) } else { None })
        .collect()
}

fn settles(store: &FakeStore) -> Vec<bool> {
    store
        .ops()
        .iter()
        .filter_map(|op| if let Op::Settle(settle) = op { Some(settle.keep_grant) } else { None })
        .collect()
}

/// Files settled so far, alone or together. How many go together depends on the scheduler; `close` tests that exactly.
fn settled_files(store: &FakeStore) -> usize {
    let of = |op: &Op| match op {
        Op::Settle(_) => 1,
        Op::SettleAll(all) => all.files.len(),
        _ => 0,
    };
    store.ops().iter().map(of).sum()
}

fn lens(received: &[ReceivedRequest]) -> Vec<usize> {
    received.iter().map(|received| received.payload_len).collect()
}

#[test]
fn small_writes_and_reads_are_one_request_each() {
    let (store, _server, _client, file) = begin();
    file.write_at(10, b"hello").unwrap();
    let mut bytes = [9; 20];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), 15);
    assert_eq!(&bytes[..15], b"\0\0\0\0\0\0\0\0\0\0hello");
    assert_eq!(file.read_at(15, &mut bytes).unwrap(), 0);
    assert_eq!(file.read_at(1 << 40, &mut bytes).unwrap(), 0);
    assert_eq!(
        (store.received(ReceivedRequest::is_write).len(), store.received(ReceivedRequest::is_read).len()),
        (1, 3)
    );
    assert_eq!(grants(&store), [], "a file that was made to be written comes with its first chunk");
}

#[test]
fn a_sequential_writer_requests_grants_ahead_and_doubles_them() {
    let (store, _server, _client, file) = begin();
    for mib in 0..80u64 {
        file.write_at(mib * MIB as u64, &[1; 100]).unwrap();
    }
    assert_eq!(grants(&store), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16)]);
    file.write_at(1000 * CHUNK, b"far").unwrap();
    assert_eq!(grants(&store).last(), Some(&(1000, 1)));
}

#[test]
fn a_lost_grant_is_requested_again_and_the_write_gets_another_number() {
    let (store, _server, _client, file) = begin();
    file.write_at(0, b"one").unwrap();
    store.drop_grants();
    file.write_at(3, b"two").unwrap();
    assert_eq!(store.file("/f"), b"onetwo");
    assert_eq!(grants(&store), [(0, 1)]);
    let seqs: Vec<u64> =
        store.received(ReceivedRequest::is_write).iter().map(|received| received.header.seq.0).collect();
    assert_eq!(seqs.len(), 3);
    assert!(seqs[1] < seqs[2]);
}

#[test]
fn a_large_write_is_sent_in_pieces_and_arrives_whole() {
    let (store, _server, client, file) = begin();
    let data = pattern(6 * MIB + 12_345);
    let stamp = file.write_at(1000, &data).unwrap();
    assert!(store.file("/f")[1000..] == data);
    assert_eq!(stamp, client.newest(), "the stamp of the last piece");
    let pieces = lens(&store.received(ReceivedRequest::is_write));
    assert_eq!(pieces, [MIB - 1000, MIB, MIB, MIB, MIB, MIB, 12_345 + 1000], "cut where no chunk is crossed");

    let mut back = vec![0; data.len() + 5000];
    assert_eq!(file.read_at(1000, &mut back).unwrap(), data.len());
    assert!(back[..data.len()] == data);
}

#[test]
fn one_mebibyte_at_any_offset_is_one_write() {
    let (store, _server, _client, file) = begin();
    file.write_at(12_345, &pattern(MIB)).unwrap();
    assert_eq!(lens(&store.received(ReceivedRequest::is_write)), [MIB]);
}

#[test]
fn an_append_is_one_request_or_refused() {
    let (store, _server, client, file) = begin();
    assert_eq!(file.append(&pattern(4 * MIB)).unwrap().offset, 0);
    assert_eq!(file.append(b"more").unwrap().offset, 4 << 20);
    assert_eq!(lens(&store.received(ReceivedRequest::is_write)), [4 * MIB, 4]);

    // Another handle does not know the new end of the file.
    let other = client.fs().open(&Target::path("/f"), OpenFlags::WRITE).unwrap();
    file.append(&pattern(4 * MIB)).unwrap();
    assert_eq!(other.append(b"end").unwrap().offset, (8 << 20) + 4);

    let before = store.received(|_| true).len();
    let error = file.append(&vec![0; 4 * MIB + 1]).unwrap_err();
    assert!(matches!(error, Error::AppendTooLarge { .. }), "{error}");
    assert_eq!(error.reason(), Reason::TooLarge);
    assert_eq!(store.received(|_| true).len(), before);
}

#[test]
fn an_append_without_a_grant_requests_the_end_of_the_file() {
    let (store, _server, _client, file) = begin();
    store.with(|state| state.grants_appends = false);
    store.with(|state| state.files.values_mut().for_each(|file| *file = vec![7; 3 * CHUNK as usize - 1][..].into()));
    assert_eq!(file.append(b"across").unwrap().offset, 3 * CHUNK - 1);
    assert_eq!(grants(&store), [(2, 2)]);
}

#[test]
fn a_record_with_user_time_is_never_split() {
    let store = FakeStore::new();
    store.with(|state| state.time_plugin = "binary:offset=0".into());
    let server = store.serve();
    let file = create(&server.connect(), "/f");
    file.write_at(0, &pattern(3 * MIB)).unwrap();
    let mut records = [2 * MIB, MIB / 2].into_iter();
    file.write_stream(3 << 20, 4, |buffer| {
        buffer.extend(pattern(records.next().unwrap()));
        Ok::<_, Error>(records.len() > 0)
    })
    .unwrap();
    assert_eq!(lens(&store.received(ReceivedRequest::is_write)), [3 * MIB, 2 * MIB, MIB / 2]);
    let error = file.write_at(0, &vec![0; 4 * MIB + 1]).unwrap_err();
    assert!(matches!(error, Error::RecordTooLarge { .. }), "{error}");
}

#[test]
fn a_stream_of_writes_over_connections_that_break_writes_every_byte_once() {
    for act in
        [FakeAnswer::RunThenClose, FakeAnswer::Close, FakeAnswer::RunThenHalf, FakeAnswer::Refuse(Reason::Overloaded)]
    {
        let (store, _server, _client, file) = begin();
        let data = pattern(24 * MIB + 77);
        let mut count = 0;
        let planned = act.clone();
        store.plan(move |received| {
            count += usize::from(received.is_write());
            if received.is_write() && count % 7 == 3 { planned.clone() } else { FakeAnswer::Answer }
        });
        let mut at = 0;
        let (written, stamp) = file
            .write_stream(0, 4, |buffer| {
                let count = MIB.min(data.len() - at);
                buffer.extend_from_slice(&data[at..at + count]);
                at += count;
                Ok::<_, Error>(at < data.len())
            })
            .unwrap();
        assert_eq!(written, data.len() as u64);
        assert!(store.file("/f") == data, "{act:?}");
        let runs = store.with(|state| state.runs.clone());
        assert!(runs.values().all(|&runs| runs == 1), "{act:?}");
        assert!(
            store.received(|received| received.is_write() && received.again).len() >= 3,
            "{act:?}: some were sent again"
        );
        assert!(stamp.0 > 1000);
    }
}

#[test]
fn many_small_writes_happen_once_each_over_connections_that_break() {
    for act in
        [FakeAnswer::RunThenClose, FakeAnswer::Close, FakeAnswer::RunThenHalf, FakeAnswer::Refuse(Reason::Overloaded)]
    {
        for depth in [1, 32] {
            let (store, _server, _client, file) = begin();
            let mut count = 0;
            let planned = act.clone();
            store.plan(move |received| {
                count += usize::from(received.is_write());
                if received.is_write() && count % 197 == 13 { planned.clone() } else { FakeAnswer::Answer }
            });
            // From the end to the start, with a large one now and then.
            let mut expect = vec![0; 500 * 1000 + 10 * 30_000];
            let mut round = 0;
            let (written, stamp) = file
                .write_many(depth, |bytes| {
                    round += 1;
                    let (at, len) = match round % 50 {
                        0 => (500_000 + (round / 50 - 1) * 30_000, 30_000),
                        _ => ((500 - round.min(500)) * 1000, 1000),
                    };
                    bytes.resize(len, round as u8);
                    if round <= 500 {
                        expect[at..at + len].fill(round as u8);
                    }
                    Ok::<_, Error>((round <= 500).then_some(at as u64))
                })
                .unwrap();
            assert_eq!(written, 490 * 1000 + 10 * 30_000, "{act:?}");
            assert!(store.file("/f") == expect, "{act:?} {depth}");
            let runs = store.with(|state| state.runs.clone());
            assert!(runs.values().all(|&runs| runs == 1), "{act:?} {depth}");
            assert!(store.received(|received| received.is_write() && received.again).len() >= 2, "{act:?} {depth}");
            assert!(stamp.0 > 1000);
        }
    }
}

#[test]
fn many_small_writes_without_grants_request_them_and_continue() {
    let (store, _server, _client, file) = begin();
    let mut at = 0;
    file.write_many(16, |bytes| {
        if at == 30 || at == 77 {
            store.drop_grants();
        }
        bytes.resize(100, at as u8);
        at += 1;
        Ok::<_, Error>((at <= 100).then(|| (at - 1) * 100))
    })
    .unwrap();
    let expect: Vec<u8> = (0..100u8).flat_map(|i| vec![i; 100]).collect();
    assert!(store.file("/f") == expect);
}

#[test]
fn a_refusal_among_many_small_writes_ends_them_with_the_servers_reason() {
    let (store, _server, client, file) = begin();
    store
        .plan_for(1, FakeAnswer::Refuse(Reason::NoSpace), |received| received.is_write() && received.header.seq.0 > 40);
    let mut at = 0;
    let outcome = file.write_many(16, |bytes| {
        bytes.resize(100, 1);
        at += 100;
        Ok::<_, Error>(Some(at))
    });
    assert_eq!(outcome.unwrap_err().reason(), Reason::NoSpace);
    client.status().unwrap();
    let outcome = file.write_many(16, |bytes| {
        bytes.resize(5 << 20, 1);
        Ok::<_, Error>(Some(0))
    });
    assert!(matches!(outcome.unwrap_err(), Error::RecordTooLarge { .. }));
    file.write_at(0, b"x").unwrap();
}

#[test]
fn a_stream_of_writes_without_grants_requests_them_and_continues() {
    let (store, _server, _client, file) = begin();
    let mut at = 0;
    let (written, _) = file
        .write_stream(0, 4, |buffer| {
            if at == 6 || at == 11 {
                store.drop_grants();
            }
            buffer.resize(MIB, at + 1);
            at += 1;
            Ok::<_, Error>(at < 20)
        })
        .unwrap();
    assert_eq!(written, 20 << 20);
    let expect: Vec<u8> = (0..20u8).flat_map(|i| vec![i + 1; MIB]).collect();
    assert!(store.file("/f") == expect);
}

#[test]
fn a_stream_needs_no_second_connection() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { connections_max: 1, ..server.options() }).unwrap();
    let file = create(&client, "/f");
    let data = pattern(20 * MIB);
    file.write_at(0, &data).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut back).unwrap(), data.len());
    assert!(back == data);
    assert_eq!(store.with(|state| state.connections), 1);
}

#[test]
fn a_refused_write_in_a_stream_ends_it_with_the_servers_reason() {
    let (store, _server, client, file) = begin();
    store.plan_for(1, FakeAnswer::Refuse(Reason::NoSpace), |received| received.is_write() && received.header.seq.0 > 6);
    let error = file.write_at(0, &pattern(20 * MIB)).unwrap_err();
    assert_eq!(error.reason(), Reason::NoSpace);
    client.status().unwrap();
    // No number is left unanswered behind it.
    file.write_at(0, b"x").unwrap();
    let last = store.received(ReceivedRequest::is_write).pop().unwrap();
    assert_eq!(last.header.acked, last.header.seq);
}

#[test]
fn a_stream_of_reads_over_connections_that_break_hands_out_every_byte_in_order() {
    for act in [FakeAnswer::RunThenClose, FakeAnswer::RunThenHalf, FakeAnswer::Refuse(Reason::Unavailable)] {
        let (store, _server, _client, file) = begin();
        let data = pattern(17 * MIB + 999);
        store.with(|state| state.files.values_mut().for_each(|file| *file = data[..].into()));
        let mut count = 0;
        let planned = act.clone();
        store.plan(move |received| {
            count += usize::from(received.is_read());
            if received.is_read() && count % 9 == 5 { planned.clone() } else { FakeAnswer::Answer }
        });
        let mut got = Vec::new();
        let range = ByteRange::new(100, 1 << 30);
        let count = file
            .read_stream(range, 4, |piece| {
                got.extend_from_slice(piece);
                Ok::<_, Error>(())
            })
            .unwrap();
        assert_eq!(count, data.len() as u64 - 100, "{act:?}");
        assert!(got == data[100..], "{act:?}");

        let mut wide = vec![0; 5 * MIB];
        assert_eq!(file.read_at(7, &mut wide).unwrap(), wide.len());
        assert!(wide == data[7..7 + wide.len()], "{act:?}");
    }
}

#[test]
fn the_error_of_a_sink_or_source_is_returned_and_the_client_stays_usable() {
    #[derive(Debug)]
    struct Full;
    impl From<Error> for Full {
        fn from(error: Error) -> Full {
            panic!("{error}")
        }
    }
    let (_world, _server, client, file) = begin();
    file.write_at(0, &pattern(9 * MIB)).unwrap();
    let mut left = 3;
    let outcome = file.read_stream(ByteRange::new(0, 9 << 20), 4, |_| {
        left -= 1;
        if left == 0 { Err(Full) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(Full)), "{outcome:?}");
    let outcome = file.write_stream(0, 4, |_| Err::<bool, _>(Full));
    assert!(matches!(outcome, Err(Full)), "{outcome:?}");
    client.status().unwrap();
}

#[test]
fn closing_settles_a_written_file_and_returns_an_unused_grant_without_waiting() {
    let (store, _server, client, file) = begin();
    file.write_at(0, b"x").unwrap();
    file.close().unwrap();
    assert_eq!(settles(&store), [false]);

    create(&client, "/empty").close().unwrap();
    wait_until("the grant is returned", || settles(&store) == [false, false]);

    client.fs().open(&Target::path("/f"), OpenFlags::READ).unwrap().close().unwrap();
    client.fs().open(&Target::path("/f"), OpenFlags::READ_WRITE).unwrap().close().unwrap();
    assert_eq!(settles(&store).len(), 2, "nothing was written, nothing was granted");

    let dropped = create(&client, "/g");
    dropped.write_at(0, b"x").unwrap();
    drop(dropped);
    client.status().unwrap();
    assert_eq!(settles(&store).len(), 3);
    assert_eq!(store.with(|state| state.connections), 1);
}

#[test]
fn many_closes_without_a_reply_between_do_not_pile_up() {
    let (store, _server, client, _file) = begin();
    let files: Vec<File> = (0..100).map(|i| create(&client, &format!("/{i}"))).collect();
    files.into_iter().for_each(drop);
    client.status().unwrap();
    assert_eq!(settles(&store).len(), 100);
    let last = store.received(|received| received.op().is_some()).pop().unwrap();
    assert!(last.header.seq.0 - last.header.acked.0 <= 17, "answers are read in time: {:?}", last.header);
}

#[test]
fn files_closed_later_are_settled_one_by_one_if_no_other_call_is_in_flight() {
    let (store, _server, client, file) = begin();
    file.write_at(0, b"x").unwrap();
    file.close_later().unwrap();
    client.status().unwrap();
    assert_eq!(settles(&store), [false]);
}

#[test]
fn unwritten_files_are_settled_together_and_written_ones_before_they_are_closed() {
    let (store, _server, client, file) = begin();
    let files: Vec<File> = (0..20).map(|i| create(&client, &format!("/{i}"))).collect();
    files.into_iter().for_each(|file| file.close().unwrap());
    file.write_at(0, b"x").unwrap();
    let written = file.inode();
    file.close().unwrap();
    let settles_it = |op: &Op| matches!(op, Op::Settle(settle) if settle.inode == written.0);
    assert!(store.ops().iter().any(settles_it), "what was written counts when it is closed");
    wait_until("all are requested", || settled_files(&store) == 20 + 1);
    assert!(store.ops().iter().any(|op| matches!(op, Op::SettleAll(_))), "some together");
}

#[test]
fn files_closed_while_others_work_are_settled_together_after_a_moment() {
    let (store, _server, client, _file) = begin();
    let files: Vec<File> = (0..20).map(|i| create(&client, &format!("/{i}"))).collect();
    // Two calls that wait for their replies.
    let asks_status = |received: &ReceivedRequest| matches!(received.request, Request::Status(_));
    store.plan_for(2, FakeAnswer::RunThenHang, asks_status);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| client.status().unwrap_err());
        }
        wait_until("the second one is requested", || store.received(asks_status).len() == 2);
        files.into_iter().for_each(|file| file.close_later().unwrap());
        wait_until("all are requested", || settled_files(&store) == 20);
        assert!(store.ops().iter().any(|op| matches!(op, Op::SettleAll(_))), "some together");
        client.close().unwrap();
    });
}

#[test]
fn handles_of_one_file_share_grants_and_the_last_close_returns_them() {
    let (store, _server, client, a) = begin();
    let b = client.fs().open(&Target::path("/f"), OpenFlags::READ_WRITE).unwrap();
    b.write_at(0, b"b").unwrap();
    assert_eq!(grants(&store), []);
    b.close().unwrap();
    a.write_at(1, b"a").unwrap();
    a.close().unwrap();
    assert_eq!(settles(&store), [true, false]);
    assert_eq!(grants(&store), []);
}

#[test]
fn sync_settles_a_written_file_and_keeps_the_grant() {
    let (store, _server, _client, file) = begin();
    file.write_at(0, b"x").unwrap();
    file.sync().unwrap();
    file.sync().unwrap();
    assert_eq!(settles(&store), [true]);
    assert_eq!(store.received(|received| matches!(received.request, Request::Sync(_))).len(), 2);
    // A failed settlement is repeated.
    file.write_at(0, b"y").unwrap();
    store.plan_for(1, FakeAnswer::Refuse(Reason::NoSpace), |received| {
        matches!(received.op(), Some(Op::Settle(Settle { .. })))
    });
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(settles(&store).len(), 3);
}

#[test]
fn a_truncate_drops_the_grants_above() {
    let (store, _server, _client, file) = begin();
    file.write_at(3 * CHUNK, b"x").unwrap();
    file.set_len(CHUNK + 1).unwrap();
    file.write_at(CHUNK, b"kept or asked for").unwrap();
    file.write_at(3 * CHUNK, b"again").unwrap();
    assert!(store.received(|received| received.is_write()).len() == 3, "no write was sent without a grant");
    assert_eq!(store.file("/f")[3 * CHUNK as usize..], *b"again");
}

#[test]
fn a_handle_does_only_what_it_was_opened_for() {
    let (_world, _server, client, _file) = begin();
    let fs = client.fs();
    let reader = fs.open(&Target::path("/f"), OpenFlags::READ).unwrap();
    let writer = fs.open(&Target::path("/f"), OpenFlags::WRITE).unwrap();
    assert!(matches!(reader.write_at(0, b"x"), Err(Error::NotOpenFor { what: "writing" })));
    assert!(matches!(reader.append(b"x"), Err(Error::NotOpenFor { .. })));
    assert!(matches!(reader.set_len(0), Err(Error::NotOpenFor { .. })));
    assert!(matches!(writer.read_at(0, &mut [0]), Err(Error::NotOpenFor { what: "reading" })));
    assert_eq!(writer.write_at(i64::MAX as u64, b"x").unwrap_err().reason(), Reason::TooLarge);
}

#[test]
fn an_existing_file_is_opened_by_its_inode_and_exclusively_not_at_all() {
    let (store, _server, client, file) = begin();
    let again = create(&client, "/f");
    assert_eq!(again.inode(), file.inode());
    let opens = store.received(|received| matches!(received.request, Request::Open(_)));
    match &opens[0].request {
        Request::Open(open) => assert_eq!((open.target.base, open.target.path.len()), (file.inode().0, 0)),
        other => panic!("{other:?}"),
    }
    let refused = client.fs().create(&Target::path("/f"), 0, CreateMode::Exclusive).unwrap_err();
    assert_eq!(refused.reason(), Reason::Exists);
}

#[test]
fn many_threads_share_one_file() {
    let (store, _server, _client, file) = begin();
    let file = Arc::new(file);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..8u8 {
            let (file, done) = (file.clone(), &done);
            scope.spawn(move || {
                for j in 0..40u64 {
                    file.write_at((j * 8 + u64::from(i)) * 100_000, &[i + 1; 1000]).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 320);
    let whole = store.file("/f");
    for at in 0..320 {
        assert!(whole[at * 100_000..at * 100_000 + 1000].iter().all(|&b| usize::from(b) == at % 8 + 1));
    }
}

#[test]
fn a_stream_fails_if_the_server_stays_down() {
    let store = FakeStore::new();
    let server = store.serve();
    let client = Client::connect(Options { timeout: Duration::from_millis(400), ..server.options() }).unwrap();
    let file = create(&client, "/f");
    file.write_at(0, &pattern(3 * MIB)).unwrap();
    server.stop();
    let error = file.read_at(0, &mut vec![0; 3 * MIB]).unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
    let error = file.write_at(0, &pattern(3 * MIB)).unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
}

#[test]
fn an_atomic_write_is_one_request_that_runs_once() {
    let (store, _server, client, file) = begin();
    let other = create(&client, "/g");
    let (long, fs) = (pattern(5 * MIB), client.fs());
    // Its reply is lost.
    store.plan_for(1, FakeAnswer::RunThenClose, |received| matches!(received.request, Request::CopyRange(_)));
    let parts = [
        WritePart { file: &file, offset: 7, data: &long },
        WritePart { file: &other, offset: 0, data: b"other" },
        WritePart { file: &other, offset: 1, data: b"" },
        WritePart { file: &file, offset: 8, data: b"later" },
    ];
    let stamp = fs.write_atomically(&parts).unwrap();
    assert!(stamp > frieze_client::Hlc::ZERO);
    let mut wanted = [&[0; 7][..], &long[..]].concat();
    wanted[8..13].copy_from_slice(b"later");
    assert!(store.file("/f") == wanted, "in order, the later over the earlier");
    assert_eq!(store.file("/g"), b"other");
    let asked = store.received(|received| matches!(received.request, Request::CopyRange(_)));
    assert_eq!(asked.len(), 2, "it is asked again");
    assert_eq!(store.with(|state| state.runs.values().copied().max()), Some(1));
    let nameless = |store: &FakeStore| store.ops().iter().filter(|op| matches!(op, Op::MakeNameless(_))).count();
    assert_eq!(nameless(&store), 1);
    // A single record is written as one.
    fs.write_atomically(&[WritePart { file: &other, offset: 2, data: b"T" }]).unwrap();
    assert_eq!((store.file("/g"), nameless(&store)), (b"otTer".to_vec(), 1));
    assert!(fs.write_atomically(&[]).is_ok());
    let read_only = fs.open(&Target::path("/g"), OpenFlags::READ).unwrap();
    let refused = fs.write_atomically(&[WritePart { file: &read_only, offset: 0, data: b"x" }]);
    assert!(matches!(refused, Err(Error::NotOpenFor { .. })), "{refused:?}");
}
