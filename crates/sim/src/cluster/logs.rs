//! Files that all clients append to, over the ends of chunks that different servers head: what is done, and what is
//! promised of it.
//!
//! Promised: an append is there once, whole, in one piece and where it was said to be, at every server and every
//! instant; what lies before it was there first, so nothing shows a hole.

use std::collections::BTreeMap;

use frieze_base::{ChunkId, Fault, InodeId, NodeId, Reason, Seq};
use frieze_hlc::Hlc;
use frieze_wire::message::{Open, Reply, Request, Stat, View, Write};
use frieze_wire::txn::{Grant, Op, Target};

use super::client::Route;
use super::history::{AppendRecord, Cells, FileInfo, History, Value};
use super::judge::{losses_of, may_be_lost};
use super::work::{CELL_BYTES, CHUNK_BYTES, LOGS, Worker};
use crate::violation::{Rule, Verdict, broken};

/// Chunks that a log fills at most.
const CHUNKS: u64 = 6;
/// Cells of the largest append.
const APPEND_CELLS_MAX: u64 = 400;
const CHUNK_CELLS: u64 = CHUNK_BYTES / CELL_BYTES;
/// Cells that are looked at on either side of a chunk's end.
const SIDE_CELLS: u64 = 512;

/// Result of a read around the end of a chunk.
struct ChunkEndRead {
    log: usize,
    /// The first cell.
    first: u64,
    values: Vec<Value>,
    /// How many of them lie before the chunk's end.
    before: usize,
    when: ReadMoment,
    node: NodeId,
}

/// When it was shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMoment {
    /// As it was at an instant.
    At(Hlc),
    /// One side after the other, which of them first, asked for from then on.
    Now { before_first: bool, invoked_us: u64 },
}

impl Worker {
    pub(super) fn append(&mut self) -> Result<(), Fault> {
        let file = self.client.rng.below(LOGS as u64) as usize;
        let FileInfo { path, inode } = self.history().logs[file].clone();
        let mut end = self.ends.get(&inode).copied().unwrap_or(0);
        let cells = match self.client.rng.chance(2) {
            true => self.client.rng.between(20, APPEND_CELLS_MAX),
            false => self.client.rng.between(1, 4),
        };
        if end + 4 * APPEND_CELLS_MAX * CELL_BYTES > CHUNKS * CHUNK_BYTES {
            return Ok(());
        }
        let capability = self.capability(inode, &path)?;
        let value = self.history().fresh_value();
        let sync = self.client.rng.chance(self.mix.sync_one_in);
        let place = {
            let (newest_before, client, invoked_us) =
                (self.client.newest, self.client.identity(), self.client.now_us());
            let mut history = self.history();
            history.appends.push(AppendRecord {
                file,
                client,
                value,
                cells,
                newest_before,
                done: None,
                invoked_us,
                sync,
            });
            history.appends.len() - 1
        };
        let payload = value.to_le_bytes().repeat((cells * CELL_BYTES / 8) as usize);
        let (stamp, offset) = loop {
            let chunk = (end / CHUNK_BYTES) as u32;
            self.grant_append(inode, chunk)?;
            let write = Write {
                capability: capability.clone(),
                offset: end,
                append: true,
                durability: sync.into(),
                ..Write::default()
            };
            let route = Route::Write(ChunkId { inode: InodeId(inode), index: chunk });
            // What was refused is not asked again: it may go to another chunk, and is another request.
            let seq = self.client.number();
            match self.client.call(route, &Request::Write(write), &payload, seq) {
                Ok((Reply::Write(reply), ..)) => break (Hlc(reply.stamp), reply.offset),
                Ok(_) => return Err(Reason::BadFrame.into()),
                Err(fault) if fault.reason == Reason::Busy => {
                    self.granted.remove(&(inode, chunk));
                    end = self.length(&path)?;
                }
                Err(fault) => return Err(fault),
            }
        };
        self.ends.insert(inode, offset + cells * CELL_BYTES);
        let done_us = self.client.now_us();
        let mut history = self.history();
        history.appends[place].done = Some((done_us, stamp, offset));
        history.instants.push(stamp);
        history.instants.push(stamp.previous());
        Ok(())
    }

    fn grant_append(&mut self, inode: u64, chunk: u32) -> Result<(), Fault> {
        if self.granted.insert((inode, chunk)) {
            self.client.change(Op::GrantAppend(Grant { inode, first: chunk, count: 1 }), false)?;
        }
        Ok(())
    }

