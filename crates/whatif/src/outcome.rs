//! What a simulation counted, and the figures that follow from it.

use crate::disk::ServedRequest;
use crate::hardware::HardwareProfile;
use crate::local::PAGE_BYTES;
use crate::workload::IoPurpose;

/// Sums of one purpose at the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSums {
    /// Pages; the study's "disk request" is at most one.
    pub pages: u64,
    /// Runs of adjacent pages.
    pub runs: u64,
    /// Nanoseconds that pages waited.
    pub queue_ns: u64,
    /// Nanoseconds that disks spent on them.
    pub exec_ns: u64,
    /// Nanoseconds from the arrival of a run to its end.
    pub run_latency_ns: u64,
}

/// What an object store did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObjectSums {
    /// Reads.
    pub gets: u64,
    /// Parts written.
    pub puts: u64,
    /// Bytes that it has, on average over the trace.
    pub stored_bytes: f64,
}

/// Hits of an interval, for pictures of a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitBucket {
    /// Pages read.
    pub pages: u64,
    /// Of them, in memory or in flash.
    pub hits: u64,
}

/// What a simulation counted. Pages of 4 KiB, bytes, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimOutcome {
    /// Microseconds that were counted.
    pub counted_us: u64,
    /// Bytes read at the file system, by [`IoPurpose`].
    pub read_bytes: [u64; 4],
    /// Bytes written there.
    pub written_bytes: [u64; 4],
    /// Bytes that crossed the network.
    pub net_bytes: u64,
    /// Pages read.
    pub read_pages: [u64; 4],
    /// Of them, found in memory.
    pub ram_pages: [u64; 4],
    /// Of them, found in flash.
    pub flash_pages: [u64; 4],
    /// Pages that came into memory.
    pub ram_inserts: u64,
    /// Bytes read from disks.
    pub disk_read_bytes: u64,
    /// Bytes written to disks.
    pub disk_written_bytes: u64,
    /// Bytes written to flash.
    pub flash_written_bytes: u64,
    /// Bytes that flash writes itself for each of them; 0 stands for 1.
    pub flash_amplification: f64,
    /// Of a system whose files lie in an object store.
    pub object: Option<ObjectSums>,
    /// Sums at the disks.
    pub disk: [DiskSums; 4],
    /// Nanoseconds that reads of foreground pages waited for disks and flash, summed over pages.
    pub foreground_ns: u64,
    /// Foreground pages, those in memory included.
    pub foreground_pages: u64,
    /// Foreground pages that memory did not have.
    pub foreground_slow_pages: u64,
    /// Latencies of foreground runs at disks and flash.
    pub foreground_runs: LatencyHistogram,
    /// Nanoseconds that each disk worked.
    pub busy_ns: Vec<u64>,
    /// Most requests that waited for one disk.
    pub waiting_max: usize,
    /// True if requests came faster than a disk serves them, until the limit of its queue: latencies mean nothing.
    pub overloaded: bool,
    /// Hits by interval.
    pub timeline: Vec<HitBucket>,
    /// Microseconds of an interval of the timeline.
    pub bucket_us: u64,
    /// Of a sample of frames: hits by group of frames.
    pub sample_groups: Vec<HitBucket>,
    /// Accesses that were simulated.
    pub accesses: u64,
}

/// Latencies in classes an eighth of a power of two wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { counts: vec![0; 64 * 8], total: 0 }
    }
}

impl LatencyHistogram {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        let ns = ns.max(8);
        let power = 63 - ns.leading_zeros();
        let eighth = (ns >> (power - 3)) & 7;
        self.counts[(power * 8) as usize + eighth as usize] += 1;
        self.total += 1;
    }

    /// The same with all latencies divided by `factor`, to an eighth of a power of two.
    fn divided(&self, factor: f64) -> LatencyHistogram {
        let by = (8.0 * factor.log2()).round() as i64;
        let mut divided = LatencyHistogram { total: self.total, ..LatencyHistogram::default() };
        let last = divided.counts.len() as i64 - 1;
        for (class, count) in self.counts.iter().enumerate() {
            divided.counts[(class as i64 - by).clamp(24, last) as usize] += count;
        }
        divided
    }

    /// Nanoseconds that `part` (0 to 1) of the latencies do not exceed, to 12 %; 0 if there are none.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut sum = 0;
        for (class, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted.max(1) {
                let (power, eighth) = (class as u32 / 8, class as u64 % 8);
                return ((8 + eighth + 1) << (power - 3)) - 1;
            }
        }
        0
    }
}

