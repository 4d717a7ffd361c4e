//! Spans of a put through a chain of three servers, as a collector receives them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use frieze_testkit::wait::eventually;
use prost::Message;
use tempfile::TempDir;

use super::support::served::frieze;
use super::{MeteredServer, value};

/// The fields of OTLP's messages that the test reads, by their numbers in `opentelemetry/proto`.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ProcessSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Process>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<LibrarySpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Text>,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct LibrarySpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OneSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OneSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
}

/// A span with the service and the process that made it.
type Received = (String, String, OneSpan);

/// A collector on this machine.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let into = spans.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let into = into.clone();
                std::thread::spawn(move || answer_all(stream, &into));
            }
        });
        Collector { url, spans }
    }

    fn of_trace(&self, trace: &str) -> Vec<Received> {
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|(_, _, span)| hex(&span.trace_id) == trace).cloned().collect()
    }
}

/// Accepts the posts of a connection.
fn answer_all(mut stream: TcpStream, into: &Mutex<Vec<Received>>) {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let len: usize = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        if bytes.len() < end + 4 + len {
            continue;
        }
        let body = bytes.split_off(end + 4);
        bytes.clear();
        let export = Export::decode(body.as_slice()).unwrap();
        for process in export.resource_spans {
            let pairs = process.resource.unwrap().attributes;
            let of = |key: &str| {
                let pair = pairs.iter().find(|pair| pair.key == key).unwrap();
                pair.value.as_ref().unwrap().text.clone()
            };
            let spans = process.scope_spans.into_iter().flat_map(|library| library.spans);
            let received = spans.map(|span| (of("service.name"), of("process.pid"), span));
            into.lock().unwrap().extend(received);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_put_through_a_chain_of_three_is_one_trace() {
    let directory = TempDir::new().unwrap();
    let collector = Collector::start();
    // Servers begin no traces of their own.
    let common = ["--metrics", "0", "--otlp", &collector.url, "--otlp-share", "0"];
    let first = MeteredServer::start(directory.path(), &[&common[..], &["--name", "db1"]].concat());
    let join = [&common[..], &["--join", &first.address]].concat();
    let second = MeteredServer::start(directory.path(), &[&join[..], &["--name", "db2"]].concat());
    let third =
        MeteredServer::start(directory.path(), &[&join[..], &["--name", "db3", "--machine", "another"]].concat());
    eventually("every chain has three members", || {
        let figures = first.figures();
        let is_whole = figures.contains("frieze_cluster_chains_whole")
            && value(&figures, "frieze_cluster_chains_whole") == 8.0
            && (0..8).all(|chain| value(&figures, &format!("frieze_chain_members{{chain=\"{chain}\"}}")) == 3.0);
        is_whole.then_some(())
    });
    let local = directory.path().join("local");
    std::fs::write(&local, [7; 100_000]).unwrap();
    let put = |path: &str, parent: &str, more: &[&str]| -> Output {
        let words = ["--server", &first.address, "put", local.to_str().unwrap(), path];
        let mut command = frieze(&[&words[..], more].concat());
        let output = command.env("TRACEPARENT", parent).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let sampled = ["--otlp", &collector.url, "--otlp-share", "0"];
    // Neither of these sends anything.
    put("/off", &format!("00-{trace}-{parent}-01"), &[]);
    put("/unsampled", &format!("00-{trace}-{parent}-00"), &sampled);
    put("/sampled", &format!("00-{trace}-{parent}-01"), &sampled);
    let spans = eventually("the collector has the spans of three servers", || {
        let spans = collector.of_trace(trace);
        (spans.iter().filter(|(_, _, span)| span.name == "chain record").count() >= 2
            && spans.iter().filter(|(_, _, span)| span.name == "device append").count() >= 3
            && spans.iter().any(|(_, _, span)| span.name == "frieze put"))
        .then_some(spans)
    });
    let show = || {
        let line = |(service, pid, span): &Received| {
            format!("{service} {pid} {} {} <- {}", span.name, hex(&span.span_id), hex(&span.parent_span_id))
        };
        spans.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let all: BTreeMap<String, &Received> = spans.iter().map(|one| (hex(&one.2.span_id), one)).collect();
    assert_eq!(all.len(), spans.len(), "a span is sent once: {}", show());
    assert!(spans.iter().all(|(_, _, span)| span.end >= span.start), "{}", show());
    let named = |name: &str, kind: i32| -> Vec<&Received> {
        spans.iter().filter(|(_, _, span)| span.name == name && span.kind == kind).collect()
    };
    let parent_of = |span: &OneSpan| all.get(&hex(&span.parent_span_id)).map(|(_, _, parent)| parent);
    // client -> head
    let (service, _, command) = named("frieze put", 1)[0];
    assert_eq!((service.as_str(), hex(&command.parent_span_id).as_str()), ("frieze", parent), "{}", show());
    assert_eq!(named("frieze put", 1).len(), 1, "the others sent nothing: {}", show());
    let (_, _, client) = named("write", 3).first().copied().unwrap_or_else(|| panic!("{}", show()));
    assert_eq!(parent_of(client), Some(command), "{}", show());
    let (service, head_pid, head) = named("write", 2).first().copied().unwrap_or_else(|| panic!("{}", show()));
    assert_eq!((service.as_str(), parent_of(head)), ("frieze-server", Some(client)), "{}", show());
    // head -> middle -> tail
    let chain = named("chain record", 5);
    let below = |parent: &OneSpan| chain.iter().find(|(_, _, s)| s.parent_span_id == parent.span_id);
    let (_, middle_pid, middle) = below(head).unwrap_or_else(|| panic!("{}", show()));
    let (_, tail_pid, tail) = below(middle).unwrap_or_else(|| panic!("{}", show()));
    assert_eq!(BTreeSet::from([head_pid, middle_pid, tail_pid]).len(), 3, "{}", show());
    // The disk of each.
    for (pid, span) in [(head_pid, head), (middle_pid, middle), (tail_pid, tail)] {
        let append = spans.iter().find(|(_, _, s)| s.name == "device append" && s.parent_span_id == span.span_id);
        assert_eq!(append.map(|(_, pid, _)| pid), Some(pid), "{}", show());
    }
    for server in [&first, &second, &third] {
        eventually("the server counts its spans", || {
            let figures = server.figures();
            (value(&figures, "frieze_spans_sent_total") > 0.0).then_some(())
        });
        assert_eq!(value(&server.figures(), "frieze_spans_dropped_total"), 0.0);
    }
}

#[test]
fn a_collector_that_is_away_delays_and_fails_nothing() {
    let directory = TempDir::new().unwrap();
    let server = MeteredServer::start(
        directory.path(),
        &["--metrics", "0", "--otlp", "http://127.0.0.1:1", "--otlp-share", "1"],
    );
    let client = super::support::client(&server.address);
    (0..100).for_each(|_| drop(client.fs().stat(&frieze_client::Target::path("/nothing"))));
    assert!(server.figures().contains("frieze_spans_sent_total 0"));
    let output = frieze(&["--server", &server.address, "--otlp", "http://127.0.0.1:1", "ls", "/"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for wrong in [["--otlp", "nonsense"], ["--otlp-share", "2"]] {
        let mut command = frieze(&["--server", &server.address, "--otlp", "http://127.0.0.1:1", "ls", "/"]);
        let output = command.args(wrong).output().unwrap();
        // The last of two URLs counts.
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
    let mut server = server;
    assert_eq!(server.process.end(nix::sys::signal::Signal::SIGTERM), Some(0), "the exporter takes no signal");
}
