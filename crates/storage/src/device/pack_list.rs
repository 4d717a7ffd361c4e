//! The list of packs in use, on disk and open.
//!
//! Guarantees: a start uses the packs that the list names, and removes those that newer ones took the place of, or that
//! were about to be listed; without a list, or with an older one, it is refused. What was discarded of a chain since a
//! pack was made is not used of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{ChainId, Fault, MonoTime, Reason, SegmentId};
use frieze_disk::{Disk, StateFile};
use frieze_multilog::{Discards, LogPosition, PackIndex, PackKey, PackPlace};
use prost::Message;

use super::pack_file::{PackFile, UnpackedBlocks, damaged_pack};

/// The file with the list of packs.
const FILE: &str = "packs";
/// Its size: some three thousand packs.
const FILE_BYTES: usize = 256 << 10;
/// Most bytes of a pack in the list, and of what the file has besides.
const STORED_BYTES_MAX: usize = 128;
/// Name of a pack that is being written.
pub(super) const UNFINISHED: &str = "pack-unfinished";

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPacks {
    /// The serial number of the newest pack.
    #[prost(uint64, tag = "1")]
    pub(super) newest: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) packs: Vec<StoredPack>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPack {
    #[prost(uint64, tag = "1")]
    pub(super) serial: u64,
    #[prost(uint32, tag = "2")]
    pub(super) chain: u32,
    #[prost(uint64, tag = "3")]
    pub(super) first: u64,
    #[prost(uint64, tag = "4")]
    pub(super) last: u64,
    /// Last of its numbers that the chain still has.
    #[prost(uint64, tag = "5")]
    pub(super) upto: u64,
    /// End of the log when it was made.
    #[prost(uint64, tag = "6")]
    pub(super) made_segment: u64,
    #[prost(uint64, tag = "7")]
    pub(super) made_offset: u64,
    /// Up to this number the space of its records in segments was given back.
    #[prost(uint64, tag = "8")]
    pub(super) released: u64,
}

impl StoredPack {
    pub(super) fn of(serial: u64, key: PackKey, place: &PackPlace) -> StoredPack {
        StoredPack {
            serial,
            chain: key.chain.0,
            first: key.first,
            last: key.last,
            upto: place.upto,
            made_segment: place.made.segment.0,
            made_offset: place.made.offset,
            released: place.released,
        }
    }

    pub(super) fn place(&self) -> PackPlace {
        let made = LogPosition { segment: SegmentId(self.made_segment), offset: self.made_offset };
        PackPlace { id: SegmentId::pack(self.serial), made, upto: self.upto, released: self.released }
    }

    pub(super) fn key(&self) -> PackKey {
        PackKey { chain: ChainId(self.chain), first: self.first, last: self.last }
    }
}

/// The packs of a device.
#[derive(Default)]
pub(super) struct PackList {
    pub(super) stored: StoredPacks,
    file: Option<StateFile>,
    /// A write of the list failed: what the disk has is not known until the next start.
    pub(super) has_failed: bool,
    pub(super) open: BTreeMap<SegmentId, Arc<PackFile>>,
    pub(super) unpacked: Arc<UnpackedBlocks>,
    /// Packs that newer ones took the place of.
    pub(super) leaving: Vec<(SegmentId, ReaderWait)>,
    /// Records of packs in use that still take space in segments: their chain, and the last number.
    pub(super) unreleased: Vec<((ChainId, u64), ReaderWait)>,
}

/// The wait until no reader uses a former place of records any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderWait {
    /// It begins as soon as a thread with a clock looks.
    Begins,
    /// It began then.
    Since(MonoTime),
    /// It is over: the process that had the readers ended.
    Over,
}

impl ReaderWait {
    /// True if it has lasted `wait_ns`.
    pub(super) fn is_over(&mut self, now: MonoTime, wait_ns: u64) -> bool {
        if *self == ReaderWait::Begins {
            *self = ReaderWait::Since(now);
        }
        match self {
            ReaderWait::Since(since) => now.since_ns(*since) >= wait_ns,
            _ => true,
        }
    }
}

/// What recovery finds of packs.
pub(super) struct FoundPacks {
    pub(super) list: PackList,
    pub(super) indexes: Vec<PackIndex>,
}

pub(super) fn pack_name(serial: u64) -> String {
    format!("pack-{serial:016x}")
}

fn pack_of(name: &str) -> Option<u64> {
    let serial = name.strip_prefix("pack-")?;
    (serial.len() == 16).then(|| u64::from_str_radix(serial, 16).ok()).flatten()
}

