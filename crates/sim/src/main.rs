//! Runs simulations by seed, and scenarios by name.

use std::process::ExitCode;

use frieze_node::LostNames;
use frieze_sim::{
    CalvinBreak, CalvinPlan, ClusterBreak, ClusterPlan, MetalogBreak, MetalogPlan, SCENARIOS, ServerPlan, ShardBreak,
    ShardPlan, run_calvin, run_cluster, run_metalog, run_one_server, run_shards,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: frieze-sim one_server [--seed 0x5eed] [--count N] [--trace]
       frieze-sim metalog [--seed 0x5eed] [--count N] [--trace] [--mutants]
       frieze-sim calvin [--seed 0x5eed] [--count N] [--trace] [--mutants]
       frieze-sim shards [--seed 0x5eed] [--count N] [--trace] [--mutants]
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
            println!("one_server\nmetalog\ncalvin\nshards\ncluster");
            SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
            ExitCode::SUCCESS
        }
        "one_server" => simulate(options),
        "metalog" if options.mutants => mutants(options),
        "metalog" => simulate_metalog(options),
        "calvin" if options.mutants => calvin_mutants(options),
        "calvin" => simulate_calvin(options),
        "shards" if options.mutants => shard_mutants(options),
        "shards" => simulate_shards(options),
        "cluster" if options.mutants => cluster_mutants(options),
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

fn simulate(options: &SimOptions) -> ExitCode {
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let outcome = run_one_server(&ServerPlan { keep_trace: options.keep_trace, ..ServerPlan::of_seed(seed) });
        for line in &outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {:?}", outcome.trace_hash, outcome.counts);
        if let Some(failure) = outcome.failure(seed) {
            println!("{failure}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn simulate_metalog(options: &SimOptions) -> ExitCode {
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let outcome = run_metalog(&MetalogPlan { keep_trace: options.keep_trace, ..MetalogPlan::of_seed(seed) });
        for line in &outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {}", outcome.trace_hash, outcome.counts());
        if let Some(violation) = &outcome.violation {
            println!("{violation}\nsee it again: cargo xtask sim metalog --seed {seed:#x} --trace");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn simulate_calvin(options: &SimOptions) -> ExitCode {
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let outcome = run_calvin(&CalvinPlan { keep_trace: options.keep_trace, ..CalvinPlan::of_seed(seed) });
        for line in &outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {:?}", outcome.trace_hash, outcome.counts);
        if let Some(violation) = &outcome.violation {
            println!("{violation}\nsee it again: cargo xtask sim calvin --seed {seed:#x} --trace");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn calvin_mutants(options: &SimOptions) -> ExitCode {
    let mut missed = 0;
    for breakage in CalvinBreak::ALL {
        let found = (0..options.count.max(3000)).find_map(|seed| {
            let outcome = run_calvin(&CalvinPlan { breakage: Some(*breakage), ..CalvinPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{breakage:?}: after {} seeds, {violation}", seed + 1),
            None => {
                println!("{breakage:?} is not noticed");
                missed += 1;
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn simulate_shards(options: &SimOptions) -> ExitCode {
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let outcome = run_shards(&ShardPlan { keep_trace: options.keep_trace, ..ShardPlan::of_seed(seed) });
        for line in &outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {:?}", outcome.trace_hash, outcome.counts);
        if let Some(violation) = &outcome.violation {
            println!("{violation}\nsee it again: cargo xtask sim shards --seed {seed:#x} --trace");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn shard_mutants(options: &SimOptions) -> ExitCode {
    let mut missed = 0;
    for breakage in ShardBreak::ALL {
        let found = (0..options.count.max(3000)).find_map(|seed| {
            let outcome = run_shards(&ShardPlan { breakage: Some(*breakage), ..ShardPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{breakage:?}: after {} seeds, {violation}", seed + 1),
            None => {
                println!("{breakage:?} is not noticed");
                missed += 1;
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn simulate_cluster(options: &SimOptions) -> ExitCode {
    let mut broken = 0;
    for seed in options.seed..options.seed.saturating_add(options.count) {
        let outcome = run_cluster(&ClusterPlan { keep_trace: options.keep_trace, ..ClusterPlan::of_seed(seed) });
        for line in &outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {:?}", outcome.trace_hash, outcome.counts);
        if let Some(violation) = &outcome.violation {
            println!("{violation}\nsee it again: cargo xtask sim cluster --seed {seed:#x} --trace");
            broken += 1;
        }
    }
    if broken > 0 {
        println!("{broken} of {} seeds broke a promise", options.count);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Plays clusters that are broken on purpose until each is noticed; with one seed, 10,000.
fn cluster_mutants(options: &SimOptions) -> ExitCode {
    let count = if options.count == 1 { 10_000 } else { options.count };
    let mut missed = false;
    let is_wanted = |broken: &&ClusterBreak| options.only.as_ref().is_none_or(|only| *only == format!("{broken:?}"));
    for breakage in ClusterBreak::ALL.iter().filter(is_wanted) {
        let found = (options.seed..options.seed.saturating_add(count)).find_map(|seed| {
            let outcome = run_cluster(&ClusterPlan { breakage: Some(*breakage), ..ClusterPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        });
        missed |= found.is_none();
        match found {
            Some((seed, violation)) => println!("{breakage:?}: noticed with seed {seed:#x}: {violation}"),
            None => println!("{breakage:?}: NOT noticed in {count} seeds"),
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays members that are broken on purpose until each is noticed; with one seed, 10,000.
fn mutants(options: &SimOptions) -> ExitCode {
    let count = if options.count == 1 { 10_000 } else { options.count };
    let mut missed = false;
    for breakage in MetalogBreak::ALL.iter().chain(MetalogBreak::RARE) {
        let found = (options.seed..options.seed.saturating_add(count)).find_map(|seed| {
            let outcome = run_metalog(&MetalogPlan { breakage: Some(*breakage), ..MetalogPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        });
        missed |= found.is_none();
        match found {
            Some((seed, violation)) => println!("{breakage:?}: noticed with seed {seed:#x}: {violation}"),
            None => println!("{breakage:?}: NOT noticed in {count} seeds"),
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
