//! One event of the load, and the names of its files.

use std::fmt;
use std::ops::Range;

/// A call to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadCall {
    /// A file is opened for reading.
    Open,
    /// A file is created.
    Create,
    /// Bytes are read.
    Read,
    /// Bytes are written behind the others.
    Write,
    /// A stream ends.
    Close,
    /// A file gets another name: from `place` to `to`.
    Rename,
    /// A file is removed.
    Unlink,
}

/// Why a call is made. Numbers are those of the column `purpose` in traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LoadPurpose {
    /// A get waits for it.
    Read = 1,
    /// The write-ahead log.
    Log = 2,
    /// A memstore goes to files.
    Flush = 3,
    /// Files are merged into one.
    Compaction = 4,
}

/// Where a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilePlace {
    /// `.tmp` of its region: not yet whole.
    Temporary,
    /// The directory of its family.
    Store,
    /// The archive: merged into another, to be removed soon.
    Archive,
    /// The log that is written.
    Log,
    /// Logs that were rolled.
    OldLog,
}

/// A file of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadFile<'a> {
    /// Its identity, from 1, through every name it has.
    pub number: u64,
    /// Its region; 0 for logs.
    pub region: u32,
    /// The name of its column family; `None` for logs.
    pub family: Option<&'a str>,
    /// Its place among the families; their count for logs.
    pub family_index: usize,
}

impl LoadFile<'_> {
    /// Its path while it lies at `place`, as HBase names it.
    pub fn path(self, place: FilePlace) -> impl fmt::Display {
        LoadPath { file: self, place }
    }
}

struct LoadPath<'a> {
    file: LoadFile<'a>,
    place: FilePlace,
}

impl fmt::Display for LoadPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadFile { number, region, family, .. } = self.file;
        let family = family.unwrap_or("log");
        match self.place {
            FilePlace::Temporary => write!(f, "/hbase/data/default/messages/region-{region:04}/.tmp/{number:016x}"),
            FilePlace::Store => write!(f, "/hbase/data/default/messages/region-{region:04}/{family}/{number:016x}"),
            FilePlace::Archive => {
                write!(f, "/hbase/archive/data/default/messages/region-{region:04}/{family}/{number:016x}")
            }
            FilePlace::Log => write!(f, "/hbase/WALs/regionserver-1/log.{number:016x}"),
            FilePlace::OldLog => write!(f, "/hbase/oldWALs/log.{number:016x}"),
        }
    }
}

/// One call of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadEvent<'a> {
    /// When, in nanoseconds since the load began.
    pub t_ns: i64,
    /// What.
    pub call: LoadCall,
    /// Of which file.
    pub file: LoadFile<'a>,
    /// Where it lies.
    pub place: FilePlace,
    /// Where it lies afterwards; only for renames.
    pub to: Option<FilePlace>,
    /// First byte; 0 if no bytes move.
    pub offset: u64,
    /// Bytes that move.
    pub len: u64,
    /// Calls that this event stands for, at least 1: they lie one behind the other.
    pub count: u32,
    /// Number of the open file; 0 for renames and removals.
    pub stream: u64,
    /// Why.
    pub purpose: LoadPurpose,
    /// The blocks of a store file that move, by numbers that are unique in the load; empty for logs.
    pub blocks: Range<u64>,
}
