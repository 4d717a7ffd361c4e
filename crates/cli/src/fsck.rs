//! `fsck`: checks a data directory that no server uses.

use std::cell::RefCell;

use anyhow::Result;
use frieze_node::Checkup;
use rustix::fs::Mode;
use serde_json::{Value, json};

use crate::args::FsckArgs;
use crate::failure::{CheckFailed, ReportedError};
use crate::format;
use crate::progress::ProgressLine;
use crate::run::CommandRun;
use crate::scrub;

/// `frieze fsck`.
pub(crate) fn fsck(run: &mut CommandRun, args: &FsckArgs) -> Result<()> {
    // It makes a copy of a part of the directory.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    run.show(ProgressLine::bytes);
    let checkup = {
        let run = RefCell::new(&mut *run);
        let progress = |done, all| run.borrow_mut().progress(|progress| progress.is_at(done, all));
        frieze_node::fsck(&args.dir, &progress).map_err(|fault| CheckFailed(fault.message))?
    };
    if run.json() {
        run.print_json(to_json(&checkup))?;
    } else {
        lines(&checkup).iter().try_for_each(|line| run.print(line))?;
    }
    // Printed already: a script gets it by the exit status.
    if checkup.found() == 0 { Ok(()) } else { Err(ReportedError.into()) }
}

fn lines(checkup: &Checkup) -> Vec<String> {
    let mut lines: Vec<String> = checkup.notes.iter().map(|note| format!("note: {note}")).collect();
    lines.extend(checkup.wrong.iter().map(|words| format!("wrong: {words}")));
    if checkup.wrong_more > 0 {
        lines.push(format!("wrong: {} more", checkup.wrong_more));
    }
    lines.extend(checkup.scrub.findings.iter().map(|finding| format!("wrong: {}", scrub::line(finding))));
    let unnamed = checkup.scrub.damaged.saturating_sub(checkup.scrub.findings.len() as u64);
    if unnamed > 0 {
        lines.push(format!("wrong: {} more", format::count(unnamed, "damaged place")));
    }
    let looked_at = format!(
        "{} in {}, {} inodes, {} in all their versions",
        format::size(checkup.scrub.done_bytes),
        format::count(checkup.scrub.records, "write"),
        checkup.counts.inodes,
        format::count(checkup.counts.names, "name"),
    );
    lines.push(match checkup.found() {
        0 => format!("clean: {looked_at}"),
        found => format!("{}: {looked_at} looked at", format::count(found, "finding")),
    });
    lines
}

fn to_json(checkup: &Checkup) -> Value {
    let findings: Vec<Value> = checkup.scrub.findings.iter().map(scrub::finding_to_json).collect();
    json!({
        "clean": checkup.found() == 0,
        "found": checkup.found(),
        "wrong": checkup.wrong,
        "wrong_more": checkup.wrong_more,
        "notes": checkup.notes,
        "inodes": checkup.counts.inodes,
        "names": checkup.counts.names,
        "versions": checkup.counts.versions,
        "bytes": checkup.scrub.done_bytes,
        "records": checkup.scrub.records,
        "damaged": checkup.scrub.damaged,
        "findings": findings,
    })
}
