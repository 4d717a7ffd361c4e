//! Forwarding of a transfer that arrived at another gateway than the one with the lease: bytes in both directions,
//! unchanged.
//!
//! The signed token names the gateway. A client comes here when it cannot reach that one, or lost its connection to it.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use prost::encoding::encode_varint;

use crate::guarded_reader::GuardedReader;
use crate::transfer::{VERSION, WRITE};

/// Time for that gateway to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Forwards a request to write and all bytes that follow it, until one side ends.
pub(crate) fn relay(
    stream: &TcpStream,
    reader: &mut GuardedReader<'_>,
    gateway: &str,
    message: &[u8],
) -> io::Result<()> {
    let gateway: SocketAddr =
        gateway.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no address of a gateway"))?;
    let onward = TcpStream::connect_timeout(&gateway, CONNECT_MAX)?;
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
        // A direction that ended because the other one did has not failed.
        back.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).and(copied).map(|_| ())
    })
}
