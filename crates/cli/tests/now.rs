//! What readers and writers of the present see of each other while they run beside each other: one state after another.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use frieze_client::{Client, CreateMode, Durability, File, OpenFlags, Target};

use support::client;
use support::served::Served;

/// Smallest chunks, so that what is written and read goes over several.
const CHUNK: usize = 64 << 10;
const SETTINGS: &str = "chunk_bytes = 65536\n";

fn create(client: &Client, path: &str, durability: Durability) -> File {
    let fs = client.fs().with_durability(durability);
    fs.create(&Target::path(path), 0o644, CreateMode::Exclusive).unwrap()
}

/// Runs `write` for each of `count` numbers while `read` runs again and again; returns how often it did.
fn beside(count: u64, write: impl Fn(u64) + Send, mut read: impl FnMut()) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..=count).for_each(write);
            over.store(true, Ordering::Release);
        });
        let mut reads = 0;
        while !over.load(Ordering::Acquire) {
            read();
            reads += 1;
        }
        reads
    })
}

/// A file that holds one number all over, and what it is that a reader finds.
fn number_in(bytes: &[u8]) -> u64 {
    let word = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap());
    let first = word(&bytes[..8]);
    assert!(bytes.chunks_exact(8).all(|at| word(at) == first), "two states in one answer");
    first
}

fn numbers(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(len / 8)
}

#[test]
fn a_reader_sees_a_write_over_chunks_wholly_or_not_at_all_and_never_goes_back() {
    for (durability, count) in [(Durability::Async, 2000), (Durability::Sync, 150)] {
        let server = Served::with(SETTINGS, "127.0.0.1:0");
        let (writer, reader) = (client(&server.address), client(&server.address));
        let len = 2 * CHUNK + 1024;
        let file = create(&writer, "/f", durability);
        file.write_at(0, &numbers(0, len)).unwrap();
        let opened = reader.fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
        let mut newest = 0;
        let mut bytes = vec![0; len];
        let reads = beside(
            count,
            |number| {
                file.write_at(0, &numbers(number, len)).unwrap();
            },
            || {
                assert_eq!(opened.read_at(0, &mut bytes).unwrap(), len);
                let number = number_in(&bytes);
                assert!(number >= newest, "{durability:?}: {number} after {newest}");
                newest = number;
            },
        );
        assert!(reads > 10, "{reads}");
        opened.read_at(0, &mut bytes).unwrap();
        assert_eq!(number_in(&bytes), count, "what was acknowledged is seen");
    }
}

#[test]
fn a_growing_file_is_never_longer_than_its_bytes() {
    for durability in [Durability::Async, Durability::Sync] {
        let server = Served::with(SETTINGS, "127.0.0.1:0");
        let (writer, reader) = (client(&server.address), client(&server.address));
        let file = create(&writer, "/f", durability);
        let opened = reader.fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
        let record = numbers(u64::MAX, 10_000);
        let count = if durability == Durability::Async { 500 } else { 60 };
        let mut bytes = vec![0; count as usize * record.len()];
        let append = |number: u64| {
            file.append(&record).unwrap();
            // To settle the length is no write: it must show nothing that is not there.
            if number.is_multiple_of(7) {
                file.sync().unwrap();
            }
        };
        beside(count, append, || {
            let len = opened.read_at(0, &mut bytes).unwrap();
            assert!(len.is_multiple_of(record.len()), "{len}");
            assert!(bytes[..len].iter().all(|byte| *byte == 0xff), "zeros where nobody wrote any");
        });
        assert_eq!(opened.read_at(0, &mut bytes).unwrap(), bytes.len());
    }
}

#[test]
fn an_append_never_covers_another_beside_synchronous_writes() {
    // One chain: a synchronous write on its way to the disk hides whatever comes after it from readers.
    let server = Served::with(&format!("{SETTINGS}chain_count = 1\n"), "127.0.0.1:0");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = create(&client(&server.address), "/beside", Durability::Sync);
            while !over.load(Ordering::Acquire) {
                file.write_at(0, b"on its way to the disk").unwrap();
            }
        });
        let appenders: Vec<_> = (0..3)
            .map(|who: u64| {
                let client = client(&server.address);
                scope.spawn(move || {
                    let fs = client.fs();
                    let file = fs.create(&Target::path("/f"), 0o644, CreateMode::OpenExisting).unwrap();
                    (0..40).map(|n| file.append(&numbers(who << 32 | n, 3000)).unwrap().offset).collect::<Vec<u64>>()
                })
            })
            .collect();
        let mut offsets: Vec<u64> = appenders.into_iter().flat_map(|appender| appender.join().unwrap()).collect();
        over.store(true, Ordering::Release);
        offsets.sort_unstable();
        assert!(offsets.iter().copied().eq((0..120).map(|n| n * 3000)), "{offsets:?}");
    });
    let client = client(&server.address);
    let file = client.fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; 120 * 3000];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    let found: std::collections::BTreeSet<u64> = bytes.chunks(3000).map(number_in).collect();
    assert_eq!(found.len(), 120, "each append is there once");
}
