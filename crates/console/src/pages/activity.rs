//! The heat of a directory along an axis of time: how much changed in each cell, from the index of time.

use frieze_base::MonoTime;
use frieze_client::{Fs, HistoryInterval, Hlc, Reason, mono};
use serde_json::json;

use crate::error::{Refusal, about};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};

/// Cells of an axis.
const CELLS_MAX: u64 = 240;
/// Events read in one cell. A cell with more is estimated from the part of it that they fill.
const CELL_EVENTS_MAX: u32 = 32;
/// How long an answer may take; later cells are left out, and the answer says so.
const TIME_MAX_NS: u64 = 2_000_000_000;

/// Counts of changes in the cells between `from` and `to`, in microseconds since 1970; `cells` of them.
///
/// A cell costs a page of a story, however much happened in it.
pub(super) fn heat(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, Refusal> {
    let missing = |name: &str| Refusal::bad(format!("{name} is missing: microseconds since 1970"));
    let from = query.number("from")?.ok_or_else(|| missing("from"))?;
    let to = query.number("to")?.ok_or_else(|| missing("to"))?.min(visit.now().micros());
    let cells = query.number("cells")?.unwrap_or(120).clamp(1, CELLS_MAX);
    if from >= to {
        return Err(Refusal::bad("the axis ends before it begins"));
    }
    let fs = visit.fs();
    // A directory that was removed since is found at the end of the axis, or where it last was.
    let fs = located(visit, &fs, path, Hlc::last_of_micros(to))?;
    let until = MonoTime(mono().0 + TIME_MAX_NS);
    let (mut counts, mut is_whole) = (vec![0; cells as usize], true);
    let edge = |cell: u64| from + (u128::from(to - from) * u128::from(cell) / u128::from(cells)) as u64;
    // Busy stretches are found by halving: an empty half is one request, however many cells it has.
    let mut rest = vec![(0, cells)];
    while let Some((first, end)) = rest.pop() {
        if mono() > until {
            is_whole = false;
            break;
        }
        let interval = HistoryInterval {
            after: Hlc::first_of_micros(edge(first)).previous(),
            upto: Hlc::first_of_micros(edge(end)).previous().min(visit.now()),
        };
        if interval.after >= interval.upto {
            continue;
        }
        let reply = fs.story(&target(path), interval, true, CELL_EVENTS_MAX).map_err(about(path.shown()))?;
        let is_all = Hlc(reply.upto) >= interval.upto;
        if is_all {
            for event in &reply.events {
                let micros = Hlc(event.stamp).micros().clamp(from, to);
                let at = u128::from(micros - from) * u128::from(cells) / u128::from(to - from);
                counts[(at as usize).min(cells as usize - 1)] += 1;
            }
        } else if end - first > 1 {
            let middle = first + (end - first) / 2;
            // The later half first: what is left out is the oldest.
            rest.extend([(first, middle), (middle, end)]);
        } else {
            let filled = Hlc(reply.upto).micros().saturating_sub(edge(first)).max(1);
            let whole = edge(end) - edge(first);
            counts[first as usize] = (reply.events.len() as u64).max(1) * whole / filled.min(whole).max(1);
        }
    }
    Ok(ConsoleReply::json(&json!({ "from": from, "to": to, "counts": counts, "whole": is_whole })))
}

/// The view at which a path is looked up: the end of the axis, else the newest instant at which it existed.
fn located(visit: &Visit<'_>, fs: &Fs, path: &PagePath, at: Hlc) -> Result<Fs, Refusal> {
    let view = fs.at(at.min(visit.now()));
    match view.stat(&target(path)) {
        Ok(_) => Ok(view),
        Err(error) if error.reason() == Reason::NotFound => {
            let last = fs.last_existed(path.as_bytes()).map_err(about(path.shown()))?;
            Ok(if last.at == 0 { fs.at(visit.now()) } else { fs.at(Hlc(last.at)) })
        }
        Err(error) => Err(about(path.shown())(error)),
    }
}
