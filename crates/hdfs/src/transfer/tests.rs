use frieze_base::Rng;

use super::*;

const SUMS: ChecksumKind = ChecksumKind::Crc32c(CHUNK_BYTES);

fn header(seqno: i64, at: i64, len: usize) -> PacketHeader {
    PacketHeader {
        offset_in_block: at,
        seqno,
        last_packet_in_block: false,
        data_len: len as i32,
        sync_block: Some(false),
    }
}

fn read(bytes: &[u8], sums: ChecksumKind) -> Result<(PacketHeader, Vec<u8>), PacketError> {
    let cut = || PacketError::Length { part: "test", len: 0 };
    let lengths = Lengths::read(bytes.get(..LENGTHS_BYTES).ok_or_else(cut)?.try_into().expect("six"))?;
    let rest = &bytes[LENGTHS_BYTES..];
    let header = rest.get(..lengths.header).ok_or_else(cut)?;
    let body = rest.get(lengths.header..lengths.header + lengths.body).ok_or_else(cut)?;
    packet(header, body, sums).map(|packet| (packet.header.clone(), packet.data.to_vec()))
}

#[test]
fn a_request_begins_with_version_28_and_its_number() {
    assert_eq!(operation([0, 28, 80]), Ok(Operation::Write));
    assert_eq!(operation([0, 28, 81]), Ok(Operation::Read));
    assert_eq!(operation([0, 28, 85]), Ok(Operation::Checksum));
    assert_eq!(operation([0, 28, 86]), Ok(Operation::Copy));
    assert_eq!(operation([0, 28, 87]), Ok(Operation::Other(87)));
    assert_eq!(operation([0xde, 0xad, 0xbe]), Err(PacketError::Version { found: 0xdead }), "SASL of data transfers");
}

#[test]
fn a_packet_is_the_bytes_that_hadoop_clients_read() {
    let mut bytes = Vec::new();
    put_packet(&header(2, 512, 9), b"123456789", SUMS, &mut bytes);
    // 4 + 4 + 9 bytes; a header of 27: two of 8 bytes, a flag, one of 4, a flag; CRC32C of those digits.
    let expected = [
        [0, 0, 0, 17, 0, 27].as_slice(),
        &[9, 0, 2, 0, 0, 0, 0, 0, 0, 17, 2, 0, 0, 0, 0, 0, 0, 0, 24, 0, 37, 9, 0, 0, 0, 40, 0],
        &[0xe3, 0x06, 0x92, 0x83],
        b"123456789",
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(read(&bytes, SUMS), Ok((header(2, 512, 9), b"123456789".to_vec())));
}

#[test]
fn a_bit_that_turned_is_found() {
    let data: Vec<u8> = (0..1300).map(|byte| byte as u8).collect();
    let mut bytes = Vec::new();
    put_packet(&header(5, 0, data.len()), &data, SUMS, &mut bytes);
    let begin = bytes.len() - data.len();
    for at in [begin, begin + 511, begin + 512, bytes.len() - 1, begin - 1] {
        let mut other = bytes.clone();
        other[at] ^= 4;
        assert_eq!(read(&other, SUMS), Err(PacketError::Checksum { seqno: 5 }), "at {at}");
    }
    let mut none = Vec::new();
    put_packet(&header(5, 0, data.len()), &data, ChecksumKind::None, &mut none);
    assert_eq!(read(&none, ChecksumKind::None).unwrap().1, data);
    assert!(matches!(read(&none, SUMS), Err(PacketError::Length { .. })));
}

#[test]
fn checksums_over_any_number_of_bytes_are_those_of_the_data_or_are_not() {
    let mut rng = Rng::new(17);
    for chunk_bytes in [1, 7, 512, 1000, 4096, 16 << 10, 40_000] {
        let sums = ChecksumKind::Crc32c(chunk_bytes);
        for _ in 0..40 {
            let mut data: Vec<u8> = (0..rng.below(70_000) + 1).map(|_| rng.below(256) as u8).collect();
            let mut found = Vec::new();
            sums.put(&data, &mut found);
            assert!(sums.verify(&found, &data), "{} bytes, {chunk_bytes} each", data.len());
            let of = if rng.chance(2) { &mut found } else { &mut data };
            let at = rng.below(of.len() as u64) as usize;
            of[at] ^= 1 << rng.below(8);
            assert!(!sums.verify(&found, &data), "{} bytes, {chunk_bytes} each", data.len());
        }
    }
    assert!(SUMS.verify(&[], &[]));
}

#[test]
fn a_header_as_hadoop_writes_it_says_the_same_read_at_once_or_field_by_field() {
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let mut of = header(rng.next() as i64, rng.next() as i64, rng.below(1 << 31) as usize);
        (of.last_packet_in_block, of.sync_block) = (rng.chance(2), Some(rng.chance(2)));
        let mut bytes = of.encode_to_vec();
        assert_eq!(usual_header(&bytes), Some(of), "{bytes:?}");
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = rng.below(256) as u8;
        if let Some(read) = usual_header(&bytes) {
            assert_eq!(PacketHeader::decode(bytes.as_slice()), Ok(read), "{bytes:?}");
        }
    }
    let without = PacketHeader { sync_block: None, ..header(1, 2, 3) };
    assert_eq!(usual_header(&without.encode_to_vec()), None, "it is read as any message");
}

