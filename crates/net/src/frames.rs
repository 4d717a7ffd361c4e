//! Frames over a stream: one vectored write out, checked bytes in.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{CRC32C_BEHIND, Crc, MonoTime, crc32c};
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader};
use rustix::net::{RecvFlags, SendFlags};

use crate::eager::Eager;
use crate::{Error, Stream, mono, together};

/// How long one end waits for the other.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until a frame begins; `None` waits for ever (a client that has nothing to ask).
    pub idle: Option<Duration>,
    /// For a frame, once begun, to be complete; and for a frame to be taken by the peer.
    pub frame: Duration,
}

impl Limits {
    /// While a connection shakes hands: everything within 10 s.
    pub const HANDSHAKE: Limits = Limits { idle: Some(Duration::from_secs(10)), frame: Duration::from_secs(10) };
    /// A server afterwards: idle as long as it likes, a frame within 30 s.
    pub const SERVING: Limits = Limits { idle: None, frame: Duration::from_secs(30) };
}

/// What follows the body of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// These bytes; their checksum is taken here.
    Bytes(&'a [u8]),
    /// These pieces one after the other, whose checksum the caller knows (combined from those of stored blocks).
    Checked {
        /// The pieces.
        pieces: &'a [&'a [u8]],
        /// CRC32C of all of them.
        crc: u32,
    },
}

/// A part of a payload that is brought step by step.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// What a file holds, that nobody here looks at: the system hands it on.
    File {
        /// The file.
        file: BorrowedFd<'a>,
        /// Where in it, in bytes.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
}

impl Part<'_> {
    /// Bytes of it.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::File { len, .. } => *len,
        }
    }
}

/// Receives frames. Owned by the one thread that reads the connection.
#[derive(Debug)]
pub struct FrameReader {
    stream: Stream,
    limits: Limits,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Payload of the last frame that was not taken yet.
    pending: usize,
    pending_crc: u32,
    /// How the first bytes of a frame are waited for.
    eager: Eager,
    /// When the frame being received began; taken only when it needs more than one receive.
    began: Option<MonoTime>,
    /// The last frame was a small one: the next receive takes in as many as there are.
    is_small: bool,
}

