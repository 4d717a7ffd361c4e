//! Whether what was seen may be: judged when the run is over, from the whole history.
//!
//! - *Cells of now*: a register each, every write with a value of its own. A history of one is linearizable if and only if no
//!   two forward zones overlap and no backward zone lies within a forward one (Gibbons and Korach, *Testing Shared Memories*, 1997);
//!   a zone spans from the first answer to the last question about one value.
//! - *Cells at an instant*: exactly what the newest write stamped up to then left. With [`stamps`] it follows that every cut is
//!   causally closed: who had seen a stamp before asked for a change gets a larger one.
//! - *Appends*: each is there once, where it was said to be.
//! - *Names*: each name lives once, so a listing is wrong if it misses one that lived all the while, or shows one that
//!   cannot have lived.

use std::collections::{BTreeMap, BTreeSet};

use frieze_hlc::Hlc;

use super::history::{History, NameOp, Value, WriteRecord};
use crate::violation::{Rule, Verdict, broken};

/// All of it but what the servers are asked once more at the end.
pub(super) fn judge(history: &History) -> Verdict {
    stamps(history)?;
    cells_now(history)?;
    cells_then(history)?;
    names(history)
}

/// Every change is stamped above all that its client had seen, and no two writes of a cell have one stamp.
fn stamps(history: &History) -> Verdict {
    let writes =
        history.writes.iter().filter_map(|write| Some((write.seen, write.done?.1, format!("write {}", write.value))));
    let appends = history
        .appends
        .iter()
        .filter_map(|append| Some((append.seen, append.done?.0, format!("append {}", append.value))));
    let names = history
        .names
        .iter()
        .filter_map(|name| Some((name.seen, name.done.as_ref()?.1.ok()?, format!("{:?}", name.op))));
    for (seen, stamp, what) in writes.chain(appends).chain(names) {
        if stamp <= seen {
            return broken(
                Rule::StampsRise,
                format!("{what} is stamped {stamp}, and its client had seen {seen} before"),
            );
        }
    }
    let mut taken = BTreeMap::new();
    for write in &history.writes {
        let Some((_, stamp)) = write.done else { continue };
        for cell in write.cells.each() {
            if let Some(other) = taken.insert((cell, stamp), write.value) {
                return broken(
                    Rule::StampsRise,
                    format!("writes {other} and {} of {cell:?} are stamped {stamp}", write.value),
                );
            }
        }
    }
    Ok(())
}

/// What is known of one value of one cell.
struct Cluster {
    value: Value,
    /// The first end and the last beginning of what wrote or read it.
    first_end: u64,
    last_begin: u64,
    written_from: u64,
    by: String,
}

fn cells_now(history: &History) -> Verdict {
    let mut clusters: BTreeMap<(usize, u64), BTreeMap<Value, Cluster>> = BTreeMap::new();
    for write in &history.writes {
        for cell in write.cells.each() {
            let cluster = Cluster {
                value: write.value,
                first_end: write.done.map_or(u64::MAX, |(done_us, _)| done_us),
                last_begin: write.invoked_us,
                written_from: write.invoked_us,
                by: String::new(),
            };
            clusters.entry(cell).or_default().insert(write.value, cluster);
        }
    }
    for read in &history.reads {
        for (cell, value) in read.cells.each().zip(&read.values) {
            let cell_clusters = clusters.entry(cell).or_default();
            if *value == 0 {
                cell_clusters.entry(0).or_insert_with(|| Cluster {
                    value: 0,
                    first_end: 0,
                    last_begin: 0,
                    written_from: 0,
                    by: String::new(),
                });
            }
            let Some(cluster) = cell_clusters.get_mut(value) else {
                return broken(Rule::Linearizable, format!("cell {cell:?} shows {value}, which nobody wrote there"));
            };
            if read.done_us < cluster.written_from {
                return broken(Rule::Linearizable, format!("cell {cell:?} showed {value} before it was written"));
            }
            cluster.first_end = cluster.first_end.min(read.done_us);
            if read.invoked_us >= cluster.last_begin {
                cluster.last_begin = read.invoked_us;
                cluster.by =
                    format!("client {} at {} from {} to {} us", read.client, read.node, read.invoked_us, read.done_us);
            }
        }
    }
    for (cell, clusters) in &clusters {
        cell_is_linear(*cell, clusters)?;
    }
    Ok(())
}

fn cell_is_linear(cell: (usize, u64), clusters: &BTreeMap<Value, Cluster>) -> Verdict {
    // What was never answered and never seen may lie anywhere, or nowhere.
    let mut zones: Vec<(u64, u64, &Cluster)> = clusters
        .values()
        .filter(|cluster| cluster.first_end != u64::MAX)
        .map(|cluster| {
            let (low, high) = (cluster.first_end.min(cluster.last_begin), cluster.first_end.max(cluster.last_begin));
            (low, high, cluster)
        })
        .collect();
    zones.sort_by_key(|(low, high, _)| (*low, *high));
    let tell = |one: &Cluster, other: &Cluster| {
        let words = |cluster: &Cluster| {
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
    let is_forward = |cluster: &Cluster| cluster.first_end < cluster.last_begin;
    let mut last: Option<(u64, &Cluster)> = None;
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

/// The writes of each cell that are known to have happened, by stamp.
pub(super) fn by_stamp(history: &History) -> BTreeMap<(usize, u64), BTreeMap<Hlc, &WriteRecord>> {
    let mut found: BTreeMap<(usize, u64), BTreeMap<Hlc, &WriteRecord>> = BTreeMap::new();
    for write in &history.writes {
        let Some((_, stamp)) = write.done else { continue };
        for cell in write.cells.each() {
            found.entry(cell).or_default().insert(stamp, write);
        }
    }
    found
}

fn cells_then(history: &History) -> Verdict {
    let known = by_stamp(history);
    let unknown: BTreeSet<Value> =
        history.writes.iter().filter(|write| write.done.is_none()).map(|write| write.value).collect();
    for (&(file, cell, at), &(value, node)) in &history.cells_at {
        let last = known.get(&(file, cell)).and_then(|writes| writes.range(..=at).next_back());
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
        let gone = lives.get(name.as_str()).and_then(|life| life.removed).is_some_and(|(from, ..)| from <= done_us);
        if !gone {
            return broken(Rule::Linearizable, format!("{:?} found no {name}, which nobody had taken away", record.op));
        }
    }
    for list in &history.lists {
        let shown: BTreeSet<&str> = list.names.iter().map(String::as_str).collect();
        for (name, life) in &lives {
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

/// What a file of appends holds, record after record: every one that was acknowledged, once, and where it was said to be.
pub(super) fn appended(history: &History, file: usize, found: &[Value], record_bytes: u64) -> Verdict {
    let mut places: BTreeMap<Value, usize> = BTreeMap::new();
    for (place, value) in found.iter().enumerate() {
        if let Some(first) = places.insert(*value, place) {
            return broken(Rule::Once, format!("append {value} is in log {file} twice: at {first} and at {place}"));
        }
    }
    for append in history.appends.iter().filter(|append| append.file == file) {
        let place = places.remove(&append.value);
        if let Some((_, offset)) = append.done
            && place.map(|place| place as u64 * record_bytes) != Some(offset)
        {
            return broken(
                Rule::Durable,
                format!("append {} was put at {offset} of log {file}, and is record {place:?} of it", append.value),
            );
        }
    }
    match places.into_iter().next() {
        Some((value, place)) => {
            broken(Rule::Whole, format!("record {place} of log {file} is {value}, which nobody appended"))
        }
        None => Ok(()),
    }
}
