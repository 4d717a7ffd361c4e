//! Images change no answer: not by being made, given up, lost, or of records that are not there any more; and where all
//! of them are made, no page consists of too many pieces at any instant.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ByteRange, ChunkId, InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_multilog::{
    FragmentedPage, ImageDigest, ImageKey, ImagePlace, Images, MultiLog, Piece, PieceSource, RecordHeader, RecordKind,
    ScanCursor,
};
use proptest::prelude::*;

use crate::model::{LogModel, any_op, compare, run};
use crate::support::{LogDevice, recover, settings, with_payload, write_of};

const PAGE: u64 = 64 << 10;
const NEWEST: u64 = 1 << 40;

/// The images of a device, and their bytes.
struct StoredImages {
    images: Images,
    bytes: BTreeMap<ImagePlace, (ImageKey, ImageDigest, Vec<u8>)>,
    next: u32,
}

impl StoredImages {
    fn new(pieces_max: u32) -> StoredImages {
        StoredImages { images: Images::new(pieces_max), bytes: BTreeMap::new(), next: 0 }
    }

    /// Makes one as the server does: from what can be read now, images included.
    fn make(&mut self, device: &LogDevice, key: ImageKey) {
        let planned = device.log.plan_image(&self.images, &key).expect("a page");
        let page = self.read(device, &planned.pieces, planned.start);
        let page: Vec<u8> = page.into_iter().map(Option::unwrap_or_default).collect();
        let place = ImagePlace { file: 1, slot: self.next };
        self.next += 1;
        self.bytes.insert(place, (key, planned.of, page));
        if let Some(before) = self.images.add(key, place, planned.of) {
            self.bytes.remove(&before);
        }
    }

    fn remove(&mut self, key: &ImageKey) {
        let place = self.images.remove(key).expect("an image");
        self.bytes.remove(&place);
    }

    /// As the server does after a restart.
    fn load(&mut self) {
        self.images = Images::new(self.images.pieces_max() as u32);
        for (place, (key, of, _)) in &self.bytes {
            assert_eq!(self.images.add(*key, *place, *of), None);
        }
    }

    fn read(&self, device: &LogDevice, pieces: &[Piece], start: u64) -> Vec<Option<u8>> {
        let mut bytes = Vec::new();
        for piece in pieces {
            assert_eq!(piece.at, start + bytes.len() as u64, "pieces follow each other");
            match &piece.source {
                PieceSource::Hole => bytes.resize(bytes.len() + piece.len as usize, None),
                PieceSource::Punched(_) => bytes.resize(bytes.len() + piece.len as usize, Some(0)),
                PieceSource::Data(_) => bytes.extend(device.stored(piece).expect("whole").into_iter().map(Some)),
                PieceSource::Image(image) => {
                    let (key, _, page) = &self.bytes[&image.place];
                    assert_eq!(*key, image.key);
                    let (from, len) = (image.skip as usize, piece.len as usize);
                    bytes.extend(page[from..from + len].iter().map(|byte| Some(*byte)));
                }
                PieceSource::External(_) => panic!("a log plans what it does not have"),
            }
        }
        bytes
    }

    /// The bytes of a range, and of how many places of the device the page of it with most consists.
    fn read_range(
        &self,
        device: &LogDevice,
        chunk: ChunkId,
        range: ByteRange,
        (at, after): (Hlc, Hlc),
    ) -> (Vec<Option<u8>>, usize, Vec<FragmentedPage>) {
        let (mut pieces, mut fragmented) = (Vec::new(), Vec::new());
        device.log.plan_to_read(&self.images, chunk, range, (at, after), &mut pieces, &mut fragmented);
        let mut places: BTreeMap<u64, BTreeSet<(bool, u64, u64)>> = BTreeMap::new();
        for piece in &pieces {
            let pages = piece.at / PAGE..=(piece.at + u64::from(piece.len) - 1) / PAGE;
            let place = match &piece.source {
                PieceSource::Hole | PieceSource::Punched(_) | PieceSource::External(_) => continue,
                PieceSource::Data(stored) => (true, stored.segment.0, stored.data_offset),
                PieceSource::Image(image) => (false, image.place.file.into(), image.place.slot.into()),
            };
            for page in pages {
                places.entry(page).or_default().insert(place);
            }
        }
        let most = places.values().map(BTreeSet::len).max().unwrap_or(0);
        (self.read(device, &pieces, range.start()), most, fragmented)
    }