impl FrameReader {
    /// Reads from `stream` within `limits`. Sets the timeouts of the stream, those of its writer included.
    ///
    /// # Errors
    /// `Broken` if the socket is no more.
    pub fn new(stream: Stream, limits: Limits) -> Result<FrameReader, Error> {
        let shortest = limits.idle.unwrap_or(limits.frame).min(limits.frame);
        // A wait is looked at eight times: it may last an eighth longer, and an idle connection costs little.
        let tick = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(4));
        stream.set_ticks(tick, tick).map_err(|source| broken(&stream, "receiving", source))?;
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Ok(FrameReader {
            stream,
            limits,
            buffer,
            start: 0,
            end: 0,
            pending: 0,
            pending_crc: 0,
            eager: Eager::default(),
            began: None,
            is_small: false,
        })
    }

    /// Changes the limits for the frames to come; the granularity of waiting stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The connection.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// True if the next frame is here as a whole: reading it does not wait.
    pub fn has_frame(&self) -> bool {
        let here = &self.buffer[self.start..self.end];
        let Some(first) = here.get(self.pending..).and_then(|next| next.first_chunk::<FRAME_HEADER_BYTES>()) else {
            return false;
        };
        // What is malformed is told when it is read.
        FrameHeader::decode(first).is_ok_and(|header| {
            let len = FRAME_HEADER_BYTES + header.body_len as usize + header.payload_len as usize;
            here.len() - self.pending >= len
        })
    }

    /// Receives a header and its body, which replaces what `body` held; `None` if the peer ended the connection between
    /// two frames. The payload, if the header names one, is to be taken by [`FrameReader::read_payload`] or
    /// [`FrameReader::read_payload_reusing`] before the next frame; else the next call passes over it.
    ///
    /// # Errors
    /// `Silent` if no frame began within the idle limit, `HalfFrame`, `Closed`, `Frame`, `Checksum`. All end the
    /// connection; after `Frame` tell the peer why before closing.
    pub fn read_frame(&mut self, body: &mut Vec<u8>) -> Result<Option<FrameHeader>, Error> {
        self.skip_payload()?;
        body.clear();
        self.began = None;
        if self.start == self.end && !self.await_first_bytes()? {
            return Ok(None);
        }
        while self.end - self.start < FRAME_HEADER_BYTES {
            self.receive_more()?;
        }
        let mut bytes = [0u8; FRAME_HEADER_BYTES];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + FRAME_HEADER_BYTES]);
        self.start += FRAME_HEADER_BYTES;
        let header =
            FrameHeader::decode(&bytes).map_err(|fault| Error::Frame { peer: self.stream.peer().to_owned(), fault })?;
        self.read_body(&header, body)?;
        self.pending = header.payload_len as usize;
        self.pending_crc = header.payload_crc;
        self.is_small = self.pending < LARGE_LOOK_BYTES;
        Ok(Some(header))
    }

    /// Receives the payload of the frame just read straight into `into`.
    ///
    /// # Errors
    /// As [`FrameReader::read_frame`]. After `Checksum` the bytes in `into` are worthless.
    ///
    /// # Panics
    /// If `into` is not exactly as long as the header's `payload_len`, or the payload was taken already.
    pub fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        assert_eq!(into.len(), self.pending, "the payload's length is that of the header");
        let mut crc = Crc::default();
        self.receive_all(into, &mut crc)?;
        self.pending = 0;
        check(&self.stream, "payload", self.pending_crc, crc.value())
    }

    /// As [`FrameReader::read_payload`], of a payload whose last 4 bytes are the checksum of those before them.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`].
    ///
    /// # Panics
    /// If `into` is not 4 bytes shorter than the header's `payload_len`, or the payload was taken already.
    pub fn read_payload_before_crc(&mut self, into: &mut [u8]) -> Result<(), Error> {
        assert_eq!(into.len() + CRC_BYTES, self.pending, "the payload's length is that of the header");
        let mut crc = Crc::default();
        self.receive_all(into, &mut crc)?;
        self.receive_all(&mut [0; CRC_BYTES], &mut crc)?;
        self.pending = 0;
        check(&self.stream, "payload", self.pending_crc, crc.value())
    }

    fn receive_all(&mut self, into: &mut [u8], crc: &mut Crc) -> Result<(), Error> {
        let mut filled = 0;
        while filled < into.len() {
            let count = self.receive_payload(&mut into[filled..])?;
            // Piece by piece while it is in the cache, and while the peer sends the next.
            crc.update(&into[filled..filled + count]);
            filled += count;
        }
        Ok(())
    }

    /// Receives the payload of the frame just read into `buffer`, which only ever grows, and as bytes arrive: a peer
    /// that promises 4 MiB and sends nothing costs nothing. Used again and again it stays in the cache.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`].
    pub fn read_payload_reusing<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Result<&'a mut [u8], Error> {
        let len = self.pending;
        let expected = self.pending_crc;
        let mut crc = Crc::default();
        self.receive_reusing(buffer, |bytes| crc.update(bytes))?;
        check(&self.stream, "payload", expected, crc.value())?;
        Ok(&mut buffer[..len])
    }

    /// As [`FrameReader::read_payload_reusing`], but the checksum is left to the caller, who takes those of the blocks it
    /// stores anyway: one pass over the bytes instead of two.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`], without `Checksum`.
    pub fn read_payload_unchecked<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Result<&'a mut [u8], Error> {
        let len = self.pending;
        self.receive_reusing(buffer, |_| {})?;
        Ok(&mut buffer[..len])
    }

    /// As [`FrameReader::read_payload_unchecked`], behind what the first `at` bytes of `buffer` hold already. Whenever more has come
    /// `so_far` is shown everything from the beginning of `buffer` on.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`], without `Checksum`.
    ///
    /// # Panics
    /// If `buffer` does not hold so many.
    pub fn read_payload_behind(
        &mut self,
        buffer: &mut Vec<u8>,
        at: usize,
        mut so_far: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        assert!(at <= buffer.len(), "{at} bytes of {}", buffer.len());
        let end = at + self.pending;
        let mut filled = at;
        while filled < end {
            if filled == buffer.len() {
                buffer.resize(end.min(filled + GROW_BYTES), 0);
            }
            let room = buffer.len().min(end);
            filled += self.receive_payload(&mut buffer[filled..room])?;
            so_far(&buffer[..filled]);
        }
        self.pending = 0;
        Ok(())
    }

    fn receive_reusing(&mut self, buffer: &mut Vec<u8>, mut seen: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut shown = 0;
        self.read_payload_behind(buffer, 0, |so_far| seen(&so_far[std::mem::replace(&mut shown, so_far.len())..]))
    }

    /// Waits until the next frame begins, or the connection ends: reading it tells. False if neither has happened after `limit`:
    /// it may be waited for again.
    ///
    /// # Errors
    /// As [`FrameReader::read_frame`], without `Silent`.
    pub fn await_frame(&mut self, limit: Duration) -> Result<bool, Error> {
        if self.pending > 0 || self.start < self.end {
            return Ok(true);
        }
        (self.start, self.end) = (0, 0);
        let FrameReader { stream, buffer, eager, is_small, .. } = &mut *self;
        let room = if *is_small { BUFFER_BYTES } else { LARGE_LOOK_BYTES };
        let buffer = RefCell::new(&mut buffer[..room]);
        let receive = || stream.receive(&mut buffer.borrow_mut(), RecvFlags::DONTWAIT);
        let look = || match receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        };
        // The ticks of the stream may be longer than the limit.
        match eager.wait(look, || if stream.await_readable(limit)? { receive() } else { Err(WOULD_BLOCK.into()) }) {
            Ok(count) => {
                self.end = count;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
            Err(source) => Err(broken(&self.stream, "receiving", source)),
        }
    }

    /// Waits for the first bytes of a frame; false if the peer ended the connection.
    fn await_first_bytes(&mut self) -> Result<bool, Error> {
        let mut waiting_since = None;
        (self.start, self.end) = (0, 0);
        loop {
            let FrameReader { stream, buffer, eager, is_small, .. } = &mut *self;
            let room = if *is_small { BUFFER_BYTES } else { LARGE_LOOK_BYTES };
            let buffer = RefCell::new(&mut buffer[..room]);
            let look = || match stream.receive(&mut buffer.borrow_mut(), RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                done => Some(done),
            };
            let received = eager.wait(look, || stream.receive(&mut buffer.borrow_mut(), RecvFlags::empty()));
            match received {
                Ok(count) => {
                    self.end = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(idle) = self.limits.idle else { continue };
                    // The first tick has passed unmeasured: at most an eighth of the limit.
                    let since = *waiting_since.get_or_insert_with(mono);
                    let waited = Duration::from_nanos(mono().since_ns(since));
                    if waited >= idle {
                        return Err(Error::Silent { peer: self.stream.peer().to_owned(), waited: idle });
                    }
                }
                // A peer that was killed with bytes on their way resets the connection: between frames that is an end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(source) => return Err(broken(&self.stream, "receiving", source)),
            }
        }
    }

    /// Receives what is there behind the buffered bytes.
    fn receive_more(&mut self) -> Result<(), Error> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = self.end;
        self.end += receive(&self.stream, &self.limits, &mut self.began, &mut self.buffer[end..])?;
        Ok(())
    }

    fn read_body(&mut self, header: &FrameHeader, body: &mut Vec<u8>) -> Result<(), Error> {
        let len = header.body_len as usize;
        if len <= BUFFER_BYTES {
            while self.end - self.start < len {
                self.receive_more()?;
            }
            body.extend_from_slice(&self.buffer[self.start..self.start + len]);
            self.start += len;
        } else {
            body.extend_from_slice(&self.buffer[self.start..self.end]);
            (self.start, self.end) = (0, 0);
            let mut filled = body.len();
            while filled < len {
                if filled == body.len() {
                    body.resize(len.min(filled + GROW_BYTES), 0);
                }
                filled += receive(&self.stream, &self.limits, &mut self.began, &mut body[filled..])?;
            }
        }
        check(&self.stream, "body", header.body_crc, crc32c(body))
    }

    /// Some bytes of the payload: what is buffered, else straight from the socket.
    fn receive_payload(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let buffered = self.end - self.start;
        if buffered > 0 {
            let count = buffered.min(into.len());
            into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            return Ok(count);
        }
        // Of a small payload the sender is done before anybody could be in its way.
        let large = |left: usize| if left >= LARGE_BYTES { left } else { 0 };
        self.stream.expect(large(into.len()));
        let received = receive(&self.stream, &self.limits, &mut self.began, into);
        self.stream.expect(large(into.len() - received.as_ref().map_or(into.len(), |count| *count)));
        received
    }

    fn skip_payload(&mut self) -> Result<(), Error> {
        let mut left = std::mem::take(&mut self.pending);
        while left > 0 {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
                self.receive_more()?;
            }
            let count = left.min(self.end - self.start);
            self.start += count;
            left -= count;
        }
        Ok(())
    }
}

