#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

use super::*;

fn check(before: &[Range<u32>], new: Range<u32>, after: &[Range<u32>]) {
    let mut ranges = before.to_vec();
    add_range(&mut ranges, new.clone());
    assert_eq!(ranges, after, "{before:?} + {new:?}");
}

#[test]
fn ranges_that_touch_become_one() {
    check(&[], 3..4, &[3..4]);
    check(&[3..4], 4..5, &[3..5]);
    check(&[3..4], 2..3, &[2..4]);
    check(&[3..4], 0..1, &[0..1, 3..4]);
    check(&[0..1, 3..4, 8..9], 1..5, &[0..5, 8..9]);
    check(&[0..1, 3..4, 8..9], 2..8, &[0..1, 2..9]);
    check(&[0..10], 3..4, &[0..10]);
}

#[test]
fn far_apart_ranges_stay_bounded_and_still_cover_everything() {
    let mut ranges = Vec::new();
    for i in 0..1000u32 {
        let first = i.wrapping_mul(2_654_435_761) >> 8;
        add_range(&mut ranges, first..first + 1);
        assert!(ranges.len() <= GRANT_RANGES_MAX);
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(ranges.iter().any(|range| range.contains(&first)));
    }
}

#[test]
fn a_long_command_is_cut_between_characters() {
    assert_eq!(cut("ls"), "ls");
    let long = "é".repeat(600);
    assert_eq!(cut(&long).len(), 1024);
    assert_eq!(cut(&format!("x{long}")).len(), 1023);
}
