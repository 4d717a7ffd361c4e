//! Memory over flash: which pages of a frame a read finds where, and what moves.
//!
//! Guarantees: a page is in memory or in flash, never in both; what is in flash survives [`Tiered::crash`].
//! Leaves to others: latency, wear and disks; whole files that are placed in flash.
//!
//! # The algorithm
//! New pages go into memory, what leaves memory goes into flash, what leaves flash is on disk alone. A read that finds
//! its page in flash moves it into memory ([`OnFlashHit::Promote`]: both together are one LRU list of their summed
//! size) or leaves it ([`OnFlashHit::Keep`]: flash is written less). Without memory there is nothing to promote to.
//!
//! # Source
//! Harter et al., Analysis of HDFS Under HBase (FAST'14), §5.1 (writes) and §5.2 (flash).

use crate::frames::{EvictedPages, FrameCache, Policy};

/// What a write does to the caches. Data goes to disk in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writes {
    /// Written pages come into memory.
    Allocate,
    /// They do not; a page that is there is updated and keeps its place.
    #[default]
    NoAllocate,
    /// As `Allocate` where the writer says that the data is read soon, else as `NoAllocate`.
    Hinted,
}

/// What a read does that finds its page in flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnFlashHit {
    /// The page moves to memory.
    #[default]
    Promote,
    /// The page stays.
    Keep,
}

/// Which pages that leave memory are written to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashAdmission {
    /// All.
    #[default]
    All,
    /// Those of frames that have left memory before, as far as is remembered: as many pages as flash has.
    SecondRequest,
    /// One in so many frames, by a hash of the frame and of the number of the eviction.
    OneIn(u32),
    /// Those of files of at most this class, the logarithm to base 2 of a file's bytes.
    ClassMax(u8),
}

/// The sizes and policies of a [`Tiered`] cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSettings {
    /// Which frame leaves, in memory and in flash.
    pub policy: Policy,
    /// Room in memory, in pages.
    pub ram_pages: u64,
    /// Room in flash, in pages.
    pub flash_pages: u64,
    /// What writes do.
    pub writes: Writes,
    /// What reads do that find a page in flash.
    pub on_flash_hit: OnFlashHit,
    /// What comes into flash.
    pub admission: FlashAdmission,
}

/// A place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierPlace {
    /// Memory.
    Ram,
    /// Flash.
    Flash,
    /// Disk alone.
    Disk,
}

/// Pages of a frame that moved: what a server would copy or drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedPages {
    /// The frame.
    pub key: u64,
    /// A bit for each page.
    pub pages: u16,
    /// Where they were.
    pub from: TierPlace,
    /// Where they are.
    pub to: TierPlace,
}

/// Where a read found its pages, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesFound {
    /// In memory.
    pub ram: u16,
    /// In flash.
    pub flash: u16,
    /// In neither.
    pub missed: u16,
}

/// Memory over flash.
#[derive(Clone, Debug)]
pub struct Tiered {
    settings: TierSettings,
    ram: FrameCache,
    flash: FrameCache,
    /// Frames that left memory once, for [`FlashAdmission::SecondRequest`].
    remembered: FrameCache,
    evictions: u64,
    flash_pages_written: u64,
    moved: Vec<MovedPages>,
    /// Scratch.
    left: Vec<EvictedPages>,
    dropped: Vec<EvictedPages>,
}

