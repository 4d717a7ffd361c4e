//! The sending side of a connection: whole frames, one vectored write each.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{CRC32C_BEHIND, crc32c};
use frieze_locks::{Mutex, levels};
use frieze_wire::FrameHeader;
use rustix::net::SendFlags;

use crate::frames::{CRC_BYTES, FramePart, FramePayload, Limits, broken, filled};
use crate::reply_batch::{self, BatchedWriter};
use crate::{Error, Stream, mono};

/// Sends frames. Cheap to clone and shared between threads: frames are sent whole, one after the other.
#[derive(Clone, Debug)]
pub struct FrameWriter(Arc<WriterShared>);

#[derive(Debug)]
struct WriterShared {
    stream: Stream,
    limit: Duration,
    turn: Mutex<levels::SendTurn, ()>,
    /// Whole frames that the socket did not take at once; see [`FrameWriter::post`].
    posted: Mutex<levels::PostedFrames, PostQueue>,
}

#[derive(Debug, Default)]
struct PostQueue {
    bytes: Vec<u8>,
    /// More frames follow in a moment and are sent together with these.
    is_held: bool,
    /// A thread sends the posted frames, or is about to.
    has_sender: bool,
}

/// A frame of which a part may still be unsent.
#[derive(Debug)]
pub struct PartialFrame<P> {
    head: Vec<u8>,
    payload: P,
    sent: usize,
}

impl<P: AsRef<[u8]>> PartialFrame<P> {
    /// True if all of it was sent.
    pub fn is_done(&self) -> bool {
        self.sent == self.head.len() + self.payload.as_ref().len()
    }

    /// The same with its payload in another buffer.
    pub fn map<Q: AsRef<[u8]>>(self, kept: impl FnOnce(P) -> Q) -> PartialFrame<Q> {
        PartialFrame { head: self.head, payload: kept(self.payload), sent: self.sent }
    }

    fn left(&self) -> [IoSlice<'_>; 2] {
        let of_payload = self.sent.saturating_sub(self.head.len());
        [IoSlice::new(&self.head[self.sent.min(self.head.len())..]), IoSlice::new(&self.payload.as_ref()[of_payload..])]
    }
}

impl FrameWriter {
    /// Writes to `stream`. A peer that does not receive a frame within `limits.frame` loses its connection.
    ///
    /// The socket's timeouts are those that the connection's [`FrameReader`](crate::FrameReader) has set: make it
    /// first.
    pub fn new(stream: Stream, limits: Limits) -> FrameWriter {
        FrameWriter(Arc::new(WriterShared {
            stream,
            limit: limits.frame,
            turn: Mutex::new(()),
            posted: Mutex::new(PostQueue::default()),
        }))
    }

    /// The connection.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Sends a frame: `header` with lengths and checksums filled in, `body`, `payload`, in one vectored write if the
    /// socket takes it. Waits for its turn and for the peer to receive it.
    ///
    /// # Errors
    /// `Closed`, `Broken`, `NotReading`. The connection is shut down then, because half a frame may have been sent.
    ///
    /// # Panics
    /// If the body or payload is longer than a frame may hold.
    pub fn send(&self, header: FrameHeader, body: &[u8], payload: FramePayload<'_>) -> Result<(), Error> {
        let turn = self.0.turn.lock();
        let sent = self.send_posted().and_then(|()| self.send_in_turn(header, body, payload));
        drop(turn);
        // Frames posted while this one had the turn are sent here.
        let sent = sent.and_then(|()| self.send_left());
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends as much of a frame as the socket takes at once, and never waits. The rest is sent by
    /// [`FrameWriter::finish`]; until then no other frame may be sent on the connection. `crc`: the payload's checksum,
    /// if it is known.
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
    ) -> Result<PartialFrame<P>, Error> {
        let bytes = payload.as_ref();
        let payload_crc = if bytes.is_empty() { 0 } else { crc.unwrap_or_else(|| crc32c(bytes)) };
        let mut head = filled(header, body, bytes.len(), payload_crc).encode().to_vec();
        head.extend_from_slice(body);
        let mut begun = PartialFrame { head, payload, sent: 0 };
        let _turn = self.0.turn.lock();
        while !begun.is_done() {
            match self.send_at_once(&begun.left())? {
                0 => break,
                count => begun.sent += count,
            }
        }
        Ok(begun)
    }

