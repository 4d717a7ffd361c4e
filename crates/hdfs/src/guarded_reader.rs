//! The reader of a connection: a small buffer and a deadline until its user is known.
//!
//! Guarantees: a connection without proof of its user has a buffer of [`SMALL_BYTES`] and a fixed deadline, however
//! slowly it sends.
//! Leaves to others: the proof, and the size of later reads.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::net::TcpStream;
use std::time::Duration;

use frieze_client::mono;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Buffer of a connection whose user is unknown, or that is silent.
pub(crate) const SMALL_BYTES: usize = 4 << 10;
/// Time for a connection to prove its user.
pub(crate) const PROOF_MAX: Duration = Duration::from_secs(10);
/// A connection that is silent for this long returns its large buffer.
const REST_AFTER: Duration = Duration::from_secs(5);

/// The rest of a former buffer, then the socket.
pub(crate) type GuardedReader<'s> = BufReader<Chain<Cursor<Vec<u8>>, DeadlineSocket<'s>>>;

/// A socket with a deadline for reads, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct DeadlineSocket<'s> {
    stream: &'s TcpStream,
    until_ns: Cell<Option<u64>>,
}

impl Read for DeadlineSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(until_ns) = self.until_ns.get() {
            let left = until_ns.saturating_sub(mono().0);
            if left == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // A timeout of less than a microsecond would mean none.
            self.stream.set_read_timeout(Some(Duration::from_nanos(left.max(1000))))?;
        }
        (&*self.stream).read(into)
    }
}

/// The reader of a new connection: everything has to arrive within [`PROOF_MAX`].
pub(crate) fn reader(stream: &TcpStream) -> GuardedReader<'_> {
    let reader = with_buffer(Vec::new(), DeadlineSocket { stream, until_ns: Cell::new(None) }, SMALL_BYTES);
    expire(&reader, PROOF_MAX);
    reader
}

/// Sets a deadline for what arrives next.
pub(crate) fn expire(reader: &GuardedReader<'_>, after: Duration) {
    reader.get_ref().get_ref().1.until_ns.set(Some(mono().0 + after.as_nanos() as u64));
}

/// The user is known: the connection may be silent for this long.
///
/// # Errors
/// The socket's.
pub(crate) fn admit(reader: &GuardedReader<'_>, silence: Duration) -> io::Result<()> {
    let timed = reader.get_ref().get_ref().1;
    timed.until_ns.set(None);
    timed.stream.set_read_timeout(Some(silence))
}

/// Gives the reader a buffer of this size. No received byte is lost.
///
/// # Errors
/// None of the socket, which is not read.
pub(crate) fn resize(reader: &mut GuardedReader<'_>, bytes: usize) -> io::Result<()> {
    if reader.capacity() == bytes {
        return Ok(());
    }
    let (before, timed) = reader.get_ref().get_ref();
    let more = &before.get_ref()[before.position() as usize..];
    let came = [reader.buffer(), more].concat();
    let is_empty = came.is_empty();
    *reader = with_buffer(came, timed.clone(), bytes);
    if !is_empty {
        reader.fill_buf()?;
    }
    Ok(())
}

/// Returns a large buffer if nothing arrives for a while.
///
/// # Errors
/// The socket's.
pub(crate) fn rest(reader: &mut GuardedReader<'_>) -> io::Result<()> {
    if reader.capacity() == SMALL_BYTES || !reader.buffer().is_empty() {
        return Ok(());
    }
    let timeout = Timespec { tv_sec: REST_AFTER.as_secs() as i64, tv_nsec: 0 };
    let mut sockets = [PollFd::new(reader.get_ref().get_ref().1.stream, PollFlags::IN)];
    // If it is interrupted, the next call checks again.
    if poll(&mut sockets, Some(&timeout)) == Ok(0) { resize(reader, SMALL_BYTES) } else { Ok(()) }
}

fn with_buffer<'s>(came: Vec<u8>, timed: DeadlineSocket<'s>, bytes: usize) -> GuardedReader<'s> {
    BufReader::with_capacity(bytes, Cursor::new(came).chain(timed))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn what_came_is_read_in_order_whatever_the_buffer_becomes() {
        let (mut client, server) = pair();
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        client.write_all(&bytes).unwrap();
        drop(client);
        let (mut reader, mut read) = (reader(&server), Vec::new());
        for (len, capacity) in [(1, 64 << 10), (7000, SMALL_BYTES), (1, 100), (50, 64 << 10), (12_948, 10)] {
            let mut part = vec![0; len];
            reader.read_exact(&mut part).unwrap();
            read.extend(part);
            resize(&mut reader, capacity).unwrap();
            assert_eq!(reader.capacity(), capacity);
        }
        assert!(read == bytes);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_deadline_holds_however_slowly_bytes_arrive() {
        let (mut client, server) = pair();
        let mut reader = reader(&server);
        expire(&reader, Duration::from_millis(50));
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| reader.read_exact(&mut [0; 1 << 20]).unwrap_err().kind());
            while !ended.is_finished() {
                client.write_all(b"x").unwrap();
                std::thread::park_timeout(Duration::from_millis(1));
            }
            assert_eq!(ended.join().unwrap(), io::ErrorKind::WouldBlock);
        });
        admit(&reader, Duration::from_secs(20)).unwrap();
        client.write_all(&[7; 1 << 10]).unwrap();
        assert!(reader.read(&mut [0; 16]).is_ok());
    }
}
