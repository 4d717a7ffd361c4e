//! `what-if`: a recorded load on other hardware.

mod page;
mod report;
mod server;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Error, Result};
use frieze_tier::{OnFlashHit, Policy, Writes};
use frieze_whatif::{
    CacheUnit, CodeParts, FigurePlan, FigureTable, HardwareProfile, LocalLoad, ReplicationModel, ReplicationSettings,
    SYSTEMS_MAX, SweepLimits, SystemConfig, SystemPolicies, SystemSweep, TraceLoad, TriedSystem, WhatIfAnswer,
    WhatIfError, best_for_little,
};

use crate::args::{ModelArg, OnFlashHitArg, PolicyArg, WhatIfArgs, WritesArg};
use crate::failure::{EXIT_INTERRUPTED, UsageError, WorkInterrupted};
use crate::format;
use crate::machine::{simulation_bytes_max, within_memory};
use crate::progress::ProgressLine;
use crate::run::CommandRun;
use crate::serve::stop_signals;
use crate::trace_dirs::{recover, trace_path};
use page::CrashRuns;
use report::WhatIfReport;

/// `frieze what-if`.
pub(crate) fn what_if(run: &mut CommandRun, args: &WhatIfArgs) -> Result<()> {
    if args.as_server {
        return server::as_server(run, args);
    }
    // A wrong command line does nothing.
    let base = hardware(args).map_err(usage)?;
    let policies = policies(args);
    let early_us = early_us(args.finish)?;
    // The study's question needs no words of its own.
    let sweep = if args.fast14 && args.sweep.is_empty() {
        STUDY_SYSTEMS.map(str::to_owned).to_vec()
    } else {
        args.sweep.clone()
    };
    let variants = swept(&base, &sweep).map_err(usage)?;
    let path = trace_path(args.trace.as_deref())?;
    recover(run, std::slice::from_ref(&path))?;
    let trace = TraceLoad::open(&path)?;
    let scale = args.scale.unwrap_or(trace.one_in());
    let sample = args.sample.unwrap_or(1);
    let systems = shrunk(&variants, &policies, scale, sample).map_err(usage)?;
    let replication = replication(args);
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let plan = args.figures.then(|| FigurePlan::new(&base, &policies, scale, 0)).transpose().map_err(usage)?;
    let systems_of_all = systems.len() + plan.as_ref().map_or(0, FigurePlan::systems);
    if systems_of_all > SYSTEMS_MAX {
        return Err(usage(WhatIfError::TooManySystems { count: systems_of_all, max: SYSTEMS_MAX }));
    }

    within_memory(trace.memory_bytes())?;
    let workload = trace.read().with_context(|| format!("trace {}", format::local(&path)))?;
    let end_us = workload.span_us().saturating_sub(early_us);
    let workload = workload.jittered(args.jitter * 1000, JITTER_SEED);
    let workload = if early_us > 0 { workload.until(end_us) } else { workload };
    let load_bytes = LocalLoad::memory_bytes(&workload, &replication) + std::mem::size_of_val(workload.calls()) as u64;
    within_memory(load_bytes)?;
    if let (ReplicationModel::ErasureCoded(code), machines @ 2..) = (replication.model, workload.machines())
        && code.data + code.parity > machines
    {
        let words = format!("--code {}+{} needs as many machines, the trace has {machines}", code.data, code.parity);
        return Err(UsageError(words).into());
    }
    let local = LocalLoad::lower(&workload, &replication);
    let local = if sample > 1 { local.sampled(sample) } else { local };
    // What is counted is one part of a part.
    let scale = scale.saturating_mul(sample);
    let limits = SweepLimits { threads, memory_bytes: simulation_bytes_max()? - load_bytes };

    let sweep = SystemSweep::new(&local, &systems, limits)?;
    run.say_more(&format!(
        "{} of {} local accesses: about {} of memory",
        format::count(systems.len() as u64, "simulation"),
        local.accesses().len(),
        format::size(load_bytes + sweep.memory_bytes()),
    ));
    run.show(|wanted| ProgressLine::timed(wanted, "accesses"));
    let interrupt = Interrupt::new()?;
    let shown = SweepProgress::new(run.is_shown(), &interrupt);
    let outcomes = sweep.run(&|done| shown.is_at(done, sweep.accesses()));
    let mut tried: Vec<TriedSystem> = Vec::new();
    for ((hardware, system), outcome) in variants.iter().zip(&systems).zip(outcomes) {
        match outcome {
            Some(outcome) => tried.push(TriedSystem::scaled(hardware, system, outcome, scale)),
            // The answer compares all others with the first.
            None if tried.is_empty() => {
                return Err(interrupted("no system is simulated yet: there is no answer".to_owned()));
            }
            None => {}
        }
    }
    let missing = systems.len() - tried.len();
    let mut answer = if sample > 1 {
        WhatIfAnswer::of_sample(&tried)
    } else {
        let kept = other_flash_choice(&tried, &local, limits, scale, &interrupt)?;
        WhatIfAnswer::of(&tried, 0, kept.as_ref())
    };
    if missing > 0 {
        let words = format!("{missing} of {} systems are missing: the run was interrupted", systems.len());
        answer.sentences.push(("Interrupted".to_owned(), words));
    }
    let figures = match args.figures {
        false => Vec::new(),
        true => {
            shown.begins("simulating the figures");
            let plan = FigurePlan::new(&base, &policies, scale, local.span_us())?;
            plan.run(&workload, &replication, limits, &|done, all| shown.is_at(done, all))?
        }
    };
    let crashes = match args.report {
        None => Vec::new(),
        Some(_) => crash_runs(&tried, &local, limits, scale, &interrupt)?,
    };
    drop(shown);

    let report =
        WhatIfReport { answer: &answer, systems: &tried, base: &base, load: &workload, scale, sample, trace: &path };
    if let Some(out) = &args.out {
        report.write(out, &figures).with_context(|| format!("--out {}", format::local(out)))?;
    }
    if let Some(out) = &args.report {
        report.write_page(out, &crashes).with_context(|| format!("--report {}", format::local(out)))?;
    }
    if run.json() {
        run.print_json(report.json(&figures))?;
    } else {
        report.lines().iter().try_for_each(|line| run.print(line))?;
        figures.iter().filter_map(left_out).try_for_each(|line| run.print(&line))?;
    }
    match interrupt.came() {
        false => Ok(()),
        true if missing > 0 => Err(interrupted(format!("{missing} of {} systems are missing", systems.len()))),
        true => Err(interrupted("all systems are there, figures and crashes may be missing".to_owned())),
    }
}

