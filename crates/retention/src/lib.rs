//! Retention of history: which instants of a file are kept, and which records show them.
//!
//! History is kept for ever by default. A policy, `all 1h, 1/min 1d, 1/day 1y`, thins it with age: every instant of the
//! last hour, then one a minute, then one a day.
//!
//! # The words
//! - A *period* is a step of one ladder, on which each divides all longer ones; its *grid* is its multiples in UTC.
//! - A *mark* (policy, class, I) is an entry of the log of names: below I, files with the policy are kept as the class
//!   keeps them. Marks only go up, and lie on the grid of their class.
//! - The *kept* instants of a file are those that its marks leave, and those that snapshots, clones and holds pin.
//! - An *epoch* is the stretch between two neighbouring kept instants. A record *survives* if it is newest in its epoch
//!   for at least one byte. The others die.
//!
//! # Guarantees
//! - An instant that is not kept is never kept again; a file that changes its policy keeps what both kept.
//! - Every multiple of the coarsest period of some policies is kept for all their files, down to where one of them
//!   ends.
//! - The states at kept instants are those of all records, however much of the dead is removed.
//! - An instant whose epoch had no death is exact too: what is only appended loses no instant.
//! - What is answered for an instant is a function of records and marks, not of what is still stored.
//!
//! Leaves to others: the order of entries (`metalog`), what dies and is packed when (`planes`; the rules are in
//! docs/adr/0093-thin-history-by-marks-and-packs.md, and `tests/replicas` is their model), packs (`multilog`,
//! `storage`), when all chains are closed (`chain`), names and their versions (`namespace`).
//!
//! Where to look: [`RegimeTable`] has policies and marks, [`RetentionTable`] executes entries, [`KeptSet`] has the
//! instants, [`RetentionSweep`] the rule of survival.
//!
//! # Source
//! Classes of age on a grid: rrdtool, and the snapshot tools sanoid and restic, which count snapshots where this counts
//! instants. Santry et al., Elephant (SOSP'99): which versions of a file are kept is a policy of the file.

mod error;
mod kept;
mod number;
mod period;
mod policy;
mod regime;
mod sweep;
mod table;
mod thinning;

pub use error::RetentionError;
pub use kept::{KeptSet, RetentionEpoch};
pub use number::PolicyNumber;
pub use period::GridPeriod;
pub use policy::{AgeBound, RetentionClass, RetentionPolicy};
pub use regime::{MarkedPolicy, Regime, RegimeNumber, RegimeTable, RetentionMark};
pub use sweep::{RANGES_MAX, RetentionSweep, SweepVerdict, surviving_records};
pub use table::{RetentionEntry, RetentionTable};
pub use thinning::Thinning;
