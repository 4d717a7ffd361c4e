//! Many bytes, or many small writes: several requests in flight on one connection. Small ones travel together, and so do
//! their answers: a system call and a wake-up of the other side cost more than a small request.

use std::borrow::Cow;
use std::collections::VecDeque;

use frieze_base::{ByteRange, Seq};
use frieze_hlc::Hlc;
use frieze_net::PayloadPart;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::Reply;

use crate::connection::Connection;
use crate::file::{Place as WritePlace, REQUEST_BYTES, check_range, expect_read, is_without_grant};
use crate::patience::{Patience, is_passing, is_worth_repeating};
use crate::pool::Place;
use crate::servers::{Age, Route};
use crate::{Error, File};

/// Requests in flight unless told otherwise: with 4 the server always has the next when it is done with one.
pub(crate) const DEPTH: usize = 4;
/// Up to this size requests are copied together and sent at once.
const SMALL_BYTES: usize = 16 << 10;
/// The last piece of a large write is at most so large.
const LAST_BYTES: usize = 256 << 10;
/// A request of who reads within the server's process: half of the second-level cache of a core of today.
const WITHIN_BYTES: usize = 256 << 10;
/// More would only fill socket buffers.
const DEPTH_MAX: usize = 64;

impl File {
    /// Reads a range in order, with `depth` requests of 1 MiB in flight (1 to 64; 4 is plenty on one machine), and hands
    /// each piece to `sink`. Ends at the end of the range or of the file. Returns how many bytes there were.
    ///
    /// # Errors
    /// As [`File::read_at`], and what `sink` fails with.
    pub fn read_stream<E: From<Error>>(
        &self,
        range: ByteRange,
        depth: usize,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.must_read()?;
        check_range(range.start(), range.len())?;
        // One buffer for all pieces stays in the cache. Who waits for an answer needs none.
        let mut buffer = None;
        let read = self.read_pieces(ReadRun::of(range, depth), |connection, _, len| {
            let make = || self.shared.buffers.take(REQUEST_BYTES.min(range.len() as usize));
            sink(connection.payload(len, &mut buffer, make).map_err(Failure::Ours)?).map_err(Failure::Theirs)
        });
        buffer.into_iter().for_each(|buffer| self.shared.buffers.give_back(buffer));
        read
    }

