//! Connections without a user.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::HdfsFixture;

#[test]
fn a_connection_without_a_user_has_few_bytes_and_little_time_at_both_services() {
    let opened = HdfsFixture::new();
    let mut long = TcpStream::connect(opened.gateway.address()).unwrap();
    long.write_all(b"hrpc\x09\0\0\0\x40\0\0").unwrap();
    assert_eq!(long.read_to_end(&mut Vec::new()).unwrap(), 0);
    let mut long = TcpStream::connect(opened.gateway.data_address()).unwrap();
    // A request to read, and that its message has a MiB.
    long.write_all(b"\0\x1c\x51\x80\x80\x40").unwrap();
    assert_eq!(long.read_to_end(&mut Vec::new()).unwrap(), 0);

    let mut waiting = Vec::new();
    for bytes in [&b""[..], b"h", b"hrpc\x09\0\0", b"hrpc\x09\0\0\0\0\x10\0\0", b"hrpc\x09\0\xdf\0\0\0\x02\0"] {
        waiting.push((opened.gateway.address(), bytes));
    }
    for bytes in [&b""[..], b"\0", b"\0\x1c\x51", b"\0\x1c\x51\x80"] {
        waiting.push((opened.gateway.data_address(), bytes));
    }
    let waiting: Vec<TcpStream> = waiting
        .into_iter()
        .map(|(address, bytes)| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(bytes).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
            stream
        })
        .collect();
    for mut stream in waiting {
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "it is closed after 10 s");
    }
    opened.stop();
}
