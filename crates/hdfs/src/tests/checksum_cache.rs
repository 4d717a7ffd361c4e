//! Bytes that go to readers beside the checksums that their writers sent.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use super::*;

/// Numbers that look like none.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Writes a file in packets of so many bytes; `together`: sent one behind the other, else each when the one before is
/// acknowledged.
fn write(client: &mut super::HadoopClient, path: &str, packets: &[&[u8]], together: bool) -> LocatedBlock {
    client.create(path, "w");
    let block = client.add_block(path, "w", None);
    let mut transfer = Transfer::write(&block);
    let mut at = 0;
    let mut sent = Vec::new();
    for (number, data) in packets.iter().enumerate() {
        let packet = Transfer::packet(number as i64, at, data, false);
        at += data.len() as u64;
        if together {
            sent.extend(packet);
        } else {
            transfer.0.write_all(&packet).unwrap();
            assert_eq!(transfer.acknowledged(number as i64), status::SUCCESS);
        }
    }
    sent.extend(Transfer::packet(packets.len() as i64, at, &[], true));
    let mut stream = transfer.0.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stream.write_all(&sent).unwrap());
        let first = if together { 0 } else { packets.len() };
        (first..=packets.len()).for_each(|number| assert_eq!(transfer.acknowledged(number as i64), status::SUCCESS));
    });
    assert!(client.complete(path, "w", Some(of_len(&block, at as usize))));
    client.locations(path).blocks.remove(0)
}

/// A reader that reports success at the end.
fn read_well(block: &LocatedBlock, offset: u64, len: u64) -> Result<(u64, Vec<u8>), transfer::PacketError> {
    let mut transfer = Transfer::connect(block);
    let read = transfer.read_on(block, offset, len).unwrap();
    if read.is_ok() {
        let said = ClientReadStatus { status: status::CHECKSUM_OK };
        transfer.0.write_all(&said.encode_length_delimited_to_vec()).unwrap();
        // It is heard before the next reader begins: what follows on the connection is answered.
        assert_eq!(transfer.read_on(block, 0, 0).unwrap(), Ok((0, Vec::new())));
        transfer.0.write_all(&said.encode_length_delimited_to_vec()).unwrap();
        let _ = transfer.begin(81, &OpReadBlock { header: None, offset: 0, len: 0, send_checksums: None });
    }
    read
}

