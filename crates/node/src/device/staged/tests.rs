use frieze_base::{ByteRange, Rng};
use frieze_disk::{CrashKind, Disk, SimDisk};

use frieze_multilog::Discards;

use super::*;
use crate::device::{Budget, ImageBudget, Reach};
use crate::settings::Settings;

const SEGMENT_BYTES: u64 = 1 << 20;
/// What is staged at most in segments of that size.
const BYTES_MAX: usize = (SEGMENT_BYTES / PART_MAX) as usize;
const CHAINS: usize = 2;

/// A device, and what has been written to the one chunk that each chain has on it.
struct Machine {
    disk: SimDisk,
    device: Device,
    written: [Vec<u8>; CHAINS],
    /// Of each record its chain, and how long the chunks were before it.
    records: Vec<(usize, [usize; CHAINS])>,
    rng: Rng,
}

/// Also what recovery showed: how many records.
fn open(disk: &SimDisk, upto: Hlc) -> (Device, u64) {
    let mut last = 0;
    let recovered = recover(disk, upto, &[], &mut |meta| {
        assert_eq!(meta.stamp, Hlc(last + 1), "in order, none twice and none missing");
        last = meta.stamp.0;
    });
    assert_eq!(recovered.newest, Hlc(last));
    assert_eq!(recovered.end, recovered.device.log().end());
    (recovered.device, last)
}

fn recover(
    disk: &SimDisk,
    upto: Hlc,
    discarded: &[Discards],
    see: &mut dyn FnMut(&RecordMeta),
) -> crate::device::recover::Recovered {
    let settings = Settings::default();
    let log = frieze_multilog::LogSettings { segment_bytes: SEGMENT_BYTES, ..frieze_multilog::LogSettings::default() };
    let budget = Budget {
        reserve_bytes: 0,
        index_bytes_max: settings.index_bytes_max,
        shelve_segments: 100,
        shares: settings.memory(0).unwrap(),
        images: ImageBudget { pieces_max: settings.image_pieces_max, percent: 0 },
    };
    let reach = Reach { upto, durable: LogPosition::default(), footers_from: SegmentId(0), serve_damaged: false };
    Device::recover(Arc::new(disk.clone()), log, budget, &reach, discarded, &mut |recovered| match recovered {
        RecoveredItem::Record(meta) => see(meta),
        RecoveredItem::Indexed { .. } => panic!("nothing is shelved"),
    })
    .unwrap()
}

impl Machine {
    fn new(seed: u64) -> Machine {
        let disk = SimDisk::new(seed);
        let (device, _) = open(&disk, Hlc::MAX);
        device.prepare_spares().unwrap();
        Machine { disk, device, written: Default::default(), records: Vec::new(), rng: Rng::new(seed) }
    }

    /// How many records there are; the last one has it for its stamp.
    fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// The next record, of a chain that is drawn.
    fn next(&mut self, len: usize) -> (RecordMeta, Vec<u8>) {
        let chain = self.rng.below(CHAINS as u64) as usize;
        let n = self.records.iter().filter(|(of, _)| *of == chain).count() as u64 + 1;
        let number = self.count() + 1;
        let meta = RecordMeta {
            kind: RecordKind::Write,
            chain: ChainId(chain as u32),
            epoch: ChainEpoch(1),
            n,
            chunk: ChunkId { inode: InodeId(7), index: chain as u32 },
            version: n,
            stamp: Hlc(number),
            user_time: None,
            session: SessionId(3),
            seq: Seq(number),
            uid: 1000,
            offset: self.written[chain].len() as u32,
            len: len as u32,
            part: 0,
            parts: 1,
        };
        (meta, (0..len).map(|_| self.rng.below(256) as u8).collect())
    }

    fn try_write(&mut self, len: usize) -> Result<(), Fault> {
        let (meta, payload) = self.next(len);
        let (crcs, _) = block_checksums(&payload, self.device.block_bytes());
        self.device.append_behind(&meta, &payload, Few::from_vec(crcs))?;
        let chain = meta.chain.0 as usize;
        self.records.push((chain, self.written.each_ref().map(Vec::len)));
        self.written[chain].extend_from_slice(&payload);
        Ok(())
    }

    fn write(&mut self, len: usize) {
        self.try_write(len).unwrap();
    }

    /// Writes until something is staged.
    fn stage(&mut self, len: usize) {
        while self.staged() == 0 {
            self.write(len);
        }
    }

    fn staged(&self) -> usize {
        self.device.staging.lock().records.len()
    }

    /// How long the chunks are after so many records.
    fn lens(&self, count: u64) -> [usize; CHAINS] {
        self.records.get(count as usize).map_or_else(|| self.written.each_ref().map(Vec::len), |(_, before)| *before)
    }

    /// What a chunk holds after so many records, as whoever asks reads it.
    fn read(&self, chain: usize, count: u64) -> Result<Vec<u8>, Fault> {
        let chunk = ChunkId { inode: InodeId(7), index: chain as u32 };
        let mut pieces = Vec::new();
        let mut bytes = vec![0; self.lens(count)[chain]];
        let range = ByteRange::new(0, bytes.len() as u64);
        self.device.log_of([chunk.inode])?.plan(chunk, range, Hlc(count), Hlc::ZERO, &mut pieces);
        self.device.read(&pieces, 0, &mut bytes, &mut Vec::new())?;
        Ok(bytes)
    }

