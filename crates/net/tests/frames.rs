//! Frames over a real socket pair: whole, broken, slow and hostile.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::thread;
use std::time::Duration;

use frieze_base::{Reason, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;
use frieze_net::{
    Error, FramePart, FramePayload, FrameReader, FrameWriter, HELLO_BYTES_MAX, Limits, Listener, Stream, encode_frame,
    mono,
};
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use proptest::prelude::*;

/// Short enough for a test, long enough for a busy machine.
const SHORT: Limits = Limits { idle: Some(Duration::from_millis(200)), frame: Duration::from_millis(200) };
const LONG: Limits = Limits { idle: Some(Duration::from_secs(20)), frame: Duration::from_secs(20) };

fn header(id: u64) -> FrameHeader {
    FrameHeader {
        request_id: id,
        session: SessionId(7),
        seq: Seq(8),
        hlc: Hlc(9),
        ..FrameHeader::of(FrameKind::Request)
    }
}

fn ends(limits: Limits) -> (FrameWriter, FrameReader) {
    let (a, b) = Stream::pair().unwrap();
    let reader = FrameReader::new(b, limits).unwrap();
    // The writing end needs its ticks too.
    FrameReader::new(a.clone(), limits).unwrap();
    (FrameWriter::new(a, limits), reader)
}

fn tcp_ends(limits: Limits) -> (FrameWriter, FrameReader) {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let a = Stream::connect(listener.addr(), Duration::from_secs(20)).unwrap();
    let b = listener.accept().unwrap().unwrap();
    let reader = FrameReader::new(b, limits).unwrap();
    FrameReader::new(a.clone(), limits).unwrap();
    (FrameWriter::new(a, limits), reader)
}

/// Sends bytes that are no frames, below the writer.
fn write_raw(stream: &Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn frames_of_every_size_arrive_as_they_were_sent() {
    let (writer, mut reader) = ends(LONG);
    let sizes = [0, 1, 79, 80, 4096, 16_304, 16_384, 16_385, 100_000, 1 << 20, 4 << 20];
    let sent = thread::spawn(move || {
        for (id, (&body, &payload)) in sizes.iter().zip(sizes.iter().rev()).enumerate() {
            writer.send(header(id as u64), &pattern(body), FramePayload::Bytes(&pattern(payload))).unwrap();
        }
    });
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    for (id, (&body_len, &payload_len)) in sizes.iter().zip(sizes.iter().rev()).enumerate() {
        let got = reader.read_frame(&mut body).unwrap().unwrap();
        assert_eq!((got.request_id, got.session, got.seq, got.hlc), (id as u64, SessionId(7), Seq(8), Hlc(9)));
        assert_eq!(body, pattern(body_len));
        // Both ways to read a payload.
        if id % 2 == 0 {
            assert_eq!(reader.read_payload_reusing(&mut payload).unwrap(), pattern(payload_len));
        } else {
            let mut exact = vec![0; got.payload_len as usize];
            reader.read_payload(&mut exact).unwrap();
            assert_eq!(exact, pattern(payload_len));
        }
    }
    sent.join().unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap(), None, "the peer ended between two frames");
}

#[test]
fn a_payload_in_pieces_arrives_in_one() {
    let (writer, mut reader) = ends(LONG);
    let whole = pattern(5000);
    let pieces: Vec<&[u8]> = whole.chunks(3).collect();
    assert!(pieces.len() > 1024, "more pieces than one system call takes");
    writer.send(header(1), b"", FramePayload::Checked { pieces: &pieces, crc: crc32c(&whole) }).unwrap();
    let mut payload = Vec::new();
    reader.read_frame(&mut Vec::new()).unwrap().unwrap();
    assert_eq!(reader.read_payload_reusing(&mut payload).unwrap(), whole);
}

#[test]
fn a_payload_whose_checksum_is_behind_it_arrives_or_is_found_damaged() {
    for damage in [None, Some(0), Some(299_999)] {
        let (writer, mut reader) = ends(LONG);
        let whole = pattern(300_000);
        let mut damaged = whole.clone();
        damage.into_iter().for_each(|at: usize| damaged[at] ^= 0x10);
        let crc = crc32c(&whole);
        let sent = thread::spawn(move || {
            let steps = damaged.chunks(70_000);
            let last = steps.len() - 1;
            writer.send_in_steps::<Error>(header(1), b"body", damaged.len(), &|| {}, |step| {
                steps
                    .enumerate()
                    .try_for_each(|(number, bytes)| step(FramePart::Bytes(bytes), (number == last).then_some(crc)))
            })?;
            writer.send(header(2), b"", FramePayload::None)
        });
        let mut body = Vec::new();
        let got = reader.read_frame(&mut body).unwrap().unwrap();
        assert_eq!((body.as_slice(), got.payload_len), (&b"body"[..], 300_004));
        let mut into = vec![0; 300_000];
        let taken = reader.read_payload_before_crc(&mut into);
        sent.join().unwrap().unwrap();
        match damage {
            None => {
                taken.unwrap();
                assert_eq!(into, whole);
                assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
            }
            Some(_) => assert!(matches!(taken.unwrap_err(), Error::Checksum { part: "payload", .. })),
        }
    }
}

#[test]
fn a_range_of_a_file_is_sent_between_other_parts() {
    for unix in [false, true] {
        let whole = pattern(900_000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        let (writer, mut reader) = if unix { ends(LONG) } else { tcp_ends(LONG) };
        let sent = thread::spawn({
            let whole = whole.clone();
            move || {
                writer.send_in_steps::<Error>(header(1), b"body", whole.len(), &|| {}, |step| {
                    step(FramePart::File { file: file.as_fd(), offset: 0, len: 600_001 }, None)?;
                    step(FramePart::Bytes(&whole[600_001..700_000]), None)?;
                    step(FramePart::File { file: file.as_fd(), offset: 700_000, len: 200_000 }, Some(crc32c(&whole)))
                })?;
                // The file ends early: the other end does not wait for the rest.
                let cut = writer.send_in_steps::<Error>(header(2), b"", 1000, &|| {}, |step| {
                    step(FramePart::File { file: file.as_fd(), offset: 899_500, len: 1000 }, Some(0))
                });
                cut.unwrap_err();
                Ok::<(), Error>(())
            }
        });
        let mut body = Vec::new();
        reader.read_frame(&mut body).unwrap().unwrap();
        let mut into = vec![0; whole.len()];
        reader.read_payload_before_crc(&mut into).unwrap();
        assert!(into == whole);
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
        assert!(reader.read_payload_before_crc(&mut [0; 1000]).is_err());
        sent.join().unwrap().unwrap();
    }
}

#[test]
fn a_peer_that_receives_nothing_of_a_file_range_stalls_and_is_dropped() {
    const LEN: usize = 4_000_000;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&pattern(LEN)).unwrap();
    let (writer, reader) = ends(SHORT);
    let stalled = Cell::new(0);
    // More than both ends have room for.
    let sent = (0..16).try_for_each(|id| {
        writer.send_in_steps::<Error>(header(id), b"", LEN, &|| stalled.set(stalled.get() + 1), |step| {
            step(FramePart::File { file: file.as_fd(), offset: 0, len: LEN }, Some(0))
        })
    });
    assert!(matches!(sent.unwrap_err(), Error::NotReading { .. }));
    assert!(stalled.get() > 0);
    drop(reader);
}

#[test]
fn an_unread_payload_is_skipped() {
    let (writer, mut reader) = ends(LONG);
    let sent = thread::spawn(move || {
        writer.send(header(1), b"first", FramePayload::Bytes(&pattern(300_000))).unwrap();
        writer.send(header(2), b"second", FramePayload::None).unwrap();
    });
    let mut body = Vec::new();
    reader.read_frame(&mut body).unwrap().unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
    assert_eq!(body, b"second");
    sent.join().unwrap();
}

#[test]
fn a_changed_body_or_payload_is_never_returned_as_good() {
    for (at, part) in [(FRAME_HEADER_BYTES, "body"), (FRAME_HEADER_BYTES + 4, "payload")] {
        let (a, b) = Stream::pair().unwrap();
        let frame = FrameHeader {
            body_len: 4,
            payload_len: 4,
            body_crc: crc32c(b"body"),
            payload_crc: crc32c(b"load"),
            ..header(1)
        };
        let mut bytes = [&frame.encode()[..], b"bodyload"].concat();
        bytes[at] ^= 1;
        write_raw(&a, &bytes);
        let mut reader = FrameReader::new(b, LONG).unwrap();
        let outcome = reader.read_frame(&mut Vec::new()).and_then(|_| reader.read_payload(&mut [0; 4]));
        match outcome {
            Err(Error::Checksum { part: found, .. }) => assert_eq!(found, part),
            other => panic!("{part}: {other:?}"),
        }
    }
}

#[test]
fn a_peer_of_another_version_is_distinguished_from_garbage() {
    let check = |change: &dyn Fn(&mut [u8]), expect: Reason| {
        let (a, b) = Stream::pair().unwrap();
        let mut bytes = header(1).encode();
        change(&mut bytes);
        let crc = crc32c(&bytes[..76]);
        bytes[76..].copy_from_slice(&crc.to_le_bytes());
        write_raw(&a, &bytes);
        let error = FrameReader::new(b, LONG).unwrap().read_frame(&mut Vec::new()).unwrap_err();
        assert_eq!(error.reason(), expect, "{error}");
    };
    check(&|bytes| bytes[5] = 99, Reason::WrongVersion);
    check(&|bytes| bytes[0] = b'G', Reason::BadFrame);
    check(&|bytes| bytes[4] = 9, Reason::BadFrame);
    check(&|bytes| bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes()), Reason::BadFrame);
    check(&|bytes| bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes()), Reason::BadFrame);
}

