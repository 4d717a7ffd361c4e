//! LRU hit ratios of every size in one pass: stack distances.
//!
//! # Source
//! Mattson et al. (IBM Systems Journal, 1970); with a Fenwick tree, Bennett and Kruskal (1975). Sampling by hash:
//! Waldspurger et al., SHARDS (FAST'15), §3, with a fixed rate.

use frieze_base::FastMap;

/// How many requests found their page at which depth of an LRU list.
#[derive(Clone, Debug, Default)]
pub struct StackDistances {
    /// One request in so many pages is looked at, by a hash of the page.
    one_in: u64,
    /// When a page was asked for last.
    last: FastMap<u64, u32>,
    /// A Fenwick tree over times: 1 where a page was asked for last.
    tree: Vec<u32>,
    now: u32,
    /// Requests by depth; the last place counts first requests.
    depths: Vec<u64>,
    first: u64,
    requests: u64,
}

impl StackDistances {
    /// Exact distances with `one_in` 1; else of a sample of the pages.
    ///
    /// # Panics
    /// If `one_in` is 0.
    pub fn new(one_in: u64) -> StackDistances {
        assert!(one_in > 0, "no page is one of none");
        StackDistances { one_in, tree: vec![0; 1024], ..StackDistances::default() }
    }

    /// A page is asked for.
    ///
    /// # Cost
    /// O(log n) for n requests since the tree was last rebuilt, which is at twice the pages.
    pub fn request(&mut self, key: u64) {
        let hash = (key ^ key >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        if !hash.is_multiple_of(self.one_in) {
            return;
        }
        self.requests += 1;
        if self.now as usize + 1 >= self.tree.len() {
            self.rebuild();
        }
        self.now += 1;
        let now = self.now;
        match self.last.insert(key, now) {
            None => self.first += 1,
            Some(last) => {
                let depth = (self.sum(now - 1) - self.sum(last)) as usize;
                if depth >= self.depths.len() {
                    self.depths.resize(depth + 1, 0);
                }
                self.depths[depth] += 1;
                self.add(last, u32::MAX);
            }
        }
        self.add(now, 1);
    }

    /// The part of the requests that an LRU cache of `pages` pages serves.
    pub fn hit_ratio(&self, pages: u64) -> f64 {
        let depth = ((pages / self.one_in) as usize).min(self.depths.len());
        crate::outcome::ratio(self.depths[..depth].iter().sum::<u64>() as f64, self.requests as f64)
    }

    /// Requests looked at.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn add(&mut self, at: u32, change: u32) {
        let mut at = at as usize;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    fn sum(&self, until: u32) -> u32 {
        let (mut at, mut sum) = (until as usize, 0u32);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    /// Numbers the pages anew in the order of their last requests.
    fn rebuild(&mut self) {
        let mut by_time: Vec<(u32, u64)> = self.last.iter().map(|(key, time)| (*time, *key)).collect();
        by_time.sort_unstable();
        self.tree = vec![0; (4 * by_time.len()).max(1024)];
        self.now = by_time.len() as u32;
        for (time, (_, key)) in (1..).zip(by_time) {
            self.last.insert(key, time);
            self.add(time, 1);
        }
    }
}
