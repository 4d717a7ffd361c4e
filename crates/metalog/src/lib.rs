//! The ordered log of metadata batches.
