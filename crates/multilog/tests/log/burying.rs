//! What is buried as a whole may leave memory.

use std::collections::BTreeSet;

use frieze_base::{ChunkId, InodeId};
use frieze_hlc::Hlc;

use crate::support::{Device, settings, with_payload, write_of};

const FILE: InodeId = InodeId(1);
const CHUNK: ChunkId = ChunkId { inode: FILE, index: 0 };

#[test]
fn a_file_of_which_all_is_buried_may_leave_and_come_back() {
    let mut device = Device::new(settings(32 << 10));
    for stamp in 1..=400u64 {
        device.write(&[with_payload(write_of(1 + stamp % 4, 0, stamp, stamp as u32 * 100, 700))]);
    }
    device.seal(device.log.end());
    while device.shelve(8, b"") > 0 {}
    let graves = device.log.graves(FILE, Hlc::MAX, &BTreeSet::new());
    assert_eq!(graves.len(), 100);
    let live = device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO);
    device.log.bury(FILE, Hlc::MAX, &graves, true);
    // Who has it open is told what it held.
    assert_eq!(device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO), live);
    device.log.evict(&device.log.to_evict(0));
    assert!(device.log.is_away(FILE), "nobody asks for it");
    device.fetch(FILE);
    assert_eq!(device.log.chunk_version(CHUNK), 400);
}
