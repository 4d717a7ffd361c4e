//! Checkpoints of the present: all inodes and names as they are after one entry of the metalog, in one file, so that a
//! start reads them and what changed since, after a clean stop and after the end of the process alike.
//!
//! Guarantees: a start that uses a checkpoint has the present that the store has. A checkpoint counts if every byte of
//! it passes its checksum, and the tables of the store are complete up to its index at least. The one before is kept,
//! for a start that finds the newest one damaged; if both are, the present is read from the store. A failed checkpoint
//! changes nothing.
//! Leaves to others: what the pieces mean (`namespace`), when one is written (`node`), what is in no checkpoint
//! (`state`).
//!
//! *Published behind the tables.* A snapshot of the present may contain entries that a loss of power takes from the
//! log: other entries get their numbers, and a checkpoint with the lost ones would disagree with the store for ever. So
//! it gets its name only when the tables of the store are complete up to its index. The store writes a table only if
//! the log is durable up to its entry, so both are; and tables never go back, so each later start finds them complete
//! beyond the index. The memtable is sealed with the snapshot, and the wait is that for one table.
//!
//! *What changed since* is what the index of time names behind the stamp of the checkpoint. A version that was written
//! again in its place is not named there; those that may be are read again ([`PackedInodes::rewritable`]).
//!
//! *A received state* takes the place of the store, with other entries perhaps. The header has the digest of its name:
//! a checkpoint of another state does not count. Checkpoints are also removed when a state is put here.
//!
//! | a crash | finds at the next start |
//! |---|---|
//! | while the file is written | the checkpoints before; `checkpoint-unfinished` is removed |
//! | between its new name and the flush of the directory | the one or the other |
//! | before the oldest is removed | three checkpoints: the newest counts, the oldest is removed |

mod cold_pieces;
mod format;
mod reader;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_namespace::{
    ColdFile, ENTRIES, INODES, PackedInodes, PackedNames, PieceLoads, PresentSnapshot, Relocation, VersionHistory,
};

use self::cold_pieces::CheckpointPieces;
pub use self::cold_pieces::LostNames;
use self::format::{Header, StateDigest, UNFINISHED, state_digest};
use self::reader::CheckpointReader;
use crate::store::NameVersions;

/// What the names of all files of this kind begin with.
const PREFIX: &str = "checkpoint-";
/// The newest one, and the one before.
const KEPT: usize = 2;
/// Changes that are read and sorted at once: 60 MB of keys of 50 bytes.
const WINDOW_CHANGES: usize = 1 << 19;

/// The checkpoints on a disk.
pub(crate) struct Checkpoints {
    disk: Arc<dyn Disk>,
    /// Oldest first.
    files: Mutex<levels::CheckpointFiles, Vec<CheckpointFile>>,
    is_writing: AtomicBool,
    failures: AtomicU64,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CheckpointFile {
    index: LogIndex,
    bytes: u64,
    /// Microseconds since 1970.
    taken_us: u64,
}

/// The newest checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// The last entry of the metalog that it contains; 0: there is none.
    pub index: LogIndex,
    /// Size of its file.
    pub bytes: u64,
    /// When it was taken, microseconds since 1970.
    pub taken_us: u64,
    /// Changes of names and inodes that it lacks.
    pub changes_since: u64,
    /// Checkpoints that could not be written since the start.
    pub failures: u64,
}

/// A snapshot of the present, and where it is.
pub(crate) struct TakenPresent {
    pub(crate) present: PresentSnapshot,
    pub(crate) index: LogIndex,
    /// Of the newest change in it, as the index of time has it.
    pub(crate) stamp: Hlc,
    /// Name of the state that was received last.
    pub(crate) state: Option<Vec<u8>>,
}

/// A present that was read from a checkpoint and brought to where the tables of the store are.
pub(crate) struct LoadedPresent {
    pub(crate) inodes: PackedInodes,
    pub(crate) names: PackedNames,
    /// Changes that came since, as far as the index of time names them.
    pub(crate) changes: u64,
}

/// A checkpoint that has not got its name yet.
pub(crate) struct UnnamedCheckpoint {
    header: Header,
    file: Arc<dyn DiskFile>,
}

impl UnnamedCheckpoint {
    /// The walk that gives the present its places in this checkpoint, which has got its name. `present` is what it was
    /// written of.
    pub(crate) fn relocation(self, present: PresentSnapshot, loads: &Arc<PieceLoads>) -> Relocation {
        let pieces = CheckpointPieces::new(file_name(self.header.index), self.file);
        present.relocate(ColdFile::new(Box::new(pieces), loads), cold_pieces::offsets(&self.header))
    }
}

