//! Policies as they are written, and the instants that they keep, against brute force.

use std::collections::BTreeMap;

use frieze_base::{InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_retention::{
    AgeBound, GridPeriod, KeptSet, PolicyNumber, Regime, RegimeNumber, RegimeTable, RetentionEntry, RetentionError,
    RetentionMark, RetentionPolicy, RetentionTable, Thinning,
};

fn policy(text: &str) -> RetentionPolicy {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn seconds(seconds: u64) -> Hlc {
    Hlc::last_of_micros(seconds * 1_000_000)
}

#[test]
fn a_policy_prints_and_parses_back() {
    for text in [
        "all 1h, 1/min 1d, 1/day 1y",
        "all forever",
        "all 30s",
        "all 90min, 1/15min 12h, 1/6h 4w, 1/52w forever",
        "all 1s, 1/s 2s",
    ] {
        assert_eq!(policy(text).to_string(), text);
    }
    assert_eq!(policy(" all  60min ,1/1min 24hours,1/24h 365days").to_string(), "all 1h, 1/min 1d, 1/day 1y");
    assert_eq!(policy("all 1d, 1/7d 1y").classes()[0].period, GridPeriod::of_seconds(604_800).unwrap());
    assert_eq!(policy("all 2h").all_until(), AgeBound::Seconds(7200));
}

#[test]
fn a_refusal_says_what_is_wrong_where_and_what_to_write() {
    let check = |text: &str, at: usize, wrong: &str, instead: &str| {
        let error = text.parse::<RetentionPolicy>().expect_err(text);
        let RetentionError::NotPolicy { at: found_at, wrong: found, instead: found_instead, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*found_at, found.as_str(), found_instead.as_str()), (at, wrong, instead), "{error}");
        assert!(error.to_string().len() < 400, "{error}");
    };
    const NESTS: &str = "the period does not nest with those of other policies";
    check("all 1h, 1/7min 1d", 8, NESTS, "write 1/5min or 1/15min");
    check("all 1h, 1/10min 1d", 8, NESTS, "write 1/5min or 1/15min");
    check("all 1h, 1/3d 1y", 8, NESTS, "write 1/day or 1/week");
    check("all 1h,1/0min 1d", 7, "a period of 0 is none", "write 1/s");
    check("all 1h, 1/5200w forever", 8, "the period is longer than every grid", "write 1/52w");
    check("all 1h, 1/99999999999999999999d 1y", 8, "the period is longer than every grid", "write 1/52w");
    let calendar = "months and years differ in length, so they have no grid";
    check("all 1h, 1/month 1y", 8, calendar, "write 1/4w or 1/52w");
    check("all 1h, 1/y 5y", 8, calendar, "write 1/4w or 1/52w");
    check("all 0h", 0, "its age is 0", "write an age as in `1h`");
    check("all 100y", 0, "its age is above 50 years", "write `forever`");
    check("all 18446744073709551615y", 0, "its age is above 50 years", "write `forever`");
    check("all 1mo", 0, "months differ in length", "write days, as in `30d`");
    check("all 5m", 0, "`m` may be a minute or a month", "units are s, min, h, d, w, y");
    check("all 5", 0, "it has no unit", "units are s, min, h, d, w, y");
    check("all h", 0, "its age has no number", "write an age as in `90d`, or `forever`");
    check("all 1d, 1/min 1h", 8, "its age does not rise", "write 1/min 1441min or more");
    check(
        "all 1d, 1/day 36h",
        8,
        "it lasts for less than one period, so it may keep no instant",
        "write 1/day 2d or more",
    );
    let coarser = "write classes from the young to the old, each coarser";
    check("all 1h, 1/h 1d, 1/min 1y", 16, "its instants are not further apart than those of 1/h before it", coarser);
    check("all forever, 1/h 1d", 13, "the class before it has no end", "leave it out, or end that one by an age");
    check("all 1h, 2/h 1d", 8, "a class keeps one instant of each period", "write `1/` and a shorter period");
    check(
        "all 1h, all 1d",
        8,
        "only the first class keeps all instants",
        "write a period and an age, as in `1/min 1d`",
    );
    check("all 1h, hourly 1d", 8, "it has no period", "write a period and an age, as in `1/min 1d`");
    check("all 1h,", 7, "it is no class", "write a period and an age, as in `1/min 1d`");
    let first = "the first class does not say how long every instant is kept";
    let begin = "begin with `all` and an age, as in `all 1h, 1/min 1d, 1/day 1y`";
    check("", 0, first, begin);
    check("1/min 1d", 0, first, begin);
    check("allé 1h", 0, first, begin);
    let many = format!("all 1h{}", ", 1/min 1d".repeat(9_999));
    check(&many, 0, "it has 10000 classes", "write 16 at most");
}

#[test]
fn a_mark_counts_ages_from_what_is_closed_and_lies_on_the_grid() {
    let policy = policy("all 1min, 1/5s 5min, 1/min 1h");
    assert_eq!(policy.marks_max(), 3);
    // Stamps of the last microsecond may still come, so a grid point counts when it is over.
    assert_eq!(policy.mark_due(1, seconds(7_260).previous()), Some(seconds(7_195)));
    let closed = seconds(7_260).next();
    assert_eq!(policy.mark_due(1, closed), Some(seconds(7_200)));
    assert_eq!(policy.mark_due(2, closed), Some(seconds(6_960)));
    assert_eq!(policy.mark_due(3, closed), Some(seconds(3_660)), "where nothing is kept, the grid before counts");
    assert_eq!(policy.mark_due(1, Hlc::first_of_micros(59_000_000)), None);
    let mut table = RetentionTable::default();
    let number = PolicyNumber(1);
    table.apply(&RetentionEntry::MakePolicy(number, policy.clone())).unwrap();
    assert_eq!(table.marks_due(closed).len(), 3);
    let mark = |class, upto| RetentionEntry::Mark(RetentionMark { policy: number, class, upto });
    let refused = |table: &mut RetentionTable, entry| table.apply(&entry).expect_err("refused");
    let off = seconds(63);
    assert_eq!(refused(&mut table, mark(1, off)), RetentionError::MarkOffGrid { upto: off });
    let unknown = RetentionError::UnknownClass { policy: number, class: 4, count: 3 };
    assert_eq!(refused(&mut table, mark(4, off)), unknown);
    table.apply(&mark(1, seconds(600))).unwrap();
    let not_above = RetentionError::MarkNotAbove { upto: seconds(595), last: seconds(600) };
    assert_eq!(refused(&mut table, mark(1, seconds(595))), not_above);
    assert_eq!(table.marks_due(seconds(600)), [RetentionMark { policy: number, class: 2, upto: seconds(300) }]);
}

/// The proof that the design rests on: files of any nested policies, moved between them at any time, share the
/// multiples of the coarsest period, down to where one of them keeps nothing.
#[test]
fn every_multiple_of_the_coarsest_period_is_kept_for_the_whole_tree() {
    let texts = ["all 1min, 1/5s 5min, 1/min 1h", "all 30s, 1/15s 10min, 1/5min 2h", "all 5min, 1/s 20min", "all 1h"];
    let coarsest = GridPeriod::of_seconds(300).unwrap();
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut table = RetentionTable::default();
        for (number, text) in (1..).zip(texts) {
            table.apply(&RetentionEntry::MakePolicy(PolicyNumber(number), policy(text))).unwrap();
        }
        let (mut closed, mut ended) = (20_000, Hlc::ZERO);
        for _ in 0..60 {
            closed += rng.below(400);
            for mark in table.marks_due(seconds(closed)) {
                if rng.chance(2) {
                    table.apply(&RetentionEntry::Mark(mark)).unwrap();
                    if mark.class == policy(texts[mark.policy.0 as usize - 1]).marks_max() {
                        ended = ended.max(mark.upto);
                    }
                }
            }
            let (inode, number) = (InodeId(1 + rng.below(5)), PolicyNumber(rng.below(5) as u32));
            table.apply(&RetentionEntry::SetPolicy(inode, number)).unwrap();
            let mut point = coarsest.first_at_or_above(ended).unwrap();
            while point <= seconds(closed) {
                for inode in (1..=5).map(InodeId) {
                    assert!(table.kept_set(inode).is_kept(point), "seed {seed}: {inode} at {point}");
                }
                point = coarsest.first_at_or_above(point.next()).unwrap();
            }
        }
    }
}

