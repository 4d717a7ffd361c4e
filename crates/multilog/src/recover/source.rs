//! The files of a log as recovery reads them.

use frieze_base::{Fault, Reason};

use crate::discarded::Discards;
use crate::index_run::RunKey;
use crate::pack::PackIndex;

/// The driver's name of a segment file, such as the number in the file's name. Not the segment id: files are recycled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey(pub u64);

/// The segment files as the driver can read them.
pub trait LogSource {
    /// Every segment file and its length in bytes, in any order.
    fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Fault>;

    /// Reads from `offset` and returns how many bytes were read: fewer than asked only at the end of the file.
    fn read(&mut self, key: SegmentKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault>;

    /// Records that their chains do not have: they are passed over. None where nothing was discarded.
    fn discarded(&mut self) -> Vec<Discards> {
        Vec::new()
    }

    /// The packs in use. None where nothing was packed.
    fn packs(&mut self) -> Vec<PackIndex> {
        Vec::new()
    }

    /// Every index run file, in any order. None without more ado: segments are enough.
    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        Ok(Vec::new())
    }

    /// Reads an index run file as [`LogSource::read`] reads a segment.
    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let _ = (offset, into);
        Err(Fault::new(Reason::NotFound, format!("there is no index_run {key}")))
    }
}
