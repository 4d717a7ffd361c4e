use std::io::Read;
use std::net::Shutdown;

use super::*;

/// What the page answers to these bytes.
fn answer(sent: &str) -> String {
    let listener = PageListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let mut client = TcpStream::connect(listener.address()).unwrap();
    client.write_all(sent.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let connection = listener.accept().unwrap().unwrap();
    let page = || Ok(("text/x-page", "the page".to_owned()));
    let _ended = connection.serve("/metrics", &AtomicBool::new(false), page);
    drop(connection);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn only_a_get_of_the_one_page_is_answered_with_it() {
    for (head, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK"),
        ("GET /metrics?name[]=frieze_healthy HTTP/1.1\r\nhost: h\r\n\r\n", "200 OK"),
        ("GET http://h:9470/metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "200 OK"),
        ("HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK without a body"),
        ("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET /metrics/x HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2.0\r\nHost: h\r\n\r\n", "400 Bad Request"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", "400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\nHost h\r\n\r\n", "400 Bad Request"),
    ] {
        let found = answer(head);
        let (status, has_body) =
            status.strip_suffix(" without a body").map_or((status, true), |status| (status, false));
        // An answer has the version of its request, where that is an older one.
        let version = if head.contains("HTTP/1.0") { "HTTP/1.0" } else { "HTTP/1.1" };
        assert!(found.starts_with(&format!("{version} {status}\r\n")), "{head:?}: {found}");
        let is_page = found.contains("Content-Type: text/x-page\r\n") && found.contains("Content-Length: 8\r\n");
        assert_eq!(is_page, status == "200 OK", "{head:?}: {found}");
        assert_eq!(found.ends_with("\r\n\r\nthe page"), status == "200 OK" && has_body, "{head:?}: {found}");
        assert_eq!(found.contains("Allow: GET, HEAD\r\n"), status.starts_with("405"), "{head:?}: {found}");
    }
}

#[test]
fn a_head_that_is_too_long_or_has_too_many_lines_is_refused() {
    let long = format!("GET /metrics HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(LIMITS.head_bytes_max));
    assert!(answer(&long).starts_with("HTTP/1.1 431 "));
    let many = format!("GET /metrics HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: 1\r\n".repeat(LIMITS.head_lines_max));
    assert!(answer(&many).starts_with("HTTP/1.1 431 "));
    assert_eq!(answer("GET /metrics HTTP/1.1\r\nHost: h\r\n"), "", "half a request");
}

#[test]
fn a_connection_beyond_the_limit_is_answered_503() {
    let listener = PageListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let mut client = TcpStream::connect(listener.address()).unwrap();
    listener.accept().unwrap().unwrap().refuse("8 others").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\nContent-Length: 9\r\n\r\n8 others\n"),
        "{answer}"
    );
}