#[test]
fn a_half_frame_fails_after_its_time_and_at_the_end_of_the_connection() {
    let whole = [
        &FrameHeader { body_len: 3, body_crc: crc32c(b"abc"), payload_len: 2, payload_crc: crc32c(b"de"), ..header(1) }
            .encode()[..],
        b"abcde",
    ]
    .concat();
    for cut in [1, FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + 2, FRAME_HEADER_BYTES + 4] {
        let read = |reader: &mut FrameReader| {
            reader.read_frame(&mut Vec::new()).and_then(|_| reader.read_payload(&mut [0; 2]))
        };
        let (a, b) = Stream::pair().unwrap();
        write_raw(&a, &whole[..cut]);
        let mut reader = FrameReader::new(b, SHORT).unwrap();
        assert!(matches!(read(&mut reader), Err(Error::HalfFrame { .. })), "stuck at {cut}");

        let (a, b) = Stream::pair().unwrap();
        write_raw(&a, &whole[..cut]);
        drop(a);
        let mut reader = FrameReader::new(b, LONG).unwrap();
        assert!(matches!(read(&mut reader), Err(Error::Closed { .. })), "ended at {cut}");
    }
}

#[test]
fn a_frame_that_trickles_in_does_not_hold_its_reader_for_ever() {
    let (a, b) = Stream::pair().unwrap();
    let mut reader = FrameReader::new(b.clone(), SHORT).unwrap();
    let trickle = thread::spawn(move || {
        let bytes = FrameHeader { payload_len: 1 << 20, ..header(1) }.encode();
        write_raw(&a, &bytes);
        // Some bytes every few milliseconds, until the reader closes.
        let mut idle = FrameReader::new(a.clone(), Limits { idle: Some(Duration::from_millis(5)), ..SHORT }).unwrap();
        while rustix::io::write(&a, &[0]).is_ok() {
            let _ = idle.read_frame(&mut Vec::new());
        }
    });
    let began = mono();
    reader.read_frame(&mut Vec::new()).unwrap().unwrap();
    let error = reader.read_payload_reusing(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::HalfFrame { .. }), "{error}");
    assert!(mono().since_ns(began) < 10_000_000_000, "given up in good time");
    b.shutdown();
    trickle.join().unwrap();
}

