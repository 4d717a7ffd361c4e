//! Forgetting: history before an instant is given up, so that its space can be used again.

use frieze_base::varint::{put, take};

use crate::target::Target;

/// Forgets the history of a file, or of a directory with everything that lay below it, before an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forget {
    /// The file or directory, as it is named now, else as it was named at the instant.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The instant: what was visible at it stays, as does everything since.
    #[prost(uint64, tag = "2")]
    pub before: u64,
    /// Only report what would be forgotten.
    #[prost(bool, tag = "3")]
    pub dry_run: bool,
    /// Through snapshots: they show nothing of it any more, whatever user made them.
    #[prost(bool, tag = "4")]
    pub with_snapshots: bool,
}

/// A snapshot of an instant before the given one, at which some of the forgotten files existed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotLoss {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its instant.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// User that made it.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// It holds some of it back.
    #[prost(bool, tag = "4")]
    pub holds: bool,
    /// It does not show all of it any more.
    #[prost(bool, tag = "5")]
    pub loses: bool,
    /// Bytes that it holds back. Bytes that several snapshots hold back count for each.
    #[prost(uint64, tag = "6")]
    pub held_bytes: u64,
}

/// A file and the history that it loses.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ForgottenFile {
    /// Its path at the instant, or where it was last.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes that were written and no kept instant shows.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Writes whose bytes they were.
    #[prost(uint64, tag = "3")]
    pub writes: u64,
    /// It was deleted before the instant: nothing of it stays.
    #[prost(bool, tag = "4")]
    pub deleted: bool,
}

/// What was forgotten, or would be.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ForgetReply {
    /// Stamp of the transaction; 0 for a dry run, or if there was nothing to forget that was not forgotten before.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// The earliest instant that is kept.
    #[prost(uint64, tag = "2")]
    pub before: u64,
    /// Files that are there and have shorter histories now.
    #[prost(uint64, tag = "3")]
    pub files: u64,
    /// Files that were deleted before the instant.
    #[prost(uint64, tag = "4")]
    pub deleted_files: u64,
    /// Writes whose bytes no kept instant shows.
    #[prost(uint64, tag = "5")]
    pub writes: u64,
    /// Bytes of those writes.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// Bytes that the device gained; less than `bytes` where pages are shared with remaining data, more where earlier
    /// forgetting had left parts.
    #[prost(uint64, tag = "7")]
    pub freed_bytes: u64,
    /// Bytes in segments that are still written to: given back when they are full.
    #[prost(uint64, tag = "8")]
    pub waiting_bytes: u64,
    /// The files that lose most, most first.
    #[prost(message, repeated, tag = "9")]
    pub biggest: Vec<ForgottenFile>,
    /// The names of those of `shown_by` that hold some of it back.
    #[prost(string, repeated, tag = "10")]
    pub snapshots: Vec<String>,
    /// Bytes that snapshots, clones, restores and undos hold back.
    #[prost(uint64, tag = "11")]
    pub held_bytes: u64,
    /// Files left alone because they belong to other users, or have names outside the path too.
    #[prost(uint64, tag = "12")]
    pub left: u64,
    /// Why space could not be given back; empty if it could.
    #[prost(string, tag = "13")]
    pub trouble: String,
    /// The server-made answer to a request that had run.
    #[prost(bool, tag = "14")]
    pub repeated: bool,
    /// Deleted files that a session has open, or may have: each keeps its state at the instant and its present one.
    #[prost(uint64, tag = "15")]
    pub open: u64,
    /// More snapshots than are named.
    #[prost(uint64, tag = "16")]
    pub more_snapshots: u64,
    /// Sessions whose command lines were forgotten: all their changes are.
    #[prost(uint64, tag = "17")]
    pub sessions: u64,
    /// Snapshots of instants before `before` at which some of it existed, in order of name, with the outcome for each.
    /// The first ones.
    #[prost(message, repeated, tag = "18")]
    pub shown_by: Vec<SnapshotLoss>,
}

/// The transaction of a forget, as the server has worked it out. Never taken from a client.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Horizon {
    /// Instants before it are not kept.
    #[prost(uint64, tag = "1")]
    pub before: u64,
    /// The file or directory that was named.
    #[prost(uint64, tag = "2")]
    pub root: u64,
    /// Its path.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// Inodes that had a name at the instant ([`encode_ids`]).
    #[prost(bytes = "vec", tag = "4")]
    pub named: Vec<u8>,
    /// Inodes that had lost their last name by then and have had none since.
    #[prost(bytes = "vec", tag = "5")]
    pub nameless: Vec<u8>,
    /// Snapshots hold nothing of it back.
    #[prost(bool, tag = "6")]
    pub with_snapshots: bool,
    /// Owners of the inodes, except the superuser: the snapshots of these users hold them back.
    #[prost(message, repeated, tag = "7")]
    pub owners: Vec<OwnedInodes>,
    /// Sessions that have ended, and of which no change can be read any more: their command lines are forgotten.
    #[prost(message, repeated, tag = "8")]
    pub sessions: Vec<ForgottenSession>,
}

/// A session whose command line and host are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ForgottenSession {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its user, which stays known.
    #[prost(uint32, tag = "2")]
    pub uid: u32,
}

/// In place of an owner: a directory below which objects of any owner may lie that were not read. No user has this
/// number.
pub const ANYBODY: u32 = u32::MAX;

/// Inodes whose history the snapshots of a user hold back: those that the user owned at the instant, and directories in
/// which an object of the user had a name by then, directly or further below.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OwnedInodes {
    /// The user; [`ANYBODY`]: any.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// The inodes ([`encode_ids`]).
    #[prost(bytes = "vec", tag = "2")]
    pub inodes: Vec<u8>,
}

/// Forgotten history of a file or directory, shown by `log`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ForgottenHistory {
    /// Instants before it are not kept.
    #[prost(uint64, tag = "1")]
    pub before: u64,
    /// Stamp of the request.
    #[prost(uint64, tag = "2")]
    pub stamp: u64,
    /// User that requested it.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
}

/// Packs numbers, which rise: differences of 7 bits a byte, low bits first. About a byte for each of a run.
pub fn encode_ids(ids: impl Iterator<Item = u64>) -> Vec<u8> {
    let (mut bytes, mut last) = (Vec::new(), 0);
    for id in ids {
        put(&mut bytes, id - last);
        last = id;
    }
    bytes
}

/// Decodes the bytes of [`encode_ids`]; `None` if they are something else.
pub fn decode_ids(mut bytes: &[u8]) -> Option<Vec<u64>> {
    let (mut ids, mut last) = (Vec::new(), 0u64);
    while !bytes.is_empty() {
        last = last.checked_add(take(&mut bytes)?)?;
        ids.push(last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_damage_is_noticed() {
        for ids in [vec![], vec![1, 2, 3, 200, 100_000, u64::MAX], (5..3000).collect()] {
            assert_eq!(decode_ids(&encode_ids(ids.iter().copied())), Some(ids));
        }
        assert_eq!(decode_ids(&[0x80]), None);
        assert_eq!(decode_ids(&[0xff; 11]), None);
        assert_eq!(decode_ids(&encode_ids([u64::MAX].into_iter()).repeat(2)), None);
        assert!(encode_ids(1000..2000).len() < 1003);
    }
}