fn interrupted(words: String) -> Error {
    WorkInterrupted(format!("interrupted: {words}")).into()
}

/// The same jitter in each run.
const JITTER_SEED: u64 = 1;
/// The systems of figure 15 of the study.
const STUDY_SYSTEMS: [&str; 3] = ["ram=10,30,100", "flash=0,60,120,240", "disks=10,15,20"];

/// Microseconds by which the trace is to end early.
fn early_us(finish: Option<f64>) -> Result<u64> {
    match finish {
        None => Ok(0),
        Some(days) if (-36_500.0..=0.0).contains(&days) => Ok((-days * 86_400e6) as u64),
        Some(days) => Err(UsageError(format!("--finish {days}: give days before the end of the trace, as -2")).into()),
    }
}

fn left_out(table: &FigureTable) -> Option<String> {
    table.missing.as_ref().map(|why| format!("figure {}: some systems are left out: {why}", table.figure))
}

fn usage(error: WhatIfError) -> Error {
    UsageError(error.to_string()).into()
}

/// The hardware of the command line.
fn hardware(args: &WhatIfArgs) -> Result<HardwareProfile, WhatIfError> {
    let name = args.profile.as_deref().unwrap_or("fast14");
    let mut base = match HardwareProfile::built_in(name) {
        Some(profile) => profile,
        None => {
            let bad = |problem: String| WhatIfError::BadProfile { name: name.to_owned(), problem };
            let text = std::fs::read_to_string(Path::new(name))
                .map_err(|error| bad(format!("{error}; built in are {}", HardwareProfile::names().join(", "))))?;
            HardwareProfile::parse(name, &text)?
        }
    };
    for setting in &args.set {
        let (setting, value) = pair(setting, "--set", "disk.seek=8ms")?;
        base.set(setting, value)?;
    }
    Ok(base)
}

