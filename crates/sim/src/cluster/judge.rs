//! Judges what clients saw, from the whole history when the run is over.
//!
//! - *Cells of now*: a register each, every write with a value of its own. A history of one is linearizable if and only
//!   if no two forward zones overlap and no backward zone lies within a forward one (Gibbons and Korach, *Testing
//!   Shared Memories*, 1997); a zone spans from the first answer to the last question about one value.
//! - *Cells at an instant*: exactly what the newest write stamped up to then left. With [`stamps`] it follows that
//!   every cut is causally closed: a client that received a stamp before its change gets a larger one for it.
//! - *Losses*: where a power loss took all copies of unflushed bytes, the history of a cell starts anew, with one
//!   earlier value that is not older than what was durable. Bytes that were lost with the last disk that had them are
//!   missing only from answers that say so, and no answer says so where no machine was ever lost: for the other cells
//!   nothing is forgiven.
//! - *Cuts*: ordered with every write that was acknowledged before or begun after, by the stamps alone.
//! - *Bytes written together*: the register of each cell changes at one moment, that of the first client anywhere that
//!   read them; at every instant all of them are there or none, also where no client received the stamp.
//! - *Appends*: `logs`.
//! - *Names*: each name exists once, so a listing is wrong if it misses one that existed all the while, or shows one
//!   that cannot have existed.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChunkId, InodeId};
use frieze_hlc::Hlc;

use super::history::{History, NameOp, ReadRecord, SyncRecord, Value, WriteRecord};
use super::plan::CHAINS;
use super::work::{CUT, chunk_of};
use crate::violation::{Rule, Verdict, broken};

/// Judges everything except the final questions to the servers.
pub(super) fn judge(history: &History) -> Verdict {
    stamps(history)?;
    loss_reports(history)?;
    cells_now(history)?;
    cuts(history)?;
    cells_then(history)?;
    together(history)?;
    names(history)
}

/// Nothing is said to be missing before a machine was lost for good.
fn loss_reports(history: &History) -> Verdict {
    let is_early = |read: &&ReadRecord| read.incomplete && history.buried_us.is_none_or(|us| read.done_us < us);
    match history.reads.iter().find(is_early) {
        Some(ReadRecord { cells, node, done_us, .. }) => broken(
            Rule::Whole,
            format!("{node} said at {done_us} us that something may be missing of {cells:?}, and nothing was lost"),
        ),
        None => Ok(()),
    }
}

/// Every change has a larger stamp than any that its client had received, and no two writes of a cell, or changes of
/// several, share a stamp.
fn stamps(history: &History) -> Verdict {
    let writes = history
        .writes
        .iter()
        .filter_map(|write| Some((write.newest_before, write.done?.1, format!("write {}", write.value))));
    let appends = history
        .appends
        .iter()
        .filter_map(|append| Some((append.newest_before, append.done?.1, format!("append {}", append.value))));
    let names = history
        .names
        .iter()
        .filter_map(|name| Some((name.newest_before, name.done.as_ref()?.1.ok()?, format!("{:?}", name.op))));
    let cuts = history
        .cuts
        .iter()
        .filter_map(|cut| Some((cut.newest_before, cut.done?.1, format!("cut at cell {}", cut.cell))));
    for (newest_before, stamp, what) in writes.chain(appends).chain(names).chain(cuts) {
        if stamp <= newest_before {
            return broken(
                Rule::StampsRise,
                format!("{what} is stamped {stamp}, and its client had received {newest_before} before"),
            );
        }
    }
    // A head and the metalog may give one stamp to concurrent changes.
    let together: BTreeSet<Value> = history.together.iter().map(|one| one.value).collect();
    let mut taken = BTreeMap::new();
    for write in &history.writes {
        let Some((_, stamp)) = write.done else { continue };
        for cell in write.cells.each() {
            if let Some(other) = taken.insert((cell, stamp, together.contains(&write.value)), write.value) {
                return broken(
                    Rule::StampsRise,
                    format!("writes {other} and {} of {cell:?} are stamped {stamp}", write.value),
                );
            }
        }
    }
    Ok(())
}

