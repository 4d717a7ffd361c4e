//! Recovery: what comes back, what never comes back, and what is refused.

use frieze_base::{Fault, LogIndex, Reason, SegmentId};

use super::machine::{MachineFiles, SegmentMachine, cut};
use crate::error::Error;
use crate::format::{JournalHeader, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::message::DataEnd;
use crate::recover::{Mend, MetalogCutReason, SegmentSource};
use crate::segment_log::SegmentLog;

/// Ten entries over several segments, none flushed.
fn ten() -> SegmentMachine {
    let mut machine = SegmentMachine::new(512);
    for len in [10, 0, 33, 100, 7, 64, 300, 1, 90, 45] {
        machine.append(len);
    }
    assert!(machine.files.0.len() >= 3, "the entries lie in several segments");
    machine
}

fn last_segment(machine: &SegmentMachine) -> SegmentId {
    *machine.files.0.keys().next_back().expect("there is one")
}

#[test]
fn an_empty_directory_is_an_empty_log() {
    let mut machine = SegmentMachine::new(512);
    let recovered = machine.kill();
    assert_eq!(recovered.report.last, LogIndex(0));
    assert_eq!(recovered.mend, vec![]);
}

#[test]
fn everything_comes_back_after_a_kill() {
    let mut machine = ten();
    let recovered = machine.kill();
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(10), None));
    assert_eq!(recovered.mend, vec![]);
    machine.go_on(recovered);
    assert_eq!(machine.append(20), LogIndex(11));
    assert_eq!(machine.kill().report.last, LogIndex(11));
}

#[test]
fn what_two_losses_of_power_leave_at_one_place_is_not_what_the_first_cut_off() {
    // Where the sector ends that the first one took, and that the second one left.
    for split in (8..RECORD_HEADER_BYTES).step_by(8) {
        let mut machine = SegmentMachine::new(512);
        machine.append(9);
        machine.flush();
        let (segment, at) =
            (last_segment(&machine), SEGMENT_HEADER_BYTES + (RECORD_HEADER_BYTES + 9).next_multiple_of(8));
        machine.append(40);
        machine.files.0.get_mut(&segment).expect("it is there")[at..at + split].fill(0);
        let recovered = machine.kill();
        assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(1), None));
        machine.go_on(recovered);
        machine.append(40);
        let mut left = machine.stable.clone();
        let new = &machine.files.0[&segment][at..at + split];
        left.0.get_mut(&segment).expect("it is there")[at..at + split].copy_from_slice(new);
        machine.files = left;
        assert_eq!(machine.kill().report.last, LogIndex(1), "split at {split}");
    }
}

#[test]
fn a_tail_torn_at_any_byte_leaves_a_prefix_and_the_log_goes_on() {
    let whole = ten();
    let segment = last_segment(&whole);
    let len = whole.files.0[&segment].len();
    let mut ends = std::collections::BTreeSet::new();
    for torn_at in 0..=len {
        let mut machine = ten();
        machine.files.0.get_mut(&segment).expect("it is there")[torn_at..].fill(0);
        let recovered = machine.kill();
        ends.insert(recovered.report.last);
        machine.go_on(recovered);
        let next = machine.append(15);
        let again = machine.kill();
        assert_eq!((again.report.last, again.report.cut), (next, None), "torn at {torn_at}");
    }
    assert!(ends.len() >= 3, "the last segment held several entries: {ends:?}");
}

#[test]
fn a_tail_torn_in_its_body_is_reported() {
    let mut machine = SegmentMachine::new(512);
    machine.append(10);
    machine.append(100);
    let second = SEGMENT_HEADER_BYTES + (RECORD_HEADER_BYTES + 10).next_multiple_of(8);
    let at = second + RECORD_HEADER_BYTES + 50;
    machine.files.0.get_mut(&SegmentId(1)).expect("it is there")[at..].fill(0);
    let recovered = machine.kill();
    assert_eq!(cut(&recovered), Some((LogIndex(2), MetalogCutReason::Torn)));
    assert!(matches!(recovered.mend[..], [Mend::Erase { segment: SegmentId(1), offset: 112, len: 400 }]));
}

