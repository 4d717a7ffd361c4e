//! The cost of the client alone in a call: a server that answers at once, with and without a client.
//!
//! `cargo run --release -p frieze-client --example overhead`

use std::thread;

use frieze_client::{Client, Error, File, OpenFlags, Options, Target};
use frieze_net::{FramePayload, FrameReader, FrameWriter, Limits, Listener, mono};
use frieze_wire::message::{
    Attr, HelloReply, InstantInfo, OpenReply, ReadReply, Reply, ReplyBody, Request, RequestBody, StatReply, TxnReply,
    WriteReply,
};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

const MIB: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let listener = Listener::bind(&"127.0.0.1:0".parse()?)?;
    let addr = listener.addr().clone();
    thread::spawn(move || {
        while let Ok(Some(stream)) = listener.accept() {
            thread::spawn(move || answer(stream));
        }
    });
    let client = Client::connect(Options { server: addr, ..Options::default() })?;
    let fs = client.fs();
    let target = Target::path("/a");
    let file = fs.open(&target, OpenFlags::READ_WRITE)?;
    let mut block = vec![1; 4096];
    median("stat", || fs.stat(&target).map(|_| ()))?;
    median("write of 4 KiB", || file.write_at(0, &block).map(|_| ()))?;
    median("read of 4 KiB", || file.read_at(0, &mut block).map(|_| ()))?;
    for _ in 0..3 {
        streams(&file)?;
    }
    Ok(())
}

fn median(what: &str, mut call: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    let mut times = Vec::new();
    for _ in 0..50_000 {
        let began = mono();
        call()?;
        times.push(mono().since_ns(began));
    }
    times.sort_unstable();
    println!("{what}: {:.2} us", times[times.len() / 2] as f64 / 1e3);
    Ok(())
}

fn streams(file: &File) -> Result<(), Error> {
    let total = 4096 * MIB as u64;
    let began = mono();
    file.read_stream(frieze_base::ByteRange::new(0, total), 4, |_| Ok::<_, Error>(()))?;
    let read = total as f64 / mono().since_ns(began) as f64;
    let mut left = 4096;
    let began = mono();
    file.write_stream(0, 4, |buffer| {
        buffer.resize(MIB, 7);
        left -= 1;
        Ok::<_, Error>(left > 0)
    })?;
    println!("read_stream {read:.2} GB/s, write_stream {:.2} GB/s", total as f64 / mono().since_ns(began) as f64);
    Ok(())
}

/// Answers every request with success.
fn answer(stream: frieze_net::Stream) -> Option<()> {
    let mut reader = FrameReader::new(stream.clone(), Limits::SERVING).ok()?;
    let writer = FrameWriter::new(stream, Limits::SERVING);
    let (mut body, mut payload, block) = (Vec::new(), Vec::new(), vec![5; 4 * MIB]);
    let attr = Attr { inode: 7, size: 1 << 40, chunk_bytes: 64 << 20, ..Attr::default() };
    while let Some(header) = reader.read_frame(&mut body).ok()? {
        reader.read_payload_reusing(&mut payload).ok()?;
        let mut len = 0;
        let answered = InstantInfo::default();
        let reply = match RequestBody::decode(&body[..]).ok()?.request? {
            Request::Hello(_) => Reply::Hello(HelloReply { chunk_bytes: 64 << 20, ..HelloReply::default() }),
            Request::Stat(_) => Reply::Stat(StatReply { attr: attr.clone(), answered }),
            Request::Open(_) => Reply::Open(OpenReply { attr: attr.clone(), capability: vec![1; 64], answered }),
            Request::Read(read) => {
                len = read.len as usize;
                Reply::Read(ReadReply { answered, ..ReadReply::default() })
            }
            Request::Write(_) => Reply::Write(WriteReply { stamp: 1, offset: 0 }),
            _ => Reply::Txn(TxnReply { stamp: 1, id: 1, ..TxnReply::default() }),
        };
        let base = FrameHeader { request_id: header.request_id, ..FrameHeader::of(FrameKind::Reply) };
        let body = ReplyBody { reply: Some(reply) }.encode_to_vec();
        writer.send(base, &body, if len > 0 { FramePayload::Bytes(&block[..len]) } else { FramePayload::None }).ok()?;
    }
    Some(())
}