    /// Looks at everything stamped in the interval, and makes what is due. Returns the most pieces of any page.
    fn look(&mut self, device: &LogDevice, interval: (Hlc, Hlc), make: bool) -> usize {
        let mut most = 0;
        for inode in (0..=4).map(InodeId) {
            let mut next = Some(ScanCursor::default());
            while let Some(cursor) = next {
                let scan = device.log.scan_for_images(&self.images, inode, interval, cursor, make);
                assert!(make || scan.due.is_empty());
                scan.due.iter().for_each(|key| self.make(device, *key));
                most = most.max(scan.pieces_most);
                next = scan.next;
            }
        }
        most
    }

    /// Asks for the same with images and without. Pages that are crowded get images, by chance.
    fn compare(&mut self, device: &LogDevice, newest: u64, rng: &mut Rng, questions: usize) {
        for _ in 0..questions {
            let chunk = ChunkId { inode: InodeId(rng.between(1, 3)), index: rng.below(4) as u32 };
            let start = rng.below(300 << 10);
            let range = ByteRange::new(start, start + if rng.chance(3) { rng.below(9000) } else { rng.below(200_000) });
            let at = if rng.chance(5) { Hlc::MAX } else { Hlc(rng.below(newest + 20)) };
            let after = if rng.chance(2) { Hlc::ZERO } else { Hlc(rng.below(newest + 20)) };
            let (found, _, fragmented) = self.read_range(device, chunk, range, (at, after));
            let expect = device.read_after(chunk, range, at, after).expect("whole blocks");
            assert!(found == expect, "{range} of chunk {chunk} at {at}, hidden before {after}");
            for fragmented in fragmented.iter().filter(|_| rng.chance(2)) {
                if let Some(key) = device.log.image_for(&self.images, fragmented) {
                    self.make(device, key);
                    let page = ByteRange::new(u64::from(key.page) * PAGE, u64::from(key.page + 1) * PAGE);
                    let (_, most, still) = self.read_range(device, key.chunk, page, (fragmented.at, Hlc::ZERO));
                    assert!(most <= self.images.pieces_max() && still.is_empty(), "{most} pieces: {still:?}");
                }
            }
        }
    }
}

/// Small writes into few pages, so that those have many pieces.
fn small_writes(count: u64, rng: &mut Rng) -> Vec<(RecordHeader, Vec<u8>)> {
    let mut stamp = 0;
    let mut next = |inode: u64, rng: &mut Rng| {
        stamp += 10;
        let mut header = write_of(inode, 0, stamp, rng.below(90_000) as u32, rng.between(1, 3000) as u32);
        if rng.chance(20) {
            header.kind = RecordKind::Punch;
        }
        with_payload(header)
    };
    (0..count).map(|number| next(1 + number % 2, rng)).collect()
}

