//! Too many connections, slow ones, half-open ones, and ones that never read.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use frieze_base::Reason;
use frieze_testkit::wait::{clock, eventually};
use frieze_wire::message::{Ping, Reply, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use super::callers::{STRANGER, as_stranger, as_user};
use super::raw::{Raw, frame, hello};
use super::{KEPT, check_well, get, server};
use crate::support::client;

const MANY: usize = 500;

#[test]
fn five_hundred_connections_are_served_and_one_more_is_refused_in_words() {
    let mut server = server(&format!("connections_max = {MANY}\n"), "127.0.0.1:0");
    let address = server.addresses[1].clone();
    let mut open: Vec<Raw> = Vec::new();
    // The client that made the file is on its way out: its place comes free any moment.
    eventually("all of them are served", || {
        let mut raw = Raw::connect(&address);
        if raw.ask(hello()).is_ok() {
            open.push(raw);
        }
        (open.len() == MANY).then_some(())
    });
    let words = format!("the server has {MANY} connections open, its limit: close some, or raise connections_max");
    let mut refused = Raw::connect(&address);
    let fault = refused.refusal();
    assert_eq!((fault.reason, fault.message.as_str()), (Reason::Overloaded, words.as_str()));
    assert!(refused.receive().is_none(), "and hung up on");
    let said = server.fails(1, &["ls", "/", "--timeout", "1"]);
    assert!(said.starts_with("frieze: ls: ") && said.contains(&words), "{said}");

    for raw in &mut open {
        assert!(matches!(raw.ask(Request::Ping(Ping {})), Ok(Reply::Done(_))), "each goes on");
    }
    open.pop();
    eventually("the place of one that left is free", || (server.run(&["ls", "/"]).status == 0).then_some(()));
    open.clear();
    check_well(&mut server);
    let client = client(&server.address);
    eventually("all are off the books", || (client.status().unwrap().connections == 1).then_some(()));
}

/// Bytes that begin something and do not end it.
fn beginnings() -> Vec<(&'static str, Vec<u8>)> {
    let body = RequestBody { caller: None, trace: None, request: Some(hello()) }.encode_to_vec();
    let request = FrameHeader::of(FrameKind::Request);
    let whole = frame(request, &body, &[]);
    let promised = |body_len: u32, payload_len: u32| FrameHeader { body_len, payload_len, ..request }.encode().to_vec();
    vec![
        ("nothing", Vec::new()),
        ("one byte", whole[..1].to_vec()),
        ("half a header", whole[..40].to_vec()),
        ("a header without its body", whole[..80].to_vec()),
        ("half a body", whole[..whole.len() - 1].to_vec()),
        ("8 MiB promised", promised(8 << 20, 0)),
        ("4 MiB of payload promised", promised(0, 4 << 20)),
    ]
}

#[test]
fn a_connection_that_stalls_in_its_handshake_is_closed_and_delays_no_other() {
    let mut server = server("", "127.0.0.1:0");
    let address = server.addresses[1].clone();
    let begun = clock();
    let mut waiting: Vec<(&str, TcpStream)> = Vec::new();
    for (name, bytes) in beginnings() {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(&bytes).unwrap();
        waiting.push((name, stream));
    }
    // One that has sent all it will ever send, and one that sends a byte now and then: a frame has a time as a whole.
    let half_open = TcpStream::connect(&address).unwrap();
    half_open.shutdown(std::net::Shutdown::Write).unwrap();
    waiting.push(("half-open", half_open));
    let dripping = TcpStream::connect(&address).unwrap();
    waiting.push(("dripping", dripping));
    for (_, stream) in &waiting {
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    }
    let body = RequestBody { caller: None, trace: None, request: Some(hello()) }.encode_to_vec();
    let mut drops = FrameHeader { body_len: 8000, ..FrameHeader::of(FrameKind::Request) }.encode().to_vec();
    drops.extend(body);
    let mut drops = drops.into_iter();

    let good = client(&server.address);
    let mut answers = 0;
    eventually("every one of them is hung up on", || {
        waiting.retain_mut(|(name, stream)| {
            if *name == "dripping"
                && let Some(byte) = drops.next()
            {
                let _ = stream.write_all(&[byte]);
            }
            match stream.read(&mut [0; 1000]) {
                Ok(0) => false,
                Ok(_) => true, // the words, before it hangs up
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => true,
                Err(_) => false,
            }
        });
        assert_eq!(get(&good, "/kept"), KEPT, "everybody else is served meanwhile");
        answers += 1;
        waiting.is_empty().then_some(())
    });
    let waited = clock() - begun;
    assert!(waited < Duration::from_secs(25), "a handshake has 10 s: {waited:?}");
    assert!(answers > 20, "{answers}");
    eventually("all are off the books", || (good.status().unwrap().connections == 1).then_some(()));
    check_well(&mut server);
}

#[test]
fn an_unproven_caller_costs_the_server_a_few_kib() {
    let mut server = server("memory_bytes_max = 268435456\n", "127.0.0.1:0");
    let good = client(&server.address);
    let resident = good.status().unwrap().resident_bytes;
    let promised = |body_len: u32, payload_len: u32| {
        let mut bytes = FrameHeader { body_len, payload_len, ..FrameHeader::of(FrameKind::Request) }.encode().to_vec();
        bytes.resize(80 + (1 << 20), 0);
        bytes
    };
    for (bytes, words) in
        [(promised(8 << 20, 0), "body of 8388608 bytes"), (promised(100, 1 << 20), "payload of 1048576")]
    {
        let mut raw = Raw::connect(&server.addresses[1]);
        raw.send(&bytes[..80]).unwrap();
        let fault = raw.refusal();
        assert!(fault.message.contains(words) && fault.message.contains("before the handshake is complete"), "{fault}");
    }
    // As much as is taken, and not a byte more, so that it goes on waiting.
    let most = promised(8 << 10, 0)[..80 + (8 << 10) - 1].to_vec();
    let mut waiting = Vec::new();
    for _ in 0..300 {
        let mut raw = Raw::connect(&server.addresses[1]);
        raw.send(&most).unwrap();
        waiting.push(raw);
    }
    let status = eventually("all of them wait", || Some(good.status().unwrap()).filter(|s| s.connections == 301));
    let grown = status.resident_bytes.saturating_sub(resident);
    // Its thread's stack is most of it: 66 KiB in all, without optimisation.
    assert!(grown < 300 * (128 << 10), "{grown} bytes for 300 connections");
    drop(waiting);
    check_well(&mut server);
}

#[test]
fn a_user_cannot_exhaust_connections_and_root_has_reserved_ones() {
    let mut server = server("connections_max = 64\n", "127.0.0.1:0");
    let address = server.addresses[1].clone();
    let mut open = Vec::new();
    let refused = |open: &mut Vec<Raw>| loop {
        let mut raw = Raw::connect(&address);
        match raw.ask_or_be_refused(hello()) {
            Ok(_) => open.push(raw),
            Err(fault) => return fault,
        }
    };
    let ran = as_stranger(|| {
        let fault = refused(&mut open);
        assert_eq!(fault.reason, Reason::Overloaded);
        let words = format!("user {STRANGER} has {} connections open, and of 64 no more", open.len());
        assert!(fault.message.starts_with(&words), "{fault}");
    });
    if !ran {
        return;
    }
    let of_first = open.len();
    assert!((25..=30).contains(&of_first), "{of_first}");
    assert!(as_user(STRANGER + 1, || drop(refused(&mut open))));
    assert!(open.len() - of_first >= of_first / 3, "the next user has places, too: {}", open.len() - of_first);
    for user in 2..12 {
        as_user(STRANGER + user, || drop(refused(&mut open)));
    }
    assert_eq!(get(&client(&server.address), "/kept"), KEPT, "root comes in");
    assert!(matches!(open[0].ask(Request::Ping(Ping {})), Ok(Reply::Done(_))), "and who is in stays");
    drop(open);
    check_well(&mut server);
}

#[test]
fn a_connection_that_never_reads_is_closed_and_delays_no_other() {
    let mut server = server("", "127.0.0.1:0");
    let mut deaf = Raw::greeted(&server.addresses[1]);
    deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let body = RequestBody { caller: None, trace: None, request: Some(Request::Ping(Ping {})) }.encode_to_vec();
    let many = frame(FrameHeader::of(FrameKind::Request), &body, &[]).repeat(1000);
    let good = client(&server.address);
    let mut sent = 0;
    eventually("it is hung up on", || {
        assert_eq!(get(&good, "/kept"), KEPT, "everybody else is served meanwhile");
        match deaf.send(&many) {
            Ok(()) => sent += many.len(),
            // The server does not read on while it cannot answer: the pipe is full.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Some(()),
        }
        assert!(sent < 1 << 30, "answers are not kept without bound");
        None
    });
    eventually("it is off the books", || (good.status().unwrap().connections == 1).then_some(()));
    check_well(&mut server);
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let mut server = server("", "127.0.0.1:0");
    let good = client(&server.address);
    let resident = good.status().unwrap().resident_bytes;
    for n in 0..2000 {
        let mut raw = Raw::connect(&server.addresses[1]);
        match n % 4 {
            0 => {}
            1 => drop(raw.send(b"half a fra")),
            2 => drop(raw.send(&frame(FrameHeader::of(FrameKind::Request), &[0xff; 10], &[]))),
            _ => drop(raw.greet()),
        }
    }
    let status = eventually("all are off the books", || Some(good.status().unwrap()).filter(|s| s.connections == 1));
    let grown = status.resident_bytes.saturating_sub(resident);
    assert!(grown < 64 << 20, "memory has grown by {grown} bytes");
    check_well(&mut server);
}
