//! Packs on disk: making them, which are in use, and giving back what they took the place of.
//!
//! Guarantees: a pack is used once it is on stable storage, was read back whole, and the list of packs names it; until
//! then the records that it is made of answer. Records and older packs give their space back when readers that may
//! still use their places have ended. A crash at any moment leaves the packs of before, or those of after.
//! Leaves to others: which records died (`planes`), when to pack (`planes`), the index of a pack (`multilog`).
//!
//! Two indexes lie in a pack, as a damaged one could not be made anew from footers: they do not say where a payload
//! lies in a pack.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, InodeId, MonoTime, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_multilog::{
    Damage, DamageKind, FileToPack, PackIndex, PackIndexBuilder, PackKey, PackPlace, Piece, PieceSource, RecordToPack,
    StoredSpan,
};
use frieze_wire::chain::RecordHeader;

use super::pack_file::{PackFile, PackHead, PayloadBlock, damaged_pack};
use super::pack_list::{PackList, ReaderWait, StoredPack, UNFINISHED, pack_name};
use super::pack_writer::PackWriter;
use super::{Device, FileKey, block_checksums};

/// Places of a pack end below this: a record names its place by 32 bits.
const PLACES_MAX: u64 = 3 << 30;

/// After so many bytes it is asked whether packing goes on.
const ASK_BYTES: u64 = 1 << 20;

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

/// What packs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackStats {
    /// Records in packs that are in use.
    pub records: u64,
    /// Bytes that packs take on the device, those included that wait for their readers.
    pub bytes: u64,
}

/// A pack that has its name and is not in the list yet.
struct NamedPack {
    serial: u64,
    file: Arc<PackFile>,
    index: PackIndex,
}

/// What is wrong with a pack that has another copy of it.
const DAMAGED_COPY: &str = "one of the two copies of head and index was damaged";

/// The next file of a pack by inode, and after the last `None`.
pub type NextFile<'a> = dyn FnMut() -> Result<Option<FileToPack>, Fault> + 'a;

