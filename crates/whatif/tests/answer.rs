//! The answer in words, and the tables of the study's figures, on a database in the small.

mod common;

use common::{database, hardware};
use frieze_tier::OnFlashHit;
use frieze_whatif::{
    FIGURES, FigurePlan, HardwareProfile, LocalLoad, ReplicationSettings, Simulation, SweepLimits, SystemConfig,
    SystemPolicies, TriedSystem, WhatIfAnswer, best_for_little,
};

fn tried(local: &LocalLoad, hardware: &HardwareProfile, policies: SystemPolicies) -> TriedSystem {
    let system = SystemConfig::new(hardware.clone(), policies).expect("it can be");
    TriedSystem::scaled(hardware, &system, Simulation::run(local, &system), 1)
}

#[test]
fn flash_that_helps_is_named_and_disks_that_do_not_are_not_worth_it() {
    let local = LocalLoad::lower(&database(1, 1500), &ReplicationSettings::default());
    let systems: Vec<TriedSystem> = [("0", "15"), ("200MB", "15"), ("0", "30")]
        .into_iter()
        .map(|(flash, disks)| {
            let hardware = hardware(&[("ram", "10MB"), ("flash", flash), ("disks", disks), ("disk.price", "10")]);
            tried(&local, &hardware, SystemPolicies::default())
        })
        .collect();
    assert_eq!(best_for_little(&systems, 0), Some(1));
    let keep = SystemPolicies { on_flash_hit: OnFlashHit::Keep, ..SystemPolicies::default() };
    let kept = tried(&local, &systems[1].hardware, keep);
    let answer = WhatIfAnswer::of(&systems, 0, Some(&kept));
    let words = |label: &str| {
        answer.sentences.iter().find(|(found, _)| found == label).map(|(_, words)| words.clone()).unwrap_or_default()
    };
    assert!(words("You have").starts_with("0.01 GB, 15 disks: reads wait "), "{:?}", answer.sentences);
    assert!(words("Best for little money").starts_with("+ 0.195 GB flash"), "{:?}", answer.sentences);
    assert!(words("Not worth it").starts_with("+ 15 disks"), "{:?}", answer.sentences);
    assert!(words("Careful").contains("promote on flash hits wears flash out in"), "{:?}", answer.sentences);
    assert!(words("Worth their price").ends_with("of 3 systems"));
    assert_eq!((answer.justified[0], answer.justified[2]), (true, false));
}

#[test]
fn one_system_alone_and_one_without_reads_have_an_answer() {
    let calls = vec![common::write(0.0, frieze_whatif::IoPurpose::Log, 0, 0, 10)];
    let local = LocalLoad::lower(&common::load(calls), &ReplicationSettings::default());
    let answer = WhatIfAnswer::of(&[tried(&local, &hardware(&[]), SystemPolicies::default())], 0, None);
    assert_eq!(answer.sentences.len(), 1);
    assert!(answer.sentences[0].1.contains("no reads to wait for"), "{:?}", answer.sentences);
}

#[test]
fn every_figure_has_its_systems() {
    let workload = database(1, 300);
    let plan = FigurePlan::new(&hardware(&[]), &SystemPolicies::default(), 1, workload.span_us()).unwrap();
    let limits = SweepLimits { threads: 2, memory_bytes: 1 << 40 };
    let tables = plan.run(&workload, &ReplicationSettings::default(), limits, &|_, _| true).unwrap();
    assert_eq!(tables.iter().map(|table| table.figure).collect::<Vec<_>>(), FIGURES);
    assert_eq!(tables.iter().map(|table| table.rows.len()).sum::<usize>(), plan.systems());
    for table in &tables {
        assert!(table.missing.is_none(), "{table:?}");
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    }
    let prices = tables.iter().find(|table| table.figure == 15).unwrap();
    assert_eq!(prices.rows.len(), 36);
    // All caches are larger than the load: the cheapest system is as fast as any.
    assert_eq!(prices.rows[0][..4], ["10", "0", "10", "1050"].map(str::to_owned));
    let scaled = FigurePlan::new(&hardware(&[]), &SystemPolicies::default(), 15, workload.span_us()).unwrap();
    let tables = scaled.run(&workload, &ReplicationSettings::default(), limits, &|_, _| true).unwrap();
    let prices = tables.iter().find(|table| table.figure == 15).unwrap();
    assert_eq!(
        (prices.rows.len(), &prices.missing),
        (36, &None),
        "ten disks of which a fifteenth is two thirds of one"
    );
}
