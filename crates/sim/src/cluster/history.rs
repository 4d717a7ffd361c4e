//! Requests and answers of all clients, with their times.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::NodeId;
use frieze_hlc::Hlc;

use super::lost_names::DoubtfulAnswer;
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, Violation};

/// Content of a cell: the number of a write, 0 before the first.
pub(super) type Value = u64;

/// A file that clients share.
#[derive(Clone, Debug)]
pub(super) struct FileInfo {
    pub(super) path: String,
    pub(super) inode: u64,
}

/// A range of cells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cells {
    pub(super) file: usize,
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Cells {
    pub(super) fn each(self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..self.first + self.count).map(move |cell| (self.file, cell))
    }
}

#[derive(Clone, Debug)]
pub(super) struct WriteRecord {
    pub(super) cells: Cells,
    pub(super) value: Value,
    pub(super) client: usize,
    pub(super) invoked_us: u64,
    /// Newest stamp that the client had received when it asked.
    pub(super) newest_before: Hlc,
    /// When it was answered, and its stamp.
    pub(super) done: Option<(u64, Hlc)>,
    pub(super) sync: bool,
}

/// A change that wrote several places. Each place has a [`WriteRecord`] of its own, of this value.
#[derive(Clone, Debug)]
pub(super) struct TogetherRecord {
    pub(super) value: Value,
    pub(super) parts: Vec<Cells>,
    /// Newest stamp that the client had received when it asked.
    pub(super) newest_before: Hlc,
    /// It was answered.
    pub(super) is_done: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ReadRecord {
    pub(super) cells: Cells,
    pub(super) values: Vec<Value>,
    pub(super) invoked_us: u64,
    pub(super) done_us: u64,
    pub(super) node: NodeId,
    pub(super) client: usize,
    /// It said that something may be missing of it.
    pub(super) incomplete: bool,
}

#[derive(Clone, Debug)]
pub(super) struct AppendRecord {
    pub(super) file: usize,
    pub(super) client: usize,
    pub(super) value: Value,
    pub(super) cells: u64,
    pub(super) newest_before: Hlc,
    /// When it was answered, its stamp, and where it was put.
    pub(super) done: Option<(u64, Hlc, u64)>,
    pub(super) invoked_us: u64,
    pub(super) sync: bool,
}

/// The file that is cut lost everything from a cell on.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutRecord {
    pub(super) cell: u64,
    pub(super) invoked_us: u64,
    pub(super) newest_before: Hlc,
    pub(super) done: Option<(u64, Hlc)>,
}

/// A barrier that was answered: the client's acknowledged writes of the file survive from then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncRecord {
    pub(super) file: usize,
    pub(super) client: usize,
    pub(super) invoked_us: u64,
    pub(super) done_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameOp {
    Make { name: String },
    Rename { from: String, to: String },
    Remove { name: String },
}

#[derive(Clone, Debug)]
pub(super) struct NameRecord {
    pub(super) op: NameOp,
    pub(super) invoked_us: u64,
    pub(super) newest_before: Hlc,
    pub(super) sync: bool,
    /// When it was answered: its stamp, or that there was no such name.
    pub(super) done: Option<(u64, Result<Hlc, ()>)>,
}

/// A listing of a directory.
#[derive(Clone, Debug)]
pub(super) struct ListRecord {
    pub(super) names: Vec<String>,
    pub(super) invoked_us: u64,
    pub(super) done_us: u64,
    pub(super) node: NodeId,
}

