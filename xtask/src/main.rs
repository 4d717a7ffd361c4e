//! The project's own chores: `cargo xtask deps`, `tidy`, `house`, `test`, `hadoop-messages` and `sim`.
//!
//! Guarantees: all but `sim` and `test` only read; what they find is printed one a line, with the file where there is
//! one; the exit code is 1 if there is anything. Leaves to others: formatting and lints (`cargo fmt`, `cargo clippy`).

mod arms;
mod dependencies;
mod deps;
mod files;
mod hadoop_messages;
mod house;
mod rooms;
mod service_rooms;
mod sim;
mod slowest;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  deps   check that every arrow between crates points the allowed way, and draw them
  tidy   check the rules of the house that no compiler knows, its ratchets among them
  house  count what the ratchets hold, crate by crate; `house CRATE` lists every place in it
  hadoop-messages
         check crates/hdfs/src/proto against what tests/hdfs/Descriptors.java prints, on standard input
  test   run `cargo test` with these arguments, and list its ten slowest tests
  sim    run simulations: `sim one_server --seed 0x5eed --count 100`, `sim list`; with --coverage it tells which arms
         of the cores' matches they did not come to (needs `rustup component add llvm-tools`)";

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let found = match command.as_deref() {
        Some("deps") => deps::run(&root()),
        Some("tidy") => tidy::run(&root()),
        Some("house") => house::print(&root(), std::env::args().nth(2).as_deref()),
        Some("hadoop-messages") => hadoop_messages::run(&root()),
        Some("test") => return slowest::run(&root(), std::env::args().skip(2)),
        Some("sim") => return sim::run(&root(), std::env::args().skip(2)),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match found {
        Ok(found) if found.is_empty() => ExitCode::SUCCESS,
        Ok(found) => {
            for line in &found {
                eprintln!("{line}");
            }
            eprintln!("{} to mend", found.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the workspace").to_owned()
}
