//! The ceiling of the machine itself, printed beside every figure.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use crate::stopwatch::Stopwatch;

mod chained;
mod fetched;
mod paced;
mod scattered;
mod stormed;
mod streamed;
mod transferred;

pub(crate) use chained::{Chained, chained};
pub(crate) use fetched::FetchCeiling;
pub(crate) use paced::{KeptBytes, paced};
pub(crate) use scattered::{FIRST, PLAIN, SECOND, Scattered, scattered};
pub(crate) use stormed::stormed;
pub(crate) use streamed::{Synced, served, stored, stored_synced};
pub(crate) use transferred::{BareDirection, BareTransfers, TransferRate};

/// Alignment of buffers for direct I/O, on any disk of today.
const DIRECT_ALIGN: usize = 4096;
/// What every system has, and what paces nothing.
const UNPACED: &str = "reno";
/// Reads of a disk in flight: more make it no faster.
const AHEAD: usize = 64;
/// GiB in bytes.
pub(crate) const GIB: f64 = 1073741824.0;

/// The other end of a raw connection, in a thread of its own.
fn other_end<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(run)
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn pair_with(congestion: Option<&str>) -> Result<(TcpStream, TcpStream)> {
    let (near, far) = pair()?;
    if let Some(congestion) = congestion {
        rustix::net::sockopt::set_tcp_congestion(&near, congestion)?;
        rustix::net::sockopt::set_tcp_congestion(&far, congestion)?;
    }
    Ok((near, far))
}

/// Data to send: more than any cache holds, as a file's data is, and touched, so that no page of it is still to be
/// made.
pub(crate) fn cold_data() -> Vec<u8> {
    let mut data = vec![0u8; 256 << 20];
    frieze_base::Rng::new(1).fill(&mut data);
    data
}

/// One direction of raw loopback TCP in messages of `message` bytes, GiB/s: the same bytes again and again, out of the
/// processor's cache, received as they come, as `iperf3 --length` does it. The best of three rounds: a disturbance only
/// ever lowers it, and a ceiling is what the machine can do.
pub(crate) fn loopback(message: usize, bytes: u64) -> Result<f64> {
    best_direction(message, bytes, None)
}

/// The same over connections that are not paced, as those of frieze within a machine.
pub(crate) fn loopback_unpaced(message: usize, bytes: u64) -> Result<f64> {
    best_direction(message, bytes, Some(UNPACED))
}

fn best_direction(message: usize, bytes: u64, congestion: Option<&str>) -> Result<f64> {
    let mut best = 0.0;
    for _ in 0..3 {
        best = f64::max(best, one_direction(message, bytes, congestion)?);
    }
    Ok(best)
}

fn one_direction(message: usize, bytes: u64, congestion: Option<&str>) -> Result<f64> {
    let (mut near, mut far) = pair_with(congestion)?;
    let count = bytes / message as u64;
    let receiver = other_end(move || -> std::io::Result<()> {
        let mut buffer = vec![0u8; message];
        let mut left = count * message as u64;
        while left > 0 {
            match near.read(&mut buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                some => left -= some as u64,
            }
        }
        near.write_all(&[1])
    });
    let data = vec![1u8; message];
    let watch = Stopwatch::start();
    for _ in 0..count {
        far.write_all(&data)?;
    }
    let mut end = [0u8];
    far.read_exact(&mut end)?;
    let seconds = watch.seconds();
    receiver.join().ok().context("the receiver panicked")??;
    Ok(count as f64 * message as f64 / GIB / seconds)
}

/// Round trips of `request` bytes there and `reply` bytes back over `connections` at once: total per second, and the
/// median of one in microseconds.
pub(crate) fn ping_pong(request: usize, reply: usize, connections: usize, rounds: u64) -> Result<(f64, f64)> {
    let watch = Stopwatch::start();
    let mut near_ends = Vec::new();
    let mut far_ends = Vec::new();
    for _ in 0..connections {
        let (mut near, mut far) = pair()?;
        far_ends.push(other_end(move || -> std::io::Result<()> {
            let (mut inward, outward) = (vec![0u8; request], vec![2u8; reply]);
            for _ in 0..rounds {
                far.read_exact(&mut inward)?;
                far.write_all(&outward)?;
            }
            Ok(())
        }));
        near_ends.push(other_end(move || -> std::io::Result<Vec<f64>> {
            let (outward, mut inward) = (vec![1u8; request], vec![0u8; reply]);
            let mut times = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let one = Stopwatch::start();
                near.write_all(&outward)?;
                near.read_exact(&mut inward)?;
                times.push(one.seconds() * 1e6);
            }
            Ok(times)
        }));
    }
    let mut times = Vec::new();
    for end in near_ends {
        times.extend(end.join().ok().context("a client panicked")??);
    }
    let seconds = watch.seconds();
    for end in far_ends {
        end.join().ok().context("a server panicked")??;
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    Ok((times.len() as f64 / seconds, median))
}