/// All of it.
pub(super) struct History {
    pub(super) trace: Trace,
    pub(super) ready: bool,
    pub(super) operations: u64,
    pub(super) files: Vec<FileInfo>,
    pub(super) logs: Vec<FileInfo>,
    pub(super) writes: Vec<WriteRecord>,
    pub(super) together: Vec<TogetherRecord>,
    pub(super) reads: Vec<ReadRecord>,
    pub(super) syncs: Vec<SyncRecord>,
    pub(super) cuts: Vec<CutRecord>,
    /// Times at which all copies of unflushed records of a chain were lost.
    pub(super) lost: Vec<(u64, u32)>,
    /// Losses that included what was on stable storage: the only machine with the bytes could not start any more. Reads
    /// of these say so.
    pub(super) ruined: Vec<u64>,
    /// When a machine was first lost for good.
    pub(super) buried_us: Option<u64>,
    /// Intervals in which servers declared names lost, both ends exclusive.
    pub(super) names_lost: BTreeSet<(Hlc, Hlc)>,
    pub(super) doubts: Vec<DoubtfulAnswer>,
    /// Names that a lost change made or took away: listings of now may show them and miss them later.
    pub(super) doubtful_names: BTreeSet<String>,
    /// Values of atomic multi-writes that may be lost so.
    pub(super) lost_values: BTreeSet<Value>,
    /// An instant that a server named as now.
    pub(super) named: Option<Hlc>,
    pub(super) appends: Vec<AppendRecord>,
    pub(super) names: Vec<NameRecord>,
    pub(super) lists: Vec<ListRecord>,
    /// Names that the last listing showed.
    pub(super) present: Vec<String>,
    /// Answers about a cell at an instant.
    pub(super) cells_at: BTreeMap<(usize, u64, Hlc), (Value, NodeId)>,
    /// Answers about the names at an instant.
    pub(super) names_at: BTreeMap<Hlc, (Vec<String>, NodeId)>,
    /// Stamp of the last thing that was made before all clients began.
    pub(super) born: Hlc,
    /// Instants worth asking for.
    pub(super) instants: Vec<Hlc>,
    pub(super) violation: Option<Violation>,
    next_value: Value,
}

impl History {
    pub(super) fn new(trace: Trace) -> History {
        History {
            trace,
            ready: false,
            operations: 0,
            files: Vec::new(),
            logs: Vec::new(),
            writes: Vec::new(),
            together: Vec::new(),
            reads: Vec::new(),
            syncs: Vec::new(),
            cuts: Vec::new(),
            lost: Vec::new(),
            ruined: Vec::new(),
            buried_us: None,
            names_lost: BTreeSet::new(),
            doubts: Vec::new(),
            doubtful_names: BTreeSet::new(),
            lost_values: BTreeSet::new(),
            named: None,
            appends: Vec::new(),
            names: Vec::new(),
            lists: Vec::new(),
            present: Vec::new(),
            cells_at: BTreeMap::new(),
            names_at: BTreeMap::new(),
            born: Hlc::ZERO,
            instants: Vec::new(),
            violation: None,
            next_value: 0,
        }
    }

    pub(super) fn fresh_value(&mut self) -> Value {
        self.next_value += 1;
        self.next_value
    }

    /// Records a violation: the first counts.
    pub(super) fn note<T>(&mut self, verdict: Verdict<T>) -> Option<T> {
        match verdict {
            Ok(value) => Some(value),
            Err(violation) => {
                self.trace.line(|| format!("broken: {violation}"));
                self.violation.get_or_insert(violation);
                None
            }
        }
    }

    /// Cells at an instant were read: they have to equal the earlier answer.
    pub(super) fn remember_cells(&mut self, cells: Cells, at: Hlc, values: &[Value], node: NodeId) {
        for ((file, cell), value) in cells.each().zip(values) {
            let (known, by) = *self.cells_at.entry((file, cell, at)).or_insert((*value, node));
            if known != *value {
                let what = format!(
                    "cell {cell} of file {file} at {at} was {known} as {by} said, and is {value} as {node} says"
                );
                self.doubt(at, Rule::SameForEver, what);
            }
        }
    }

    /// The same of names.
    pub(super) fn remember_names(&mut self, at: Hlc, names: Vec<String>, node: NodeId) {
        let (known, by) = self.names_at.entry(at).or_insert_with(|| (names.clone(), node));
        if *known != names {
            let what = format!("the names at {at} were {known:?} as {by} said, and are {names:?} as {node} says");
            self.doubt(at, Rule::SameForEver, what);
        }
    }
}
