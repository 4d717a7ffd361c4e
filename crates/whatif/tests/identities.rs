//! What has to be equal, whatever the load.

mod common;

use common::{database, hardware, load, one_copy, read, run, write};
use frieze_tier::{OnFlashHit, Policy, Writes};
use frieze_whatif::{
    CacheUnit, CrashCost, HardwareProfile, IoPurpose, LocalLoad, ReplicationModel, ReplicationSettings, SETTINGS,
    StackDistances, SweepLimits, SystemConfig, SystemCosts, SystemPolicies, SystemSweep, WhatIfError, justified,
};
use proptest::prelude::*;

fn cached(policies: SystemPolicies) -> SystemPolicies {
    SystemPolicies { with_disks: false, ..policies }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lru_hits_are_stack_distances(seed: u64, mb in 0u64..40) {
        let local = LocalLoad::lower(&database(seed, 120), &one_copy());
        let mut stack = StackDistances::new(1);
        for access in local.accesses().iter().filter(|access| !access.is_write()) {
            for page in (0..16).filter(|page| access.pages >> page & 1 == 1) {
                stack.request(access.key() | page);
            }
        }
        let policies = SystemPolicies { unit: CacheUnit::Pages, ..SystemPolicies::default() };
        let outcome = run(&local, &hardware(&[("ram", &format!("{mb}MB"))]), cached(policies));
        prop_assert!((outcome.hit_ratio() - stack.hit_ratio(mb << 8)).abs() < 1e-12);
    }

    #[test]
    fn promotion_is_lru_of_the_summed_size_and_wears_flash_by_its_memory_alone(
        seed: u64, ram in 1u64..8, flash in 1u64..16,
    ) {
        let local = LocalLoad::lower(&database(seed, 120), &one_copy());
        let fine = || cached(SystemPolicies { unit: CacheUnit::Pages, ..SystemPolicies::default() });
        let with = |ram: u64, flash: u64| {
            run(&local, &hardware(&[("ram", &format!("{ram}MB")), ("flash", &format!("{flash}MB"))]), fine())
        };
        let (both, alone) = (with(ram, flash), with(ram + flash, 0));
        prop_assert_eq!(both.disk_read_bytes, alone.disk_read_bytes);
        prop_assert_eq!(both.flash_written_bytes, with(ram, 2 * flash).flash_written_bytes);
    }

    #[test]
    fn sums_by_purpose_are_totals(seed: u64, wa: bool) {
        let local = LocalLoad::lower(&database(seed, 120), &ReplicationSettings::default());
        let writes = if wa { Writes::Allocate } else { Writes::NoAllocate };
        let policies = SystemPolicies { writes, ..SystemPolicies::default() };
        let outcome = run(&local, &hardware(&[("ram", "20MB"), ("flash", "20MB")]), policies);
        let reads: u64 = outcome.read_pages.iter().sum();
        let hits: u64 = outcome.ram_pages.iter().chain(&outcome.flash_pages).sum();
        prop_assert_eq!((reads - hits) * 4096, outcome.disk_read_bytes);
        let pages: u64 = outcome.disk.iter().map(|sums| sums.pages).sum();
        prop_assert_eq!(pages * 4096, outcome.disk_read_bytes + outcome.disk_written_bytes);
        let exec: u64 = outcome.disk.iter().map(|sums| sums.exec_ns).sum();
        prop_assert_eq!(exec, outcome.busy_ns.iter().sum::<u64>(), "utilisation is the sum of exec");
        let of = |outcome: &frieze_whatif::SimOutcome, name: &str| {
            outcome.table1(1).into_iter().find(|(row, _)| *row == name).unwrap().1
        };
        let weighted: f64 = outcome.disk.iter().map(|sums| sums.queue_ns as f64).sum::<f64>() / pages as f64 / 1e6;
        prop_assert!((of(&outcome, "Disk queue ms") - weighted).abs() < 1e-9);
    }

    #[test]
    fn without_writes_the_write_policy_does_not_matter(seed: u64) {
        let calls = database(seed, 100).calls().iter().copied()
            .filter(|call| call.movement == frieze_whatif::Movement::Read).collect();
        let local = LocalLoad::lower(&load(calls), &one_copy());
        let with = |writes| {
            let policies = SystemPolicies { writes, ..SystemPolicies::default() };
            run(&local, &hardware(&[("ram", "8MB")]), policies)
        };
        prop_assert_eq!(with(Writes::Allocate), with(Writes::NoAllocate));
    }

    #[test]
    fn any_number_of_threads_gives_the_same_outcomes(seed: u64, threads in 1usize..5) {
        let local = LocalLoad::lower(&database(seed, 60), &ReplicationSettings::default());
        let systems: Vec<SystemConfig> = (1..8).map(|ram| {
            let policies = SystemPolicies { policy: Policy::ALL[ram % 5], ..SystemPolicies::default() };
            SystemConfig::new(hardware(&[("ram", &format!("{ram}MB"))]), policies).unwrap()
        }).collect();
        let sweep = |threads, memory_bytes| {
            SystemSweep::new(&local, &systems, SweepLimits { threads, memory_bytes }).unwrap().run(&|_| true)
        };
        let one = sweep(1, u64::MAX);
        prop_assert!(one.iter().all(Option::is_some));
        prop_assert_eq!(&one, &sweep(threads, u64::MAX));
        // In rounds, because memory is short.
        let most = systems.iter().map(|system| system.memory_bytes(&local)).max().unwrap();
        prop_assert_eq!(&one, &sweep(threads, most));
    }
}

