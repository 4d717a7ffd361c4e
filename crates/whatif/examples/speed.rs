//! Accesses a second of processor time of one core, beside a bare walk of a table of the same size in the same run.
//!
//! `cargo run --release -p frieze-whatif --example speed [-- WORD]`: of the runs whose names have the word.
//!
//! The bare walk is what no cache can do without: for each access one line of a table of slots and one of a table of
//! entries, both as large as the simulated cache's, read one after the other with nothing else.

use std::hint::black_box;

use frieze_base::Rng;
use frieze_tier::{OnFlashHit, Policy};
use frieze_whatif::{
    DataCall, HardwareProfile, IoPurpose, LocalLoad, Movement, RecordedLoad, ReplicationSettings, Simulation,
    SystemConfig, SystemPolicies,
};

fn main() {
    println!("{:44} {:>10} {:>10} {:>7}", "run", "M/s", "bare M/s", "ratio");
    let word = std::env::args().nth(1).unwrap_or_default();
    let keep = SystemPolicies { on_flash_hit: OnFlashHit::Keep, ..SystemPolicies::default() };
    let promote = SystemPolicies::default();
    // Of a cache of 2 GB the frames of 12 pages are some 43,000 entries: 2 MB of tables.
    let runs = [
        ("cache, 2 GB, lru", 120_000, "2", "0", caches(Policy::Lru)),
        ("cache, 2 GB, s3-fifo", 120_000, "2", "0", caches(Policy::S3Fifo)),
        ("cache, 30 GB, lru", 4_000_000, "30", "0", caches(Policy::Lru)),
        ("cache, 100 GB, lru", 4_000_000, "100", "0", caches(Policy::Lru)),
        ("cache, 100 GB, sieve", 4_000_000, "100", "0", caches(Policy::Sieve)),
        ("disks, 30 GB, 60 GB flash, promote", 4_000_000, "30", "60", promote),
        ("disks, 30 GB, 60 GB flash, keep", 4_000_000, "30", "60", keep),
    ];
    for (name, frames, ram, flash, policies) in runs.into_iter().filter(|(name, ..)| name.contains(&word)) {
        row(name, &load(frames), &hardware(ram, flash), policies);
    }
}

fn caches(policy: Policy) -> SystemPolicies {
    SystemPolicies { policy, with_disks: false, ..SystemPolicies::default() }
}

fn hardware(ram: &str, flash: &str) -> HardwareProfile {
    let mut profile = HardwareProfile::built_in("fast14").expect("it is built in");
    for (setting, value) in [("ram", ram), ("flash", flash), ("disks", "15")] {
        profile.set(setting, value).expect("it is in its range");
    }
    profile
}

/// Reads of a power law over `frames` frames; one access in five writes. Its rate leaves disks a tenth busy.
fn load(frames: u64) -> LocalLoad {
    let mut rng = Rng::new(1);
    let mut calls = Vec::new();
    for number in 0..ACCESSES {
        let bound = 1 + rng.below(frames);
        let frame = rng.below(bound);
        let first = rng.below(5);
        let movement = if rng.chance(5) { Movement::Write } else { Movement::Read };
        calls.push(DataCall {
            at_us: number * 4000,
            offset: frame % 1024 * 65_536 + first * 4096,
            bytes: 4096 * 12,
            file: (frame / 1024) as u32,
            movement,
            purpose: if movement == Movement::Read { IoPurpose::Read } else { IoPurpose::Flush },
            machine: 0,
        });
    }
    let workload = RecordedLoad::new(calls, 0, Vec::new()).expect("few files");
    LocalLoad::lower(&workload, &ReplicationSettings { replicas: 1, ..ReplicationSettings::default() })
}

fn row(name: &str, load: &LocalLoad, hardware: &HardwareProfile, policies: SystemPolicies) {
    let system = SystemConfig::new(hardware.clone(), policies).expect("it can be");
    let (mut best, mut hits) = (f64::MAX, 0.0);
    for _ in 0..ROUNDS {
        let begin = cpu_seconds();
        let outcome = Simulation::run(load, &system);
        best = best.min(cpu_seconds() - begin);
        hits = outcome.hit_ratio();
    }
    let room = (hardware.ram_bytes() + hardware.flash_bytes()) / (12 * 4096);
    let entries = room.min(load.frames_max());
    let slots = (entries * 2).next_power_of_two();
    let table: Vec<u64> = (0..slots).map(|slot| slot.wrapping_mul(0x9e37_79b9) % entries).collect();
    let arena = vec![[1u64; 4]; entries as usize];
    let mut bare = f64::MAX;
    for _ in 0..ROUNDS {
        let begin = cpu_seconds();
        let mut sum = 0u64;
        for access in load.accesses() {
            let hash = access.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            // The next step waits for this one, as a list does.
            let slot = table[((hash ^ (sum & 1)) & (slots - 1)) as usize];
            sum = sum.wrapping_add(arena[slot as usize][0]);
        }
        black_box(sum);
        bare = bare.min(cpu_seconds() - begin);
    }
    let rate = |seconds: f64| load.accesses().len() as f64 / seconds / 1e6;
    let (ours, bare) = (rate(best), rate(bare));
    println!("{name:44} {ours:>10.2} {bare:>10.2} {:>7.2}   hits {hits:.2}", ours / bare);
}

/// Enough to fill the caches four times over.
const ACCESSES: u64 = 16_000_000;
const ROUNDS: u32 = 2;

/// Processor time of this thread, so that what else the machine does counts little.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux has it");
    let ns: u64 = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("it begins with a number");
    ns as f64 / 1e9
}