/// True if a write that was answered then may have been taken by a loss of all copies at `lost_us`: nothing made it
/// durable before.
pub(super) fn may_be_lost(
    history: &History,
    file: usize,
    client: usize,
    sync: bool,
    answered_us: u64,
    lost_us: u64,
) -> bool {
    let covers = |barrier: &SyncRecord| {
        barrier.client == client
            && barrier.file == file
            && barrier.invoked_us >= answered_us
            && barrier.done_us <= lost_us
    };
    history.ruined.contains(&lost_us) || !sync && !history.syncs.iter().any(covers)
}

/// The same for losses that answers need not report: durable bytes are there.
fn silent_losses_of(history: &History, inode: u64, chunk: u32) -> Vec<u64> {
    let mut losses = losses_of(history, inode, chunk);
    losses.retain(|lost_us| !history.ruined.contains(lost_us));
    losses
}

/// Times at which all copies of unflushed records of this file's chunk were lost.
pub(super) fn losses_of(history: &History, inode: u64, chunk: u32) -> Vec<u64> {
    if history.lost.is_empty() {
        return Vec::new();
    }
    let chain = ChunkId { inode: InodeId(inode), index: chunk }.chain(CHAINS).0;
    history.lost.iter().filter(|(_, lost)| *lost == chain).map(|(at_us, _)| *at_us).collect()
}

/// Writes whose fate a loss of all copies left open, or a loss of names.
fn unsure(history: &History) -> BTreeSet<Value> {
    let is_unsure = |write: &&WriteRecord| {
        let inode = history.files[write.cells.file].inode;
        let done_us = write.done.map_or(u64::MAX, |(done_us, _)| done_us);
        silent_losses_of(history, inode, chunk_of(write.cells.first)).into_iter().any(|lost_us| {
            // A write in flight may have been read, and run once more.
            write.invoked_us < lost_us
                && may_be_lost(history, write.cells.file, write.client, write.sync, done_us.min(lost_us), lost_us)
        })
    };
    let with_chains = history.writes.iter().filter(is_unsure).map(|write| write.value);
    with_chains.chain(history.lost_values.iter().copied()).collect()
}

/// Reads and writes of one value of one cell.
struct ValueZone {
    value: Value,
    /// Earliest end and latest beginning of its reads and writes.
    first_end: u64,
    last_begin: u64,
    written_from: u64,
    by: String,
}

/// Time by which an atomic multi-write was visible: its answer, or the first read at any of its places.
fn together_by(history: &History) -> BTreeMap<Value, u64> {
    let mut by: BTreeMap<Value, u64> = history.together.iter().map(|one| (one.value, u64::MAX)).collect();
    if by.is_empty() {
        return by;
    }
    let answered = history.writes.iter().filter_map(|write| Some((write.value, write.done?.0)));
    let read = history.reads.iter().flat_map(|read| read.values.iter().map(|value| (*value, read.done_us)));
    for (value, us) in answered.chain(read) {
        by.entry(value).and_modify(|by| *by = us.min(*by));
    }
    by
}

fn cells_now(history: &History) -> Verdict {
    let mut writes: BTreeMap<(usize, u64), Vec<&WriteRecord>> = BTreeMap::new();
    let mut reads: BTreeMap<(usize, u64), Vec<(&ReadRecord, Value)>> = BTreeMap::new();
    for write in &history.writes {
        write.cells.each().for_each(|cell| writes.entry(cell).or_default().push(write));
    }
    for read in history.reads.iter().filter(|read| !read.incomplete) {
        for (cell, value) in read.cells.each().zip(&read.values) {
            reads.entry(cell).or_default().push((read, *value));
        }
    }
    let (unsure, together) = (unsure(history), together_by(history));
    let mut cells: BTreeSet<(usize, u64)> = writes.keys().chain(reads.keys()).copied().collect();
    // See [`cuts`].
    cells.retain(|(file, _)| *file != CUT);
    let lost = history.writes.iter().filter(|write| history.lost_values.contains(&write.value));
    for cell in lost.flat_map(|write| write.cells.each()) {
        cells.remove(&cell);
    }
    for cell in cells {
        let (writes, reads) = (writes.remove(&cell).unwrap_or_default(), reads.remove(&cell).unwrap_or_default());
        let mut losses = silent_losses_of(history, history.files[cell.0].inode, chunk_of(cell.1));
        // If a loss took nothing from this cell its history continues.
        losses
            .retain(|lost_us| writes.iter().any(|write| unsure.contains(&write.value) && write.invoked_us < *lost_us));
        let ends = losses.iter().copied().chain([u64::MAX]);
        let begins = [0].into_iter().chain(losses.iter().copied());
        for (from, to) in begins.zip(ends) {
            cell_between(cell, (from, to), &writes, &reads, &unsure, &together)?;
        }
    }
    Ok(())
}

