//! What a simulation of a load costs: accesses a second of one core, beside a bare walk of tables of the same size.
//!
//! The bare walk is what no cache can do without: for each access one line of a table of slots and one of a table of
//! entries, both as large as the simulated cache's, read one after the other with nothing else.

use std::hint::black_box;

use anyhow::Result;
use frieze_base::Rng;
use frieze_whatif::{
    DataCall, HardwareProfile, IoPurpose, LocalLoad, Movement, RecordedLoad, ReplicationSettings, Simulation,
    SystemConfig, SystemPolicies,
};

use super::progress;
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;

/// Accesses of each load: they fill the caches.
const ACCESSES: u64 = 5_000_000;
/// The best of so many runs counts: what else the machine does only adds.
const ROUNDS: u32 = 2;
/// Pages of an access, of the sixteen of a frame.
const PAGES: u64 = 12;

/// A system, the frames of its load, and the names of its figures: its rate, that of the bare walk, their ratio.
struct SimulatedRun {
    names: [&'static str; 3],
    frames: u64,
    ram: &'static str,
    flash: &'static str,
    with_disks: bool,
}

// Of a cache of 2 GB the frames of 12 pages are some 43,000 entries: 2 MB of tables.
const RUNS: [SimulatedRun; 3] = [
    SimulatedRun {
        names: ["cache_2_gb", "cache_2_gb_bare", "cache_2_gb_ratio"],
        frames: 120_000,
        ram: "2",
        flash: "0",
        with_disks: false,
    },
    SimulatedRun {
        names: ["cache_30_gb", "cache_30_gb_bare", "cache_30_gb_ratio"],
        frames: 4_000_000,
        ram: "30",
        flash: "0",
        with_disks: false,
    },
    SimulatedRun {
        names: ["flash_and_disks", "flash_and_disks_bare", "flash_and_disks_ratio"],
        frames: 4_000_000,
        ram: "30",
        flash: "60",
        with_disks: true,
    },
];

pub(crate) fn what_if(options: &BenchOptions) -> Result<BenchReport> {
    let accesses = options.scaled(options.ops, ACCESSES).max(1);
    let bar = progress("what-if", RUNS.len() as u64);
    let (mut more, mut last) = (Vec::new(), (0.0, 0.0));
    for run in &RUNS {
        let (ours, bare) = rates(run, accesses)?;
        let [own, walk, ratio] = run.names;
        more.extend([(own, ours, "million accesses/s"), (walk, bare, "million/s"), (ratio, ours / bare, "of it")]);
        last = (ours, bare);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(BenchReport {
        scenario: "what-if",
        value: last.0,
        unit: "million accesses/s of processor time, 30 GB, 60 GB of flash, 15 disks",
        ceiling: last.1,
        ceiling_name: "a bare walk of such tables",
        cpu_client_s: 1.0 / last.0,
        cpu_server_s: 0.0,
        cpu_per: "million accesses",
        server_peak_mib: 0.0,
        more,
    })
}

/// Million accesses a second of processor time: of the simulation, and of the bare walk.
fn rates(run: &SimulatedRun, accesses: u64) -> Result<(f64, f64)> {
    let mut hardware = HardwareProfile::built_in("fast14").unwrap_or_else(|| unreachable!("it is built in"));
    for (setting, value) in [("ram", run.ram), ("flash", run.flash), ("disks", "15")] {
        hardware.set(setting, value)?;
    }
    let policies = SystemPolicies { with_disks: run.with_disks, ..SystemPolicies::default() };
    let load = load(run.frames, accesses)?;
    let room = (hardware.ram_bytes() + hardware.flash_bytes()) / (PAGES * 4096);
    let system = SystemConfig::new(hardware, policies)?;
    let entries = room.min(load.frames_max()).max(1);
    let slots = (entries * 2).next_power_of_two();
    let table: Vec<u64> = (0..slots).map(|slot| slot.wrapping_mul(0x9e37_79b9) % entries).collect();
    let arena = vec![[1u64; 4]; entries as usize];
    let (mut ours, mut bare) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let watch = Stopwatch::start();
        black_box(Simulation::run(&load, &system));
        ours = ours.min(watch.cpu_seconds());
        let watch = Stopwatch::start();
        let mut sum = 0u64;
        for access in load.accesses() {
            let hash = access.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            // The next step waits for this one, as a list does.
            let slot = table[((hash ^ (sum & 1)) & (slots - 1)) as usize];
            sum = sum.wrapping_add(arena[slot as usize][0]);
        }
        black_box(sum);
        bare = bare.min(watch.cpu_seconds());
    }
    let rate = |seconds: f64| load.accesses().len() as f64 / seconds.max(1e-9) / 1e6;
    Ok((rate(ours), rate(bare)))
}

/// Reads of a power law over `frames` frames; one access in five writes. Its rate leaves disks a tenth busy.
fn load(frames: u64, accesses: u64) -> Result<LocalLoad> {
    let mut rng = Rng::new(1);
    let mut calls = Vec::new();
    for number in 0..accesses {
        let bound = 1 + rng.below(frames);
        let frame = rng.below(bound);
        let first = rng.below(5);
        let movement = if rng.chance(5) { Movement::Write } else { Movement::Read };
        calls.push(DataCall {
            at_us: number * 4000,
            offset: frame % 1024 * 65_536 + first * 4096,
            bytes: (PAGES * 4096) as u32,
            file: (frame / 1024) as u32,
            movement,
            purpose: if movement == Movement::Read { IoPurpose::Read } else { IoPurpose::Flush },
            machine: 0,
        });
    }
    let workload = RecordedLoad::new(calls, 0, Vec::new())?;
    Ok(LocalLoad::lower(&workload, &ReplicationSettings { replicas: 1, ..ReplicationSettings::default() }))
}