fn pair<'a>(text: &'a str, option: &str, example: &str) -> Result<(&'a str, &'a str), WhatIfError> {
    text.split_once('=').ok_or_else(|| WhatIfError::BadValue {
        name: option.to_owned(),
        text: text.to_owned(),
        expected: format!("NAME=VALUE, such as {example}"),
    })
}

/// All combinations of the values, `base` first.
fn swept(base: &HardwareProfile, sweep: &[String]) -> Result<Vec<HardwareProfile>, WhatIfError> {
    // `ram=10,30 flash=0,60` and `ram=10,30,flash=0,60` are the same.
    let mut dimensions: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in sweep.iter().flat_map(|text| text.split(',')) {
        match (part.split_once('='), dimensions.last_mut()) {
            (Some((setting, value)), _) => dimensions.push((setting.trim(), vec![value])),
            (None, Some((_, values))) => values.push(part),
            (None, None) => _ = pair(part, "--sweep", "ram=10,30,100")?,
        }
    }
    let count = dimensions.iter().fold(1usize, |count, (_, values)| count.saturating_mul(values.len()));
    if count > SYSTEMS_MAX {
        return Err(WhatIfError::TooManySystems { count, max: SYSTEMS_MAX });
    }
    let mut all = vec![base.clone()];
    for (setting, values) in &dimensions {
        let mut next = Vec::with_capacity(all.len() * values.len());
        for profile in &all {
            for value in values {
                let mut profile = profile.clone();
                profile.set(setting, value)?;
                next.push(profile);
            }
        }
        all = next;
    }
    let is_base = |profile: &HardwareProfile| {
        dimensions.iter().all(|(setting, _)| {
            let full = match *setting {
                "ram" => "ram.size",
                "flash" => "flash.size",
                "disks" => "disk.count",
                setting => setting,
            };
            profile.get(full) == base.get(full)
        })
    };
    match all.iter().position(is_base) {
        Some(at) => all[..=at].rotate_right(1),
        None => all.insert(0, base.clone()),
    }
    Ok(all)
}

fn shrunk(
    variants: &[HardwareProfile],
    policies: &SystemPolicies,
    scale: u32,
    sample: u32,
) -> Result<Vec<SystemConfig>, WhatIfError> {
    let system = |hardware: &HardwareProfile| {
        // Without flash there is nothing to keep or to buffer in.
        let policies = match hardware.flash_bytes() {
            0 if variants.len() > 1 => {
                SystemPolicies { on_flash_hit: OnFlashHit::Promote, buffer_below: None, ..policies.clone() }
            }
            _ => policies.clone(),
        };
        SystemConfig::new(hardware.shrunk(scale)?.with_caches_of_one_in(sample)?, policies)
    };
    variants.iter().map(system).collect()
}

