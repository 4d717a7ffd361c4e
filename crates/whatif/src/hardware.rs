//! Hardware in numbers that have a source: profiles in TOML, and what `--set` and `--sweep` change in them.
//!
//! Guarantees: a number outside its range is refused with the range; a profile names a source and a date for each.
//! Leaves to others: what the numbers do (`simulation`, `costs`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::disk::DiskModel;
use crate::error::WhatIfError;
use crate::wear::greedy_amplification;

/// A number of a profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileNumber {
    /// The number, in the unit of its name ([`SETTINGS`]).
    pub value: f64,
    /// Where it comes from.
    pub source: String,
    /// When that was so, a year or a day.
    pub date: String,
}

/// Hardware of a machine by name. Prices may be missing; then there are no costs.
#[derive(Clone, Debug, PartialEq)]
pub struct HardwareProfile {
    name: String,
    numbers: BTreeMap<String, ProfileNumber>,
}

/// A setting of a profile: its name, unit, least and most value, and whether a profile may lack it.
#[derive(Clone, Copy, Debug)]
pub struct SettingRange {
    /// As `--set` takes it.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: &'static str,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// True if a profile must have it.
    pub required: bool,
}

const fn setting(name: &'static str, unit: &'static str, min: f64, max: f64, required: bool) -> SettingRange {
    SettingRange { name, unit, min, max, required }
}

/// Every setting. A GB of memory or flash is 2^30 bytes, a MB/s 10^6 bytes a second, a slice in MB 2^20 bytes.
pub const SETTINGS: &[SettingRange] = &[
    setting("ram.size", "GB", 0.0, 100_000.0, true),
    setting("ram.price", "$/GB", 0.0, 1e6, false),
    setting("ram.afr", "%", 0.0, 100.0, false),
    setting("flash.size", "GB", 0.0, 1_000_000.0, true),
    setting("flash.latency", "ms", 0.0, 10_000.0, true),
    setting("flash.bandwidth", "MB/s", 0.1, 1e6, false),
    setting("flash.cycles", "cycles", 1.0, 1e7, true),
    setting("flash.amplification", "bytes a byte", 1.0, 100.0, false),
    setting("flash.utilisation", "%", 0.0, 99.0, false),
    setting("flash.price", "$/GB", 0.0, 1e6, false),
    setting("disk.count", "disks", 0.0, 1_000.0, true),
    setting("disk.seek", "ms", 0.0, 10_000.0, true),
    setting("disk.bandwidth", "MB/s", 0.1, 1e6, true),
    setting("disk.slice", "MB", 0.004, 1e6, true),
    setting("disk.price", "$", 0.0, 1e6, false),
    setting("disk.afr", "%", 0.0, 100.0, false),
    setting("net.latency", "ms", 0.0, 10_000.0, false),
    setting("net.sigma", "of the logarithm", 0.0, 5.0, false),
    setting("net.tail", "%", 0.0, 100.0, false),
    setting("net.alpha", "exponent", 1.05, 100.0, false),
    setting("object.latency", "ms", 0.0, 100_000.0, false),
    setting("object.sigma", "of the logarithm", 0.0, 5.0, false),
    setting("object.tail", "%", 0.0, 100.0, false),
    setting("object.alpha", "exponent", 1.05, 100.0, false),
    setting("object.part", "MB", 0.004, 5_120.0, false),
    setting("object.get_price", "$/1000", 0.0, 1e6, false),
    setting("object.put_price", "$/1000", 0.0, 1e6, false),
    setting("object.price", "$/GB-month", 0.0, 1e6, false),
];

/// The hardware of the study, and hardware of today.
const BUILT_IN: &[(&str, &str)] = &[
    ("fast14", include_str!("../profiles/fast14.toml")),
    ("hdd-nvme", include_str!("../profiles/hdd-nvme.toml")),
    ("hdd-qlc", include_str!("../profiles/hdd-qlc.toml")),
];

