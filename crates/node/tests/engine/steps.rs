//! Replies that are sent while they are read equal replies that are read first.

use frieze_base::{ByteRange, Rng};
use frieze_wire::message::Punch;

use super::*;

/// As large as a payload may be.
const WHOLE: u32 = 4 << 20;

#[test]
fn in_steps_a_file_is_what_it_is_as_a_whole() {
    for seed in 0..6 {
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        let file = client.make("/f");
        client.grant("/f", 0, 16);
        client.grant("/f", 16, 4);
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            let (at, len) = (rng.below(1 << 20), 1 + rng.below(200_000) as usize);
            // Some at the edges of blocks, as most writes are.
            let at = if rng.below(2) == 0 { at } else { at / 16_384 * 16_384 };
            client.write(&file, Some(at), &pattern(len, rng.next() as u8)).unwrap();
        }
        client.seq += 1;
        let punch = Punch { capability: file.clone(), offset: 300_000, len: 150_000, durability: 0 };
        let id = client.send(Request::Punch(punch), &[], client.seq);
        client.answer(id).unwrap().0.unwrap();
        let whole = client.read_both_ways(&file, ByteRange::new(0, WHOLE.into())).unwrap();
        assert!(whole.len() > 1 << 20);
        for _ in 0..40 {
            let start = rng.below(1 << 20) / 16_384 * 16_384;
            let end = start + 262_144 + rng.below(4) * 16_384;
            let part = client.read_both_ways(&file, ByteRange::new(start, end)).unwrap();
            assert!(part == whole[start as usize..whole.len().min(end as usize)]);
        }
    }
}

#[test]
fn in_steps_damaged_bytes_are_no_data_either() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.grant("/f", 0, 16);
    let blocks: Vec<Vec<u8>> = (0..16u64)
        .map(|n| {
            let mut rng = Rng::new(n);
            let bytes: Vec<u8> = (0..65_536).map(|_| rng.next() as u8).collect();
            client.write(&file, Some(n * 65_536), &bytes).unwrap();
            bytes
        })
        .collect();
    let range = ByteRange::new(0, 1 << 20);
    assert!(client.read_both_ways(&file, range).unwrap() == blocks.concat());
    machine.rot(&blocks[11], 40_000);
    assert_eq!(client.read_both_ways(&file, range).unwrap_err().reason, Reason::Corrupt);
    let sound = client.read_both_ways(&file, ByteRange::new(0, 11 * 65_536)).unwrap();
    assert!(sound == blocks[..11].concat());
}
