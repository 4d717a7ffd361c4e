//! Any bytes in the place of a segment or an index run: an error or what they hold, and never a panic, nor memory that
//! they do not justify. Seeds are the golden bytes.

use frieze_base::{SegmentId, crc32c};
use frieze_harness::Inputs;
use frieze_multilog::{LogSettings, MultiLog, RunKey, RunMerge, check_index_run};

use crate::golden::{golden_segment, put_golden_footer, unhex};
use crate::support::{BLOCK_BYTES, DeviceFiles, settings};

/// Segments and index runs are read in pieces of at most 4 MiB, and of a run head and contents at once.
const READ_BYTES: usize = 9 << 20;

#[test]
fn any_bytes_in_place_of_a_segment_are_recovered_or_refused() {
    let (mut open, _) = golden_segment();
    let mut sealed = open.clone();
    put_golden_footer(&mut sealed);
    let seeds = [open.of(SegmentId(1)).clone(), sealed.of(SegmentId(1)).clone()];
    frieze_harness::fuzz!(Inputs::from(seeds).resealed(seal_segment).with_buffers(READ_BYTES), |bytes: &[u8]| {
        let mut files = DeviceFiles::default();
        files.make(SegmentId(1), bytes.len() as u64, &mut Vec::new());
        files.put(SegmentId(1), 0, bytes);
        let mut seen = 0;
        let recovered = MultiLog::recover(settings(4096), &mut files.clone(), &mut |_| seen += 1);
        if let Ok((_, report)) = recovered {
            assert_eq!(report.records, seen);
            // What was recovered is recovered again.
            let again = MultiLog::recover(settings(4096), &mut files, &mut |_| {}).expect("it was readable");
            assert_eq!((again.1.records, again.1.end), (report.records, report.end));
        }
    });
}

/// The checksums of the header, and of the trailer with the header in it.
fn seal_segment(bytes: &mut Vec<u8>) {
    bytes.resize(4096, 0);
    let trailer = 4096 - 128;
    for (begin, end) in [(0, 60), (trailer, trailer + 60), (trailer, trailer + 124)] {
        let crc = crc32c(&bytes[begin..end]);
        bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The checksums of the head and of the contents, whose place and length the head says.
fn seal_run(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().max(128), 0);
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let begin = 128u64.saturating_add(long(bytes, 24));
    let end = begin.saturating_add(long(bytes, 32)).min(bytes.len() as u64);
    if begin <= end {
        let crc = crc32c(&bytes[begin as usize..end as usize]);
        bytes[56..60].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn any_bytes_in_place_of_an_index_run_are_read_or_refused() {
    let seed = unhex(include_str!("index_run.hex"));
    let inputs = Inputs::from([seed]).resealed(seal_run).with_buffers(READ_BYTES);
    frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
        let (Some(first), Some(last)) = (bytes.get(8..16), bytes.get(16..24)) else { return };
        let segment = |bytes: &[u8]| SegmentId(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        let key = RunKey { first: segment(first), last: segment(last) };
        let mut files = DeviceFiles::default();
        files.index_runs.insert(key, bytes.to_vec());
        let checked = check_index_run(&mut files, key);
        let merge = RunMerge::begin(&mut files, &[key], &[]);
        let mut written = 0;
        let merged = merge.and_then(|merge| {
            let bytes_max = merge.bytes_max();
            let run = merge.run(&mut files, &mut |offset, bytes| {
                written = written.max(offset + bytes.len() as u64);
                Ok(())
            })?;
            assert!(written <= bytes_max && run.bytes() == written, "{written} of {bytes_max} bytes");
            Ok(run)
        });
        assert!(checked.is_err() || merged.is_ok(), "a run that is whole is merged: {checked:?} {merged:?}");
        // A start takes it, or sets it aside and reads the segments, of which there are none.
        let settings = LogSettings { segment_bytes: 4096, block_bytes: BLOCK_BYTES, seed: 0x5eed };
        let recovered = MultiLog::recover(settings, &mut files, &mut |_| {});
        assert!(recovered.is_ok(), "an index run costs time and nothing else: {:?}", recovered.err());
    });
}
