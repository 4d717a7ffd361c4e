//! Servers that are broken on purpose, from outside: the checkers have to detect every one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// A page or block that changed counts as the one of before when it is read from a checkpoint again.
    ColdNamesStale,
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
        ServerBreak::ColdNamesStale,
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
    Arc::new(FaultyDisk { disk, corruption, pieces: Arc::default() })
}

/// A way in which a disk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskCorruption {
    /// Syncs of files whose name starts so do nothing; of the names in the directory: `dir`.
    Syncs(&'static str),
    /// Holes are longer than they should be.
    Holes,
    /// A piece of a checkpoint is that of the checkpoint before, if that has the same length: for the process that
    /// wrote it, as if a page that changed had the place of the one of before.
    Pieces,
}

/// Pieces of the checkpoint that was written last, each behind its head, by letter and number.
type WrittenPieces = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

struct FaultyDisk {
    disk: SimDisk,
    corruption: DiskCorruption,
    pieces: WrittenPieces,
}

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    corruption: DiskCorruption,
    pieces: WrittenPieces,
    /// What reads find in place of what was written.
    stale: Mutex<Vec<u8>>,
}

impl FaultyDisk {
    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let lies = match self.corruption {
            DiskCorruption::Syncs(prefix) => name.starts_with(prefix),
            DiskCorruption::Holes => true,
            DiskCorruption::Pieces => name == "checkpoint-unfinished",
        };
        let (corruption, pieces) = (self.corruption, self.pieces.clone());
        if lies { Arc::new(FaultyFile { file, corruption, pieces, stale: Mutex::default() }) } else { file }
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
        self.file.len()
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if self.corruption == DiskCorruption::Pieces && offset == 0 {
            let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
            *self.stale.lock().unwrap_or_else(PoisonError::into_inner) = with_old_pieces(parts.concat(), &mut pieces);
        }
        self.file.write_at(offset, parts)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let found = self.file.read_at(offset, into)?;
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = stale.get(offset as usize..).unwrap_or_default();
        let count = stale.len().min(found);
        into[..count].copy_from_slice(&stale[..count]);
        Ok(found)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.file.read_direct_at(offset, into)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        self.file.prefetch(offset, len)
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> Result<()> {
        self.file.advise_dont_need(offset, len)
    }

    fn hint_random_reads(&self) -> Result<()> {
        self.file.hint_random_reads()
    }

    fn cached_bytes(&self) -> Result<Option<u64>> {
        self.file.cached_bytes()
    }

    fn punch(&self, offset: u64, len: u64) -> Result<u64> {
        self.file.punch(offset, if self.corruption == DiskCorruption::Holes { len + HOLE_TOO_LONG_BYTES } else { len })
    }

    fn sync(&self) -> Result<()> {
        if matches!(self.corruption, DiskCorruption::Syncs(_)) { Ok(()) } else { self.file.sync() }
    }
}

/// A checkpoint with pieces of the one before where they are of the same length. `pieces` become those of this one.
fn with_old_pieces(mut bytes: Vec<u8>, pieces: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let before = std::mem::take(pieces);
    let mut at = CHECKPOINT_HEADER_BYTES;
    while let Some(&[a, b, c, d]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let end = at + PIECE_HEAD_BYTES + u32::from_le_bytes([a, b, c, d]) as usize;
        let Some(piece) = bytes.get_mut(at..end) else { break };
        let number = piece.iter().skip(PIECE_HEAD_BYTES + 1).take_while(|byte| **byte >= 0x80).count();
        let key = piece[PIECE_HEAD_BYTES..].iter().take(number + 2).copied().collect::<Vec<u8>>();
        pieces.insert(key.clone(), piece.to_vec());
        if let Some(old) = before.get(&key).filter(|old| old.len() == piece.len()) {
            piece.copy_from_slice(old);
        }
        at = end;
    }
    bytes
}

/// As in the format of a checkpoint.
const CHECKPOINT_HEADER_BYTES: usize = 88;
const PIECE_HEAD_BYTES: usize = 8;
/// Four pages: a record or two of those beside it.
const HOLE_TOO_LONG_BYTES: u64 = 16 << 10;
