use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use frieze_disk::{SimDisk, SimTime, StateFile, TimeSource};
use frieze_hlc::{ClockSettings, Hlc, HlcClock};
use frieze_net::{FramePayload, FrameReader, Listener, SentPrefix, Stream};
use frieze_service::Conn;
use frieze_storage::{Identity, IdentityStore};
use frieze_wire::message::{HelloReply, Refusal, Reply, ReplyBody, RequestBody};
use frieze_wire::peer::{ChainPiece, ChainRecord, KeepAlive, PeerBody};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use super::link::{WAITING_BYTES_MAX, WAITING_MAX};
use super::*;

const SECRET: [u8; 32] = [5; 32];

/// A server that records the messages it receives.
struct Listening {
    address: ServerAddr,
    listener: Arc<Listener>,
    told: Receiver<(NodeId, ServerMessage, Vec<u8>)>,
    open: Arc<std::sync::Mutex<Vec<Stream>>>,
}

impl Listening {
    fn start(node: u32, secret: [u8; 32], address: &str) -> Listening {
        let listener = Arc::new(Listener::bind(&address.parse().expect("an address")).expect("listens"));
        let (send, told) = channel();
        let open = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (accepting, kept) = (listener.clone(), open.clone());
        spawn("test", move || {
            while let Ok(Some(stream)) = accepting.accept() {
                kept.lock().unwrap().push(stream.clone());
                let send = send.clone();
                spawn("test", move || drop(converse(&stream, node, secret, &send))).expect("a thread");
            }
        })
        .expect("a thread");
        Listening { address: listener.addr().clone(), listener, told, open }
    }

    /// The next message, without keep-alives.
    fn next(&self) -> (NodeId, u32, Vec<u8>) {
        loop {
            let (from, told, payload) = self.told.recv_timeout(Duration::from_secs(10)).expect("something is told");
            if !payload.is_empty() {
                let number = u32::from_le_bytes(payload[..4].try_into().expect("a number in front"));
                assert_eq!(told, ServerMessage::Alive(KeepAlive {}));
                return (from, number, payload);
            }
        }
    }

    fn stop(&self) {
        self.listener.stop();
        self.open.lock().unwrap().drain(..).for_each(|stream| stream.shutdown());
    }
}

fn converse(
    stream: &Stream,
    node: u32,
    secret: [u8; 32],
    send: &Sender<(NodeId, ServerMessage, Vec<u8>)>,
) -> Result<(), frieze_net::Error> {
    let (keys, conn) = (NodeKeys::of(secret), Conn::new(None, random_nonce()?));
    let mut reader = FrameReader::new(stream.clone(), Limits::SERVING)?;
    let writer = FrameWriter::new(stream.clone(), Limits::SERVING);
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    while let Some(header) = reader.read_frame(&mut body)? {
        let bytes = reader.read_payload_reusing(&mut payload)?.to_vec();
        if header.kind == FrameKind::Peer {
            let from = conn.node().expect("who tells has proven itself");
            let told = PeerBody::decode(body.as_slice()).expect("a message").message.expect("of a known kind");
            if send.send((from, told, bytes)).is_err() {
                break;
            }
            continue;
        }
        let server = HelloReply { node, cluster: ClusterId(7).to_string(), ..HelloReply::default() };
        let answer = match RequestBody::decode(body.as_slice()).expect("a request").request {
            Some(Request::Hello(hello)) => conn.hello(hello, &keys, server),
            Some(Request::Prove(prove)) => conn.prove(&prove, &BTreeMap::new(), &keys, server),
            other => panic!("a node asks {other:?}"),
        };
        match answer {
            Ok(reply) => {
                let body = ReplyBody { reply: Some(Reply::Hello(reply)) }.encode_to_vec();
                writer.send(FrameHeader::of(FrameKind::Reply), &body, FramePayload::None)?;
            }
            Err(fault) => {
                let body = Refusal::from(fault).encode_to_vec();
                writer.send(FrameHeader::of(FrameKind::Refusal), &body, FramePayload::None)?;
            }
        }
    }
    Ok(())
}