#[test]
fn a_silent_peer_is_dropped_only_with_a_limit() {
    let (_a, b) = Stream::pair().unwrap();
    let mut reader = FrameReader::new(b.clone(), SHORT).unwrap();
    assert!(matches!(reader.read_frame(&mut Vec::new()), Err(Error::Silent { .. })));

    reader.set_limits(Limits { idle: None, ..SHORT });
    let waiting = thread::spawn(move || reader.read_frame(&mut Vec::new()).map(|frame| frame.is_none()));
    // It waits through several ticks, and ends when this end shuts the connection down.
    let mut other = FrameReader::new(Stream::pair().unwrap().0, SHORT).unwrap();
    let _ = other.read_frame(&mut Vec::new());
    assert!(!waiting.is_finished());
    b.shutdown();
    assert!(waiting.join().unwrap().unwrap());
}

#[test]
fn a_peer_that_reads_nothing_is_dropped_and_never_blocks_its_sender_for_ever() {
    let (writer, reader) = ends(SHORT);
    let payload = pattern(4 << 20);
    let error = (0..64).find_map(|id| writer.send(header(id), b"", FramePayload::Bytes(&payload)).err()).unwrap();
    assert!(matches!(error, Error::NotReading { .. }), "{error}");
    // The connection is closed for all senders: half a frame may have been sent.
    assert!(writer.send(header(99), b"", FramePayload::None).is_err());
    drop(reader);
}