#[test]
fn the_older_checksum_of_writers_is_verified_too() {
    let older = ChecksumKind::read(1, 512).unwrap();
    let mut bytes = Vec::new();
    put_packet(&header(2, 0, 9), b"123456789", older, &mut bytes);
    assert_eq!(bytes[33..37], [0xcb, 0xf4, 0x39, 0x26], "the published check value of CRC32");
    assert_eq!(read(&bytes, older).unwrap().1, b"123456789");
    assert_eq!(read(&bytes, SUMS), Err(PacketError::Checksum { seqno: 2 }), "it is another one");
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    let of = |whole: i32, header: u16| {
        let bytes = [whole.to_be_bytes().as_slice(), &header.to_be_bytes()].concat();
        Lengths::read(bytes.try_into().expect("six"))
    };
    assert_eq!(of(4, 25), Ok(Lengths { header: 25, body: 0 }));
    for (whole, header) in [(3, 25), (-1, 25), (i32::MIN, 25), (i32::MAX, 25), (4, 0xffff)] {
        assert!(of(whole, header).is_err(), "{whole} {header}");
    }
    assert_eq!(ChecksumKind::read(3, 512), None, "a kind that there is not");
    assert_eq!(ChecksumKind::read(2, 0), None);
    assert_eq!(ChecksumKind::read(2, u32::MAX), None);
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let mut rng = Rng::new(0xda7a);
    let mut whole = Vec::new();
    put_packet(&header(1, 0, 700), &[7; 700], SUMS, &mut whole);
    for len in 0..whole.len() {
        assert!(read(&whole[..len], SUMS).is_err(), "cut at {len}");
    }
    for _ in 0..50_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            // Most often among the lengths and the header.
            let within = if rng.below(4) == 0 { bytes.len() as u64 } else { 40 };
            let at = rng.below(within) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        let _ = read(&bytes, SUMS);
        let random: Vec<u8> = (0..rng.below(64)).map(|_| rng.below(256) as u8).collect();
        let _ = read(&random, SUMS);
    }
}

#[test]
fn any_bytes_are_a_packet_or_refused() {
    let mut seeds = Vec::new();
    for sums in [SUMS, ChecksumKind::Crc32(512), ChecksumKind::None] {
        let mut bytes = Vec::new();
        put_packet(&header(5, 512, 900), &[7; 900], sums, &mut bytes);
        seeds.push(bytes);
    }
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        for sums in [SUMS, ChecksumKind::Crc32(512), ChecksumKind::Crc32c(1), ChecksumKind::None] {
            if let Ok((header, data)) = read(bytes, sums) {
                let mut again = Vec::new();
                put_packet(&header, &data, sums, &mut again);
                assert_eq!(read(&again, sums), Ok((header, data)));
            }
        }
        if let Some(first) = bytes.first_chunk() {
            drop(operation(*first));
        }
    });
}
