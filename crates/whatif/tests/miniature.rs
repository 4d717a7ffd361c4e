//! Miniature simulations: a sample of frames in smaller caches has the hit ratios of all frames, within its error.

mod common;

use common::{hardware, load, one_copy, read, run};
use frieze_base::Rng;
use frieze_tier::Policy;
use frieze_whatif::{LocalLoad, SimOutcome, SystemPolicies};

/// Reads of whole frames by a power law, with scans over a part of them between.
fn reads(seed: u64) -> LocalLoad {
    let mut rng = Rng::new(seed);
    let mut calls = Vec::new();
    for number in 0..400_000u32 {
        let scans = number % 8 == 0;
        let reach = 1 + rng.below(120_000);
        let bound = 1 + rng.below(reach);
        let frame = if scans { u64::from(number / 8) % 120_000 } else { rng.below(bound) };
        let (file, offset) = ((frame / 512) as u32, frame % 512 * 65_536);
        calls.push(read(f64::from(number) * 0.01, file, offset, 65_536));
    }
    LocalLoad::lower(&load(calls), &one_copy())
}

fn with(local: &LocalLoad, policy: Policy, mb: u32, one_in: u32) -> SimOutcome {
    let hardware = hardware(&[("ram", &format!("{mb}MB"))]).with_caches_of_one_in(one_in).expect("in its range");
    let policies = SystemPolicies { policy, with_disks: false, is_sampled: one_in > 1, ..SystemPolicies::default() };
    run(local, &hardware, policies)
}

#[test]
fn a_sample_has_the_hit_ratios_of_all_frames_within_its_error() {
    let whole = reads(3);
    let sample = whole.sampled(16);
    assert!((10..24).contains(&(whole.accesses().len() / sample.accesses().len())));
    let (mut worst, mut outside) = (0.0f64, 0);
    for policy in Policy::ALL {
        for mb in [256, 1024, 3000] {
            let (full, part) = (with(&whole, *policy, mb, 1), with(&sample, *policy, mb, 16));
            let error = part.hit_ratio_error().unwrap();
            assert!(full.hit_ratio_error().is_none() && error < 0.06, "{policy:?} {mb}: {error}");
            let off = (full.hit_ratio() - part.hit_ratio()).abs();
            worst = worst.max(off);
            outside += u32::from(off > error);
        }
    }
    assert!(outside <= 1, "{outside} of 15 are outside of two standard errors, the worst by {worst}");
    assert!(worst < 0.03, "{worst}");
}

#[test]
fn times_of_a_sample_are_those_of_the_load() {
    let whole = reads(1);
    let sum = |local: &LocalLoad| local.accesses().iter().map(|access| u64::from(access.delta_us)).sum::<u64>();
    let sample = whole.sampled(64);
    assert_eq!(sample.span_us(), whole.span_us());
    assert!(sum(&sample) <= sum(&whole) && sum(&sample) > sum(&whole) / 2);
    assert_eq!(whole.sampled(1).accesses(), whole.accesses());
    assert_eq!(sample.accesses(), whole.sampled(64).accesses());
}