    fn length(&mut self, path: &str) -> Result<u64, Fault> {
        let stat = Stat { target: Target::path(path), view: View::default(), ..Stat::default() };
        match self.client.call(Route::Lead, &Request::Stat(stat), &[], Seq(0))? {
            (Reply::Stat(reply), ..) => Ok(reply.attr.size),
            _ => Err(Reason::BadFrame.into()),
        }
    }

    /// Looks at both sides of a chunk's end, now or at an instant.
    pub(super) fn read_log(&mut self, at: Option<Hlc>) -> Result<(), Fault> {
        let log = self.client.rng.below(LOGS as u64) as usize;
        let FileInfo { path, inode } = self.history().logs[log].clone();
        let last = self.ends.get(&inode).copied().unwrap_or(0) / CHUNK_BYTES;
        let end = self.client.rng.between(1, last.max(1)) * CHUNK_CELLS;
        let before_first = self.client.rng.chance(2);
        let invoked_us = self.client.now_us();
        let capability = match at {
            None => self.capability(inode, &path)?,
            Some(at) => {
                let view = View { at: Some(at.0), user_at: None };
                let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
                let node = self.client.any_node();
                match self.client.call(Route::At(node), &Request::Open(open), &[], Seq(0)) {
                    Ok((Reply::Open(reply), ..)) => reply.capability,
                    Ok(_) => return Err(Reason::BadFrame.into()),
                    // Its clock is behind that of the node that stamped it.
                    Err(fault) if fault.reason == Reason::Future => return Ok(()),
                    Err(fault) => return Err(fault),
                }
            }
        };
        let mut sides = [Vec::new(), Vec::new()];
        let mut shown_by = NodeId(0);
        for side in if before_first { [0, 1] } else { [1, 0] } {
            let first = if side == 0 { end - SIDE_CELLS } else { end };
            let chunk = ChunkId { inode: InodeId(inode), index: (first / CHUNK_CELLS) as u32 };
            let route = if self.client.rng.chance(3) { Route::Read(chunk) } else { Route::At(self.client.any_node()) };
            let (payload, node, incomplete) =
                match self.bytes(route, &capability, first * CELL_BYTES, SIDE_CELLS * CELL_BYTES) {
                    Err(fault) if fault.reason == Reason::Future && at.is_some() => return Ok(()),
                    read => read?,
                };
            let cells = Cells { file: log, first, count: SIDE_CELLS };
            let Some(values) = self.values(cells, &payload, node).filter(|_| !incomplete) else { return Ok(()) };
            (sides[side], shown_by) = (values, node);
        }
        let when = at.map_or(ReadMoment::Now { before_first, invoked_us }, ReadMoment::At);
        let (before, values) = (sides[0].len(), sides.concat());
        let shown = ChunkEndRead { log, first: end - SIDE_CELLS, values, before, when, node: shown_by };
        let mut history = self.history();
        let verdict = check_shown(&history, &shown);
        history.note(verdict);
        Ok(())
    }

    /// All of every log, as a node shows it now.
    pub(super) fn look_at_logs(&mut self, node: NodeId) -> Result<(), Fault> {
        for file in 0..LOGS {
            let FileInfo { path, inode } = self.history().logs[file].clone();
            let capability = self.capability(inode, &path)?;
            let mut found: Vec<Value> = Vec::new();
            // A client appends at the end that it knows: several clients may continue after a full last chunk.
            for chunk in 0..2 * CHUNKS {
                if chunk >= CHUNKS && found.last() == Some(&0) {
                    break;
                }
                let (payload, node, _) = self.bytes(Route::At(node), &capability, chunk * CHUNK_BYTES, CHUNK_BYTES)?;
                let cells = Cells { file, first: chunk * CHUNK_CELLS, count: CHUNK_CELLS };
                let Some(values) = self.values(cells, &payload, node) else { return Ok(()) };
                found.extend(values);
            }
            let used = found.iter().rposition(|value| *value != 0).map_or(0, |last| last + 1);
            found.truncate(used);
            let mut history = self.history();
            let verdict = check_whole(&history, file, &found, node);
            history.note(verdict);
        }
        Ok(())
    }
}

/// Cells of one value side by side: the first, and how many.
fn runs_of(
    values: &[Value],
    log: usize,
    node: NodeId,
) -> Result<BTreeMap<Value, (usize, u64)>, crate::violation::Violation> {
    let mut runs: BTreeMap<Value, (usize, u64)> = BTreeMap::new();
    for (place, value) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
        let (first, count) = runs.entry(*value).or_insert((place, 0));
        if *first as u64 + *count != place as u64 {
            let what = format!("append {value} lies in log {log} at {first} and again at {place}, as {node} says");
            return Err(crate::violation::Violation { rule: Rule::Once, what });
        }
        *count += 1;
    }
    Ok(runs)
}

