//! Reads the files in a data directory that no server uses, now and at any instant.
//!
//! Guarantees: nothing in the directory changes, and no server starts on it meanwhile. Reads run through the server's
//! own read path, so the archive shows what the server would show. For a member of a cluster all its entries count,
//! those not known to be committed as well, as if it continued alone ([`crate::survivor`]). If a copy here cannot vouch
//! for data, the archive reports that and never omits it in silence. Leaves to others: rights (a user with read access
//! to the directory reads all of it), and where the files go.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, LogIndex, MonoTime, NodeId, Reason, SessionId};
use frieze_disk::{Disk, MachineTime, TimeSource, ViewDisk};
use frieze_hlc::{Hlc, format_instant};
use frieze_metadata::{StoreCopy, check_store};
use frieze_namespace::NoReadSet;
use frieze_planes::{Principal, layout_of};
use frieze_service::{Bearer, Capability, Presenter, Scratch};
use frieze_storage::{Identity, MetalogRole};
use frieze_wire::chain::Configuration;
use frieze_wire::message::{Attr, Now, Read, Seek, View};
use frieze_wire::txn::{Caller, Target};

use crate::offline;
use crate::parts::ServerParts;
use crate::survivor::{Copy, Left, LeftChain};

/// Names of a directory that are asked for at once.
const PAGE: usize = 1000;
/// The session of every read: an archive has no sessions of its own.
const READER: SessionId = SessionId(1);

/// A data directory, opened for reading its files.
pub struct Archive {
    parts: ServerParts,
    _copy: StoreCopy,
    notes: Vec<String>,
    damaged: Option<String>,
    member: Option<MemberArchive>,
    scratch: Scratch,
}

/// What is known of the data directory of a member of a cluster.
#[derive(Clone, Debug)]
pub struct MemberArchive {
    /// The number of this node.
    pub node: NodeId,
    /// Up to this instant the chains with a full copy here are whole. Later writes of other members are missing here.
    pub whole: Hlc,
    /// Number of metalog entries that are read and not known to be committed.
    pub kept: u64,
    /// Index of the last entry of the metalog.
    pub last: LogIndex,
    /// Chains without a full copy here, by number.
    pub lacking: BTreeMap<ChainId, LeftChain>,
    /// Chains in all.
    pub chains: u64,
}

/// An extended attribute: its name and its value.
pub type NamedXattr = (Vec<u8>, Vec<u8>);

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bytes; of a hole zeros.
    pub bytes: Vec<u8>,
    /// It reaches to the end of the file.
    pub is_end: bool,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub inode: InodeId,
}

impl Archive {
    /// Opens the data directory `dir`. If it is damaged, the undamaged part is readable, and [`Archive::damaged`] says
    /// why.
    ///
    /// # Errors
    /// `Busy` if a server uses it, `NotFound` if it is no data directory or holds nothing yet, `Corrupt` if nothing of
    /// it can be served; the system's.
    ///
    /// # Cost
    /// As a server's start; of a member twice.
    pub fn open(dir: &Path) -> Result<Archive, Fault> {
        let standing = {
            let disk = ViewDisk::open(dir)?;
            offline::check_is_one(&disk, dir)?;
            match Identity::load(&disk)? {
                Some((identity, _)) => check_store(&disk, dir).map(|()| identity.standing())?,
                None => return Err(nothing_yet(dir)),
            }
        };
        let open = |damaged| match standing {
            MetalogRole::Alone => Archive::open_alone(dir, damaged),
            MetalogRole::Member => Archive::open_member(dir, damaged),
            MetalogRole::Joining => Err(nothing_yet(dir)),
        };
        match open(false) {
            Err(fault) if fault.reason == Reason::Corrupt => {
                let archive = open(true)?;
                Ok(Archive { damaged: Some(fault.message), ..archive })
            }
            other => other,
        }
    }

    fn open_alone(dir: &Path, serve_damaged: bool) -> Result<Archive, Fault> {
        let copy = StoreCopy::of(dir)?;
        let disk: Arc<dyn Disk> = Arc::new(ViewDisk::open(dir)?);
        let parts = copy.open(|store| offline::open(disk, store, time(), serve_damaged))?;
        Ok(Archive::of(parts, copy, None))
    }

