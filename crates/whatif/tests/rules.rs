//! Every rule of the simulator has a case that notices when the rule is taken away.

mod common;

use common::{SECOND, call, hardware, load, one_copy, read, run, write};
use frieze_tier::Writes;
use frieze_whatif::{
    CodeParts, DataCall, DiskQueue, DiskRequest, IoPurpose, LocalLoad, Movement, ReplicationModel, ReplicationSettings,
    RuleSet, SimOutcome, SimRule, SystemPolicies,
};

/// Milliseconds at which requests (ms, file, offset, bytes) end on the study's disk, in their order.
fn ends(rules: RuleSet, requests: &[(u64, u32, u64, u32)]) -> Vec<f64> {
    let (mut disk, mut all) = (DiskQueue::new(hardware(&[]).disk_model(), rules), Vec::new());
    for (number, (at_ms, file, offset, bytes)) in (0u32..).zip(requests) {
        let request = DiskRequest {
            at_ns: at_ms * 1_000_000,
            offset: *offset,
            file: *file,
            bytes: *bytes,
            pages: number,
            purpose: IoPurpose::Read,
            counts: true,
            foreground: true,
            call: 0,
            hop_ns: 0,
        };
        disk.arrive(request, &mut |served| all.push((served.request.pages, served.end_ns as f64 / 1e6)));
    }
    disk.drain(&mut |served| all.push((served.request.pages, served.end_ns as f64 / 1e6)));
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, end)| end).collect()
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 0.001
}

fn lowered(rules: RuleSet, settings: ReplicationSettings, calls: Vec<DataCall>) -> LocalLoad {
    LocalLoad::lower(&load(calls), &ReplicationSettings { rules, ..settings })
}

fn simulated(rules: RuleSet, calls: Vec<DataCall>, sizes: &[(&str, &str)], policies: SystemPolicies) -> SimOutcome {
    let local = lowered(rules, one_copy(), calls);
    run(&local, &hardware(sizes), SystemPolicies { rules, ..policies })
}

/// A file of a flush of 8 MiB, another of 16 MiB of a compaction, then the removal of the first.
fn background() -> Vec<DataCall> {
    vec![
        write(0.0, IoPurpose::Flush, 0, 0, 8 << 20),
        write(1.0, IoPurpose::Compaction, 1, 0, 16 << 20),
        call(2.0, Movement::Remove, IoPurpose::Compaction, 0, 0, 0),
        write(3.0, IoPurpose::Log, 2, 0, 4096),
        write(4.0, IoPurpose::Flush, 3, 0, 8 << 20),
    ]
}

fn buffering() -> SystemPolicies {
    SystemPolicies { buffer_below: Some(12 << 20), ..SystemPolicies::default() }
}

fn mib(outcome_bytes: u64) -> u64 {
    outcome_bytes >> 20
}

