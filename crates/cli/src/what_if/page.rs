//! The report of `what-if`: one HTML page that needs nothing else.
//!
//! Guarantees: every number comes from a simulation of this run; what the page computes itself is money, by the formula
//! of `SystemCosts::of` (a test compares both). Text of the trace enters the page as JSON alone.

use std::fs;
use std::path::Path;

use anyhow::Result;
use frieze_tier::Writes;
use frieze_whatif::{CrashCost, IoPurpose, PAGE_BYTES, RENT_YEARS, SimOutcome, TriedSystem, best_for_little, name_of};
use serde_json::{Value, json};

use super::report::WhatIfReport;
use crate::format;

/// A system with and without a crash, caches alone.
pub(super) struct CrashRuns {
    /// Its name.
    pub(super) name: String,
    /// Microseconds at which memory lost what it had.
    pub(super) crash_us: u64,
    /// Without the crash.
    pub(super) without: SimOutcome,
    /// With it.
    pub(super) with: SimOutcome,
}

/// Name of the page in its directory.
const PAGE_NAME: &str = "what-if.html";
const TEMPLATE: &str = include_str!("page.html");

impl WhatIfReport<'_> {
    /// Writes the page to the directory `out`, which is made if it is missing.
    ///
    /// # Errors
    /// If the directory or the page cannot be written.
    pub(super) fn write_page(&self, out: &Path, crashes: &[CrashRuns]) -> Result<()> {
        fs::create_dir_all(out)?;
        // `<` would let a name end the script that it is in.
        let data = self.page_data(crashes).to_string().replace('<', "\\u003c");
        Ok(fs::write(out.join(PAGE_NAME), TEMPLATE.replacen("{{DATA}}", &data, 1))?)
    }

    fn page_data(&self, crashes: &[CrashRuns]) -> Value {
        let number = |setting: &str| self.base.get(setting);
        let counted = self.systems.first().map_or(0, |system| system.outcome.counted_us);
        let part = if self.scale > 1 { format!(", one in {} files", self.scale) } else { String::new() };
        let about = format!(
            "{} of {}{part}, on hardware of the profile {}",
            format::duration_ms(counted / 1000),
            format::local(self.trace),
            self.base.name()
        );
        let answer: Vec<Value> = self
            .answer
            .sentences
            .iter()
            .map(|(label, words)| json!({ "label": label, "words": words.trim() }))
            .collect();
        // A system that is overloaded ends early, and may lack what others have.
        let reads =
            |purpose: &IoPurpose| self.systems.iter().any(|system| system.outcome.read_pages[*purpose as usize] > 0);
        let purposes: Vec<IoPurpose> = IoPurpose::ALL.into_iter().filter(reads).collect();
        let systems: Vec<Value> = self.systems.iter().map(|system| self.page_system(system, &purposes)).collect();
        let crashes: Vec<Value> = crashes.iter().map(|runs| runs.json(self.scale)).collect();
        json!({
            "about": about, "answer": answer, "systems": systems, "crashes": crashes,
            "best": if self.systems.is_empty() { None } else { best_for_little(self.systems, 0) },
            "prices": { "disk": number("disk.price"), "ram": number("ram.price"), "flash": number("flash.price") },
            "afr": { "disk": number("disk.afr").unwrap_or(0.0), "ram": number("ram.afr").unwrap_or(0.0) },
            "rent_years": RENT_YEARS, "assumptions": self.assumptions(), "ambiguous": self.ambiguous(),
        })
    }

    fn page_system(&self, system: &TriedSystem, purposes: &[IoPurpose]) -> Value {
        let outcome = &system.outcome;
        let size = |setting: &str| system.hardware.get(setting).unwrap_or(0.0);
        let if_served = |ms: f64| (!outcome.overloaded).then_some(ms);
        json!({
            "name": name_of(&system.hardware), "ram": size("ram.size"), "flash": size("flash.size"),
            "disks": system.hardware.disks(), "ms": if_served(outcome.foreground_ms()),
            "p99": if_served(outcome.foreground_runs.quantile_ns(0.99) as f64 / 1e6),
            "hit_ratio": outcome.hit_ratio(), "busy": outcome.utilisation(),
            // Flash that is never written to, and a system without flash, wear out at no rate.
            "worn_a_year": system.flash_years.map_or(0.0, |years| 1.0 / years),
            // What an object store costs in a year.
            "rent": system.costs.map_or(0.0, |costs| costs.rent),
            "layers": self.page_layers(outcome), "hits": page_hits(outcome, purposes),
        })
    }

    /// Bytes a second at each layer, of the whole machine.
    fn page_layers(&self, outcome: &SimOutcome) -> Vec<Value> {
        let rate = |bytes: u64| match outcome.counted_us {
            0 => 0.0,
            counted_us => bytes as f64 * f64::from(self.scale) * 1e6 / counted_us as f64,
        };
        let pages = |pages: &[u64; 4]| pages.iter().sum::<u64>() * PAGE_BYTES;
        [
            ("read by programs", "disk", outcome.read_bytes.iter().sum()),
            ("of it, pages found in memory", "ram", pages(&outcome.ram_pages)),
            ("of it, pages found in flash", "flash", pages(&outcome.flash_pages)),
            ("read from disks or objects", "disk", outcome.disk_read_bytes),
            ("written, with all copies", "disk", outcome.written_bytes.iter().sum()),
            ("written to disks or objects", "disk", outcome.disk_written_bytes),
            ("written to flash", "flash", outcome.flash_written_bytes),
            ("over the network", "disk", outcome.net_bytes),
        ]
        .into_iter()
        .map(|(name, kind, bytes): (&str, &str, u64)| json!({ "name": name, "kind": kind, "rate": rate(bytes) }))
        .collect()
    }

    /// What the study leaves open and what was done, the study's words first.
    fn ambiguous(&self) -> Vec<String> {
        let Some(policies) = self.systems.first().map(|system| &system.policies) else { return Vec::new() };
        let writes = match policies.writes {
            Writes::Allocate => "a written page comes into memory",
            Writes::NoAllocate => "a written page that is in memory is updated and keeps its place",
            Writes::Hinted => "a file that is removed within an hour of its first write counts as read soon",
        };
        let warm_up = match policies.warm_up_us {
            0 => "caches are empty at the beginning, and all of the trace counts (--warm-up)".to_owned(),
            us => format!("the first {} fill caches and do not count", format::duration_ms(us / 1000)),
        };
        let mut all: Vec<String> = [
            "a disk request is a page of 4 KiB, and latency is averaged over pages; the slowest in a hundred are runs \
             of up to 16 pages",
            "a MB is 10^6 bytes in speeds, and 2^20 bytes in sizes and slices",
            "a page that is found in memory waits 0 ms and counts in the average",
            "the head of a disk keeps its place while the disk is idle, and a distance backward counts as one forward",
            "pages of removed files age out of caches",
            "memory counts in the price and, as in the study, not in what is replaced in a year",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend([writes.to_owned(), warm_up]);
        all
    }
}

