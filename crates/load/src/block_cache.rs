//! The block cache of a region server: HBase's `LruBlockCache`, whose three parts are a quarter (read once), a half
//! (read again) and a quarter (pinned, empty here).
//!
//! If it is full, the part that is farthest above its share gives up its oldest block.

use frieze_base::FastMap;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct CachedBlock {
    block: u64,
    newer: u32,
    older: u32,
    again: bool,
}

#[derive(Clone, Copy, Debug)]
struct CachePart {
    newest: u32,
    oldest: u32,
    count: usize,
}

/// Which blocks are in memory.
#[derive(Debug)]
pub(crate) struct BlockCache {
    capacity: usize,
    index: FastMap<u64, u32>,
    arena: Vec<CachedBlock>,
    /// Blocks read once, blocks read again.
    parts: [CachePart; 2],
}

impl BlockCache {
    /// Room for `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> BlockCache {
        let empty = CachePart { newest: NONE, oldest: NONE, count: 0 };
        BlockCache { capacity, index: FastMap::default(), arena: Vec::new(), parts: [empty, empty] }
    }

    /// Reads a block: true if it was there. It is there afterwards.
    pub(crate) fn read(&mut self, block: u64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        if let Some(&at) = self.index.get(&block) {
            self.unlink(at);
            self.link(at, true);
            return true;
        }
        let at = if self.arena.len() < self.capacity {
            self.arena.push(CachedBlock { block, newer: NONE, older: NONE, again: false });
            (self.arena.len() - 1) as u32
        } else {
            self.evict()
        };
        self.arena[at as usize].block = block;
        self.index.insert(block, at);
        self.link(at, false);
        false
    }

    fn evict(&mut self) -> u32 {
        let over = |part: usize, share: usize| self.parts[part].count as i64 * 4 - (self.capacity * share) as i64;
        let prefer_once = over(0, 1) >= over(1, 2);
        let part = if (prefer_once && self.parts[0].count > 0) || self.parts[1].count == 0 { 0 } else { 1 };
        let at = self.parts[part].oldest;
        self.unlink(at);
        self.index.remove(&self.arena[at as usize].block);
        at
    }

    fn unlink(&mut self, at: u32) {
        let CachedBlock { newer, older, again, .. } = self.arena[at as usize];
        let part = &mut self.parts[usize::from(again)];
        part.count -= 1;
        match newer {
            NONE => part.newest = older,
            newer => self.arena[newer as usize].older = older,
        }
        match older {
            NONE => part.oldest = newer,
            older => self.arena[older as usize].newer = newer,
        }
    }

    fn link(&mut self, at: u32, again: bool) {
        let part = &mut self.parts[usize::from(again)];
        let second = part.newest;
        part.newest = at;
        part.count += 1;
        if second == NONE {
            part.oldest = at;
        } else {
            self.arena[second as usize].newer = at;
        }
        let entry = &mut self.arena[at as usize];
        (entry.older, entry.newer, entry.again) = (second, NONE, again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_read_again_outlive_a_scan() {
        let mut cache = BlockCache::new(8);
        assert!(!cache.read(1));
        assert!(cache.read(1), "it is there at once");
        for block in 100..200 {
            assert!(!cache.read(block));
        }
        assert!(cache.read(1), "a scan fills the part for blocks read once");
        assert!(!cache.read(100));
    }

    #[test]
    fn it_never_holds_more_than_its_room() {
        let mut cache = BlockCache::new(5);
        for i in 0..1000u64 {
            cache.read(i % 7);
            cache.read(i % 3);
        }
        assert_eq!(cache.index.len(), 5);
        assert_eq!(cache.parts[0].count + cache.parts[1].count, 5);
        assert!(!BlockCache::new(0).read(1));
    }
}