#[test]
fn frames_of_many_threads_are_sent_whole() {
    let (writer, mut reader) = ends(LONG);
    let senders: Vec<_> = (0..8u64)
        .map(|id| {
            let writer = writer.clone();
            thread::spawn(move || {
                for round in 0..200 {
                    if (id + round) % 3 == 0 {
                        writer.post(header(id), &pattern(id as usize * 100)).unwrap();
                    } else {
                        writer
                            .send(header(id), &pattern(id as usize * 100), FramePayload::Bytes(&pattern(5000)))
                            .unwrap();
                    }
                }
            })
        })
        .collect();
    drop(writer);
    let (mut body, mut payload, mut counts) = (Vec::new(), Vec::new(), [0; 8]);
    for _ in 0..1600 {
        let got = reader.read_frame(&mut body).unwrap().unwrap();
        assert_eq!(body, pattern(got.request_id as usize * 100));
        let len = reader.read_payload_reusing(&mut payload).unwrap().len();
        assert!(len == 0 || len == 5000);
        counts[got.request_id as usize] += 1;
    }
    assert_eq!(counts, [200; 8]);
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn posting_never_waits_and_a_slow_reader_still_gets_everything_in_order() {
    let (writer, mut reader) = ends(LONG);
    let body = pattern(32_000);
    let began = mono();
    // About 3 MiB: more than the socket holds, less than may wait.
    for id in 0..100 {
        writer.post(header(id), &body).unwrap();
    }
    assert!(mono().since_ns(began) < 5_000_000_000);
    let mut got = Vec::new();
    for id in 0..100 {
        assert_eq!(reader.read_frame(&mut got).unwrap().unwrap().request_id, id);
        assert_eq!(got, body);
    }
}

#[test]
fn frames_posted_during_a_send_follow_it() {
    let limits = Limits { idle: Some(Duration::from_secs(2)), ..LONG };
    let (writer, mut reader) = ends(limits);
    let sending = thread::spawn({
        let writer = writer.clone();
        move || writer.send(header(1), b"", FramePayload::Bytes(&pattern(4 << 20))).unwrap()
    });
    let mut body = Vec::new();
    // Its beginning has arrived and its end cannot have: it is larger than the socket's buffer.
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 1);
    writer.post(header(2), b"posted").unwrap();
    assert!(!sending.is_finished());
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
    assert_eq!(body, b"posted");
    sending.join().unwrap();
}

#[test]
fn queued_frames_are_sent_on_release_and_not_before() {
    let (writer, mut reader) = ends(SHORT);
    let mut body = Vec::new();
    writer.hold();
    writer.post(header(1), b"one").unwrap();
    writer.post(header(2), b"two").unwrap();
    let error = reader.read_frame(&mut body).unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    writer.release().unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 1);
    assert!(reader.has_frame(), "both came at once");
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
    assert_eq!(body, b"two");
    assert!(!reader.has_frame());
    writer.release().unwrap();
    writer.post(header(3), b"three").unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 3);
    // A frame that is sent takes the held frames along.
    writer.hold();
    writer.post(header(4), b"").unwrap();
    writer.send(header(5), b"", FramePayload::Bytes(b"payload")).unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 4);
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 5);
}

#[test]
fn a_reply_batch_is_sent_at_its_end_also_by_a_panic() {
    let ((writer, mut reader), (other, mut of_other)) = (ends(SHORT), ends(SHORT));
    let mut body = Vec::new();
    frieze_net::reply_batch(3, || {
        writer.post(header(1), b"one").unwrap();
        frieze_net::reply_batch(2, || other.post(header(2), b"two").unwrap());
        writer.post(header(3), b"three").unwrap();
        let error = reader.read_frame(&mut body).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        // Frames that another thread posts meanwhile go along.
        thread::scope(|scope| drop(scope.spawn(|| writer.post(header(4), b"four").unwrap())));
    });
    for id in [1, 3, 4] {
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, id);
        assert_eq!(reader.has_frame(), id < 4, "all came at once");
    }
    assert_eq!(of_other.read_frame(&mut body).unwrap().unwrap().request_id, 2);
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        frieze_net::reply_batch(2, || {
            writer.post(header(5), b"five").unwrap();
            panic!("in the midst of it");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 5);
    writer.post(header(6), b"six").unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 6, "afterwards as ever");
    frieze_net::reply_batch(1, || {
        writer.post(header(7), b"seven").unwrap();
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 7, "one has nothing to wait for");
    });
}

