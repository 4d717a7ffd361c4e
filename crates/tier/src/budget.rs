//! One number of bytes for all of a server's memory, divided among its uses.

/// The memory that an operator gives a server, and its uses. All numbers are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryDemand {
    /// Memory for everything; `None`: half of what the machine has, or what the rest of this needs, if that is more.
    pub total: Option<u64>,
    /// What the machine has; 0 if unknown.
    pub machine: u64,
    /// For the index of what was written when; `None`: a quarter, 1 GiB at most.
    pub index: Option<u64>,
    /// For packed names and inodes; `None`: an eighth, but less if records would have little.
    pub names: Option<u64>,
    /// Acknowledged and not yet on stable storage; `None`: an eighth, 1 GiB at most.
    pub dirty: Option<u64>,
    /// For the youngest records; `None`: 7/10 of what is left, or all that `old` leaves of it.
    pub young: Option<u64>,
    /// For older records that are in use; `None`: 3/10 of what is left, 8 MiB at least, or all that `young` leaves.
    pub old: Option<u64>,
    /// For connections, their threads and buffers; `None`: a sixteenth, between 6 and 256 MiB.
    pub connections: Option<u64>,
}

/// How much each use may take, in bytes. What counts is memory of the process and pages of its files that the kernel
/// keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// All of it: the sum of what follows.
    pub total: u64,
    /// Code, threads, connections, and what no other use was given.
    pub program: u64,
    /// How much of `program` is for connections, their threads and buffers.
    pub connections: u64,
    /// The namespace's store: blocks that it keeps, and what it has not written yet.
    pub store: u64,
    /// The index of what was written when.
    pub index: u64,
    /// Names and inodes that are packed. Those that were not used for long stay in a checkpoint beyond it.
    pub names: u64,
    /// Pages of files that are neither segments nor shelves: the log of metadata, tables of the store.
    pub files: u64,
    /// Written and not yet on stable storage.
    pub dirty: u64,
    /// The youngest records.
    pub young: u64,
    /// Parts of older history that are in use.
    pub old: u64,
}

/// There is less memory than a server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{total} bytes of memory are too little: with these settings at least {needed} are needed")]
pub struct TooLittle {
    /// What it was given, in bytes.
    pub total: u64,
    /// Least that would do, in bytes, a multiple of 1 MiB.
    pub needed: u64,
}

impl MemoryDemand {
    /// Divides the memory.
    ///
    /// # Errors
    /// `TooLittle`, with what would do: give that much, or wish for less.
    ///
    /// # Examples
    /// ```
    /// let shares = frieze_tier::MemoryDemand { total: Some(512 << 20), ..Default::default() }.divide()?;
    /// assert_eq!(shares.index, 128 << 20);
    /// assert!(frieze_tier::MemoryDemand { total: Some(1 << 20), ..Default::default() }.divide().is_err());
    /// # Ok::<(), frieze_tier::TooLittle>(())
    /// ```
    pub fn divide(&self) -> Result<Shares, TooLittle> {
        let half = if self.machine == 0 { UNKNOWN_MACHINE_BYTES / 2 } else { self.machine / 2 };
        match self.total {
            Some(total) => self.shares(total).ok_or_else(|| TooLittle { total, needed: self.smallest() }),
            None => Ok(self.shares(half).or_else(|| self.shares(self.smallest())).unwrap_or_default()),
        }
    }

    /// Shares of `total`, if it is enough.
    fn shares(&self, total: u64) -> Option<Shares> {
        let connections = self.connections.unwrap_or((total / 16).clamp(6 * MIB, 256 * MIB));
        let program = (25 * MIB + total / 64).min(256 * MIB).checked_add(connections)?;
        let store = (total / 16).clamp(8 * MIB, 128 * MIB);
        let files = (total / 32).clamp(4 * MIB, 256 * MIB);
        let index = self.index.unwrap_or((total / 4).min(1 << 30));
        let dirty = self.dirty.unwrap_or((total / 8).clamp(8 * MIB, 1 << 30));
        let taken = [program, store, files, index, dirty].into_iter().try_fold(0u64, u64::checked_add)?;
        let rest = total.checked_sub(taken)?;
        let names = self.names.unwrap_or_else(|| {
            let asked = |bytes: Option<u64>| bytes.unwrap_or(RECORDS_BYTES_MIN);
            let records = asked(self.young).saturating_add(asked(self.old));
            (rest.saturating_sub(records) / 2).clamp(NAMES_BYTES_MIN, (total / 8).max(NAMES_BYTES_MIN))
        });
        let rest = rest.checked_sub(names)?;
        let enough = |bytes: &u64| *bytes >= RECORDS_BYTES_MIN;
        let (young, old) = match (self.young, self.old) {
            (Some(young), Some(old)) => (young, old),
            (Some(young), None) => (young, rest.checked_sub(young).filter(enough)?),
            (None, Some(old)) => (rest.checked_sub(old).filter(enough)?, old),
            // ADR 72: the division that loses least on any of its loads.
            (None, None) => {
                let old = (rest - rest / 10 * YOUNG_TENTHS).max(RECORDS_BYTES_MIN);
                (rest.checked_sub(old).filter(enough)?, old)
            }
        };
        let program = program + rest.checked_sub(young.checked_add(old)?)?;
        Some(Shares { total, program, connections, store, index, names, files, dirty, young, old })
    }

    /// The least that can be divided, in whole MiB.
    fn smallest(&self) -> u64 {
        // Shares grow slower than the total: what can be divided once can be divided from there on.
        let (mut low, mut high) = (0, u64::MAX / MIB);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.shares(middle * MIB) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        low.saturating_mul(MIB)
    }
}