/// Links of node 1, and their notices.
fn links() -> (Arc<Links>, Receiver<(NodeId, bool)>) {
    let disk = SimDisk::new(1);
    let file = StateFile::open_or_create(&disk, "state").expect("a file");
    let keeper = Arc::new(IdentityStore::new(Identity::default(), file));
    let time: Arc<dyn TimeSource> = Arc::new(SimTime::new(1_000_000));
    let clock = Arc::new(NodeClock::new(HlcClock::new(ClockSettings::default(), Hlc::ZERO), time, keeper));
    let (send, noticed) = channel();
    let noticing = Box::new(move |node, stands| {
        // A test that stopped reading the notices has ended.
        let _ = send.send((node, stands));
    });
    let notices = Notices {
        link: noticing,
        removed: Box::new(|fault| panic!("nobody is removed: {fault}")),
        went_on: Box::new(|successor| panic!("the cluster has not ended: {successor:?}")),
    };
    (Links::new(NodeId(1), ClusterId(7), NodeKeys::of(SECRET), clock, notices, (Arc::default(), None, None)), noticed)
}

fn message(number: u32, len: usize) -> PeerPayload {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(len.max(4), number as u8);
    PeerPayload { bytes: Bytes::from(bytes), ..PeerPayload::none() }
}

fn wait(noticed: &Receiver<(NodeId, bool)>) -> (NodeId, bool) {
    noticed.recv_timeout(Duration::from_secs(10)).expect("a change is noticed")
}

#[test]
fn what_is_told_arrives_in_order_with_its_bytes() {
    let (one, two) = (Listening::start(2, SECRET, "127.0.0.1:0"), Listening::start(3, SECRET, "127.0.0.1:0"));
    let (links, noticed) = links();
    links.set(&[(NodeId(2), one.address.clone()), (NodeId(3), two.address.clone())].into()).expect("threads");
    let up = BTreeMap::from([wait(&noticed), wait(&noticed)]);
    assert_eq!(up, [(NodeId(2), true), (NodeId(3), true)].into());
    for number in 0..200 {
        let to = NodeId(2 + number % 2);
        links.send(to, ServerMessage::Alive(KeepAlive {}), message(number, number as usize * 100));
    }
    for number in 0..200 {
        let at = if number % 2 == 0 { &one } else { &two };
        let (from, found, payload) = at.next();
        assert_eq!((from, found, payload.len()), (NodeId(1), number, (number as usize * 100).max(4)));
    }
    links.stop();
}

#[test]
fn a_node_that_was_away_is_told_again_and_not_what_was_told_meanwhile() {
    let first = Listening::start(2, SECRET, "127.0.0.1:0");
    let (links, noticed) = links();
    links.set(&[(NodeId(2), first.address.clone())].into()).expect("threads");
    assert_eq!(wait(&noticed), (NodeId(2), true));
    first.stop();
    // The keep-alive finds the peer closed.
    assert_eq!(wait(&noticed), (NodeId(2), false));
    links.send(NodeId(2), ServerMessage::Alive(KeepAlive {}), message(1, 10));
    let again = Listening::start(2, SECRET, &first.address.to_string());
    assert_eq!(wait(&noticed), (NodeId(2), true));
    links.send(NodeId(2), ServerMessage::Alive(KeepAlive {}), message(2, 10));
    assert_eq!(again.next().1, 2);
    links.stop();
}

