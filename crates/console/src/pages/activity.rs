//! The heat of a directory along an axis of time: how much changed in each cell, from the index of time.

use frieze_base::MonoTime;
use frieze_client::{Fs, HistoryInterval, Hlc, Reason, mono};
use serde_json::json;

use crate::error::{PageRefusal, about};
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

/// Counts of changes in cells of one length, from the one that has `from` to the one that has `to`, in microseconds
/// since 1970; about `cells` of them.
///
/// A cell costs a page of a story, however much happened in it; an empty stretch costs one, however long it is.
pub(super) fn heat(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let missing = |name: &str| PageRefusal::bad(format!("{name} is missing: microseconds since 1970"));
    let from = query.number("from")?.ok_or_else(|| missing("from"))?;
    let to = query.number("to")?.ok_or_else(|| missing("to"))?.min(visit.now().micros());
    let wanted = query.number("cells")?.unwrap_or(120).clamp(1, CELLS_MAX);
    if from >= to {
        return Err(PageRefusal::bad("the axis ends before it begins"));
    }
    // Runs of writes are divided at multiples of the length since 1970, so cells begin there.
    let cell_us = (to - from).div_ceil(wanted);
    let (first, end) = (from / cell_us, to / cell_us + 1);
    let mut counts = vec![0; (end - first) as usize];
    let answer = |counts: &[u64], is_whole: bool| {
        let (from, to) = (first * cell_us, end * cell_us);
        Ok(ConsoleReply::json(&json!({ "from": from, "to": to, "counts": counts, "whole": is_whole })))
    };
    let Some(fs) = located(visit, path, Hlc::last_of_micros(to))? else { return answer(&counts, true) };
    let until = MonoTime(mono().0 + TIME_MAX_NS);
    let mut rest = vec![(first, end)];
    while let Some((cell, cells_end)) = rest.pop() {
        if mono() > until {
            return answer(&counts, false);
        }
        let interval = HistoryInterval {
            after: Hlc::first_of_micros(cell * cell_us).previous(),
            upto: Hlc::first_of_micros(cells_end * cell_us).previous().min(visit.now()),
        };
        if interval.after >= interval.upto {
            continue;
        }
        let reply =
            fs.story_in_cells(&target(path), interval, cell_us, CELL_EVENTS_MAX).map_err(about(path.shown()))?;
        if Hlc(reply.upto) >= interval.upto {
            for event in &reply.events {
                let at = (Hlc(event.stamp).micros() / cell_us).clamp(cell, cells_end - 1);
                counts[(at - first) as usize] += 1;
            }
        } else if cells_end - cell > 1 {
            let middle = cell + (cells_end - cell) / 2;
            // The later half first: what is left out is the oldest.
            rest.extend([(cell, middle), (middle, cells_end)]);
        } else {
            let filled = Hlc(reply.upto).micros().saturating_sub(cell * cell_us).clamp(1, cell_us);
            counts[(cell - first) as usize] = (reply.events.len() as u64).max(1) * cell_us / filled;
        }
    }
    answer(&counts, true)
}

/// The view at which a path is looked up: the end of the axis, else the newest instant at which it existed; `None` if
/// it never did.
fn located(visit: &Visit<'_>, path: &PagePath, at: Hlc) -> Result<Option<Fs>, PageRefusal> {
    let fs = visit.fs();
    let view = fs.at(at.min(visit.now()));
    match view.stat(&target(path)) {
        Ok(_) => Ok(Some(view)),
        Err(error) if error.reason() == Reason::NotFound => {
            let Ok(last) = fs.last_existed(path.as_bytes()) else { return Ok(None) };
            Ok(Some(if last.at == 0 { fs.at(visit.now()) } else { fs.at(Hlc(last.at)) }))
        }
        Err(error) => Err(about(path.shown())(error)),
    }
}
