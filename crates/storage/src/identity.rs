//! Identity record of a data directory: format, cluster, key, clock bound, frontier, gaps.
//!
//! Guarantees: a write is durable on return, and a torn one leaves the older record (`disk::StateFile`). A directory of
//! another format version or cluster is refused with an error that says so.

use frieze_base::{ClusterId, Fault, LogIndex, NodeId, Reason, SegmentId, SessionId};
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_multilog::LogPosition;
use prost::Message;

use crate::ticket::Ticket;

/// Format of the data directory. Raised with every change of a stored format from the first release on.
pub const FORMAT_VERSION: u32 = 1;
/// File that holds the record.
pub const STATE_FILE: &str = "state";
/// Most gaps in the record; beyond, the oldest are merged.
const GAPS_MAX: usize = 100;
/// Most sessions in the list of those that may cache; beyond, only a flag says that there are more.
const CACHING_MAX: usize = 64;
/// Bytes of the list of nodes that a new node starts with: each of them leads to all others.
const KNOWN_FIRST_BYTES_MAX: usize = 512;

/// The stored record.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Identity {
    /// Format that builds from before the first format wrote here; 0 in a directory of this build.
    #[prost(uint32, tag = "1")]
    pub unreleased_format: u32,
    /// Format that builds wrote here in which a lone server had a metalog of its own; 0 in a directory of this build.
    #[prost(uint32, tag = "19")]
    pub lone_log_format: u32,
    /// Format of everything in the directory.
    #[prost(uint32, tag = "20")]
    pub format_version: u32,
    /// Cluster id, 16 bytes big-endian.
    #[prost(bytes = "vec", tag = "2")]
    pub cluster: Vec<u8>,
    /// Node id in the cluster.
    #[prost(uint32, tag = "3")]
    pub node: u32,
    /// Secret of the capabilities, 32 bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub capability_key: Vec<u8>,
    /// Upper bound of every stamp and promise so far.
    #[prost(uint64, tag = "5")]
    pub clock_bound: u64,
    /// Every record stamped up to it was durable when this was written.
    #[prost(uint64, tag = "6")]
    pub frontier: u64,
    /// Boot id of the machine that wrote it: while it is unchanged, the page cache has survived.
    #[prost(string, tag = "7")]
    pub boot: String,
    /// The server stopped cleanly, everything was flushed.
    #[prost(bool, tag = "8")]
    pub clean: bool,
    /// Lost intervals: from, to, from, to, …
    #[prost(uint64, repeated, tag = "9")]
    pub gaps: Vec<u64>,
    /// Newest instant at which everything was complete at the last crash with possible loss; 0 for none.
    #[prost(uint64, tag = "10")]
    pub last_whole: u64,
    /// Segment size of the device log.
    #[prost(uint64, tag = "11")]
    pub segment_bytes: u64,
    /// Count of chains that chunks are spread over.
    #[prost(uint32, tag = "12")]
    pub chain_count: u32,
    /// The device log was on stable storage up to this byte of this segment when this was written.
    #[prost(uint64, tag = "15")]
    pub durable_segment: u64,
    /// See `durable_segment`.
    #[prost(uint64, tag = "16")]
    pub durable_offset: u64,
    /// The metalog was on stable storage up to this entry when this was written.
    #[prost(uint64, tag = "17")]
    pub durable_index: u64,
    /// Sessions that received a cache lease: for one lease time after a crash they may still rely on it. Incomplete if
    /// `any_may_cache`.
    #[prost(uint64, repeated, tag = "18")]
    pub caching: Vec<u64>,
    /// More sessions received a cache lease than are listed: any open session may have one.
    #[prost(bool, tag = "45")]
    pub any_may_cache: bool,
    /// Role of the server in the metalog.
    #[prost(enumeration = "MetalogRole", tag = "30")]
    pub standing: i32,
    /// The server joined others: its data came from other members, which have it. False: it began alone.
    #[prost(bool, tag = "31")]
    pub has_joined: bool,
    /// A loss of power took what it had in memory, and it is not up to date since.
    #[prost(bool, tag = "33")]
    pub is_returning: bool,
    /// Number of the process: rises with each start.
    #[prost(uint64, tag = "40")]
    pub incarnation: u64,
    /// For a node that joined: the nodes it was given at that time, as `id@address`. Used until it knows more.
    #[prost(string, repeated, tag = "41")]
    pub known_first: Vec<String>,
    /// The node was removed from its cluster: no server serves this directory any more.
    #[prost(bool, tag = "42")]
    pub is_removed: bool,
    /// For a single server: copies wanted of everything once it is one of several; 0: as its settings say.
    #[prost(uint32, tag = "43")]
    pub replicas: u32,
    /// Place of the directory, as [`frieze_disk::FileDisk::place`] reports it: a copy of the directory has another.
    /// Empty until it is known.
    #[prost(string, tag = "44")]
    pub place: String,
    /// Records here may have died by entries of the metalog up to this one, or have come without their bytes: nothing
    /// of the past is shown before those are executed.
    #[prost(uint64, tag = "46")]
    pub expired_index: u64,
}