#[test]
fn no_flipped_bit_goes_unseen_where_the_log_was_durable() {
    let mut whole = ten();
    whole.flush();
    // One entry more carries the news that the ten are durable.
    whole.append(5);
    let mut refused = 0;
    for (segment, bytes) in whole.files.0.clone() {
        for byte in 0..bytes.len() {
            let mut machine = ten();
            machine.flush();
            machine.append(5);
            machine.files.0.get_mut(&segment).expect("it is there")[byte] ^= 0x10;
            let data_end = machine.data_end;
            match machine.recover(data_end) {
                Ok(recovered) => {
                    assert!(recovered.report.last >= LogIndex(10), "byte {byte} of {segment} lost entries unseen");
                }
                Err(error) => {
                    assert_eq!(Fault::from(error).reason, Reason::Corrupt, "byte {byte} of {segment}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000, "only {refused} flips were refused");
}

#[test]
fn damage_to_what_the_store_holds_already_does_not_matter_in_a_body() {
    let mut machine = SegmentMachine::new(512);
    machine.append(10);
    machine.append(10);
    machine.flush();
    machine.let_go(LogIndex(1));
    machine.files.0.get_mut(&SegmentId(1)).expect("it is there")[SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
    assert_eq!(machine.kill().report.last, LogIndex(2));
}

#[test]
fn a_log_that_ends_before_the_store_is_refused() {
    let mut machine = SegmentMachine::new(4096);
    for _ in 0..3 {
        machine.append(10);
    }
    machine.flush();
    machine.let_go(LogIndex(3));
    let second = SEGMENT_HEADER_BYTES + (RECORD_HEADER_BYTES + 10).next_multiple_of(8);
    machine.files.0.get_mut(&SegmentId(1)).expect("it is there")[second..].fill(0);
    let error = machine.recover(machine.data_end).expect_err("the store holds entry 3");
    assert_eq!(error, Error::Damaged { segment: SegmentId(1), offset: second as u64, record: LogIndex(2) });
}

#[test]
fn a_shortened_segment_is_refused() {
    let mut machine = ten();
    let segment = last_segment(&machine);
    machine.files.0.get_mut(&segment).expect("it is there").truncate(200);
    let error = machine.recover(machine.data_end).expect_err("it is too short");
    assert_eq!(error, Error::Truncated { segment, found: 200, expected: 512 });
}

#[test]
fn a_missing_segment_is_refused() {
    let mut machine = ten();
    machine.flush();
    machine.files.0.remove(&SegmentId(2));
    machine.append(1);
    let error = machine.recover(machine.data_end).expect_err("entries of segment 2 were durable");
    let (before, after) = (SegmentId(1), SegmentId(3));
    assert!(matches!(error, Error::FileMissing { before: b, after: a, .. } if (b, a) == (before, after)), "{error}");

    machine.files.0.remove(&SegmentId(1));
    let error = machine.recover(machine.data_end).expect_err("the first segment is gone");
    assert!(matches!(error, Error::FileBeforeMissing { segment: SegmentId(3), .. }), "{error}");

    machine.let_go(LogIndex(9));
    machine.files.0.clear();
    let error = machine.recover(machine.data_end).expect_err("all segments are gone");
    assert_eq!(error, Error::NoSegment { applied: LogIndex(9) });
}

#[test]
fn the_only_segment_without_its_header_is_refused_if_it_was_durable() {
    let mut machine = SegmentMachine::new(4096);
    machine.append(10);
    machine.flush();
    machine.append(10);
    machine.files.0.get_mut(&SegmentId(1)).expect("it is there")[3] ^= 1;
    let error = machine.recover(machine.data_end).expect_err("an entry says that it was durable");
    assert_eq!(error, Error::HeaderDamaged { segment: SegmentId(1) });
}

#[test]
fn another_format_version_is_refused() {
    let mut machine = ten();
    let file = machine.files.0.get_mut(&SegmentId(1)).expect("it is there");
    file[4] = 2;
    let crc = frieze_base::crc32c(&file[..44]);
    file[44..48].copy_from_slice(&crc.to_le_bytes());
    let error = machine.recover(machine.data_end).expect_err("version 2 is not ours");
    assert_eq!(error, Error::WrongVersion { segment: SegmentId(1), found: 2, expected: 1 });
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    struct UnreadableFiles(MachineFiles);
    impl SegmentSource for UnreadableFiles {
        fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
            self.0.segments()
        }
        fn read(&mut self, _: SegmentId, _: u64, _: &mut [u8]) -> Result<usize, Fault> {
            Err(Reason::InputOutput.into())
        }
    }
    let machine = ten();
    let (settings, mut files) = (machine.settings.clone(), UnreadableFiles(machine.files));
    let error = SegmentLog::recover(settings, LogIndex(0), &mut files, &mut |_| Ok(()));
    assert_eq!(error.expect_err("nothing can be read").reason(), Reason::InputOutput);
}

#[test]
fn an_entry_is_cut_with_the_data_it_names() {
    let mut machine = ten();
    let all = machine.data_end;
    let lost = machine.records[6].data_end;
    machine.data_end = DataEnd { offset: lost.offset - 1, ..lost };
    let recovered = machine.kill();
    assert_eq!(cut(&recovered), Some((LogIndex(7), MetalogCutReason::BeyondData)));
    machine.go_on(recovered);

    // New data passes the old position before anything is proposed. What was cut does not come back,
    machine.data_end = DataEnd { offset: all.offset + 9999, ..all };
    let recovered = machine.kill();
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(6), None));
    machine.go_on(recovered);

    // nor do those that followed it come after what took its place.
    machine.append(300);
    let recovered = machine.kill();
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(7), None));
}

#[test]
fn a_log_that_lacks_durable_data_is_refused() {
    let mut machine = ten();
    machine.flush();
    machine.append(5);
    let needed = machine.records[3].data_end;
    let found = DataEnd { offset: needed.offset - 1, ..needed };
    let error = machine.recover(found).expect_err("entry 4 was durable");
    assert_eq!(error, Error::DataMissing { record: LogIndex(4), needed, found });
}

#[test]
fn entries_in_the_store_need_their_data_no_more() {
    let mut machine = ten();
    machine.flush();
    machine.let_go(LogIndex(10));
    let recovered = machine.recover(DataEnd::default()).expect("all of it is in the store");
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(10), None));
}