impl SimOutcome {
    #[inline]
    pub(crate) fn served(&mut self, served: ServedRequest) {
        let request = served.request;
        let sums = &mut self.disk[request.purpose as usize];
        sums.pages += u64::from(request.pages);
        sums.runs += 1;
        // Where disks are too slow for days, sums of waits are beyond any number: they stay at the largest.
        sums.queue_ns = sums.queue_ns.saturating_add(served.queue_ns_of_pages());
        sums.exec_ns = sums.exec_ns.saturating_add(served.exec_ns());
        sums.run_latency_ns = sums.run_latency_ns.saturating_add(served.end_ns - request.at_ns);
        if request.foreground {
            let hop_ns = u64::from(request.hop_ns);
            let waited_ns = served.latency_ns_of_pages().saturating_add(u64::from(request.pages) * hop_ns);
            self.foreground_ns = self.foreground_ns.saturating_add(waited_ns);
            self.foreground_runs.add(served.end_ns - request.at_ns + hop_ns);
        }
    }

    /// What hardware counts that is faster by `factor` under a load that is denser by as much: times at disks and flash
    /// are divided, and how busy disks are stays.
    #[must_use]
    pub fn faster(mut self, factor: f64) -> SimOutcome {
        if factor == 1.0 {
            return self;
        }
        let divided = |ns: u64| (ns as f64 / factor) as u64;
        for sums in &mut self.disk {
            sums.queue_ns = divided(sums.queue_ns);
            sums.exec_ns = divided(sums.exec_ns);
            sums.run_latency_ns = divided(sums.run_latency_ns);
        }
        self.foreground_ns = divided(self.foreground_ns);
        self.foreground_runs = self.foreground_runs.divided(factor);
        self
    }

    /// Part of the pages read that memory or flash had; 0 if none was read.
    pub fn hit_ratio(&self) -> f64 {
        let hits = self.ram_pages.iter().chain(&self.flash_pages).sum::<u64>();
        ratio(hits as f64, self.read_pages.iter().sum::<u64>() as f64)
    }

    /// Part of the pages read that memory had.
    pub fn ram_hit_ratio(&self) -> f64 {
        ratio(self.ram_pages.iter().sum::<u64>() as f64, self.read_pages.iter().sum::<u64>() as f64)
    }

    /// Two standard errors of the hit ratio of a sample of frames, from how much groups of frames differ; `None`
    /// without a sample. In 19 of 20 cases all frames have a hit ratio that is nearer.
    ///
    /// # Source
    /// Random groups of a ratio: Wolter, Introduction to Variance Estimation (2007), chapter 2.
    pub fn hit_ratio_error(&self) -> Option<f64> {
        let groups = self.sample_groups.len() as f64;
        let pages = self.sample_groups.iter().map(|group| group.pages).sum::<u64>() as f64;
        if groups < 2.0 || pages == 0.0 {
            return None;
        }
        let hits = self.sample_groups.iter().map(|group| group.hits).sum::<u64>() as f64;
        let residual = |group: &HitBucket| group.hits as f64 - hits / pages * group.pages as f64;
        let squares: f64 = self.sample_groups.iter().map(|group| residual(group).powi(2)).sum();
        Some(2.0 * (squares * groups / (groups - 1.0)).sqrt() / pages)
    }

    /// Milliseconds that a foreground page waits, memory counted as 0.
    pub fn foreground_ms(&self) -> f64 {
        ratio(self.foreground_ns as f64, self.foreground_pages as f64) / 1e6
    }

    /// Milliseconds that a foreground page waits that memory does not have.
    pub fn foreground_slow_ms(&self) -> f64 {
        ratio(self.foreground_ns as f64, self.foreground_slow_pages as f64) / 1e6
    }

    /// Milliseconds that a page waits for its disk and on it, all purposes.
    pub fn disk_latency_ms(&self) -> f64 {
        self.queue_ms(None) + self.exec_ms(None)
    }

    /// Milliseconds that a page waits for its disk.
    pub fn queue_ms(&self, purpose: Option<IoPurpose>) -> f64 {
        self.mean_ms(purpose, |sums| sums.queue_ns)
    }

    /// Milliseconds that a disk spends on a page.
    pub fn exec_ms(&self, purpose: Option<IoPurpose>) -> f64 {
        self.mean_ms(purpose, |sums| sums.exec_ns)
    }

    /// Part of the time that disks work, on average.
    pub fn utilisation(&self) -> f64 {
        ratio(self.busy_ns.iter().sum::<u64>() as f64, self.counted_us as f64 * 1e3 * self.busy_ns.len() as f64)
    }

    /// Part of the bytes at the disks that are writes.
    pub fn written_part(&self) -> f64 {
        ratio(self.disk_written_bytes as f64, (self.disk_written_bytes + self.disk_read_bytes) as f64)
    }

    /// Bytes written to flash in a year at this rate.
    pub fn flash_bytes_a_year(&self) -> f64 {
        self.flash_written_bytes as f64 * ratio(YEAR_US, self.counted_us as f64)
    }

