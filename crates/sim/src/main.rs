//! Runs simulations by seed, and scenarios by name.

use std::fmt;
use std::process::ExitCode;

use frieze_node::LostNames;
use frieze_sim::{
    CalvinBreak, CalvinPlan, ClusterBreak, ClusterPlan, FabricBreak, FabricPlan, MetalogBreak, MetalogPlan, SCENARIOS,
    ServerPlan, ShardBreak, ShardPlan, Violation, run_calvin, run_cluster, run_fabric, run_metalog, run_one_server,
    run_shards,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: frieze-sim one_server [--seed 0x5eed] [--count N] [--trace]
       frieze-sim metalog [--seed 0x5eed] [--count N] [--trace] [--mutants [--only NAME]]
       frieze-sim calvin [--seed 0x5eed] [--count N] [--trace] [--mutants [--only NAME]]
       frieze-sim shards [--seed 0x5eed] [--count N] [--trace] [--mutants [--only NAME]]
       frieze-sim fabric [--seed 0x5eed] [--count N] [--trace] [--mutants [--only NAME]]
       frieze-sim cluster [--seed 0x5eed] [--count N] [--trace] [--mutants [--only NAME]]
       frieze-sim SCENARIO [--seed 1]
       frieze-sim list";

fn main() -> ExitCode {
    // Servers end at what the simulated disk loses, as they are to.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<LostNames>() {
            report(panic);
        }
    }));
    match parse_options(std::env::args().skip(1)) {
        Ok(options) => run_command(&options),
        Err(()) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

struct SimOptions {
    what: String,
    seed: u64,
    count: u64,
    keep_trace: bool,
    mutants: bool,
    /// The only one of them.
    only: Option<String>,
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<SimOptions, ()> {
    let mut options = SimOptions {
        what: args.next().ok_or(())?,
        seed: 0x5eed,
        count: 1,
        keep_trace: false,
        mutants: false,
        only: None,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => options.keep_trace = true,
            "--mutants" => options.mutants = true,
            "--only" => options.only = Some(args.next().ok_or(())?),
            "--seed" => options.seed = number(&args.next().ok_or(())?)?,
            "--count" => options.count = number(&args.next().ok_or(())?)?,
            _ => return Err(()),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, ()> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| ())
}

fn run_command(options: &SimOptions) -> ExitCode {
    match options.what.as_str() {
        "list" => {
            println!("one_server\nmetalog\ncalvin\nshards\nfabric\ncluster");
            SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
            ExitCode::SUCCESS
        }
        "one_server" => simulate(options),
        "metalog" if options.mutants => {
            play_broken(options, MetalogBreak::ALL.iter().chain(MetalogBreak::RARE).copied(), |breakage, seed| {
                run_metalog(&MetalogPlan { breakage: Some(breakage), ..MetalogPlan::of_seed(seed) }).violation
            })
        }
        "metalog" => simulate_metalog(options),
        "calvin" if options.mutants => play_broken(options, CalvinBreak::ALL.iter().copied(), |breakage, seed| {
            run_calvin(&CalvinPlan { breakage: Some(breakage), ..CalvinPlan::of_seed(seed) }).violation
        }),
        "calvin" => simulate_calvin(options),
        "shards" if options.mutants => play_broken(options, ShardBreak::ALL.iter().copied(), |breakage, seed| {
            run_shards(&ShardPlan { breakage: Some(breakage), ..ShardPlan::of_seed(seed) }).violation
        }),
        "shards" => simulate_shards(options),
        "fabric" if options.mutants => play_broken(options, FabricBreak::ALL.iter().copied(), |breakage, seed| {
            run_fabric(&FabricPlan { breakage: Some(breakage), ..FabricPlan::of_seed(seed) }).violation
        }),
        "fabric" => simulate_fabric(options),
        "cluster" if options.mutants => play_broken(options, ClusterBreak::ALL.iter().copied(), |breakage, seed| {
            run_cluster(&ClusterPlan { breakage: Some(breakage), ..ClusterPlan::of_seed(seed) }).violation
        }),
        "cluster" => simulate_cluster(options),
        name => match SCENARIOS.iter().find(|scenario| scenario.name == name) {
            Some(scenario) => match (scenario.play)(options.seed) {
                Ok(()) => ExitCode::SUCCESS,
                Err(violation) => {
                    println!("{name}: {violation}");
                    ExitCode::FAILURE
                }
            },
            None => {
                eprintln!("{USAGE}\nno scenario is called {name:?}");
                ExitCode::from(2)
            }
        },
    }
}

/// What a run of a seed printed and found.
struct SeedEnd {
    trace: Vec<String>,
    hash: u64,
    counts: String,
    failure: Option<String>,
}

/// Plays the seeds asked for, and prints a line of each. All of them are played if `goes_on`, else up to the first that
/// breaks a promise.
fn play_seeds(options: &SimOptions, goes_on: bool, play: impl Fn(u64) -> SeedEnd) -> ExitCode {
    let mut broken = 0;
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let SeedEnd { trace, hash, counts, failure } = play(seed);
        for line in &trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {hash:016x} {counts}");
        if let Some(failure) = failure {
            println!("{failure}");
            broken += 1;
            if !goes_on {
                break;
            }
        }
    }
    if broken > 0 {
        println!("{broken} of {} seeds broke a promise", options.count);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Plays what is broken on purpose until each breakage is noticed; with one seed, 10,000.
fn play_broken<B: fmt::Debug + Copy>(
    options: &SimOptions,
    all: impl IntoIterator<Item = B>,
    play: impl Fn(B, u64) -> Option<Violation>,
) -> ExitCode {
    let count = if options.count == 1 { 10_000 } else { options.count };
    let mut missed = false;
    let is_wanted = |broken: &B| options.only.as_ref().is_none_or(|only| *only == format!("{broken:?}"));
    for breakage in all.into_iter().filter(is_wanted) {
        let mut seeds = options.seed..options.seed.saturating_add(count);
        let found = seeds.find_map(|seed| play(breakage, seed).map(|violation| (seed, violation)));
        missed |= found.is_none();
        match found {
            Some((seed, violation)) => println!("{breakage:?}: noticed with seed {seed:#x}: {violation}"),
            None => println!("{breakage:?}: NOT noticed in {count} seeds"),
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The violation of a seed, and the command that shows it again.
fn failure_of(scenario: &str, seed: u64, violation: Option<&Violation>) -> Option<String> {
    let again = |violation| format!("{violation}\nsee it again: cargo xtask sim {scenario} --seed {seed:#x} --trace");
    violation.map(again)
}

fn simulate(options: &SimOptions) -> ExitCode {
    play_seeds(options, false, |seed| {
        let outcome = run_one_server(&ServerPlan { keep_trace: options.keep_trace, ..ServerPlan::of_seed(seed) });
        let failure = outcome.failure(seed);
        SeedEnd { hash: outcome.trace_hash, counts: format!("{:?}", outcome.counts), failure, trace: outcome.trace }
    })
}

fn simulate_metalog(options: &SimOptions) -> ExitCode {
    play_seeds(options, false, |seed| {
        let outcome = run_metalog(&MetalogPlan { keep_trace: options.keep_trace, ..MetalogPlan::of_seed(seed) });
        let failure = failure_of("metalog", seed, outcome.violation.as_ref());
        let counts = outcome.counts().to_string();
        SeedEnd { hash: outcome.trace_hash, counts, failure, trace: outcome.trace }
    })
}

fn simulate_calvin(options: &SimOptions) -> ExitCode {
    play_seeds(options, false, |seed| {
        let outcome = run_calvin(&CalvinPlan { keep_trace: options.keep_trace, ..CalvinPlan::of_seed(seed) });
        let failure = failure_of("calvin", seed, outcome.violation.as_ref());
        SeedEnd { hash: outcome.trace_hash, counts: format!("{:?}", outcome.counts), failure, trace: outcome.trace }
    })
}

fn simulate_shards(options: &SimOptions) -> ExitCode {
    play_seeds(options, false, |seed| {
        let outcome = run_shards(&ShardPlan { keep_trace: options.keep_trace, ..ShardPlan::of_seed(seed) });
        let failure = failure_of("shards", seed, outcome.violation.as_ref());
        SeedEnd { hash: outcome.trace_hash, counts: format!("{:?}", outcome.counts), failure, trace: outcome.trace }
    })
}

fn simulate_fabric(options: &SimOptions) -> ExitCode {
    play_seeds(options, false, |seed| {
        let outcome = run_fabric(&FabricPlan { keep_trace: options.keep_trace, ..FabricPlan::of_seed(seed) });
        let failure = failure_of("fabric", seed, outcome.violation.as_ref());
        SeedEnd { hash: outcome.trace_hash, counts: format!("{:?}", outcome.counts), failure, trace: outcome.trace }
    })
}

fn simulate_cluster(options: &SimOptions) -> ExitCode {
    play_seeds(options, true, |seed| {
        let outcome = run_cluster(&ClusterPlan { keep_trace: options.keep_trace, ..ClusterPlan::of_seed(seed) });
        let failure = failure_of("cluster", seed, outcome.violation.as_ref());
        SeedEnd { hash: outcome.trace_hash, counts: format!("{:?}", outcome.counts), failure, trace: outcome.trace }
    })
}
