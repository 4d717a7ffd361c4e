//! The receiving side of a connection: checked frames.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use frieze_base::{Crc32c, Fault, MonoTime, Reason, crc32c};
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader};
use rustix::net::RecvFlags;

use crate::busy_poll::BusyPoll;
use crate::frames::{CRC_BYTES, Limits, broken};
use crate::{Error, Stream, mono};

/// Receives frames. Owned by the one thread that reads the connection.
///
/// Received bytes lie in a buffer of 64 KiB. Before the handshake is complete the buffer has [`HELLO_BYTES_MAX`] bytes
/// ([`FrameReader::guarded`]), and while the peer is silent [`RESTING_BYTES`].
#[derive(Debug)]
pub struct FrameReader {
    stream: Stream,
    limits: Limits,
    buffer: Vec<u8>,
    /// The handshake is not complete: frames are small, or refused.
    is_guarded: bool,
    start: usize,
    end: usize,
    /// Payload bytes of the last frame that were not read yet.
    pending: usize,
    pending_crc: u32,
    /// The wait for the first bytes of a frame.
    poll: BusyPoll,
    /// When the frame being received began; set only if it needs more than one receive.
    began: Option<MonoTime>,
    /// The last frame was small: the next receive takes all bytes that have arrived.
    is_small: bool,
}

