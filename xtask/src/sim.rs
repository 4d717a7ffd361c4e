//! `cargo xtask sim`: builds the simulator and runs it with the arguments given.

use std::process::{Command, ExitCode};

/// Runs `frieze-sim ARGS`; its exit code is ours.
pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo).args(["run", "--quiet", "--package", "frieze-sim", "--"]).args(args).status();
    match status {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