    /// Reads up to `len` bytes (at most 1 MiB) from `offset` on, for a door in the server's process: what a file of the system holds is not
    /// read, and told as the place where it lies. Nobody has verified that: who gets the bytes in the end has to compare them with a checksum
    /// that was made when they were written, and if they differ, or nobody will compare, they are to be read by [`File::read_at`].
    ///
    /// What was read goes to `payload`, whose buffer is exchanged; `lots` says what the bytes are, in order, and is empty if all were read.
    /// Returns how many bytes there are, read or not: fewer where the file ends, or where a record ends and the next would be cut.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn hand_on(
        &self,
        offset: u64,
        len: usize,
        payload: &mut Vec<u8>,
        lots: &mut Vec<PayloadPart>,
    ) -> Result<usize, Error> {
        self.must_read()?;
        let len = len.min(REQUEST_BYTES);
        check_range(offset, len as u64)?;
        payload.clear();
        lots.clear();
        let run =
            ReadRun { is_one: true, hands_on: true, ..ReadRun::of(ByteRange::new(offset, offset + len as u64), 1) };
        let count = self.read_pieces::<Error>(run, |connection, _, count| {
            connection.take_lots(count, payload, lots).map_err(Failure::Ours)
        })?;
        Ok(count as usize)
    }

    /// A large read, straight into `into`.
    pub(crate) fn read_at_wide(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let range = ByteRange::new(offset, offset + into.len() as u64);
        // Up to 1 MiB is one request, so that it is one state of the file.
        let is_one = into.len() <= REQUEST_BYTES;
        let run = ReadRun { is_one, ..ReadRun::of(range, DEPTH) };
        let count = self.read_pieces::<Error>(run, |connection, at, len| {
            let start = (at - offset) as usize;
            connection.take_payload(&mut into[start..start + len]).map_err(Failure::Ours)
        })?;
        Ok(count as usize)
    }

    /// Reads a range piece by piece in order, or as one; `take` receives the payload of each from the connection.
    fn read_pieces<E: From<Error>>(
        &self,
        mut run: ReadRun,
        mut take: impl FnMut(&mut Connection, u64, usize) -> Result<(), Failure<E>>,
    ) -> Result<u64, E> {
        let range = ByteRange::new(run.done, run.end);
        let mut patience = self.shared.patience();
        loop {
            let age = self.shared.servers.age();
            let mut place = self.shared.take(Route::Read(self.chunk_at(run.done)), &patience)?;
            run.end = run.done + self.at_one_server(run.done, range.end() - run.done, Route::Read);
            match self.read_on(&mut place, &mut patience, &mut run, &mut take) {
                Ok(reached) => {
                    place.give_back();
                    if reached == Reached::EndOfFile || run.done == range.end() || run.hands_on {
                        return Ok(run.done - range.start());
                    }
                }
                Err(Failure::Theirs(error)) => return Err(error),
                Err(Failure::Ours(error)) if is_worth_repeating(&error) => {
                    self.shared.abandon(place, &error, age, &patience);
                    patience.wait(&self.shared, error)?;
                    // It may have ended for what was found damaged: asked so, the server says what.
                    run.in_steps = false;
                }
                Err(Failure::Ours(error)) => {
                    let route = Route::Read(self.chunk_at(run.done));
                    if !patience.passes_over(&self.shared.servers, route, place.pool(), &error) {
                        return Err(error.into());
                    }
                    // Answers to what was asked ahead are still to come on that connection.
                    drop(place);
                }
            }
        }
    }

    /// Reads on over one connection until the end or a failure; `run.done` tells how far it came.
    fn read_on<E>(
        &self,
        place: &mut Place,
        patience: &mut Patience,
        run: &mut ReadRun,
        take: &mut impl FnMut(&mut Connection, u64, usize) -> Result<(), Failure<E>>,
    ) -> Result<Reached, Failure<E>> {
        let shared = &self.shared;
        let connection = shared.opened(place, patience).map_err(Failure::Ours)?;
        // Who reads within the process does the server's work: nothing is won by asking ahead, and what one core does piece by piece
        // stays in its cache. Nor by steps, but to be told where bytes lie: what was read as a whole is handed over as it is.
        let is_within = connection.is_within();
        let hands_on = run.hands_on && is_within && run.in_steps;
        let (depth, step) = if is_within { (1, WITHIN_BYTES) } else { (run.depth, REQUEST_BYTES) };
        let mut next = run.done;
        let mut flight: VecDeque<(u64, u64, usize)> = VecDeque::with_capacity(depth);
        loop {
            while flight.len() < depth && next < run.end {
                let left = run.end - next;
                let len = if run.is_one { left as usize } else { piece_len(next, left, step) };
                let in_steps = if is_within { hands_on } else { run.in_steps };
                let id = shared.send(connection, &self.ask_read(next, len, in_steps)).map_err(Failure::Ours)?;
                flight.push_back((id, next, len));
                next += len as u64;
            }
            // A server answers the reads of one connection in the order they came.
            let Some((id, at, len)) = flight.pop_front() else { return Ok(Reached::EndOfRange) };
            let answer = shared.receive(connection, id).map_err(Failure::Ours)?;
            let reply = expect_read(shared, answer.result.map_err(|fault| Failure::Ours(Error::Refused(fault)))?)
                .map_err(Failure::Ours)?;
            self.note_read(&reply);
            let count = answer.header.payload_len as usize;
            if count > len {
                let found = format!("{count} bytes of payload");
                let asked = "a request for fewer";
                return Err(Failure::Ours(Error::Protocol { server: shared.server(), asked, found }));
            }
            take(connection, at, count)?;
            run.done = at + count as u64;
            patience.renew(shared);
            connection.set_limit(patience.left());
            if run.hands_on {
                return Ok(Reached::EndOfRange);
            }
            if count < len {
                // At the end of the file the answers still to come are empty. A reply cut short for a reason of the
                // server's own is gone on from.
                while let Some((id, ..)) = flight.pop_front() {
                    shared.receive(connection, id).map_err(Failure::Ours)?;
                }
                if reply.end_of_file || count == 0 {
                    return Ok(Reached::EndOfFile);
                }
                next = run.done;
            }
        }
    }

    /// Writes what `source` gives from `offset` on, with `depth` requests in flight. `source` fills the empty buffer
    /// (1 MiB goes out as one request, more is split) and returns whether more will come. Returns the bytes written and
    /// the stamp of the last write.
    ///
    /// # Errors
    /// As [`File::write_at`], and what `source` fails with. Some of the writes in flight may have happened.
    pub fn write_stream<E: From<Error>>(
        &self,
        offset: u64,
        depth: usize,
        mut source: impl FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(u64, Hlc), E> {
        self.must_write()?;
        let mut run = WriteRun::new(self, depth);
        let mut at = offset;
        let mut more = true;
        while more {
            let mut buffer = run.spare.pop().unwrap_or_else(|| Vec::with_capacity(REQUEST_BYTES));
            buffer.clear();
            more = source(&mut buffer)?;
            check_range(at, buffer.len() as u64)?;
            let len = buffer.len();
            if len <= self.piece_bytes_max() {
                if len > 0 {
                    run.push(at, Cow::Owned(buffer))?;
                }
            } else if self.has_user_time() {
                return Err(too_large(len).into());
            } else {
                let mut from = 0;
                while from < len {
                    let count = piece_len(at + from as u64, (len - from) as u64, REQUEST_BYTES);
                    run.push(at + from as u64, Cow::Owned(buffer[from..from + count].to_vec()))?;
                    from += count;
                }
            }
            at += len as u64;
        }
        Ok((at - offset, run.finish()?))
    }

    /// Makes many writes, each where `next` says, with `depth` in flight (1 to 64; 32 small ones keep both sides busy). Those
    /// in flight together may run in any order: they should not overlap. `next` fills the empty buffer and returns where its
    /// bytes go, or `None` after the last. Each write is atomic within a chunk and visible once the server has it, whatever
    /// becomes of those after it. Returns the bytes written and the newest stamp.
    ///
    /// # Errors
    /// As [`File::write_at`], and what `next` fails with. Some of the writes in flight may have happened.
    pub fn write_many<E: From<Error>>(
        &self,
        depth: usize,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<u64>, E>,
    ) -> Result<(u64, Hlc), E> {
        self.must_write()?;
        let mut run = WriteRun::new(self, depth);
        let mut written = 0;
        loop {
            let mut buffer = run.spare.pop().unwrap_or_default();
            buffer.clear();
            let Some(at) = next(&mut buffer)? else { return Ok((written, run.finish()?)) };
            let len = buffer.len();
            check_range(at, len as u64)?;
            if len > self.piece_bytes_max() {
                return Err(too_large(len).into());
            }
            if len > 0 {
                run.push(at, Cow::Owned(buffer))?;
            }
            written += len as u64;
        }
    }

    /// A large write, straight from `data`.
    pub(crate) fn write_at_wide(&self, offset: u64, data: &[u8]) -> Result<Hlc, Error> {
        if self.has_user_time() {
            return Err(too_large(data.len()));
        }
        let mut run = WriteRun::new(self, DEPTH);
        let mut from = 0;
        while from < data.len() {
            let at = offset + from as u64;
            let left = self.at_one_head(at, (data.len() - from) as u64);
            let count = tapered(piece_len(at, left, REQUEST_BYTES), data.len() - from);
            run.push(at, Cow::Borrowed(&data[from..from + count]))?;
            from += count;
        }
        run.finish()
    }
}