impl FrameReader {
    /// Reads from `stream` within `limits`. Sets the timeouts of the stream, those of its writer included.
    ///
    /// # Errors
    /// `Broken` if the socket is closed.
    pub fn new(stream: Stream, limits: Limits) -> Result<FrameReader, Error> {
        let shortest = limits.idle.unwrap_or(limits.frame).min(limits.frame);
        // A wait is checked eight times: it may last an eighth longer, and an idle connection costs little.
        let tick = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(4));
        stream.set_ticks(tick, tick).map_err(|source| broken(&stream, "receiving", source))?;
        Ok(FrameReader {
            stream,
            limits,
            buffer: Vec::new(),
            is_guarded: false,
            start: 0,
            end: 0,
            pending: 0,
            pending_crc: 0,
            poll: BusyPoll::default(),
            began: None,
            is_small: false,
        })
    }

    /// The same before the handshake is complete: until [`FrameReader::admit`] a frame has a body of at most
    /// [`HELLO_BYTES_MAX`] and no payload.
    ///
    /// # Errors
    /// As [`FrameReader::new`].
    pub fn guarded(stream: Stream, limits: Limits) -> Result<FrameReader, Error> {
        Ok(FrameReader { is_guarded: true, ..FrameReader::new(stream, limits)? })
    }

    /// The handshake is complete: frames may have any size, within `limits` from now on.
    pub fn admit(&mut self, limits: Limits) {
        self.is_guarded = false;
        self.limits = limits;
    }

    /// Changes the limits for the frames to come; the granularity of waiting stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The connection.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// True if all of the next frame has arrived: reading it does not wait.
    pub fn has_frame(&self) -> bool {
        let here = &self.buffer[self.start..self.end];
        let Some(first) = here.get(self.pending..).and_then(|next| next.first_chunk::<FRAME_HEADER_BYTES>()) else {
            return false;
        };
        // A malformed header is reported when it is read.
        FrameHeader::decode(first).is_ok_and(|header| {
            let len = FRAME_HEADER_BYTES + header.body_len as usize + header.payload_len as usize;
            here.len() - self.pending >= len
        })
    }

    /// Receives a header and its body, which replaces what `body` held; `None` if the peer ended the connection between
    /// two frames. The payload, if the header names one, is to be read by [`FrameReader::read_payload`] or
    /// [`FrameReader::read_payload_reusing`] before the next frame; else the next call skips it.
    ///
    /// # Errors
    /// `Silent` if no frame began within the idle limit, `HalfFrame`, `Closed`, `Frame`, `Checksum`. All end the
    /// connection; after `Frame` send the peer the reason before closing.
    pub fn read_frame(&mut self, body: &mut Vec<u8>) -> Result<Option<FrameHeader>, Error> {
        self.read_frame_or_rest(body, || {})
    }

    /// The same. If nothing arrives for about a second, the buffers shrink, `body` with them, and `rest` is called
    /// once, so that the caller frees its own.
    ///
    /// # Errors
    /// As [`FrameReader::read_frame`].
    pub fn read_frame_or_rest(
        &mut self,
        body: &mut Vec<u8>,
        rest: impl FnOnce(),
    ) -> Result<Option<FrameHeader>, Error> {
        self.skip_payload()?;
        body.clear();
        self.began = None;
        let at_rest = || {
            body.shrink_to(RESTING_BYTES);
            rest();
        };
        if self.start == self.end && !self.await_first_bytes(at_rest)? {
            return Ok(None);
        }
        while self.end - self.start < FRAME_HEADER_BYTES {
            self.receive_more()?;
        }
        let mut bytes = [0u8; FRAME_HEADER_BYTES];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + FRAME_HEADER_BYTES]);
        self.start += FRAME_HEADER_BYTES;
        let header = FrameHeader::decode(&bytes)
            .and_then(|header| self.guard(header))
            .map_err(|fault| Error::Frame { peer: self.stream.peer().to_owned(), fault })?;
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
    /// If `into` is not exactly as long as the header's `payload_len`, or the payload was read already.
    pub fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        assert_eq!(into.len(), self.pending, "the payload's length is that of the header");
        let mut crc = Crc32c::default();
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
    /// If `into` is not 4 bytes shorter than the header's `payload_len`, or the payload was read already.
    pub fn read_payload_before_crc(&mut self, into: &mut [u8]) -> Result<(), Error> {
        assert_eq!(into.len() + CRC_BYTES, self.pending, "the payload's length is that of the header");
        let mut crc = Crc32c::default();
        self.receive_all(into, &mut crc)?;
        self.receive_all(&mut [0; CRC_BYTES], &mut crc)?;
        self.pending = 0;
        check(&self.stream, "payload", self.pending_crc, crc.value())
    }

    fn receive_all(&mut self, into: &mut [u8], crc: &mut Crc32c) -> Result<(), Error> {
        let mut filled = 0;
        while filled < into.len() {
            let count = self.receive_payload(&mut into[filled..])?;
            // Piece by piece, while it is in the cache and the peer sends the next.
            crc.update(&into[filled..filled + count]);
            filled += count;
        }
        Ok(())
    }

    /// Receives the payload of the frame just read into `buffer`, which only ever grows, and as bytes arrive: a peer
    /// that announces 4 MiB and sends nothing costs nothing. A reused buffer stays in the cache.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`].
    pub fn read_payload_reusing<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Result<&'a mut [u8], Error> {
        let len = self.pending;
        let expected = self.pending_crc;
        let mut crc = Crc32c::default();
        self.receive_reusing(buffer, |bytes| crc.update(bytes))?;
        check(&self.stream, "payload", expected, crc.value())?;
        Ok(&mut buffer[..len])
    }

    /// As [`FrameReader::read_payload_reusing`], without a check: the caller computes the checksums of the blocks that
    /// it stores anyway, which makes one pass over the bytes instead of two.
    ///
    /// # Errors
    /// As [`FrameReader::read_payload`], without `Checksum`.
    pub fn read_payload_unchecked<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Result<&'a mut [u8], Error> {
        let len = self.pending;
        self.receive_reusing(buffer, |_| {})?;
        Ok(&mut buffer[..len])
    }

    /// As [`FrameReader::read_payload_unchecked`], behind the first `at` bytes of `buffer`. After each receive `so_far`
    /// is called with all bytes from the beginning of `buffer` on.
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

    /// Waits until the next frame begins, or the connection ends, which the next read reports. False if neither has
    /// happened after `limit`; then it may be called again.
    ///
    /// # Errors
    /// As [`FrameReader::read_frame`], without `Silent`.
    pub fn await_frame(&mut self, limit: Duration) -> Result<bool, Error> {
        if self.pending > 0 || self.start < self.end {
            return Ok(true);
        }
        (self.start, self.end) = (0, 0);
        self.begin_buffer();
        let room = self.look_bytes();
        let FrameReader { stream, buffer, poll, .. } = &mut *self;
        let buffer = RefCell::new(&mut buffer[..room]);
        let receive = || stream.receive(&mut buffer.borrow_mut(), RecvFlags::DONTWAIT);
        let look = || match receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        };
        // The ticks of the stream may be longer than the limit.
        match poll.wait(look, || if stream.await_readable(limit)? { receive() } else { Err(WOULD_BLOCK.into()) }) {
            Ok(count) => {
                self.end = count;
                self.take_the_rest();
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
            Err(source) => Err(broken(&self.stream, "receiving", source)),
        }
    }

    /// Waits for the first bytes of a frame; false if the peer ended the connection.
    fn await_first_bytes(&mut self, rest: impl FnOnce()) -> Result<bool, Error> {
        let (mut waiting_since, mut rest) = (None, Some(rest));
        (self.start, self.end) = (0, 0);
        self.begin_buffer();
        loop {
            let room = self.look_bytes();
            let FrameReader { stream, buffer, poll, .. } = &mut *self;
            let buffer = RefCell::new(&mut buffer[..room]);
            let look = || match stream.receive(&mut buffer.borrow_mut(), RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                done => Some(done),
            };
            let received = poll.wait(look, || stream.receive(&mut buffer.borrow_mut(), RecvFlags::empty()));
            match received {
                Ok(count) => {
                    self.end = count;
                    self.take_the_rest();
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(rest) = rest.take() {
                        self.buffer = vec![0; RESTING_BYTES];
                        rest();
                    }
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

    /// Refuses a frame that is too large before the handshake is complete.
    fn guard(&self, header: FrameHeader) -> Result<FrameHeader, Fault> {
        let (body, payload) = (header.body_len as usize, header.payload_len);
        if self.is_guarded && (body > HELLO_BYTES_MAX || payload > 0) {
            return Err(Fault::new(
                Reason::BadFrame,
                format!(
                    "malformed frame: body of {body} bytes and payload of {payload}; before the handshake is complete \
                     at most {HELLO_BYTES_MAX} and none are allowed"
                ),
            ));
        }
        Ok(header)
    }

    /// Makes the buffer, as small as it may be, if there is none.
    fn begin_buffer(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; RESTING_BYTES];
        }
    }

    /// Receives the other bytes that have arrived, if they exceed the buffer of a silent peer: frames that arrived
    /// together are handled together.
    fn take_the_rest(&mut self) {
        let len = self.buffer.len();
        self.grow_if_full();
        if self.buffer.len() > len {
            let room = self.look_bytes().max(len);
            // The next receive finds the end of the connection, or its error.
            self.end += self.stream.receive(&mut self.buffer[len..room], RecvFlags::DONTWAIT).unwrap_or(0);
        }
    }

    /// Bytes of the first receive of a frame.
    fn look_bytes(&self) -> usize {
        self.buffer.len().min(if self.is_small { BUFFER_BYTES } else { LARGE_LOOK_BYTES })
    }

    /// Makes the buffer as large as it may be if it is full: a peer that sent so much at once does so again.
    fn grow_if_full(&mut self) {
        let most = if self.is_guarded { FRAME_HEADER_BYTES + HELLO_BYTES_MAX } else { BUFFER_BYTES };
        if self.end == self.buffer.len() && self.end < most {
            // The system maps only those pages of a new buffer that are written.
            let mut grown = vec![0; most];
            grown[..self.end].copy_from_slice(&self.buffer);
            self.buffer = grown;
        }
    }

    /// Receives more bytes behind the buffered ones.
    fn receive_more(&mut self) -> Result<(), Error> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.grow_if_full();
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

    /// Some bytes of the payload: those buffered, else straight from the socket.
    fn receive_payload(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let buffered = self.end - self.start;
        if buffered > 0 {
            let count = buffered.min(into.len());
            into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            return Ok(count);
        }
        // The sender of a small payload is done before the receiver could contend with it.
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

/// Largest body of a frame before the handshake is complete: a greeting has a few hundred bytes. PostgreSQL accepts
/// 10,000.
pub const HELLO_BYTES_MAX: usize = 8 << 10;
/// Size of the buffer while the peer is silent: enough for a small request.
pub const RESTING_BYTES: usize = 4 << 10;
/// One receive takes as many small frames as fit.
const BUFFER_BYTES: usize = 64 << 10;
/// One receive takes header, body and a payload of 8 KiB; of a larger payload at most this much is copied twice.
const LARGE_LOOK_BYTES: usize = 16 << 10;
/// From this length on fewer wake-ups are worth two system calls.
const LARGE_BYTES: usize = 128 << 10;
/// Step in which a buffer grows as announced bytes arrive.
const GROW_BYTES: usize = 256 << 10;
const WOULD_BLOCK: io::ErrorKind = io::ErrorKind::WouldBlock;
