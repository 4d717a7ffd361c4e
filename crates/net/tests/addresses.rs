//! Listening and connecting.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use frieze_base::Reason;
use frieze_net::{Error, FramePayload, FrameReader, FrameWriter, Limits, Listener, ServerAddr, Stream};
use frieze_wire::{FrameHeader, FrameKind};

const TIMEOUT: Duration = Duration::from_secs(5);

fn addr(text: &str) -> ServerAddr {
    text.parse().unwrap()
}

#[test]
fn a_server_is_reached_over_both_kinds_of_socket() {
    let directory = tempfile::tempdir().unwrap();
    for at in ["127.0.0.1:0".to_owned(), "localhost:0".to_owned(), format!("unix:{}/s", directory.path().display())] {
        let listener = Listener::bind(&addr(&at)).unwrap();
        let client = Stream::connect(listener.addr(), TIMEOUT).unwrap();
        let server = listener.accept().unwrap().unwrap();
        FrameWriter::new(client, Limits::SERVING)
            .send(FrameHeader::of(FrameKind::Request), b"hello", FramePayload::None)
            .unwrap();
        let mut body = Vec::new();
        FrameReader::new(server, Limits::HANDSHAKE).unwrap().read_frame(&mut body).unwrap().unwrap();
        assert_eq!(body, b"hello");
    }
}

#[test]
fn an_unreachable_address_is_explained() {
    let free = Listener::bind(&addr("127.0.0.1:0")).unwrap().addr().clone();
    let error = Stream::connect(&free, TIMEOUT).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot reach frieze server at {free}: connection refused; start one with `frieze serve --dir DIR` or name \
             another with --server"
        )
    );
    let error = Stream::connect(&addr("unix:/nowhere/at/all"), TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("no such file or directory"), "{error}");
}

#[test]
fn an_address_in_use_is_refused_and_an_abandoned_socket_file_is_not() {
    let first = Listener::bind(&addr("127.0.0.1:0")).unwrap();
    assert!(matches!(Listener::bind(first.addr()), Err(Error::InUse { .. })));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let at = ServerAddr::Unix(path.clone());
    let first = Listener::bind(&at).unwrap();
    assert_eq!(Listener::bind(&at).unwrap_err().reason(), Reason::Busy);
    drop(first);
    assert!(!path.exists(), "a server takes its socket file with it");

    // The socket file of a killed server.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    Listener::bind(&at).unwrap();

    std::fs::write(&path, b"a file of somebody's").unwrap();
    assert!(Listener::bind(&at).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a file of somebody's");
}

#[test]
fn stopping_wakes_the_thread_that_waits_for_connections() {
    let directory = tempfile::tempdir().unwrap();
    for at in ["127.0.0.1:0".to_owned(), format!("unix:{}/s", directory.path().display())] {
        let listener = Listener::bind(&addr(&at)).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept());
            listener.stop();
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
        assert!(listener.accept().unwrap().is_none(), "and it stays stopped");
    }
}

#[test]
fn a_connection_that_the_peer_has_ended_is_stale() {
    let (a, b) = Stream::pair().unwrap();
    assert!(!a.is_stale());
    drop(b);
    assert!(a.is_stale());
}
