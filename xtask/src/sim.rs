//! `cargo xtask sim`: builds the simulator and runs it with the arguments given; with `--coverage` it then tells which
//! arms of the cores' matches nothing came to ([`crate::arms`]).

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::arms;

/// Runs `frieze-sim ARGS`, optimised and with every check in it; its exit code is ours.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> ExitCode {
    let (asked, args): (Vec<String>, Vec<String>) = args.partition(|arg| arg == "--coverage");
    if !asked.is_empty() {
        return match arms::run(root, &args) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let run = ["run", "--quiet", "--profile", "sim", "--package", "frieze-sim", "--"];
    let status = Command::new(cargo).args(run).args(args).status();
    match status {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
