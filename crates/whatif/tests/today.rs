//! Hardware of today: erasure codes, object stores, networks with a tail, flash that writes more than it is given.

mod common;

use common::{SECOND, call, database, hardware, load, one_copy, read, run, write};
use frieze_base::Rng;
use frieze_whatif::{
    CodeParts, HardwareProfile, IoPurpose, LocalLoad, Movement, ObjectSums, ReplicationModel, ReplicationSettings,
    SimOutcome, SystemConfig, SystemCosts, SystemPolicies, TailedLatency, flash_years, greedy_amplification,
};
use proptest::prelude::*;

fn coded(data: u8, parity: u8, cell_bytes: u32) -> ReplicationSettings {
    let code = CodeParts { data, parity, cell_bytes };
    ReplicationSettings { model: ReplicationModel::ErasureCoded(code), ..ReplicationSettings::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_parts_of_a_read_are_its_bytes(
        offset in 0u64..10_000_000, bytes in 1u32..3_000_000, data in 1u8..=24, cell in 1u32..100_000,
    ) {
        let local = LocalLoad::lower(&load(vec![read(0.0, 0, offset, bytes)]), &coded(data, 3, cell));
        prop_assert_eq!(local.accesses().iter().map(|access| u64::from(access.bytes)).sum::<u64>(), u64::from(bytes));
        let parts: std::collections::BTreeSet<u32> = local.accesses().iter().map(|access| access.file).collect();
        prop_assert_eq!(parts.len() as u64, cells(offset, bytes.into(), cell.into()).min(data.into()));
        prop_assert!(local.accesses().iter().all(|access| access.is_part()));
        prop_assert_eq!(local.accesses().iter().filter(|access| access.is_first_part()).count(), 1);
    }

    #[test]
    fn whole_rows_are_written_with_their_parity(rows in 1u64..50, data in 1u8..10, parity in 0u8..5) {
        let bytes = rows * u64::from(data) * 4096;
        let calls = vec![write(0.0, IoPurpose::Flush, 0, 0, bytes as u32)];
        let local = LocalLoad::lower(&load(calls), &coded(data, parity, 4096));
        let written: u64 = local.accesses().iter().map(|access| u64::from(access.bytes)).sum();
        prop_assert_eq!(written, bytes / u64::from(data) * u64::from(data + parity));
    }

    #[test]
    fn a_code_of_one_part_is_one_copy(seed: u64) {
        let workload = database(seed, 100);
        let with = |settings: &ReplicationSettings| {
            run(&LocalLoad::lower(&workload, settings), &hardware(&[("ram", "8MB")]), SystemPolicies::default())
        };
        let (one, code) = (with(&one_copy()), with(&coded(1, 0, 4096)));
        prop_assert_eq!(one.disk, code.disk);
        prop_assert_eq!(one.timeline, code.timeline);
        prop_assert_eq!((one.foreground_pages, one.net_bytes), (code.foreground_pages, code.net_bytes));
        prop_assert!(code.foreground_ns >= one.foreground_ns, "a call waits for its last page");
    }
}

/// Cells that a range touches.
fn cells(offset: u64, bytes: u64, cell: u64) -> u64 {
    (offset + bytes - 1) / cell - offset / cell + 1
}

/// RS(6, 3): a read of 24 KiB is six requests at six disks, all as long as the slowest.
#[test]
fn a_read_waits_for_the_slowest_of_its_parts() {
    let calls = vec![read(0.0, 0, 0, 24_576), read(0.001, 0, 24_576, 4096)];
    let local = LocalLoad::lower(&load(calls), &coded(6, 3, 4096));
    let outcome = run(&local, &hardware(&[("disks", "6"), ("ram", "0")]), SystemPolicies::default());
    // The second read is behind the first part of the first: it waits from 1 to 10.08192 ms.
    let expected = (6.0 * 10.04096 + 9.08192) / 7.0;
    assert!((outcome.foreground_ms() - expected).abs() < 1e-6, "{}", outcome.foreground_ms());
    assert_eq!(outcome.net_bytes, 5 * 4096, "the first part is on the machine of the program");
}

#[test]
fn a_write_of_some_bytes_writes_the_parity_of_its_row() {
    let calls = vec![write(0.0, IoPurpose::Log, 0, 5000, 100)];
    let local = LocalLoad::lower(&load(calls), &coded(3, 2, 4096));
    let ranges: Vec<(u32, u16)> = local.accesses().iter().map(|access| (access.bytes, access.pages)).collect();
    assert_eq!(ranges, [(100, 1), (100, 1), (100, 1)], "part 1, and both of parity");
}

#[test]
fn latencies_have_the_mean_of_their_closed_form_and_follow_their_number() {
    let latency = TailedLatency { median_ns: 20e6, sigma: 0.4, tail: 0.02, alpha: 3.0 };
    let draws: Vec<u64> = (0..400_000).map(|number| latency.draw(number)).collect();
    let mean = draws.iter().map(|ns| *ns as f64).sum::<f64>() / draws.len() as f64;
    assert!((mean / latency.mean_ns() - 1.0).abs() < 0.005, "{mean} and {}", latency.mean_ns());
    let below = |ns: f64| draws.iter().filter(|draw| (**draw as f64) < ns).count() as f64 / draws.len() as f64;
    assert!((below(20e6) - 0.5 * 0.98).abs() < 0.003, "half of the body");
    let begin = 20e6 * (0.4f64 * 2.326_347_9).exp();
    assert!((1.0 - below(begin) - (0.02 + 0.98 * 0.01)).abs() < 0.001, "the tail and the body's last hundredth");
    // Twice as long is an eighth as likely, in the tail.
    assert!((1.0 - below(4.0 * begin) - 0.02 / 64.0).abs() < 0.0002);
    assert_eq!(latency.draw(77), latency.draw(77));
    let fixed = TailedLatency { sigma: 0.0, tail: 0.0, ..latency };
    assert_eq!((fixed.draw(1), fixed.mean_ns()), (20_000_000, 20e6));
}

#[test]
fn greedy_cleaning_writes_what_the_closed_form_says() {
    assert!((greedy_amplification(0.0) - 1.0).abs() < 1e-12);
    for (utilisation, expected) in [(0.5, 1.255), (0.8, 2.6927), (0.9, 5.1787), (0.95, 10.1724)] {
        assert!((greedy_amplification(utilisation) - expected).abs() < 1e-4, "{utilisation}");
    }
    let steps: Vec<f64> = (0..99).map(|percent| greedy_amplification(f64::from(percent) / 100.0)).collect();
    assert!(steps.windows(2).all(|pair| pair[0] <= pair[1] && pair[1].is_finite()));
    for utilisation in [0.7, 0.85] {
        let (simulated, closed) = (cleaned(utilisation), greedy_amplification(utilisation));
        assert!((simulated / closed - 1.0).abs() < 0.04, "{utilisation}: {simulated} and {closed}");
    }
}

/// Write amplification of a device that cleans the block with fewest pages in use, simulated page by page.
fn cleaned(utilisation: f64) -> f64 {
    const BLOCKS: usize = 256;
    const PAGES: usize = 256;
    let used = (utilisation * (BLOCKS * PAGES) as f64) as usize;
    let mut place: Vec<Option<usize>> = vec![None; used];
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new(); BLOCKS];
    let mut in_use = vec![0usize; BLOCKS];
    let mut free: Vec<usize> = (1..BLOCKS).collect();
    let (mut open, mut rng, mut given, mut written) = (0, Rng::new(7), 0u64, 0u64);
    for number in 0..used * 9 {
        let page = if number < used { number } else { rng.below(used as u64) as usize };
        let counts = number >= used * 5;
        given += u64::from(counts);
        let mut waiting = vec![page];
        while let Some(page) = waiting.pop() {
            if blocks[open].len() == PAGES {
                if free.len() <= 1 {
                    let full = (0..BLOCKS).filter(|block| *block != open && blocks[*block].len() == PAGES);
                    let victim = full.min_by_key(|block| in_use[*block]).expect("most blocks are full");
                    let kept = std::mem::take(&mut blocks[victim]);
                    waiting.extend(kept.into_iter().filter(|kept| place[*kept] == Some(victim) && *kept != page));
                    waiting.dedup();
                    free.push(victim);
                }
                open = free.remove(0);
            }
            if let Some(old) = place[page].replace(open) {
                in_use[old] -= 1;
            }
            blocks[open].push(page);
            in_use[open] += 1;
            written += u64::from(counts);
        }
    }
    written as f64 / given as f64
}

