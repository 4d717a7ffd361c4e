//! Packs on disk: making them, which are in use, and giving back what they took the place of.
//!
//! Guarantees: a pack is used once it is on stable storage, was read back whole, and the list of packs names it; until
//! then the records that it is made of answer. Records and older packs give their space back when readers that may
//! still use their places have ended. A crash at any moment leaves the packs of before, or those of after.
//! Leaves to others: which records died (`planes`), when to pack (`service`), the index of a pack (`multilog`).
//!
//! Two indexes lie in a pack, as a damaged one could not be made anew from footers: they do not say where a payload
//! lies in a pack.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, InodeId, MonoTime, Reason, SegmentId};
use frieze_disk::DiskFile;
use frieze_hlc::Hlc;
use frieze_multilog::{
    Damage, DamageKind, FileToPack, PackIndex, PackIndexBuilder, PackKey, PackPlace, Piece, PieceSource, RecordToPack,
    StoredSpan, pack_id, pack_serial,
};
use frieze_wire::chain::RecordHeader;

use super::pack_file::{PackFile, PackHead, PayloadBlock, damaged_pack};
use super::pack_list::{PackList, StoredPack, UNFINISHED, pack_name};
use super::pack_writer::PackWriter;
use super::{Device, FileKey, block_checksums};

/// Places of a pack end below this: a record names its place by 32 bits.
const PLACES_MAX: u64 = 3 << 30;

/// What is to be packed.
#[derive(Clone, Debug)]
pub struct PackOrder {
    /// The records.
    pub key: PackKey,
    /// Stamp of the last: all records of the chain up to there are among the numbers, or in packs before it.
    pub newest: Hlc,
    /// The packs that it takes the place of.
    pub old: Vec<SegmentId>,
    /// [`Device::removals`] when it was decided.
    pub removals: u64,
}

/// The next file of a pack by inode, and after the last `None`.
pub type NextFile<'a> = dyn FnMut() -> Result<Option<FileToPack>, Fault> + 'a;

impl Device {
    /// How many packs wait until readers of what they took the place of have ended; bytes that packs take on the
    /// device.
    pub fn pack_stats(&self) -> (u64, u64) {
        let packs = self.packs.lock();
        let bytes =
            packs.open.values().map(|pack| pack.head.indexes[1] + pack.head.index_bytes + pack.head.table_bytes).sum();
        ((packs.leaving.len() + packs.unreleased.len()) as u64, bytes)
    }

