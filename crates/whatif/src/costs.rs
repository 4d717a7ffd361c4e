//! What a system costs, and which systems are worth their price.

use crate::hardware::HardwareProfile;
use crate::outcome::SimOutcome;

/// Dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SystemCosts {
    /// To buy it.
    pub capex: f64,
    /// To replace what fails in a year, disks and flash, and what an object store costs in it.
    pub opex: f64,
    /// The same with memory, whose rate the study's table has and its printed sum has not.
    pub opex_with_ram: f64,
    /// Of it, for an object store.
    pub rent: f64,
    /// Years until flash is worn out; `None` without flash, infinite if nothing is written to it.
    pub flash_years: Option<f64>,
}

impl SystemCosts {
    /// What systems are compared by: to buy it, and the rent of [`RENT_YEARS`], since an object store is not bought.
    pub fn price(&self) -> f64 {
        self.capex + RENT_YEARS * self.rent
    }

    /// Of a system and what it did under a load that has one in `scale` files; `None` if a price is missing.
    pub fn of(hardware: &HardwareProfile, outcome: &SimOutcome, scale: u32) -> Option<SystemCosts> {
        let size = |setting: &str| hardware.get(setting).unwrap_or(0.0);
        // A price is needed only for what is there.
        let cost = |sizes: &str, price: &str| match size(sizes) {
            0.0 => Some(0.0),
            size => Some(size * hardware.get(price)?),
        };
        let disks = cost("disk.count", "disk.price")?;
        let (ram, flash) = (cost("ram.size", "ram.price")?, cost("flash.size", "flash.price")?);
        let flash_years = flash_years(hardware, outcome, scale);
        let of_flash = flash_years.map_or(0.0, |years| flash / years);
        let rent = outcome.rent_a_year(hardware, scale)?;
        let opex = disks * size("disk.afr") / 100.0 + of_flash + rent;
        let opex_with_ram = opex + ram * size("ram.afr") / 100.0;
        Some(SystemCosts { capex: disks + ram + flash, opex, opex_with_ram, rent, flash_years })
    }
}

/// Years until flash is worn out at the rate of `outcome`, of one in `scale` files; `None` without flash.
pub fn flash_years(hardware: &HardwareProfile, outcome: &SimOutcome, scale: u32) -> Option<f64> {
    let bytes = hardware.flash_bytes() as f64;
    let cycles = hardware.get("flash.cycles").filter(|_| bytes > 0.0)?;
    let amplification = if outcome.flash_amplification > 0.0 { outcome.flash_amplification } else { 1.0 };
    let a_year = outcome.flash_bytes_a_year() * f64::from(scale) * amplification;
    Some(if a_year > 0.0 { bytes * cycles / a_year } else { f64::INFINITY })
}

/// Which of the systems, given as (price, latency), have none that is as cheap and as fast and better in one of both.
pub fn justified(systems: &[(f64, f64)]) -> Vec<bool> {
    let is_better = |one: &(f64, f64), other: &(f64, f64)| one.0 <= other.0 && one.1 <= other.1 && one != other;
    systems.iter().map(|system| !systems.iter().any(|other| is_better(other, system))).collect()
}

/// What a crash cost: bytes read from disks more than without it, and how long hits were fewer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrashCost {
    /// Bytes.
    pub extra_read_bytes: i64,
    /// Microseconds after the crash until an interval has hits within a point of those without.
    pub recovered_us: Option<u64>,
}

impl CrashCost {
    /// From two runs of one system, without and with a crash at `crash_us`.
    pub fn of(without: &SimOutcome, with: &SimOutcome, crash_us: u64) -> CrashCost {
        let bucket_us = with.bucket_us.max(1);
        let first = (crash_us / bucket_us) as usize;
        let part = |outcome: &SimOutcome, at: usize| {
            outcome
                .timeline
                .get(at)
                .filter(|bucket| bucket.pages > 0)
                .map(|bucket| bucket.hits as f64 / bucket.pages as f64)
        };
        let last_worse = (first..with.timeline.len())
            .rev()
            .find(|at| part(without, *at).zip(part(with, *at)).is_some_and(|(without, with)| without - with > 0.01));
        let recovered_us = match last_worse {
            None => Some(0),
            Some(at) if at + 1 < with.timeline.len() => Some((at as u64 + 1) * bucket_us - crash_us),
            Some(_) => None,
        };
        CrashCost { extra_read_bytes: with.disk_read_bytes as i64 - without.disk_read_bytes as i64, recovered_us }
    }
}

/// Years of the rent of an object store that stand beside hardware that is bought.
pub const RENT_YEARS: f64 = 5.0;
