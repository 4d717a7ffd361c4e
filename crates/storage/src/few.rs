//! A short list, most often of one element.

use smallvec::SmallVec;

/// Values per part of a write: most writes have one part.
pub type Few<T> = SmallVec<[T; 1]>;