/// The history of a cell between two losses of all unflushed copies. Its initial content is one of the earlier values,
/// and not older than the durable one.
fn cell_between(
    cell: (usize, u64),
    (from, to): (u64, u64),
    writes: &[&WriteRecord],
    reads: &[(&ReadRecord, Value)],
    unsure: &BTreeSet<Value>,
    together: &BTreeMap<Value, u64>,
) -> Verdict {
    let mut clusters: BTreeMap<Value, ValueZone> = BTreeMap::new();
    let mut durable = Hlc::ZERO;
    for write in writes.iter().filter(|write| write.invoked_us < to) {
        let done_us = write.done.map_or(u64::MAX, |(done_us, _)| done_us);
        if done_us <= from {
            if let (Some((_, stamp)), false) = (write.done, unsure.contains(&write.value)) {
                durable = durable.max(stamp);
            }
            continue;
        }
        let begin = write.invoked_us.max(from);
        // A write in flight at the loss may have been answered before it, and the answer received after it.
        let is_open = write.invoked_us < from && unsure.contains(&write.value);
        let first_end = if done_us <= to && !is_open { done_us } else { u64::MAX };
        let first_end = match together.get(&write.value) {
            Some(by) if *by <= to => first_end.min(*by).max(from),
            _ => first_end,
        };
        let cluster =
            ValueZone { value: write.value, first_end, last_begin: begin, written_from: begin, by: String::new() };
        clusters.insert(write.value, cluster);
    }
    for (read, value) in reads.iter().filter(|(read, _)| read.invoked_us >= from && read.done_us <= to) {
        if !clusters.contains_key(value) {
            let write = writes.iter().find(|write| write.value == *value && write.invoked_us < read.done_us);
            let stamp = write.and_then(|write| write.done).map_or(Hlc::ZERO, |(_, stamp)| stamp);
            if write.is_none() && *value != 0 {
                return broken(Rule::Linearizable, format!("cell {cell:?} shows {value}, which nobody wrote there"));
            }
            if stamp < durable && write.is_none_or(|write| write.done.is_some()) {
                let what = format!("cell {cell:?} shows {value} after a loss of power, and {durable} was durable");
                return broken(Rule::Durable, what);
            }
            let cluster =
                ValueZone { value: *value, first_end: from, last_begin: from, written_from: 0, by: String::new() };
            clusters.insert(*value, cluster);
        }
        let Some(cluster) = clusters.get_mut(value) else { continue };
        if read.done_us < cluster.written_from {
            return broken(Rule::Linearizable, format!("cell {cell:?} showed {value} before it was written"));
        }
        cluster.first_end = cluster.first_end.min(read.done_us);
        if read.invoked_us >= cluster.last_begin {
            cluster.last_begin = read.invoked_us;
            let (done_us, node, client) = (read.done_us, read.node, read.client);
            cluster.by = format!("client {client} at {node} from {} to {done_us} us", read.invoked_us);
        }
    }
    cell_is_linear(cell, &clusters)
}

