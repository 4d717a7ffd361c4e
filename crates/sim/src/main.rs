//! Runs simulations by seed: `frieze-sim one_server --seed 0x5eed [--count N] [--trace]`.

use std::process::ExitCode;

use frieze_sim::{Plan, run};

fn main() -> ExitCode {
    let mut seed = 0x5eed;
    let mut count = 1;
    let mut keep_trace = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "one_server" => {}
            "--trace" => keep_trace = true,
            "--seed" => seed = number(args.next()),
            "--count" => count = number(args.next()),
            _ => {
                eprintln!("usage: frieze-sim one_server [--seed 0x5eed] [--count N] [--trace]");
                return ExitCode::from(2);
            }
        }
    }
    for seed in seed..seed + count {
        let outcome = run(&Plan { keep_trace, ..Plan::of_seed(seed) });
        for line in outcome.trace {
            println!("{line}");
        }
        println!("seed {seed:#x} trace {:016x} {:?}", outcome.trace_hash, outcome.counts);
        if let Some(violation) = outcome.violation {
            println!("{violation}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn number(text: Option<String>) -> u64 {
    let text = text.unwrap_or_default();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}