#[test]
fn what_several_tell_at_once_goes_in_the_order_of_each_and_whole() {
    let one = Listening::start(2, SECRET, "127.0.0.1:0");
    let (links, noticed) = links();
    links.set(&[(NodeId(2), one.address.clone())].into()).expect("threads");
    assert_eq!(wait(&noticed), (NodeId(2), true));
    // All of it together is less than may wait: a link drops what is more, where the receiver is slow.
    let (tellers, each) = (3, 40);
    assert!(tellers as usize * each as usize * 450_000 < WAITING_BYTES_MAX);
    std::thread::scope(|scope| {
        for teller in 0..tellers {
            let links = &links;
            scope.spawn(move || {
                for number in 0..each {
                    // More than a socket takes at once, and less.
                    let payload = message(teller * 1000 + number, number as usize % 4 * 300_000);
                    match number % 3 {
                        0 => links.send(NodeId(2), ServerMessage::Alive(KeepAlive {}), payload),
                        _ => links.queue(NodeId(2), ServerMessage::Alive(KeepAlive {}), payload),
                    }
                    links.go();
                }
            });
        }
        let mut next = vec![0; tellers as usize];
        for _ in 0..tellers * each {
            let (_, found, payload) = one.next();
            let (teller, number) = (found / 1000, found % 1000);
            assert_eq!((number, payload.len()), (next[teller as usize], (number as usize % 4 * 300_000).max(4)));
            assert!(payload[4..].iter().all(|byte| *byte == found as u8), "the bytes of message {found}");
            next[teller as usize] += 1;
        }
    });
    links.stop();
}

#[test]
fn a_queued_message_is_sent_by_its_own_thread_as_far_as_the_socket_takes_it() {
    let (links, _noticed) = links();
    let link = PeerLink::new(NodeId(2), Lane::Bytes, "127.0.0.1:1".parse().expect("an address"), None);
    let (near, far) = Stream::pair().expect("sockets");
    let mut reader = FrameReader::new(far, Limits::SERVING).expect("a reader");
    FrameReader::new(near.clone(), SENDING).expect("ticks");
    let writer = FrameWriter::new(near, SENDING);
    let send = |number, len| {
        link.enqueue(ServerMessage::Alive(KeepAlive {}), message(number, len));
        links.sender.send_some(&link);
    };
    send(0, 10);
    assert_eq!(link.queue.lock().messages.len(), 1, "there is no connection yet");
    link.open(&writer);
    send(1, 10);
    send(2, 4 << 20);
    send(3, 10);
    {
        let waiting = link.queue.lock();
        assert!(waiting.partial.is_some() && !waiting.is_sending, "nobody reads, and nobody waits for that");
        assert_eq!(waiting.messages.len(), 1, "what comes behind half a message waits for the rest of it");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| links.send_all(&link, &writer));
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        for number in 0..4u32 {
            reader.read_frame(&mut body).expect("a frame").expect("a frame");
            let bytes = reader.read_payload_reusing(&mut payload).expect("its bytes");
            assert_eq!(bytes[..4], number.to_le_bytes());
            assert!(bytes[4..].iter().all(|byte| *byte == number as u8));
        }
        link.end();
        thread.join().expect("it ended").expect("nothing failed");
    });
}

/// A connection of a link that has no thread, and what is read at its other end.
struct TestLink {
    links: Arc<Links>,
    link: Arc<PeerLink>,
    reader: FrameReader,
}

impl TestLink {
    fn new() -> TestLink {
        let (links, _noticed) = links();
        let link = Arc::new(PeerLink::new(NodeId(2), Lane::Bytes, "127.0.0.1:1".parse().expect("an address"), None));
        let (near, far) = Stream::pair().expect("sockets");
        let reader = FrameReader::new(far, Limits::SERVING).expect("a reader");
        FrameReader::new(near.clone(), SENDING).expect("ticks");
        link.open(&FrameWriter::new(near, SENDING));
        links.for_bytes.write().push(link.clone());
        TestLink { links, link, reader }
    }

    fn next(&mut self) -> (ServerMessage, Vec<u8>) {
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        self.reader.read_frame(&mut body).expect("a frame").expect("a frame");
        let told = PeerBody::decode(body.as_slice()).expect("a message").message.expect("of a known kind");
        let bytes = self.reader.read_payload_unchecked(&mut payload).expect("its bytes").to_vec();
        (told, bytes)
    }

