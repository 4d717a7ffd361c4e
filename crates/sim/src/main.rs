//! Runs simulations by seed, and scenarios by name.

use std::process::ExitCode;

use frieze_sim::{Plan, SCENARIOS, run};

const USAGE: &str = "usage: frieze-sim one_server [--seed 0x5eed] [--count N] [--trace]
       frieze-sim SCENARIO [--seed 1]
       frieze-sim list";

fn main() -> ExitCode {
    match told(std::env::args().skip(1)) {
        Ok(asked) => act(&asked),
        Err(()) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

struct Asked {
    what: String,
    seed: u64,
    count: u64,
    keep_trace: bool,
}

fn told(mut args: impl Iterator<Item = String>) -> Result<Asked, ()> {
    let mut asked = Asked { what: args.next().ok_or(())?, seed: 0x5eed, count: 1, keep_trace: false };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => asked.keep_trace = true,
            "--seed" => asked.seed = number(&args.next().ok_or(())?)?,
            "--count" => asked.count = number(&args.next().ok_or(())?)?,
            _ => return Err(()),
        }
    }
    Ok(asked)
}

fn number(text: &str) -> Result<u64, ()> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| ())
}

fn act(asked: &Asked) -> ExitCode {
    match asked.what.as_str() {
        "list" => {
            println!("one_server");
            SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
            ExitCode::SUCCESS
        }
        "one_server" => simulate(asked),
        name => match SCENARIOS.iter().find(|scenario| scenario.name == name) {
            Some(scenario) => match (scenario.play)(asked.seed) {
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

fn simulate(asked: &Asked) -> ExitCode {
    for seed in asked.seed..asked.seed.saturating_add(asked.count) {
        let outcome = run(&Plan { keep_trace: asked.keep_trace, ..Plan::of_seed(seed) });
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
