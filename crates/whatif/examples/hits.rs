//! Hit ratios of policies on requests of one size, for a comparison with another simulator (`tests/libcachesim`).
//!
//! Standard input has a key a line; arguments are sizes in pages. Output: policy, size, requests, hits.

use std::io::{BufRead, Write};

use frieze_tier::{FrameCache, Policy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = std::io::stdin().lock().lines().map(|line| Ok(line?.trim().parse::<u64>()?));
    let keys = keys.collect::<Result<Vec<u64>, Box<dyn std::error::Error>>>()?;
    let sizes = std::env::args().skip(1).map(|size| size.parse::<u64>()).collect::<Result<Vec<u64>, _>>()?;
    let mut out = std::io::stdout().lock();
    for policy in Policy::ALL {
        for size in &sizes {
            let (mut cache, mut left) = (FrameCache::new(*policy, *size), Vec::new());
            let mut hits = 0u64;
            for key in &keys {
                hits += u64::from(cache.request(*key, 1, 0, &mut left) == 1);
                left.clear();
            }
            writeln!(out, "{} {size} {} {hits}", policy.name(), keys.len())?;
        }
    }
    Ok(())
}