impl Device {
    /// What packs have.
    pub fn pack_stats(&self) -> PackStats {
        let records = self.log().packs().map(PackIndex::records).sum();
        let packs = self.packs.lock();
        PackStats { records, bytes: packs.open.values().map(|pack| pack.head.end()).sum() }
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
    /// has too. False, and nothing has changed, if something was discarded meanwhile, or `goes_on`, which is asked now
    /// and then with the bytes written since, says no.
    ///
    /// # Errors
    /// `NoSpace` without room for `bytes_max` bytes, or for one more pack in the list; `Overloaded` above 3 GiB;
    /// `Corrupt` if a record is damaged; the disk's. Then nothing has changed, but for a disk that fails while the pack
    /// is put in the place of what is in memory: what it took the place of stays until the next start.
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
            return Err(Fault::new(Reason::Overloaded, format!("a pack of {bytes_max} bytes; at most {PLACES_MAX}")));
        }
        if !self.has_room(bytes_max) {
            let words = format!("the disk has no room for a pack of {bytes_max} bytes: free some, or forget history");
            return Err(Fault::new(Reason::NoSpace, words));
        }
        self.packs.lock().check_room(!order.old.is_empty())?;
        self.remove_unfinished_pack()?;
        let written = self.write_unfinished(order, bytes_max, next, goes_on);
        match written {
            Ok(Some(named)) => self.use_pack(order, named),
            failed => {
                // Whatever happens to this, the next attempt or start removes it.
                let _ = self.remove_unfinished_pack();
                failed.map(|_| false)
            }
        }
    }

    fn remove_unfinished_pack(&self) -> Result<(), Fault> {
        if self.disk.list()?.iter().any(|name| name == UNFINISHED) {
            self.disk.remove(UNFINISHED)?;
        }
        Ok(())
    }

    /// Writes a pack, reads it back and names it. `None` if `goes_on` said no.
    fn write_unfinished(
        &self,
        order: &PackOrder,
        bytes_max: u64,
        next: &mut NextFile<'_>,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<NamedPack>, Fault> {
        let raw = self.disk.create(UNFINISHED, bytes_max)?;
        let mut writer = PackWriter::new(&*raw, bytes_max);
        let mut index = PackIndexBuilder::default();
        while let Some(file) = next()? {
            let Some(places) = self.write_payloads(&file, &mut writer, goes_on)? else { return Ok(None) };
            file.add_to(&mut index, &places);
        }
        let head = writer.finish((order.key, order.newest), index, self.settings.block_bytes)?;
        raw.sync()?;
        self.name_pack(order, &head, goes_on)
    }

    /// Writes the payloads of a file and returns the places of its records; `None` if `goes_on` said no. What shows
    /// together lies together: chunk by chunk, by the kept instant that shows it first, by offset.
    fn write_payloads(
        &self,
        file: &FileToPack,
        writer: &mut PackWriter<'_>,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<u32>>, Fault> {
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
            if writer.since_asked >= ASK_BYTES && !goes_on(std::mem::take(&mut writer.since_asked)) {
                return Ok(None);
            }
        }
        Ok(Some(places))
    }

    /// Reads a pack back and names it.
    fn name_pack(
        &self,
        order: &PackOrder,
        written: &PackHead,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<NamedPack>, Fault> {
        let (serial, unpacked) = {
            let mut packs = self.packs.lock();
            if packs.stored.newest == 0 {
                // A pack without a list is not taken for one that a crash left.
                packs.change(&*self.disk, |_| ())?;
                self.disk.sync_dir()?;
            }
            (packs.stored.newest + 1, packs.unpacked.clone())
        };
        let released = self.released_upto(order);
        let place = PackPlace { id: SegmentId::pack(serial), made: self.log().end(), upto: order.key.last, released };
        let open = |name: &str| -> Result<(PackFile, PackIndex), Fault> {
            PackFile::open(self.disk.open(name)?, place, &unpacked).map_err(|what| damaged_pack(name, &what))
        };
        let (file, index) = open(UNFINISHED)?;
        let Some(damaged) = file.damaged_blocks(goes_on)? else { return Ok(None) };
        if !damaged.is_empty() || file.head != *written || !(0..2).all(|copy| file.has_copy(copy, &index)) {
            return Err(damaged_pack(UNFINISHED, "what was read back differs from what was written"));
        }
        let name = pack_name(serial);
        self.disk.rename(UNFINISHED, &name)?;
        self.disk.sync_dir()?;
        let (file, index) = open(&name)?;
        Ok(Some(NamedPack { serial, file: Arc::new(file), index }))
    }

    /// Up to which number the space of the records in a pack was given back before.
    fn released_upto(&self, order: &PackOrder) -> u64 {
        let packs = self.packs.lock();
        let mut old: Vec<PackPlace> =
            packs.stored.packs.iter().map(StoredPack::place).filter(|place| order.old.contains(&place.id)).collect();
        old.sort_by_key(|place| place.upto);
        released_upto(&old).unwrap_or(order.key.first - 1)
    }

    /// Uses a pack, unless something was discarded meanwhile.
    fn use_pack(&self, order: &PackOrder, NamedPack { serial, file, index }: NamedPack) -> Result<bool, Fault> {
        let place = index.place();
        {
            // No index is written, and nothing is discarded meanwhile.
            let _one = self.index_run_lock.lock();
            let mut packs = self.packs.lock();
            let listed = match self.removals() == order.removals {
                true => packs.change(&*self.disk, |list| {
                    list.newest = serial;
                    list.packs.retain(|pack| !order.old.contains(&pack.place().id));
                    list.packs.push(StoredPack::of(serial, order.key, &place));
                }),
                false => Err(Fault::new(Reason::Busy, "records of a chain were discarded while it was packed")),
            };
            if let Err(fault) = listed {
                // After a failed write the list on disk may name it.
                if !packs.has_failed {
                    self.disk.remove(&pack_name(serial))?;
                }
                return if fault.reason == Reason::Busy { Ok(false) } else { Err(fault) };
            }
            packs.open.insert(place.id, file.clone());
            drop(packs);
            self.files.write().insert(place.id, file.payloads());
            self.log.write().put_pack(index, &order.old);
        }
        self.tiers.drop_file_pages(FileKey::Segment(place.id), &*file.raw, file.raw.len()?);
        self.put_packed_files(place.id)?;
        // From now on no plan names a former place.
        let mut packs = self.packs.lock();
        if place.released < place.upto {
            packs.unreleased.push(((order.key.chain, place.upto), ReaderWait::Begins));
        }
        packs.leaving.extend(order.old.iter().map(|id| (*id, ReaderWait::Begins)));
        Ok(true)
    }

    /// Puts a pack in the place of what is in memory of its files.
    fn put_packed_files(&self, pack: SegmentId) -> Result<(), Fault> {
        let files: Vec<InodeId> = self.log().files_in_memory();
        // Files come by number, as they lie in the blocks of the index.
        let mut block: Option<(u64, Vec<u8>)> = None;
        for inode in files {
            // No index memory is evicted meanwhile.
            let _kept = self.evicting.lock();
            let Some(mut fetch) = self.log().begin_put_packed(inode, pack) else { continue };
            while let Some((_, offset, len)) = fetch.next_read() {
                let bytes = match block.take().filter(|(known, _)| *known == offset) {
                    Some((_, bytes)) => bytes,
                    None => self.read_pack_index(pack, offset, len, &mut |bytes| fetch.accepts(bytes))?,
                };
                fetch.take(&bytes)?;
                block = Some((offset, bytes));
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
            (due(leaving, now, wait_ns), due(unreleased, now, wait_ns))
        };
        for id in leaving {
            self.files.write().remove(&id);
            self.tiers.forget_file(FileKey::Segment(id));
            self.disk.remove(&pack_name(id.pack_serial().unwrap_or_default()))?;
            let mut packs = self.packs.lock();
            packs.open.remove(&id);
            packs.leaving.retain(|(known, _)| *known != id);
        }
        let mut freed = 0;
        for (chain, last) in unreleased {
            freed += self.release_numbers(chain, last)?;
        }
        Ok(freed)
    }

    /// Gives back the space that the records in packs of a chain have in segments, up to number `last`. The list of
    /// packs names them durably, and the segments' footers say what they were.
    fn release_numbers(&self, chain: ChainId, last: u64) -> Result<u64, Fault> {
        let places =
            self.log().packs().filter(|pack| pack.key().chain == chain).map(PackIndex::place).collect::<Vec<_>>();
        let left = PackKey { chain, first: released_upto(&places).unwrap_or(0) + 1, last };
        self.log.write().release_packed(chain, last);
        let segments = self.log().segments_of_numbers(left);
        let mut freed = 0;
        for segment in segments {
            freed += self.punch_dead(segment, std::iter::empty())?.unwrap_or(0);
        }
        let mut packs = self.packs.lock();
        packs.unreleased.retain(|(known, _)| *known != (chain, last));
        packs.change(&*self.disk, |list| {
            for pack in list.packs.iter_mut().filter(|pack| pack.chain == chain.0) {
                let mut place = pack.place();
                place.release(last);
                pack.released = place.released;
            }
        })?;
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
        let listed: BTreeSet<SegmentId> = packs.stored.packs.iter().map(|pack| pack.place().id).collect();
        let PackList { open, leaving, unreleased, .. } = &mut *packs;
        let out: Vec<SegmentId> = open.keys().filter(|id| !listed.contains(id)).copied().collect();
        unreleased.retain(|((chain, _), _)| stays(*chain).is_none());
        for id in out {
            if !leaving.iter().any(|(known, _)| *known == id) {
                leaving.push((id, ReaderWait::Begins));
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

    /// The packs of which one of the two copies of head, index and table is damaged, in words.
    pub fn damaged_pack_copies(&self) -> Vec<String> {
        let indexes: Vec<PackIndex> = self.log().packs().cloned().collect();
        let is_damaged = |index: &&PackIndex| {
            let file = self.open_pack(index.place().id);
            file.is_some_and(|file| (0..2).filter(|copy| file.has_copy(*copy, index)).count() == 1)
        };
        indexes
            .iter()
            .filter(is_damaged)
            .map(|index| format!("{DAMAGED_COPY} of {}", index.place().id.in_words()))
            .collect()
    }

    /// Reads a pack from the medium: what is damaged, record by record. A damaged copy of head, index and table is made
    /// anew from the other. `None` if `goes_on`, which is asked with the bytes to be read, stopped it, or the pack is
    /// not in use.
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
        match [0, 1].map(|copy| file.has_copy(copy, &index)) {
            [true, true] => {}
            [false, false] => {
                let (at, len) = (file.head.indexes[0], file.head.index_bytes);
                found.push(damage(DamageKind::Index, at, len, None, 0));
            }
            [is_first_whole, _] => {
                let (from, to) = if is_first_whole { (0, 1) } else { (1, 0) };
                file.restore_copy(from, to)?;
                self.repairs.lock().push(format!("{} of {}, and is whole again", DAMAGED_COPY, id.in_words()));
            }
        }
        let Some(blocks) = file.damaged_blocks(goes_on)? else { return Ok(None) };
        for (number, (offset, len)) in index.blocks().enumerate().filter(|_| !blocks.is_empty()) {
            let mut is_sound = |bytes: &[u8]| index.files_in(number, bytes).is_some();
            let bytes = self.read_pack_index(id, offset, len, &mut is_sound)?;
            for record in index.files_in(number, &bytes).into_iter().flatten().flat_map(|(_, records)| records) {
                let payload = u64::from(record.header.payload_len());
                let data = u64::from(record.at) + 4 * payload.div_ceil(u64::from(file.head.block_bytes));
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

/// Up to which number the space of the records in packs that follow each other was given back, without a gap.
fn released_upto(places: &[PackPlace]) -> Option<u64> {
    let unreleased = places.iter().position(|place| place.released < place.upto);
    match unreleased {
        Some(0) => places.first().map(|place| place.released).filter(|released| *released > 0),
        Some(at) => Some(places[at].released.max(places[at - 1].upto)),
        None => places.last().map(|place| place.upto),
    }
}

/// Those of which the wait is over.
fn due<T: Copy>(waits: &mut [(T, ReaderWait)], now: MonoTime, wait_ns: u64) -> Vec<T> {
    waits.iter_mut().filter_map(|(what, wait)| wait.is_over(now, wait_ns).then_some(*what)).collect()
}
