//! Several places reserved at once: filled in any order, published in that of the log.

use std::collections::VecDeque;

use crate::support::{LogDevice, payload_of, recover, settings, with_payload, write_of};
use frieze_base::Rng;
use frieze_multilog::{RECORD_MARK_BYTES, RESERVED_BYTES_MAX, RecordHeader, Reservation, block_crcs};

const SEGMENT_BYTES: u64 = 64 << 10;

struct Filling {
    header: RecordHeader,
    reservation: Reservation,
    is_filled: bool,
}

fn reserve(device: &mut LogDevice, header: &RecordHeader) -> Option<Reservation> {
    let reservation = device.log.reserve(std::slice::from_ref(header))?;
    if let Some(new) = &reservation.roll {
        device.files.make(new.id, new.bytes, &mut device.free);
        device.files.put(new.id, 0, &new.header);
    }
    Some(reservation)
}

fn fill(device: &mut LogDevice, header: &RecordHeader, reservation: &Reservation) {
    let payload = payload_of(header);
    let head = reservation.head(0, header, &block_crcs(&payload, device.log.settings().block_bytes));
    let spot = &reservation.spots[0];
    device.files.put(spot.segment, spot.offset, &[head, payload].concat());
}

fn erase(device: &mut LogDevice, reservation: &Reservation) {
    let spot = &reservation.spots[0];
    device.files.put(spot.segment, spot.offset, &[0; RECORD_MARK_BYTES]);
}

fn stamps(records: &[RecordHeader]) -> Vec<u64> {
    records.iter().map(|header| header.stamp.0).collect()
}

#[test]
fn places_filled_in_any_order_recover_as_a_prefix_with_everything_published() {
    let (mut recoveries, mut beyond, mut failures) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut device = LogDevice::new(settings(SEGMENT_BYTES));
        let (mut open, mut published): (VecDeque<Filling>, Vec<u64>) = (VecDeque::new(), Vec::new());
        for stamp in 1..400 {
            match rng.below(8) {
                0..=2 => {
                    let header =
                        write_of(1 + rng.below(3), 0, stamp, rng.below(100_000) as u32, rng.below(3000) as u32);
                    if let Some(reservation) = reserve(&mut device, &header) {
                        open.push_back(Filling { header, reservation, is_filled: false });
                    }
                }
                3..=4 if !open.is_empty() => {
                    let at = rng.below(open.len() as u64) as usize;
                    fill(&mut device, &open[at].header, &open[at].reservation);
                    open[at].is_filled = true;
                }
                5..=6 => {
                    while open.front().is_some_and(|first| first.is_filled) {
                        let Filling { header, reservation, .. } = open.pop_front().expect("the first");
                        assert!(device.log.is_first(reservation.id));
                        let is_refused = rng.chance(12);
                        if is_refused || device.log.has_failed(reservation.id) {
                            failures += 1;
                            erase(&mut device, &reservation);
                            device.log.abandon(reservation);
                            assert!(open.iter().all(|behind| device.log.has_failed(behind.reservation.id)));
                        } else {
                            device.log.publish(&header, &reservation.spots[0]);
                            published.push(header.stamp.0);
                            assert_eq!(device.log.end(), reservation.end());
                        }
                    }
                }
                7 if rng.chance(6) => {
                    // The process dies: all bytes are as they were written.
                    let filled =
                        open.iter().take_while(|open| open.is_filled && !device.log.has_failed(open.reservation.id));
                    let expect: Vec<u64> =
                        published.iter().copied().chain(filled.map(|open| open.header.stamp.0)).collect();
                    beyond += expect.len() - published.len();
                    let (mut again, report, seen) = recover(device.files.clone(), device.log.settings().clone());
                    assert_eq!(stamps(&seen), expect, "seed {seed}");
                    assert_eq!(report.corrupt, vec![]);
                    if let Some((next, free)) = report.next {
                        let len = free.min(RESERVED_BYTES_MAX) as usize;
                        again.files.put(next.segment, next.offset, &vec![0; len]);
                    }
                    (device, published) = (again, expect);
                    open.clear();
                    recoveries += 1;
                }
                _ => {}
            }
        }
    }
    assert!(recoveries > 100 && beyond > 10 && failures > 100, "{recoveries}, {beyond}, {failures}");
}

#[test]
fn a_new_segment_waits_until_nothing_is_reserved_and_is_then_alone() {
    let mut device = LogDevice::new(settings(SEGMENT_BYTES));
    device.write(&[with_payload(write_of(1, 0, 1, 0, 10))]);
    let first = write_of(1, 0, 2, 0, 30_000);
    let reserved = reserve(&mut device, &first).expect("there is room");
    let large = write_of(1, 0, 3, 0, 50_000);
    assert!(device.log.reserve(std::slice::from_ref(&large)).is_none(), "a segment begins behind published records");
    assert_eq!(device.log.close_open(), None, "nor does one end before them");
    fill(&mut device, &first, &reserved);
    device.log.publish(&first, &reserved.spots[0]);
    let rolled = reserve(&mut device, &large).expect("nothing is reserved");
    assert!(rolled.roll.is_some());
    assert!(device.log.reserve(&[write_of(1, 0, 4, 0, 10)]).is_none(), "its segment may be given up");
    fill(&mut device, &large, &rolled);
    device.log.publish(&large, &rolled.spots[0]);
    assert!(device.log.reserve(&[write_of(1, 0, 4, 0, 10)]).is_some());
}

#[test]
fn a_failure_bars_reservations_until_those_behind_it_have_ended() {
    let mut device = LogDevice::new(settings(SEGMENT_BYTES));
    device.write(&[with_payload(write_of(1, 0, 1, 0, 10))]);
    let headers = [2, 3, 4].map(|stamp| write_of(1, 0, stamp, 0, 700));
    let [first, second, third] = headers.each_ref().map(|header| reserve(&mut device, header).expect("there is room"));
    let (below, place) = (device.log.next_reservation(), first.spots[0].offset);
    fill(&mut device, &headers[2], &third);
    device.log.abandon(first);
    assert!(device.log.has_failed(second.id) && device.log.has_failed(third.id));
    assert!(device.log.reserve(&headers[..1]).is_none(), "a thread may still write there");
    device.log.abandon(second);
    assert!(!device.log.has_ended(below));
    device.log.abandon(third);
    assert!(device.log.has_ended(below));
    let again = reserve(&mut device, &headers[0]).expect("all have ended");
    assert_eq!(again.spots[0].offset, place, "the room is used again");
}

#[test]
fn as_much_is_reserved_as_a_recovery_erases() {
    let mut device = LogDevice::new(settings(32 << 20));
    let header = |stamp| write_of(1, 0, stamp, 0, 1 << 20);
    device.write(&[with_payload(header(1))]);
    let open: Vec<Reservation> = (2..10).map_while(|stamp| reserve(&mut device, &header(stamp))).collect();
    assert_eq!(open.len(), 3, "three of a little more than a MiB are below 4 MiB");
    let mut device = LogDevice::new(settings(32 << 20));
    device.write(&[with_payload(header(1))]);
    let large = write_of(1, 0, 2, 0, 6 << 20);
    assert!(reserve(&mut device, &large).is_some(), "one alone may be larger");
    assert!(reserve(&mut device, &header(3)).is_none());
}
