//! What other servers know of how far files reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::Tail;

use crate::file_version::FileVersion;

/// The answers of other servers about files, for one look at them.
#[derive(Clone, Default)]
pub struct RemoteReach {
    /// By file and instant: the chains that are not read here.
    pub(crate) files: BTreeMap<(InodeId, Option<Hlc>), Away>,
    /// Records of remote chains stamped up to this are all counted; `None` if no server was asked.
    pub complete: Option<Hlc>,
}

/// What this server cannot read of one file at one instant.
#[derive(Clone)]
pub(crate) struct Away {
    pub(crate) chains: Arc<BTreeSet<ChainId>>,
    /// How far the file reaches in those chunks of these chains that writers may write.
    pub(crate) tail: Tail,
}

impl RemoteReach {
    /// Remote chains about which no server was asked: the file may be longer.
    pub fn unasked(seen: &FileVersion, chains: BTreeSet<ChainId>) -> RemoteReach {
        let away = Away { chains: Arc::new(chains), tail: Tail::default() };
        RemoteReach { files: BTreeMap::from([((seen.id, seen.upto), away)]), complete: None }
    }

    /// An answer that counts all uncommitted records, as the answer for now.
    pub fn of_now(&self, id: InodeId) -> RemoteReach {
        let files = self.files.get(&(id, Some(Hlc::MAX))).map(|away| ((id, None), away.clone()));
        RemoteReach { files: files.into_iter().collect(), complete: self.complete }
    }

    /// The chains of this file that are not read here, and how far it reaches in them; `None` if there is none.
    pub fn of(&self, seen: &FileVersion) -> Option<(&BTreeSet<ChainId>, Tail)> {
        let away = self.files.get(&(seen.id, seen.upto))?;
        Some((&away.chains, away.tail))
    }

    /// True if this chain of the file is not read here.
    pub fn has(&self, seen: &FileVersion, chain: ChainId) -> bool {
        self.of(seen).is_some_and(|(chains, _)| chains.contains(&chain))
    }
}

/// A request that needs the whole file needs it at one server.
pub fn not_whole_here(id: InodeId) -> Fault {
    Fault::new(
        Reason::Unsupported,
        format!(
            "inode {id} has bytes that this server has no copy of, and in this version what is asked needs all of them \
             at one server; ask for as many copies as there are servers (frieze cluster replicas N), or for less at a \
             time"
        ),
    )
}