/// Where a reader came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    EndOfRange,
    EndOfFile,
}

/// A range that is being read.
struct ReadRun {
    /// Everything before it has been handed over.
    done: u64,
    end: u64,
    /// It is one request.
    is_one: bool,
    depth: usize,
    /// Answers may come before they are verified as a whole.
    in_steps: bool,
    /// InProcess the server's process they may say where bytes lie. One answer is enough, however much it is.
    hands_on: bool,
}

impl ReadRun {
    fn of(range: ByteRange, depth: usize) -> ReadRun {
        let depth = depth.clamp(1, DEPTH_MAX);
        ReadRun { done: range.start(), end: range.end(), is_one: false, depth, in_steps: true, hands_on: false }
    }
}

/// A run of writes in flight on one connection.
struct WriteRun<'f, 'd> {
    file: &'f File,
    place: Option<Place>,
    /// Who answers for the writes in flight, and how new the map was by which it was found.
    route: Route,
    age: Age,
    flight: VecDeque<Sent<'d>>,
    depth: usize,
    /// How many of them are still to be sent.
    unsent: usize,
    patience: Patience,
    newest: Hlc,
    /// Buffers of writes that are done.
    spare: Vec<Vec<u8>>,
}

/// One write in flight. Its bytes are kept until it is answered: it may have to be sent again.
struct Sent<'d> {
    offset: u64,
    data: Cow<'d, [u8]>,
    seq: Seq,
    /// Request id on the current connection; `None` if it is to be sent (again).
    id: Option<u64>,
}

impl<'f, 'd> WriteRun<'f, 'd> {
    fn new(file: &'f File, depth: usize) -> WriteRun<'f, 'd> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let patience = file.shared.patience();
        WriteRun {
            file,
            place: None,
            route: Route::Lead,
            age: Age::default(),
            flight: VecDeque::with_capacity(depth),
            depth,
            unsent: 0,
            patience,
            newest: Hlc::ZERO,
            spare: Vec::new(),
        }
    }