/// Role of a server in the metalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MetalogRole {
    /// It is the only member of its metalog, and no other may become one.
    Alone = 0,
    /// It waits to be added, and may not have started its journal.
    Joining = 1,
    /// It is a member, or was.
    Member = 2,
}

impl Identity {
    /// Reads the record of a directory; `None` if the directory is new.
    ///
    /// # Errors
    /// `WrongVersion` for another format; `Corrupt` if neither slot can be read or the directory holds logs but no
    /// record.
    pub fn load(disk: &dyn Disk) -> Result<Option<(Identity, StateFile)>, Fault> {
        let names = disk.list()?;
        if !names.iter().any(|name| name == STATE_FILE) {
            if let Some(name) =
                names.iter().find(|name| ["seg-", "meta-", "raft-"].iter().any(|of| name.starts_with(of)))
            {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!(
                        "the data directory holds {name} but no {STATE_FILE} file: it is not whole; restore the file \
                         or use an empty directory"
                    ),
                ));
            }
            return Ok(None);
        }
        let file = StateFile::open_or_create(disk, STATE_FILE)?;
        // A crash while the directory was being created leaves an empty record: start over.
        let Some(bytes) = file.read() else { return Ok(None) };
        let identity = Identity::decode(bytes.as_slice())
            .map_err(|error| Fault::new(Reason::Corrupt, format!("the {STATE_FILE} file is malformed: {error}")))?;
        let older = identity.unreleased_format.max(identity.lone_log_format);
        if older != 0 {
            return Err(Fault::new(
                Reason::WrongVersion,
                format!(
                    "the data directory was made by an older, unreleased build of frieze (format {older} of that \
                     time), which this one does not read: serve it with the build that made it, and copy what it holds \
                     into a new directory"
                ),
            ));
        }
        if identity.format_version != FORMAT_VERSION {
            return Err(Fault::new(
                Reason::WrongVersion,
                format!(
                    "the data directory has format version {}, this server reads {FORMAT_VERSION}: use the version of \
                     frieze that made it",
                    identity.format_version
                ),
            ));
        }
        Ok(Some((identity, file)))
    }

    /// The cluster.
    pub fn cluster_id(&self) -> ClusterId {
        let mut bytes = [0u8; 16];
        let len = self.cluster.len().min(16);
        bytes[..len].copy_from_slice(&self.cluster[..len]);
        ClusterId(u128::from_be_bytes(bytes))
    }

    /// The node.
    pub fn node_id(&self) -> NodeId {
        NodeId(self.node)
    }

    /// Stores the first of `known`.
    pub fn set_known_first(&mut self, known: &[String]) {
        let mut left = KNOWN_FIRST_BYTES_MAX;
        let has_room = |node: &&String| {
            left = left.saturating_sub(node.len() + 2);
            left > 0
        };
        self.known_first = known.iter().take_while(has_room).cloned().collect();
    }

    /// Adds `session` to those that may cache. Removes listed sessions that are not `alive`.
    pub fn note_caching(&mut self, session: SessionId, alive: impl Fn(SessionId) -> bool) {
        self.caching.retain(|id| alive(SessionId(*id)) && *id != session.0);
        if self.caching.len() < CACHING_MAX {
            self.caching.push(session.0);
        } else {
            self.any_may_cache = true;
        }
    }

    /// Those of the `open` sessions that may cache.
    pub fn may_cache(&self, open: impl Iterator<Item = SessionId>) -> Vec<SessionId> {
        open.filter(|id| self.any_may_cache || self.caching.contains(&id.0)).collect()
    }

    /// Replaces the list by `sessions`, found at a start.
    pub fn set_caching(&mut self, sessions: &[SessionId]) {
        self.any_may_cache = sessions.len() > CACHING_MAX;
        self.caching = sessions.iter().take(CACHING_MAX).map(|id| id.0).collect();
    }

    /// The record under a new cluster identity. A holder of the earlier secret can no longer prove anything with it.
    pub fn renamed(self, cluster: ClusterId) -> Identity {
        Identity {
            cluster: cluster.0.to_be_bytes().to_vec(),
            capability_key: secret_after(&self.key(), cluster).to_vec(),
            known_first: Vec::new(),
            place: String::new(),
            is_removed: false,
            ..self
        }
    }

    /// The secret of the capabilities.
    pub fn key(&self) -> [u8; 32] {
        let mut key = [0u8; 32];
        let len = self.capability_key.len().min(32);
        key[..len].copy_from_slice(&self.capability_key[..len]);
        key
    }

    /// Position up to which both logs were on stable storage.
    pub fn durable(&self) -> Ticket {
        Ticket {
            data: LogPosition { segment: SegmentId(self.durable_segment), offset: self.durable_offset },
            meta: LogIndex(self.durable_index),
        }
    }

    /// Stores the position up to which both logs are on stable storage.
    pub fn set_durable(&mut self, durable: Ticket) {
        (self.durable_segment, self.durable_offset) = (durable.data.segment.0, durable.data.offset);
        self.durable_index = durable.meta.0;
    }

    /// Records that everything stamped in (`from`, `to`) may be lost.
    pub fn add_gap(&mut self, from: Hlc, to: Hlc) {
        assert!(from <= to, "a gap from {from} cannot end at {to}");
        self.gaps.extend([from.0, to.0]);
        while self.gaps.len() > 2 * GAPS_MAX {
            // Two gaps become one that covers both: an answer may then be marked incomplete without need, never the
            // reverse.
            self.gaps.drain(1..3);
        }
    }

    /// The lost intervals, oldest first.
    pub fn gaps(&self) -> impl Iterator<Item = (Hlc, Hlc)> + '_ {
        self.gaps.chunks_exact(2).map(|pair| (Hlc(pair[0]), Hlc(pair[1])))
    }

    /// True if `at` lies inside a lost interval.
    pub fn in_gap(&self, at: Hlc) -> bool {
        self.gaps().any(|(from, to)| at > from && at < to)
    }
}

