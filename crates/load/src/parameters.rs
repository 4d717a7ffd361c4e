//! Parameters of the load, their ranges, and the fitted ones.

use serde::{Deserialize, Serialize};

use crate::error::LoadError;

/// The fitted parameters with the table of what they give, as TOML.
pub const BUILT_IN: &str = include_str!("../messages.toml");

/// A column family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyParameters {
    /// Its name in the schema.
    pub name: String,
    /// Share of the bytes of a put; raised to `write_shape`, then made to sum to 1.
    pub write: f64,
    /// Share of the bytes that lay on disk before; made to sum to 1.
    pub base: f64,
    /// Chance that a visit reads it; raised to `touch_shape`.
    pub touch: f64,
}

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident $low:literal $high:literal,)*) => {
        /// What the load is made by. Counts and bytes are those of one whole machine.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct MessagesParameters {
            $($(#[$doc])* pub $name: f64,)*
            /// The column families.
            #[serde(rename = "family")]
            pub families: Vec<FamilyParameters>,
        }

        impl MessagesParameters {
            fn check_numbers(&self) -> Result<(), LoadError> {
                $(check(stringify!($name), self.$name, $low, $high)?;)*
                Ok(())
            }
        }
    };
}

parameters! {
    /// Regions of a machine.
    regions 1.0 1000.0,
    /// Users with any activity.
    users 100.0 1e8,
    /// Exponent of the bounded Pareto distribution of their activity: more is more even.
    activity_exponent 0.2 4.0,
    /// Largest activity over the smallest.
    activity_cap 1.0 1e6,
    /// Visits (page loads, of several gets and puts each) a second.
    visits_per_second 0.01 10_000.0,
    /// Visits of a session, mean (geometric).
    visits_per_session 1.0 1000.0,
    /// Seconds between two visits of a session, mean; the shortest is half of it, the longest three halves.
    visit_gap_seconds 0.1 86_400.0,
    /// How far the rate of sessions swings over a day, 0 to 1.
    diurnal_amplitude 0.0 0.99,
    /// Shape of the families' chances to be read: 0 makes them equal.
    touch_shape 0.0 5.0,
    /// Shape of the families' shares of a put.
    write_shape 0.0 5.0,
    /// Chance that a read of a family goes on into the older part of the row, at a random place.
    deep_share 0.0 1.0,
    /// Chance that the next block is read too.
    scan_share 0.0 0.95,
    /// Bloom filters that answer yes for no.
    bloom_false_share 0.0 0.5,
    /// Bytes on disk before, in TB (10^12), that gets and major compactions reach.
    base_tb 0.01 100.0,
    /// Bytes that a visit puts, as its log has them.
    put_bytes 1.0 1e8,
    /// Log bytes over flushed bytes.
    log_to_flush 1.0 100.0,
    /// Log bytes of a region at which it flushes, in MB (10^6).
    flush_mb 0.1 10_000.0,
    /// Files of a store from which on it compacts.
    compaction_files_min 2.0 20.0,
    /// Most files of one compaction.
    compaction_files_max 2.0 100.0,
    /// A file goes into a compaction if it is at most this times the newer ones.
    compaction_ratio 0.1 10.0,
    /// Smaller files always go into it, in MB (10^6).
    compaction_floor_mb 0.0 100_000.0,
    /// Days between two compactions of all files of a store.
    major_days 0.1 10_000.0,
    /// Bytes of a compaction's output over those of its inputs.
    compaction_keeps 0.1 1.0,
    /// Speed of one compaction, in MB/s (10^6) of its inputs.
    compaction_mb_per_second 0.1 10_000.0,
    /// Seconds from the end of a compaction to the removal of its inputs.
    archive_seconds 0.0 1e7,
    /// Bytes of a block as it lies on disk, mean.
    block_bytes 4096.0 10_000_000.0,
    /// Block cache, in GB (10^9).
    block_cache_gb 0.0 1000.0,
    /// Share of it that is in use between two evictions.
    block_cache_fill 0.1 1.0,
    /// Bytes of one log write, mean.
    log_write_bytes 64.0 4096.0,
    /// Log writes of a burst, of which one follows the other.
    log_burst 1.0 10_000.0,
    /// Time between two of them, in ms.
    log_gap_ms 0.0 10_000.0,
    /// Size of a log file, in MB (10^6).
    log_mb 1.0 100_000.0,
}

fn check(name: &str, given: f64, low: f64, high: f64) -> Result<(), LoadError> {
    // A number that is none fails both comparisons.
    if given >= low && given <= high {
        return Ok(());
    }
    let range = format!("from {low} to {high}");
    Err(LoadError::OutOfRange { name: name.to_owned(), given: given.to_string(), range })
}

impl MessagesParameters {
    /// Reads parameters from TOML; the table of compared numbers behind them is left out.
    ///
    /// # Errors
    /// `Unreadable` with line and column; `OutOfRange` with the range.
    pub fn parse(text: &str) -> Result<MessagesParameters, LoadError> {
        #[derive(Deserialize)]
        struct Document {
            parameters: MessagesParameters,
        }
        let Document { parameters } = toml::from_str(text)?;
        parameters.check()?;
        Ok(parameters)
    }

    /// The parameters that the fit found.
    ///
    /// # Panics
    /// Never: a test reads them.
    pub fn built_in() -> MessagesParameters {
        MessagesParameters::parse(BUILT_IN).expect("a test reads the built-in parameters")
    }

    /// Refuses what the model cannot play.
    ///
    /// # Errors
    /// `OutOfRange`, with the name and the range.
    pub fn check(&self) -> Result<(), LoadError> {
        self.check_numbers()?;
        let families = self.families.len();
        if !(1..=64).contains(&families) {
            let (name, range) = ("family".to_owned(), "given from 1 to 64 times".to_owned());
            return Err(LoadError::OutOfRange { name, given: format!("given {families} times"), range });
        }
        for family in &self.families {
            let of = |field: &str| format!("{field} of family {}", family.name);
            check(&of("write"), family.write, 1e-6, 1.0)?;
            check(&of("base"), family.base, 1e-6, 1.0)?;
            check(&of("touch"), family.touch, 1e-6, 1.0)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if family.name.is_empty() || family.name.len() > 64 || !family.name.chars().all(plain) {
                return Err(LoadError::OutOfRange {
                    name: "name of a family".to_owned(),
                    given: format!("{:?}", family.name),
                    range: "1 to 64 letters, digits, _ or -".to_owned(),
                });
            }
        }
        if self.compaction_files_max < self.compaction_files_min {
            return Err(LoadError::OutOfRange {
                name: "compaction_files_max".to_owned(),
                given: self.compaction_files_max.to_string(),
                range: format!("at least compaction_files_min, {}", self.compaction_files_min),
            });
        }
        Ok(())
    }

    /// Share of a put's bytes by family; they sum to 1.
    pub fn write_shares(&self) -> Vec<f64> {
        shares(self.families.iter().map(|family| family.write.powf(self.write_shape)))
    }

    /// Share of the bytes that lay on disk before, by family; they sum to 1.
    pub fn base_shares(&self) -> Vec<f64> {
        shares(self.families.iter().map(|family| family.base))
    }

    /// Chance that a visit reads each family.
    pub fn touch_chances(&self) -> Vec<f64> {
        self.families.iter().map(|family| family.touch.powf(self.touch_shape).min(1.0)).collect()
    }
}

fn shares(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let weights: Vec<f64> = weights.collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}