    fn check(&self) {
        let last = self.count();
        for count in [0, last / 2, last.saturating_sub(1), last] {
            for (chain, written) in self.written.iter().enumerate() {
                assert!(
                    self.read(chain, count).unwrap() == written[..self.lens(count)[chain]],
                    "after {count} records"
                );
            }
        }
    }

    /// The process, or the machine, ends and comes again. Returns how many records are left.
    fn again(&mut self, kind: CrashKind, upto: Hlc) -> u64 {
        self.disk.crash(kind);
        self.disk.restart();
        let (device, left) = open(&self.disk, upto);
        self.device = device;
        let lens = self.lens(left);
        self.written.iter_mut().zip(lens).for_each(|(written, len)| written.truncate(len));
        self.records.truncate(left as usize);
        self.check();
        left
    }
}

#[test]
fn whoever_looks_sees_what_is_staged_and_a_restart_finds_it() {
    let mut machine = Machine::new(1);
    for round in 0..200 {
        for _ in 0..machine.rng.between(1, 40) {
            let len = machine.rng.between(1, 6000) as usize;
            machine.write(len);
        }
        match round % 4 {
            0 => machine.check(),
            1 => {
                let n = machine.count();
                assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), n, "all of it is there");
            }
            2 => assert_eq!(machine.device.log().stats().records, machine.count()),
            _ => machine.write(BYTES_MAX),
        }
    }
    assert!(machine.count() > 2000 && machine.device.log().stats().segments > 3);
}

#[test]
fn many_small_records_are_written_together() {
    let mut machine = Machine::new(2);
    machine.stage(4096);
    let before = machine.disk.changes();
    (0..150).for_each(|_| machine.write(4096));
    // Each goes into the file, and fourteen of them into the log at once.
    let changes = machine.disk.changes() - before;
    assert!((160..=163).contains(&changes), "{changes} writes");
}

#[test]
fn nothing_is_staged_while_somebody_looks_each_time_and_little_of_what_is_large() {
    let mut machine = Machine::new(3);
    let before = machine.disk.changes();
    for _ in 0..50 {
        machine.write(100);
        machine.read(0, machine.count()).unwrap();
    }
    // One of five is tried.
    let changes = machine.disk.changes() - before;
    assert!(changes <= 64, "{changes} writes");
    machine.stage(100);
    machine.write(RECORD_BYTES_MAX + 1);
    assert_eq!(machine.staged(), 0, "one that is large goes where it belongs, and those before it");
    machine.check();
}

#[test]
fn a_loss_of_power_leaves_a_beginning() {
    let mut lost = 0;
    for seed in 0..600 {
        let mut machine = Machine::new(seed);
        let mut durable = 0;
        // Of one length, those of an earlier use of the file lie where others should.
        let is_even = seed % 3 > 0;
        for _ in 0..machine.rng.between(1, 5) {
            for _ in 0..machine.rng.between(1, 60) {
                let len = match machine.rng.below(10) {
                    // One that is not staged, and on which those that follow depend.
                    0 if !is_even => 20_000,
                    // A sector each.
                    _ if is_even => 512 - HEAD_BYTES as u64,
                    _ => machine.rng.between(1, 9000),
                };
                machine.write(len as usize);
            }
            if machine.rng.chance(2) {
                machine.device.flush().unwrap();
                durable = machine.count();
            }
            if machine.rng.chance(2) {
                // The system brings pages to the medium when it likes.
                machine.device.staging.lock().file.as_ref().unwrap().sync().unwrap();
            }
        }
        let before = machine.count();
        let left = machine.again(CrashKind::Power, Hlc::MAX);
        assert!(left >= durable, "{left} records are left of {durable} that were flushed");
        lost += before - left;
        // What was staged before is not taken for what follows now.
        (0..20).for_each(|_| machine.write(50));
        let count = machine.count();
        assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), count);
    }
    assert!(lost > 1000, "only {lost} records were lost");
}

#[test]
fn what_is_stamped_later_than_recovery_reaches_is_cut_off_for_good() {
    let mut machine = Machine::new(5);
    machine.stage(100);
    (0..20).for_each(|_| machine.write(100));
    let upto = machine.count() - 7;
    assert_eq!(machine.again(CrashKind::Process, Hlc(upto)), upto);
    (0..3).for_each(|_| machine.write(10));
    assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), upto + 3);
}