    /// Sends one more write, once there is room for it.
    fn push(&mut self, offset: u64, data: Cow<'d, [u8]>) -> Result<(), Error> {
        let fits = self.file.at_one_head(offset, data.len() as u64) as usize;
        if fits < data.len() {
            let (first, rest) = match data {
                Cow::Borrowed(data) => (Cow::Borrowed(&data[..fits]), Cow::Borrowed(&data[fits..])),
                Cow::Owned(mut data) => {
                    let rest = data.split_off(fits);
                    (Cow::Owned(data), Cow::Owned(rest))
                }
            };
            self.push(offset, first)?;
            return self.push(offset + fits as u64, rest);
        }
        while self.flight.len() >= self.depth {
            self.settle_some()?;
        }
        let route = Route::Write(self.file.chunk_at(offset));
        if !self.file.shared.servers.is_same(self.route, route) {
            // The rest goes to another server.
            self.pause()?;
        }
        self.route = route;
        if !self.file.is_granted(offset, data.len()) {
            // The grant is asked for over another connection, and there may be only one.
            self.pause()?;
            self.file.ensure_granted(offset, data.len())?;
        }
        self.file.note_dirty();
        let seq = self.file.shared.sequence.take();
        let is_small = data.len() <= SMALL_BYTES;
        self.flight.push_back(Sent { offset, data, seq, id: None });
        self.unsent += 1;
        // While the server is busy with those before, others may join it.
        let is_busy = self.flight.len() > self.unsent;
        if is_small && is_busy && self.unsent < self.depth.div_ceil(2) { Ok(()) } else { self.send_unsent() }
    }

    /// Waits for all writes and gives the connection back. Returns the newest stamp.
    fn finish(mut self) -> Result<Hlc, Error> {
        self.pause()?;
        Ok(self.newest)
    }

    fn pause(&mut self) -> Result<(), Error> {
        while !self.flight.is_empty() {
            self.settle_one()?;
        }
        if let Some(place) = self.place.take() {
            place.give_back();
        }
        Ok(())
    }

    /// Sends whatever is not on its way, over a new connection if need be.
    fn send_unsent(&mut self) -> Result<(), Error> {
        while let Err(error) = self.try_send() {
            self.lose(error)?;
            self.turn_to_first();
        }
        Ok(())
    }

    fn try_send(&mut self) -> Result<(), Error> {
        let (file, shared) = (self.file, &self.file.shared);
        if self.place.is_none() {
            self.age = shared.servers.age();
            self.place = Some(shared.take(self.route, &self.patience)?);
        }
        let place = self.place.as_mut().expect("just taken");
        let connection = shared.opened(place, &self.patience)?;
        if self.unsent == 0 {
            return Ok(());
        }
        let (mut together, mut left) = (0, 0);
        for piece in self.flight.iter_mut().filter(|piece| piece.id.is_none()) {
            let route = Route::Write(file.chunk_at(piece.offset));
            if route != self.route && !shared.servers.is_same(route, self.route) {
                // Their heads have parted since: it goes when those before it are done.
                left += 1;
                continue;
            }
            let ask = file.ask_write(piece.offset, &piece.data, WritePlace::At, piece.seq);
            if piece.data.len() <= SMALL_BYTES {
                piece.id = Some(shared.put(connection, &ask));
                together += 1;
                continue;
            }
            if std::mem::take(&mut together) > 0 {
                connection.send_together()?;
            }
            piece.id = Some(shared.send(connection, &ask)?);
        }
        if together > 0 {
            connection.send_together()?;
        }
        self.unsent = left;
        Ok(())
    }

    /// If nothing is on its way: what was pushed first goes first, to whoever answers for it now.
    fn turn_to_first(&mut self) {
        let Some(first) = self.flight.front().filter(|_| self.flight.iter().all(|piece| piece.id.is_none())) else {
            return;
        };
        let route = Route::Write(self.file.chunk_at(first.offset));
        if route != self.route
            && !self.file.shared.servers.is_same(route, self.route)
            && let Some(place) = self.place.take()
        {
            place.give_back();
        }
        self.route = route;
    }

    /// The connection failed: everything unanswered is to be sent again, under the same numbers.
    fn lose(&mut self, error: Error) -> Result<(), Error> {
        if let Some(place) = self.place.take() {
            self.file.shared.abandon(place, &error, self.age, &self.patience);
        }
        self.flight.iter_mut().for_each(|piece| piece.id = None);
        self.unsent = self.flight.len();
        if !is_worth_repeating(&error) {
            return Err(error);
        }
        self.patience.wait(&self.file.shared, error)
    }