#[test]
fn segments_are_used_again_and_hold_nothing_of_before() {
    let mut machine = SegmentMachine::new(512);
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..40 {
        machine.append(50 + round % 7);
        machine.flush();
        machine.let_go(LogIndex(machine.log.last.0.saturating_sub(2)));
        ids.extend(machine.files.0.keys().copied());
        assert!(machine.files.0.len() <= 4, "{} files", machine.files.0.len());
        let recovered = machine.kill();
        assert_eq!((recovered.report.last.0, recovered.report.cut), (round as u64 + 1, None));
    }
    assert!(ids.len() > 8, "{ids:?}");

    let recovered = machine.kill();
    machine.go_on(recovered);
    assert_eq!(machine.append(400), LogIndex(41), "spare files are known after a restart");
    assert_eq!(machine.kill().report.last, LogIndex(41));
}

#[test]
fn a_segment_renamed_but_not_begun_is_no_part_of_the_log() {
    let mut machine = ten();
    let next = SegmentId(last_segment(&machine).0 + 1);
    let old = machine.files.0[&SegmentId(1)].clone();
    machine.files.0.insert(next, old);
    let recovered = machine.kill();
    assert_eq!(recovered.report.last, LogIndex(10));
    assert_eq!(recovered.mend, vec![Mend::Remove { segment: next }]);
    machine.go_on(recovered);
    machine.append(500);
    assert_eq!(machine.kill().report.last, LogIndex(11));
}

#[test]
fn a_segment_of_another_log_does_not_follow() {
    let mut machine = ten();
    let segment = SegmentId(last_segment(&machine).0 + 1);
    let header = JournalHeader { segment, first: LogIndex(11), durable: LogIndex(0), link: 77, bytes: 512 };
    let mut file = header.encode().to_vec();
    file.resize(512, 0);
    machine.files.0.insert(segment, file);
    let recovered = machine.kill();
    assert_eq!(recovered.report.last, LogIndex(10));
    assert_eq!(recovered.mend, vec![Mend::Remove { segment }]);
}

#[test]
fn what_a_failed_append_left_never_follows_what_took_its_place() {
    // Entries 2, 3 and 4 are whole in the file when entry 2 is reported as failed. The next entry has its length, so
    // that the old entry 3 lies exactly where the new one is looked for.
    let mut machine = SegmentMachine::new(4096);
    machine.append(8);
    for _ in 0..3 {
        machine.propose(40);
    }
    machine.fail_one(usize::MAX, true);
    let recovered = machine.kill();
    assert_eq!(recovered.report.last, LogIndex(1), "nothing was appended since");

    assert_eq!(machine.append(40), LogIndex(2));
    let recovered = machine.kill();
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(2), None));
    machine.go_on(recovered);
    assert_eq!(machine.append(40), LogIndex(3));
    assert_eq!(machine.kill().report.last, LogIndex(3));
}