#[test]
fn what_a_chain_discards_does_not_come_back_from_what_was_staged() {
    for kind in [CrashKind::Process, CrashKind::Power] {
        let mut machine = Machine::new(6);
        machine.stage(3000);
        (0..12).for_each(|_| machine.write(3000));
        let chain = ChainId(0);
        let of_chain = |device: &Device| device.log().chain_state(chain).n;
        let (before, mut discarded) = (of_chain(&machine.device), Vec::new());
        let mut keep = |gone| {
            discarded.push(gone);
            Ok(discarded.clone())
        };
        machine.device.discard(chain, before - 3, &mut keep, &mut |_| {}).unwrap();
        assert_eq!(of_chain(&machine.device), before - 3);
        machine.disk.crash(kind);
        machine.disk.restart();
        let again = recover(&machine.disk, Hlc::MAX, &discarded, &mut |_| {}).device;
        assert_eq!(of_chain(&again), before - 3, "{kind:?}");
    }
}

#[test]
fn a_process_that_dies_while_it_places_leaves_each_record_once() {
    for seed in 0..60 {
        let mut machine = Machine::new(seed);
        machine.stage(3000);
        (0..12).for_each(|_| machine.write(3000));
        let n = machine.count();
        machine.disk.fail_after(1 + seed % 3);
        // It dies in the middle of the write, after it, or within what the flush does then.
        let _ = machine.device.flush();
        assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), n, "seed {seed}");
    }
}

#[test]
fn what_the_disk_refuses_to_take_is_kept_from_readers_and_written_when_it_does() {
    let mut machine = Machine::new(7);
    machine.stage(3000);
    (0..5).for_each(|_| machine.write(3000));
    let n = machine.count();
    machine.disk.fail_writes(0, 8);
    assert_eq!(machine.read(0, n).unwrap_err().reason, Reason::InputOutput, "no read shows less than there is");
    assert!(machine.device.flush().is_err(), "nothing is called durable");
    machine.disk.fail_writes(0, 0);
    machine.check();
    machine.stage(3000);
    machine.disk.fail_writes(0, 100);
    assert!(machine.read(0, machine.count()).is_err());
    let n = machine.count();
    assert!(machine.try_write(3000).is_err(), "nothing is taken behind it");
    machine.disk.fail_writes(0, 0);
    assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), n, "a restart finds it");
    machine.stage(3000);
    machine.disk.fail_writes(0, 1);
    assert!(machine.device.settle().is_err());
    (0..3).for_each(|_| machine.write(3000));
    let n = machine.count();
    assert!(machine.staged() > 0);
    assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), n, "and what was staged after it");
}

#[test]
fn a_record_that_could_not_be_staged_is_not_found_by_a_restart() {
    for seed in 0..40 {
        let mut machine = Machine::new(seed);
        machine.stage(3000);
        machine.write(3000);
        machine.disk.fail_writes(0, 1);
        assert_eq!(machine.try_write(3000).unwrap_err().reason, Reason::InputOutput);
        let n = machine.count();
        assert_eq!(machine.again(CrashKind::Process, Hlc::MAX), n);
    }
}

#[test]
fn a_disk_too_full_for_the_file_serves_without_it() {
    let disk = SimDisk::with_capacity(9, STAGED_BYTES_MAX - 1);
    let (device, _) = open(&disk, Hlc::MAX);
    assert!(device.staging.lock().file.is_none());
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

#[test]
fn bytes_that_are_no_record_are_none() {
    let mut machine = Machine::new(11);
    let (meta, payload) = machine.next(300);
    let after = LogPosition { segment: SegmentId(5), offset: 77 };
    let whole = [&head(&meta, after, crc32c(&payload))[..], &payload, b"what lies behind"].concat();
    assert_eq!(read(&whole), Some((meta, after, &payload[..])));
    for at in 0..HEAD_BYTES + 300 {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        assert_eq!(read(&bytes), None, "byte {at}");
        assert_eq!(read(&whole[..at]), None, "{at} bytes");
    }
}

#[test]
fn a_record_is_staged_as_it_always_was() {
    let meta = RecordMeta {
        kind: RecordKind::Write,
        chain: ChainId(0x11),
        epoch: ChainEpoch(0x12),
        n: 0x13,
        chunk: ChunkId { inode: InodeId(0x14), index: 0x15 },
        version: 0x16,
        stamp: Hlc(0x0102_0304_0506_0708),
        user_time: None,
        session: SessionId(0x17),
        seq: Seq(0x18),
        uid: 0x19,
        offset: 0x1a,
        len: 9,
        part: 0,
        parts: 1,
    };
    let after = LogPosition { segment: SegmentId(0x21), offset: 0x22 };
    let expected = [
        b"FRZT".as_slice(),
        &crc32c(&head(&meta, after, 0)[8..]).to_le_bytes(),
        &[0x21, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0],
        &[0x14, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 0],
        &[0x11, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0x13, 0, 0, 0, 0, 0, 0, 0],
        &[0x16, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1],
        &[0x17, 0, 0, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0x19, 0, 0, 0],
        &[0x1a, 0, 0, 0, 9, 0, 0, 0],
        &[0, 0, 0, 0],
    ];
    assert_eq!(head(&meta, after, 0)[..], expected.concat());
    let of_digits = crc32c(b"123456789");
    assert_eq!(head(&meta, after, of_digits)[100..], [0x83, 0x92, 0x06, 0xe3], "the published check value of CRC32C");
}
