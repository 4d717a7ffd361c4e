use super::*;

fn status_of(head: &str) -> Option<&'static str> {
    understood(head.as_bytes(), "/metrics").map(|asked| match asked {
        Ok(Asked { only_head: false }) => "200 OK",
        Ok(Asked { only_head: true }) => "200 without a body",
        Err(answer) => answer.status,
    })
}

#[test]
fn only_a_get_of_the_one_page_is_answered_with_figures() {
    for (head, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK"),
        ("GET /metrics?name[]=frieze_healthy HTTP/1.1\r\nhost: h\r\n\r\n", "200 OK"),
        ("GET http://h:9470/metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "200 OK"),
        ("HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "200 without a body"),
        ("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET /metrics/x HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2.0\r\nHost: h\r\n\r\n", "400 Bad Request"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", "400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\nHost h\r\n\r\n", "400 Bad Request"),
    ] {
        assert_eq!(status_of(head), Some(status), "{head:?}");
    }
}

#[test]
fn half_a_request_is_waited_for_and_a_long_one_is_not() {
    assert_eq!(status_of(""), None);
    assert_eq!(status_of("GET /metrics HTTP/1.1\r\nHost: h\r\n"), None);
    let long = format!("GET /metrics HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(status_of(&long), Some("431 Request Header Fields Too Large"));
    let many = format!("GET /metrics HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: 1\r\n".repeat(HEADERS_MAX));
    assert_eq!(status_of(&many), Some("431 Request Header Fields Too Large"));
}