fn policies(args: &WhatIfArgs) -> SystemPolicies {
    SystemPolicies {
        policy: match args.policy {
            PolicyArg::Lru => Policy::Lru,
            PolicyArg::Fifo => Policy::Fifo,
            PolicyArg::Clock => Policy::Clock,
            PolicyArg::Sieve => Policy::Sieve,
            PolicyArg::S3Fifo => Policy::S3Fifo,
        },
        writes: match args.writes {
            WritesArg::WriteAllocate => Writes::Allocate,
            WritesArg::NoWriteAllocate => Writes::NoAllocate,
            WritesArg::Hints => Writes::Hinted,
        },
        on_flash_hit: match args.on_flash_hit {
            OnFlashHitArg::Promote => OnFlashHit::Promote,
            OnFlashHitArg::Keep => OnFlashHit::Keep,
        },
        buffer_below: args.buffer_below.map(|mb| mb.saturating_mul(1 << 20)),
        combined_log: args.combined_log,
        durable_puts: args.durable_puts,
        warm_up_us: args.warm_up.saturating_mul(1_000_000),
        with_disks: args.sample.is_none(),
        is_sampled: args.sample.is_some(),
        unit: if args.pages { CacheUnit::Pages } else { CacheUnit::Frames },
        ..SystemPolicies::default()
    }
}

fn replication(args: &WhatIfArgs) -> ReplicationSettings {
    let model = match args.model {
        ModelArg::Hdfs => ReplicationModel::Hdfs,
        ModelArg::Chains => ReplicationModel::Chains,
        ModelArg::Remote => ReplicationModel::Remote,
        ModelArg::LocalCompaction => ReplicationModel::LocalCompaction,
        ModelArg::ErasureCoded => {
            let (data, parity, cell_kib) = args.code;
            ReplicationModel::ErasureCoded(CodeParts { data, parity, cell_bytes: cell_kib << 10 })
        }
    };
    let block_bytes = if model == ReplicationModel::Chains { 64 << 20 } else { 256 << 20 };
    ReplicationSettings { model, block_bytes, replicas: args.replicas, ..ReplicationSettings::default() }
}

/// The best system with the other answer to a hit in flash; `None` if no flash is worth it.
fn other_flash_choice(
    tried: &[TriedSystem],
    local: &LocalLoad,
    limits: SweepLimits,
    scale: u32,
    interrupt: &Interrupt,
) -> Result<Option<TriedSystem>> {
    let best = if tried.is_empty() { None } else { best_for_little(tried, 0) };
    let Some(best) = best.map(|best| &tried[best]).filter(|best| best.hardware.flash_bytes() > 0) else {
        return Ok(None);
    };
    let on_flash_hit = match best.policies.on_flash_hit {
        OnFlashHit::Promote => OnFlashHit::Keep,
        OnFlashHit::Keep => OnFlashHit::Promote,
    };
    let policies = SystemPolicies { on_flash_hit, ..best.policies.clone() };
    let systems = [SystemConfig::new(best.hardware.shrunk(scale)?, policies)?];
    let outcome = SystemSweep::new(local, &systems, limits)?.run(&|_| !interrupt.came()).into_iter().flatten().next();
    Ok(outcome.map(|outcome| TriedSystem::scaled(&best.hardware, &systems[0], outcome, scale)))
}

/// The present system and the best one with a crash in the middle of the trace and without, caches alone.
fn crash_runs(
    tried: &[TriedSystem],
    local: &LocalLoad,
    limits: SweepLimits,
    scale: u32,
    interrupt: &Interrupt,
) -> Result<Vec<CrashRuns>> {
    let best = if tried.is_empty() { None } else { best_for_little(tried, 0) };
    let chosen: Vec<&TriedSystem> = tried.iter().take(1).chain(best.map(|best| &tried[best])).collect();
    let crash_us = local.span_us() / 2;
    let mut systems = Vec::new();
    for system in &chosen {
        for crashes_us in [Vec::new(), vec![crash_us]] {
            let bucket_us = (local.span_us() / CRASH_BUCKETS).max(1_000_000);
            let policies = SystemPolicies { with_disks: false, crashes_us, bucket_us, ..system.policies.clone() };
            systems.push(SystemConfig::new(system.hardware.shrunk(scale)?, policies)?);
        }
    }
    let outcomes = SystemSweep::new(local, &systems, limits)?.run(&|_| !interrupt.came());
    let mut outcomes = outcomes.into_iter();
    let mut runs = Vec::new();
    for system in chosen {
        if let (Some(Some(without)), Some(Some(with))) = (outcomes.next(), outcomes.next()) {
            runs.push(CrashRuns { name: frieze_whatif::name_of(&system.hardware), crash_us, without, with });
        }
    }
    Ok(runs)
}