fn newest_of(model: &LogModel) -> u64 {
    model.records.last().map_or(0, |record| record.stamp.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_reads_the_same_whatever_images_there_are(
        ops in prop::collection::vec(any_op(), 20..200), seed in any::<u64>(), pieces_max in 2u32..7,
    ) {
        let mut rng = Rng::new(seed);
        let mut device = LogDevice::new(settings(256 << 10));
        let mut model = LogModel::default();
        let mut stored = StoredImages::new(pieces_max);
        let mut scan = 0;
        for some in ops.chunks(15) {
            run(some, &mut device, &mut model, &mut rng);
            device.seal(device.log.end());
            let newest = newest_of(&model);
            if rng.chance(2) {
                stored.look(&device, (Hlc(scan), Hlc(newest)), true);
                scan = newest;
            }
            if rng.chance(3) {
                // Given up, damaged, or lost with the power: all the same.
                let some: Vec<ImageKey> = stored.images.iter().map(|(key, _)| *key).filter(|_| rng.chance(3)).collect();
                some.iter().for_each(|key| stored.remove(key));
            }
            if rng.chance(3) {
                (device, _, _) = device.restarted();
                stored.load();
            }
            if rng.chance(4) {
                device.make_index_run(2, b"");
                device.log.evict(&device.log.to_evict(0));
            }
            (0..=4).for_each(|inode| device.fetch(InodeId(inode)));
            stored.compare(&device, newest, &mut rng, 6);
        }
        compare(&device, &model, &mut rng, 3);
        // With all of them, at every instant.
        let newest = newest_of(&model);
        let most = stored.look(&device, (Hlc::ZERO, Hlc(NEWEST)), true);
        prop_assert!(most <= pieces_max as usize);
        prop_assert!(stored.look(&device, (Hlc::ZERO, Hlc(NEWEST)), false) <= pieces_max as usize);
        for at in 0..=newest / 10 {
            let chunk = ChunkId { inode: InodeId(1 + at % 2), index: rng.below(3) as u32 };
            let (_, most, fragmented) =
                stored.read_range(&device, chunk, ByteRange::new(0, 300 << 10), (Hlc(at * 10), Hlc::ZERO));
            prop_assert!(most <= pieces_max as usize && fragmented.is_empty(), "{} pieces at {}", most, at * 10);
        }
    }

    #[test]
    fn images_of_records_that_a_loss_of_power_took_are_never_used(seed in any::<u64>(), keep in 40u64..200) {
        let mut rng = Rng::new(seed);
        let mut device = LogDevice::new(settings(1 << 20));
        let mut stored = StoredImages::new(3);
        let writes = small_writes(240, &mut rng);
        let mut kept = LogDevice::new(settings(1 << 20));
        for (number, write) in writes.iter().enumerate() {
            device.write(std::slice::from_ref(write));
            if (number as u64) < keep {
                kept.write(std::slice::from_ref(write));
            }
        }
        stored.look(&device, (Hlc::ZERO, Hlc(NEWEST)), true);
        let images = stored.images.len();
        // The log ends earlier, and other records follow: their stamps are later, their numbers are the same.
        let (mut device, ..) = recover(kept.files.clone(), settings(1 << 20));
        stored.load();
        for (mut header, _) in small_writes(200, &mut rng) {
            header.stamp = Hlc(header.stamp.0 + 10_000);
            device.write(&[with_payload(header)]);
        }
        for at in (0..12_000).step_by(70) {
            let chunk = ChunkId { inode: InodeId(1 + at % 2), index: 0 };
            let range = ByteRange::new(0, 100_000);
            let (found, ..) = stored.read_range(&device, chunk, range, (Hlc(at), Hlc::ZERO));
            prop_assert!(Some(found) == device.read_after(chunk, range, Hlc(at), Hlc::ZERO), "at {}", at);
        }
        let unfit = stored.images.unfit();
        prop_assert!(unfit.iter().all(|key| key.stamp.0 > keep * 10), "{unfit:?}");
        prop_assert!(unfit.len() < images, "images of what is left stay");
    }
}

#[test]
fn every_record_of_a_page_is_walked_over_once_and_images_are_few() {
    let mut rng = Rng::new(2);
    let mut device = LogDevice::new(settings(4 << 20));
    for stamp in 1..=20_000u64 {
        let header = write_of(1, 0, stamp, rng.below(16) as u32 * 4096, 100);
        device.write(&[with_payload(header)]);
    }
    let mut stored = StoredImages::new(8);
    // In small steps or at once: the same images.
    for step in 0..20 {
        stored.look(&device, (Hlc(step * 1000), Hlc(step * 1000 + 1000)), true);
    }
    let in_steps: Vec<ImageKey> = stored.images.iter().map(|(key, _)| *key).collect();
    let mut at_once = StoredImages::new(8);
    assert_eq!(at_once.look(&device, (Hlc::ZERO, Hlc(NEWEST)), true), 8);
    assert_eq!(at_once.images.iter().map(|(key, _)| *key).collect::<Vec<_>>(), in_steps);
    // Of sixteen places, eight others are written in about ten writes.
    assert!((1500..=2100).contains(&in_steps.len()), "{} images", in_steps.len());
    assert_eq!(StoredImages::new(8).look(&device, (Hlc::ZERO, Hlc(NEWEST)), false), 16, "without any");
    // One that goes leaves more pieces, as many as are told.
    let gone = in_steps[700];
    at_once.remove(&gone);
    let told = device.log.pieces_without(&at_once.images, &gone);
    let page = ByteRange::new(0, PAGE);
    let most = (gone.stamp.0..in_steps[701].stamp.0)
        .map(|at| at_once.read_range(&device, gone.chunk, page, (Hlc(at), Hlc::ZERO)).1)
        .max();
    assert_eq!(Some(told), most);
    assert!(told > 8);
}

#[test]
fn images_of_dead_records_are_listed_and_rebuilt_without_them() {
    let mut rng = Rng::new(3);
    let mut device = LogDevice::new(settings(1 << 20));
    for write in small_writes(300, &mut rng) {
        device.write(&[write]);
    }
    let mut stored = StoredImages::new(4);
    stored.look(&device, (Hlc::ZERO, Hlc(NEWEST)), true);
    let live: BTreeSet<_> = {
        let mut pieces = Vec::new();
        let chunk = ChunkId { inode: InodeId(1), index: 0 };
        for at in [Hlc(1500), Hlc::MAX] {
            device.log.plan(chunk, ByteRange::new(0, 200_000), at, Hlc::ZERO, &mut pieces);
        }
        let places = pieces.iter().filter_map(|piece| match &piece.source {
            PieceSource::Data(stored) => Some((stored.segment, stored.crcs_offset)),
            _ => None,
        });
        places.collect()
    };
    let dead_records = device.log.dead_records(InodeId(1), Hlc(1500), &live);
    device.log.mark_dead(InodeId(1), Hlc(1500), &dead_records, false);
    let named = device.log.images_of_dead(&stored.images, InodeId(1));
    assert!(named.len() > 5 && named.iter().all(|key| key.stamp < Hlc(1500)), "{named:?}");
    assert_eq!(device.log.images_of_dead(&stored.images, InodeId(2)), []);
    // Those that are named hold bytes of what is dead, and no other does.
    let holds = |log: &MultiLog, key: &ImageKey| {
        let mut pieces = Vec::new();
        let page = ByteRange::new(u64::from(key.page) * PAGE, u64::from(key.page + 1) * PAGE);
        log.plan(key.chunk, page, key.stamp, Hlc::ZERO, &mut pieces);
        pieces.iter().any(|piece| match &piece.source {
            PieceSource::Data(stored) => {
                dead_records.iter().any(|dead| (dead.segment, dead.place) == (stored.segment, stored.crcs_offset))
            }
            _ => false,
        })
    };
    for (key, _) in stored.images.iter().filter(|(key, _)| key.chunk.inode == InodeId(1)) {
        assert_eq!(named.contains(key), holds(&device.log, key), "{key:?}");
    }
    // Made again, they are without it, and are not named any more; also not by a log that does not know yet.
    named.iter().for_each(|key| stored.remove(key));
    for key in &named {
        let planned = device.log.plan_image(&stored.images, key).expect("a page");
        let places: Vec<_> =
            planned.pieces.iter().filter(|piece| matches!(piece.source, PieceSource::Data(_))).collect();
        assert!(places.iter().all(|piece| {
            match &piece.source {
                PieceSource::Data(stored) => {
                    dead_records.iter().all(|dead| (dead.segment, dead.place) != (stored.segment, stored.crcs_offset))
                }
                _ => true,
            }
        }));
        stored.make(&device, *key);
    }
    assert_eq!(device.log.images_of_dead(&stored.images, InodeId(1)), []);
    for at in [1500, 1777, 2500, 3000] {
        let chunk = ChunkId { inode: InodeId(1), index: 0 };
        let range = ByteRange::new(0, 100_000);
        let (found, ..) = stored.read_range(&device, chunk, range, (Hlc(at), Hlc::ZERO));
        assert!(Some(found) == device.read_after(chunk, range, Hlc(at), Hlc::ZERO), "at {at}");
    }
}
