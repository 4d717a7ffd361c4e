//! The metadata plane: transactions are gathered into batches, ordered by the metalog, executed by the namespace.
//!
//! Guarantees: a transaction is in the log before it is executed; every transaction has one stamp and runs once; what
//! it reads and writes is the namespace at that stamp.
//! Leaves to others: who may ask (`engine`), when to flush (`durability`).

mod alone;
mod segments;
mod slots;
mod state;

use std::sync::Arc;

use frieze_base::{Fault, LogIndex};
use frieze_disk::Disk;
use frieze_hlc::Hlc;
use frieze_metalog::DataEnd;
use frieze_namespace::Namespace;
use frieze_wire::txn::{Outcome, Transaction};

use crate::caching::{Caching, Gate};
use crate::clock::{Keeper, NodeClock};
use crate::device::Device;
use crate::reading::Reading;
use crate::store::{VersionStore, Versions};

use alone::Alone;
pub use segments::{SegmentFiles, Unflushed};
use state::State;

/// Order and execution of metadata.
pub(crate) struct MetaPlane {
    state: State,
    alone: Alone,
}

/// How far recovery is to reach.
pub(crate) struct MetaReach {
    /// The log was on stable storage up to this entry.
    pub(crate) durable: LogIndex,
    /// Serve what is left.
    pub(crate) serve_damaged: bool,
}

impl MetaPlane {
    /// Loads the namespace from `versions` and replays the metalog on `disk` after it, as far as the data log reaches.
    /// Returns the plane and what was cut, in words.
    ///
    /// # Errors
    /// `Corrupt` if an entry cannot be decoded or the log does not reach back to what the store holds; the disk's.
    #[expect(clippy::too_many_arguments, reason = "what recovery needs, handed over once")]
    pub(crate) fn recover(
        clock: Arc<NodeClock>,
        keeper: Arc<Keeper>,
        device: Arc<Device>,
        disk: Arc<dyn Disk>,
        settings: frieze_metalog::Settings,
        versions: Versions,
        data_end: DataEnd,
        reach: &MetaReach,
    ) -> Result<(MetaPlane, Vec<String>), Fault> {
        let state = State::load(versions)?;
        let (alone, notes) = Alone::recover(clock, keeper, device, disk, settings, &state, data_end, reach)?;
        Ok((MetaPlane { state, alone }, notes))
    }

    /// Executes a transaction; `gate` hears what it reads.
    ///
    /// # Errors
    /// Only what kept it from being ordered (`NoSpace`, `Fenced`, `InputOutput`, `Overloaded`); it has no effect then.
    /// What the transaction itself failed with is in its outcome.
    pub(crate) fn execute(&self, transaction: Transaction, gate: Option<Arc<Gate>>) -> Result<Outcome, Fault> {
        self.alone.execute(&self.state, transaction, gate)
    }

    /// From now on `caching` is told of every change before anybody sees it.
    pub(crate) fn watch(&self, caching: Arc<Caching>) {
        self.state.watch(caching);
    }

    /// Takes over from the identity which inode numbers may be given.
    pub(crate) fn begin_ids(&self) {
        self.alone.begin_ids();
    }

    /// Stamp of the last transaction in the log.
    pub(crate) fn newest(&self) -> Hlc {
        self.alone.newest()
    }

    /// Gives the store back: the plane was recovered in vain.
    pub(crate) fn into_store(self) -> Box<dyn VersionStore> {
        self.state.versions.into_store()
    }

    /// Index of the last entry appended.
    pub(crate) fn appended(&self) -> LogIndex {
        self.alone.appended()
    }

    /// Makes every entry up to the last durable; the data they name must be durable already. Returns the last.
    ///
    /// # Errors
    /// The disk's: refuse writes from then on.
    pub(crate) fn sync(&self, through: LogIndex) -> Result<(), Fault> {
        self.alone.sync(through)
    }

    /// Gives back copies of the log in the kernel's memory, if they are more than `bytes_max`. Returns how many bytes there
    /// are; 0 where nobody knows. Nobody reads the log but the next start.
    ///
    /// # Errors
    /// The disk's: more is in memory than should be, and nothing else.
    pub(crate) fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let files = self.alone.files();
        let mut cached = 0;
        for file in &files {
            cached += file.cached_bytes()?.unwrap_or(0);
        }
        if cached > bytes_max {
            for file in &files {
                file.let_go(0, file.len()?)?;
            }
        }
        Ok(cached)
    }

    /// The store holds everything up to `through`, durably: the log may use its space again.
    pub(crate) fn truncate(&self, through: LogIndex) -> Result<(), Fault> {
        self.alone.truncate(through)
    }

    /// The namespace as it is now.
    pub(crate) fn namespace(&self) -> Reading<'_, Namespace> {
        self.state.read()
    }

    /// Its history.
    pub(crate) fn versions(&self) -> &Versions {
        &self.state.versions
    }

    /// Promises that no transaction will be stamped at or below `at` any more. True if that was so already.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet.
    pub(crate) fn close(&self, at: Hlc) -> Result<bool, Fault> {
        self.alone.close(at)
    }

    /// The newest instant closed.
    pub(crate) fn closed(&self) -> Hlc {
        self.alone.closed()
    }
}
