//! Streams of reads.

use std::collections::VecDeque;

use frieze_base::ByteRange;
use frieze_net::PayloadPart;
use frieze_trace::{CallKind, CallScope, OpenSpan};

use crate::Error;
use crate::buffers::REQUEST_BYTES;
use crate::connection::Connection;
use crate::file::read::expect_read;
use crate::file::{File, check_range};
use crate::pool::PooledConnection;
use crate::retry::{RetryBudget, is_retryable};
use crate::route::ServerRoute;
use crate::stream::{DEPTH, DEPTH_MAX, StreamError, piece_len};
use crate::trace;

/// Notes the bytes of a read of several pieces, and how it ended.
fn note_read<E>(scope: &CallScope<'_>, read: &Result<u64, E>) {
    scope.moved(read.as_ref().copied().unwrap_or(0));
    trace::note_stream_end(scope, read);
}

impl File {
    /// Reads a range in order, with `depth` requests of 1 MiB in flight (1 to 64; 4 is plenty on one machine), and
    /// hands each piece to `sink`. Ends at the end of the range or of the file. Returns how many bytes there were.
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
        let scope = self.scope(CallKind::Read, range.start(), range.len());
        // One buffer for all pieces stays in the cache. A payload in memory needs none.
        let mut buffer = None;
        let read = self.read_pieces(ReadRun::of(range, depth), |connection, _, len| {
            let make = || self.shared.buffers.take(REQUEST_BYTES.min(range.len() as usize));
            sink(connection.payload(len, &mut buffer, make).map_err(StreamError::Client)?).map_err(StreamError::Program)
        });
        buffer.into_iter().for_each(|buffer| self.shared.buffers.give_back(buffer));
        note_read(&scope, &read);
        read
    }

    /// Reads up to `len` bytes (at most 1 MiB) from `offset` on, for a gateway in the server's process. Bytes that lie
    /// in a file of the system are not read: the range of that file is returned ([`PayloadPart::File`]). They are
    /// unverified: the receiver compares them with a checksum that was taken when they were written. If they differ, or
    /// the receiver has no checksum, read them by [`File::read_at`].
    ///
    /// `payload` receives the bytes that were read, in exchange for its buffer; `parts` the parts in order, or none if
    /// all bytes were read. Returns the number of bytes, read or not: fewer at the end of the file, and at the end of a
    /// record if the next one would be cut.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_ranges(
        &self,
        offset: u64,
        len: usize,
        payload: &mut Vec<u8>,
        parts: &mut Vec<PayloadPart>,
    ) -> Result<usize, Error> {
        self.must_read()?;
        let len = len.min(REQUEST_BYTES);
        check_range(offset, len as u64)?;
        payload.clear();
        parts.clear();
        let run =
            ReadRun { is_one: true, wants_ranges: true, ..ReadRun::of(ByteRange::new(offset, offset + len as u64), 1) };
        let scope = self.scope(CallKind::Read, offset, len as u64);
        let count = self.read_pieces::<Error>(run, |connection, _, count| {
            connection.read_payload_parts(count, payload, parts).map_err(StreamError::Client)
        });
        note_read(&scope, &count);
        Ok(count? as usize)
    }

    /// A large read, straight into `into`.
    pub(crate) fn read_at_wide(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let range = ByteRange::new(offset, offset + into.len() as u64);
        // Up to 1 MiB is one request, so that it is one state of the file.
        let is_one = into.len() <= REQUEST_BYTES;
        let run = ReadRun { is_one, ..ReadRun::of(range, DEPTH) };
        let scope = self.scope(CallKind::Read, offset, into.len() as u64);
        let count = self.read_pieces::<Error>(run, |connection, at, len| {
            let start = (at - offset) as usize;
            connection.read_payload(&mut into[start..start + len]).map_err(StreamError::Client)
        });
        note_read(&scope, &count);
        Ok(count? as usize)
    }

    /// Reads a range piece by piece in order, or as one; `take` receives the payload of each from the connection.
    fn read_pieces<E: From<Error>>(
        &self,
        mut run: ReadRun,
        mut take: impl FnMut(&mut Connection, u64, usize) -> Result<(), StreamError<E>>,
    ) -> Result<u64, E> {
        let range = ByteRange::new(run.done, run.end);
        let mut budget = self.shared.retry_budget();
        loop {
            let age = self.shared.servers.age();
            let mut pooled = self.shared.take(ServerRoute::Read(self.chunk_at(run.done)), &budget)?;
            run.end = run.done + self.at_one_server(run.done, range.end() - run.done, ServerRoute::Read);
            match self.read_on(&mut pooled, &mut budget, &mut run, &mut take) {
                Ok(reached) => {
                    pooled.give_back();
                    if reached == ReadEnd::EndOfFile || run.done == range.end() || run.wants_ranges {
                        return Ok(run.done - range.start());
                    }
                }
                Err(StreamError::Program(error)) => return Err(error),
                Err(StreamError::Client(error)) if is_retryable(&error) => {
                    self.shared.abandon(pooled, &error, age, &budget);
                    self.shared.wait_to_retry(&mut budget, error)?;
                    // The reply may have ended at damage: without steps the server names it.
                    run.in_steps = false;
                }
                Err(StreamError::Client(error)) => {
                    let route = ServerRoute::Read(self.chunk_at(run.done));
                    if !budget.passes_over(&self.shared.servers, route, pooled.pool(), &error) {
                        return Err(error.into());
                    }
                    // Replies to requests sent ahead are still to come on that connection.
                    drop(pooled);
                }
            }
        }
    }

    /// Continues to read over one connection until the end or an error; `run.done` is the end of what was read.
    fn read_on<E>(
        &self,
        pooled: &mut PooledConnection,
        budget: &mut RetryBudget,
        run: &mut ReadRun,
        take: &mut impl FnMut(&mut Connection, u64, usize) -> Result<(), StreamError<E>>,
    ) -> Result<ReadEnd, StreamError<E>> {
        let shared = &self.shared;
        let connection = shared.opened(pooled, budget).map_err(StreamError::Client)?;
        // If this thread does the server's work, requests ahead gain nothing, and pieces that one core handles stay in
        // its cache. Steps serve only to receive ranges of files: a payload that was read as a whole is handed over as
        // it is.
        let is_local = connection.runs_on_caller();
        let wants_ranges = run.wants_ranges && is_local && run.in_steps;
        let (depth, step) = if is_local { (1, LOCAL_BYTES) } else { (run.depth, REQUEST_BYTES) };
        let mut next = run.done;
        let mut flight: VecDeque<(u64, u64, usize, Option<OpenSpan>)> = VecDeque::with_capacity(depth);
        loop {
            while flight.len() < depth && next < run.end {
                let left = run.end - next;
                let len = if run.is_one { left as usize } else { piece_len(next, left, step) };
                let in_steps = if is_local { wants_ranges } else { run.in_steps };
                let request = self.read_request(next, len, in_steps);
                let span = shared.request_span(&request);
                let id = shared.send(connection, &request).map_err(StreamError::Client)?;
                flight.push_back((id, next, len, span));
                next += len as u64;
            }
            // A server answers the reads of one connection in the order in which they arrive.
            let Some((id, at, len, _span)) = flight.pop_front() else { return Ok(ReadEnd::EndOfRange) };
            let reply = shared.receive(connection, id).map_err(StreamError::Client)?;
            let read = expect_read(shared, reply.result.map_err(|fault| StreamError::Client(Error::Refused(fault)))?)
                .map_err(StreamError::Client)?;
            self.note_read(&read);
            let count = reply.header.payload_len as usize;
            if count > len {
                let found = format!("{count} bytes of payload");
                let asked = "a request for fewer";
                return Err(StreamError::Client(Error::Protocol { server: shared.server(), asked, found }));
            }
            take(connection, at, count)?;
            run.done = at + count as u64;
            *budget = shared.retry_budget();
            connection.set_limit(budget.left());
            if run.wants_ranges {
                return Ok(ReadEnd::EndOfRange);
            }
            if count < len {
                // At the end of the file the replies still to come are empty. If the server cut a reply short for
                // another reason, the next request continues from there.
                while let Some((id, ..)) = flight.pop_front() {
                    shared.receive(connection, id).map_err(StreamError::Client)?;
                }
                if read.end_of_file || count == 0 {
                    return Ok(ReadEnd::EndOfFile);
                }
                next = run.done;
            }
        }
    }
}

/// What ended a read over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEnd {
    EndOfRange,
    EndOfFile,
}

/// A range that is being read.
struct ReadRun {
    /// Everything before this offset was handed over.
    done: u64,
    end: u64,
    /// One request reads all of it.
    is_one: bool,
    depth: usize,
    /// Replies may begin before they are verified as a whole.
    in_steps: bool,
    /// Within the server's process replies may name ranges of files. The first reply is enough, whatever its length.
    wants_ranges: bool,
}

impl ReadRun {
    fn of(range: ByteRange, depth: usize) -> ReadRun {
        let depth = depth.clamp(1, DEPTH_MAX);
        ReadRun { done: range.start(), end: range.end(), is_one: false, depth, in_steps: true, wants_ranges: false }
    }
}

/// Length of a request if this thread does the server's work: half of the second-level cache of a core of today.
const LOCAL_BYTES: usize = 256 << 10;