    fn open_member(dir: &Path, serve_damaged: bool) -> Result<Archive, Fault> {
        let left = {
            let copy = StoreCopy::of(dir)?;
            let disk: Arc<dyn Disk> = Arc::new(ViewDisk::open(dir)?);
            copy.open(|store| Left::look(disk, store, time(), serve_damaged))?
        };
        let copy = StoreCopy::of(dir)?;
        // The lease lives in the view and is dropped with it.
        let disk: Arc<dyn Disk> = Arc::new(ViewDisk::open(dir)?);
        left.go_on(&disk, offline::new_cluster()?, time().reading().wall_us)?;
        let parts = copy.open(|store| offline::open(disk, store, time(), serve_damaged))?;
        let me = left.node;
        let ends = parts.planes.chain_ends();
        let newest = ends.iter().map(|end| end.epoch.max(end.taken)).max().unwrap_or_default();
        let alone = Configuration { epoch: ChainEpoch(newest.0 + 1), members: vec![me], ..Configuration::default() };
        let configured: Vec<_> = ends.iter().map(|end| (end.chain, alone.clone())).collect();
        parts.configure(&configured)?;
        // No other server can hold the lease.
        parts.renew_lease(MonoTime(u64::MAX));
        if left.is_sole() {
            return Ok(Archive::of(parts, copy, None));
        }
        let lacking = left.chains.iter().filter(|chain| chain.copy != Copy::Full);
        let member = MemberArchive {
            node: me,
            whole: left.known.1,
            kept: left.kept(),
            last: left.last.0,
            lacking: lacking.map(|chain| (chain.chain, *chain)).collect(),
            chains: left.chains.len() as u64,
        };
        Ok(Archive::of(parts, copy, Some(member)))
    }

    fn of(parts: ServerParts, copy: StoreCopy, member: Option<MemberArchive>) -> Archive {
        let notes = parts.notes().iter().map(|note| copy.original_words(note)).collect();
        Archive { parts, _copy: copy, notes, damaged: None, member, scratch: Scratch::default() }
    }

    /// Notes that a server would print at its start; none of them is an error by itself.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why a server would refuse to start, if it would: the archive then shows the undamaged part.
    pub fn damaged(&self) -> Option<&str> {
        self.damaged.as_deref()
    }

    /// Of a member of a cluster.
    pub fn member(&self) -> Option<&MemberArchive> {
        self.member.as_ref()
    }

    /// Now, by the clock of this machine.
    pub fn now(&self) -> Hlc {
        Hlc::last_of_micros(time().reading().wall_us)
    }