/// Sequential writes of 1 MiB into a fresh file in `directory`, GiB/s: each synced or none. Its space is set aside
/// before, as the server does with its segments and `fio` with its files.
pub(crate) fn disk(directory: &Path, bytes: u64, synced: bool) -> Result<f64> {
    warm_memory(directory, bytes)?;
    let file = preallocated(directory, bytes)?;
    let buffer = vec![7u8; 1 << 20];
    let count = bytes >> 20;
    let watch = Stopwatch::start();
    for i in 0..count {
        file.write_all_at(&buffer, i << 20)?;
        if synced {
            file.sync_data()?;
        }
    }
    Ok(count as f64 / 1024.0 / watch.seconds())
}

/// Sequential writes of 1 MiB past the page cache (`O_DIRECT`) into a fresh file in `directory`, `depth` in flight,
/// GiB/s: they reach the disk however they are synced. Where the file system knows no direct I/O, synced ones.
pub(crate) fn disk_direct(directory: &Path, bytes: u64, depth: u64) -> Result<f64> {
    direct(directory, bytes, depth, false)
}

/// The same, each followed by a flush of the disk's own cache: on stable storage when the writer gets its answer.
pub(crate) fn disk_direct_flushed(directory: &Path, bytes: u64, depth: u64) -> Result<f64> {
    direct(directory, bytes, depth, true)
}

fn direct(directory: &Path, bytes: u64, depth: u64, is_flushed: bool) -> Result<f64> {
    let Ok(file) = preallocated_for(directory, bytes, true) else { return disk(directory, bytes, true) };
    let count = bytes >> 20;
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..depth)
            .map(|first| {
                let file = &file;
                scope.spawn(move || -> std::io::Result<()> {
                    let room = vec![7u8; (1 << 20) + DIRECT_ALIGN];
                    let buffer = &room[room.as_ptr().align_offset(DIRECT_ALIGN)..][..1 << 20];
                    (first..count).step_by(depth as usize).try_for_each(|i| {
                        file.write_all_at(buffer, i << 20)?;
                        if is_flushed { file.sync_data() } else { Ok(()) }
                    })
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().ok().context("a writer panicked")?.map_err(anyhow::Error::from))
    })?;
    file.sync_data()?;
    Ok(count as f64 / 1024.0 / watch.seconds())
}

/// Sequential reads of 1 MiB of a file in `directory` that is not in memory, GiB/s.
pub(crate) fn cold_read(directory: &Path, bytes: u64) -> Result<f64> {
    let file = cold_file(directory, bytes)?;
    let mut buffer = vec![7u8; 1 << 20];
    let count = bytes >> 20;
    let watch = Stopwatch::start();
    for i in 0..count {
        file.read_exact_at(&mut buffer, i << 20)?;
    }
    Ok(count as f64 / 1024.0 / watch.seconds())
}

