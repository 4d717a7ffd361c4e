//! What a connection is read through: few bytes, for a short time, until it is known whose it is.
//!
//! Guarantees: whoever has proven nothing has a buffer of [`SMALL_BYTES`] and until a given moment, however slowly it sends.
//! Leaves to others: what proves it, and how much is read at once from then on.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::net::TcpStream;
use std::time::Duration;

use frieze_client::mono;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of the buffer of a connection of which nothing is known, or that is silent.
pub(crate) const SMALL_BYTES: usize = 4 << 10;
/// How long a connection may take to say, or prove, whose it is.
pub(crate) const PROOF_MAX: Duration = Duration::from_secs(10);
/// A connection that is silent for so long gives its buffer back.
const REST_AFTER: Duration = Duration::from_secs(5);

/// What came in the buffer of before, then what the socket has.
pub(crate) type GuardedReader<'s> = BufReader<Chain<Cursor<Vec<u8>>, DeadlineSocket<'s>>>;

/// A socket that is read until a moment at most, if there is one.
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
            // Less than a microsecond would be for ever.
            self.stream.set_read_timeout(Some(Duration::from_nanos(left.max(1000))))?;
        }
        (&*self.stream).read(into)
    }
}

/// Reads a connection that has just begun: all that comes has to be there within [`PROOF_MAX`].
pub(crate) fn reader(stream: &TcpStream) -> GuardedReader<'_> {
    let reader = with_buffer(Vec::new(), DeadlineSocket { stream, until_ns: Cell::new(None) }, SMALL_BYTES);
    expire(&reader, PROOF_MAX);
    reader
}

/// What comes next has to be there after so long.
pub(crate) fn expire(reader: &GuardedReader<'_>, after: Duration) {
    reader.get_ref().get_ref().1.until_ns.set(Some(mono().0 + after.as_nanos() as u64));
}

/// It is known whose the connection is: it may be silent for so long.
///
/// # Errors
/// The socket's.
pub(crate) fn admit(reader: &GuardedReader<'_>, silence: Duration) -> io::Result<()> {
    let timed = reader.get_ref().get_ref().1;
    timed.until_ns.set(None);
    timed.stream.set_read_timeout(Some(silence))
}

/// Gives the reader a buffer of so many bytes. Nothing that came is lost.
///
/// # Errors
/// None of the socket, which is not asked.
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

/// A large buffer is given back if nothing comes for a while.
///
/// # Errors
/// The socket's.
pub(crate) fn rest(reader: &mut GuardedReader<'_>) -> io::Result<()> {
    if reader.capacity() == SMALL_BYTES || !reader.buffer().is_empty() {
        return Ok(());
    }
    let timeout = Timespec { tv_sec: REST_AFTER.as_secs() as i64, tv_nsec: 0 };
    let mut sockets = [PollFd::new(reader.get_ref().get_ref().1.stream, PollFlags::IN)];
    // Interrupted, it is asked the next time.
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
    fn who_sends_a_byte_now_and_then_has_no_more_time_than_others() {
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