#[test]
fn pure_flash_loses_nothing_in_a_crash_and_memory_does() {
    let local = LocalLoad::lower(&database(1, 4000), &one_copy());
    let crash_us = 2000 * common::SECOND;
    let lost = |ram: &str, flash: &str| {
        let with = |crashes_us| {
            let policies = SystemPolicies { crashes_us, bucket_us: 60 * common::SECOND, ..SystemPolicies::default() };
            run(&local, &hardware(&[("ram", ram), ("flash", flash)]), cached(policies))
        };
        CrashCost::of(&with(Vec::new()), &with(vec![crash_us]), crash_us)
    };
    assert_eq!(lost("0", "40MB"), CrashCost { extra_read_bytes: 0, recovered_us: Some(0) });
    let (memory, mixed) = (lost("40MB", "0"), lost("10MB", "30MB"));
    assert!(memory.extra_read_bytes > mixed.extra_read_bytes.max(0), "{memory:?} {mixed:?}");
    assert!(memory.recovered_us.is_some_and(|us| us > 0));
}

#[test]
fn keeping_pages_in_flash_wears_it_less_and_finds_as_many() {
    let local = LocalLoad::lower(&database(1, 2000), &one_copy());
    let with = |on_flash_hit| {
        let policies = SystemPolicies { on_flash_hit, ..SystemPolicies::default() };
        run(&local, &hardware(&[("ram", "4MB"), ("flash", "24MB")]), cached(policies))
    };
    let (promote, keep) = (with(OnFlashHit::Promote), with(OnFlashHit::Keep));
    assert!(keep.flash_written_bytes < promote.flash_written_bytes);
    assert!(keep.ram_hit_ratio() < promote.ram_hit_ratio());
    assert!((keep.hit_ratio() - promote.hit_ratio()).abs() < 0.05);
}

#[test]
fn local_compaction_trades_network_for_reads() {
    let workload = database(1, 1000);
    let with = |model| {
        let settings = ReplicationSettings { model, ..ReplicationSettings::default() };
        let local = LocalLoad::lower(&workload, &settings);
        run(&local, &hardware(&[("ram", "1MB")]), SystemPolicies::default())
    };
    let (hdfs, local) = (with(ReplicationModel::Hdfs), with(ReplicationModel::LocalCompaction));
    let compacted: u64 = workload
        .calls()
        .iter()
        .filter(|call| call.purpose == IoPurpose::Compaction)
        .map(|call| if call.movement == frieze_whatif::Movement::Write { u64::from(call.bytes) } else { 0 })
        .sum();
    assert_eq!(hdfs.net_bytes - local.net_bytes, 2 * compacted);
    assert_eq!(local.read_bytes[3] - hdfs.read_bytes[3], 2 * compacted);
    let remote = with(ReplicationModel::Remote);
    let all = remote.read_bytes.iter().chain(&remote.written_bytes).sum::<u64>();
    assert_eq!(remote.net_bytes, all);
    let chains = with(ReplicationModel::Chains);
    let read: u64 = chains.read_bytes.iter().sum();
    assert_eq!(read, hdfs.read_bytes.iter().sum::<u64>(), "every read is served once");
}

