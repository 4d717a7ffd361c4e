//! LRU hit ratios of every size in one pass: stack distances by a Fenwick tree over the order of last accesses.
//!
//! # Source
//! Mattson et al., *Evaluation techniques for storage hierarchies*, 1970; the tree as in Bennett and Kruskal, 1975.

/// Distances of objects of several pages.
#[derive(Debug)]
pub(crate) struct WeightedDistances {
    /// Slot of the last access of each object, 0 if there was none.
    last: Vec<u32>,
    /// Object and weight in each slot.
    slots: Vec<(u32, u32)>,
    tree: Vec<u32>,
    live: usize,
    pages: u64,
}

impl WeightedDistances {
    pub(crate) fn new() -> WeightedDistances {
        let slots = Vec::with_capacity(1 << 16);
        WeightedDistances { last: Vec::new(), slots, tree: vec![0; (1 << 16) + 1], live: 0, pages: 0 }
    }

    /// Counts an access to all `pages` of `object`: how many different pages an LRU cache needs for a hit; `None` for
    /// the first access.
    pub(crate) fn access(&mut self, object: u64, pages: u32) -> Option<u64> {
        let object = object as usize;
        if self.last.len() <= object {
            self.last.resize(object + 1, 0);
        }
        if self.slots.len() + 1 >= self.tree.len() {
            self.renumber();
        }
        let distance = match self.last[object] {
            0 => {
                self.live += 1;
                None
            }
            slot => {
                let weight = self.slots[slot as usize - 1].1;
                let newer = self.pages - self.prefix(slot as usize);
                self.add(slot as usize, weight.wrapping_neg());
                self.pages -= u64::from(weight);
                Some(newer + u64::from(pages))
            }
        };
        self.slots.push((object as u32, pages));
        let slot = self.slots.len();
        self.last[object] = slot as u32;
        self.add(slot, pages);
        self.pages += u64::from(pages);
        distance
    }

    fn add(&mut self, mut slot: usize, weight: u32) {
        while slot < self.tree.len() {
            self.tree[slot] = self.tree[slot].wrapping_add(weight);
            slot += slot & slot.wrapping_neg();
        }
    }

    fn prefix(&self, mut slot: usize) -> u64 {
        let mut sum = 0u32;
        while slot > 0 {
            sum = sum.wrapping_add(self.tree[slot]);
            slot &= slot - 1;
        }
        sum.into()
    }

    /// Leaves out slots that are no last access, and makes room for as many accesses again.
    fn renumber(&mut self) {
        let old = std::mem::take(&mut self.slots);
        for (i, (object, pages)) in old.into_iter().enumerate() {
            if self.last[object as usize] == i as u32 + 1 {
                self.slots.push((object, pages));
                self.last[object as usize] = self.slots.len() as u32;
            }
        }
        let room = (self.live * 4).max(1 << 16);
        self.tree = vec![0; room + 1];
        for (i, &(_, pages)) in self.slots.iter().enumerate() {
            self.tree[i + 1] = pages;
        }
        for slot in 1..=room {
            let parent = slot + (slot & slot.wrapping_neg());
            if parent <= room {
                self.tree[parent] = self.tree[parent].wrapping_add(self.tree[slot]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_list() {
        let (mut distances, mut list) = (WeightedDistances::new(), Vec::<(u64, u32)>::new());
        let mut rng = frieze_base::Rng::new(3);
        for _ in 0..200_000 {
            let object = rng.below(40) * rng.below(20);
            let pages = (object % 5 + 1) as u32;
            let found = list.iter().position(|&(other, _)| other == object);
            let expected = found.map(|at| list[..=at].iter().map(|&(_, pages)| u64::from(pages)).sum::<u64>());
            if let Some(at) = found {
                list.remove(at);
            }
            list.insert(0, (object, pages));
            assert_eq!(distances.access(object, pages), expected);
        }
    }
}
