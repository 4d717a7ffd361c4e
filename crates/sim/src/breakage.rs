//! Servers that are broken on purpose, from outside: the checkers have to detect every one.

use std::sync::Arc;

use crate::exchange::MachineResponse;
use frieze_base::{Rng, Seq};
use frieze_disk::{Disk, DiskFile, Result, SimDisk, Space};
use frieze_hlc::Hlc;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, Request, RequestBody};

/// A way to break the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerBreak {
    /// Files whose name starts so are said to be synced and are not; of the names in the directory: `dir`.
    SyncLies(&'static str),
    /// Every third batch of the namespace's store is forgotten.
    StoreForgets,
    /// A memtable of the store becomes a table before its entries are durable in the log.
    TablesEarly,
    /// Tables of the store say that they are complete up to a later entry than they are.
    AppliedAhead,
    /// Outcomes that are to be remembered are left out of the memtable that is sealed.
    OutcomesForgotten,
    /// A start takes a checkpoint for the present: it does not read what has changed since.
    CheckpointAlone,
    /// The server does not notice that the machine went down.
    BootUnnoticed,
    /// Retries are not recognised.
    RetriesRunAgain,
    /// A read at an instant misses changes stamped exactly at it.
    InstantsExclusive,
    /// Now and then a byte of an answer is wrong.
    BytesRot,
    /// An acknowledgement names another stamp than the record has.
    StampsOff,
    /// Some requests are never answered.
    AnswersLost,
    /// Answers inside gaps do not say so.
    GapsHidden,
    /// Clones and restores take a state before the one that was asked for.
    EditsMiss,
    /// An undo reverts the changes of all users.
    UndoesAll,
    /// A change feed lacks the last change of its interval.
    TimeForgets,
    /// More is forgotten than was asked for.
    ForgetsMore,
    /// Space is given back that is in use.
    HolesWander,
}

impl ServerBreak {
    /// Every one, for the test of the tester.
    pub const ALL: &'static [ServerBreak] = &[
        ServerBreak::SyncLies("seg-"),
        ServerBreak::SyncLies("raft-"),
        ServerBreak::SyncLies("state"),
        ServerBreak::SyncLies("dir"),
        ServerBreak::StoreForgets,
        ServerBreak::TablesEarly,
        ServerBreak::AppliedAhead,
        ServerBreak::OutcomesForgotten,
        ServerBreak::CheckpointAlone,
        ServerBreak::BootUnnoticed,
        ServerBreak::RetriesRunAgain,
        ServerBreak::InstantsExclusive,
        ServerBreak::BytesRot,
        ServerBreak::StampsOff,
        ServerBreak::AnswersLost,
        ServerBreak::GapsHidden,
        ServerBreak::EditsMiss,
        ServerBreak::UndoesAll,
        ServerBreak::TimeForgets,
        ServerBreak::ForgetsMore,
        ServerBreak::HolesWander,
    ];

    /// Breaks a request on its way in.
    pub(crate) fn mangle(
        self,
        mut header: FrameHeader,
        body: RequestBody,
        rng: &mut Rng,
    ) -> (FrameHeader, RequestBody) {
        let mut body = body;
        match self {
            ServerBreak::RetriesRunAgain if header.seq != Seq(0) => {
                header.seq = Seq(header.seq.0 << 16 | rng.between(1, 0xffff));
                header.acked = Seq(0);
            }
            ServerBreak::EditsMiss => match &mut body.request {
                Some(Request::Restore(ask)) => ask.at = Hlc(ask.at).previous().0,
                Some(Request::Clone(ask)) if ask.at != 0 => ask.at = Hlc(ask.at).previous().0,
                _ => {}
            },
            ServerBreak::ForgetsMore => {
                if let Some(Request::Forget(ask)) = &mut body.request {
                    ask.before = Hlc(ask.before).next().0;
                }
            }
            ServerBreak::UndoesAll => {
                if let Some(Request::Undo(ask)) = &mut body.request {
                    ask.sessions.clear();
                }
            }
            ServerBreak::InstantsExclusive => {
                let view = match &mut body.request {
                    Some(Request::Stat(ask)) => Some(&mut ask.view),
                    Some(Request::List(ask)) => Some(&mut ask.view),
                    Some(Request::Open(ask)) => Some(&mut ask.view),
                    _ => None,
                };
                if let Some(at) = view.and_then(|view| view.at.as_mut()) {
                    *at = Hlc(*at).previous().0;
                }
            }
            _ => {}
        }
        (header, body)
    }

    /// Breaks an answer on its way out. False: it is lost.
    pub(crate) fn spoil(self, answer: &mut MachineResponse) -> bool {
        match (self, &mut answer.result) {
            (ServerBreak::RetriesRunAgain, _) => answer.header.seq = Seq(answer.header.seq.0 >> 16),
            (ServerBreak::BytesRot, Ok(Reply::Read(_))) if answer.header.request_id.is_multiple_of(7) => {
                if let Some(byte) = answer.payload.last_mut() {
                    *byte ^= 1;
                }
            }
            (ServerBreak::StampsOff, Ok(Reply::Write(reply))) => reply.stamp += 1,
            (ServerBreak::AnswersLost, Ok(Reply::Done(_))) => return false,
            (ServerBreak::GapsHidden, Ok(Reply::Stat(reply))) => reply.answered.incomplete = false,
            (ServerBreak::GapsHidden, Ok(Reply::List(reply))) => reply.answered.incomplete = false,
            (ServerBreak::GapsHidden, Ok(Reply::Open(reply))) => reply.answered.incomplete = false,
            (ServerBreak::GapsHidden, Ok(Reply::Read(reply))) => reply.answered.incomplete = false,
            (ServerBreak::TimeForgets, Ok(Reply::Diff(reply))) => drop(reply.differences.pop()),
            (ServerBreak::TimeForgets, Ok(Reply::Story(reply))) => drop(reply.events.pop()),
            _ => {}
        }
        true
    }
}