    /// The instant of a snapshot, or `last-whole`.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn instant_named(&self, name: &str) -> Result<Hlc, Fault> {
        Ok(Hlc(self.parts.planes.now(&Now { name: name.to_owned(), nearest: 0 })?.at))
    }

    /// The earliest instant that can be read.
    pub fn earliest(&self) -> Hlc {
        self.parts.planes.earliest()
    }

    /// The saved snapshots.
    pub fn snapshots(&self) -> Vec<(String, Hlc)> {
        self.parts.planes.meta.snapshots().into_iter().map(|snapshot| (snapshot.name, snapshot.at)).collect()
    }

    /// The intervals in which writes may be lost, oldest first. For a member, the interval that begins at its own end
    /// is left out.
    pub fn gaps(&self) -> Vec<(Hlc, Hlc)> {
        let mut gaps = self.parts.planes.all_gaps();
        if self.member.is_some() {
            // The last gap belongs to the view, in which the server continues alone.
            let ends = gaps.iter().map(|(_, to)| *to).max();
            gaps.retain(|(_, to)| Some(*to) != ends);
        }
        gaps
    }

    /// Checks that an instant can be read. Returns the gap that contains the instant, if one does.
    ///
    /// # Errors
    /// `HistoryExpired` for an instant before the earliest, `Future` for one after now.
    pub fn begin(&self, at: Hlc) -> Result<Option<(Hlc, Hlc)>, Fault> {
        self.parts.planes.answer(view(Some(at)))?;
        let in_gap = self.gaps().into_iter().find(|(from, to)| *from < at && at < *to);
        let beyond = self.member.as_ref().filter(|member| at > member.whole);
        Ok(in_gap.or(beyond.map(|member| (member.whole, Hlc::MAX))))
    }

    /// The inode at a path; symbolic links on the way are followed, one at the end is not.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `HistoryExpired`.
    pub fn find(&self, path: &[u8], at: Option<Hlc>) -> Result<InodeId, Fault> {
        let target = Target { base: InodeId::ROOT.0, path: path.to_vec(), follow: false };
        Ok(self.parts.planes.resolve(&root(), &target, at, &NoReadSet)?.id)
    }

    /// Attributes.
    ///
    /// # Errors
    /// `NotFound`, `HistoryExpired`; the disk's.
    pub fn attr(&self, id: InodeId, at: Option<Hlc>) -> Result<Attr, Fault> {
        let inode = self.parts.planes.inode_at(id, at)?;
        Ok(self.parts.service.read.attr(id, &inode, view(at))?.0)
    }

    /// Up to a page of names in a directory after `after`, in byte order; an empty page is the end.
    ///
    /// # Errors
    /// `NotDirectory`, `HistoryExpired`; the disk's.
    pub fn list(&self, id: InodeId, at: Option<Hlc>, after: &[u8]) -> Result<Vec<Listed>, Fault> {
        let listed = self.parts.planes.meta.list(id, at, after, PAGE)?;
        Ok(listed.into_iter().map(|entry| Listed { name: entry.name, inode: entry.inode }).collect())
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none; `HistoryExpired`.
    pub fn link(&self, id: InodeId, at: Option<Hlc>) -> Result<Vec<u8>, Fault> {
        Ok(self.parts.planes.inode_at(id, at)?.symlink_target().to_vec())
    }

    /// Extended attributes, by name.
    ///
    /// # Errors
    /// `HistoryExpired`; the disk's.
    pub fn xattrs(&self, id: InodeId, at: Option<Hlc>) -> Result<Vec<NamedXattr>, Fault> {
        let xattrs = self.parts.planes.meta.xattrs(id, at, &Caller::root(), &|_| true)?;
        Ok(xattrs.into_iter().collect())
    }

    /// Bytes of a file, holes as zeros, cut at its end.
    ///
    /// # Errors
    /// `Corrupt` if some of them are damaged: ask for less at a time. The disk's.
    pub fn read(&mut self, id: InodeId, at: Option<Hlc>, offset: u64, len: u32) -> Result<Part, Fault> {
        let capability = self.capability(id, at);
        let ask = Read { capability, offset, len, ..Read::default() };
        let (reply, _) =
            self.parts.service.read.read(Presenter::of_any(READER, root().uid), &ask, &mut self.scratch)?;
        Ok(Part { bytes: self.scratch.payload.clone(), is_end: reply.end_of_file })
    }

    /// The next bytes of a file of `size` from `offset` on that may hold data; `None`: there are none.
    ///
    /// # Errors
    /// The disk's.
    pub fn next_data(
        &mut self,
        id: InodeId,
        at: Option<Hlc>,
        offset: u64,
        size: u64,
    ) -> Result<Option<Range<u64>>, Fault> {
        let capability = self.capability(id, at);
        let mut seek = |offset, data| {
            let ask = Seek { capability: capability.clone(), offset, data };
            match self.parts.service.read.seek(Presenter::of_any(READER, root().uid), &ask, &mut self.scratch) {
                Err(fault) if fault.reason == Reason::NotFound => Ok(None),
                found => found.map(Some),
            }
        };
        if offset >= size {
            return Ok(None);
        }
        let Some(start) = seek(offset, true)? else { return Ok(None) };
        let end = seek(start, false)?.unwrap_or(size).min(size);
        Ok((start < end).then_some(start..end))
    }

    /// The chains that hold bytes of a file and have no full copy here: reads of the file may lack bytes or return
    /// older ones.
    ///
    /// # Errors
    /// `HistoryExpired`.
    pub fn lacks(&self, id: InodeId, at: Option<Hlc>) -> Result<Vec<LeftChain>, Fault> {
        let Some(member) = self.member.as_ref().filter(|member| !member.lacking.is_empty()) else {
            return Ok(Vec::new());
        };
        let inode = self.parts.planes.inode_at(id, at)?;
        let size = self.parts.service.read.attr(id, &inode, view(at))?.0.size;
        let layout = layout_of(id, &inode);
        // If a session holds a write grant, the end of the file may be on a chunk that is not here.
        let open = !inode.grants().is_empty();
        let chunks = size.div_ceil(layout.chunk_bytes).min(u32::MAX.into()) as u32;
        let every = layout.chain_count;
        let chunks = if open { every } else { chunks.min(every) };
        let mut chains: Vec<ChainId> = (0..chunks).map(|index| layout.chain(index)).collect();
        // The shared bytes of a clone are on the chains of their origin.
        if inode.patches_in(0, size).next().is_some() {
            chains = member.lacking.keys().copied().collect();
        }
        chains.sort();
        chains.dedup();
        let is_lacking = |chain: &LeftChain| at.is_none_or(|at| at > chain.whole);
        Ok(chains
            .iter()
            .filter_map(|chain| member.lacking.get(chain))
            .filter(|chain| is_lacking(chain))
            .copied()
            .collect())
    }

    fn capability(&self, inode: InodeId, at: Option<Hlc>) -> Vec<u8> {
        let bearer = if at.is_some() { Bearer::User(0) } else { Bearer::Session(READER) };
        let capability = Capability { bearer, inode, read: true, write: false, view: view(at), opener: None };
        self.parts.service.sessions.mint.seal(&capability)
    }
}

fn time() -> Arc<dyn TimeSource> {
    Arc::new(MachineTime::new())
}

fn view(at: Option<Hlc>) -> View {
    View { at: at.map(|at| at.0), user_at: None }
}

fn root() -> Principal {
    Principal { uid: 0, caller: Caller::root(), privileged: true }
}

fn nothing_yet(dir: &Path) -> Fault {
    Fault::new(
        Reason::NotFound,
        format!("{} holds no files yet: a server was made there and never got any", dir.display()),
    )
}

impl std::fmt::Display for LeftChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.copy {
            Copy::Full => write!(f, "chain {} is whole up to {}", self.chain, format_instant(self.whole)),
            Copy::Stale => write!(
                f,
                "chain {} has only an older copy here, whole up to {}",
                self.chain,
                format_instant(self.whole)
            ),
            Copy::None => write!(f, "chain {} has no copy here", self.chain),
        }
    }
}