/// Receives at least a byte of a frame that has begun.
fn receive(stream: &Stream, limits: &Limits, began: &mut Option<MonoTime>, into: &mut [u8]) -> Result<usize, Error> {
    loop {
        let now = mono();
        let began = *began.get_or_insert(now);
        if now.since_ns(began) >= limits.frame.as_nanos() as u64 {
            return Err(Error::HalfFrame { peer: stream.peer().to_owned(), limit: limits.frame });
        }
        match stream.receive(into, RecvFlags::empty()) {
            Ok(0) => return Err(Error::Closed { peer: stream.peer().to_owned() }),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(source) => return Err(broken(stream, "receiving", source)),
        }
    }
}

fn check(stream: &Stream, part: &'static str, expected: u32, found: u32) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Checksum { peer: stream.peer().to_owned(), part, expected, found })
}

fn broken(stream: &Stream, doing: &'static str, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Closed { peer: stream.peer().to_owned() },
        _ => Error::Broken { peer: stream.peer().to_owned(), doing, source },
    }
}

/// Sends frames. Cheap to clone and shared between threads: frames go out whole, one after the other.
#[derive(Clone, Debug)]
pub struct FrameWriter(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    stream: Stream,
    limit: Duration,
    turn: Mutex<()>,
    /// Whole frames that did not go out at once; see [`FrameWriter::post`].
    posted: Mutex<Posted>,
}