impl Tiered {
    /// Empty caches.
    pub fn new(settings: TierSettings) -> Tiered {
        let remembers = settings.admission == FlashAdmission::SecondRequest;
        Tiered {
            settings,
            ram: FrameCache::new(settings.policy, settings.ram_pages),
            flash: FrameCache::new(settings.policy, settings.flash_pages),
            remembered: FrameCache::new(Policy::Fifo, if remembers { settings.flash_pages } else { 0 }),
            evictions: 0,
            flash_pages_written: 0,
            moved: Vec::new(),
            left: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// The pages `wanted` of `key` are read. What is missing comes into memory. `class`: see
    /// [`FlashAdmission::ClassMax`].
    ///
    /// # Cost
    /// O(1) amortised.
    pub fn read(&mut self, key: u64, wanted: u16, class: u8) -> PagesFound {
        self.moved.clear();
        if self.settings.flash_pages == 0 {
            let ram = self.ram.request(key, wanted, class, &mut self.left);
            self.settle();
            return PagesFound { ram, flash: 0, missed: wanted & !ram };
        }
        let ram = self.ram.touch(key, wanted);
        let rest = wanted & !ram;
        if rest == 0 {
            return PagesFound { ram, flash: 0, missed: 0 };
        }
        let promotes = self.settings.on_flash_hit == OnFlashHit::Promote && self.settings.ram_pages > 0;
        let flash = if promotes { self.flash.take(key, rest) } else { self.flash.touch(key, rest) };
        let missed = rest & !flash;
        if promotes && flash != 0 {
            self.moved.push(MovedPages { key, pages: flash, from: TierPlace::Flash, to: TierPlace::Ram });
        }
        let enters = if promotes { rest } else { missed };
        if enters != 0 {
            self.ram.request(key, enters, class, &mut self.left);
            self.settle();
        }
        PagesFound { ram, flash, missed }
    }

    /// The pages `written` of `key` are written; `hinted` if the writer says that they are read soon.
    pub fn write(&mut self, key: u64, written: u16, class: u8, hinted: bool) {
        self.moved.clear();
        let allocates = match self.settings.writes {
            Writes::Allocate => true,
            Writes::NoAllocate => false,
            Writes::Hinted => hinted,
        };
        if allocates {
            // What flash has of it is old.
            self.flash.take(key, written);
            self.ram.request(key, written, class, &mut self.left);
            self.settle();
        } else if self.settings.flash_pages > 0 {
            let updated = self.flash.pages_of(key) & written;
            self.flash_pages_written += u64::from(updated.count_ones());
        }
    }

    /// The pages of `key` are of no use any more.
    pub fn drop_frame(&mut self, key: u64) {
        self.moved.clear();
        self.ram.take(key, u16::MAX);
        self.flash.take(key, u16::MAX);
    }

    /// Memory loses what it has; flash keeps it.
    pub fn crash(&mut self) {
        self.moved.clear();
        self.ram.clear();
    }

    /// Changes the room in flash, in pages; what does not fit leaves.
    pub fn resize_flash(&mut self, pages: u64) {
        self.moved.clear();
        self.settings.flash_pages = pages;
        self.flash.resize(pages, &mut self.dropped);
        self.note_dropped();
    }

    /// Reads ahead the lines of memory that requests for `keys` will need; see [`FrameCache::warm`].
    #[inline]
    pub fn warm(&self, keys: &[u64]) {
        self.ram.warm(keys);
        if self.settings.flash_pages > 0 {
            self.flash.warm(keys);
        }
    }

    /// What the last call moved, in order.
    pub fn moved(&self) -> &[MovedPages] {
        &self.moved
    }

    /// Pages written to flash so far.
    pub fn flash_pages_written(&self) -> u64 {
        self.flash_pages_written
    }

    /// Pages in memory and in flash.
    pub fn pages(&self) -> (u64, u64) {
        (self.ram.pages(), self.flash.pages())
    }

    /// Bytes that the caches' own tables take.
    pub fn bytes(&self) -> u64 {
        self.ram.bytes() + self.flash.bytes() + self.remembered.bytes()
    }

    /// What left memory goes to flash, if it may.
    #[inline]
    fn settle(&mut self) {
        for at in 0..self.left.len() {
            let left = self.left[at];
            let (key, pages) = (left.key, left.pages);
            if self.settings.flash_pages == 0 || !self.admits(left) {
                self.moved.push(MovedPages { key, pages, from: TierPlace::Ram, to: TierPlace::Disk });
                continue;
            }
            self.flash.request(key, pages, left.class, &mut self.dropped);
            self.flash_pages_written += u64::from(pages.count_ones());
            self.moved.push(MovedPages { key, pages, from: TierPlace::Ram, to: TierPlace::Flash });
            self.note_dropped();
        }
        self.left.clear();
    }

    fn note_dropped(&mut self) {
        for dropped in self.dropped.drain(..) {
            let (key, pages) = (dropped.key, dropped.pages);
            self.moved.push(MovedPages { key, pages, from: TierPlace::Flash, to: TierPlace::Disk });
        }
    }

    fn admits(&mut self, left: EvictedPages) -> bool {
        self.evictions += 1;
        match self.settings.admission {
            FlashAdmission::All => true,
            FlashAdmission::SecondRequest => {
                let again = self.remembered.request(left.key, 1, 0, &mut self.dropped) != 0;
                // Its own evictions are keys alone: nothing moves.
                self.dropped.clear();
                again
            }
            FlashAdmission::OneIn(frames) => {
                let mixed = (left.key ^ self.evictions.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                mixed.is_multiple_of(u64::from(frames.max(1)))
            }
            FlashAdmission::ClassMax(class) => left.class <= class,
        }
    }
}
