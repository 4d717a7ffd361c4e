//! What items of the state hold: read from versions, and sent between servers.
//!
//! Guarantees: a value that is sent is read as it was.

use std::sync::Arc;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::quota::{QUOTA_XATTR, TreeUsage};
use prost::Message;

use crate::history::{KeyVersion, VersionHistory};
use crate::key::VersionKey;
use crate::state_item::StateItem;
use crate::stored::{StoredInode, decode, read_entry};

/// What an item holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemValue {
    /// The newest versions of its keys, of those that have a value.
    pub versions: Vec<KeyVersion>,
    /// Of an item that is a number: it.
    pub number: u64,
    /// Of an item that is a list of inodes: it.
    pub inodes: Vec<InodeId>,
    /// Of what is used of a quota: it.
    pub usage: TreeUsage,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SentValues {
    #[prost(message, repeated, tag = "1")]
    values: Vec<SentValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SentValue {
    #[prost(message, repeated, tag = "1")]
    versions: Vec<SentVersion>,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(uint64, repeated, tag = "3")]
    inodes: Vec<u64>,
    /// Files and bytes.
    #[prost(uint64, tag = "4")]
    files: u64,
    #[prost(uint64, tag = "5")]
    bytes: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SentVersion {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(uint64, tag = "2")]
    stamp: u64,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

impl ItemValue {
    /// The values of several items, as servers send them to each other.
    pub fn encode_all(values: impl IntoIterator<Item = ItemValue>) -> Vec<u8> {
        let sent =
            |KeyVersion { key, stamp, value }| SentVersion { key, stamp: stamp.0, value: value.unwrap_or_default() };
        let values = values.into_iter().map(|ItemValue { versions, number, inodes, usage }| SentValue {
            versions: versions.into_iter().map(sent).collect(),
            number,
            inodes: inodes.into_iter().map(|id| id.0).collect(),
            files: usage.files,
            bytes: usage.bytes,
        });
        SentValues { values: values.collect() }.encode_to_vec()
    }

    /// What [`ItemValue::encode_all`] wrote.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<ItemValue>, Fault> {
        let sent: SentValues = decode(bytes, "values of a transaction")?;
        let version = |SentVersion { key, stamp, value }| KeyVersion { key, stamp: Hlc(stamp), value: Some(value) };
        let values = sent.values.into_iter().map(|SentValue { versions, number, inodes, files, bytes }| ItemValue {
            versions: versions.into_iter().map(version).collect(),
            number,
            inodes: inodes.into_iter().map(InodeId).collect(),
            usage: TreeUsage { files, bytes },
        });
        Ok(values.collect())
    }
}

impl StateItem {
    /// What the item holds at an instant, by the versions of its part, or of the whole state. Numbers that were given,
    /// and what is used of quotas, are no versions: `number` of [`StateItem::DirectoryNumbers`] and
    /// [`StateItem::FileNumbers`] is the caller's to add, and `usage` of [`StateItem::Usage`].
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    ///
    /// # Cost
    /// A look-up for each key; of a number of names the names, of grants all inodes of the part.
    pub fn read(&self, history: &dyn VersionHistory, at: Hlc) -> Result<ItemValue, Fault> {
        let mut value = ItemValue::default();
        match self {
            StateItem::Globals => {
                value.add(history, &VersionKey::Format.encode(), at)?;
                value.add(history, &VersionKey::Loss.encode(), at)?;
                for letter in [b"H", b"K", b"V"] {
                    value.add_all(history, letter, at, &mut |_| true)?;
                }
                value.add_all(history, b"X", at, &mut |xattr| is_quota(&xattr.key))?;
            }
            StateItem::Session(id) => value.add(history, &VersionKey::Session(*id).encode(), at)?,
            StateItem::Sessions => value.add_all(history, b"S", at, &mut |_| true)?,
            StateItem::Snapshots => value.add_all(history, b"N", at, &mut |_| true)?,
            StateItem::StagedEdits => value.add_all(history, b"G", at, &mut |_| true)?,
            StateItem::Inode(id) => {
                value.add(history, &VersionKey::Inode(*id).encode(), at)?;
                value.add_all(history, &VersionKey::Xattr(*id, b"").encode(), at, &mut |_| true)?;
            }
            StateItem::Times(id) => value.add(history, &VersionKey::EntryStamps(*id).encode(), at)?,
            StateItem::DirectoryName(id, name) | StateItem::FileName(id, name) => {
                value.add(history, &VersionKey::Entry(*id, name).encode(), at)?;
                value.versions.retain(|entry| self.has_entry(entry));
            }
            StateItem::Directories(id) | StateItem::Files(id) => {
                value
                    .add_all(history, &VersionKey::Entry(*id, b"").encode(), at, &mut |entry| self.has_entry(entry))?;
                value.number = std::mem::take(&mut value.versions).len() as u64;
            }
            StateItem::AllDirectories(id) | StateItem::AllFiles(id) => {
                value
                    .add_all(history, &VersionKey::Entry(*id, b"").encode(), at, &mut |entry| self.has_entry(entry))?;
            }
            StateItem::Grants(session) => {
                let mut all = ItemValue::default();
                all.add_all(history, b"I", at, &mut |_| true)?;
                for KeyVersion { key, stamp, value: stored } in all.versions {
                    let (Some(VersionKey::Inode(id)), Some(stored)) = (VersionKey::decode(&key), stored) else {
                        continue;
                    };
                    let (inode, _) = StoredInode::read(stamp, &stored, Arc::new)?;
                    if inode.grants().iter().any(|grant| grant.session == *session) {
                        value.inodes.push(id);
                    }
                }
            }
            StateItem::Links(_) | StateItem::DirectoryNumbers | StateItem::FileNumbers(_) | StateItem::Usage(_) => {}
        }
        Ok(value)
    }

    /// True if the version of an entry is one of the item's.
    fn has_entry(&self, entry: &KeyVersion) -> bool {
        let wanted =
            matches!(self, StateItem::DirectoryName(..) | StateItem::Directories(_) | StateItem::AllDirectories(_));
        let read = entry.value.as_deref().map(|value| read_entry(entry.stamp, value));
        read.is_some_and(|entry| entry.is_ok_and(|entry| (entry.kind() == FileKind::Directory) == wanted))
    }
}

impl ItemValue {
    fn add(&mut self, history: &dyn VersionHistory, key: &[u8], at: Hlc) -> Result<(), Fault> {
        if let Some((stamp, Some(value))) = history.newest(key, at)? {
            self.versions.push(KeyVersion { key: key.to_vec(), stamp, value: Some(value) });
        }
        Ok(())
    }

    fn add_all(
        &mut self,
        history: &dyn VersionHistory,
        prefix: &[u8],
        at: Hlc,
        is_wanted: &mut dyn FnMut(&KeyVersion) -> bool,
    ) -> Result<(), Fault> {
        history.scan(prefix, &[], at, &mut |key, stamp, value| {
            let version = KeyVersion { key: key.to_vec(), stamp, value: Some(value.to_vec()) };
            if is_wanted(&version) {
                self.versions.push(version);
            }
            true
        })
    }
}

/// True for the key of the quota of a directory.
pub(crate) fn is_quota(key: &[u8]) -> bool {
    matches!(VersionKey::decode(key), Some(VersionKey::Xattr(_, name)) if name == QUOTA_XATTR)
}