    /// Dollars a year of an object store with these prices, of a load that has one in `scale` files; 0 without one,
    /// `None` if a price is missing.
    pub fn rent_a_year(&self, hardware: &HardwareProfile, scale: u32) -> Option<f64> {
        let Some(object) = self.object else { return Some(0.0) };
        let a_year = ratio(YEAR_US, self.counted_us as f64) / 1000.0;
        let gets = object.gets as f64 * a_year * hardware.get("object.get_price")?;
        let puts = object.puts as f64 * a_year * hardware.get("object.put_price")?;
        let stored = object.stored_bytes / GIB * 12.0 * hardware.get("object.price")?;
        Some((gets + puts + stored) * f64::from(scale))
    }

    /// A call that waited for several requests is over.
    pub(crate) fn called(&mut self, pages: u64, latency_ns: u64) {
        self.foreground_ns = self.foreground_ns.saturating_add(pages.saturating_mul(latency_ns));
        if pages > 0 && latency_ns > 0 {
            self.foreground_runs.add(latency_ns);
        }
    }

    /// The statistics of table 1 by name, of a load that has one in `scale` files: rates of the whole in MB (2^20) and
    /// thousands a minute, times in milliseconds.
    pub fn table1(&self, scale: u32) -> Vec<(&'static str, f64)> {
        let minutes = self.counted_us as f64 / 60e6 / f64::from(scale.max(1));
        let mb = |bytes: u64| ratio(bytes as f64 / f64::from(1 << 20), minutes);
        let requests = |pages: u64| ratio(pages as f64 / 1e3, minutes);
        let of = |purpose: IoPurpose| self.disk[purpose as usize].pages;
        let ram: u64 = self.ram_pages.iter().sum();
        let mut rows = vec![
            ("FS reads MB/min", mb(self.read_bytes.iter().sum())),
            ("FS writes MB/min", mb(self.written_bytes.iter().sum())),
            ("RAM reads MB/min", mb(ram * PAGE_BYTES)),
            ("RAM writes MB/min", mb(self.ram_inserts * PAGE_BYTES)),
            ("Disk reads MB/min", mb(self.disk_read_bytes)),
            ("Disk writes MB/min", mb(self.disk_written_bytes)),
            ("Net reads MB/min", mb(self.net_bytes)),
            ("Disk reqs K/min", requests(IoPurpose::ALL.map(of).iter().sum())),
        ];
        let names = [
            ["(user-read) K/min", "(log) K/min", "(flush) K/min", "(compact) K/min"],
            ["Disk queue ms (user-read)", "Disk queue ms (log)", "Disk queue ms (flush)", "Disk queue ms (compact)"],
            ["Disk exec ms (user-read)", "Disk exec ms (log)", "Disk exec ms (flush)", "Disk exec ms (compact)"],
        ];
        rows.extend(IoPurpose::ALL.iter().map(|purpose| (names[0][*purpose as usize], requests(of(*purpose)))));
        rows.push(("Disk queue ms", self.queue_ms(None)));
        rows.extend(IoPurpose::ALL.iter().map(|purpose| (names[1][*purpose as usize], self.queue_ms(Some(*purpose)))));
        rows.push(("Disk exec ms", self.exec_ms(None)));
        rows.extend(IoPurpose::ALL.iter().map(|purpose| (names[2][*purpose as usize], self.exec_ms(Some(*purpose)))));
        rows
    }

    fn mean_ms(&self, purpose: Option<IoPurpose>, ns: fn(&DiskSums) -> u64) -> f64 {
        let sums = match purpose {
            Some(purpose) => std::slice::from_ref(&self.disk[purpose as usize]),
            None => &self.disk[..],
        };
        ratio(sums.iter().map(ns).sum::<u64>() as f64, sums.iter().map(|sums| sums.pages).sum::<u64>() as f64) / 1e6
    }
}

/// 0 where nothing is divided by nothing.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Microseconds of a year.
pub(crate) const YEAR_US: f64 = 365.25 * 86_400e6;
/// 2^30.
const GIB: f64 = 1_073_741_824.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskRequest;
    use crate::workload::IoPurpose;

    #[test]
    fn waits_beyond_any_number_stay_at_the_largest() {
        let request = DiskRequest {
            at_ns: 0,
            offset: 0,
            file: 0,
            bytes: 65_536,
            pages: 16,
            purpose: IoPurpose::Read,
            counts: true,
            foreground: true,
            call: 0,
            hop_ns: 1,
        };
        let served = ServedRequest { request, begin_ns: u64::MAX / 20, seek_ns: 10, end_ns: u64::MAX / 20 + 1000 };
        let mut outcome = SimOutcome::default();
        (0..3).for_each(|_| outcome.served(served));
        assert_eq!((outcome.disk[0].queue_ns, outcome.foreground_ns), (u64::MAX, u64::MAX));
        assert_eq!((outcome.disk[0].runs, outcome.disk[0].exec_ns), (3, 3000));
    }
}