/// True if the case of `rule` comes out as the rule says.
#[expect(clippy::too_many_lines, reason = "one arm for each rule")]
fn holds(rule: SimRule, rules: RuleSet) -> bool {
    let default = SystemPolicies::default;
    let two_logs = || {
        let logs = (0..2u32).flat_map(|log| (0..10u64).map(move |at| (log, at)));
        logs.map(|(log, at)| write(at as f64, IoPurpose::Log, log, at * 4096, 4096)).collect::<Vec<_>>()
    };
    match rule {
        // The rest of the first file waits for its next turn.
        SimRule::Slices => {
            near(ends(rules, &[(0, 1, 0, 1 << 20), (1, 2, 0, 4096), (2, 1, 1 << 20, 4096)])[1], 30.52672)
        }
        SimRule::SweepUpward => {
            let all = ends(rules, &[(0, 1, 15_000, 0), (1, 1, 30_000, 0), (2, 1, 10_000, 0), (3, 1, 20_000, 0)]);
            near(all[3], 10.05) && near(all[1], 10.15)
        }
        SimRule::RoundRobin => near(ends(rules, &[(0, 1, 0, 0), (1, 2, 0, 0), (2, 3, 0, 0)])[1], 20.0),
        SimRule::SeekToOtherFile => near(ends(rules, &[(0, 1, 0, 0), (50, 2, 0, 0)])[1], 60.0),
        SimRule::SeekByDistance => near(ends(rules, &[(0, 1, 0, 0), (50, 1, 500_000, 0)])[1], 55.0),
        SimRule::Transfer => near(ends(rules, &[(0, 1, 0, 1_000_000)])[0], 20.0),
        SimRule::Waiting => near(ends(rules, &[(0, 1, 0, 0), (1, 2, 0, 0)])[1], 20.0),
        SimRule::WholePages => {
            simulated(rules, vec![write(0.0, IoPurpose::Log, 0, 0, 10)], &[], default()).disk_written_bytes == 4096
        }
        SimRule::DisksInTurn => {
            let outcome = simulated(rules, vec![read(0.0, 0, 0, 1), read(0.0, 1, 0, 1)], &[("disks", "2")], default());
            outcome.busy_ns.iter().all(|busy| *busy > 0)
        }
        SimRule::Blocks => {
            lowered(rules, one_copy(), vec![read(0.0, 0, 1 << 30, 1), read(0.0, 0, 0, 1)]).files().len() == 2
        }
        SimRule::Replicas => {
            let local = lowered(rules, ReplicationSettings::default(), vec![write(0.0, IoPurpose::Flush, 0, 0, 1)]);
            local.accesses().len() == 3
        }
        SimRule::NetworkOfReplicas => {
            // 1 GB is 2 GB over the network.
            let local =
                lowered(rules, ReplicationSettings::default(), vec![write(0.0, IoPurpose::Flush, 0, 0, 1 << 30)]);
            run(&local, &hardware(&[]), default()).net_bytes == 2 << 30
        }
        SimRule::ReadsAtFirstReplica => {
            lowered(rules, ReplicationSettings::default(), vec![read(0.0, 0, 0, 1)]).accesses().len() == 1
        }
        SimRule::ReplicasShifted => {
            let calls = vec![write(0.0, IoPurpose::Flush, 0, 0, 1), read(10_000.0, 0, 0, 1)];
            let local = lowered(rules, ReplicationSettings::default(), calls);
            local.accesses()[1].delta_us == 100_000_000 && local.accesses()[2].delta_us == 100_000_000
        }
        SimRule::CompactionReadsEverywhere => {
            let settings =
                ReplicationSettings { model: ReplicationModel::LocalCompaction, ..ReplicationSettings::default() };
            let calls = vec![call(0.0, Movement::Read, IoPurpose::Compaction, 0, 0, 4096)];
            lowered(rules, settings, calls).accesses().len() == 3
        }
        SimRule::CompactionSendsNothing => {
            let settings =
                ReplicationSettings { model: ReplicationModel::LocalCompaction, ..ReplicationSettings::default() };
            let calls = vec![write(0.0, IoPurpose::Compaction, 0, 0, 4096), write(1.0, IoPurpose::Flush, 1, 0, 4096)];
            run(&lowered(rules, settings, calls), &hardware(&[]), default()).net_bytes == 2 * 4096
        }
        SimRule::LogsInOneFile => {
            // One seek, and the two logs of a disk go on behind each other.
            let policies = SystemPolicies { combined_log: true, ..default() };
            simulated(rules, two_logs(), &[("disks", "2")], policies).busy_ns[1] < 11_000_000
        }
        SimRule::LogsOnOwnDisk => {
            let policies = SystemPolicies { combined_log: true, ..default() };
            let mut calls = two_logs();
            calls.extend((10..20).map(|file| read(0.5, file, 0, 1)));
            let outcome = simulated(rules, calls, &[("disks", "2")], policies);
            outcome.queue_ms(Some(IoPurpose::Log)) < 1.0 && outcome.busy_ns[0] > 90_000_000
        }
        SimRule::FlashLatency => {
            let calls = vec![read(0.0, 0, 0, 4096), read(1.0, 0, 0, 4096)];
            let outcome = simulated(rules, calls, &[("ram", "0"), ("flash", "1")], default());
            near(outcome.foreground_ms(), (10.04096 + 0.5) / 2.0)
        }
        SimRule::BufferBelow => {
            mib(simulated(rules, background(), &[("flash", "1")], buffering()).disk_written_bytes) == 16
        }
        SimRule::BufferTakesCache => {
            // Of 12 MiB of flash the file leaves 4, of which 8 MiB of reads find half the pages again at most.
            let mut calls = vec![write(0.0, IoPurpose::Flush, 0, 0, 8 << 20)];
            calls.extend([1.0, 2.0].map(|at| read(at, 1, 0, 8 << 20)));
            let outcome = simulated(rules, calls, &[("ram", "0"), ("flash", "12MB")], buffering());
            outcome.hit_ratio() == 0.0
        }
        SimRule::BufferReleased => {
            // There is room for the second file once the first is removed.
            let outcome = simulated(rules, background(), &[("flash", "12MB")], buffering());
            mib(outcome.disk_written_bytes) == 16
        }
        SimRule::BufferBackgroundOnly => {
            simulated(rules, background(), &[("flash", "1")], buffering()).disk_written_bytes == (16 << 20) + 4096
        }
        SimRule::CrashEmptiesMemory => {
            let calls = vec![read(0.0, 0, 0, 4096), read(2.0, 0, 0, 4096)];
            let policies = SystemPolicies { crashes_us: vec![SECOND], ..default() };
            simulated(rules, calls, &[], policies).hit_ratio() == 0.0
        }
        SimRule::ForegroundOnly => {
            let calls = vec![read(0.0, 0, 0, 4096), write(1.0, IoPurpose::Flush, 1, 0, 1 << 20)];
            simulated(rules, calls, &[], default()).foreground_pages == 1
        }
        SimRule::DurablePutsWait => {
            let policies = SystemPolicies { durable_puts: true, ..default() };
            let outcome = simulated(rules, vec![write(0.0, IoPurpose::Log, 0, 0, 4096)], &[], policies);
            near(outcome.foreground_ms(), 10.04096)
        }
        SimRule::WarmUp => {
            let calls = vec![read(0.0, 0, 0, 4096), read(2.0, 0, 0, 4096)];
            let policies = SystemPolicies { warm_up_us: SECOND, ..default() };
            simulated(rules, calls, &[], policies).hit_ratio() == 1.0
        }
        SimRule::WearOfBuffer => {
            mib(simulated(rules, background(), &[("flash", "1")], buffering()).flash_written_bytes) == 16
        }
        SimRule::HintsAtFirstReplica => {
            let calls = vec![write(0.0, IoPurpose::Flush, 0, 0, 4096)];
            let local = lowered(rules, ReplicationSettings::default(), calls);
            let policies = SystemPolicies { writes: Writes::Hinted, rules, ..default() };
            run(&local, &hardware(&[]), policies).ram_inserts == 1
        }
        SimRule::HintsBySoon => {
            let calls = vec![
                write(0.0, IoPurpose::Compaction, 0, 0, 4096),
                write(0.0, IoPurpose::Compaction, 1, 0, 8192),
                call(60.0, Movement::Remove, IoPurpose::Compaction, 1, 0, 0),
            ];
            let policies = SystemPolicies { writes: Writes::Hinted, ..default() };
            simulated(rules, calls, &[], policies).ram_inserts == 2
        }
        SimRule::PartsOfCode => {
            // Two data parts and one of parity are half as much again.
            let local = lowered(rules, coded(2, 1), vec![write(0.0, IoPurpose::Flush, 0, 0, 16_384)]);
            local.accesses().iter().map(|access| access.bytes).sum::<u32>() == 24_576
        }
        SimRule::SlowestPart => {
            let local = lowered(rules, coded(2, 0), vec![read(0.0, 0, 0, 8192)]);
            let policies = SystemPolicies { rules, ..default() };
            near(run(&local, &hardware(&[("disks", "1")]), policies).foreground_ms(), 2.0 * 10.04096)
        }
        SimRule::NetworkHop => {
            let settings = ReplicationSettings { model: ReplicationModel::Remote, ..one_copy() };
            let local = lowered(rules, settings, vec![read(0.0, 0, 0, 4096), read(1.0, 0, 0, 4096)]);
            let policies = SystemPolicies { rules, ..default() };
            near(run(&local, &hardware(&[("net.latency", "1ms")]), policies).foreground_ms(), (11.04096 + 1.0) / 2.0)
        }
        SimRule::ObjectLatency => {
            near(simulated(rules, vec![read(0.0, 0, 0, 4096)], STORE, default()).foreground_ms(), 20.0)
        }
        SimRule::ObjectParts => {
            let calls = [0, 1].map(|at| write(at as f64, IoPurpose::Flush, 0, at * 4096, 4096)).to_vec();
            simulated(rules, calls, STORE, default()).object.is_some_and(|object| object.puts == 1)
        }
        SimRule::ObjectCopies => {
            let local = lowered(rules, ReplicationSettings::default(), vec![write(0.0, IoPurpose::Flush, 0, 0, 1)]);
            let policies = SystemPolicies { rules, ..default() };
            run(&local, &hardware(STORE), policies).object.is_some_and(|object| object.puts == 1)
        }
        SimRule::DeviceAmplification => {
            let sizes = [("flash", "1"), ("flash.utilisation", "80")];
            let outcome = simulated(rules, vec![read(0.0, 0, 0, 1)], &sizes, default());
            (outcome.flash_amplification - 2.6927).abs() < 0.001
        }
    }
}

/// Files lie in an object store that answers after 20 ms.
const STORE: &[(&str, &str)] = &[("disks", "0"), ("object.latency", "20ms")];

fn coded(data: u8, parity: u8) -> ReplicationSettings {
    let code = CodeParts { data, parity, cell_bytes: 4096 };
    ReplicationSettings { model: ReplicationModel::ErasureCoded(code), ..ReplicationSettings::default() }
}

#[test]
fn every_rule_has_a_case_that_holds_with_it() {
    for rule in SimRule::ALL {
        assert!(holds(*rule, RuleSet::ALL), "{rule:?}");
    }
}

#[test]
fn taking_a_rule_away_breaks_its_case() {
    let unnoticed: Vec<_> = SimRule::ALL.iter().filter(|rule| holds(**rule, RuleSet::ALL.without(**rule))).collect();
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