#[test]
fn flash_that_writes_more_wears_out_sooner() {
    let outcome = |amplification| SimOutcome {
        counted_us: (365.25 * 86_400e6) as u64,
        flash_written_bytes: 60 << 30,
        flash_amplification: amplification,
        ..SimOutcome::default()
    };
    let profile = hardware(&[("flash", "60")]);
    let years = |amplification, scale| flash_years(&profile, &outcome(amplification), scale).unwrap();
    assert!((years(1.0, 1) - 10_000.0).abs() < 1e-6);
    assert!((years(4.0, 1) - 2500.0).abs() < 1e-6 && (years(1.0, 10) - 1000.0).abs() < 1e-6);
    let mut qlc = HardwareProfile::built_in("hdd-qlc").unwrap();
    assert!(qlc.flash_amplification() > 2.0, "by its utilisation");
    qlc.set("flash.utilisation", "0").unwrap();
    assert!((qlc.flash_amplification() - 1.0).abs() < 1e-12);
}

#[test]
fn an_object_store_is_paid_by_request_and_by_month() {
    let sums = ObjectSums { gets: 1_000_000, puts: 1000, stored_bytes: 100.0 * f64::from(1 << 30) };
    let year = SimOutcome { counted_us: (365.25 * 86_400e6) as u64, object: Some(sums), ..SimOutcome::default() };
    let prices =
        [("disks", "0"), ("object.get_price", "0.0004"), ("object.put_price", "0.005"), ("object.price", "0.023")];
    let costs = SystemCosts::of(&hardware(&prices), &year, 1).unwrap();
    assert!((costs.rent - (0.4 + 0.005 + 27.6)).abs() < 1e-9, "{costs:?}");
    assert!((costs.opex - costs.rent).abs() < 1e-9 && (costs.capex - 150.0).abs() < 1e-9, "memory alone is bought");
    assert!((costs.price() - (150.0 + 5.0 * costs.rent)).abs() < 1e-9, "and the rent of five years is in its price");
    assert!((SystemCosts::of(&hardware(&prices), &year, 15).unwrap().rent - 15.0 * costs.rent).abs() < 1e-9);
    assert_eq!(SystemCosts::of(&hardware(&prices[..3]), &year, 1), None, "a price is missing");
}

