//! Collectors that are away, slow, overloaded or no collectors.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use frieze_testkit::wait::{clock, eventually};
use frieze_trace::{SpanKind, Tracer};

use super::*;

/// Answers each post with the next of these answers, the last one again and again, and passes the bodies on.
fn collector(answers: &'static [&'static str]) -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (bodies, received) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter().peekable();
        while let Ok((mut stream, _)) = listener.accept() {
            let Some(body) = body_of(&mut stream) else { continue };
            let answer = match answers.len() {
                1 => answers.peek().copied().copied(),
                _ => answers.next().copied(),
            };
            if bodies.send(body).is_err() {
                return;
            }
            let _ = stream.write_all(answer.unwrap_or_default().as_bytes());
        }
    });
    (url, received)
}

fn body_of(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            assert!(text.starts_with("post /v1/traces http/1.1\r\n"), "{text}");
            assert!(text.contains("content-type: application/x-protobuf\r\n"), "{text}");
            let len = text.split("content-length: ").nth(1)?.split("\r\n").next()?.parse::<usize>().ok()?;
            if bytes.len() == end + 4 + len {
                return Some(bytes.split_off(end + 4));
            }
        }
    }
}

fn exporter(url: &str, queue: SpanQueue) -> OtlpExporter {
    let resource = vec![("service.name", "frieze".to_owned())];
    OtlpExporter::start(OtlpSettings { url: url.to_owned(), resource, version: "1".to_owned() }, queue).unwrap()
}

fn spans(tracer: &Tracer, count: usize) {
    (0..count).for_each(|_| drop(tracer.begin(SpanKind::Client, "read")));
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const OVERLOADED: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const FAULTY: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!";
/// Field 1, length 2: field 1, varint 2.
const PARTIAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\x0a\x02\x08\x02";
const ODD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\x7f\x7f\x7f\x7f\x7f";

#[test]
fn a_collector_gets_each_span_once_with_its_process() {
    let (url, received) = collector(&[OK]);
    let (tracer, queue) = Tracer::new(1.0, None);
    let exporter = exporter(&url, queue);
    let outer = tracer.begin(SpanKind::Client, "write").unwrap().with_number("bytes", 5);
    drop(tracer.child_of(outer.context(), SpanKind::Server, "write"));
    let context = outer.context();
    outer.end(7);
    drop(outer);
    let body = received.recv().unwrap();
    let request = ExportRequest::decode(body.as_slice()).unwrap();
    let process = &request.resource_spans[0];
    assert_eq!(process.resource.as_ref().unwrap().attributes, [text("service.name", "frieze")]);
    let [inner, outer] = &process.scope_spans[0].spans[..] else { panic!("{request:?}") };
    assert_eq!((outer.kind, inner.kind), (3, 2));
    assert_eq!(outer.trace_id, context.trace.to_be_bytes());
    assert_eq!((&inner.trace_id, &inner.parent_span_id), (&outer.trace_id, &outer.span_id));
    assert!(outer.parent_span_id.is_empty() && outer.end_time_unix_nano >= inner.start_time_unix_nano);
    assert_eq!((outer.status.as_ref().unwrap().code, &inner.status), (2, &None));
    assert_eq!(outer.attributes[0].key, "bytes");
    eventually("the collector has accepted them", || (tracer.sent() == 2).then_some(()));
    exporter.finish();
    assert_eq!((tracer.sent(), tracer.dropped()), (2, 0));
    assert!(received.try_recv().is_err(), "nothing is sent twice");
}

#[test]
fn an_overloaded_collector_is_tried_again() {
    let (url, received) = collector(&[OVERLOADED, OK]);
    let (tracer, queue) = Tracer::new(1.0, None);
    let exporter = exporter(&url, queue);
    spans(&tracer, 3);
    eventually("the second attempt is accepted", || (tracer.sent() == 3).then_some(()));
    assert_eq!(received.try_iter().count(), 2);
    exporter.finish();
}

#[test]
fn refused_spans_are_counted() {
    for (answer, sent, dropped) in [(FAULTY, 0, 3), (PARTIAL, 1, 2), (ODD, 3, 0)] {
        let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
        let (url, _received) = collector(answers);
        let (tracer, queue) = Tracer::new(1.0, None);
        let exporter = exporter(&url, queue);
        spans(&tracer, 3);
        exporter.finish();
        assert_eq!((tracer.sent(), tracer.dropped()), (sent, dropped), "{answer}");
    }
}

#[test]
fn a_collector_that_is_away_silent_or_odd_holds_nothing_back() {
    // Bound and never accepted from: it connects, and then says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (odd, _received) = collector(&["what?\r\n\r\n"]);
    for url in [format!("http://{}", silent.local_addr().unwrap()), format!("http://{free}"), odd] {
        let (tracer, queue) = Tracer::new(1.0, None);
        let exporter = exporter(&url, queue);
        let began = clock();
        spans(&tracer, 20_000);
        let took = clock() - began;
        assert!(took < Duration::from_secs(1), "{url}: {took:?}");
        exporter.finish();
        assert_eq!((tracer.sent(), tracer.dropped()), (0, 20_000), "{url}");
        assert!(clock() - began < Duration::from_secs(20), "{url}: it ends");
    }
}

#[test]
fn a_url_names_a_collector_or_its_traces() {
    let of = |text: &str| traces_url(text).ok();
    assert_eq!(of("http://127.0.0.1:4318").as_deref(), Some("http://127.0.0.1:4318/v1/traces"));
    assert_eq!(of("https://otel.example/").as_deref(), Some("https://otel.example/v1/traces"));
    assert_eq!(of("http://h:1/otlp/v1/traces").as_deref(), Some("http://h:1/otlp/v1/traces"));
    for wrong in ["", "127.0.0.1:4318", "http://", "http:///v1/traces", "ftp://h", "http://a b"] {
        assert_eq!(of(wrong), None, "{wrong}");
    }
}
