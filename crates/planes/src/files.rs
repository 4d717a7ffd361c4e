//! Files as this server sees them, over both planes and over the chains of other servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};

use crate::file_version::FileVersion;
use crate::planes::Planes;

/// For each chain the configuration under which this server has executed every earlier decision: a file may have been
/// truncated under an earlier head.
#[derive(Default)]
pub struct CaughtUp(Mutex<levels::ChainDecisions, BTreeMap<ChainId, ChainEpoch>>);

impl CaughtUp {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<ChainId, ChainEpoch>> {
        self.0.lock()
    }
}

/// Files over both planes: what they are at an instant, and what other servers know of them.
pub struct Files {
    /// The planes.
    pub planes: Arc<Planes>,
    /// Chains whose earlier decisions this server has executed.
    pub caught_up: CaughtUp,
}

impl Files {
    /// Over these planes.
    pub fn new(planes: Arc<Planes>) -> Files {
        Files { planes, caught_up: CaughtUp::default() }
    }

    /// An inode as it was at a closed instant, to be read.
    ///
    /// # Errors
    /// `HistoryExpired` for what was forgotten; those of the store.
    pub fn version_at(&self, id: InodeId, at: Hlc) -> Result<FileVersion, Fault> {
        let inode = self.planes.inode_at(id, Some(at))?;
        Ok(FileVersion::at(id, inode, Some(at)))
    }
}
