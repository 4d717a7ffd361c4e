//! The least that a server can do for a writer that flushes each packet: receive it, acknowledge it, and forget it. What it takes of the
//! processors is the floor for any server that sleeps until a packet comes, and how fast a stock client writes to it is what that client
//! can do. `bench/hdfs/run.py hflush` compiles this with `rustc` and plays the same load on it.
//!
//!     bare NAME_ADDRESS DATA_PORT [FILE]
//!
//! With a FILE it writes what it receives before it acknowledges it, one packet behind the other and with its checksums: the floor for a server
//! that keeps what it was told where a crash of its process does not reach it. Each block is a file of its own, new as a block of HDFS is
//! (FILE and a number), and is removed with the end of its connection: to write again over what is in the page cache costs half as much.
//!
//! It stands before the name service at NAME_ADDRESS, hands everything on, and names its own port where a reply names DATA_PORT. It prints
//! the ports of the two: its name service's and its own. It knows of the protocols what this needs and checks nothing.

use std::fs::{File, remove_file};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

/// A packet of the load is a tenth of it.
const ROOM: usize = 64 << 10;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(names), Some(port)) = (args.next(), args.next().and_then(|port| port.parse::<u16>().ok())) else {
        return Err(io::Error::other("bare NAME_ADDRESS DATA_PORT [FILE]"));
    };
    let file = args.next();
    let (name, data) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let own = data.local_addr()?.port();
    let (theirs, ours) = (varint(u64::from(port)), varint(u64::from(own)));
    assert!(theirs.len() == ours.len(), "ports of one length can stand for each other");
    println!("{} {own}", name.local_addr()?.port());
    thread::spawn(move || {
        for (number, stream) in data.incoming().flatten().enumerate() {
            let file = file.as_ref().map(|file| PathBuf::from(format!("{file}-{number}")));
            thread::spawn(move || {
                let taken = take(stream, file.as_deref());
                file.map_or(Ok(()), remove_file).and(taken)
            });
        }
    });
    for stream in name.incoming().flatten() {
        let server = TcpStream::connect(&names)?;
        server.set_nodelay(true)?;
        stream.set_nodelay(true)?;
        let (mut from, mut to) = (stream.try_clone()?, server.try_clone()?);
        thread::spawn(move || io::copy(&mut from, &mut to));
        let (theirs, ours) = (theirs.clone(), ours.clone());
        thread::spawn(move || hand_on(server, stream, &theirs, &ours));
    }
    Ok(())
}

/// Replies of a name service, in which a port (field 4 of who holds a block) becomes another.
fn hand_on(mut from: TcpStream, mut to: TcpStream, theirs: &[u8], ours: &[u8]) -> io::Result<()> {
    let (old, new) = ([&[0x20], theirs].concat(), [&[0x20], ours].concat());
    loop {
        let mut len = [0; 4];
        from.read_exact(&mut len)?;
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        from.read_exact(&mut frame)?;
        let places: Vec<usize> = (0..frame.len()).filter(|&at| frame[at..].starts_with(&old)).collect();
        places.into_iter().for_each(|at| frame[at..at + new.len()].copy_from_slice(&new));
        to.write_all(&[&len[..], &frame].concat())?;
    }
}

/// A block that is written: its request is granted, each packet is acknowledged.
fn take(mut stream: TcpStream, file: Option<&Path>) -> io::Result<()> {
    let file = file.map(File::create).transpose()?;
    stream.set_nodelay(true)?;
    let (mut room, mut filled, mut stored) = (vec![0; ROOM], 0, 0);
    // Version, operation, and a message with its length before it.
    let request = loop {
        filled += more(&mut stream, &mut room[filled..])?;
        if let Some((len, at)) = read_varint(&room[..filled], 3) {
            break at + len as usize;
        }
    };
    while filled < request {
        filled += more(&mut stream, &mut room[filled..])?;
    }
    room.copy_within(request..filled, 0);
    filled -= request;
    // Status 0: success.
    stream.write_all(&[2, 0x08, 0])?;
    loop {
        while filled < 6 {
            filled += more(&mut stream, &mut room[filled..])?;
        }
        // Length of all behind the first six bytes but for four, length of the head.
        let len = u32::from_be_bytes([room[0], room[1], room[2], room[3]]) as usize;
        let head = 6 + usize::from(u16::from_be_bytes([room[4], room[5]]));
        let end = head + len - 4;
        while filled < end {
            filled += more(&mut stream, &mut room[filled..])?;
        }
        if let Some(file) = &file {
            file.write_all_at(&room[head..end], stored)?;
            stored += (end - head) as u64;
        }
        // Field 2 of the head, nine bytes behind field 1, of eight bytes: its number.
        let number = i64::from_le_bytes(room[16..24].try_into().expect("eight bytes"));
        let mut answer = vec![0, 0x08];
        answer.extend(varint(((number << 1) ^ (number >> 63)) as u64));
        // One place has it: status 0.
        answer.extend([0x10, 0]);
        answer[0] = answer.len() as u8 - 1;
        stream.write_all(&answer)?;
        room.copy_within(end..filled, 0);
        filled -= end;
    }
}

fn more(stream: &mut TcpStream, room: &mut [u8]) -> io::Result<usize> {
    match stream.read(room)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A number that begins at `at`, and where it ends.
fn read_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for (number, byte) in bytes.get(at..)?.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * number);
        if byte & 0x80 == 0 {
            return Some((value, at + number + 1));
        }
    }
    None
}
