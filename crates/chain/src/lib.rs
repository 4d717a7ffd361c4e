//! One replica of a chain: order, stamps, duplicates, promises and commits.