#[test]
fn a_failed_roll_is_done_again_in_another_segment() {
    for others_too in [false, true] {
        let mut machine = SegmentMachine::new(512);
        machine.append(300);
        machine.propose(300);
        machine.propose(0);
        machine.fail_one(100, others_too);
        assert_eq!(machine.files.0.keys().copied().collect::<Vec<_>>(), vec![SegmentId(1)]);
        // It would fit into segment 1, but begins another one.
        assert_eq!(machine.append(10), LogIndex(2));
        assert_eq!(machine.files.0.keys().copied().collect::<Vec<_>>(), vec![SegmentId(1), SegmentId(3)]);
        assert_eq!(machine.kill().report.last, LogIndex(2));
    }
}

#[test]
fn a_failed_roll_whose_removal_was_lost_is_passed_over() {
    let mut machine = SegmentMachine::new(512);
    machine.append(300);
    machine.propose(300);
    let before = machine.files.clone();
    machine.fail_one(usize::MAX, false);
    machine.append(10);
    machine.append(11);
    // The file of the failed roll is back.
    let mut stale = SegmentMachine::new(512);
    stale.append(300);
    stale.append(300);
    assert!(before.0.len() == 1 && stale.files.0.len() == 2);
    machine.files.0.insert(SegmentId(2), stale.files.0[&SegmentId(2)].clone());
    let recovered = machine.kill();
    assert_eq!((recovered.report.last, recovered.report.cut), (LogIndex(3), None));

    // Also when the store holds everything before it.
    machine.flush();
    machine.let_go(LogIndex(2));
    machine.files.0.insert(SegmentId(2), stale.files.0[&SegmentId(2)].clone());
    assert_eq!(machine.kill().report.last, LogIndex(3));
}

#[test]
fn a_large_batch_gets_a_segment_of_its_own_length() {
    let mut machine = SegmentMachine::new(512);
    machine.append(10);
    machine.append(5000);
    machine.append(10);
    assert_eq!(
        machine.files.0[&SegmentId(2)].len(),
        (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + 5000).next_multiple_of(8)
    );
    assert_eq!(machine.kill().report.last, LogIndex(3));

    // Its file is used again where something fits into it.
    machine.flush();
    machine.let_go(LogIndex(3));
    let out = {
        machine.propose(4000);
        machine.write_one();
        machine.files.0.keys().copied().collect::<Vec<_>>()
    };
    assert!(!out.contains(&SegmentId(2)), "{out:?}");
    assert_eq!(machine.kill().report.last, LogIndex(4));
}

#[test]
fn a_record_that_is_too_large_is_refused_and_changes_nothing() {
    let mut machine = SegmentMachine::new(512);
    machine.append(10);
    let max = machine.settings.body_bytes_max as usize;
    let error = machine.log.append(&vec![0; max + 1], DataEnd::default()).expect_err("it is too large");
    assert_eq!(error, Error::BatchTooLarge { len: max as u64 + 1, max: max as u64 });
    assert_eq!(machine.append(10), LogIndex(2));
    assert_eq!(machine.kill().report.last, LogIndex(2));
}

#[test]
fn after_a_failed_first_record_the_log_begins_again_in_another_segment() {
    let mut machine = SegmentMachine::new(512);
    machine.propose(10);
    machine.fail_one(40, false);
    assert!(machine.files.0.is_empty(), "nothing is left of it");
    assert_eq!(machine.append(10), LogIndex(1));
    assert_eq!(machine.files.0.keys().copied().collect::<Vec<_>>(), vec![SegmentId(2)]);
    assert_eq!(machine.kill().report.last, LogIndex(1));
}

#[test]
fn nothing_is_let_go_that_the_store_may_still_need() {
    let mut machine = ten();
    let files = machine.files.0.len();
    machine.flush();
    machine.let_go(LogIndex(1));
    assert_eq!(machine.files.0.len(), files);
    machine.let_go(LogIndex(10));
    assert_eq!(machine.files.0.len(), 2, "the last, and one spare");
}