#[test]
fn nine_machines_take_each_others_writes() {
    let mut calls = Vec::new();
    for machine in 0..9u8 {
        for file in 0..200u32 {
            let number = u32::from(machine) * 200 + file;
            calls
                .push(frieze_whatif::DataCall { machine, ..write(f64::from(file), IoPurpose::Flush, number, 0, 4096) });
            calls.push(frieze_whatif::DataCall { machine, ..read(f64::from(file) + 0.5, number, 0, 4096) });
        }
    }
    let workload = load(calls);
    assert_eq!(workload.machines(), 9);
    let at = |machine| {
        let settings = ReplicationSettings { machine, ..ReplicationSettings::default() };
        run(&LocalLoad::lower(&workload, &settings), &hardware(&[]), SystemPolicies::default())
    };
    let all: Vec<_> = (0..9).map(at).collect();
    let sum = |of: fn(&frieze_whatif::SimOutcome) -> u64| all.iter().map(of).sum::<u64>();
    assert_eq!(sum(|outcome| outcome.written_bytes.iter().sum()), 3 * 9 * 200 * 4096);
    assert_eq!(sum(|outcome| outcome.read_bytes.iter().sum()), 9 * 200 * 4096);
    assert_eq!(sum(|outcome| outcome.net_bytes), 2 * 9 * 200 * 4096);
    assert!(all.iter().all(|outcome| outcome.read_bytes[0] == 200 * 4096), "reads are served beside their program");
}

#[test]
fn latency_of_small_reads_depends_on_seeks_far_more_than_on_bandwidth() {
    let mut rng = frieze_base::Rng::new(5);
    let reads = (0..20_000)
        .map(|_| read(rng.below(40_000) as f64 / 100.0, rng.below(3000) as u32, rng.below(64) << 20, 50_000));
    let local = LocalLoad::lower(&load(reads.collect()), &one_copy());
    let with =
        |settings: &[(&str, &str)]| run(&local, &hardware(settings), SystemPolicies::default()).disk_latency_ms();
    let base = with(&[("ram", "1MB")]);
    let seeks = base - with(&[("ram", "1MB"), ("disk.seek", "5ms")]);
    let bandwidth = base - with(&[("ram", "1MB"), ("disk.bandwidth", "200")]);
    assert!(seeks > 5.0 * bandwidth && bandwidth > 0.0, "{base}: {seeks} and {bandwidth}");
    assert!(with(&[("ram", "1MB"), ("disks", "10")]) > base);
}

#[test]
fn a_sample_of_pages_estimates_hits() {
    let local = LocalLoad::lower(&database(3, 3000), &one_copy());
    let (mut exact, mut sampled) = (StackDistances::new(1), StackDistances::new(8));
    for access in local.accesses().iter().filter(|access| !access.is_write()) {
        for page in (0..16).filter(|page| access.pages >> page & 1 == 1) {
            exact.request(access.key() | page);
            sampled.request(access.key() | page);
        }
    }
    assert!(sampled.requests() * 4 < exact.requests());
    for pages in [1000, 4000, 16_000] {
        let (exact, sampled) = (exact.hit_ratio(pages), sampled.hit_ratio(pages));
        assert!((exact - sampled).abs() < 0.03, "{pages}: {exact} and {sampled}");
    }
}

#[test]
fn costs_are_those_of_the_study() {
    let systems: Vec<HardwareProfile> = [10, 30, 100]
        .into_iter()
        .flat_map(|ram| [0, 60, 120, 240].map(|flash| [10, 15, 20].map(|disks| (ram, flash, disks))))
        .flatten()
        .map(|(ram, flash, disks): (u32, u32, u32)| {
            hardware(&[("ram", &ram.to_string()), ("flash", &flash.to_string()), ("disks", &disks.to_string())])
        })
        .collect();
    assert_eq!(systems.len(), 36);
    let idle = frieze_whatif::SimOutcome { counted_us: 1, ..Default::default() };
    let capex = |ram: &str, flash: &str, disks: &str| {
        SystemCosts::of(&hardware(&[("ram", ram), ("flash", flash), ("disks", disks)]), &idle, 1).unwrap().capex
    };
    // A0 and A1 of figure 15: 48 dollars of flash on 1,050.
    assert_eq!((capex("10", "0", "10"), capex("10", "60", "10")), (1050.0, 1098.0));
    // C3 with 20 disks: disks 80 a year; memory would add 20.
    let worn = frieze_whatif::SimOutcome {
        counted_us: (365.25 * 86_400e6) as u64,
        flash_written_bytes: (240u64 << 30) * 10_000 * 10 / 192,
        ..Default::default()
    };
    let costs = SystemCosts::of(&hardware(&[("ram", "100"), ("flash", "240"), ("disks", "20")]), &worn, 1).unwrap();
    assert!((costs.opex - 90.0).abs() < 0.01 && (costs.opex_with_ram - 110.0).abs() < 0.01, "{costs:?}");
    assert!((costs.flash_years.unwrap() - 19.2).abs() < 0.001);
    let mut without_price = HardwareProfile::built_in("hdd-nvme").unwrap();
    assert_eq!(SystemCosts::of(&without_price, &idle, 1), None);
    without_price.set("disk.price", "$300").unwrap();
    without_price.set("ram.price", "4").unwrap();
    assert!(SystemCosts::of(&without_price, &idle, 1).is_some(), "there is no flash to pay for");
}