fn cell_is_linear(cell: (usize, u64), clusters: &BTreeMap<Value, ValueZone>) -> Verdict {
    // A write without an answer and without a read may lie anywhere, or nowhere.
    let mut zones: Vec<(u64, u64, &ValueZone)> = clusters
        .values()
        .filter(|cluster| cluster.first_end != u64::MAX)
        .map(|cluster| {
            let (low, high) = (cluster.first_end.min(cluster.last_begin), cluster.first_end.max(cluster.last_begin));
            (low, high, cluster)
        })
        .collect();
    zones.sort_by_key(|(low, high, _)| (*low, *high));
    let tell = |one: &ValueZone, other: &ValueZone| {
        let words = |cluster: &ValueZone| {
            format!(
                "{} (there by {} us, still asked for at {} us{}{})",
                cluster.value,
                cluster.first_end,
                cluster.last_begin,
                if cluster.by.is_empty() { "" } else { ", last by " },
                cluster.by
            )
        };
        format!("cell {cell:?} cannot have held {} and {} one after the other", words(one), words(other))
    };
    let is_forward = |cluster: &ValueZone| cluster.first_end < cluster.last_begin;
    let mut last: Option<(u64, &ValueZone)> = None;
    for (low, high, cluster) in &zones {
        if !is_forward(cluster) {
            continue;
        }
        if let Some((end, before)) = last
            && *low < end
        {
            return broken(Rule::Linearizable, tell(before, cluster));
        }
        if last.is_none_or(|(end, _)| *high > end) {
            last = Some((*high, cluster));
        }
    }
    for (low, high, cluster) in zones.iter().filter(|(_, _, cluster)| !is_forward(cluster)) {
        let within = zones.iter().find(|(from, to, other)| is_forward(other) && from < low && high < to);
        if let Some((_, _, other)) = within {
            return broken(Rule::Linearizable, tell(other, cluster));
        }
    }
    Ok(())
}

/// A cut is ordered with writes of other clients, whichever server stamped them; a read of now returns what the newest
/// stamp left.
fn cuts(history: &History) -> Verdict {
    let writes: Vec<&WriteRecord> = history.writes.iter().filter(|write| write.cells.file == CUT).collect();
    for cut in &history.cuts {
        let Some((cut_us, cut_at)) = cut.done else { continue };
        for write in writes.iter().filter(|write| write.cells.first + write.cells.count > cut.cell) {
            let Some((written_us, written_at)) = write.done else { continue };
            let survives = written_us < cut.invoked_us && written_at > cut_at;
            let is_hidden = cut_us < write.invoked_us && written_at < cut_at;
            if survives || is_hidden {
                let words = if survives { "survives a later cut" } else { "is hidden by an earlier cut" };
                let what = format!(
                    "write {} stamped {written_at} {words} at cell {}, stamped {cut_at}",
                    write.value, cut.cell
                );
                return broken(Rule::Linearizable, what);
            }
        }
    }
    let unsure = unsure(history);
    let open = history.cuts.iter().any(|cut| cut.done.is_none());
    for read in history.reads.iter().filter(|read| read.cells.file == CUT && !read.incomplete) {
        for ((_, cell), value) in read.cells.each().zip(&read.values) {
            let of_cell = |write: &&&WriteRecord| write.cells.each().any(|(_, at)| at == cell);
            let before =
                |done: Option<(u64, Hlc)>| done.filter(|(us, _)| *us < read.invoked_us).map(|(_, stamp)| stamp);
            let of_writes = writes.iter().filter(of_cell).filter(|write| !unsure.contains(&write.value));
            let of_cuts = history.cuts.iter().filter(|cut| cut.cell <= cell);
            let newest_write = of_writes.filter_map(|write| before(write.done)).max().unwrap_or(Hlc::ZERO);
            let newest_cut = of_cuts.clone().filter_map(|cut| before(cut.done)).max().unwrap_or(Hlc::ZERO);
            let must = newest_write.max(newest_cut);
            let found = writes.iter().find(|write| write.value == *value);
            let shown = match found {
                Some(write) if write.invoked_us > read.done_us || !of_cell(&write) => None,
                Some(write) => Some(write.done.map_or(Hlc::MAX, |(_, stamp)| stamp)),
                // An empty cell was cut, or never written.
                None if *value == 0 && open => Some(Hlc::MAX),
                None if *value == 0 => {
                    let may = of_cuts.filter(|cut| cut.invoked_us < read.done_us);
                    Some(may.filter_map(|cut| cut.done).map(|(_, stamp)| stamp).max().unwrap_or(Hlc::ZERO))
                }
                None => None,
            };
            if shown.is_none_or(|shown| shown < must) {
                let (node, done_us) = (read.node, read.done_us);
                let what = format!(
                    "cell {cell} of the file that is cut is {value} as {node} says from {} to {done_us} us, but write \
                     {newest_write} and cut {newest_cut} were done",
                    read.invoked_us
                );
                return broken(Rule::Linearizable, what);
            }
        }
    }
    Ok(())
}

