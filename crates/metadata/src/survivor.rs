//! The journal of a member whose majority is lost for good: read, and ended with the decision to go on alone.

use std::sync::Arc;

use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_disk::Disk;
use frieze_hlc::Hlc;
use frieze_metalog::{MemberFrom, MemberSettings, Members, Salvage, SalvageFrom, Survivor};
use frieze_wire::peer::metalog::MetalogState;
use frieze_wire::txn::Batch;
use prost::Message;

use super::codec;
use super::durable_mark::DurableMark;
use super::segments::SegmentFiles;
use crate::store::NameVersions;
use frieze_storage::Identity;

/// The journal of a member that does not run.
pub struct SurvivorJournal {
    survivor: Survivor,
    files: SegmentFiles,
}

/// Where the store of a member is: what its journal is read after.
#[derive(Clone, Debug)]
pub struct SurvivorStore {
    from: MemberFrom,
    /// Newest stamp in the store.
    stamp: Hlc,
}

impl SurvivorStore {
    /// Reads it from the store of node `id`.
    ///
    /// # Errors
    /// `Corrupt` if the store cannot say; the store's.
    pub fn read(id: NodeId, versions: &NameVersions) -> Result<SurvivorStore, Fault> {
        let installed = match versions.name()? {
            Some(bytes) => {
                let name = MetalogState::decode(bytes.as_slice()).map_err(|error| {
                    Fault::new(Reason::Corrupt, format!("the name of the state received last cannot be read: {error}"))
                })?;
                Some(codec::state_from_wire(&name))
            }
            None => None,
        };
        // Nothing is drawn: no election is held while it is read.
        let from = MemberFrom {
            id,
            seed: 0,
            incarnation: 0,
            kept_memory: true,
            stamp_bound: Hlc::ZERO,
            applied: versions.applied()?,
            installed,
            data_end: None,
        };
        Ok(SurvivorStore { from, stamp: versions.newest_change() })
    }
}

impl SurvivorJournal {
    /// Reads it from the disk of a member. `serve_damaged`: read what is left of it, if it is damaged.
    ///
    /// # Errors
    /// `Corrupt` if something that was on stable storage is lost, or the journal never began; the disk's.
    pub fn read(
        disk: &Arc<dyn Disk>,
        identity: &Identity,
        store: &SurvivorStore,
        serve_damaged: bool,
    ) -> Result<SurvivorJournal, Fault> {
        let segment_bytes = MemberSettings::default().segment_bytes.min(identity.segment_bytes / 4);
        let settings = MemberSettings { segment_bytes, ..MemberSettings::default() };
        let mut files = SegmentFiles::new(disk.clone());
        let durable = match serve_damaged {
            true => (identity.durable().meta, DurableMark::open(&**disk)?.read()?),
            false => (LogIndex(0), LogIndex(0)),
        };
        let read = Survivor::read(&settings, &store.from, &mut files);
        let is_damaged = match &read {
            Ok(survivor) => survivor.last() < durable.0 || survivor.last_record() < durable.1,
            Err(error) => serve_damaged && error.is_loss(),
        };
        let survivor = if is_damaged {
            let (member, stamp, whose) = (store.from.clone(), store.stamp, Salvage::OneOfSeveral);
            let from = SalvageFrom { member, stamp, durable, whose };
            Survivor::salvage(&settings, &from, &mut files)?
        } else {
            read?
        };
        Ok(SurvivorJournal { survivor, files })
    }

    /// The last entry of the journal.
    pub fn last(&self) -> LogIndex {
        self.survivor.last()
    }

    /// Stamp of the last transaction in the journal.
    pub fn newest(&self) -> Hlc {
        self.survivor.newest()
    }

    /// The last entry that is known to be committed.
    pub fn known(&self) -> LogIndex {
        self.survivor.known()
    }

    /// Its stamp.
    pub fn known_stamp(&self) -> Hlc {
        self.survivor.known_stamp()
    }

    /// The members, as of the last entry.
    pub fn members(&self) -> &Members {
        self.survivor.members()
    }

    /// Ends the journal with a decision that makes this member the only one. Durable on return, in one write: until
    /// then it is as before.
    ///
    /// # Errors
    /// The disk's.
    pub fn go_on(self, stamp: Hlc, decision: &frieze_cluster::Decision) -> Result<(), Fault> {
        let SurvivorJournal { survivor, mut files } = self;
        let batch = Batch { transactions: Vec::new(), ids_above: 0, decisions: vec![decision.to_wire()] };
        let alone = survivor.go_on(stamp, &batch.encode_to_vec())?;
        files.mend(&alone.mend)?;
        // What was read counts as being on stable storage from now on.
        files.sync_all()?;
        for effect in alone.effects {
            if let frieze_metalog::MemberEffect::Append { roll, segment, offset, bytes, .. } = effect {
                files.write(roll, segment, offset, &bytes)?;
            }
        }
        files.take_unflushed().flush()?;
        files.set_aside(&alone.damaged_files)
    }
}