    fn tell_record(&self, bytes: &Bytes, ahead: Arc<EarlyPayload>) {
        let payload = PeerPayload { bytes: bytes.clone(), crc: Some(5), ahead: Some(SentPrefix::of(ahead)) };
        self.link.enqueue(ServerMessage::ChainRecord(ChainRecord { n: 9, ..ChainRecord::default() }), payload);
        self.links.sender.send_some(&self.link);
    }
}

#[test]
fn a_record_whose_beginning_went_ahead_has_the_rest_beside_it() {
    let mut line = TestLink::new();
    let bytes = message(7, 1 << 20).bytes;
    let going = line.links.send_early(NodeId(2), ChainId(3), bytes.len()).expect("it sets off");
    going.send_arrived(&bytes[..1000]);
    going.send_arrived(&bytes[..300_000]);
    going.send_arrived(&bytes);
    line.tell_record(&bytes, going);
    let (told, piece) = line.next();
    let ServerMessage::ChainPiece(ChainPiece { chain: 3, ahead, len: 0x10_0000 }) = told else { panic!("{told:?}") };
    assert!(piece == bytes[..300_000], "too little is not worth a message, and the last piece goes with the record");
    let (told, rest) = line.next();
    let ServerMessage::ChainRecord(record) = told else { panic!("{told:?}") };
    assert_eq!((record.n, record.ahead, record.crc), (9, ahead, 5));
    assert!(rest == bytes[300_000..]);
}

#[test]
fn over_another_connection_a_record_goes_whole() {
    let mut line = TestLink::new();
    let bytes = message(7, 1 << 20).bytes;
    let other = TestLink::new();
    let going = other.links.send_early(NodeId(2), ChainId(3), bytes.len()).expect("it sets off");
    going.send_arrived(&bytes[..300_000]);
    line.tell_record(&bytes, going);
    let (told, whole) = line.next();
    let ServerMessage::ChainRecord(record) = told else { panic!("{told:?}") };
    assert_eq!((record.ahead, record.crc), (0, 0));
    assert!(whole == bytes);
}

#[test]
fn what_went_ahead_of_no_record_is_told_to_be_forgotten() {
    let mut line = TestLink::new();
    let bytes = message(7, 1 << 20).bytes;
    let going = line.links.send_early(NodeId(2), ChainId(3), bytes.len()).expect("it sets off");
    going.send_arrived(&bytes[..300_000]);
    drop(going);
    line.links.sender.send_some(&line.link);
    let (ServerMessage::ChainPiece(piece), _) = line.next() else { panic!("a piece") };
    assert_eq!(line.next(), (ServerMessage::ChainPiece(ChainPiece { len: 0, ..piece }), Vec::new()));
    // Nothing went: there is nothing to forget.
    drop(line.links.send_early(NodeId(2), ChainId(3), bytes.len()));
    assert!(line.link.queue.lock().messages.is_empty());
}

#[test]
fn no_more_payloads_go_ahead_than_the_limit() {
    let line = TestLink::new();
    let send_early = || line.links.send_early(NodeId(2), ChainId(3), 1 << 20);
    let mut going: Vec<Arc<EarlyPayload>> = (0..AHEAD_MAX).map(|_| send_early().expect("it sets off")).collect();
    assert!(send_early().is_none());
    going.pop();
    assert!(send_early().is_some());
    // Messages that wait when the connection ends are dropped while the link's lock is free.
    line.tell_record(&Bytes::from_static(b"bytes"), going.pop().expect("one of them"));
    line.link.close();
    line.link.enqueue(
        ServerMessage::Alive(KeepAlive {}),
        PeerPayload { ahead: going.pop().map(|one| SentPrefix::of(one)), ..PeerPayload::none() },
    );
    line.link.set_accepting(false);
    assert!(send_early().is_none(), "there is no connection");
}

