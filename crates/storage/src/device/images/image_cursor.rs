//! How far history was searched for pages that need images: durable, so that a restart continues there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::Fault;
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use prost::Message;

use super::ImageBudget;

/// The file that holds the cursor.
const FILE: &str = "images";

/// The cursor and its stored form.
pub(super) struct Swept {
    state: Mutex<State>,
}

struct State {
    kept: Kept,
    written: Kept,
    file: Option<StateFile>,
}

/// The stored form. Without it, all of history is searched again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Kept {
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

impl Swept {
    pub(super) fn open(disk: &dyn Disk, budget: &ImageBudget, notes: &mut Vec<String>) -> Swept {
        let (kept, file) = match read_kept(disk) {
            Ok(found) => found,
            Err(fault) => {
                notes.push(format!("how far images were made cannot be read, everything is looked at again: {fault}"));
                (Kept::default(), None)
            }
        };
        // A lower limit needs more images, a higher one needs none of those that are missing.
        let kept = if kept.pieces_max == budget.pieces_max { kept } else { Kept::default() };
        let kept = Kept { pieces_max: budget.pieces_max, ..kept };
        Swept { state: Mutex::new(State { written: kept.clone(), kept, file }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp up to which history was searched, and the most pieces of a page up to there.
    pub(super) fn told(&self) -> (Hlc, u64) {
        let state = self.lock();
        (Hlc(state.kept.upto), state.kept.pieces_most)
    }

    /// The stamp up to which history was searched.
    pub(super) fn upto(&self) -> Hlc {
        Hlc(self.lock().kept.upto)
    }

    /// Records that history was searched up to `upto`, with at most so many pieces per page; `missing`: some pages
    /// exceed the limit and have no image.
    pub(super) fn come_to(&self, upto: Hlc, pieces_most: usize, missing: bool) {
        let kept = &mut self.lock().kept;
        if missing && kept.missing_after == 0 {
            kept.missing_after = kept.upto.max(1);
        }
        kept.upto = upto.0;
        kept.pieces_most = kept.pieces_most.max(pieces_most as u64);
    }

    /// Nothing was written up to `upto`. That is not worth a flush of the disk: a restart finds it again.
    pub(super) fn pass_over(&self, upto: Hlc) {
        let State { kept, written, .. } = &mut *self.lock();
        if written.upto == kept.upto {
            written.upto = upto.0;
        }
        kept.upto = upto.0;
    }

    /// An image of a state stamped `stamp` was evicted: without it, a page consists of so many pieces.
    pub(super) fn give_up(&self, stamp: Hlc, pieces: usize) {
        let kept = &mut self.lock().kept;
        if stamp.0 <= kept.upto && pieces as u64 > u64::from(kept.pieces_max) {
            let before = stamp.previous().0.max(1);
            kept.missing_after = if kept.missing_after == 0 { before } else { kept.missing_after.min(before) };
            kept.pieces_most = kept.pieces_most.max(pieces as u64);
        }
    }

    /// There is space again: the search restarts where images are missing. True if any are.
    pub(super) fn begin_again(&self) -> bool {
        let kept = &mut self.lock().kept;
        if kept.missing_after == 0 {
            return false;
        }
        // The first instants of a history are at 1 at least.
        kept.upto = if kept.missing_after == 1 { 0 } else { kept.missing_after.min(kept.upto) };
        kept.missing_after = 0;
        kept.pieces_most = kept.pieces_most.min(kept.pieces_max.into());
        true
    }

    /// Writes the cursor to disk, if it has changed.
    ///
    /// # Errors
    /// The disk's: a restart repeats the search since the last write.
    pub(super) fn keep(&self, disk: &dyn Disk) -> Result<(), Fault> {
        let mut state = self.lock();
        if state.kept == state.written {
            return Ok(());
        }
        if state.file.is_none() {
            state.file = Some(StateFile::open_or_create(disk, FILE)?);
        }
        state.file.as_ref().expect("just made").write(&state.kept.encode_to_vec())?;
        state.written = state.kept.clone();
        Ok(())
    }
}

fn read_kept(disk: &dyn Disk) -> Result<(Kept, Option<StateFile>), Fault> {
    if !disk.list()?.iter().any(|name| name == FILE) {
        return Ok((Kept::default(), None));
    }
    let file = StateFile::open_or_create(disk, FILE)?;
    let kept = file.read().and_then(|bytes| Kept::decode(bytes.as_slice()).ok()).unwrap_or_default();
    Ok((kept, Some(file)))
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn where_nothing_happened_nothing_is_written_and_what_did_is() {
        let disk = SimDisk::new(1);
        let budget = ImageBudget { percent: 10, pieces_max: 8 };
        let swept = Swept::open(&disk, &budget, &mut Vec::new());
        let written = || read_kept(&disk).expect("a disk that works").0.upto;
        swept.come_to(Hlc(100), 1, false);
        swept.keep(&disk).expect("a disk that works");
        swept.pass_over(Hlc(200));
        swept.keep(&disk).expect("a disk that works");
        assert_eq!((swept.upto(), written()), (Hlc(200), 100));
        swept.come_to(Hlc(300), 1, false);
        swept.pass_over(Hlc(400));
        swept.keep(&disk).expect("a disk that works");
        assert_eq!((swept.upto(), written()), (Hlc(400), 400));
    }

    #[test]
    fn any_bytes_are_a_cursor_or_none() {
        let kept = Kept { pieces_max: 7, upto: 1 << 50, missing_after: 9, pieces_most: 300 };
        frieze_harness::fuzz!([kept.encode_to_vec()], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, |bytes| Kept::decode(bytes).ok(), Kept::encode_to_vec);
        });
    }
}
