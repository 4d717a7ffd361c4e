//! Streams of writes.

use std::borrow::Cow;
use std::collections::VecDeque;

use frieze_base::Seq;
use frieze_hlc::Hlc;
use frieze_trace::{CallKind, CallScope, OpenSpan};
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::Reply;

use crate::Error;
use crate::buffers::REQUEST_BYTES;
use crate::file::write::{WritePosition, is_without_grant};
use crate::file::{File, check_range};
use crate::pool::PooledConnection;
use crate::retry::{RetryBudget, is_retryable, is_transient};
use crate::route::ServerRoute;
use crate::servers::MapAge;
use crate::stream::{DEPTH, DEPTH_MAX, piece_len};
use crate::trace;

impl File {
    /// Writes the bytes of `source` from `offset` on, with `depth` requests in flight. `source` fills the empty buffer
    /// (1 MiB is sent as one request, more is split) and returns whether more follows. Returns the bytes written and
    /// the stamp of the last write.
    ///
    /// # Errors
    /// As [`File::write_at`], and what `source` fails with. Some of the writes in flight may have happened.
    pub fn write_stream<E: From<Error>>(
        &self,
        offset: u64,
        depth: usize,
        source: impl FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(u64, Hlc), E> {
        self.must_write()?;
        let scope = self.scope(CallKind::Write, offset, 0);
        let written = self.write_pieces(offset, depth, source);
        note_write(&scope, &written);
        written
    }

    fn write_pieces<E: From<Error>>(
        &self,
        offset: u64,
        depth: usize,
        mut source: impl FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(u64, Hlc), E> {
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

    /// Makes many writes, each where `next` says, with `depth` in flight (1 to 64; 32 small ones keep both sides busy).
    /// Those in flight together may run in any order: they should not overlap. `next` fills the empty buffer and
    /// returns where its bytes go, or `None` after the last. Each write is atomic within a chunk and visible once the
    /// server has it, whatever happens to those after it. Returns the bytes written and the newest stamp.
    ///
    /// # Errors
    /// As [`File::write_at`], and what `next` fails with. Some of the writes in flight may have happened.
    pub fn write_many<E: From<Error>>(
        &self,
        depth: usize,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<u64>, E>,
    ) -> Result<(u64, Hlc), E> {
        self.must_write()?;
        let scope = self.scope(CallKind::Write, 0, 0);
        let mut count = 0;
        let written = self.write_each(depth, |buffer| {
            let place = next(buffer);
            count += u64::from(matches!(place, Ok(Some(_))));
            place
        });
        scope.count(count);
        note_write(&scope, &written);
        written
    }

    fn write_each<E: From<Error>>(
        &self,
        depth: usize,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<u64>, E>,
    ) -> Result<(u64, Hlc), E> {
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
        let stamp = run.finish()?;
        // Within the scope of the caller.
        self.scope(CallKind::Write, offset, data.len() as u64).moved(data.len() as u64);
        Ok(stamp)
    }
}

/// Notes the bytes of a write of several pieces, and how it ended.
fn note_write<E>(scope: &CallScope<'_>, written: &Result<(u64, Hlc), E>) {
    scope.moved(written.as_ref().map_or(0, |(bytes, _)| *bytes));
    trace::note_stream_end(scope, written);
}

/// Writes in flight on one connection.
struct WriteRun<'f, 'd> {
    file: &'f File,
    pooled: Option<PooledConnection>,
    /// The route of the writes in flight, and the age of the map by which it was found.
    route: ServerRoute,
    age: MapAge,
    flight: VecDeque<InFlightWrite<'d>>,
    depth: usize,
    /// How many of them are still to be sent.
    unsent: usize,
    budget: RetryBudget,
    newest: Hlc,
    /// Buffers of writes that are done.
    spare: Vec<Vec<u8>>,
}

/// One write in flight. Its bytes are kept until the reply: it may have to be sent again.
struct InFlightWrite<'d> {
    offset: u64,
    data: Cow<'d, [u8]>,
    seq: Seq,
    /// Request id on the current connection; `None` if it is to be sent (again).
    id: Option<u64>,
    /// The span of the write, if it is sampled; it ends with the reply.
    span: Option<OpenSpan>,
}

impl<'f, 'd> WriteRun<'f, 'd> {
    fn new(file: &'f File, depth: usize) -> WriteRun<'f, 'd> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let budget = file.shared.retry_budget();
        WriteRun {
            file,
            pooled: None,
            route: ServerRoute::Lead,
            age: MapAge::default(),
            flight: VecDeque::with_capacity(depth),
            depth,
            unsent: 0,
            budget,
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
            self.receive_some()?;
        }
        let route = ServerRoute::Write(self.file.chunk_at(offset));
        if !self.file.shared.servers.is_same(self.route, route) {
            // The rest goes to another server.
            self.pause()?;
        }
        self.route = route;
        if !self.file.is_granted(offset, data.len()) {
            // The grant is requested over another connection, and there may be only one.
            self.pause()?;
            self.file.ensure_granted(offset, data.len())?;
        }
        self.file.note_dirty();
        let seq = self.file.shared.sequence.take();
        let is_small = data.len() <= SMALL_BYTES;
        self.flight.push_back(InFlightWrite { offset, data, seq, id: None, span: None });
        self.unsent += 1;
        // While the server handles earlier writes, more are gathered.
        let is_busy = self.flight.len() > self.unsent;
        if is_small && is_busy && self.unsent < self.depth.div_ceil(2) { Ok(()) } else { self.send_unsent() }
    }

    /// Waits for all writes and returns the connection to the pool. Returns the newest stamp.
    fn finish(mut self) -> Result<Hlc, Error> {
        self.pause()?;
        Ok(self.newest)
    }

    fn pause(&mut self) -> Result<(), Error> {
        while !self.flight.is_empty() {
            self.receive_one()?;
        }
        if let Some(pooled) = self.pooled.take() {
            pooled.give_back();
        }
        Ok(())
    }

    /// Sends every unsent write, over a new connection if need be.
    fn send_unsent(&mut self) -> Result<(), Error> {
        while let Err(error) = self.try_send() {
            self.lose(error)?;
            self.turn_to_first();
        }
        Ok(())
    }

    fn try_send(&mut self) -> Result<(), Error> {
        let (file, shared) = (self.file, &self.file.shared);
        if self.pooled.is_none() {
            self.age = shared.servers.age();
            self.pooled = Some(shared.take(self.route, &self.budget)?);
        }
        let pooled = self.pooled.as_mut().expect("just taken");
        let connection = shared.opened(pooled, &self.budget)?;
        if self.unsent == 0 {
            return Ok(());
        }
        let (mut queued, mut left) = (0, 0);
        for piece in self.flight.iter_mut().filter(|piece| piece.id.is_none()) {
            let route = ServerRoute::Write(file.chunk_at(piece.offset));
            if route != self.route && !shared.servers.is_same(route, self.route) {
                // Another server is the head of this chunk now: the write is sent after the earlier ones.
                left += 1;
                continue;
            }
            let request = file.write_request(piece.offset, &piece.data, WritePosition::At, piece.seq);
            shared.sample_once(&request, &mut piece.span);
            if piece.data.len() <= SMALL_BYTES {
                piece.id = Some(shared.queue(connection, &request));
                queued += 1;
                continue;
            }
            if std::mem::take(&mut queued) > 0 {
                connection.send_queued()?;
            }
            piece.id = Some(shared.send(connection, &request)?);
        }
        if queued > 0 {
            connection.send_queued()?;
        }
        self.unsent = left;
        Ok(())
    }

    /// If no write was sent, turns to the server that now answers for the first one.
    fn turn_to_first(&mut self) {
        let Some(first) = self.flight.front().filter(|_| self.flight.iter().all(|piece| piece.id.is_none())) else {
            return;
        };
        let route = ServerRoute::Write(self.file.chunk_at(first.offset));
        if route != self.route
            && !self.file.shared.servers.is_same(route, self.route)
            && let Some(pooled) = self.pooled.take()
        {
            pooled.give_back();
        }
        self.route = route;
    }

    /// After a failure of the connection, sends every unanswered write again under the same number.
    fn lose(&mut self, error: Error) -> Result<(), Error> {
        if let Some(pooled) = self.pooled.take() {
            self.file.shared.abandon(pooled, &error, self.age, &self.budget);
        }
        self.flight.iter_mut().for_each(|piece| piece.id = None);
        self.unsent = self.flight.len();
        if !is_retryable(&error) {
            return Err(error);
        }
        self.file.shared.wait_to_retry(&mut self.budget, error)
    }

    /// Waits for the reply to one write, and receives those that arrived with it.
    fn receive_some(&mut self) -> Result<(), Error> {
        self.receive_one()?;
        let has_reply = |run: &Self| {
            let connection = run.pooled.as_ref().and_then(|pooled| pooled.connection.as_ref());
            connection.is_some_and(|connection| connection.has_reply())
        };
        // Writes that are sent again are waited for with the rest.
        while self.unsent == 0 && !self.flight.is_empty() && has_reply(self) {
            self.receive_one()?;
        }
        Ok(())
    }

    /// Waits for the reply to one write.
    fn receive_one(&mut self) -> Result<(), Error> {
        loop {
            self.turn_to_first();
            self.send_unsent()?;
            let shared = &self.file.shared;
            let connection =
                self.pooled.as_mut().and_then(|pooled| pooled.connection.as_mut()).expect("something was sent over it");
            let reply = match shared.receive_any(connection) {
                Ok(reply) => reply,
                Err(error) => {
                    self.lose(error)?;
                    continue;
                }
            };
            let id = reply.header.request_id;
            let Some(at) = self.flight.iter().position(|piece| piece.id == Some(id)) else {
                let found = format!("request {id}");
                let error = Error::Protocol { server: shared.server(), asked: "another request", found };
                self.lose(error)?;
                continue;
            };
            match reply.result {
                Ok(Reply::Write(write)) => {
                    self.newest = self.newest.max(Hlc(write.stamp));
                    self.budget = shared.retry_budget();
                    connection.set_limit(self.budget.left());
                    self.remove(at);
                    return Ok(());
                }
                Ok(other) => {
                    let error = shared.unexpected("a write", &other);
                    self.lose(error)?;
                }
                // Another server may answer this write and those behind it.
                Err(fault) if is_transient(&fault) && !self.age.is_alone() => self.lose(Error::Refused(fault))?,
                Err(fault) if is_transient(&fault) => {
                    self.flight[at].id = None;
                    self.unsent += 1;
                    shared.wait_to_retry(&mut self.budget, Error::Refused(fault))?;
                }
                Err(fault) if is_without_grant(&fault) => {
                    let piece = self.remove_whole(at);
                    self.file.note_lost_grant(piece.offset);
                    // A request of its own gets the grant again; the rest of the run continues after it.
                    self.pause()?;
                    let reply = self.file.write_once(piece.offset, &piece.data, WritePosition::At)?;
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

    fn remove_whole(&mut self, at: usize) -> InFlightWrite<'d> {
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
    /// After an error: marks the unanswered writes as answered. The connection that their replies would arrive on is
    /// closed.
    fn drop(&mut self) {
        self.flight.iter().for_each(|piece| self.file.shared.sequence.answered(piece.seq));
    }
}

/// Halves the last pieces of a large write: while the server handles the last one, no other is in flight.
fn tapered(piece: usize, left: usize) -> usize {
    if left > piece || piece <= LAST_BYTES { piece } else { piece / 2 }
}

fn too_large(len: usize) -> Error {
    Error::RecordTooLarge { len, max: PAYLOAD_BYTES_MAX as usize }
}

/// Requests up to this size are copied and sent together.
const SMALL_BYTES: usize = 16 << 10;
/// Largest last piece of a large write.
const LAST_BYTES: usize = 256 << 10;

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
