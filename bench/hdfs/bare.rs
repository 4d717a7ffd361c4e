//! The least that a server can do for a writer that flushes each packet: receive it, acknowledge it, and forget it. What it takes of the
//! processors is the floor for any server that sleeps until a packet comes, and how fast a stock client writes to it is what that client
//! can do. `bench/hdfs/run.py hflush` compiles this with `rustc` and plays the same load on it.
//!
//!     bare NAME_ADDRESS DATA_PORT [FILE [checks [keeps]]]
//!
//! With a FILE it writes what it receives before it acknowledges it, one packet behind the other and with its checksums: the floor for a server
//! that keeps received bytes where a crash of its process does not reach it. Each block is a file of its own, new as a block of HDFS is
//! (FILE and a number), and is removed with the end of its connection: to write again over what is in the page cache costs half as much.
//!
//! With `checks` it compares the checksums, looks at the clock, and receives into pages of a small file that it has mapped, from where it writes
//! them 64 KiB at a time: nothing is copied before it is acknowledged, and all of it is where a crash of the process does not reach it. No server
//! that keeps and checks received bytes is known to do with less; it knows of no rights, no order, no instants, no readers.
//!
//! With `keeps` it does what else frieze promises and HDFS does not: what was written is on the medium 50 ms later, by a thread of its own, and
//! as many pages leave memory as come into it. Of a file system there is still nothing.
//!
//! It stands before the name service at NAME_ADDRESS, hands everything on, and names its own port where a reply names DATA_PORT. It prints
//! the ports of the two: its name service's and its own. It knows of the protocols what this needs.

