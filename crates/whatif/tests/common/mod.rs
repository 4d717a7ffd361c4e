//! Loads and systems for tests.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses some of it")]

use frieze_base::Rng;
use frieze_whatif::{
    DataCall, HardwareProfile, IoPurpose, LocalLoad, Movement, RecordedLoad, ReplicationSettings, SimOutcome,
    Simulation, SystemConfig, SystemPolicies,
};

/// Microseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000;

/// A call at a second.
pub(crate) fn call(
    second: f64,
    movement: Movement,
    purpose: IoPurpose,
    file: u32,
    offset: u64,
    bytes: u32,
) -> DataCall {
    DataCall { at_us: (second * 1e6) as u64, offset, bytes, file, movement, purpose, machine: 0 }
}

/// A read by a user.
pub(crate) fn read(second: f64, file: u32, offset: u64, bytes: u32) -> DataCall {
    call(second, Movement::Read, IoPurpose::Read, file, offset, bytes)
}

/// A write.
pub(crate) fn write(second: f64, purpose: IoPurpose, file: u32, offset: u64, bytes: u32) -> DataCall {
    call(second, Movement::Write, purpose, file, offset, bytes)
}

/// The load of these calls.
pub(crate) fn load(calls: Vec<DataCall>) -> RecordedLoad {
    RecordedLoad::new(calls, 0, Vec::new()).expect("few files")
}

/// One copy of everything, so that a case has no other I/O than its own.
pub(crate) fn one_copy() -> ReplicationSettings {
    ReplicationSettings { replicas: 1, ..ReplicationSettings::default() }
}

/// The hardware of the study with these settings changed.
pub(crate) fn hardware(settings: &[(&str, &str)]) -> HardwareProfile {
    let mut profile = HardwareProfile::built_in("fast14").expect("it is built in");
    for (name, value) in settings {
        profile.set(name, value).expect("it is in its range");
    }
    profile
}

/// Runs a load on a system.
pub(crate) fn run(local: &LocalLoad, hardware: &HardwareProfile, policies: SystemPolicies) -> SimOutcome {
    let system = SystemConfig::new(hardware.clone(), policies).expect("it can be");
    Simulation::run(local, &system)
}

/// A database in the small: reads of a power law, a log, flushes, compactions that remove their inputs.
pub(crate) fn database(seed: u64, seconds: u32) -> RecordedLoad {
    let mut rng = Rng::new(seed);
    let mut calls = Vec::new();
    let mut files: Vec<(u32, u64)> = (0..40).map(|file| (file, 4 << 20)).collect();
    let mut next = 40u32;
    let (mut log, mut log_end) = (next, 0u64);
    next += 1;
    for second in 0..seconds {
        let at = f64::from(second);
        for part in 0..10 {
            let bound = 1 + rng.below(files.len() as u64);
            let (file, bytes) = files[rng.below(bound) as usize];
            let offset = rng.below(bytes / 4096) * 4096;
            let length = (rng.between(1, 13) * 4096).min(bytes - offset) as u32;
            calls.push(read(at + f64::from(part) / 10.0, file, offset, length));
            calls.push(write(at + f64::from(part) / 10.0 + 0.05, IoPurpose::Log, log, log_end, 1400));
            log_end += 1400;
        }
        if second % 20 == 19 {
            let bytes = 1 << 20;
            calls.push(write(at + 0.5, IoPurpose::Flush, next, 0, bytes));
            files.push((next, bytes.into()));
            (log, log_end, next) = (next + 1, 0, next + 2);
        }
        if second % 100 == 99 {
            let inputs = files.split_off(files.len() - 5);
            let output = next;
            next += 1;
            let mut end = 0;
            for (file, bytes) in &inputs {
                calls.push(call(at + 0.6, Movement::Read, IoPurpose::Compaction, *file, 0, *bytes as u32));
                calls.push(write(at + 0.7, IoPurpose::Compaction, output, end, *bytes as u32));
                calls.push(call(at + 0.9, Movement::Remove, IoPurpose::Compaction, *file, 0, 0));
                end += bytes;
            }
            files.push((output, end));
        }
    }
    load(calls)
}