/// Median of `count` random reads of `len` bytes of such a file, milliseconds.
pub(crate) fn random_read_ms(directory: &Path, bytes: u64, len: usize, count: u64) -> Result<f64> {
    let file = cold_file(directory, bytes)?;
    let mut rng = frieze_base::Rng::new(11);
    let mut buffer = vec![7u8; len];
    let mut times = Vec::new();
    for _ in 0..count {
        let at = rng.below(bytes / len as u64) * len as u64;
        let one = Stopwatch::start();
        file.read_exact_at(&mut buffer, at)?;
        times.push(one.seconds() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// GiB/s of such reads, with the next [`AHEAD`] always requested already.
pub(crate) fn random_reads(directory: &Path, bytes: u64, len: usize, count: usize) -> Result<f64> {
    let file = cold_file(directory, bytes)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let mut rng = frieze_base::Rng::new(13);
    let places: Vec<u64> = (0..count).map(|_| rng.below(bytes / len as u64) * len as u64).collect();
    let ask = |at: u64| rustix::fs::fadvise(&file, at, NonZeroU64::new(len as u64), rustix::fs::Advice::WillNeed);
    let mut buffer = vec![7u8; len];
    let watch = Stopwatch::start();
    places.iter().take(AHEAD).try_for_each(|at| ask(*at))?;
    for (number, at) in places.iter().enumerate() {
        places.get(number + AHEAD).map_or(Ok(()), |at| ask(*at))?;
        file.read_exact_at(&mut buffer, *at)?;
    }
    Ok(count as f64 * len as f64 / GIB / watch.seconds())
}

/// A file of `bytes` on the disk and not in memory.
fn cold_file(directory: &Path, bytes: u64) -> Result<File> {
    let file = preallocated(directory, bytes)?;
    let buffer = vec![7u8; 1 << 20];
    for i in 0..bytes >> 20 {
        file.write_all_at(&buffer, i << 20)?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(file)
}

/// So much of the rate of plain copies do writes to the page cache reach in memory that the host has left to the guest.
const WARM_SHARE: f64 = 0.3;
/// Rounds of writing after which memory is taken as it is: where nothing is given back, one is enough.
const WARM_ROUNDS_MAX: usize = 8;

/// Makes sure that the page cache has `bytes` of memory that was used before. A virtual machine returns unused memory
/// to its host, and getting it again costs ten times as much as writing to it: that would be measured instead. Memory
/// that was free for two seconds has been returned, some of it while other memory is warmed: so it is repeated until it
/// is fast.
pub(crate) fn warm_memory(directory: &Path, bytes: u64) -> Result<()> {
    let enough = WARM_SHARE * memcpy();
    let buffer = vec![7u8; 1 << 20];
    for _ in 0..WARM_ROUNDS_MAX {
        let file = preallocated(directory, bytes)?;
        let watch = Stopwatch::start();
        for i in 0..bytes >> 20 {
            file.write_all_at(&buffer, i << 20)?;
        }
        if bytes as f64 / GIB / watch.seconds() >= enough {
            break;
        }
    }
    Ok(())
}

fn preallocated(directory: &Path, bytes: u64) -> Result<File> {
    preallocated_for(directory, bytes, false)
}

/// A file without a name and with room for `bytes`, written through the page cache or past it.
fn preallocated_for(directory: &Path, bytes: u64, is_direct: bool) -> Result<File> {
    let named = tempfile::NamedTempFile::new_in(directory)?;
    match rustix::fs::fallocate(&named, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // A file system that cannot is measured as it is.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = if is_direct { rustix::fs::OFlags::DIRECT } else { rustix::fs::OFlags::empty() };
    let opened =
        std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(named.path())?;
    Ok(opened)
}

/// Copies of 64 MiB in memory, GiB/s.
pub(crate) fn memcpy() -> f64 {
    let from = vec![7u8; 64 << 20];
    let mut to = vec![0u8; 64 << 20];
    let rounds = 16;
    let watch = Stopwatch::start();
    for _ in 0..rounds {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    f64::from(rounds) / 16.0 / watch.seconds()
}

/// CPU seconds of a GiB: copied within memory, and its CRC32C. The bytes are out of the processor's cache, as those of
/// a file are.
pub(crate) fn copy_and_check_cpu_s(data: &[u8]) -> (f64, f64) {
    let mut to = vec![7u8; MEMORY_STEP_BYTES];
    let gib = data.len() as f64 / GIB;
    let watch = Stopwatch::start();
    for from in data.chunks_exact(MEMORY_STEP_BYTES) {
        to.copy_from_slice(std::hint::black_box(from));
        std::hint::black_box(&mut to);
    }
    let copied = watch.cpu_seconds();
    let watch = Stopwatch::start();
    std::hint::black_box(frieze_base::crc32c(std::hint::black_box(data)));
    (copied / gib, watch.cpu_seconds() / gib)
}

/// Bytes that are copied at a time, into the same memory: as a server copies into a buffer that it uses again.
const MEMORY_STEP_BYTES: usize = 1 << 20;