#[test]
fn a_system_is_justified_unless_another_is_as_cheap_and_as_fast() {
    let systems = [(1.0, 9.0), (2.0, 5.0), (2.0, 6.0), (3.0, 5.0), (4.0, 1.0), (4.0, 1.0)];
    assert_eq!(justified(&systems), [true, true, false, false, true, true]);
    assert!(justified(&[]).is_empty());
}

#[test]
fn every_built_in_profile_reads_and_names_its_sources() {
    for name in HardwareProfile::names() {
        let profile = HardwareProfile::built_in(name).unwrap();
        for (setting, number) in profile.numbers() {
            assert!(!number.source.is_empty() && !number.date.is_empty(), "{name}: {setting}");
        }
    }
    assert_eq!(HardwareProfile::built_in("fast15"), None);
}

#[test]
fn settings_are_refused_with_their_range() {
    let mut profile = HardwareProfile::built_in("fast14").unwrap();
    profile.set("disk.seek", "8000us").unwrap();
    assert_eq!(profile.get("disk.seek"), Some(8.0));
    profile.set("flash", "1.5TB").unwrap();
    assert_eq!(profile.flash_bytes(), 1536 << 30);
    for (setting, value, words) in [
        ("disks", "-1", "disk.count = -1 is outside 0 to 1000 disks"),
        ("ram", "-1", "ram.size = -1 is outside 0 to 100000 GB"),
        ("flash", "1e30", "flash.size = 1000000000000000000000000000000 is outside 0 to 1000000 GB"),
        ("disk.seek", "fast", "disk.seek: cannot read \"fast\" as a number in ms"),
        ("disk.seek", "8GB", "disk.seek: cannot read \"8GB\" as a number in ms"),
        ("ram", "NaN", "ram.size: cannot read \"NaN\" as a number in GB"),
    ] {
        assert_eq!(profile.set(setting, value).unwrap_err().to_string(), words);
    }
    let unknown = profile.set("disk.seeks", "1").unwrap_err().to_string();
    assert!(unknown.starts_with("there is no setting disk.seeks: use one of ram.size,"), "{unknown}");
    let bad = |text: &str| HardwareProfile::parse("mine.toml", text).unwrap_err().to_string();
    assert!(bad("[ram]\nsize = 3").contains("line 2"), "{}", bad("[ram]\nsize = 3"));
    assert_eq!(
        bad("[ram]\nsize = { value = 3, source = \"x\", date = \"y\" }"),
        "profile mine.toml: flash.size is missing (in GB)"
    );
    assert!(SETTINGS.iter().all(|setting| setting.min <= setting.max));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |settings: &[(&str, &str)], policies: SystemPolicies| {
        SystemConfig::new(hardware(settings), policies).unwrap_err().to_string()
    };
    let keep = SystemPolicies { on_flash_hit: OnFlashHit::Keep, ..SystemPolicies::default() };
    assert!(refused(&[], keep).starts_with("keep needs flash"));
    let buffer = SystemPolicies { buffer_below: Some(1), ..SystemPolicies::default() };
    assert!(refused(&[], buffer).starts_with("a write buffer needs flash"));
    let combined = SystemPolicies { combined_log: true, ..SystemPolicies::default() };
    assert!(refused(&[("disks", "1")], combined).starts_with("combined logs need a disk"));

    let local = LocalLoad::lower(&database(1, 10), &one_copy());
    let system = SystemConfig::new(hardware(&[]), SystemPolicies::default()).unwrap();
    let limits = SweepLimits { threads: 1, memory_bytes: u64::MAX };
    let many = vec![system.clone(); 10_001];
    assert!(matches!(SystemSweep::new(&local, &many, limits), Err(WhatIfError::TooManySystems { count: 10_001, .. })));
    let short = SweepLimits { threads: 1, memory_bytes: 1000 };
    assert!(matches!(
        SystemSweep::new(&local, std::slice::from_ref(&system), short),
        Err(WhatIfError::TooMuchMemory { .. })
    ));
    let nothing = LocalLoad::lower(&load(Vec::new()), &one_copy());
    assert_eq!(SystemSweep::new(&nothing, &[system], limits).unwrap_err(), WhatIfError::EmptyTrace);
}

