use std::net::TcpListener;

use super::*;

/// Serves one connection, on which every request is read to its end and answered with how long it was; the other end of
/// it.
fn served(limits: ConnectionLimits) -> (TcpStream, std::thread::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let thread = std::thread::spawn(move || {
        serve(&stream, limits, None, |request: Request<Incoming>, guard| async move {
            let mut body = request.into_body();
            let mut len = 0;
            while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                len += frame.map_or(0, |frame| frame.data_ref().map_or(0, bytes::Bytes::len));
            }
            drop(guard);
            Response::new(len.to_string())
        })
    });
    (client, thread)
}

fn short() -> ConnectionLimits {
    let short = Duration::from_millis(50);
    ConnectionLimits { head: short, idle: short, silence: short, ..ConnectionLimits::default() }
}

fn is_timeout(ended: &io::Result<()>) -> bool {
    ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[test]
fn requests_are_answered_one_after_the_other_and_in_pieces() {
    let (mut client, thread) = served(ConnectionLimits::default());
    for (len, body) in [(0, vec![]), (700_000, vec![7; 700_000])] {
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
        for byte in head.bytes() {
            client.write_all(&[byte]).unwrap();
        }
        client.write_all(&body).unwrap();
        let mut answer = String::new();
        while !answer.ends_with(&format!("\r\n\r\n{len}")) {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(char::from(byte[0]));
        }
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    drop(client);
    assert!(thread.join().unwrap().is_ok());
}

#[test]
fn a_client_that_sends_nothing_half_a_head_or_half_a_body_is_closed() {
    for sent in ["", "GET / HT", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"] {
        let (mut client, thread) = served(short());
        client.write_all(sent.as_bytes()).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "{sent}");
        drop(client);
        let ended = thread.join().unwrap();
        assert!(is_timeout(&ended), "{sent}: {ended:?}");
    }
}

#[test]
fn a_head_that_is_too_long_is_refused_and_one_after_a_long_body_is_not() {
    let (mut client, thread) = served(ConnectionLimits::default());
    let begins = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    for _ in 0..2 {
        client.write_all(begins).unwrap();
        client.write_all(&[7; 100_000]).unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n100000") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(char::from(byte[0]));
        }
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(ConnectionLimits::default().head_bytes_max));
    client.write_all(long.as_bytes()).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 431 "), "{rest}");
    drop(client);
    assert!(thread.join().unwrap().is_err());
}

#[test]
fn the_time_of_the_first_head_runs_from_the_beginning_of_the_connection() {
    let (mut client, thread) = served(short());
    let mut rest = Vec::new();
    client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    while client.write_all(b"G").is_ok() && client.read_to_end(&mut rest).is_err() {}
    drop(client);
    assert!(is_timeout(&thread.join().unwrap()));
}

#[test]
fn bytes_that_are_no_http_are_answered_400_and_closed() {
    let (mut client, thread) = served(ConnectionLimits::default());
    client.write_all(&[0xff; 5000]).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 400 Bad Request"), "{}", String::from_utf8_lossy(&rest));
    drop(client);
    assert!(thread.join().unwrap().is_err());
}

#[test]
fn a_connection_ends_after_its_total_time_and_when_its_server_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (limits, is_stopping) in [
        (ConnectionLimits { total: Some(Duration::from_millis(50)), ..ConnectionLimits::default() }, false),
        (ConnectionLimits::default(), true),
    ] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(b"GET / HT").unwrap();
        let stopping = AtomicBool::new(is_stopping);
        let ended = serve(&stream, limits, Some(&stopping), |_, guard| async move {
            drop(guard);
            Response::new(String::new())
        });
        assert!(is_timeout(&ended), "{ended:?}");
    }
}