/// Points of a picture of a crash.
const CRASH_BUCKETS: u64 = 200;

/// Whether a signal asked for the end. The first one lets the run print what is done, the second one ends it.
struct Interrupt {
    came: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes SIGINT and SIGTERM from now on; before, they end the process.
    fn new() -> Result<Interrupt> {
        let signals = stop_signals();
        signals.thread_block().context("cannot take signals")?;
        let came = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&came);
        let wait = move || {
            if signals.wait().is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
            if signals.wait().is_ok() {
                std::process::exit(EXIT_INTERRUPTED.into());
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(wait).context("cannot start a thread")?;
        Ok(Interrupt { came })
    }

    fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}

/// A bar that threads may move.
struct SweepProgress<'a> {
    line: Mutex<ProgressLine>,
    shown: AtomicU64,
    interrupt: &'a Interrupt,
}

impl<'a> SweepProgress<'a> {
    fn new(is_shown: bool, interrupt: &'a Interrupt) -> SweepProgress<'a> {
        let mut line = ProgressLine::timed(is_shown, "accesses");
        line.at("simulating".to_owned());
        SweepProgress { line: Mutex::new(line), shown: AtomicU64::new(0), interrupt }
    }

    /// Other work begins, from nothing.
    fn begins(&self, subject: &str) {
        self.shown.store(0, Ordering::Relaxed);
        if let Ok(mut line) = self.line.lock() {
            line.at(subject.to_owned());
        }
    }

    /// False if the run is to end.
    fn is_at(&self, done: u64, all: u64) -> bool {
        // A thread that finds another at the bar has nothing newer to show.
        if done.saturating_sub(self.shown.load(Ordering::Relaxed)) > all / 1000
            && let Ok(mut line) = self.line.try_lock()
        {
            self.shown.store(done, Ordering::Relaxed);
            line.is_at(done, all);
        }
        !self.interrupt.came()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sweep: &[&str]) -> Result<Vec<String>, WhatIfError> {
        let base = HardwareProfile::built_in("fast14").unwrap();
        let sweep: Vec<String> = sweep.iter().map(|text| (*text).to_owned()).collect();
        Ok(swept(&base, &sweep)?.iter().map(frieze_whatif::name_of).collect())
    }

    #[test]
    fn a_sweep_has_all_combinations_and_the_present_system_first() {
        assert_eq!(names(&[]).unwrap(), ["30 GB, 15 disks"]);
        assert_eq!(
            names(&["ram=10,30", "disks=15,20"]).unwrap(),
            ["30 GB, 15 disks", "10 GB, 15 disks", "10 GB, 20 disks", "30 GB, 20 disks"]
        );
        assert_eq!(names(&["ram=10,20,disks=20"]).unwrap(), ["30 GB, 15 disks", "10 GB, 20 disks", "20 GB, 20 disks"]);
        assert_eq!(names(&["ram=10,30,100", "flash=0,60,120,240", "disks=10,15,20"]).unwrap().len(), 36);
    }

    #[test]
    fn sweeps_that_cannot_be_are_refused() {
        let words = |sweep: &[&str]| names(sweep).unwrap_err().to_string();
        assert!(words(&["10,20"]).starts_with("--sweep: cannot read \"10\" as NAME=VALUE"));
        assert!(words(&["disks=-1,15"]).contains("outside 0 to 1000 disks"));
        assert!(words(&["flash=1e30"]).contains("outside 0 to 1000000 GB"));
        let values: Vec<String> = (1..=400).map(|value| value.to_string()).collect();
        let many = format!("ram={}", values.join(","));
        let more = format!("flash={}", values.join(","));
        assert!(words(&[&many, &more]).starts_with("160000 systems are too many for one run, 10000 is the most"));
    }
}