    /// Sends the rest of a frame, and waits as [`FrameWriter::send`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::send`].
    pub fn finish<P: AsRef<[u8]>>(&self, begun: &PartialFrame<P>) -> Result<(), Error> {
        let turn = self.0.turn.lock();
        let sent = self.send_all(&mut begun.left());
        drop(turn);
        if sent.is_err() {
            self.0.stream.shutdown();
        }
        sent
    }

    /// Sends a frame whose payload of `len` bytes is not in memory as a whole: `fill` passes it piece by piece, and
    /// with the last the checksum of all, which is sent behind them
    /// ([`FrameReader::read_payload_before_crc`](crate::FrameReader::read_payload_before_crc)). A small piece is still
    /// in the cache of the core when it is sent, and the peer receives it while the next is read. Other frames wait
    /// meanwhile. `stalled` is called when the peer has received nothing for a moment, before the wait for it up to its
    /// limit.
    ///
    /// # Errors
    /// As [`FrameWriter::send`], and what `fill` fails with. The connection is shut down then.
    ///
    /// # Panics
    /// If `fill` passes more bytes than `len`, or fewer without an error, or the checksum with any but the last.
    pub fn send_in_steps<E: From<Error>>(
        &self,
        header: FrameHeader,
        body: &[u8],
        len: usize,
        stalled: &dyn Fn(),
        fill: impl FnOnce(&mut dyn FnMut(FramePart<'_>, Option<u32>) -> Result<(), Error>) -> Result<(), E>,
    ) -> Result<(), E> {
        let turn = self.0.turn.lock();
        let header = filled(header, body, len + CRC_BYTES, CRC32C_BEHIND).encode();
        let (mut left, mut head, mut room) = (len, Some([header.as_slice(), body]), 0);
        let mut step = |part: FramePart<'_>, crc: Option<u32>| -> Result<(), Error> {
            assert!(part.len() <= left, "more than the {len} bytes announced");
            left -= part.len();
            assert_eq!(left == 0, crc.is_some(), "the checksum comes with the last of {len} bytes");
            let [header, body] = head.take().unwrap_or_default();
            let behind = crc.map(u32::to_le_bytes);
            let (behind, more) = match &behind {
                Some(crc) => (crc.as_slice(), SendFlags::empty()),
                None => (&[][..], SendFlags::MORE),
            };
            match part {
                FramePart::Bytes(bytes) => {
                    let pieces = [header, body, bytes, behind];
                    self.send_until_stalled(&mut pieces.map(IoSlice::new), more, stalled)
                }
                FramePart::File { file, offset, len } => {
                    self.send_until_stalled(&mut [header, body].map(IoSlice::new), SendFlags::MORE, stalled)?;
                    self.send_file_range(file, offset, len, &mut room, stalled)?;
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
    /// or another frame is on its way, a copy is kept and sent as soon as possible by the thread that has the turn,
    /// else by a thread of its own that lives as long as that takes.
    ///
    /// # Errors
    /// `NotReading` if more than 4 MiB wait already, `Closed` or `Broken`. The connection is shut down then.
    pub fn post(&self, header: FrameHeader, body: &[u8]) -> Result<(), Error> {
        let header = filled(header, body, 0, 0).encode();
        let mut posted = self.0.posted.lock();
        if posted.bytes.len() > POSTED_BYTES_MAX {
            self.0.stream.shutdown();
            return Err(Error::NotReading { peer: self.0.stream.peer().to_owned(), limit: self.0.limit });
        }
        posted.is_held = posted.is_held || reply_batch::holds(&self.0);
        if posted.is_held {
            posted.bytes.extend(header.iter().chain(body));
            return Ok(());
        }
        let mut sent = 0;
        let turn = self.0.turn.try_lock();
        if turn.is_some() && posted.bytes.is_empty() {
            sent = self.send_at_once(&[IoSlice::new(&header), IoSlice::new(body)])?;
        }
        if sent == header.len() + body.len() {
            return Ok(());
        }
        let rest = header.iter().chain(body).skip(sent).copied();
        posted.bytes.extend(rest);
        if turn.is_some() { self.leave_to_thread(&mut posted) } else { Ok(()) }
    }

    /// Frees the buffer of posted frames: nothing is to be sent for a while.
    pub fn rest(&self) {
        let mut posted = self.0.posted.lock();
        if posted.bytes.is_empty() {
            posted.bytes = Vec::new();
        }
    }

    /// From now on posted frames wait for [`FrameWriter::release`], to be sent with one system call. Only for a moment.
    /// A release by another thread sends them sooner.
    pub fn hold(&self) {
        self.0.posted.lock().is_held = true;
    }

    /// Sends the frames posted since [`FrameWriter::hold`], as [`FrameWriter::post`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::post`].
    pub fn release(&self) -> Result<(), Error> {
        let mut posted = self.0.posted.lock();
        posted.is_held = false;
        if posted.bytes.is_empty() {
            return Ok(());
        }
        // The thread that has the turn looks again after it.
        let Some(_turn) = self.0.turn.try_lock() else { return Ok(()) };
        let sent = self.send_at_once(&[IoSlice::new(&posted.bytes)])?;
        posted.bytes.drain(..sent);
        if posted.bytes.is_empty() { Ok(()) } else { self.leave_to_thread(&mut posted) }
    }

    /// Sends several frames with as few system calls as the socket allows, and waits as [`FrameWriter::send`] does.
    ///
    /// # Errors
    /// As [`FrameWriter::send`].
    pub fn send_encoded(&self, frames: &[u8]) -> Result<(), Error> {
        let turn = self.0.turn.lock();
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

    /// Starts a thread that sends what the socket did not take.
    fn leave_to_thread(&self, posted: &mut PostQueue) -> Result<(), Error> {
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

    /// The thread that sends what a full socket did not take.
    fn send_as_thread(&self) {
        loop {
            let turn = self.0.turn.lock();
            let sent = self.send_posted();
            drop(turn);
            let mut posted = self.0.posted.lock();
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

    /// Sends the frames that other threads posted while this one had the turn.
    fn send_left(&self) -> Result<(), Error> {
        loop {
            if self.0.posted.lock().bytes.is_empty() {
                return Ok(());
            }
            // The thread that has the turn now looks again after it.
            let Some(_turn) = self.0.turn.try_lock() else { return Ok(()) };
            self.send_posted()?;
        }
    }

    /// Sends all posted frames. The caller has the turn.
    fn send_posted(&self) -> Result<(), Error> {
        loop {
            let bytes = std::mem::take(&mut self.0.posted.lock().bytes);
            if bytes.is_empty() {
                return Ok(());
            }
            self.send_all(&mut [IoSlice::new(&bytes)])?;
        }
    }

    fn send_in_turn(&self, header: FrameHeader, body: &[u8], payload: FramePayload<'_>) -> Result<(), Error> {
        match payload {
            FramePayload::None => {
                let header = filled(header, body, 0, 0).encode();
                self.send_all(&mut [IoSlice::new(&header), IoSlice::new(body)])
            }
            FramePayload::Bytes(bytes) => {
                let header = filled(header, body, bytes.len(), crc32c(bytes)).encode();
                self.send_all(&mut [IoSlice::new(&header), IoSlice::new(body), IoSlice::new(bytes)])
            }
            FramePayload::Checked { pieces, crc } => {
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

    /// As [`FrameWriter::send_pieces`], and calls `stalled` if the peer is slow.
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

    /// Sends `len` bytes of a file from `offset` on by `sendfile`. `room` is the rest of the free bytes of the
    /// socket's buffer when it was last queried: small pieces do not query it each.
    fn send_file_range(
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
                // No more than there is room for, so that the call does not wait.
                *room = if *room > 0 { *room } else { stream.room_at_least().min(FILE_BYTES_MAX) };
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

impl BatchedWriter for WriterShared {
    fn release(self: Arc<Self>) -> Result<(), Error> {
        FrameWriter(self).release()
    }
}

/// Bytes of a file that are sent at most before the free buffer is queried again.
const FILE_BYTES_MAX: usize = 256 << 10;
/// A peer that receives nothing for so long is slow: within it a reader on this machine that is awake receives half of
/// the bytes in flight.
const STALLED: Duration = Duration::from_millis(2);
/// Posted bytes that may wait for a peer before its connection is closed.
const POSTED_BYTES_MAX: usize = 4 << 20;
