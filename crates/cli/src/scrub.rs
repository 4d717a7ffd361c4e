//! `scrub`: everything stored is read, and damage is named.

use std::time::Duration;

use anyhow::{Error, Result};
use frieze_base::{Reason, SegmentId};
use frieze_client::{Finding, FindingKind, Hlc, ScrubAction, ScrubReply, ScrubState};
use serde_json::{Value, json};

use crate::args::ScrubArgs;
use crate::failure::{self, ReportedError};
use crate::format;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze scrub`.
pub(crate) fn scrub(run: &mut CommandRun, args: &ScrubArgs) -> Result<()> {
    scrub_as_asked(run, args).map_err(|error| match failure::fault_of(&error) {
        // The server's words name the users that may.
        Some(fault) if fault.reason == Reason::NotPermitted => Error::msg(fault.message),
        _ => error,
    })
}

fn scrub_as_asked(run: &mut CommandRun, args: &ScrubArgs) -> Result<()> {
    let client = run.client()?.clone();
    let rate = u64::from(args.rate.unwrap_or(0)) << 20;
    if args.stop {
        if client.scrub(ScrubAction::Look, 0, false)?.state() != ScrubState::Running {
            return Err(Error::msg("no scrub is under way: there is nothing to stop"));
        }
        client.scrub(ScrubAction::Stop, 0, false)?;
    } else if !args.status {
        client.scrub(ScrubAction::Start, rate, false)?;
        if !args.background {
            wait(run, &client)?;
        }
    }
    let reply = client.scrub(ScrubAction::Look, 0, true)?;
    if run.json() {
        run.print_json(to_json(&reply))?;
    } else {
        for finding in &reply.findings {
            run.print(&line(finding))?;
        }
        words(&reply).iter().try_for_each(|line| run.print(line))?;
    }
    // Printed already: a script gets it by the exit status.
    if reply.damaged == 0 { Ok(()) } else { Err(ReportedError.into()) }
}

/// Waits until the server is done, and shows how far it is.
fn wait(run: &mut CommandRun, client: &frieze_client::Client) -> Result<()> {
    run.show(ProgressLine::bytes);
    if run.is_shown() {
        run.say("the scrub continues if this command ends; `frieze scrub --stop` ends it");
    }
    loop {
        let reply = client.scrub(ScrubAction::Look, 0, false)?;
        run.progress(|progress| progress.is_at(reply.done_bytes, reply.all_bytes));
        if reply.state() != ScrubState::Running {
            return Ok(());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Interval between two requests for the progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A finding in a line.
pub(crate) fn line(finding: &Finding) -> String {
    let at = |stamp: u64| format!("{} ({})", format::time_of(Hlc(stamp)), Hlc(stamp));
    let place = format!("{} at byte {}", SegmentId(finding.segment).in_words(), finding.at);
    let unread = match finding.unread.as_str() {
        "" => String::new(),
        words => format!("; the device: {words}"),
    };
    if finding.path.is_empty() {
        let what = match finding.kind() {
            FindingKind::SegmentHeader => "the header of the segment, of which its footer has a copy".to_owned(),
            FindingKind::Footer => {
                "the footer of the segment: its writes can be read, and are found without it".to_owned()
            }
            FindingKind::Index => {
                "the index on disk of the writes from this segment on, and a footer from which it could be \
                 made anew: the files written to there cannot be read"
                    .to_owned()
            }
            _ => format!("{} of writes of unknown files", format::size(finding.len)),
        };
        return format!("damaged: {what}; {place}{unread}");
    }
    let deleted = match finding.deleted {
        0 => String::new(),
        stamp => format!(" (deleted {})", format::time_of(Hlc(stamp))),
    };
    let path = format::printable(&finding.path);
    let range = format!("bytes {}..{}", finding.start, finding.end);
    let shown = match finding.until {
        0 => format!("shown from {} until now", at(finding.from)),
        until => format!("shown from {} to before {}", at(finding.from), at(until)),
    };
    let what = match finding.kind() {
        FindingKind::Data => format!("{range} are damaged and cannot be read, {shown}"),
        _ => format!("the header of a write of {range} is damaged, they can be read, {shown}"),
    };
    format!("{path}{deleted}: {what}; {place}{unread}")
}

/// The summary, a sentence a line.
fn words(reply: &ScrubReply) -> Vec<String> {
    let time = |stamp: u64| format::time_of(Hlc(stamp));
    let looked_at =
        format!("{} in {} looked at", format::size(reply.done_bytes), format::count(reply.records, "write"));
    let mut lines = vec![match reply.state() {
        ScrubState::Never => "nothing was ever scrubbed".to_owned(),
        ScrubState::Running => {
            let (all, rate) = (format::size(reply.all_bytes), format::size(reply.bytes_per_s));
            format!("under way since {}: {looked_at} of {all}, at most {rate} a second", time(reply.started))
        }
        ScrubState::Stopped => format!("stopped at {}: {looked_at}", time(reply.ended)),
        ScrubState::Finished => {
            let took = Hlc(reply.ended).micros().saturating_sub(Hlc(reply.started).micros()) / 1000;
            format!("finished at {}: {looked_at} in {}", time(reply.ended), format::duration_ms(took))
        }
    }];
    if reply.finished != 0 && reply.state() != ScrubState::Finished {
        lines.push(format!("everything was last looked at by {}", time(reply.finished)));
    }
    let unnamed = reply.damaged - (reply.findings.len() as u64).min(reply.damaged);
    if unnamed > 0 {
        lines.push(format!("{} more, too many to be remembered one by one", format::count(unnamed, "damaged place")));
    }
    if reply.mended > 0 {
        let pieces = format::count(reply.mended, "piece");
        lines.push(format!("{pieces} of the index on disk had to be made anew; nothing of it is lost"));
    }
    lines.push(match reply.damaged {
        0 => "no damage is known".to_owned(),
        places => format!("{} known", format::count(places, "damaged place")),
    });
    if !reply.trouble.is_empty() {
        lines.push(format!("findings are kept in memory only: {}", reply.trouble));
    }
    lines
}

fn to_json(reply: &ScrubReply) -> Value {
    let stamp = |stamp: u64| (stamp != 0).then(|| Hlc(stamp).to_string());
    let time = |stamp: u64| (stamp != 0).then(|| format::time_of(Hlc(stamp)));
    let findings: Vec<Value> = reply.findings.iter().map(finding_to_json).collect();
    json!({
        "state": match reply.state() {
            ScrubState::Never => "never",
            ScrubState::Running => "running",
            ScrubState::Stopped => "stopped",
            ScrubState::Finished => "finished",
        },
        "mended": reply.mended,
        "started": stamp(reply.started),
        "started_time": time(reply.started),
        "ended": stamp(reply.ended),
        "ended_time": time(reply.ended),
        "done_bytes": reply.done_bytes,
        "all_bytes": reply.all_bytes,
        "records": reply.records,
        "bytes_per_s": reply.bytes_per_s,
        "finished": stamp(reply.finished),
        "finished_time": time(reply.finished),
        "damaged": reply.damaged,
        "trouble": (!reply.trouble.is_empty()).then_some(&reply.trouble),
        "findings": findings,
    })
}

/// A finding as JSON.
pub(crate) fn finding_to_json(finding: &Finding) -> Value {
    let known = |stamp: u64| (stamp != 0).then_some(Hlc(stamp));
    let text = |stamp: u64| known(stamp).map(|stamp| stamp.to_string());
    let time = |stamp: u64| known(stamp).map(format::time_of);
    let of_file = !finding.path.is_empty();
    json!({
        "kind": match finding.kind() {
            FindingKind::None => "none",
            FindingKind::Data => "data",
            FindingKind::Header => "header",
            FindingKind::SegmentHeader => "segment_header",
            FindingKind::Footer => "footer",
            FindingKind::Records => "records",
            FindingKind::Index => "index",
        },
        "path": of_file.then(|| String::from_utf8_lossy(&finding.path)),
        "deleted": text(finding.deleted),
        "deleted_time": time(finding.deleted),
        "inode": of_file.then_some(finding.inode),
        "start": of_file.then_some(finding.start),
        "end": of_file.then_some(finding.end),
        "from": text(finding.from),
        "from_time": time(finding.from),
        "until": text(finding.until),
        "until_time": time(finding.until),
        "segment": finding.segment,
        "at": finding.at,
        "len": finding.len,
        "found": text(finding.found),
        "found_time": time(finding.found),
        "unread": (!finding.unread.is_empty()).then_some(&finding.unread),
    })
}
