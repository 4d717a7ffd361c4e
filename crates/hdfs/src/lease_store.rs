//! Storage of leases, so that a writer that is open when its server ends continues: at the next process, or at another
//! gateway.
//!
//! A record for each lease, written when the lease is a second old and whenever its writer begins a block; the size of
//! the file is the position within the block. A single server keeps it in a file beside the data, without fsync: after
//! a power loss a record may be missing or old, and its writer gets an exception; a damaged one fails its checksum. In
//! a cluster it is an attribute of the file that is written, so every server has it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use frieze_base::crc32c;
use frieze_client::{Client, Error, InodeId, Reason, Target, XattrMode};
use prost::Message;

use crate::blocks::TokenMint;
use crate::lease_record::LeaseRecord;
use crate::proto::Token;

/// Where records are stored.
pub(crate) struct LeaseStore {
    client: Client,
    /// Signs records in attributes: a user that may write a file may change its attributes.
    mint: TokenMint,
    beside: LocalLeaseFiles,
}

/// A directory of records; `None` stores nothing.
#[derive(Debug)]
struct LocalLeaseFiles(Option<PathBuf>);

/// Prefix of the attributes that are records; the number of the lease follows.
const NOTE_XATTR: &[u8] = b"user.frieze.lease.";

/// True if the attribute of that name is a record.
pub(crate) fn is_lease_record(name: &[u8]) -> bool {
    name.starts_with(NOTE_XATTR)
}

impl LeaseStore {
    /// Creates the directory, which is used while the server is alone; without one nothing is stored then.
    pub(crate) fn new(client: Client, mint: TokenMint, directory: Option<PathBuf>) -> io::Result<LeaseStore> {
        Ok(LeaseStore { client, mint, beside: LocalLeaseFiles::new(directory)? })
    }

    /// True if there is a place to store records.
    pub(crate) fn are_kept(&self) -> bool {
        self.beside.0.is_some() || self.client.has_others()
    }

    /// Stores a lease, in place of its former record.
    pub(crate) fn put(&self, note: &LeaseRecord) -> io::Result<()> {
        if !self.client.has_others() {
            return self.beside.put(note);
        }
        let (file, name) = (Target::inode(InodeId(note.inode)), name_of(note.id));
        let signed = self.mint.seal(note).encode_to_vec();
        let put = self.client.fs().set_xattr(&file, &name, &signed, XattrMode::Any);
        put.map(drop).map_err(io::Error::other)
    }

    /// Removes the record of a lease.
    pub(crate) fn remove(&self, inode: u64, id: u64) {
        if self.client.has_others()
            && let Err(error) = self.take(inode, id)
        {
            tracing::debug!("the note of a Hadoop client's lease on inode {inode} stays: {error}");
        }
        // It may have been stored while the server was alone.
        self.beside.remove(id);
    }

    /// The records in the attributes of a file, of any gateway.
    ///
    /// # Errors
    /// As reading attributes.
    pub(crate) fn of_file(&self, inode: u64) -> Result<Vec<LeaseRecord>, Error> {
        let (fs, file) = (self.client.fs(), Target::inode(InodeId(inode)));
        let mut notes = Vec::new();
        for name in fs.list_xattr(&file)?.into_iter().filter(|name| is_lease_record(name)) {
            match fs.get_xattr(&file, &name) {
                // An attribute that was copied from another file is no record of this one.
                Ok(bytes) => {
                    let note = Token::decode(bytes.as_slice()).ok().and_then(|token| self.mint.unseal(&token));
                    notes.extend(note.filter(|note: &LeaseRecord| note.inode == inode));
                }
                Err(error) if error.reason() == Reason::NoAttribute => {}
                Err(error) => return Err(error),
            }
        }
        Ok(notes)
    }

    /// Removes a record from a file. True for exactly one of concurrent callers.
    ///
    /// # Errors
    /// As any change.
    pub(crate) fn take(&self, inode: u64, id: u64) -> Result<bool, Error> {
        match self.client.fs().remove_xattr(&Target::inode(InodeId(inode)), &name_of(id)) {
            Ok(_) => Ok(true),
            Err(error) if [Reason::NoAttribute, Reason::NotFound, Reason::StaleHandle].contains(&error.reason()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// All records in the directory.
    pub(crate) fn all(&self) -> io::Result<Vec<LeaseRecord>> {
        self.beside.all()
    }
}

impl LocalLeaseFiles {
    fn new(directory: Option<PathBuf>) -> io::Result<LocalLeaseFiles> {
        let make = |directory| fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        directory.as_ref().map_or(Ok(()), make)?;
        Ok(LocalLeaseFiles(directory))
    }

    fn put(&self, note: &LeaseRecord) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let bytes = note.encode_to_vec();
        let unfinished = directory.join("unfinished");
        // A record names users and paths: other users may not read it.
        let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&[crc32c(&bytes).to_le_bytes().as_slice(), &bytes].concat())?;
        fs::rename(unfinished, place(directory, note.id))
    }

    fn remove(&self, id: u64) {
        if let Some(directory) = &self.0
            && let Err(error) = fs::remove_file(place(directory, id))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the note of a Hadoop client's lease cannot be removed: {error}");
        }
    }

    /// Removes records that cannot be read.
    fn all(&self) -> io::Result<Vec<LeaseRecord>> {
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

fn name_of(id: u64) -> Vec<u8> {
    [NOTE_XATTR, format!("{id:016x}").as_bytes()].concat()
}

fn place(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id:016x}"))
}

fn read(path: &Path) -> Option<LeaseRecord> {
    let bytes = fs::read(path).ok()?;
    let (sum, note) = bytes.split_first_chunk::<4>()?;
    (crc32c(note) == u32::from_le_bytes(*sum)).then(|| LeaseRecord::decode(note).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let notes = LocalLeaseFiles::new(Some(dir.path().join("leases"))).unwrap();
        let note = |id| LeaseRecord {
            id,
            inode: 7,
            path: "/a".to_owned(),
            start: Some(0),
            groups: vec![1, 2],
            ..LeaseRecord::default()
        };
        notes.put(&note(1)).unwrap();
        notes.put(&note(2)).unwrap();
        notes.put(&LeaseRecord { next: 9, ..note(2) }).unwrap();
        let mut all = notes.all().unwrap();
        all.sort_by_key(|note| note.id);
        assert_eq!(all, [note(1), LeaseRecord { next: 9, ..note(2) }]);
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
        assert_eq!(LocalLeaseFiles(None).all().unwrap(), []);
    }
}