#[test]
fn odd_loads_have_outcomes_without_division_by_zero() {
    for calls in [
        vec![read(0.0, 0, 0, 1)],
        vec![write(0.0, IoPurpose::Log, 0, 0, 1)],
        vec![read(0.0, 0, u64::MAX - 10, 5)],
        vec![read(0.0, 0, 0, u32::MAX), read(8_000.0, 0, 0, 1)],
    ] {
        let local = LocalLoad::lower(&load(calls), &ReplicationSettings::default());
        let outcome = run(&local, &hardware(&[("ram", "90TB")]), SystemPolicies::default());
        assert!(outcome.table1(1).iter().all(|(_, value)| value.is_finite()), "{:?}", outcome.table1(1));
        assert!(outcome.foreground_ms().is_finite() && outcome.hit_ratio() <= 1.0 && outcome.utilisation().is_finite());
    }
}

#[test]
fn jitter_moves_calls_and_loses_none() {
    let workload = database(1, 200);
    let jittered = workload.clone().jittered(10_000, 5);
    assert_eq!(jittered.calls().len(), workload.calls().len());
    assert_eq!(jittered.calls(), workload.clone().jittered(10_000, 5).calls());
    assert_ne!(jittered.calls(), workload.calls());
    assert!(jittered.calls().windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
    assert!(jittered.span_us() >= jittered.calls().last().unwrap().at_us);
    assert_eq!(workload.clone().jittered(0, 5).calls(), workload.calls());
    assert_eq!(jittered.assumptions().last().unwrap(), "every call is later by up to 10 ms, at random");
}

#[test]
fn a_load_that_ends_early_knows_nothing_of_what_comes_later() {
    let calls = vec![
        write(0.0, IoPurpose::Flush, 0, 0, 4096),
        write(5.0, IoPurpose::Flush, 0, 4096, 4096),
        common::call(6.0, frieze_whatif::Movement::Remove, IoPurpose::Compaction, 0, 0, 0),
        read(9.0, 1, 0, 4096),
    ];
    let whole = load(calls);
    let part = whole.clone().until(5 * common::SECOND);
    assert_eq!((part.calls().len(), part.files().len(), part.span_us()), (1, 1, 5 * common::SECOND));
    assert_eq!((part.files()[0].bytes, part.files()[0].removed_us), (4096, u64::MAX));
    assert_eq!(whole.clone().until(u64::MAX).calls(), whole.calls());
    assert!(whole.until(0).calls().is_empty());
}

/// A part of a disk as a slower disk: under requests that arrive independently it waits as the whole one does.
#[test]
fn a_slower_disk_under_a_thinner_load_waits_as_the_whole_one() {
    let profile = HardwareProfile::built_in("fast14").unwrap();
    for (by, disks, slowdown) in [(1, 15, 1.0), (5, 3, 1.0), (15, 1, 1.0), (225, 1, 15.0), (10, 1, 1.0 / 1.5)] {
        let part = profile.shrunk(by).unwrap();
        assert_eq!(part.disks(), disks, "1/{by}");
        assert!((profile.slowdown(by) - slowdown).abs() < 1e-9, "1/{by}");
        let of = |profile: &HardwareProfile, name: &str| profile.get(name).unwrap();
        assert!((of(&part, "disk.seek") - 10.0 * slowdown).abs() < 1e-9);
        assert!((of(&part, "disk.bandwidth") - 100.0 / slowdown).abs() < 1e-9);
        assert!((of(&part, "ram.size") - of(&profile, "ram.size") / f64::from(by)).abs() < 1e-9);
    }
}