/// The secret of a cluster that continues as `cluster`, derived from the earlier one: a holder of the old secret can
/// verify a proof by the new one.
pub fn secret_after(secret: &[u8; 32], cluster: ClusterId) -> [u8; 32] {
    *blake3::keyed_hash(secret, &cluster.0.to_be_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_of_caching_sessions_means_all_open_ones_until_a_start_finds_few() {
        let mut identity = Identity::default();
        let open = || (1..=1000).map(SessionId);
        for id in open().take(CACHING_MAX) {
            identity.note_caching(id, |_| true);
        }
        assert_eq!(identity.may_cache(open()), open().take(CACHING_MAX).collect::<Vec<_>>());
        identity.note_caching(SessionId(900), |_| true);
        assert_eq!(identity.may_cache(open()).len(), 1000);
        // Ended sessions make space, and the unlisted ones are still unknown.
        identity.note_caching(SessionId(901), |_| false);
        assert_eq!(identity.may_cache(open()).len(), 1000);
        identity.set_caching(&identity.may_cache(open()));
        assert_eq!(identity.may_cache(open()).len(), 1000);
        identity.set_caching(&identity.may_cache(open().take(3)));
        assert_eq!(identity.may_cache(open()), open().take(3).collect::<Vec<_>>());
    }

    #[test]
    fn a_record_with_every_field_full_fits() {
        let mut identity = Identity {
            format_version: u32::MAX,
            cluster: vec![0xff; 16],
            node: u32::MAX,
            capability_key: vec![0xff; 32],
            clock_bound: u64::MAX,
            frontier: u64::MAX,
            // As the kernel prints it.
            boot: "x".repeat(36),
            clean: true,
            last_whole: u64::MAX,
            segment_bytes: u64::MAX,
            chain_count: u32::MAX,
            durable_segment: u64::MAX,
            durable_offset: u64::MAX,
            durable_index: u64::MAX,
            standing: MetalogRole::Member as i32,
            has_joined: true,
            is_returning: true,
            incarnation: u64::MAX,
            is_removed: true,
            replicas: u32::MAX,
            // A device number and a time.
            place: "x".repeat(20 + 1 + 20 + 1 + 9),
            expired_index: u64::MAX,
            ..Identity::default()
        };
        for i in 0..1000 {
            identity.add_gap(Hlc(u64::MAX - 1000 + i), Hlc(u64::MAX - 1000 + i));
            identity.note_caching(SessionId(u64::MAX - i), |_| true);
        }
        identity.set_known_first(&vec!["4294967295@a-server-of-this-cluster.example.org:7300".to_owned(); 1000]);
        assert!(identity.known_first.len() >= 8, "{}", identity.known_first.len());
        let len = identity.encoded_len();
        assert!(len <= frieze_disk::STATE_BYTES_MAX, "{len}");
    }

    #[test]
    fn gaps_beyond_the_bound_are_merged_and_still_cover() {
        let mut identity = Identity::default();
        for i in 0..(GAPS_MAX as u64 + 10) {
            identity.add_gap(Hlc(i * 100), Hlc(i * 100 + 50));
        }
        assert_eq!(identity.gaps().count(), GAPS_MAX);
        assert!(identity.in_gap(Hlc(25)) && identity.in_gap(Hlc(525)));
        let last = (GAPS_MAX as u64 + 9) * 100;
        assert!(identity.in_gap(Hlc(last + 1)) && !identity.in_gap(Hlc(last + 50)) && !identity.in_gap(Hlc(last)));
    }

    #[test]
    fn any_bytes_are_an_identity_or_corrupt() {
        let mut identity = Identity { format_version: 1, cluster: vec![7; 16], node: 3, ..Identity::default() };
        identity.add_gap(Hlc(5), Hlc(9));
        identity.set_known_first(&["1@db1:7470".to_owned()]);
        identity.set_caching(&[SessionId(4), SessionId(5)]);
        frieze_harness::fuzz!([identity.encode_to_vec()], |bytes: &[u8]| {
            let decode = |bytes: &[u8]| Identity::decode(bytes).ok();
            let Some(mut identity) = frieze_harness::check_stable(bytes, decode, Identity::encode_to_vec) else {
                return;
            };
            identity.key();
            identity.cluster_id();
            identity.in_gap(Hlc(7));
            identity.note_caching(SessionId(9), |_| true);
            identity.add_gap(Hlc(10), Hlc(11));
            assert!(identity.gaps().count() <= GAPS_MAX && identity.may_cache([SessionId(9)].into_iter()).len() == 1);
        });
    }
}