impl HardwareProfile {
    /// Names of the profiles that are built in.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// A profile that is built in; `None` if there is none of that name.
    pub fn built_in(name: &str) -> Option<HardwareProfile> {
        let (name, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
        Some(HardwareProfile::parse(name, text).expect("a test reads every profile that is built in"))
    }

    /// Reads a profile. `name` is for errors.
    ///
    /// # Errors
    /// `BadProfile` names the line, or the setting that is missing or unknown; `OutOfRange` the range.
    pub fn parse(name: &str, text: &str) -> Result<HardwareProfile, WhatIfError> {
        type Sections = BTreeMap<String, BTreeMap<String, ProfileNumber>>;
        let bad = |problem: String| WhatIfError::BadProfile { name: name.to_owned(), problem };
        let sections: Sections = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        let mut numbers = BTreeMap::new();
        for (section, of_section) in sections {
            for (key, number) in of_section {
                let setting = format!("{section}.{key}");
                range_of(&setting)?.check(number.value)?;
                numbers.insert(setting, number);
            }
        }
        if let Some(missing) = SETTINGS.iter().find(|setting| setting.required && !numbers.contains_key(setting.name)) {
            return Err(bad(format!("{} is missing (in {})", missing.name, missing.unit)));
        }
        Ok(HardwareProfile { name: name.to_owned(), numbers })
    }

    /// Changes one number: `disk.seek` to `8ms`. `ram`, `flash` and `disks` stand for the sizes.
    ///
    /// # Errors
    /// `UnknownSetting` has all names, `BadValue` an example, `OutOfRange` the range.
    pub fn set(&mut self, setting: &str, value: &str) -> Result<(), WhatIfError> {
        let range = range_of(setting)?;
        self.put(range, parse_value(range, value)?)
    }

    /// The number of a setting; `None` if the profile lacks it.
    pub fn get(&self, setting: &str) -> Option<f64> {
        self.numbers.get(setting).map(|number| number.value)
    }

    /// The same for a load of one in `by` files: a part of memory, flash and disks. What is left of the disks may be no
    /// whole number: then whole disks, and flash, are slower by [`HardwareProfile::slowdown`], so that they are as busy
    /// as those of the whole load, and waits divided by it are those of the whole load. That is exact where requests
    /// arrive independently of each other.
    ///
    /// # Errors
    /// `OutOfRange` if disks would be too slow to be simulated: take a larger part of the load.
    pub fn shrunk(&self, by: u32) -> Result<HardwareProfile, WhatIfError> {
        let (mut profile, by) = (self.clone(), by.max(1));
        let slowdown = self.slowdown(by);
        let whole = |setting: &str| self.required(setting) / f64::from(by);
        profile.put(range_of("ram.size")?, whole("ram.size"))?;
        profile.put(range_of("flash.size")?, whole("flash.size"))?;
        let disks = if self.disks() == 0 { 0.0 } else { whole("disk.count").floor().max(1.0) };
        profile.put(range_of("disk.count")?, disks)?;
        for (setting, factor) in [
            ("disk.seek", slowdown),
            ("disk.bandwidth", 1.0 / slowdown),
            ("flash.latency", slowdown),
            ("flash.bandwidth", 1.0 / slowdown),
        ] {
            if let Some(value) = self.get(setting).filter(|_| slowdown != 1.0) {
                profile.put(range_of(setting)?, value * factor)?;
            }
        }
        Ok(profile)
    }

    /// The same with caches for one in `by` frames, disks as they are.
    ///
    /// # Errors
    /// None: a part of a size is in its range.
    pub fn with_caches_of_one_in(&self, by: u32) -> Result<HardwareProfile, WhatIfError> {
        let mut profile = self.clone();
        for size in ["ram.size", "flash.size"] {
            profile.put(range_of(size)?, self.required(size) / f64::from(by.max(1)))?;
        }
        Ok(profile)
    }

    /// How much slower the disks of a load of one in `by` files are simulated than they are: 1 if `by` divides them.
    pub fn slowdown(&self, by: u32) -> f64 {
        let of_part = f64::from(self.disks()) / f64::from(by.max(1));
        if self.disks() == 0 {
            return 1.0;
        }
        of_part.floor().max(1.0) / of_part
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Numbers by name, with their sources.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, &ProfileNumber)> {
        self.numbers.iter().map(|(name, number)| (name.as_str(), number))
    }

    /// Bytes of memory for the cache.
    pub fn ram_bytes(&self) -> u64 {
        (self.required("ram.size") * GIB) as u64
    }

    /// Bytes of flash.
    pub fn flash_bytes(&self) -> u64 {
        (self.required("flash.size") * GIB) as u64
    }

    /// Bytes that flash writes itself for a byte that it is given: by its utilisation, else as the profile says.
    pub fn flash_amplification(&self) -> f64 {
        match self.get("flash.utilisation") {
            Some(percent) => greedy_amplification(percent / 100.0),
            None => self.get("flash.amplification").unwrap_or(1.0),
        }
    }

    /// Bytes of a part of a file in an object store.
    pub fn object_part_bytes(&self) -> u64 {
        (self.get("object.part").unwrap_or(OBJECT_PART_MB) * f64::from(1 << 20)) as u64
    }

    /// Disks; without any, files lie in an object store.
    pub fn disks(&self) -> u32 {
        self.required("disk.count") as u32
    }

    /// Times of one disk.
    pub fn disk_model(&self) -> DiskModel {
        DiskModel {
            seek_ns: (self.required("disk.seek") * 1e6) as u64,
            bytes_per_s: self.required("disk.bandwidth") * 1e6,
            slice_bytes: (self.required("disk.slice") * f64::from(1 << 20)) as u64,
        }
    }

    /// Nanoseconds of a read of `bytes` from flash.
    pub fn flash_ns(&self, bytes: u64) -> u64 {
        let transfer = self.get("flash.bandwidth").map_or(0.0, |mb_per_s| bytes as f64 / mb_per_s * 1e3);
        (self.required("flash.latency") * 1e6 + transfer) as u64
    }

    fn required(&self, setting: &str) -> f64 {
        self.get(setting).expect("a profile has what it must have")
    }

    fn put(&mut self, range: &'static SettingRange, value: f64) -> Result<(), WhatIfError> {
        range.check(value)?;
        let number = ProfileNumber { value, source: "given by --set or --sweep".to_owned(), date: String::new() };
        self.numbers.insert(range.name.to_owned(), number);
        Ok(())
    }
}

impl SettingRange {
    fn check(&self, value: f64) -> Result<(), WhatIfError> {
        if value >= self.min && value <= self.max {
            return Ok(());
        }
        let SettingRange { name, unit, min, max, .. } = *self;
        Err(WhatIfError::OutOfRange { name: name.to_owned(), value, min, max, unit })
    }
}

/// The range of a setting, by its name or its short one.
fn range_of(name: &str) -> Result<&'static SettingRange, WhatIfError> {
    let full = match name {
        "ram" => "ram.size",
        "flash" => "flash.size",
        "disks" => "disk.count",
        name => name,
    };
    SETTINGS.iter().find(|setting| setting.name == full).ok_or_else(|| WhatIfError::UnknownSetting {
        name: name.to_owned(),
        known: SETTINGS.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", "),
    })
}