#[test]
fn who_finds_a_connection_broken_by_telling_has_it_noticed() {
    let one = Listening::start(2, SECRET, "127.0.0.1:0");
    let (links, noticed) = links();
    links.set(&[(NodeId(2), one.address.clone())].into()).expect("threads");
    assert_eq!(wait(&noticed), (NodeId(2), true));
    one.stop();
    let mut number = 0;
    let told = loop {
        match noticed.try_recv() {
            Ok(change) => break change,
            Err(_) => {
                number += 1;
                links.queue(NodeId(2), ServerMessage::Alive(KeepAlive {}), message(number, 1000));
                links.go();
                std::thread::yield_now();
            }
        }
    };
    assert_eq!(told, (NodeId(2), false));
    let again = Listening::start(2, SECRET, &one.address.to_string());
    assert_eq!(wait(&noticed), (NodeId(2), true));
    links.send(NodeId(2), ServerMessage::Alive(KeepAlive {}), message(1_000_000, 10));
    links.go();
    assert_eq!(again.next().1, 1_000_000);
    links.stop();
}

#[test]
fn who_holds_another_secret_or_is_another_node_is_told_nothing() {
    let (stranger, third) = (Listening::start(2, [6; 32], "127.0.0.1:0"), Listening::start(3, SECRET, "127.0.0.1:0"));
    let (links, noticed) = links();
    links.set(&[(NodeId(2), stranger.address.clone())].into()).expect("threads");
    links.set(&[(NodeId(2), third.address.clone())].into()).expect("threads");
    links.set(&[(NodeId(3), third.address.clone())].into()).expect("threads");
    // The third has the number that the link expects.
    assert_eq!(wait(&noticed), (NodeId(3), true));
    links.stop();
    assert!(stranger.told.try_recv().is_err(), "the stranger has heard something");
    assert_eq!(noticed.try_iter().filter(|(node, _)| *node == NodeId(2)).count(), 0);
}

#[test]
fn what_waits_for_a_node_is_bounded() {
    // It takes a connection and reads nothing.
    let deaf = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).expect("listens");
    let link = PeerLink::new(NodeId(2), Lane::Bytes, deaf.addr().clone(), None);
    let payload = message(0, 1 << 20);
    for _ in 0..200 {
        link.send(ServerMessage::Alive(KeepAlive {}), payload.clone());
    }
    {
        let waiting = link.queue.lock();
        assert!(waiting.bytes <= WAITING_BYTES_MAX && waiting.bytes > WAITING_BYTES_MAX / 2);
        assert_eq!(waiting.lost + waiting.messages.len() as u64, 200);
    }
    link.set_accepting(false);
    for _ in 0..2 * WAITING_MAX {
        link.send(ServerMessage::Alive(KeepAlive {}), PeerPayload::none());
    }
    assert_eq!(link.queue.lock().messages.len(), 0, "nothing is kept for a node that is away");
    link.set_accepting(true);
    for _ in 0..2 * WAITING_MAX {
        link.send(ServerMessage::Alive(KeepAlive {}), PeerPayload::none());
    }
    assert_eq!(link.queue.lock().messages.len(), WAITING_MAX);
}

#[test]
fn stopping_ends_every_connection_and_its_thread() {
    let one = Listening::start(2, SECRET, "127.0.0.1:0");
    let (links, noticed) = links();
    links.set(&[(NodeId(2), one.address.clone()), (NodeId(3), one.address.clone())].into()).expect("threads");
    assert_eq!(wait(&noticed), (NodeId(2), true));
    links.stop();
    assert_eq!(wait(&noticed), (NodeId(2), false));
    links.send(NodeId(2), ServerMessage::Alive(KeepAlive {}), message(1, 10));
}

#[test]
fn a_node_that_is_heard_is_tried_again_at_once() {
    let link = Arc::new(PeerLink::new(NodeId(2), Lane::Orders, "127.0.0.1:1".parse().expect("an address"), None));
    // Before: it counts for nothing.
    link.on_contact();
    assert!(!link.await_retry(Duration::from_millis(1)));
    let resting = link.clone();
    let rest = std::thread::spawn(move || resting.await_retry(Duration::from_secs(3600)));
    while !rest.is_finished() {
        link.on_contact();
        std::thread::yield_now();
    }
    assert!(rest.join().expect("it rested"));
}
