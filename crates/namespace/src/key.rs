//! Keys of the versions: a letter for what it is, then big-endian numbers and names, so that they sort as they should.
//!
//! | key | value |
//! |---|---|
//! | `B` stamp (8) | removed files that policies of retention let go of by the transaction of that stamp |
//! | `C` | nodes and chains of the cluster, which are not the namespace's: only the newest is kept |
//! | `D` | losses: the count (8) up to which inode numbers are left out, and the stamp (8) up to which grants may be lost |
//! | `E` parent (8) name | a directory entry |
//! | `F` | the format |
//! | `G` session (8) seq (8) plan (8) part (4) | a staged part of an edit: only the newest is kept |
//! | `H` stamp (8) page (4) | what was forgotten by the transaction of that stamp: page 0, then lists of its inodes |
//! | `I` inode (8) | an inode |
//! | `K` policy (8) | a policy of retention and its marks: only the newest is kept |
//! | `L` inode (8) parent (8) name | a name that no version of the inode has ([`crate::names_at`]); in the store only |
//! | `N` name | a named instant |
//! | `P` inode (8) | stamps at which entries of the directory changed ([`crate::EntryStampPage`]) |
//! | `R` session (8) seq (8) | a remembered outcome: only the newest is kept |
//! | `S` session (8) | a session |
//! | `V` regime (8) | a policy together with what policies before it have thinned |
//! | `X` inode (8) name | an extended attribute |

use frieze_base::{InodeId, Seq, SessionId};
use frieze_hlc::Hlc;