#[test]
fn an_object_store_answers_reads_that_caches_do_not() {
    let calls = vec![
        write(2.0, IoPurpose::Flush, 0, 0, 4096),
        read(3.0, 1, 0, 20_000),
        read(4.0, 1, 0, 20_000),
        call(6.0, Movement::Remove, IoPurpose::Compaction, 0, 0, 0),
        read(10.0, 1, 0, 1),
    ];
    let workload = load(calls);
    assert_eq!(workload.span_us(), 10 * SECOND);
    assert!((workload.stored_bytes() - (4096.0 * 0.4 + 20_000.0)).abs() < 1e-9);
    let local = LocalLoad::lower(&workload, &one_copy());
    let outcome = run(&local, &hardware(&[("disks", "0"), ("object.latency", "20ms")]), SystemPolicies::default());
    let object = outcome.object.unwrap();
    assert_eq!((object.gets, object.puts), (1, 1));
    assert!((outcome.foreground_ms() - 5.0 * 20.0 / 11.0).abs() < 1e-9, "{}", outcome.foreground_ms());
    assert_eq!(outcome.utilisation(), 0.0);
    let refused = SystemConfig::new(hardware(&[("disks", "0")]), SystemPolicies::default()).unwrap_err().to_string();
    assert!(refused.contains("the profile has no object.latency"), "{refused}");
}