use std::fs::{File, remove_file};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A packet of the load is a tenth of it.
const ROOM: usize = 256 << 10;
/// Bytes written at once with `checks`.
const BATCH: usize = 64 << 10;
/// As frieze does without a sync.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// `POSIX_FADV_DONTNEED`.
const DONT_NEED: i32 = 4;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(names), Some(port)) = (args.next(), args.next().and_then(|port| port.parse::<u16>().ok())) else {
        return Err(io::Error::other("bare NAME_ADDRESS DATA_PORT [FILE [checks [keeps]]]"));
    };
    let (file, checks) = (args.next(), args.next().is_some_and(|word| word == "checks"));
    let keeps = args.next().is_some_and(|word| word == "keeps");
    let (name, data) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let own = data.local_addr()?.port();
    let (theirs, ours) = (varint(u64::from(port)), varint(u64::from(own)));
    assert!(theirs.len() == ours.len(), "ports of one length can stand for each other");
    println!("{} {own}", name.local_addr()?.port());
    thread::spawn(move || {
        for (number, stream) in data.incoming().flatten().enumerate() {
            let file = file.as_ref().map(|file| PathBuf::from(format!("{file}-{number}")));
            thread::spawn(move || {
                let taken = take(stream, file.as_deref(), checks, keeps);
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

/// Replies of a name service, in which a port (field 4 of the location of a block) becomes another.
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
fn take(mut stream: TcpStream, path: Option<&Path>, checks: bool, keeps: bool) -> io::Result<()> {
    let file = path.map(File::create).transpose()?;
    // Its thread ends with the connection.
    let _kept = file.as_ref().filter(|_| keeps).map(|file| -> io::Result<Kept> { Ok(Kept::of(file.try_clone()?)) }).transpose()?;
    stream.set_nodelay(true)?;
    let mapped = path.filter(|_| checks).map(|path| Mapped::new(&path.with_extension("ring"))).transpose()?;
    let mut room = mapped.map_or_else(|| Room::Memory(vec![0; ROOM]), Room::Mapped);
    // From `from` to `filled` of it is what came and is not done with.
    let (mut from, mut filled, mut stored) = (0, 0, 0);
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
        while filled - from < 6 {
            filled += more(&mut stream, &mut room[filled..])?;
        }
        // Length of all behind the first six bytes but for four, length of the head.
        let begin = &room[from..];
        let len = u32::from_be_bytes([begin[0], begin[1], begin[2], begin[3]]) as usize;
        let head = from + 6 + usize::from(u16::from_be_bytes([begin[4], begin[5]]));
        let end = head + len - 4;
        while filled < end {
            filled += more(&mut stream, &mut room[filled..])?;
        }
        if checks {
            check(&room[head..end])?;
            std::hint::black_box(std::time::SystemTime::now());
        } else if let Some(file) = &file {
            file.write_all_at(&room[head..end], stored)?;
            stored += (end - head) as u64;
        }
        // Field 2 of the head, nine bytes behind field 1, of eight bytes: its number.
        let number = i64::from_le_bytes(room[from + 16..from + 24].try_into().expect("eight bytes"));
        let mut answer = vec![0, 0x08];
        answer.extend(varint(((number << 1) ^ (number >> 63)) as u64));
        // One place has it: status 0.
        answer.extend([0x10, 0]);
        answer[0] = answer.len() as u8 - 1;
        stream.write_all(&answer)?;
        from = end;
        if checks && from < BATCH {
            continue;
        }
        if let Some(file) = file.as_ref().filter(|_| checks) {
            file.write_all_at(&room[..from], stored)?;
            stored += from as u64;
        }
        room.copy_within(from..filled, 0);
        (from, filled) = (0, filled - from);
    }
}

/// Brings a file to the medium every 50 ms, and drops its pages.
struct Kept(Arc<AtomicBool>);

impl Kept {
    fn of(file: File) -> Kept {
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                thread::sleep(FLUSH_EVERY);
                let Ok(()) = file.sync_data() else { return };
                // SAFETY: a descriptor that is open; the call touches no memory.
                unsafe { posix_fadvise(file.as_raw_fd(), 0, 0, DONT_NEED) };
            }
        });
        Kept(ended)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Compares CRC32C of 512 bytes each, which stand before them.
fn check(body: &[u8]) -> io::Result<()> {
    let (sums, data) = body.split_at(4 * body.len().div_ceil(516));
    let are_right = data.chunks(512).zip(sums.chunks(4)).all(|(data, sum)| crc32c(data).to_be_bytes() == sum);
    if are_right { Ok(()) } else { Err(io::Error::other("a packet is damaged")) }
}

#[cfg(target_arch = "x86_64")]
fn crc32c(bytes: &[u8]) -> u32 {
    #[target_feature(enable = "sse4.2")]
    fn of(bytes: &[u8]) -> u32 {
        use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let of_words = words.fold(u64::from(u32::MAX), |crc, bytes| _mm_crc32_u64(crc, word(bytes)));
        !rest.iter().fold(of_words as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
    // SAFETY: every processor that the benches run on has SSE 4.2; one without ends here.
    unsafe { of(bytes) }
}

#[cfg(target_arch = "aarch64")]
fn crc32c(bytes: &[u8]) -> u32 {
    #[target_feature(enable = "crc")]
    fn of(bytes: &[u8]) -> u32 {
        use std::arch::aarch64::{__crc32cb, __crc32cd};
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let of_words = words.fold(u32::MAX, |crc, bytes| __crc32cd(crc, word(bytes)));
        !rest.iter().fold(of_words, |crc, byte| __crc32cb(crc, *byte))
    }
    // SAFETY: as above, of the CRC instructions.
    unsafe { of(bytes) }
}

/// Where packets are received.
enum Room {
    Memory(Vec<u8>),
    Mapped(Mapped),
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Memory(bytes) => bytes,
            // SAFETY: `ROOM` bytes of a mapping that only this value uses and that lives as long.
            Room::Mapped(Mapped(start)) => unsafe { std::slice::from_raw_parts(*start, ROOM) },
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Memory(bytes) => bytes,
            // SAFETY: as above.
            Room::Mapped(Mapped(start)) => unsafe { std::slice::from_raw_parts_mut(*start, ROOM) },
        }
    }
}

/// Pages of a file that has no name any more.
struct Mapped(*mut u8);

impl Mapped {
    fn new(path: &Path) -> io::Result<Mapped> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        remove_file(path)?;
        file.write_all_at(&vec![0; ROOM], 0)?;
        // SAFETY: a new mapping, shared (1), readable and writable (3).
        let start = unsafe { mmap(std::ptr::null_mut(), ROOM, 3, 1, file.as_raw_fd(), 0) };
        if start.addr() == usize::MAX { Err(io::Error::last_os_error()) } else { Ok(Mapped(start)) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: no reference to it is left.
        unsafe { munmap(self.0, ROOM) };
    }
}

unsafe extern "C" {
    fn mmap(at: *mut u8, len: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, len: usize) -> i32;
    fn posix_fadvise(file: i32, from: i64, len: i64, advice: i32) -> i32;
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
