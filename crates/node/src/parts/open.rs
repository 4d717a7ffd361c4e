//! Opening a server's state: the planes, then the rooms over them; a new file system in a new directory.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use frieze_base::{Fault, MonoTime, SessionId};
use frieze_coherence::{CacheLeaseSettings, FileLocks, OpenFiles};
use frieze_locks::Mutex;
use frieze_planes::{NotedChanges, PlaneHost, Planes, Settings};
use frieze_service::{Caching, Mint, NodeKeys, Scrub, Service, SessionTable, Sessions, Unshown};
use frieze_storage::Identity;
use frieze_wire::txn::{self, Caller, Op, Transaction};

use super::{Seams, ServerParts};
use crate::removal::Removal;
use crate::successor::Successors;

impl ServerParts {
    /// Opens a data directory, making a file system in it if it is new, and recovers it after a crash.
    ///
    /// # Errors
    /// `WrongVersion`, `Corrupt`, `NoSpace`, and the disk's, each with what to do.
    pub fn open(settings: Settings, seams: Seams) -> Result<ServerParts, Fault> {
        settings.validate()?;
        let settings = settings.with_memory_divided(0)?;
        let (disk, wake) = (seams.disk, Arc::from(seams.wake));
        let host = PlaneHost {
            disk: disk.clone(),
            time: seams.time,
            store: seams.store,
            boot: &seams.boot,
            entropy: &seams.entropy,
            wake,
            owner_uid: seams.owner.uid,
        };
        let (planes, mut notes) = Planes::open(settings, host)?;
        let planes = Arc::new(planes);
        let secret = planes.keeper.with(Identity::key);
        let started = planes.clock.reading().mono;
        let cached: Vec<SessionId> = {
            let open = planes.meta.sessions().all;
            planes.keeper.with(|identity| identity.may_cache(open.into_iter()))
        };
        if planes.keeper.with(|identity| identity.any_may_cache) {
            planes.keeper.update(|identity| identity.set_caching(&cached))?;
        }
        // Not 0, which a client sends that knows no server process.
        let life = u64::from_le_bytes(seams.entropy[56..64].try_into().expect("eight bytes")) | 1;
        let mut locks = FileLocks::default();
        let granted = CacheLeaseSettings::default();
        locks.found(cached.iter().copied(), MonoTime(started.0 + granted.lease_ns));
        let telling = cached.clone();
        let caching = Arc::new(Caching::new(planes.clock.clone(), life, granted, cached));
        let noted = Arc::new(NotedChanges::new(&planes.changes, &caching));
        planes.meta.observe_by(noted.clone());
        planes.data.set_observer(noted);
        let scrub = Scrub::open(disk, &mut notes);
        let unshown = Unshown::of_memory(planes.settings.memory_bytes_max);
        let sessions = Sessions {
            planes: planes.clone(),
            table: SessionTable::default(),
            caching,
            locks: Mutex::new(locks),
            opened: OpenFiles::default(),
            mint: Mint::new(secret),
            keys: seams.keys,
            nodes: NodeKeys::of(secret),
            attached_at: AtomicU64::new(0),
        };
        let parts = ServerParts {
            service: Service::new(&planes, sessions, unshown, scrub),
            planes,
            process: seams.process,
            started,
            control: OnceLock::new(),
            tended: AtomicU64::new(0),
            founding: Mutex::default(),
            removal: Removal::default(),
            successors: Successors::default(),
            seed: u64::from_le_bytes(seams.entropy[40..48].try_into().expect("eight bytes")),
            listens_at: OnceLock::new(),
            notes,
            socket: OnceLock::new(),
            fabric: OnceLock::new(),
        };
        parts.make_file_system(&seams.owner)?;
        for session in parts.planes.meta.sessions().all {
            parts.service.sessions.table.found(session, started);
        }
        parts.service.sessions.opened.found(telling);
        // A member whose journal is damaged is looked at only: it writes nothing.
        parts.planes.meta.check_takes_part().map_or(Ok(()), |()| parts.planes.flush())?;
        // The expired ranges are listed again: freeing that a crash interrupted continues.
        parts.planes.gc.want();
        Ok(parts)
    }

    fn make_file_system(&self, owner: &Caller) -> Result<(), Fault> {
        if !self.planes.meta.awaits_format() {
            return Ok(());
        }
        let mode = self.planes.settings.root_mode.unwrap_or(0o755);
        let format = txn::Format {
            chunk_bytes: self.planes.settings.chunk_bytes,
            chain_count: self.planes.settings.chain_count,
            uid: owner.uid,
            gid: owner.gid,
            mode,
        };
        let transaction = Transaction {
            session: 0,
            seq: 0,
            acked: 0,
            caller: owner.clone(),
            must_see: 0,
            op: Some(Op::Format(format)),
        };
        self.planes.meta.execute(transaction, None)?.into_result()?;
        Ok(())
    }
}