    /// Counts how often records of chains were discarded: a pack that is being made then is given up.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// The largest number of a chain stamped up to `upto` that index runs have, and its stamp; `None` if there is none
    /// after `after`.
    ///
    /// # Errors
    /// The disk's; `Corrupt` if a footer cannot be read.
    ///
    /// # Cost
    /// Reads the footers of some 20 segments.
    pub fn number_upto(&self, chain: ChainId, after: u64, upto: Hlc) -> Result<Option<(u64, Hlc)>, Fault> {
        let Some(tip) = self.tips().get(&chain).copied() else { return Ok(None) };
        let stamp_of = |n: u64| -> Result<Hlc, Fault> {
            let found = self.records_of(chain, n - 1, 1)?;
            let found = found.first().filter(|found| found.header.n == n);
            found
                .map(|found| found.header.stamp)
                .ok_or_else(|| Fault::new(Reason::Corrupt, format!("record {n} of chain {chain} is not in the log")))
        };
        if tip.n > after && tip.stamp <= upto {
            return Ok(Some((tip.n, tip.stamp)));
        }
        let (mut low, mut high) = (after, tip.n);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if stamp_of(middle)? <= upto { low = middle } else { high = middle - 1 }
        }
        if low > after { Ok(Some((low, stamp_of(low)?))) } else { Ok(None) }
    }

    /// Writes a pack of what `next` gives, and puts it in the place of its records; `old` are packs whose numbers it
    /// has too. False, and nothing has changed, if it would be too large,
    /// something was discarded meanwhile, or `goes_on`, which is asked after each file with the bytes written, says no.
    ///
    /// # Errors
    /// The disk's; `NoSpace` without room for `bytes_max` bytes; `Corrupt` if a record is damaged. Then nothing has
    /// changed.
    ///
    /// # Cost
    /// Reads all payloads, writes what they compress to, and reads that back.
    pub fn write_pack(
        &self,
        order: &PackOrder,
        bytes_max: u64,
        next: &mut NextFile<'_>,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Fault> {
        if bytes_max > PLACES_MAX {
            return Ok(false);
        }
        if !self.has_room(bytes_max) {
            let words = format!("the disk has no room for a pack of {bytes_max} bytes: free some, or forget history");
            return Err(Fault::new(Reason::NoSpace, words));
        }
        if self.disk.list()?.iter().any(|name| name == UNFINISHED) {
            self.disk.remove(UNFINISHED)?;
        }
        let raw = self.disk.create(UNFINISHED, bytes_max)?;
        let mut writer = PackWriter::new(&*raw, bytes_max);
        let mut index = PackIndexBuilder::default();
        while let Some(file) = next()? {
            let places = self.write_payloads(&file, &mut writer)?;
            file.add_to(&mut index, &places);
            if !goes_on(std::mem::take(&mut writer.since_asked)) {
                self.disk.remove(UNFINISHED)?;
                return Ok(false);
            }
        }
        let head = writer.finish((order.key, order.newest), index, self.settings.block_bytes)?;
        raw.sync()?;
        self.put_pack(order, &head, goes_on)
    }

    /// Writes the payloads of a file and returns the places of its records. What shows together lies together: chunk by
    /// chunk, by the kept instant that shows it first, by offset.
    fn write_payloads(&self, file: &FileToPack, writer: &mut PackWriter<'_>) -> Result<Vec<u32>, Fault> {
        let mut places = vec![0; file.records.len()];
        let mut order: Vec<usize> = (0..places.len()).filter(|at| file.records[*at].stored.is_some()).collect();
        order.sort_by_key(|at| {
            let RecordToPack { header, shown_from, .. } = &file.records[*at];
            (header.chunk.index, *shown_from, header.offset, header.stamp)
        });
        let (mut bytes, mut scratch, mut chunk) = (Vec::new(), Vec::new(), None);
        for at in order {
            let record = &file.records[at];
            let Some(stored) = record.stored else { continue };
            if chunk != Some(record.header.chunk.index) {
                chunk = Some(record.header.chunk.index);
                writer.end_block()?;
            }
            bytes.resize(stored.record_len as usize, 0);
            let piece = Piece { at: 0, len: stored.record_len, source: PieceSource::Data(stored) };
            self.read_pieces(&[piece], 0, &mut bytes, &mut scratch)?;
            let (crcs, _) = block_checksums(&bytes, self.block_bytes());
            let crcs: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
            places[at] = writer.place() as u32;
            writer.add(&crcs)?;
            writer.add(&bytes)?;
        }
        Ok(places)
    }

    /// Reads a pack back, names it, and uses it.
    fn put_pack(
        &self,
        order: &PackOrder,
        written: &PackHead,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Fault> {
        let (serial, unpacked) = {
            let packs = self.packs.lock();
            (packs.stored.next + 1, packs.unpacked.clone())
        };
        let made = self.log().end();
        let place = PackPlace { id: pack_id(serial), made, upto: order.key.last };
        let check = |raw: Arc<dyn DiskFile>, goes_on: &mut dyn FnMut(u64) -> bool| {
            let (file, index) = PackFile::open(raw, place, &unpacked)?;
            let damaged = file.damaged_blocks(goes_on).map_err(|error| error.to_string())?;
            let is_whole = file.head == *written && (0..2).all(|copy| file.has_index(copy, &index));
            match damaged {
                Some(damaged) if damaged.is_empty() && is_whole => Ok(Some(index)),
                Some(_) => Err("what was read back differs from what was written".to_owned()),
                None => Ok(None),
            }
        };
        let Some(index) =
            check(self.disk.open(UNFINISHED)?, goes_on).map_err(|what| damaged_pack(UNFINISHED, &what))?
        else {
            self.disk.remove(UNFINISHED)?;
            return Ok(false);
        };
        if serial == 1 {
            // A pack without a list is not taken for one that a crash left.
            self.packs.lock().change(&*self.disk, |_| ())?;
            self.disk.sync_dir()?;
        }
        let name = pack_name(serial);
        self.disk.rename(UNFINISHED, &name)?;
        self.disk.sync_dir()?;
        let raw = self.disk.open(&name)?;
        let (file, _) = PackFile::open(raw, place, &unpacked).map_err(|what| damaged_pack(&name, &what))?;
        let file = Arc::new(file);
        {
            // No index is written, and nothing is discarded meanwhile.
            let _one = self.index_run_lock.lock();
            if self.removals() != order.removals {
                self.disk.remove(&name)?;
                return Ok(false);
            }
            let mut packs = self.packs.lock();
            let stored = StoredPack {
                serial,
                chain: order.key.chain.0,
                first: order.key.first,
                last: order.key.last,
                upto: order.key.last,
                made_segment: made.segment.0,
                made_offset: made.offset,
                is_released: false,
            };
            packs.change(&*self.disk, |list| {
                list.next = serial;
                list.packs.retain(|pack| !order.old.contains(&pack_id(pack.serial)));
                list.packs.push(stored);
            })?;
            let now = MonoTime(0);
            packs.open.insert(place.id, file.clone());
            packs.unreleased.retain(|(id, _)| !order.old.contains(id));
            packs.unreleased.push((place.id, now));
            packs.leaving.extend(order.old.iter().map(|id| (*id, now)));
            drop(packs);
            self.files.write().insert(place.id, file.payloads());
            self.log.write().put_pack(index, &order.old);
        }
        self.tiers.drop_file_pages(FileKey::Segment(place.id), &*file.raw, file.raw.len()?);
        self.put_packed_files(place.id)?;
        Ok(true)
    }

    /// Puts a pack in the place of what is in memory of its files.
    fn put_packed_files(&self, pack: SegmentId) -> Result<(), Fault> {
        let files: Vec<InodeId> = self.log().files_in_memory();
        for inode in files {
            // No index memory is evicted meanwhile.
            let _kept = self.evicting.lock();
            let Some(mut fetch) = self.log().begin_put_packed(inode, pack) else { continue };
            while let Some((_, offset, len)) = fetch.next_read() {
                let bytes = self.read_pack_index(pack, offset, len, &mut |bytes| fetch.accepts(bytes))?;
                fetch.take(&bytes)?;
            }
            if !self.log.write().number(&mut fetch) {
                continue;
            }
            fetch.build();
            self.log.write().put_packed(fetch, pack);
        }
        Ok(())
    }

    /// Reads a part of a pack's index: from its second copy if `is_sound` says that the first is damaged.
    pub(super) fn read_pack_index(
        &self,
        pack: SegmentId,
        offset: u64,
        len: usize,
        is_sound: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Vec<u8>, Fault> {
        let file = self.open_pack(pack).ok_or_else(|| Fault::new(Reason::NotFound, "a pack is gone: try again"))?;
        let mut bytes = vec![0; len];
        for copy in 0..2 {
            let found = file.read_index(copy, offset, &mut bytes)?;
            if found == len && is_sound(&bytes) {
                break;
            }
        }
        Ok(bytes)
    }

    /// Gives back the space of what packs took the place of `wait_ns` ago or earlier: by then its readers have ended.
    /// Call it now and then. Returns the bytes freed.
    ///
    /// # Errors
    /// The disk's: the next call continues.
    pub fn release_packed(&self, now: MonoTime, wait_ns: u64) -> Result<u64, Fault> {
        let (leaving, unreleased) = {
            let mut packs = self.packs.lock();
            let PackList { leaving, unreleased, .. } = &mut *packs;
            // They were put there by a thread that had no clock.
            for (_, since) in leaving.iter_mut().chain(unreleased.iter_mut()).filter(|(_, since)| *since == MonoTime(0))
            {
                *since = now;
            }
            let due = |list: &[(SegmentId, MonoTime)]| -> Vec<SegmentId> {
                list.iter().filter(|(_, since)| now.since_ns(*since) >= wait_ns).map(|(id, _)| *id).collect()
            };
            (due(leaving), due(unreleased))
        };
        let mut freed = 0;
        for id in leaving {
            self.files.write().remove(&id);
            self.tiers.forget_file(FileKey::Segment(id));
            let mut packs = self.packs.lock();
            packs.open.remove(&id);
            packs.leaving.retain(|(known, _)| *known != id);
            drop(packs);
            self.disk.remove(&pack_name(pack_serial(id).unwrap_or_default()))?;
        }
        if !unreleased.is_empty() {
            // The list of packs names them durably; the segments' footers say what the records were.
            let segments = self.log().segments_below_packs();
            for segment in segments {
                freed += self.punch_dead(segment, std::iter::empty())?.unwrap_or(0);
            }
            let mut packs = self.packs.lock();
            packs.unreleased.retain(|(id, _)| !unreleased.contains(id));
            packs.change(&*self.disk, |list| {
                let released = list.packs.iter_mut().filter(|pack| unreleased.contains(&pack_id(pack.serial)));
                released.for_each(|pack| pack.is_released = true);
            })?;
        }
        Ok(freed)
    }

    /// Takes the packs of chains out of the list, or what of them their chain does not have after a number. The caller
    /// has `index_run_lock`, and the log forgets them next.
    pub(super) fn drop_packs(&self, stays: &dyn Fn(ChainId) -> Option<u64>) -> Result<(), Fault> {
        let mut packs = self.packs.lock();
        let is_cut = |pack: &StoredPack| stays(ChainId(pack.chain)).is_some_and(|after| after < pack.upto);
        if !packs.stored.packs.iter().any(is_cut) {
            return Ok(());
        }
        packs.change(&*self.disk, |list| {
            for pack in list.packs.iter_mut() {
                let after = stays(ChainId(pack.chain)).unwrap_or(u64::MAX);
                pack.upto = pack.upto.min(after);
            }
            list.packs.retain(|pack| pack.upto >= pack.first);
        })?;
        let listed: BTreeSet<SegmentId> = packs.stored.packs.iter().map(|pack| pack_id(pack.serial)).collect();
        let PackList { open, leaving, unreleased, .. } = &mut *packs;
        let out: Vec<SegmentId> = open.keys().filter(|id| !listed.contains(id)).copied().collect();
        unreleased.retain(|(id, _)| listed.contains(id));
        for id in out {
            if !leaving.iter().any(|(known, _)| *known == id) {
                leaving.push((id, MonoTime(0)));
            }
        }
        Ok(())
    }

    /// The directories of the packs in use, as recovery reads them.
    pub(super) fn pack_indexes(&self) -> Result<Vec<PackIndex>, Fault> {
        let packs = self.packs.lock();
        let mut indexes = Vec::new();
        for stored in &packs.stored.packs {
            let Some(file) = packs.open.get(&stored.place().id) else { continue };
            let name = pack_name(stored.serial);
            let opened = PackFile::open(file.raw.clone(), stored.place(), &packs.unpacked)
                .map_err(|what| damaged_pack(&name, &what))?;
            indexes.push(opened.1);
        }
        Ok(indexes)
    }

    /// Where the payload of a record lies that packs have; `None` if it died.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub(super) fn packed_payload(&self, record: &RecordHeader) -> Result<Option<StoredSpan>, Fault> {
        let log = self.log_of([record.chunk.inode])?;
        Ok(log.payload_place(record))
    }

    pub(super) fn open_pack(&self, id: SegmentId) -> Option<Arc<PackFile>> {
        self.packs.lock().open.get(&id).cloned()
    }

    /// The packs in use.
    pub fn pack_ids(&self) -> Vec<SegmentId> {
        self.log().packs().map(|pack| pack.place().id).collect()
    }

    /// Reads a pack from the medium: what is damaged, record by record. A damaged copy of its index is made anew from
    /// the other. `None` if `goes_on`, which is asked with the bytes to be read, stopped it, or the pack is not in use.
    ///
    /// # Errors
    /// The disk's, where a copy of the index is made anew.
    pub fn check_pack(
        &self,
        id: SegmentId,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<Damage>>, Fault> {
        let Some(file) = self.open_pack(id) else { return Ok(Some(Vec::new())) };
        let Some(index) = self.log().packs().find(|pack| pack.place().id == id).cloned() else {
            return Ok(Some(Vec::new()));
        };
        let damage = |kind, at, len, record, skip| Damage { kind, segment: id, at, len, record, skip, unread: None };
        let mut found = Vec::new();
        match [0, 1].map(|copy| file.has_index(copy, &index)) {
            [true, true] => {}
            [false, false] => {
                let (at, len) = (file.head.indexes[0], file.head.index_bytes);
                found.push(damage(DamageKind::Index, at, len, None, 0));
            }
            [is_first_whole, _] => {
                let (from, to) = if is_first_whole { (0, 1) } else { (1, 0) };
                file.copy_index(from, to)?;
                let words =
                    format!("a copy of the index of the pack of {} was damaged and is whole again", index.key());
                self.repairs.lock().push(words);
            }
        }
        let Some(blocks) = file.damaged_blocks(goes_on)? else { return Ok(None) };
        for (number, (offset, len)) in index.blocks().enumerate().filter(|_| !blocks.is_empty()) {
            let mut is_sound = |bytes: &[u8]| index.files_in(number, bytes).is_some();
            let bytes = self.read_pack_index(id, offset, len, &mut is_sound)?;
            for record in index.files_in(number, &bytes).into_iter().flatten().flat_map(|(_, records)| records) {
                let payload = u64::from(record.header.payload_len());
                let data = u64::from(record.at) + 4 * payload.div_ceil(u64::from(self.settings.block_bytes));
                let hits = |block: &&PayloadBlock| {
                    block.at < data + payload && u64::from(record.at) < block.at + u64::from(block.len)
                };
                for block in blocks.iter().filter(hits).filter(|_| !record.is_dead) {
                    let skip = block.at.saturating_sub(data).min(payload);
                    let end = (block.at + u64::from(block.len)).saturating_sub(data).min(payload);
                    let header = Some(record.header.clone());
                    let at = data + skip;
                    found.push(damage(DamageKind::Data, at, (end - skip).max(1), header, skip as u32));
                }
            }
        }
        Ok(Some(found))
    }
}