impl Checkpoints {
    /// Finds the checkpoints on a disk, and reads the newest one that counts. Of one that does not count `notes` get a
    /// sentence, and it is removed. Names beyond `names_bytes_max` bytes of memory stay in the file.
    ///
    /// # Errors
    /// The disk's, and the store's: not those of reading a checkpoint, nor of removing an unfinished one.
    ///
    /// # Cost
    /// 100 ns of each file on one thread and as much on another; some microseconds for each key that changed since.
    pub(crate) fn load(
        disk: Arc<dyn Disk>,
        versions: &NameVersions,
        names_bytes_max: u64,
        notes: &mut Vec<String>,
    ) -> Result<(Checkpoints, Option<LoadedPresent>), Fault> {
        let others = disk.list_others()?;
        // A view of a directory removes files only.
        let is_left = others.iter().any(|name| name == UNFINISHED);
        let cause = match writer::remove_unfinished(&*disk) {
            Err(fault) => Some(fault.message),
            Ok(()) => is_left.then(|| "it is no file".to_owned()),
        };
        if let Some(cause) = cause {
            notes.push(format!(
                "{UNFINISHED} in the data directory cannot be removed, and no checkpoint of the names can be written \
                 until it is: remove it ({cause})"
            ));
        }
        for name in others.iter().filter(|name| index_of(name).is_some()) {
            notes.push(format!(
                "{name} in the data directory is not used: it has the name of a checkpoint of the names and is no \
                 file. Remove it; a start reads the checkpoint before, or the store of names"
            ));
        }
        let (applied, state) = (versions.applied()?, state_digest(versions.name()?.as_deref()));
        let (mut files, mut loaded, mut has_removed) = (Vec::new(), None, false);
        for index in indices(&*disk)?.into_iter().rev() {
            if files.len() == KEPT {
                disk.remove(&file_name(index))?;
                has_removed = true;
                continue;
            }
            let found = open(&*disk, index, applied, &state).and_then(|reader| {
                let present = if loaded.is_none() { Some(read(&reader, versions, names_bytes_max)?) } else { None };
                Ok((reader, present))
            });
            let (reader, present) = match found {
                Ok(found) => found,
                Err(fault) => {
                    notes.push(format!("a checkpoint of the names is not used: {}", fault.message));
                    if matches!(fault.reason, Reason::Corrupt | Reason::WrongVersion | Reason::Superseded) {
                        // It would be counted as the one before, in place of one that is whole.
                        disk.remove(&file_name(index))?;
                        has_removed = true;
                    }
                    continue;
                }
            };
            let Header { taken_us, .. } = *reader.header();
            files.push(CheckpointFile { index, bytes: reader.header().file_bytes().unwrap_or(0), taken_us });
            if let Some((inodes, names)) = present {
                reader.drop_cached();
                match bring_up(inodes, names, reader.header(), versions) {
                    Ok(present) => loaded = Some(present),
                    // Not the checkpoint's fault: what is wrong with the store, a start from the store alone finds.
                    Err(fault) => {
                        notes.push(format!(
                            "a checkpoint of the names is not used, for the store fails: {}",
                            fault.message
                        ));
                        break;
                    }
                }
            }
        }
        if has_removed {
            disk.sync_dir()?;
        }
        files.reverse();
        let checkpoints = Checkpoints {
            disk,
            files: Mutex::new(files),
            is_writing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        };
        Ok((checkpoints, loaded))
    }

    /// Writes a checkpoint under its temporary name; `None` if there is one of that index. `has_room` says whether so
    /// many bytes may be used.
    ///
    /// # Errors
    /// `Busy` if another thread writes one. `NoSpace`, the disk's: nothing has changed, try again later.
    pub(crate) fn write(
        &self,
        taken: &TakenPresent,
        taken_us: u64,
        has_room: &dyn Fn(u64) -> bool,
    ) -> Result<Option<UnnamedCheckpoint>, Fault> {
        // Before the first entry there is nothing to save.
        if taken.index == self.newest().map_or(LogIndex(0), |newest| newest.index) {
            return Ok(None);
        }
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return Err(Fault::new(Reason::Busy, "a checkpoint of the names is being written already"));
        }
        let written = self.try_write(taken, taken_us, has_room);
        if written.is_err() {
            self.is_writing.store(false, Ordering::Release);
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        written.map(Some)
    }