/// Turns a bit of what is stored, `at` bytes into what `data` is the only to begin with.
pub(super) fn turn_a_bit(opened: &HdfsFixture, data: &[u8], at: u64) {
    let mut found = 0;
    let mut dirs = vec![opened.local.dir().join("data")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
                continue;
            }
            let Ok(stored) = fs::read(entry.path()) else { continue };
            let Some(from) = stored.windows(data.len()).position(|bytes| bytes == data) else { continue };
            let file = OpenOptions::new().read(true).write(true).open(entry.path()).unwrap();
            let at = from as u64 + at;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

#[test]
fn forwarded_packets_equal_written_bytes_however_they_were_cut() {
    let opened = HdfsFixture::with(Settings { segment_bytes: 8 << 20, reserve_bytes: 16 << 20, ..Settings::default() });
    let mut client = opened.connect();
    for seed in 1..=12 {
        let mut dice = Dice(seed * 7919);
        let data = noise(seed, 100_000 + dice.below(900_000) as usize);
        let usual = 64_512;
        let (mut packets, mut rest) = (Vec::new(), data.as_slice());
        while !rest.is_empty() {
            // Most as Hadoop's client cuts them; some, as after a flush, of any length.
            let len = if dice.below(8) == 0 { 1 + dice.below(70_000) as usize } else { usual };
            let (packet, others) = rest.split_at(len.min(rest.len()));
            packets.push(packet);
            rest = others;
        }
        let path = format!("/f{seed}");
        let block = write(&mut client, &path, &packets, seed % 3 != 0);
        let len = data.len() as u64;
        for round in 0..12 {
            let from = if round < 3 { 0 } else { dice.below(len) };
            let wanted = if round < 3 { len } else { 1 + dice.below(len - from) };
            let (begins, read) = read_well(&block, from, wanted).unwrap();
            let end = begins as usize + read.len();
            assert!(begins <= from && end as u64 >= from + wanted, "{seed}, {round}");
            assert!(read == data[begins as usize..end], "{seed}, {round}: {from} and {wanted} bytes");
        }
    }
    opened.stop();
}

#[test]
fn damage_that_a_reader_finds_is_found_by_the_server_at_the_next_read() {
    let opened = HdfsFixture::with(Settings { segment_bytes: 8 << 20, reserve_bytes: 16 << 20, ..Settings::default() });
    let mut client = opened.connect();
    let data = noise(99, 15 * 64_512);
    let block = write(&mut client, "/f", &data.chunks(64_512).collect::<Vec<_>>(), true);
    let whole = data.len() as u64;
    assert!(read_well(&block, 0, whole).unwrap().1 == data);
    let begins = &data[..4096];
    turn_a_bit(&opened, begins, 5000);
    // No server verified the bytes on the way: the reader compares them with what the writer sent.
    assert!(matches!(read_well(&block, 0, whole), Err(transfer::PacketError::Checksum { .. })));
    let refused = || {
        let mut transfer = Transfer::connect(&block);
        let header = Transfer::base(&block);
        let request = OpReadBlock { header, offset: 0, len: whole, send_checksums: Some(true) };
        assert_eq!(transfer.begin(81, &request).status, status::SUCCESS);
        transfer.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        transfer.0.read_to_end(&mut all).unwrap();
        all.len() < data.len()
    };
    // It may not have noticed yet that the reader is gone.
    assert!((0..100).any(|_| refused()), "the server looks");
    assert!(refused(), "and goes on looking");
    turn_a_bit(&opened, begins, 5000);
    for _ in 0..3 {
        assert!(read_well(&block, 0, whole).unwrap().1 == data);
    }
    opened.stop();
}

#[test]
fn a_reader_without_checksums_gets_bytes_that_the_server_verified() {
    let opened = HdfsFixture::with(Settings { segment_bytes: 8 << 20, reserve_bytes: 16 << 20, ..Settings::default() });
    let mut client = opened.connect();
    let data = noise(5, 8 * 64_512);
    let block = write(&mut client, "/f", &data.chunks(64_512).collect::<Vec<_>>(), true);
    let unchecked = || {
        let mut transfer = Transfer::connect(&block);
        let (header, len) = (Transfer::base(&block), data.len() as u64);
        let request = OpReadBlock { header, offset: 0, len, send_checksums: Some(false) };
        assert_eq!(transfer.begin(81, &request).status, status::SUCCESS);
        transfer.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        transfer.0.read_to_end(&mut all).unwrap();
        all.len() > data.len()
    };
    turn_a_bit(&opened, &data[..4096], 5000);
    assert!(!unchecked(), "nobody would compare");
    turn_a_bit(&opened, &data[..4096], 5000);
    assert!(unchecked());
    opened.stop();
}

#[test]
fn readers_that_read_nothing_do_not_hold_up_others() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    let data = noise(8, 8 << 20);
    let options = Options {
        server: opened.local.server().home(),
        in_process: Some(opened.local.server().in_process()),
        ..Options::default()
    };
    let connections = options.connections_max;
    let writer = frieze_client::Client::connect(options).unwrap();
    let file = writer.fs().create(&frieze_client::Target::path("/f"), 0o644, frieze_client::CreateMode::Exclusive);
    file.unwrap().write_at(0, &data).unwrap();
    let block = client.locations("/f").blocks.remove(0);
    let whole = data.len() as u64;
    // More than the gateway has connections to the server. Half of them are sent what was verified.
    let stalled: Vec<Transfer> = (0..connections + 10)
        .map(|number| {
            let mut transfer = Transfer::connect(&block);
            rustix::net::sockopt::set_socket_recv_buffer_size(&transfer.0, 4096).unwrap();
            let (header, send_checksums) = (Transfer::base(&block), Some(number % 2 == 0));
            let request = OpReadBlock { header, offset: 0, len: whole, send_checksums };
            assert_eq!(transfer.begin(81, &request).status, status::SUCCESS);
            transfer
        })
        .collect();
    assert!(read_well(&block, 0, whole).unwrap().1 == data);
    assert!(client.info("/f").is_some());
    drop(stalled);
    opened.stop();
}