/// The writes of each cell that are known to have happened, by stamp.
fn by_stamp<'a>(
    history: &'a History,
    unsure: &BTreeSet<Value>,
) -> BTreeMap<(usize, u64), BTreeMap<Hlc, &'a WriteRecord>> {
    let mut found: BTreeMap<(usize, u64), BTreeMap<Hlc, &WriteRecord>> = BTreeMap::new();
    let together: BTreeSet<Value> = history.together.iter().map(|one| one.value).collect();
    for write in history.writes.iter().filter(|write| !unsure.contains(&write.value)) {
        let Some((_, stamp)) = write.done else { continue };
        for cell in write.cells.each() {
            // A head and the metalog may stamp alike what runs at the same time: everywhere the change lies over the
            // record.
            let known = found.entry(cell).or_default().entry(stamp).or_insert(write);
            if !together.contains(&known.value) {
                *known = write;
            }
        }
    }
    found
}

fn cells_then(history: &History) -> Verdict {
    let mut unknown = unsure(history);
    let known = by_stamp(history, &unknown);
    unknown.extend(history.writes.iter().filter(|write| write.done.is_none()).map(|write| write.value));
    for (&(file, cell, at), &(value, node)) in &history.cells_at {
        let mut last = known.get(&(file, cell)).and_then(|writes| writes.range(..=at).next_back());
        if file == CUT {
            let cuts = history.cuts.iter().filter(|cut| cut.cell <= cell);
            let newest =
                cuts.clone().filter_map(|cut| cut.done).map(|(_, stamp)| stamp).filter(|stamp| *stamp <= at).max();
            last = last.filter(|(stamp, _)| newest.is_none_or(|newest| newest < **stamp));
            if value == 0 && cuts.clone().any(|cut| cut.done.is_none()) {
                continue;
            }
        }
        let expected = last.map_or(0, |(_, write)| write.value);
        if value != expected && !unknown.contains(&value) {
            let words = match last {
                Some((stamp, write)) => format!(
                    "write {} (client {}{}) was stamped {stamp} at most",
                    write.value,
                    write.client,
                    if write.sync { ", sync" } else { "" }
                ),
                None => "nothing was written by then".to_owned(),
            };
            return broken(
                Rule::SameForEver,
                format!("cell {cell} of file {file} at {at} is {value} as {node} says, but {words}"),
            );
        }
    }
    Ok(())
}

/// The parts of an atomic multi-write are visible together at every instant, also if no client received its stamp: then
/// a stamp has to exist that fits all reads.
fn together(history: &History) -> Verdict {
    let open: Vec<_> = history.together.iter().filter(|one| !one.is_done).collect();
    if open.is_empty() {
        return Ok(());
    }
    let known = by_stamp(history, &unsure(history));
    let stamp_of = |value: Value| match value {
        0 => Some(Hlc::ZERO),
        _ => history.writes.iter().find(|write| write.value == value)?.done.map(|(_, stamp)| stamp),
    };
    for one in open {
        let cells: Vec<(usize, u64)> = one.parts.iter().flat_map(|part| part.each()).collect();
        let asked = |(file, cell): (usize, u64)| {
            let all = (file, cell, Hlc::ZERO)..=(file, cell, Hlc::MAX);
            history.cells_at.range(all).map(|((_, _, at), (value, node))| (*at, *value, *node))
        };
        // It is stamped above the one and at or below the other.
        let (mut above, mut upto) = (one.newest_before, None);
        for cell in &cells {
            for (at, ..) in asked(*cell).filter(|(_, value, _)| *value == one.value) {
                let before = known.get(cell).and_then(|writes| writes.range(..=at).next_back());
                above = above.max(before.map_or(Hlc::ZERO, |(stamp, _)| *stamp));
                upto = Some(upto.map_or(at, |upto: Hlc| upto.min(at)));
            }
        }
        let Some(upto) = upto else { continue };
        for cell in &cells {
            let others = asked(*cell).filter(|(at, value, _)| *at >= upto && *value != one.value);
            for (at, value, node) in others {
                if stamp_of(value).is_some_and(|stamp| stamp <= above) {
                    let what = format!(
                        "{} was written together and is there at {upto}, but cell {cell:?} of it is {value} at {at} as \
                         {node} says",
                        one.value
                    );
                    return broken(Rule::Whole, what);
                }
            }
        }
    }
    Ok(())
}