#[test]
fn neighbours_are_those_that_a_walk_over_every_instant_finds() {
    // A small world: every candidate is the last stamp of a second, or a pin.
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut thinning = Thinning::default();
        for period in GridPeriod::all().take(6).map(Some).chain([None]) {
            if rng.chance(2) {
                let grid = period.unwrap_or(GridPeriod::SHORTEST);
                let upto = grid.first_at_or_above(seconds(rng.below(400))).unwrap();
                thinning.raise(period, upto);
            }
        }
        let pins: BTreeMap<Hlc, u32> = (0..rng.below(4)).map(|_| (Hlc(rng.below(seconds(400).0)), 1)).collect();
        let kept = KeptSet::new(thinning, pins.clone());
        let mut walk: Vec<Hlc> =
            (0..1200).map(seconds).chain(pins.keys().copied()).filter(|at| kept.is_kept(*at)).collect();
        walk.sort();
        for _ in 0..200 {
            let at = match rng.below(3) {
                0 => seconds(rng.below(400)),
                1 => *rng.choose(&walk),
                _ => Hlc(rng.below(seconds(400).0)),
            };
            if kept.is_kept(at) {
                assert_eq!((kept.last_at_or_below(at), kept.first_at_or_above(at)), (Some(at), at), "seed {seed}");
                continue;
            }
            let before = walk.iter().rfind(|kept| **kept < at).copied();
            let after = *walk.iter().find(|kept| **kept > at).unwrap();
            let epoch = kept.epoch_of(at);
            assert_eq!((epoch.after, epoch.upto), (before, after), "seed {seed}: {at}");
        }
    }
}

