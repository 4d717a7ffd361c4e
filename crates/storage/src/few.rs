//! A few things in a row, most often one.

use smallvec::SmallVec;

/// What a write has of each of its parts: most have one.
pub type Few<T> = SmallVec<[T; 1]>;
