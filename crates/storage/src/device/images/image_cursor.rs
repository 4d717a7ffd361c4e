//! How far history was searched for pages that need images: durable, so that a restart continues there.

use frieze_base::Fault;
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use prost::Message;

/// The file that holds the cursor.
const FILE: &str = "images";

/// The cursor and its stored form.
pub(super) struct ImageCursor {
    state: Mutex<levels::ImageCursor, CursorState>,
}

struct CursorState {
    current: CursorRecord,
    written: CursorRecord,
    file: Option<StateFile>,
}

/// The stored form. Without it, all of history is searched again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CursorRecord {
    /// The limit of pieces that was in force.
    #[prost(uint32, tag = "1")]
    pieces_max: u32,
    /// Stamp up to which history was searched.
    #[prost(uint64, tag = "2")]
    upto: u64,
    /// Stamp from which images are missing; 0 if none is.
    #[prost(uint64, tag = "3")]
    missing_after: u64,
    /// Most pieces of a page at any instant.
    #[prost(uint64, tag = "4")]
    pieces_most: u64,
}

impl ImageCursor {
    pub(super) fn open(disk: &dyn Disk, pieces_max: u32, notes: &mut Vec<String>) -> ImageCursor {
        let (current, file) = match read_record(disk) {
            Ok(found) => found,
            Err(fault) => {
                notes.push(format!("how far images were made cannot be read, everything is looked at again: {fault}"));
                (CursorRecord::default(), None)
            }
        };
        // A lower limit needs more images, a higher one needs none of those that are missing.
        let current = if current.pieces_max == pieces_max { current } else { CursorRecord::default() };
        let current = CursorRecord { pieces_max, ..current };
        ImageCursor { state: Mutex::new(CursorState { written: current.clone(), current, file }) }
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, CursorState> {
        self.state.lock()
    }

    /// The stamp up to which history was searched, and the most pieces of a page up to there.
    pub(super) fn progress(&self) -> (Hlc, u64) {
        let state = self.lock();
        (Hlc(state.current.upto), state.current.pieces_most)
    }

    /// The stamp up to which history was searched.
    pub(super) fn upto(&self) -> Hlc {
        Hlc(self.lock().current.upto)
    }

    /// Records that history was searched up to `upto`, with at most so many pieces per page; `missing`: some pages
    /// exceed the limit and have no image.
    pub(super) fn advance_to(&self, upto: Hlc, pieces_most: usize, missing: bool) {
        let current = &mut self.lock().current;
        if missing && current.missing_after == 0 {
            current.missing_after = current.upto.max(1);
        }
        current.upto = upto.0;
        current.pieces_most = current.pieces_most.max(pieces_most as u64);
    }

    /// Nothing was written up to `upto`. That is not worth a flush of the disk: a restart finds it again.
    pub(super) fn skip_to(&self, upto: Hlc) {
        let CursorState { current, written, .. } = &mut *self.lock();
        if written.upto == current.upto {
            written.upto = upto.0;
        }
        current.upto = upto.0;
    }

    /// An image of a state stamped `stamp` was evicted: without it, a page consists of so many pieces.
    pub(super) fn note_evicted(&self, stamp: Hlc, pieces: usize) {
        let current = &mut self.lock().current;
        if stamp.0 <= current.upto && pieces as u64 > u64::from(current.pieces_max) {
            let before = stamp.previous().0.max(1);
            current.missing_after = if current.missing_after == 0 { before } else { current.missing_after.min(before) };
            current.pieces_most = current.pieces_most.max(pieces as u64);
        }
    }

    /// There is space again: the search restarts where images are missing. True if any are.
    pub(super) fn restart_if_missing(&self) -> bool {
        let current = &mut self.lock().current;
        if current.missing_after == 0 {
            return false;
        }
        // The first instants of a history are at 1 at least.
        current.upto = if current.missing_after == 1 { 0 } else { current.missing_after.min(current.upto) };
        current.missing_after = 0;
        current.pieces_most = current.pieces_most.min(current.pieces_max.into());
        true
    }

    /// Writes the cursor to disk, if it has changed.
    ///
    /// # Errors
    /// The disk's: a restart repeats the search since the last write.
    pub(super) fn write(&self, disk: &dyn Disk) -> Result<(), Fault> {
        let mut state = self.lock();
        if state.current == state.written {
            return Ok(());
        }
        if state.file.is_none() {
            state.file = Some(StateFile::open_or_create(disk, FILE)?);
        }
        state.file.as_ref().expect("just made").write(&state.current.encode_to_vec())?;
        state.written = state.current.clone();
        Ok(())
    }
}

fn read_record(disk: &dyn Disk) -> Result<(CursorRecord, Option<StateFile>), Fault> {
    if !disk.list()?.iter().any(|name| name == FILE) {
        return Ok((CursorRecord::default(), None));
    }
    let file = StateFile::open_or_create(disk, FILE)?;
    let current = file.read().and_then(|bytes| CursorRecord::decode(bytes.as_slice()).ok()).unwrap_or_default();
    Ok((current, Some(file)))
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn only_intervals_with_changes_are_written_to_disk() {
        let disk = SimDisk::new(1);
        let cursor = ImageCursor::open(&disk, 8, &mut Vec::new());
        let written = || read_record(&disk).expect("a disk that works").0.upto;
        cursor.advance_to(Hlc(100), 1, false);
        cursor.write(&disk).expect("a disk that works");
        cursor.skip_to(Hlc(200));
        cursor.write(&disk).expect("a disk that works");
        assert_eq!((cursor.upto(), written()), (Hlc(200), 100));
        cursor.advance_to(Hlc(300), 1, false);
        cursor.skip_to(Hlc(400));
        cursor.write(&disk).expect("a disk that works");
        assert_eq!((cursor.upto(), written()), (Hlc(400), 400));
    }

    #[test]
    fn any_bytes_are_a_cursor_or_none() {
        let kept = CursorRecord { pieces_max: 7, upto: 1 << 50, missing_after: 9, pieces_most: 300 };
        frieze_harness::fuzz!([kept.encode_to_vec()], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, |bytes| CursorRecord::decode(bytes).ok(), CursorRecord::encode_to_vec);
        });
    }
}