impl FoundPacks {
    /// Opens the packs that the list names, and removes those that a crash may have left.
    ///
    /// # Errors
    /// `Corrupt` if the list or a pack in it is damaged; with `serve_damaged` a pack is left out, and `notes` says so.
    /// The disk's.
    pub(super) fn open(
        disk: &dyn Disk,
        discarded: &[Discards],
        serve_damaged: bool,
        notes: &mut Vec<String>,
    ) -> Result<FoundPacks, Fault> {
        let mut found = FoundPacks { list: PackList::default(), indexes: Vec::new() };
        let names = disk.list()?;
        if names.iter().any(|name| name == FILE) {
            let file = StateFile::open_or_create_sized(disk, FILE, FILE_BYTES)?;
            found.list.stored = StoredPacks::decode(file.read().unwrap_or_default().as_slice())
                .map_err(|error| Fault::new(Reason::Corrupt, format!("the {FILE} file is malformed: {error}")))?;
            found.list.file = Some(file);
            // A crash may have come between the note of what was discarded and the change of the list.
            for pack in &mut found.list.stored.packs {
                let made = pack.place().made;
                let of_chain = discarded.iter().filter(|one| one.chain.0 == pack.chain && made <= one.before);
                pack.upto = of_chain.map(|one| one.after).fold(pack.upto, u64::min);
            }
            found.list.stored.packs.retain(|pack| pack.upto >= pack.first);
        }
        if let Some(words) = found.list.contradiction(&names) {
            // Packs that may be all there is of their records are not removed.
            if !serve_damaged {
                return Err(Fault::new(Reason::Corrupt, words));
            }
            notes.push(words);
        } else {
            for name in &names {
                let is_listed = |serial| found.list.stored.packs.iter().any(|pack| pack.serial == serial);
                if name == UNFINISHED || pack_of(name).is_some_and(|serial| !is_listed(serial)) {
                    disk.remove(name)?;
                }
            }
            if let Some(file) = &found.list.file {
                // Both slots have the newest list, so damage to one of them does not bring back an older.
                file.write(&found.list.stored.encode_to_vec())?;
            }
        }
        for stored in &found.list.stored.packs {
            let name = pack_name(stored.serial);
            let opened = match disk.open(&name) {
                Ok(raw) => PackFile::open(raw, stored.place(), &found.list.unpacked),
                Err(error) if error.reason() == Reason::NotFound => Err("it is missing".to_owned()),
                Err(error) => return Err(error.into()),
            };
            let opened = opened.and_then(|(file, index)| match index.key() == stored.key() {
                true => Ok((file, index)),
                false => Err("it has other records than the list of packs says".to_owned()),
            });
            match opened {
                Ok((file, index)) => {
                    found.list.open.insert(stored.place().id, Arc::new(file));
                    found.indexes.push(index);
                    if stored.released < stored.upto {
                        found.list.unreleased.push(((stored.key().chain, stored.upto), ReaderWait::Over));
                    }
                }
                Err(what) if serve_damaged => notes.push(damaged_pack(&name, &what).message),
                Err(what) => {
                    let words = format!(
                        "{what}. Put it back; or read what is left with 'frieze export DIR'; or set serve_damaged = \
                         true to serve what is left, where files whose records it had read as zeros or as older bytes"
                    );
                    return Err(damaged_pack(&name, &words));
                }
            }
        }
        Ok(found)
    }
}

impl PackList {
    /// Changes the list on disk, then in memory.
    pub(super) fn change(&mut self, disk: &dyn Disk, change: impl FnOnce(&mut StoredPacks)) -> Result<(), Fault> {
        let mut changed = self.stored.clone();
        change(&mut changed);
        if self.file.is_none() {
            self.file = Some(StateFile::open_or_create_sized(disk, FILE, FILE_BYTES)?);
        }
        let file = self.file.as_ref().expect("just made");
        // Into both slots: if one is damaged, an older list would not name packs that have the only copy of records.
        let bytes = changed.encode_to_vec();
        let written = file.write(&bytes).and_then(|()| file.write(&bytes));
        self.has_failed |= written.as_ref().is_err_and(|error| error.reason() != Reason::InvalidArgument);
        written?;
        self.stored = changed;
        Ok(())
    }

    /// Checks that it can name one more pack, or one in the place of others.
    pub(super) fn check_room(&self, replaces: bool) -> Result<(), Fault> {
        if self.has_failed {
            let words = "the list of packs could not be written: restart the server";
            return Err(Fault::new(Reason::InputOutput, words));
        }
        match !replaces && self.stored.encoded_len() + STORED_BYTES_MAX > FILE_BYTES {
            true => Err(Fault::new(Reason::NoSpace, "the list of packs is full: there are some thousands")),
            false => Ok(()),
        }
    }

    /// What packs on the disk say against the list, if they do. A crash leaves at most packs that were replaced, and
    /// one that was about to be listed.
    fn contradiction(&self, names: &[String]) -> Option<String> {
        let is_empty = self.file.as_ref().is_none_or(|file| file.read().is_none());
        let newest = names.iter().filter_map(|name| pack_of(name)).max()?;
        if !is_empty && newest <= self.stored.newest + 1 {
            return None;
        }
        let what = if is_empty { "is missing or empty".to_owned() } else { "is an older one".to_owned() };
        Some(format!(
            "the list of packs, the file {FILE}, {what}, and there is {}: it may have the only copy of old records. \
             Put it back; or read what is left with 'frieze export DIR'; or set serve_damaged = true to serve what is \
             left, where files whose records are in packs cannot be read",
            pack_name(newest)
        ))
    }

    /// The payloads of all packs by place.
    pub(super) fn payloads(&self) -> impl Iterator<Item = (SegmentId, Arc<dyn frieze_disk::DiskFile>)> {
        self.open.iter().map(|(id, file)| (*id, file.payloads()))
    }
}