#[test]
fn more_than_the_socket_takes_is_released_to_a_slow_peer_whole_and_in_order() {
    let (writer, mut reader) = ends(LONG);
    let content = pattern(40_000);
    writer.hold();
    (0..50).for_each(|id| writer.post(header(id), &content).unwrap());
    writer.release().unwrap();
    let mut body = Vec::new();
    for id in 0..50 {
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, id);
        assert!(body == content, "{id}");
    }
}

#[test]
fn frames_encoded_together_arrive_one_by_one_and_a_reader_knows_which_are_whole() {
    let (writer, mut reader) = ends(LONG);
    let mut frames = Vec::new();
    for id in 0..5u64 {
        encode_frame(header(id), &pattern(id as usize), &pattern(1000), &mut frames);
    }
    // All but the last byte of the last.
    let last = frames.pop().unwrap();
    writer.send_encoded(&frames).unwrap();
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    for id in 0..4 {
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, id);
        assert_eq!(reader.has_frame(), id < 3, "{id}: its own payload is passed over");
        assert!(*reader.read_payload_reusing(&mut payload).unwrap() == *pattern(1000));
        assert_eq!(reader.has_frame(), id < 3, "{id}");
    }
    writer.send_encoded(&[last]).unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 4);
    assert!(*reader.read_payload_reusing(&mut payload).unwrap() == *pattern(1000));
}