/// A key taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKey<'a> {
    Loss,
    Entry(InodeId, &'a [u8]),
    Format,
    Staged(SessionId, Seq, u64, u32),
    Forgotten(Hlc, u32),
    Inode(InodeId),
    Link(InodeId, InodeId, &'a [u8]),
    Snapshot(&'a [u8]),
    EntryStamps(InodeId),
    Outcome(SessionId, Seq),
    Policy(u32),
    Regime(u32),
    Removed(Hlc),
    Session(SessionId),
    Xattr(InodeId, &'a [u8]),
}

impl<'a> VersionKey<'a> {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            VersionKey::Loss => vec![LOSS],
            VersionKey::Entry(parent, name) => with_name(b'E', parent.0, name),
            VersionKey::Format => vec![b'F'],
            VersionKey::Staged(session, seq, plan, part) => with_name(
                STAGED,
                session.0,
                &[&seq.0.to_be_bytes()[..], &plan.to_be_bytes(), &part.to_be_bytes()].concat(),
            ),
            VersionKey::Forgotten(stamp, page) => with_name(b'H', stamp.0, &page.to_be_bytes()),
            VersionKey::Inode(id) => with_name(b'I', id.0, &[]),
            VersionKey::Link(id, parent, name) => with_name(b'L', id.0, &[&parent.0.to_be_bytes(), name].concat()),
            VersionKey::Snapshot(name) => [b"N", name].concat(),
            VersionKey::EntryStamps(id) => with_name(ENTRY_STAMPS, id.0, &[]),
            VersionKey::Outcome(session, seq) => with_name(b'R', session.0, &seq.0.to_be_bytes()),
            VersionKey::Policy(number) => with_name(POLICY, number.into(), &[]),
            VersionKey::Regime(number) => with_name(b'V', number.into(), &[]),
            VersionKey::Removed(stamp) => with_name(REMOVED, stamp.0, &[]),
            VersionKey::Session(id) => with_name(b'S', id.0, &[]),
            VersionKey::Xattr(id, name) => with_name(b'X', id.0, name),
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<VersionKey<'a>> {
        let (&letter, rest) = bytes.split_first()?;
        let long = || rest.split_first_chunk::<8>().map(|(number, tail)| (u64::from_be_bytes(*number), tail));
        let alone = || long().filter(|(_, tail)| tail.is_empty()).map(|(number, _)| number);
        match letter {
            b'E' => long().map(|(parent, name)| VersionKey::Entry(InodeId(parent), name)),
            LOSS if rest.is_empty() => Some(VersionKey::Loss),
            b'F' if rest.is_empty() => Some(VersionKey::Format),
            STAGED => {
                let (session, tail) = long()?;
                let (seq, tail) = tail.split_first_chunk::<8>()?;
                let (plan, part) = tail.split_first_chunk::<8>()?;
                let (seq, plan) = (Seq(u64::from_be_bytes(*seq)), u64::from_be_bytes(*plan));
                Some(VersionKey::Staged(SessionId(session), seq, plan, u32::from_be_bytes(part.try_into().ok()?)))
            }
            b'H' => {
                let (stamp, tail) = long()?;
                Some(VersionKey::Forgotten(Hlc(stamp), u32::from_be_bytes(tail.try_into().ok()?)))
            }
            b'I' => alone().map(|id| VersionKey::Inode(InodeId(id))),
            b'L' => {
                let (id, tail) = long()?;
                let (parent, name) = tail.split_first_chunk::<8>()?;
                Some(VersionKey::Link(InodeId(id), InodeId(u64::from_be_bytes(*parent)), name))
            }
            b'N' => Some(VersionKey::Snapshot(rest)),
            ENTRY_STAMPS => alone().map(|id| VersionKey::EntryStamps(InodeId(id))),
            b'R' => {
                let (session, tail) = long()?;
                Some(VersionKey::Outcome(SessionId(session), Seq(u64::from_be_bytes(tail.try_into().ok()?))))
            }
            POLICY => alone().and_then(|number| u32::try_from(number).ok()).map(VersionKey::Policy),
            b'V' => alone().and_then(|number| u32::try_from(number).ok()).map(VersionKey::Regime),
            REMOVED => alone().map(|stamp| VersionKey::Removed(Hlc(stamp))),
            b'S' => alone().map(|id| VersionKey::Session(SessionId(id))),
            b'X' => long().map(|(id, name)| VersionKey::Xattr(InodeId(id), name)),
            _ => None,
        }
    }
}

/// The key of the state of the control plane, which is stored beside the namespace and is none of it.
pub const CONTROL: u8 = b'C';

/// The key of what losses of names took.
const LOSS: u8 = b'D';

/// First byte of the keys of policies of retention.
const POLICY: u8 = b'K';

/// First byte of the keys of removed files that policies let go of. They come before inodes: of these files none is
/// taken into memory at a restart.
pub(crate) const REMOVED: u8 = b'B';

/// First byte of the keys of staged parts of edits.
const STAGED: u8 = b'G';

/// True if a store keeps every version of this key; false if only the newest matters: of remembered outcomes, which are
/// never read in the past, and would double the history of small files; of staged parts of edits;
/// of the state of the control plane; of losses; of policies, whose marks rise for ever.
pub fn keeps_versions(key: &[u8]) -> bool {
    !matches!(key.first(), Some(&(b'R' | STAGED | CONTROL | LOSS | POLICY)))
}

/// True if a restart takes the newest version of this key into memory ([`crate::Namespace::load`]); the names of an
/// inode are looked up in the store when a path is asked for.
pub fn is_loaded(key: &[u8]) -> bool {
    key.first() != Some(&LINKS)
}

/// True if an absence of this key with this stamp is no version: the one that was there goes, and leaves nothing. A
/// session is named after the stamp at which it was opened, so none was ever absent at that stamp.
pub fn erases(key: &[u8], stamp: Hlc) -> bool {
    VersionKey::decode(key) == Some(VersionKey::Session(SessionId(stamp.0)))
}

/// True if a version of this key may be written again, in its place: of sessions, as long as nothing at any instant
/// shows it.
pub fn is_rewritten(key: &[u8]) -> bool {
    key.first() == Some(&b'S')
}

/// First byte of the keys of directory entries.
pub const ENTRIES: u8 = b'E';

/// First byte of the keys of inodes.
pub const INODES: u8 = b'I';

/// Between the keys of the first five eighths of the inodes and those of the others, where `last` is the key of the
/// last inode, or any other if there is none: beside the directory entries, the others are half of what a restart
/// reads.
pub fn inode_between(last: &[u8]) -> Vec<u8> {
    match VersionKey::decode(last) {
        Some(VersionKey::Inode(InodeId(last))) => VersionKey::Inode(InodeId(last / 8 * 5)).encode(),
        _ => vec![INODES + 1],
    }
}

/// First byte of the keys of pages of stamps of a directory's entries.
pub const ENTRY_STAMPS: u8 = b'P';

/// The key of an inode.
pub fn inode_key(id: InodeId) -> Vec<u8> {
    VersionKey::Inode(id).encode()
}

/// The inode of a version's key, of an inode; `None` for other keys.
pub fn inode_of(key: &[u8]) -> Option<InodeId> {
    match VersionKey::decode(key)? {
        VersionKey::Inode(id) => Some(id),
        _ => None,
    }
}

/// First byte of the keys that restarts leave out.
pub const LINKS: u8 = b'L';

/// True if the index of time names the changes of this key: names, inodes and extended attributes. A change of entries
/// of a directory ([`crate::entry_stamps_of`]) is a change of its inode.
pub fn is_timed(key: &[u8]) -> bool {
    matches!(key.first(), Some(b'E' | b'I' | b'X'))
}

/// What a version is about, as clients cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cached {
    /// The names of a directory.
    Names(InodeId),
    /// Attributes of an inode, or the length and place of its bytes.
    Inode(InodeId),
}

/// What the version of `key` is about; `None` if it is nothing that a client caches.
pub fn cached_of(key: &[u8]) -> Option<Cached> {
    match VersionKey::decode(key)? {
        VersionKey::Entry(parent, _) => Some(Cached::Names(parent)),
        VersionKey::Inode(id) | VersionKey::Xattr(id, _) | VersionKey::EntryStamps(id) => Some(Cached::Inode(id)),
        _ => None,
    }
}

fn with_name(letter: u8, number: u64, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + name.len());
    key.push(letter);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(name);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart_as_they_were_put_together() {
        let keys = [
            VersionKey::Loss,
            VersionKey::Entry(InodeId(1), b"name"),
            VersionKey::Format,
            VersionKey::Staged(SessionId(7), Seq(9), u64::MAX, 3),
            VersionKey::Forgotten(Hlc(u64::MAX - 1), 7),
            VersionKey::Policy(7),
            VersionKey::Regime(u32::MAX),
            VersionKey::Removed(Hlc(8)),
            VersionKey::Inode(InodeId(u64::MAX)),
            VersionKey::Link(InodeId(7), InodeId(1), b"name"),
            VersionKey::Snapshot(b"before"),
            VersionKey::EntryStamps(InodeId(9)),
            VersionKey::Outcome(SessionId(7), Seq(9)),
            VersionKey::Session(SessionId(7)),
            VersionKey::Xattr(InodeId(2), b"user.color"),
        ];
        for key in keys {
            assert_eq!(VersionKey::decode(&key.encode()), Some(key));
        }
        for bad in [
            &b""[..],
            b"I1234567",
            b"I123456789",
            b"P123456789",
            b"L123456781234567",
            b"D1",
            b"F1",
            b"G123456781234567812345678123",
            b"H12345678123",
            b"R1234567812345678x",
            b"Z",
        ] {
            assert_eq!(VersionKey::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn golden_bytes_of_keys() {
        assert_eq!(VersionKey::Entry(InodeId(0x0102), b"a").encode(), b"E\0\0\0\0\0\0\x01\x02a");
        assert_eq!(VersionKey::EntryStamps(InodeId(0x0102)).encode(), b"P\0\0\0\0\0\0\x01\x02");
        let staged = VersionKey::Staged(SessionId(1), Seq(2), 3, 4).encode();
        assert_eq!(staged, b"G\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04");
        assert_eq!(VersionKey::Forgotten(Hlc(3), 1).encode(), b"H\0\0\0\0\0\0\0\x03\0\0\0\x01");
        assert_eq!(VersionKey::Outcome(SessionId(1), Seq(2)).encode(), b"R\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
    }

    #[test]
    fn entries_of_a_directory_that_change_are_names_and_its_attributes() {
        assert_eq!(cached_of(&VersionKey::Entry(InodeId(7), b"a").encode()), Some(Cached::Names(InodeId(7))));
        for key in [VersionKey::EntryStamps(InodeId(7)), VersionKey::Inode(InodeId(7))] {
            assert_eq!(cached_of(&key.encode()), Some(Cached::Inode(InodeId(7))));
        }
    }

    #[test]
    fn entries_of_a_directory_sort_by_name_and_stay_together() {
        let key = |parent, name: &'static [u8]| VersionKey::Entry(InodeId(parent), name).encode();
        assert!(key(1, b"a") < key(1, b"ab") && key(1, b"ab") < key(1, b"b") && key(1, b"\xff\xff") < key(2, b""));
    }

    #[test]
    fn any_bytes_are_a_key_or_none() {
        let seeds = [
            VersionKey::Entry(InodeId(1), b"name").encode(),
            VersionKey::Staged(SessionId(7), Seq(9), 11, 3).encode(),
            VersionKey::Forgotten(Hlc(u64::MAX - 1), 7).encode(),
            VersionKey::Link(InodeId(7), InodeId(1), b"name").encode(),
            VersionKey::Outcome(SessionId(7), Seq(9)).encode(),
            VersionKey::Session(SessionId(7)).encode(),
            b"F".to_vec(),
        ];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            if let Some(key) = VersionKey::decode(bytes) {
                assert_eq!(key.encode(), bytes, "a key has one encoding");
            }
            cached_of(bytes);
            erases(bytes, Hlc(7));
            inode_between(bytes);
        });
    }
}