const MIB: u64 = 1 << 20;
/// Names of some directories.
const NAMES_BYTES_MIN: u64 = MIB;
/// Of young and of old records each: some requests of the largest size.
const RECORDS_BYTES_MIN: u64 = 8 * MIB;
/// Of what is left for records, the part of the youngest in tenths.
const YOUNG_TENTHS: u64 = 7;
/// What a machine is taken to have that does not say.
const UNKNOWN_MACHINE_BYTES: u64 = 8 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(shares: &Shares) -> u64 {
        let Shares { program, store, index, names, files, dirty, young, old, .. } = *shares;
        program + store + index + names + files + dirty + young + old
    }

    #[test]
    fn shares_are_the_whole_and_grow_with_it() {
        let mut before = Shares::default();
        for mib in [99u64, 128, 512, 2048, 16 << 10, 1 << 20] {
            let shares = MemoryDemand { total: Some(mib * MIB), ..MemoryDemand::default() }.divide().unwrap();
            assert_eq!((shares.total, sum(&shares)), (mib * MIB, mib * MIB));
            assert!(shares.young >= before.young && shares.old >= before.old && shares.index >= before.index);
            assert!(shares.young >= RECORDS_BYTES_MIN && shares.old >= RECORDS_BYTES_MIN);
            before = shares;
        }
    }

    #[test]
    fn young_records_have_seven_tenths_and_older_ones_enough_for_some_requests() {
        let of = |mib: u64| MemoryDemand { total: Some(mib * MIB), ..MemoryDemand::default() }.divide().unwrap();
        let (large, small) = (of(16 << 10), of(99));
        assert_eq!(large.young / (1 << 20), (large.young + large.old) / 10 * 7 / (1 << 20));
        assert!(small.old == RECORDS_BYTES_MIN && small.young >= small.old, "{small:?}");
    }

    #[test]
    fn names_have_an_eighth_where_that_leaves_as_much_for_records() {
        let of = |mib: u64| MemoryDemand { total: Some(mib * MIB), ..MemoryDemand::default() }.divide().unwrap();
        assert_eq!(of(16 << 10).names, 2 << 30);
        let small = of(128);
        assert!(small.names >= NAMES_BYTES_MIN && small.names < small.young + small.old, "{small:?}");
        let wished = MemoryDemand { total: Some(1 << 30), names: Some(3 << 20), ..MemoryDemand::default() };
        assert_eq!(wished.divide().unwrap().names, 3 << 20);
    }

    #[test]
    fn too_little_is_refused_with_the_least_that_would_do() {
        for index in [None, Some(64 << 10), Some(3 << 30)] {
            let wishes = |total| MemoryDemand { total: Some(total), index, ..MemoryDemand::default() };
            let needed = wishes(1).divide().unwrap_err().needed;
            assert!(wishes(needed).divide().is_ok(), "{needed} with an index of {index:?}");
            assert!(wishes(needed - MIB).divide().is_err(), "{needed} with an index of {index:?}");
        }
        assert_eq!(wishes_of_all(u64::MAX).divide().unwrap_err().needed, u64::MAX / MIB * MIB);
    }

    #[test]
    fn a_named_part_gets_its_size() {
        let wishes = MemoryDemand { total: Some(1 << 30), ..MemoryDemand::default() };
        let shares = MemoryDemand { young: Some(64 << 10), old: Some(4096), ..wishes }.divide().unwrap();
        assert_eq!((shares.young, shares.old, sum(&shares)), (64 << 10, 4096, 1 << 30));
        let shares = MemoryDemand { old: Some(4096), ..wishes }.divide().unwrap();
        assert_eq!((shares.old, sum(&shares)), (4096, 1 << 30));
        assert!(MemoryDemand { young: Some(1 << 30), ..wishes }.divide().is_err());
    }

    #[test]
    fn connections_are_a_part_of_the_program_as_large_as_is_wished() {
        let wishes = MemoryDemand { total: Some(512 * MIB), ..MemoryDemand::default() };
        let automatic = wishes.divide().unwrap();
        assert_eq!((automatic.connections, sum(&automatic)), (32 * MIB, 512 * MIB));
        let wished = MemoryDemand { connections: Some(160 * MIB), ..wishes }.divide().unwrap();
        assert_eq!(wished.program - automatic.program, 128 * MIB);
        assert!(MemoryDemand { connections: Some(512 * MIB), ..wishes }.divide().is_err());
    }

    fn wishes_of_all(bytes: u64) -> MemoryDemand {
        MemoryDemand { total: Some(1 << 30), index: Some(bytes), dirty: Some(bytes), ..MemoryDemand::default() }
    }

    #[test]
    fn the_default_is_half_of_the_machine_or_the_needed_size() {
        let machine = 16 << 30;
        assert_eq!(MemoryDemand { machine, ..MemoryDemand::default() }.divide().unwrap().total, machine / 2);
        assert_eq!(MemoryDemand::default().divide().unwrap().total, UNKNOWN_MACHINE_BYTES / 2);
        let wishes = MemoryDemand { machine, dirty: Some(32 << 30), ..MemoryDemand::default() };
        let shares = wishes.divide().unwrap();
        assert!(shares.total > 32 << 30 && shares.dirty == 32 << 30, "{shares:?}");
        let tiny = MemoryDemand { machine: 64 << 20, ..MemoryDemand::default() }.divide().unwrap();
        assert!(tiny.total >= 64 << 20 && sum(&tiny) == tiny.total, "{tiny:?}");
    }
}