    /// Waits until a write is answered, and takes the answers that came with it.
    fn settle_some(&mut self) -> Result<(), Error> {
        self.settle_one()?;
        let has_answer = |run: &Self| {
            let connection = run.place.as_ref().and_then(|place| place.connection.as_ref());
            connection.is_some_and(|connection| connection.has_answer())
        };
        // Those that go out again are waited for with the rest.
        while self.unsent == 0 && !self.flight.is_empty() && has_answer(self) {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Waits until one write is answered.
    fn settle_one(&mut self) -> Result<(), Error> {
        loop {
            self.turn_to_first();
            self.send_unsent()?;
            let shared = &self.file.shared;
            let connection =
                self.place.as_mut().and_then(|place| place.connection.as_mut()).expect("something was sent over it");
            let answer = match shared.receive_any(connection) {
                Ok(answer) => answer,
                Err(error) => {
                    self.lose(error)?;
                    continue;
                }
            };
            let id = answer.header.request_id;
            let Some(at) = self.flight.iter().position(|piece| piece.id == Some(id)) else {
                let found = format!("request {id}");
                let error = Error::Protocol { server: shared.server(), asked: "another request", found };
                self.lose(error)?;
                continue;
            };
            match answer.result {
                Ok(Reply::Write(reply)) => {
                    self.newest = self.newest.max(Hlc(reply.stamp));
                    self.patience.renew(shared);
                    connection.set_limit(self.patience.left());
                    self.remove(at);
                    return Ok(());
                }
                Ok(other) => {
                    let error = shared.unexpected("a write", &other);
                    self.lose(error)?;
                }
                // Another server may answer this one, and those behind it.
                Err(fault) if is_passing(&fault) && !self.age.is_alone() => self.lose(Error::Refused(fault))?,
                Err(fault) if is_passing(&fault) => {
                    self.flight[at].id = None;
                    self.unsent += 1;
                    self.patience.wait(shared, Error::Refused(fault))?;
                }
                Err(fault) if is_without_grant(&fault) => {
                    let piece = self.remove_whole(at);
                    self.file.note_lost_grant(piece.offset);
                    // Its own request asks for the grant again; the rest of the run goes on when that is done.
                    self.pause()?;
                    let reply = self.file.write_once(piece.offset, &piece.data, WritePlace::At)?;
                    self.newest = self.newest.max(Hlc(reply.stamp));
                    return Ok(());
                }
                Err(fault) => {
                    self.remove(at);
                    return Err(Error::Refused(fault));
                }
            }
        }
    }

    fn remove_whole(&mut self, at: usize) -> Sent<'d> {
        let piece = self.flight.remove(at).expect("its position was just found");
        self.file.shared.sequence.answered(piece.seq);
        piece
    }

    fn remove(&mut self, at: usize) {
        if let Cow::Owned(buffer) = self.remove_whole(at).data {
            self.spare.push(buffer);
        }
    }
}

impl Drop for WriteRun<'_, '_> {
    /// After a failure: nobody will ask for the answers that are still to come, and the connection that carries them ends
    /// with its place.
    fn drop(&mut self) {
        self.flight.iter().for_each(|piece| self.file.shared.sequence.answered(piece.seq));
    }
}

/// Whose failure ended a stream.
enum Failure<E> {
    Ours(Error),
    Theirs(E),
}

/// Length of the next request: up to the next multiple of `step`, a part of a chunk, so that those after it never cross one.
fn piece_len(offset: u64, left: u64, step: usize) -> usize {
    let step = step as u64;
    (step - offset % step).min(left) as usize
}

/// The last pieces of what the caller waits for are smaller: while the server works on the last one nothing is on its way.
fn tapered(piece: usize, left: usize) -> usize {
    if left > piece || piece <= LAST_BYTES { piece } else { piece / 2 }
}

fn too_large(len: usize) -> Error {
    Error::RecordTooLarge { len, max: PAYLOAD_BYTES_MAX as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pieces_of_a_large_write_are_smaller() {
        let pieces = |len: usize| {
            let mut lens = Vec::new();
            let mut from = 0;
            while from < len {
                lens.push(tapered(piece_len(from as u64, (len - from) as u64, REQUEST_BYTES), len - from) >> 10);
                from += lens[lens.len() - 1] << 10;
            }
            lens
        };
        assert_eq!(pieces(3 << 20), [1024, 1024, 512, 256, 256]);
        assert_eq!(pieces((1 << 20) + (200 << 10)), [1024, 200]);
    }
}
