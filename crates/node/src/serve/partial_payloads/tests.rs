use frieze_net::{FramePayload, FrameWriter, Limits, Stream};
use frieze_wire::frame::FrameKind;

use super::*;

/// A connection, and what has come over it.
struct TestConnection {
    writer: FrameWriter,
    reader: FrameReader,
    pieces: PartialPayloads,
    pool: Arc<BufferPool>,
}

impl TestConnection {
    fn new() -> TestConnection {
        let (near, far) = Stream::pair().expect("sockets");
        FrameReader::new(near.clone(), Limits::SERVING).expect("ticks");
        let reader = FrameReader::new(far, Limits::SERVING).expect("a reader");
        let writer = FrameWriter::new(near, Limits::SERVING);
        TestConnection { writer, reader, pieces: PartialPayloads::default(), pool: Arc::default() }
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        self.writer.send(FrameHeader::of(FrameKind::Peer), b"told", FramePayload::Bytes(bytes)).expect("it is sent");
        self.reader.read_frame(&mut Vec::new()).expect("a frame").expect("a frame").payload_len as usize
    }

    fn piece(&mut self, ahead: u64, len: u32, bytes: &[u8]) -> Result<(), PayloadError> {
        let sent = self.send(bytes);
        let piece = ChainPiece { chain: 1, ahead, len };
        self.pieces.take(&self.pool, |_, _| None, &mut self.reader, &piece, sent)
    }

    fn record(&mut self, ahead: u64, bytes: &[u8]) -> Result<Option<WholePayload>, PayloadError> {
        let sent = self.send(bytes);
        let record = ChainRecord { ahead, ..ChainRecord::default() };
        self.pieces.finish(&self.pool, &mut self.reader, &record, sent)
    }
}

fn whole(found: Result<Option<WholePayload>, PayloadError>) -> Option<Bytes> {
    found.ok().expect("they fit together").map(|whole| whole.bytes)
}

#[test]
fn pieces_of_several_payloads_become_what_they_were() {
    let mut line = TestConnection::new();
    for (ahead, bytes) in [(7, &b"one"[..]), (8, b"ONE,"), (7, b", two"), (8, b"TWO")] {
        line.piece(ahead, 11, bytes).ok().expect("it fits");
    }
    assert_eq!(whole(line.record(8, b",333")).as_deref(), Some(&b"ONE,TWO,333"[..]));
    assert_eq!(whole(line.record(7, b", 3")).as_deref(), Some(&b"one, two, 3"[..]));
}

#[test]
fn a_record_without_its_pieces_is_lost_and_the_next_is_not() {
    let mut line = TestConnection::new();
    assert_eq!(whole(line.record(7, b"rest")), None);
    line.piece(8, 6, b"one").ok().expect("it fits");
    line.piece(8, 0, b"").ok().expect("it is forgotten");
    assert_eq!(whole(line.record(8, b"two")), None);
    line.piece(9, 6, b"one").ok().expect("it fits");
    assert_eq!(whole(line.record(9, b"two")).as_deref(), Some(&b"onetwo"[..]));
}

#[test]
fn what_does_not_fit_together_ends_the_connection() {
    let refused = |line: &mut TestConnection, ahead, len, bytes: &[u8]| {
        assert!(matches!(line.piece(ahead, len, bytes), Err(PayloadError::Malformed(_))));
    };
    refused(&mut TestConnection::new(), 1, PAYLOAD_BYTES_MAX + 1, b"one");
    refused(&mut TestConnection::new(), 1, 2, b"one");
    refused(&mut TestConnection::new(), 1, 2, b"");
    let mut line = TestConnection::new();
    line.piece(1, 6, b"one").ok().expect("it fits");
    refused(&mut line, 1, 7, b"two");
    let mut line = TestConnection::new();
    line.piece(1, 6, b"one").ok().expect("it fits");
    assert!(matches!(line.record(1, b"tw"), Err(PayloadError::Malformed(_))));
}

#[test]
fn what_comes_ahead_is_bounded() {
    let mut line = TestConnection::new();
    for ahead in 1..=100 {
        line.piece(ahead, 6, b"one").ok().expect("it fits, or is passed over");
    }
    assert_eq!(line.pieces.0.len(), AHEAD_MAX + 1);
    assert_eq!(whole(line.record(3, b"two")).as_deref(), Some(&b"onetwo"[..]));
    assert_eq!(whole(line.record(100, b"two")), None);
}