/// Where reads find their pages: all reads, then those of each of `purposes` where there are several.
fn page_hits(outcome: &SimOutcome, purposes: &[IoPurpose]) -> Vec<Value> {
    let row = |name: &str, of: &[IoPurpose]| {
        let sum = |pages: &[u64; 4]| of.iter().map(|purpose| pages[*purpose as usize]).sum::<u64>() as f64;
        let all = sum(&outcome.read_pages).max(1.0);
        json!({ "name": name, "ram": sum(&outcome.ram_pages) / all, "flash": sum(&outcome.flash_pages) / all })
    };
    let of_one = purposes.iter().filter(|_| purposes.len() > 1);
    std::iter::once(row("all reads", &IoPurpose::ALL))
        .chain(of_one.map(|purpose| row(purpose.name(), std::slice::from_ref(purpose))))
        .collect()
}

impl CrashRuns {
    fn json(&self, scale: u32) -> Value {
        let cost = CrashCost::of(&self.without, &self.with, self.crash_us);
        let hits = |outcome: &SimOutcome| -> Vec<Option<f64>> {
            let part = |pages: u64, hits: u64| (pages > 0).then(|| (hits as f64 / pages as f64 * 1e4).round() / 1e4);
            outcome.timeline.iter().map(|bucket| part(bucket.pages, bucket.hits)).collect()
        };
        json!({
            "name": self.name, "bucket_s": self.with.bucket_us as f64 / 1e6, "crash_s": self.crash_us as f64 / 1e6,
            "extra_gb": cost.extra_read_bytes as f64 * f64::from(scale) / f64::from(1 << 30),
            "recovered_s": cost.recovered_us.map(|us| us as f64 / 1e6),
            "with": hits(&self.with), "without": hits(&self.without),
        })
    }
}
