//! What is noted of leases beside the data, so that a writer that is open when the server ends goes on with the next process.
//!
//! A file for each lease, written when the lease is a second old and whenever its writer begins a block; how far that is the data say. It
//! is not forced to the disk: after a loss of power a note may be missing, or old, and its writer is told that its lease is over. A damaged
//! one is known by its checksum.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use frieze_base::crc32c;
use frieze_client::Caller;
use prost::Message;

use crate::leases::Block;

/// What a lease was.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Note {
    /// Its number, as tokens name it.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// The file.
    #[prost(uint64, tag = "2")]
    pub(crate) inode: u64,
    /// Its path when it was opened.
    #[prost(string, tag = "3")]
    pub(crate) path: String,
    /// Who has it.
    #[prost(string, tag = "4")]
    pub(crate) holder: String,
    /// Most bytes of a block.
    #[prost(uint64, tag = "5")]
    pub(crate) block_bytes: u64,
    /// On whose behalf it writes.
    #[prost(uint32, tag = "6")]
    pub(crate) uid: u32,
    /// Its group.
    #[prost(uint32, tag = "7")]
    pub(crate) gid: u32,
    /// Its other groups.
    #[prost(uint32, repeated, tag = "8")]
    pub(crate) groups: Vec<u32>,
    /// Where the next block begins, if none is being written.
    #[prost(uint64, tag = "9")]
    pub(crate) next: u64,
    /// Where the block begins that is being written.
    #[prost(uint64, optional, tag = "10")]
    pub(crate) start: Option<u64>,
    /// Its generation.
    #[prost(uint64, tag = "11")]
    pub(crate) generation: u64,
    /// Number of the block before; 0 for none.
    #[prost(uint64, tag = "12")]
    pub(crate) last_id: u64,
    /// What the file was marked with; empty for nothing.
    #[prost(bytes = "vec", tag = "13")]
    pub(crate) mark: Vec<u8>,
}

impl Note {
    /// On whose behalf its file is opened.
    pub(crate) fn caller(&self) -> Caller {
        Caller { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }

    /// The block that was being written, in a file of that size: everything that was acknowledged is in it.
    pub(crate) fn block(&self, size: u64) -> Option<Block> {
        let start = self.start?;
        Some(Block { start, generation: self.generation, received: size.saturating_sub(start) })
    }
}

/// Where notes are.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<PathBuf>);

impl Notes {
    /// In that directory, which is made; without one nothing is noted.
    pub(crate) fn new(directory: Option<PathBuf>) -> io::Result<Notes> {
        directory.as_ref().map_or(Ok(()), fs::create_dir_all)?;
        Ok(Notes(directory))
    }

    /// True if there is somewhere to note anything.
    pub(crate) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Notes a lease, in place of what was noted of it.
    pub(crate) fn put(&self, note: &Note) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let bytes = note.encode_to_vec();
        let unfinished = directory.join("unfinished");
        fs::write(&unfinished, [crc32c(&bytes).to_le_bytes().as_slice(), &bytes].concat())?;
        fs::rename(unfinished, place(directory, note.id))
    }

    /// Forgets a lease.
    pub(crate) fn remove(&self, id: u64) {
        if let Some(directory) = &self.0
            && let Err(error) = fs::remove_file(place(directory, id))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the note of a Hadoop client's lease cannot be removed: {error}");
        }
    }

    /// Everything that is noted. What cannot be read is removed.
    pub(crate) fn all(&self) -> io::Result<Vec<Note>> {
        let Some(directory) = &self.0 else { return Ok(Vec::new()) };
        let mut notes = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match read(&path) {
                Some(note) => notes.push(note),
                None => {
                    tracing::warn!("{} is no whole note of a lease: its writer has to begin anew", path.display());
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(notes)
    }
}

fn place(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id:016x}"))
}

fn read(path: &Path) -> Option<Note> {
    let bytes = fs::read(path).ok()?;
    let (sum, note) = bytes.split_first_chunk::<4>()?;
    (crc32c(note) == u32::from_le_bytes(*sum)).then(|| Note::decode(note).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::new(Some(dir.path().join("leases"))).unwrap();
        let note =
            |id| Note { id, inode: 7, path: "/a".to_owned(), start: Some(0), groups: vec![1, 2], ..Note::default() };
        notes.put(&note(1)).unwrap();
        notes.put(&note(2)).unwrap();
        notes.put(&Note { next: 9, ..note(2) }).unwrap();
        let mut all = notes.all().unwrap();
        all.sort_by_key(|note| note.id);
        assert_eq!(all, [note(1), Note { next: 9, ..note(2) }]);
        notes.remove(1);
        notes.remove(1);
        let path = place(&dir.path().join("leases"), 2);
        let whole = fs::read(&path).unwrap();
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, bytes).unwrap();
            assert_eq!(notes.all().unwrap(), [], "byte {at}");
        }
        fs::write(&path, &whole[..3]).unwrap();
        assert_eq!(notes.all().unwrap(), []);
        assert_eq!(Notes::default().all().unwrap(), []);
    }
}