#[test]
fn posting_to_a_peer_that_never_reads_ends_its_connection() {
    let (writer, _reader) = ends(LONG);
    let body = pattern(1 << 20);
    let error = (0..64).find_map(|id| writer.post(header(id), &body).err()).unwrap();
    assert!(matches!(error, Error::NotReading { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_never_panic_a_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        honest in any::<bool>(),
        body_len in 0u32..300,
        payload_len in 0u32..300,
    ) {
        let (a, b) = Stream::pair().unwrap();
        if honest {
            // A valid header, so that the rest is reached.
            let body_crc = crc32c(bytes.get(..body_len as usize).unwrap_or(&[]));
            write_raw(&a, &FrameHeader { body_len, payload_len, body_crc, ..header(1) }.encode());
        }
        write_raw(&a, &bytes);
        drop(a);
        let mut reader = FrameReader::new(b, LONG).unwrap();
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        while let Ok(Some(found)) = reader.read_frame(&mut body) {
            prop_assert_eq!(body.len(), found.body_len as usize);
            if reader.read_payload_reusing(&mut payload).is_err() {
                break;
            }
        }
    }
}

#[test]
fn bytes_that_the_socket_does_not_take_at_once_are_sent_later() {
    let (writer, mut reader) = ends(LONG);
    let payload = pattern(4 << 20);
    let small = writer.begin(header(1), b"small", b"payload", None).unwrap();
    assert!(small.is_done(), "an idle socket takes a small frame");
    let large = writer.begin(header(2), b"large", &payload, Some(crc32c(&payload))).unwrap();
    assert!(!large.is_done(), "nobody has read of it, and it did not wait");
    thread::scope(|scope| {
        let finishing = scope.spawn(|| writer.finish(&large));
        let (mut body, mut buffer) = (Vec::new(), Vec::new());
        reader.read_frame(&mut body).unwrap().unwrap();
        assert_eq!(body, b"small");
        assert_eq!(&*reader.read_payload_reusing(&mut buffer).unwrap(), b"payload");
        reader.read_frame(&mut body).unwrap().unwrap();
        assert_eq!(body, b"large");
        assert!(*reader.read_payload_reusing(&mut buffer).unwrap() == payload[..]);
        finishing.join().unwrap().unwrap();
    });
}

#[test]
fn frames_are_small_until_the_peer_is_admitted() {
    let guarded = || {
        let (a, b) = Stream::pair().unwrap();
        let reader = FrameReader::guarded(b, LONG).unwrap();
        FrameReader::new(a.clone(), LONG).unwrap();
        (FrameWriter::new(a, LONG), reader)
    };
    let mut body = Vec::new();
    for (len, payload, is_fine) in
        [(0, 0, true), (HELLO_BYTES_MAX, 0, true), (HELLO_BYTES_MAX + 1, 0, false), (1 << 20, 0, false), (10, 1, false)]
    {
        let (writer, mut reader) = guarded();
        let payload = pattern(payload);
        std::thread::scope(|scope| {
            // A refused frame is not received.
            scope.spawn(|| drop(writer.send(header(1), &pattern(len), FramePayload::Bytes(&payload))));
            match reader.read_frame(&mut body) {
                Ok(found) => assert!(is_fine && found.is_some() && body == pattern(len), "{len}"),
                Err(error) => assert!(!is_fine && error.reason() == Reason::BadFrame, "{len}: {error}"),
            }
            reader.stream().shutdown();
        });
    }
    let (writer, mut reader) = guarded();
    writer.send(header(1), &pattern(100), FramePayload::None).unwrap();
    assert!(reader.read_frame(&mut body).unwrap().is_some());
    reader.admit(LONG);
    writer.send(header(2), &pattern(100_000), FramePayload::Bytes(&pattern(3))).unwrap();
    assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, 2);
    assert!(body == pattern(100_000) && *reader.read_payload_reusing(&mut Vec::new()).unwrap() == pattern(3));
}

#[test]
fn buffers_of_a_silent_peer_are_freed_once_and_no_byte_is_lost() {
    let (writer, mut reader) = ends(SHORT);
    reader.set_limits(LONG);
    let mut body = Vec::new();
    writer.send(header(1), &pattern(100_000), FramePayload::None).unwrap();
    assert!(reader.read_frame(&mut body).unwrap().is_some() && body.capacity() >= 100_000);
    let (rested, rests) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let body = &mut body;
        let reading = scope.spawn(|| {
            let found = reader.read_frame_or_rest(body, || rested.send(()).unwrap());
            found.unwrap().unwrap().request_id
        });
        rests.recv_timeout(Duration::from_secs(20)).expect("nothing comes");
        writer.send(header(2), &pattern(3000), FramePayload::None).unwrap();
        assert_eq!(reading.join().unwrap(), 2);
    });
    assert!(body == pattern(3000) && body.capacity() < 100_000, "{}", body.capacity());
    // Together more than the buffer of a silent peer.
    let mut frames = Vec::new();
    (3..20).for_each(|id| encode_frame(header(id), &pattern(1000), &pattern(10), &mut frames));
    writer.send_encoded(&frames).unwrap();
    for id in 3..20 {
        assert_eq!(reader.read_frame(&mut body).unwrap().unwrap().request_id, id);
        assert!(body == pattern(1000) && *reader.read_payload_reusing(&mut Vec::new()).unwrap() == pattern(10));
    }
}

frieze_harness::count_allocations!();

/// The checksums of the first header and of its body.
fn seal_frame(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().max(FRAME_HEADER_BYTES), 0);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let end = FRAME_HEADER_BYTES.saturating_add(word(8)).min(bytes.len());
    let crc = crc32c(&bytes[FRAME_HEADER_BYTES..end]);
    bytes[64..68].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&bytes[..76]);
    bytes[76..80].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn any_bytes_of_a_connection_are_frames_or_end_it() {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    encode_frame(header(1), b"a body", b"payload", &mut one);
    encode_frame(header(2), b"", b"", &mut two);
    let seeds = [one.clone(), [one, two].concat()];
    frieze_harness::fuzz!(frieze_harness::Inputs::from(seeds).resealed(seal_frame), |bytes: &[u8]| {
        let (far, near) = Stream::pair().unwrap();
        assert_eq!(rustix::io::write(&far, bytes), Ok(bytes.len()), "it fits the socket");
        drop(far);
        let mut reader = FrameReader::new(near, LONG).unwrap();
        let (mut body, mut read) = (Vec::new(), 0);
        while let Ok(Some(header)) = reader.read_frame(&mut body) {
            read += FRAME_HEADER_BYTES + body.len();
            assert!(body.len() == header.body_len as usize && read <= bytes.len());
        }
    });
}