    fn try_write(
        &self,
        taken: &TakenPresent,
        taken_us: u64,
        has_room: &dyn Fn(u64) -> bool,
    ) -> Result<UnnamedCheckpoint, Fault> {
        let (inodes, names) = writer::count(&taken.present);
        let header = Header {
            index: taken.index,
            stamp: taken.stamp,
            taken_us,
            state: state_digest(taken.state.as_deref()),
            inodes,
            names,
        };
        let bytes = header.file_bytes().unwrap_or(u64::MAX);
        if !has_room(bytes) {
            let words = format!(
                "the disk has no room for a checkpoint of the names, {bytes} bytes, beside its reserve: the next start \
                 takes longer; free space, or add a disk"
            );
            return Err(Fault::new(Reason::NoSpace, words));
        }
        let file = writer::write(&*self.disk, &header, &taken.present)?;
        Ok(UnnamedCheckpoint { header, file })
    }

    /// Gives a checkpoint its name, durably, and removes all but the two newest, if the tables of the store are
    /// complete up to its index. False: they are not yet, try again.
    ///
    /// # Errors
    /// `Superseded` if another state has taken the place of the store. The disk's, and the store's. It is not a
    /// checkpoint then, or not durably; [`Checkpoints::drop_unnamed`] is to follow.
    pub(crate) fn publish(&self, unnamed: &UnnamedCheckpoint, versions: &NameVersions) -> Result<bool, Fault> {
        let header = &unnamed.header;
        let mut files = self.files.lock();
        if versions.applied()? < header.index {
            return Ok(false);
        }
        if state_digest(versions.name()?.as_deref()) != header.state {
            return Err(of_another_state(header.index));
        }
        self.disk.rename(UNFINISHED, &file_name(header.index))?;
        let bytes = header.file_bytes().unwrap_or(0);
        files.push(CheckpointFile { index: header.index, bytes, taken_us: header.taken_us });
        self.disk.sync_dir()?;
        while files.len() > KEPT {
            // One that stays is removed by the next start.
            let _later = self.disk.remove(&file_name(files.remove(0).index));
        }
        self.is_writing.store(false, Ordering::Release);
        Ok(true)
    }

    /// A checkpoint gets no name.
    pub(crate) fn drop_unnamed(&self) {
        // What stays is removed by the next one, or by the next start.
        let _later = writer::remove_unfinished(&*self.disk);
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.is_writing.store(false, Ordering::Release);
    }

    /// Removes all checkpoints: another state takes the place of the store. They count no more in any case, for its
    /// name is another.
    pub(crate) fn remove_all(&self) {
        let mut files = self.files.lock();
        let removed = files.drain(..).try_for_each(|file| self.disk.remove(&file_name(file.index)));
        if let Err(error) = removed.and_then(|()| self.disk.sync_dir()) {
            tracing::warn!("a checkpoint of the names of before is left to the next start: {error}");
        }
    }

    /// The newest one, without the changes since.
    pub(crate) fn status(&self) -> CheckpointStatus {
        let failures = self.failures.load(Ordering::Relaxed);
        let CheckpointFile { index, bytes, taken_us } =
            self.newest().unwrap_or(CheckpointFile { index: LogIndex(0), bytes: 0, taken_us: 0 });
        CheckpointStatus { index, bytes, taken_us, changes_since: 0, failures }
    }

    fn newest(&self) -> Option<CheckpointFile> {
        self.files.lock().last().copied()
    }
}

/// Opens a checkpoint, if the store may be brought up from it.
fn open(disk: &dyn Disk, index: LogIndex, applied: LogIndex, state: &StateDigest) -> Result<CheckpointReader, Fault> {
    let name = file_name(index);
    let reader = CheckpointReader::open(disk, &name)?;
    let header = reader.header();
    if header.index != index {
        let words = format!("{name} is damaged: it is the checkpoint of entry {}", header.index);
        return Err(Fault::new(Reason::Corrupt, words));
    }
    if header.index > applied {
        let words = format!("{name} is newer than the store, whose tables end with entry {applied}");
        return Err(Fault::new(Reason::Superseded, words));
    }
    match header.state == *state {
        true => Ok(reader),
        false => Err(of_another_state(index)),
    }
}

fn of_another_state(index: LogIndex) -> Fault {
    let words = format!("{} is of another state than the store, which was received since", file_name(index));
    Fault::new(Reason::Superseded, words)
}