/// A disk that does not do what its caller asks.
pub(crate) fn faulty_disk(disk: SimDisk, corruption: DiskCorruption) -> Arc<dyn Disk> {
    Arc::new(FaultyDisk { disk, corruption })
}

/// A way in which a disk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskCorruption {
    /// Syncs of files whose name starts so do nothing; of the names in the directory: `dir`.
    Syncs(&'static str),
    /// Holes are longer than they should be.
    Holes,
}

struct FaultyDisk {
    disk: SimDisk,
    corruption: DiskCorruption,
}

struct FaultyFile(Arc<dyn DiskFile>, DiskCorruption);

impl FaultyDisk {
    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let lies = match self.corruption {
            DiskCorruption::Syncs(prefix) => name.starts_with(prefix),
            DiskCorruption::Holes => true,
        };
        if lies { Arc::new(FaultyFile(file, self.corruption)) } else { file }
    }
}

impl Disk for FaultyDisk {
    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(name, self.disk.create(name, len)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(name, self.disk.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> Result<()> {
        if self.corruption == DiskCorruption::Syncs("dir") { Ok(()) } else { self.disk.sync_dir() }
    }

    fn space(&self) -> Result<Space> {
        self.disk.space()
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.0.write_at(offset, parts)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, into)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.0.read_direct_at(offset, into)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        self.0.prefetch(offset, len)
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> Result<()> {
        self.0.advise_dont_need(offset, len)
    }

    fn hint_random_reads(&self) -> Result<()> {
        self.0.hint_random_reads()
    }

    fn cached_bytes(&self) -> Result<Option<u64>> {
        self.0.cached_bytes()
    }

    fn punch(&self, offset: u64, len: u64) -> Result<u64> {
        self.0.punch(offset, if self.1 == DiskCorruption::Holes { len + HOLE_TOO_LONG_BYTES } else { len })
    }

    fn sync(&self) -> Result<()> {
        if self.1 == DiskCorruption::Holes { self.0.sync() } else { Ok(()) }
    }
}

/// Four pages: a record or two of those beside it.
const HOLE_TOO_LONG_BYTES: u64 = 16 << 10;