/// `8ms`, `8`, `0.5GB`, `250 MB/s`, `$100`: a number in the setting's unit, or in one that converts to it.
fn parse_value(range: &SettingRange, text: &str) -> Result<f64, WhatIfError> {
    let bad = || WhatIfError::BadValue {
        name: range.name.to_owned(),
        text: text.to_owned(),
        expected: format!("a number in {}", range.unit),
    };
    let plain = text.trim().trim_start_matches('$');
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let mut split = plain.find(|c: char| !digits(c)).unwrap_or(plain.len());
    // An exponent, as in 1e30.
    if plain[split..].starts_with(['e', 'E']) && plain[split + 1..].starts_with(digits) {
        let after = split + 1;
        split = plain[after..].find(|c: char| !digits(c)).map_or(plain.len(), |more| after + more);
    }
    let (number, unit) = (&plain[..split], plain[split..].trim());
    let number: f64 = number.parse().map_err(|_| bad())?;
    let factor = match (range.unit, unit.to_ascii_lowercase().as_str()) {
        (_, "") => 1.0,
        (own, unit) if own.eq_ignore_ascii_case(unit) || own.eq_ignore_ascii_case(&format!("${unit}")) => 1.0,
        ("ms", "us") => 1e-3,
        ("ms", "s") => 1e3,
        ("GB", "tb" | "t" | "tib") => 1024.0,
        ("GB", "mb" | "m" | "mib") => 1.0 / 1024.0,
        ("GB", "g" | "gib") | ("MB", "m" | "mib") | ("disks", "disk") => 1.0,
        ("MB", "kb" | "k" | "kib") => 1.0 / 1024.0,
        ("MB/s", "gb/s") => 1e3,
        _ => return Err(bad()),
    };
    Ok(number * factor)
}

/// What common clients upload at once.
const OBJECT_PART_MB: f64 = 8.0;
/// 2^30.
const GIB: f64 = 1_073_741_824.0;