/// Reads a checkpoint, inodes and names at once. Each may take half of `bytes_max` bytes of memory; the rest stays in
/// the file.
fn read(
    reader: &CheckpointReader,
    versions: &NameVersions,
    bytes_max: u64,
) -> Result<(PackedInodes, PackedNames), Fault> {
    let file = ColdFile::new(Box::new(reader.pieces()), &Arc::default());
    let (mut inodes, mut names) =
        (PackedInodes::of_file(&file, bytes_max / 2), PackedNames::of_file(&file, bytes_max / 2));
    let (mut of_inodes, mut of_names) = (Ok(()), Ok(()));
    versions
        .read_both(&mut || of_inodes = reader.inodes(&mut |piece, offset| inodes.load_at(piece, offset)), &mut || {
            of_names = reader.names(&mut |piece, offset| names.load_at(piece, offset))
        });
    of_inodes.and(of_names).map(|()| (inodes, names))
}

/// Replaces what changed since the checkpoint by its newest version in the store.
fn bring_up(
    inodes: PackedInodes,
    names: PackedNames,
    header: &Header,
    versions: &NameVersions,
) -> Result<LoadedPresent, Fault> {
    bring_up_by(inodes, names, header, versions, WINDOW_CHANGES)
}

/// As [`bring_up`], with so many changes at once.
fn bring_up_by(
    mut inodes: PackedInodes,
    mut names: PackedNames,
    header: &Header,
    versions: &NameVersions,
    window: usize,
) -> Result<LoadedPresent, Fault> {
    let mut changed = ChangedKeys { inodes: inodes.rewritable(), names: Vec::new() };
    let (mut after, mut changes) = (header.stamp, 0);
    loop {
        let mut last = after;
        let mut is_full = false;
        versions.changed(after, Hlc::MAX, &mut |stamp, key| {
            // A transaction is in one window: the next one begins behind its stamp.
            is_full = changed.len() >= window && stamp > last;
            if !is_full {
                (last, changes) = (stamp, changes + 1);
                changed.add(key, stamp);
            }
            !is_full
        })?;
        let ChangedKeys { inodes: of_inodes, names: of_names } = &mut changed;
        let (mut inodes_done, mut names_done) = (Ok(()), Ok(()));
        versions.read_both(
            &mut || {
                inodes_done = replace(of_inodes, versions, &mut |key, stamp, value| inodes.replace(key, stamp, value));
            },
            &mut || {
                names_done = replace(of_names, versions, &mut |key, stamp, value| names.replace(key, stamp, value));
            },
        );
        inodes_done.and(names_done)?;
        inodes.keep_to_bound();
        names.keep_to_bound();
        if !is_full {
            return Ok(LoadedPresent { inodes, names, changes });
        }
        after = last;
    }
}

/// Keys of a window of changes, and their stamps.
struct ChangedKeys {
    inodes: Vec<(Vec<u8>, Hlc)>,
    names: Vec<(Vec<u8>, Hlc)>,
}

impl ChangedKeys {
    fn len(&self) -> usize {
        self.inodes.len() + self.names.len()
    }

    fn add(&mut self, key: &[u8], stamp: Hlc) {
        match key.first() {
            Some(&INODES) => self.inodes.push((key.to_vec(), stamp)),
            Some(&ENTRIES) => self.names.push((key.to_vec(), stamp)),
            // Extended attributes: a start reads all of them.
            _ => {}
        }
    }
}

/// Takes the newest version of a key: its key, stamp and value.
type TakeVersion<'a> = dyn FnMut(&[u8], Hlc, Option<&[u8]>) -> Result<(), Fault> + 'a;

/// Calls `take` with the newest of the versions of each key, in the order of keys, so that neighbours are found in the
/// same block of a table.
fn replace(
    changed: &mut Vec<(Vec<u8>, Hlc)>,
    versions: &NameVersions,
    take: &mut TakeVersion<'_>,
) -> Result<(), Fault> {
    changed.sort_unstable();
    for (at, (key, stamp)) in changed.iter().enumerate() {
        if changed.get(at + 1).is_none_or(|(next, _)| next != key) {
            take(key, *stamp, versions.version(key, *stamp)?.as_deref())?;
        }
    }
    changed.clear();
    Ok(())
}

/// The checkpoints on a disk, oldest first.
fn indices(disk: &dyn Disk) -> Result<Vec<LogIndex>, Fault> {
    let names = disk.list()?;
    let mut found: Vec<LogIndex> = names.iter().filter_map(|name| index_of(name)).collect();
    found.sort_unstable();
    Ok(found)
}

fn index_of(name: &str) -> Option<LogIndex> {
    u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok().map(LogIndex)
}

fn file_name(index: LogIndex) -> String {
    format!("{PREFIX}{:016x}", index.0)
}

#[cfg(test)]
mod tests;