#[derive(Debug, Default)]
struct Posted {
    bytes: Vec<u8>,
    /// More will be posted in a moment, and goes out together.
    is_held: bool,
    /// A thread is sending what is posted, or is about to.
    has_sender: bool,
}

/// A frame on its way, some of which may not have gone out yet.
#[derive(Debug)]
pub struct Begun<P> {
    head: Vec<u8>,
    payload: P,
    sent: usize,
}

impl<P: AsRef<[u8]>> Begun<P> {
    /// True if all of it has gone out.
    pub fn is_done(&self) -> bool {
        self.sent == self.head.len() + self.payload.as_ref().len()
    }

    /// The same with its payload elsewhere.
    pub fn map<Q: AsRef<[u8]>>(self, kept: impl FnOnce(P) -> Q) -> Begun<Q> {
        Begun { head: self.head, payload: kept(self.payload), sent: self.sent }
    }

    fn left(&self) -> [IoSlice<'_>; 2] {
        let of_payload = self.sent.saturating_sub(self.head.len());
        [IoSlice::new(&self.head[self.sent.min(self.head.len())..]), IoSlice::new(&self.payload.as_ref()[of_payload..])]
    }
}

impl FrameWriter {
    /// Writes to `stream`. A peer that has not taken a frame within `limits.frame` loses its connection.
    ///
    /// The socket's timeouts are those that the connection's [`FrameReader`] has set: make it first.
    pub fn new(stream: Stream, limits: Limits) -> FrameWriter {
        FrameWriter(Arc::new(Writing {
            stream,
            limit: limits.frame,
            turn: Mutex::new(()),
            posted: Mutex::new(Posted::default()),
        }))
    }