/// From when to when a name lived.
#[derive(Default)]
struct Life {
    /// Beginning and end of the call that made it.
    made: Option<(u64, u64, Option<Hlc>)>,
    /// The same of the one that removed it.
    removed: Option<(u64, u64, Option<Hlc>)>,
}

fn names(history: &History) -> Verdict {
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for record in &history.names {
        let (done_us, stamp) = match &record.done {
            Some((_, Err(()))) => continue,
            Some((done_us, Ok(stamp))) => (*done_us, Some(*stamp)),
            None => (u64::MAX, None),
        };
        let call = (record.invoked_us, done_us, stamp);
        let (made, removed) = match &record.op {
            NameOp::Make { name } => (Some(name), None),
            NameOp::Rename { from, to } => (Some(to), Some(from)),
            NameOp::Remove { name } => (None, Some(name)),
        };
        if let Some(name) = made {
            let life = lives.entry(name).or_default();
            if life.made.replace(call).is_some() {
                return broken(Rule::Once, format!("{name} was made twice"));
            }
        }
        if let Some(name) = removed {
            let life = lives.entry(name).or_default();
            let before = life.removed.replace(call);
            if let (Some((_, _, Some(_))), Some(_)) = (before, stamp) {
                return broken(Rule::Once, format!("{name} was taken away twice"));
            }
            if let Some(kept @ (_, _, Some(_))) = before {
                life.removed = Some(kept);
            }
        }
    }
    for record in &history.names {
        let Some((done_us, Err(()))) = record.done else { continue };
        let name = match &record.op {
            NameOp::Make { name } => {
                return broken(Rule::Once, format!("{name} could not be made, and nobody else makes it"));
            }
            NameOp::Rename { from, .. } => from,
            NameOp::Remove { name } => name,
        };
        let is_removed =
            lives.get(name.as_str()).and_then(|life| life.removed).is_some_and(|(from, ..)| from <= done_us);
        if !is_removed {
            return broken(Rule::Linearizable, format!("{:?} found no {name}, which nobody had taken away", record.op));
        }
    }
    for list in &history.lists {
        let shown: BTreeSet<&str> = list.names.iter().map(String::as_str).collect();
        for (name, life) in lives.iter().filter(|(name, _)| !history.doubtful_names.contains(**name)) {
            let there = life.made.is_some_and(|(_, done, _)| done < list.invoked_us)
                && life.removed.is_none_or(|(from, ..)| from > list.done_us);
            let never = life.made.is_none_or(|(from, ..)| from > list.done_us)
                || life.removed.is_some_and(|(_, done, _)| done < list.invoked_us);
            let is_shown = shown.contains(name);
            if (there && !is_shown) || (never && is_shown) {
                let words = if is_shown { "shows" } else { "misses" };
                return broken(
                    Rule::Linearizable,
                    format!(
                        "a listing by {} from {} to {} us {words} {name}",
                        list.node, list.invoked_us, list.done_us
                    ),
                );
            }
        }
        if let Some(name) = shown.iter().find(|name| !lives.contains_key(*name)) {
            return broken(Rule::Linearizable, format!("a listing shows {name}, which nobody made"));
        }
    }
    for (at, (shown, node)) in &history.names_at {
        let shown: BTreeSet<&str> = shown.iter().map(String::as_str).collect();
        for (name, life) in &lives {
            let known = life.made.is_none_or(|(_, _, stamp)| stamp.is_some())
                && life.removed.is_none_or(|(_, _, stamp)| stamp.is_some());
            let stamp = |call: Option<(u64, u64, Option<Hlc>)>| call.and_then(|(_, _, stamp)| stamp);
            let lived = stamp(life.made).is_some_and(|made| made <= *at)
                && stamp(life.removed).is_none_or(|removed| removed > *at);
            if known && lived != shown.contains(name) {
                let words = if lived { "is missing" } else { "is shown" };
                return broken(
                    Rule::SameForEver,
                    format!(
                        "{name} {words} at {at} as {node} says: it lived from {:?} to {:?}",
                        stamp(life.made),
                        stamp(life.removed)
                    ),
                );
            }
        }
    }
    Ok(())
}
