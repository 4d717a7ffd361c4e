//! A transfer that came to the wrong door: everything goes on to the right one, and back, as it is.
//!
//! Which one is right, a signed token said. A client comes here when it could not reach that door, or lost its connection to it.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use prost::encoding::encode_varint;

use crate::guarded_reader::GuardedReader;
use crate::transfer::{VERSION, WRITE};

/// How long the right door has to answer a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Hands on a request to write and all that follows it, until one side ends.
pub(crate) fn relay(stream: &TcpStream, reader: &mut GuardedReader<'_>, door: &str, message: &[u8]) -> io::Result<()> {
    let door: SocketAddr = door.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no door's address"))?;
    let onward = TcpStream::connect_timeout(&door, CONNECT_MAX)?;
    onward.set_nodelay(true)?;
    onward.set_read_timeout(stream.read_timeout()?)?;
    onward.set_write_timeout(stream.write_timeout()?)?;
    let mut request = VERSION.to_be_bytes().to_vec();
    request.push(WRITE);
    encode_varint(message.len() as u64, &mut request);
    request.extend(message);
    (&onward).write_all(&request)?;
    thread::scope(|scope| {
        let back = thread::Builder::new().name("hdfs-relay".to_owned()).spawn_scoped(scope, || {
            let copied = io::copy(&mut &onward, &mut &*stream);
            // The other direction has nothing to wait for any more.
            let _ = stream.shutdown(Shutdown::Both);
            copied
        })?;
        let copied = io::copy(reader, &mut &onward);
        let _ = onward.shutdown(Shutdown::Both);
        // A direction that was ended because the other one did is no failure.
        back.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).and(copied).map(|_| ())
    })
}