#[test]
fn what_one_policy_has_thinned_another_one_does_not_keep() {
    let (fine, coarse, inode) = (PolicyNumber(1), PolicyNumber(2), InodeId(7));
    let mut table = RetentionTable::default();
    table.apply(&RetentionEntry::MakePolicy(fine, policy("all 1min, 1/s 1h"))).unwrap();
    table.apply(&RetentionEntry::MakePolicy(coarse, policy("all 10s, 1/min 1h"))).unwrap();
    table.apply(&RetentionEntry::SetPolicy(inode, coarse)).unwrap();
    for mark in table.marks_due(seconds(1000)) {
        table.apply(&RetentionEntry::Mark(mark)).unwrap();
    }
    table.apply(&RetentionEntry::SetPolicy(inode, fine)).unwrap();
    let kept = table.kept_set(inode);
    assert!(!kept.is_kept(seconds(901)), "the coarse policy had dropped it");
    assert!(kept.is_kept(seconds(960)) && kept.is_kept(seconds(990)));
    // A policy that changes every hour leaves a state of the same size.
    for hour in 0..1000 {
        let number = if hour % 2 == 0 { coarse } else { fine };
        table.apply(&RetentionEntry::SetPolicy(inode, number)).unwrap();
    }
    assert_eq!(table.kept_set(inode), kept);
}

#[test]
fn a_pin_needs_a_kept_instant_and_ends_for_good() {
    let (number, inode) = (PolicyNumber(1), InodeId(7));
    let mut table = RetentionTable::default();
    table.apply(&RetentionEntry::MakePolicy(number, policy("all 1min, 1/5s 1h"))).unwrap();
    table.apply(&RetentionEntry::SetPolicy(inode, number)).unwrap();
    let at = seconds(501).previous();
    table.apply(&RetentionEntry::Pin(inode, at)).unwrap();
    table.apply(&RetentionEntry::Pin(inode, at)).unwrap();
    for mark in table.marks_due(seconds(1000)) {
        table.apply(&RetentionEntry::Mark(mark)).unwrap();
    }
    assert!(table.kept_set(inode).is_kept(at));
    let other = RetentionEntry::Pin(inode, at.next());
    let (before, after) = (Some(at), seconds(505));
    let refused = RetentionError::NotKept { inode, at: at.next(), before, after };
    assert_eq!(table.apply(&other), Err(refused), "thinned, whether or not its records are there");
    table.apply(&RetentionEntry::Unpin(inode, at)).unwrap();
    assert!(table.kept_set(inode).is_kept(at), "one of two snapshots is left");
    table.apply(&RetentionEntry::Unpin(inode, at)).unwrap();
    assert!(!table.kept_set(inode).is_kept(at));
    assert!(table.apply(&RetentionEntry::Pin(inode, at)).is_err());
    assert_eq!(table.apply(&RetentionEntry::Unpin(inode, at)), Err(RetentionError::NotPinned { inode, at }));
}

#[test]
fn full_tables_refuse_new_policies_and_combinations_and_give_those_that_there_are() {
    let mut table = RegimeTable::default();
    let nth = |number: usize| policy(&format!("all {}s", number + 1));
    for number in 0..RegimeTable::POLICIES_MAX {
        let free = table.number_of(&nth(number)).unwrap();
        table.add_policy(free, nth(number)).unwrap();
    }
    let full = RetentionError::TooManyPolicies { max: RegimeTable::POLICIES_MAX };
    assert_eq!(table.number_of(&nth(RegimeTable::POLICIES_MAX)), Err(full));
    assert_eq!(table.number_of(&nth(0)), Ok(PolicyNumber(1)));

    for number in 1..RegimeTable::REGIMES_MAX as u32 / 2 {
        table.load_regime(RegimeNumber(number), Regime { policy: PolicyNumber(number + 1), past: Thinning::default() });
    }
    table.check_room().unwrap();
    let regime = table.successor(RegimeNumber(0), PolicyNumber(1)).unwrap();
    assert_eq!(regime, RegimeNumber(RegimeTable::REGIMES_MAX as u32 / 2));
    let full = RetentionError::TooManyRegimes { max: RegimeTable::REGIMES_MAX / 2 };
    assert_eq!(table.check_room(), Err(full));
    assert_eq!(table.successor(RegimeNumber(0), PolicyNumber(1)), Ok(regime), "it is there");
}