    /// The connection.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Sends a frame: `header` with lengths and checksums filled in, `body`, `payload`, in one vectored write if the
    /// socket takes it. Waits for its turn and for the peer to take it.
    ///
    /// # Errors
    /// `Closed`, `Broken`, `NotReading`. The connection is shut down then, because half a frame may have gone out.
    ///
    /// # Panics
    /// If the body or payload is longer than a frame may hold.
    pub fn send(&self, header: FrameHeader, body: &[u8], payload: Payload<'_>) -> Result<(), Error> {
        let turn = lock(&self.0.turn);
        let sent = self.send_posted().and_then(|()| self.send_in_turn(header, body, payload));
        drop(turn);
        // What was posted while this frame held the turn found it taken: it is sent here.
        let sent = sent.and_then(|()| self.send_left());
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends as much of a frame as the socket takes at once, and never waits. What is left of it goes out by
    /// [`FrameWriter::finish`]; until then nothing else may be sent on the connection. `crc`: the payload's checksum, if it is known.
    ///
    /// # Errors
    /// `Closed` or `Broken`. The connection is shut down then.
    ///
    /// # Panics
    /// If the body or payload is longer than a frame may hold.
    pub fn begin<P: AsRef<[u8]>>(
        &self,
        header: FrameHeader,
        body: &[u8],
        payload: P,
        crc: Option<u32>,
    ) -> Result<Begun<P>, Error> {
        let bytes = payload.as_ref();
        let payload_crc = if bytes.is_empty() { 0 } else { crc.unwrap_or_else(|| crc32c(bytes)) };
        let mut head = filled(header, body, bytes.len(), payload_crc).encode().to_vec();
        head.extend_from_slice(body);
        let mut begun = Begun { head, payload, sent: 0 };
        let _turn = lock(&self.0.turn);
        while !begun.is_done() {
            match self.send_at_once(&begun.left())? {
                0 => break,
                count => begun.sent += count,
            }
        }
        Ok(begun)
    }

    /// Sends what is left of a frame, and waits as [`FrameWriter::send`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::send`].
    pub fn finish<P: AsRef<[u8]>>(&self, begun: &Begun<P>) -> Result<(), Error> {
        let turn = lock(&self.0.turn);
        let sent = self.send_all(&mut begun.left());
        drop(turn);
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends a frame whose payload of `len` bytes is not in memory as a whole: `fill` brings it piece by piece, and with the
    /// last the checksum of all, which goes behind them ([`FrameReader::read_payload_before_crc`]). What is small is still in
    /// the cache of the core when it is sent, and the peer takes it while the next is read. Other frames wait meanwhile. `stalled` is
    /// called when the peer has taken nothing for a moment, before it is waited for as long as it may take.
    ///
    /// # Errors
    /// As [`FrameWriter::send`], and what `fill` fails with. The connection is shut down then.
    ///
    /// # Panics
    /// If `fill` brings more bytes than it promised, or fewer without failing, or the checksum with any but the last.
    pub fn send_in_steps<E: From<Error>>(
        &self,
        header: FrameHeader,
        body: &[u8],
        len: usize,
        stalled: &dyn Fn(),
        fill: impl FnOnce(&mut dyn FnMut(Part<'_>, Option<u32>) -> Result<(), Error>) -> Result<(), E>,
    ) -> Result<(), E> {
        let turn = lock(&self.0.turn);
        let header = filled(header, body, len + CRC_BYTES, CRC32C_BEHIND).encode();
        let (mut left, mut head, mut room) = (len, Some([header.as_slice(), body]), 0);
        let mut step = |part: Part<'_>, crc: Option<u32>| -> Result<(), Error> {
            assert!(part.len() <= left, "more than the {len} bytes that were promised");
            left -= part.len();
            assert_eq!(left == 0, crc.is_some(), "the checksum comes with the last of {len} bytes");
            let [header, body] = head.take().unwrap_or_default();
            let behind = crc.map(u32::to_le_bytes);
            let (behind, more) = match &behind {
                Some(crc) => (crc.as_slice(), SendFlags::empty()),
                None => (&[][..], SendFlags::MORE),
            };
            match part {
                Part::Bytes(bytes) => {
                    let pieces = [header, body, bytes, behind];
                    self.send_until_stalled(&mut pieces.map(IoSlice::new), more, stalled)
                }
                Part::File { file, offset, len } => {
                    self.send_until_stalled(&mut [header, body].map(IoSlice::new), SendFlags::MORE, stalled)?;
                    self.hand_on(file, offset, len, &mut room, stalled)?;
                    self.send_until_stalled(&mut [IoSlice::new(behind)], more, stalled)
                }
            }
        };
        let sent = self.send_posted().map_err(E::from).and_then(|()| fill(&mut step));
        assert!(sent.is_err() || left == 0, "{left} of {len} bytes are missing");
        drop(turn);
        let sent = sent.and_then(|()| Ok(self.send_left()?));
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends a frame without a payload, and never waits: for threads that serve many connections. If the socket is full
    /// or another frame is on its way, a copy is kept and sent as soon as possible by whoever has the turn, else by a
    /// thread of its own that lives as long as that takes.
    ///
    /// # Errors
    /// `NotReading` if more than 4 MiB wait already, `Closed` or `Broken`. The connection is shut down then.
    pub fn post(&self, header: FrameHeader, body: &[u8]) -> Result<(), Error> {
        let header = filled(header, body, 0, 0).encode();
        let mut posted = lock(&self.0.posted);
        if posted.bytes.len() > POSTED_BYTES_MAX {
            self.0.stream.shutdown();
            return Err(Error::NotReading { peer: self.0.stream.peer().to_owned(), limit: self.0.limit });
        }
        posted.is_held = posted.is_held || together::waits(self);
        if posted.is_held {
            posted.bytes.extend(header.iter().chain(body));
            return Ok(());
        }
        let mut sent = 0;
        let turn = self.0.turn.try_lock();
        if turn.is_ok() && posted.bytes.is_empty() {
            sent = self.send_at_once(&[IoSlice::new(&header), IoSlice::new(body)])?;
        }
        if sent == header.len() + body.len() {
            return Ok(());
        }
        let rest = header.iter().chain(body).skip(sent).copied();
        posted.bytes.extend(rest);
        if turn.is_ok() { self.leave_to_thread(&mut posted) } else { Ok(()) }
    }

    /// From now on posted frames wait for [`FrameWriter::release`], to go out with one system call. Only for a moment. Who releases what
    /// another thread holds sends it sooner.
    pub fn hold(&self) {
        lock(&self.0.posted).is_held = true;
    }

    /// Sends what was posted since [`FrameWriter::hold`], as [`FrameWriter::post`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::post`].
    pub fn release(&self) -> Result<(), Error> {
        let mut posted = lock(&self.0.posted);
        posted.is_held = false;
        if posted.bytes.is_empty() {
            return Ok(());
        }
        // Whoever has the turn looks again after it.
        let Ok(_turn) = self.0.turn.try_lock() else { return Ok(()) };
        let sent = self.send_at_once(&[IoSlice::new(&posted.bytes)])?;
        posted.bytes.drain(..sent);
        if posted.bytes.is_empty() { Ok(()) } else { self.leave_to_thread(&mut posted) }
    }

    /// Sends several frames with as few system calls as the socket allows, and waits as [`FrameWriter::send`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::send`].
    pub fn send_encoded(&self, frames: &[u8]) -> Result<(), Error> {
        let turn = lock(&self.0.turn);
        let sent = self.send_posted().and_then(|()| self.send_all(&mut [IoSlice::new(frames)]));
        drop(turn);
        let sent = sent.and_then(|()| self.send_left());
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends as much as the socket takes without waiting. The caller has the turn.
    fn send_at_once(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Error> {
        match self.0.stream.send(pieces, SendFlags::DONTWAIT) {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(source) => {
                self.0.stream.shutdown();
                Err(broken(&self.0.stream, "sending", source))
            }
        }
    }

    /// What the socket did not take is sent by a thread of its own.
    fn leave_to_thread(&self, posted: &mut Posted) -> Result<(), Error> {
        if posted.has_sender {
            return Ok(());
        }
        posted.has_sender = true;
        let writer = self.clone();
        let spawned = std::thread::Builder::new().name("frieze-post".to_owned()).spawn(move || writer.send_as_thread());
        spawned.map(drop).map_err(|_| {
            self.0.stream.shutdown();
            Error::NotReading { peer: self.0.stream.peer().to_owned(), limit: self.0.limit }
        })
    }

    /// The life of the thread that sends what a full socket left behind.
    fn send_as_thread(&self) {
        loop {
            let turn = lock(&self.0.turn);
            let sent = self.send_posted();
            drop(turn);
            let mut posted = lock(&self.0.posted);
            if sent.is_err() || posted.bytes.is_empty() {
                posted.has_sender = false;
                if let Err(error) = sent {
                    tracing::debug!(%error, "replies could not be sent");
                    self.0.stream.shutdown();
                }
                return;
            }
        }
    }

    /// Sends what was posted while a frame was on its way and its poster relied on this thread.
    fn send_left(&self) -> Result<(), Error> {
        loop {
            if lock(&self.0.posted).bytes.is_empty() {
                return Ok(());
            }
            // Whoever has the turn now looks again after it.
            let Ok(_turn) = self.0.turn.try_lock() else { return Ok(()) };
            self.send_posted()?;
        }
    }

    /// Sends everything posted so far. The caller has the turn.
    fn send_posted(&self) -> Result<(), Error> {
        loop {
            let bytes = std::mem::take(&mut lock(&self.0.posted).bytes);
            if bytes.is_empty() {
                return Ok(());
            }
            self.send_all(&mut [IoSlice::new(&bytes)])?;
        }
    }

    fn send_in_turn(&self, header: FrameHeader, body: &[u8], payload: Payload<'_>) -> Result<(), Error> {
        match payload {
            Payload::None => {
                let header = filled(header, body, 0, 0).encode();
                self.send_all(&mut [IoSlice::new(&header), IoSlice::new(body)])
            }
            Payload::Bytes(bytes) => {
                let header = filled(header, body, bytes.len(), crc32c(bytes)).encode();
                self.send_all(&mut [IoSlice::new(&header), IoSlice::new(body), IoSlice::new(bytes)])
            }
            Payload::Checked { pieces, crc } => {
                let len = pieces.iter().map(|piece| piece.len()).sum();
                let header = filled(header, body, len, crc).encode();
                let mut slices = Vec::with_capacity(2 + pieces.len());
                slices.extend([IoSlice::new(&header), IoSlice::new(body)]);
                slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
                self.send_all(&mut slices)
            }
        }
    }

    /// Sends all pieces, waiting for the peer up to the limit.
    fn send_all(&self, pieces: &mut [IoSlice<'_>]) -> Result<(), Error> {
        self.send_pieces(pieces, SendFlags::empty())
    }

    /// As [`FrameWriter::send_pieces`], but tells when the peer is slow.
    fn send_until_stalled(
        &self,
        mut pieces: &mut [IoSlice<'_>],
        flags: SendFlags,
        stalled: &dyn Fn(),
    ) -> Result<(), Error> {
        let stream = &self.0.stream;
        IoSlice::advance_slices(&mut pieces, 0); // drops empty pieces in front
        while !pieces.is_empty() {
            match stream.send(pieces, flags | SendFlags::DONTWAIT) {
                Ok(count) => IoSlice::advance_slices(&mut pieces, count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let has_room = stream.await_room(STALLED).map_err(|source| broken(stream, "sending", source))?;
                    if !has_room {
                        stalled();
                        return self.send_pieces(pieces, flags);
                    }
                }
                Err(source) => return Err(broken(stream, "sending", source)),
            }
        }
        Ok(())
    }

    /// Has the system send `len` bytes of a file from `offset` on. Of the `room` that was there when it was last asked for so many
    /// bytes are left: small pieces need not ask each.
    fn hand_on(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        room: &mut usize,
        stalled: &dyn Fn(),
    ) -> Result<(), Error> {
        let stream = &self.0.stream;
        let (mut at, end) = (offset, offset + len as u64);
        let mut waits = None;
        while at < end {
            if *room > 0 || stream.await_room(STALLED).map_err(|source| broken(stream, "sending", source))? {
                // No more than there is room for, so that nobody waits within.
                *room = if *room > 0 { *room } else { stream.room_at_least().min(HANDED_BYTES) };
                let some = (end - at).min(*room as u64) as usize;
                match stream.send_file(file, &mut at, some) {
                    Ok(0) => return Err(broken(stream, "sending", io::ErrorKind::UnexpectedEof.into())),
                    Ok(count) => (waits, *room) = (None, *room - count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => *room = 0,
                    Err(source) => return Err(broken(stream, "sending", source)),
                }
                continue;
            }
            stalled();
            if mono().since_ns(*waits.get_or_insert_with(mono)) >= self.0.limit.as_nanos() as u64 {
                return Err(Error::NotReading { peer: stream.peer().to_owned(), limit: self.0.limit });
            }
        }
        Ok(())
    }

    fn send_pieces(&self, mut pieces: &mut [IoSlice<'_>], flags: SendFlags) -> Result<(), Error> {
        let stream = &self.0.stream;
        let mut began = None;
        IoSlice::advance_slices(&mut pieces, 0); // drops empty pieces in front
        while !pieces.is_empty() {
            // The system takes at most 1,024 pieces at once (IOV_MAX).
            let some = &pieces[..pieces.len().min(1024)];
            match stream.send(some, flags) {
                Ok(count) => IoSlice::advance_slices(&mut pieces, count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(broken(stream, "sending", source)),
            }
            if !pieces.is_empty() {
                let now = mono();
                let since = *began.get_or_insert(now);
                if now.since_ns(since) >= self.0.limit.as_nanos() as u64 {
                    return Err(Error::NotReading { peer: stream.peer().to_owned(), limit: self.0.limit });
                }
            }
        }
        Ok(())
    }
}

/// Appends a frame to `frames`, for [`FrameWriter::send_encoded`].
///
/// # Panics
/// If the body or payload is longer than a frame may hold.
pub fn encode_frame(header: FrameHeader, body: &[u8], payload: &[u8], frames: &mut Vec<u8>) {
    let payload_crc = if payload.is_empty() { 0 } else { crc32c(payload) };
    frames.extend_from_slice(&filled(header, body, payload.len(), payload_crc).encode());
    frames.extend_from_slice(body);
    frames.extend_from_slice(payload);
}

/// The header with the lengths and checksums of what follows it.
fn filled(header: FrameHeader, body: &[u8], payload_len: usize, payload_crc: u32) -> FrameHeader {
    assert!(body.len() <= frieze_wire::frame::BODY_BYTES_MAX as usize, "a body of {} bytes", body.len());
    assert!(payload_len <= frieze_wire::frame::PAYLOAD_BYTES_MAX as usize, "a payload of {payload_len} bytes");
    FrameHeader {
        body_len: body.len() as u32,
        payload_len: payload_len as u32,
        body_crc: crc32c(body),
        payload_crc,
        ..header
    }
}

/// Nothing is left half changed by a panic under these locks: the socket is shut down by whoever fails.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a checksum behind a payload.
pub const CRC_BYTES: usize = 4;
/// Small frames come in with one receive, as many as fit.
const BUFFER_BYTES: usize = 64 << 10;
/// Header, body and a payload of 8 KiB come in with one receive; of a larger payload at most this much is copied twice.
const LARGE_LOOK_BYTES: usize = 16 << 10;
/// From here on it is worth two system calls to be woken less often.
const LARGE_BYTES: usize = 128 << 10;
/// Step in which a buffer grows as promised bytes arrive.
const GROW_BYTES: usize = 256 << 10;
const WOULD_BLOCK: io::ErrorKind = io::ErrorKind::WouldBlock;
/// Of a file so much at most is handed on before it is asked again whether there is room.
const HANDED_BYTES: usize = 256 << 10;
/// Who takes nothing for so long keeps others from nothing: a reader on this machine that is awake has taken half of what was on its
/// way.
const STALLED: Duration = Duration::from_millis(2);
/// Posted bytes that may wait for a peer before it is given up.
const POSTED_BYTES_MAX: usize = 4 << 20;
