//! The cost of framing alone: one connection on this machine, checksums computed and verified, no work behind it.
//!
//! `cargo run --release -p frieze-net --example framing`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use frieze_base::crc32c;
use frieze_net::{FramePayload, FrameReader, FrameWriter, Limits, Listener, ServerAddr, Stream, mono};
use frieze_wire::{FrameHeader, FrameKind};

const MIB: usize = 1 << 20;
const DEPTH: usize = 4;

fn main() -> Result<(), frieze_net::Error> {
    let socket = format!("unix:/tmp/frieze-framing-{}.sock", std::process::id());
    for addr in ["127.0.0.1:0", &socket] {
        let listener = Listener::bind(&addr.parse::<ServerAddr>()?)?;
        println!("{addr}");
        for round in 0..3 {
            let read = stream(&listener, 4096, Direction::Read)?;
            let write = stream(&listener, 4096, Direction::Write)?;
            println!("  {round}: read {read}, write {write} (1 MiB, {DEPTH} in flight; CPU of both ends)");
        }
        for (payload, reply) in [(0, 0), (4096, 0), (0, 4096)] {
            println!("  call with {payload} B out, {reply} B back: {:.2} us", call(&listener, payload, reply)?);
        }
        println!("  ceiling: bare ping-pong of 100 B: {:.2} us, of 4 KiB: {:.2} us", ping_pong(100), ping_pong(4096));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Read,
    Write,
}

/// A server that answers every frame: with `seq` bytes of payload.
fn serve(listener: &Listener) -> Result<(), frieze_net::Error> {
    let Some(stream) = listener.accept()? else { return Ok(()) };
    let mut reader = FrameReader::new(stream.clone(), Limits::SERVING)?;
    let writer = FrameWriter::new(stream, Limits::SERVING);
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    let block = vec![7u8; MIB];
    let crc = crc32c(&block);
    while let Some(header) = reader.read_frame(&mut body)? {
        reader.read_payload_reusing(&mut payload)?;
        let reply = FrameHeader { request_id: header.request_id, ..FrameHeader::of(FrameKind::Reply) };
        match header.seq.0 as usize {
            0 => writer.send(reply, &[0; 20], FramePayload::None)?,
            // As a server that knows the checksums of its blocks.
            MIB => writer.send(reply, &[0; 20], FramePayload::Checked { pieces: &[&block], crc })?,
            len => writer.send(reply, &[0; 20], FramePayload::Bytes(&block[..len]))?,
        }
    }
    Ok(())
}

fn ends(listener: &Listener) -> Result<(FrameReader, FrameWriter), frieze_net::Error> {
    let stream = Stream::connect(listener.addr(), Duration::from_secs(5))?;
    Ok((FrameReader::new(stream.clone(), Limits::SERVING)?, FrameWriter::new(stream, Limits::SERVING)))
}

fn request(reply_bytes: usize) -> FrameHeader {
    FrameHeader { seq: frieze_base::Seq(reply_bytes as u64), ..FrameHeader::of(FrameKind::Request) }
}

fn stream(listener: &Listener, count: usize, direction: Direction) -> Result<String, frieze_net::Error> {
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(listener));
        let (mut reader, writer) = ends(listener)?;
        // Larger than the cache, as a file in the page cache is.
        let data = vec![3u8; 64 * MIB];
        let (mut body, mut into) = (Vec::new(), vec![0; MIB]);
        let send = |i: usize| match direction {
            Direction::Read => writer.send(request(MIB), &[0; 60], FramePayload::None),
            Direction::Write => {
                let at = i % 64 * MIB;
                writer.send(request(0), &[0; 60], FramePayload::Bytes(&data[at..at + MIB]))
            }
        };
        let (began, cpu) = (mono(), cpu_s());
        for i in 0..count + DEPTH {
            if i >= DEPTH {
                let header = reader.read_frame(&mut body)?.expect("the server answers");
                reader.read_payload(&mut into[..header.payload_len as usize])?;
            }
            if i < count {
                send(i)?;
            }
        }
        let (seconds, cpu) = (mono().since_ns(began) as f64 / 1e9, cpu_s() - cpu);
        writer.stream().shutdown();
        server.join().expect("the server ends")?;
        let gbs = (count * MIB) as f64 / 1e9 / seconds;
        Ok(format!("{gbs:.2} GB/s at {:.3} CPU s/GiB", cpu / (count as f64 / 1024.0)))
    })
}

fn call(listener: &Listener, payload: usize, reply: usize) -> Result<f64, frieze_net::Error> {
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(listener));
        let (mut reader, writer) = ends(listener)?;
        let (data, mut into, mut body) = (vec![1; payload], vec![0; reply], Vec::new());
        let mut times = Vec::new();
        for _ in 0..50_000 {
            let began = mono();
            let out = if payload == 0 { FramePayload::None } else { FramePayload::Bytes(&data) };
            writer.send(request(reply), &[0; 60], out)?;
            reader.read_frame(&mut body)?.expect("the server answers");
            reader.read_payload(&mut into)?;
            times.push(mono().since_ns(began));
        }
        writer.stream().shutdown();
        server.join().expect("the server ends")?;
        times.sort_unstable();
        Ok(times[times.len() / 2] as f64 / 1e3)
    })
}

/// The cost of the sockets alone: the same bytes both ways over TCP, unchecked.
fn ping_pong(len: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let echo = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        peer.set_nodelay(true).expect("a socket");
        let mut bytes = vec![0; len];
        while peer.read_exact(&mut bytes).and_then(|()| peer.write_all(&bytes)).is_ok() {}
    });
    let mut peer = TcpStream::connect(addr).expect("a listener");
    peer.set_nodelay(true).expect("a socket");
    let mut bytes = vec![0; len];
    let mut times = Vec::new();
    for _ in 0..50_000 {
        let began = mono();
        peer.write_all(&bytes).and_then(|()| peer.read_exact(&mut bytes)).expect("an echo");
        times.push(mono().since_ns(began));
    }
    drop(peer);
    echo.join().expect("the echo ends");
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1e3
}

fn cpu_s() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