fn appended(history: &History, log: usize) -> BTreeMap<Value, &AppendRecord> {
    let appends = history.appends.iter().filter(|append| append.file == log);
    appends.map(|append| (append.value, append)).collect()
}

fn check_shown(history: &History, shown: &ChunkEndRead) -> Verdict {
    let ChunkEndRead { log, first, values, before, when, node } = shown;
    let words = match when {
        ReadMoment::At(at) => format!("at {at}, as {node} says"),
        ReadMoment::Now { .. } => format!("now, as {node} says"),
    };
    let appends = appended(history, *log);
    let runs = runs_of(values, *log, *node)?;
    for (value, (place, count)) in &runs {
        let Some(append) = appends.get(value) else {
            return broken(Rule::Whole, format!("{value} is shown in log {log} {words}: nobody appended it"));
        };
        let end = place + *count as usize;
        // What goes on beyond what was looked at; what one side had not, or had no more, when it was looked at first.
        let goes_on = *place == 0 || end == values.len();
        let has_come = match when {
            ReadMoment::At(_) => false,
            ReadMoment::Now { before_first: true, .. } => place == before,
            ReadMoment::Now { before_first: false, .. } => end == *before,
        };
        // All copies of what was not flushed were lost between the looks at the two sides: the first may have shown
        // what is gone.
        let has_gone = match when {
            ReadMoment::At(_) => false,
            ReadMoment::Now { invoked_us, .. } => history.lost.iter().any(|(lost_us, _)| lost_us > invoked_us),
        };
        if *count > append.cells || *count < append.cells && !goes_on && !has_come && !has_gone {
            let what = format!("{count} cells of append {value} of {} are in log {log} {words}", append.cells);
            return broken(Rule::Whole, what);
        }
        if let (Some((_, stamp, _)), ReadMoment::At(at)) = (append.done, when)
            && stamp > *at
        {
            return broken(Rule::SameForEver, format!("append {value}, stamped {stamp}, is in log {log} {words}"));
        }
    }
    if !history.lost.is_empty() {
        // What may be missing is looked at when everything is over.
        return Ok(());
    }
    let range = first * CELL_BYTES..(first + values.len() as u64) * CELL_BYTES;
    for append in appends.values() {
        let Some((done_us, stamp, offset)) = append.done.filter(|(.., offset)| range.contains(offset)) else {
            continue;
        };
        let was_there = match when {
            ReadMoment::At(at) => stamp <= *at,
            ReadMoment::Now { invoked_us, .. } => done_us < *invoked_us,
        };
        let place = runs.get(&append.value).map(|(place, _)| (first + *place as u64) * CELL_BYTES);
        if was_there && place != Some(offset) {
            let what = format!("append {} was put at {offset} of log {log}, and is at {place:?} {words}", append.value);
            return broken(Rule::Durable, what);
        }
    }
    Ok(())
}

/// What a log holds in the end: everything that was acknowledged, once, and where it was said to be.
fn check_whole(history: &History, log: usize, found: &[Value], node: NodeId) -> Verdict {
    let appends = appended(history, log);
    let runs = runs_of(found, log, node)?;
    for (value, (place, count)) in &runs {
        match appends.get(value) {
            None => return broken(Rule::Whole, format!("{value} is in log {log}: nobody appended it")),
            Some(append) if append.cells != *count => {
                let what = format!("{count} cells of append {value} of {} are in log {log} at {place}", append.cells);
                return broken(Rule::Whole, what);
            }
            Some(_) => {}
        }
    }
    let chunks = CHUNKS.max((found.len() as u64).div_ceil(CHUNK_CELLS)) as u32;
    let losses: Vec<u64> = (0..chunks).flat_map(|chunk| losses_of(history, history.logs[log].inode, chunk)).collect();
    if losses.is_empty()
        && let Some(place) = found.iter().position(|value| *value == 0)
    {
        return broken(Rule::Whole, format!("log {log} has a hole at cell {place}, as {node} says"));
    }
    for append in appends.values() {
        let mut lost = losses.iter().filter(|lost_us| append.invoked_us < **lost_us);
        if lost.any(|lost_us| may_be_lost(history, LOG, append.client, append.sync, append.invoked_us, *lost_us)) {
            continue;
        }
        let place = runs.get(&append.value).map(|(place, _)| *place as u64 * CELL_BYTES);
        if let Some((.., offset)) = append.done
            && place != Some(offset)
        {
            let what = format!("append {} was put at {offset} of log {log}, and is at {place:?}", append.value);
            return broken(Rule::Durable, what);
        }
    }
    Ok(())
}

/// No barrier is about a file of appends.
const LOG: usize = usize::MAX;
