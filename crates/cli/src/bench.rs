//! `bench`: hands its arguments to `frieze_bench`, which has options and help of its own.

use std::ffi::OsString;

use anyhow::Result;

use crate::args::{BenchArgs, DurabilityArg};
use crate::run::CommandRun;

/// `frieze bench`.
pub(crate) fn bench(run: &mut CommandRun, args: &BenchArgs) -> Result<()> {
    frieze_bench::run(line(run, args))
}

/// The arguments as typed, with those options of every command that mean something to a load put back: they are taken
/// from wherever they stand before the scenario.
fn line(run: &CommandRun, args: &BenchArgs) -> Vec<OsString> {
    let mut line = args.args.clone();
    if run.common.json {
        line.push("--json".into());
    }
    if run.common.durability == DurabilityArg::Sync {
        line.push("--sync".into());
    }
    // A load runs against a server of its own unless one is named here and now: not by the environment.
    if run.common.server_typed {
        line.extend(["--server".into(), OsString::from(&run.common.server)]);
    }
    // First: the load has it by the same name, and what is typed behind the scenario counts.
    if let Some(address) = &run.common.fabric_address {
        line.splice(0..0, ["--fabric-address".into(), OsString::from(address)]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    fn handed_on(typed: &[&str]) -> Vec<OsString> {
        let cli = Cli::read(typed.iter().copied()).unwrap();
        let Command::Bench(args) = &cli.command else { panic!("it is a bench") };
        line(&CommandRun::new("bench", cli.common), args)
    }

    #[test]
    fn options_reach_the_load_wherever_they_are_typed() {
        assert_eq!(handed_on(&["frieze", "bench", "stat", "--ops", "5"]), ["stat", "--ops", "5"]);
        assert_eq!(handed_on(&["frieze", "--json", "bench", "stat"]), ["stat", "--json"]);
        assert_eq!(handed_on(&["frieze", "bench", "stat", "--json"]), ["stat", "--json"]);
        assert_eq!(
            handed_on(&["frieze", "--server", "h:1", "--durability", "sync", "bench", "stat"]),
            ["stat", "--sync", "--server", "h:1"]
        );
        assert_eq!(
            handed_on(&["frieze", "--fabric-address", "::1", "bench", "fabric"]),
            ["--fabric-address", "::1", "fabric"]
        );
        assert_eq!(handed_on(&["frieze", "bench", "--help"]), ["--help"]);
    }
}
