//! A file of a simulated device: its sectors as they read now, their earlier contents, and the pages copied in memory.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use frieze_base::Rng;

use crate::device::PAGE_BYTES;

#[derive(Default)]
pub(super) struct SimFile {
    pub(super) len: u64,
    pub(super) sectors: BTreeMap<u64, Sector>,
    /// Sectors written since the last sync, in the order of their first write, with their earlier contents.
    pub(super) unsynced: BTreeMap<u64, Unsynced>,
    pub(super) writes: u64,
    /// Pages whose space was freed, until they are written again.
    pub(super) holes: BTreeSet<u64>,
    pub(super) sync_failed: bool,
    /// Sectors that cannot be read.
    pub(super) unreadable: BTreeSet<u64>,
    /// Pages with a copy in memory.
    pub(super) copies: BTreeSet<u64>,
    /// Wrong bits in a copy in memory only, by byte.
    pub(super) stains: BTreeMap<u64, u8>,
}

pub(super) type Sector = Box<[u8; SECTOR_BYTES]>;

pub(super) struct Unsynced {
    pub(super) order: u64,
    pub(super) before: Option<Sector>,
}

impl SimFile {
    /// Bytes that it uses of the capacity.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.len.saturating_sub(self.holes.len() as u64 * PAGE_BYTES)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.copies.extend(offset / PAGE_BYTES..=(offset + bytes.len() as u64 - 1) / PAGE_BYTES);
        }
        if !self.holes.is_empty() && !bytes.is_empty() {
            for page in offset / PAGE_BYTES..=(offset + bytes.len() as u64 - 1) / PAGE_BYTES {
                self.holes.remove(&page);
            }
        }
        let mut done = 0;
        while done < bytes.len() {
            let (sector, within, len) = piece(offset + done as u64, bytes.len() - done);
            if !self.unreadable.is_empty() {
                self.unreadable.remove(&sector);
            }
            self.writes += 1;
            let order = self.writes;
            let bytes = &bytes[done..done + len];
            done += len;
            let current = match self.sectors.entry(sector) {
                // Zeros where nothing was written: it reads the same whether they survive or not.
                Entry::Vacant(_) if *bytes == ZEROS[..len] => continue,
                Entry::Vacant(entry) => {
                    self.unsynced.entry(sector).or_insert(Unsynced { order, before: None });
                    entry.insert(blank())
                }
                Entry::Occupied(entry) => {
                    let before = || Unsynced { order, before: Some(entry.get().clone()) };
                    self.unsynced.entry(sector).or_insert_with(before);
                    entry.into_mut()
                }
            };
            current[within..within + len].copy_from_slice(bytes);
        }
    }

    /// Frees pages, which read as zeros from now on. Returns how many of them used space.
    pub(super) fn punch(&mut self, pages: Range<u64>) -> u64 {
        let sectors = pages.start * PAGE_SECTORS..pages.end * PAGE_SECTORS;
        for (sector, bytes) in self.sectors.range_mut(sectors.clone()) {
            if **bytes != ZEROS {
                self.writes += 1;
                let order = self.writes;
                let before = || Unsynced { order, before: Some(bytes.clone()) };
                self.unsynced.entry(*sector).or_insert_with(before);
                bytes.fill(0);
            }
        }
        remove_range(&mut self.unreadable, sectors);
        remove_range(&mut self.copies, pages.clone());
        if !self.stains.is_empty() {
            self.stains.retain(|at, _| !pages.contains(&(at / PAGE_BYTES)));
        }
        let before = self.holes.len();
        self.holes.extend(pages);
        (self.holes.len() - before) as u64
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        // Most of a large file was never written.
        into.fill(0);
        let end = offset + into.len() as u64;
        for (sector, bytes) in self.sectors.range(sectors_of(offset, into.len() as u64)) {
            let begin = sector * SECTOR_BYTES as u64;
            let (from, upto) = (begin.max(offset), (begin + SECTOR_BYTES as u64).min(end));
            let bytes = &bytes[(from - begin) as usize..(upto - begin) as usize];
            into[(from - offset) as usize..(upto - offset) as usize].copy_from_slice(bytes);
        }
    }

    /// Applies the wrong bits of copies.
    pub(super) fn stain(&self, offset: u64, into: &mut [u8]) {
        for (at, bits) in self.stains.range(offset..offset + into.len() as u64) {
            into[(at - offset) as usize] ^= bits;
        }
    }

    /// Drops the copies of these pages where the medium has them.
    pub(super) fn advise_dont_need(&mut self, pages: Range<u64>) {
        let there: Vec<u64> = self.copies.range(pages).copied().collect();
        for page in there {
            if self.unsynced.range(page * PAGE_SECTORS..(page + 1) * PAGE_SECTORS).next().is_none() {
                self.copies.remove(&page);
                self.stains.retain(|at, _| at / PAGE_BYTES != page);
            }
        }
    }

    /// Restores some of the unsynced sectors to their earlier contents.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        self.copies.clear();
        self.stains.clear();
        let unsynced = std::mem::take(&mut self.unsynced);
        // The cases that break real code: nothing survives, everything, a prefix, any subset.
        let shape = rng.below(4);
        let oldest = unsynced.values().map(|sector| sector.order).min().unwrap_or(0);
        let prefix_end = rng.between(oldest, self.writes + 1);
        for (sector, Unsynced { order, before }) in unsynced {
            let survives = match shape {
                0 => false,
                1 => true,
                2 => order < prefix_end,
                _ => rng.chance(2),
            };
            match before {
                _ if survives => {}
                Some(bytes) => {
                    self.holes.remove(&(sector * SECTOR_BYTES as u64 / PAGE_BYTES));
                    self.sectors.insert(sector, bytes);
                }
                None => {
                    self.sectors.remove(&sector);
                }
            }
        }
    }
}

/// The part of `len` bytes from `offset` in the first sector: sector, offset within it, length.
pub(super) fn piece(offset: u64, len: usize) -> (u64, usize, usize) {
    let within = (offset % SECTOR_BYTES as u64) as usize;
    (offset / SECTOR_BYTES as u64, within, len.min(SECTOR_BYTES - within))
}

/// The sectors of `len` bytes from `offset`.
pub(super) fn sectors_of(offset: u64, len: u64) -> Range<u64> {
    offset / SECTOR_BYTES as u64..(offset + len).div_ceil(SECTOR_BYTES as u64)
}

fn remove_range(set: &mut BTreeSet<u64>, range: Range<u64>) {
    let there: Vec<u64> = set.range(range).copied().collect();
    for one in there {
        set.remove(&one);
    }
}

pub(super) fn blank() -> Sector {
    Box::new([0; SECTOR_BYTES])
}

/// Unit of an atomic write.
pub(super) const SECTOR_BYTES: usize = 512;
const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES as u64;
const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
